//! The conformance suite: runs every case on every backend of the table, through the store and through the engine, each
//! as a separate test (`sqlite::engine::lease_is_taken_over_after_expiry`). The server's tests also run it over HTTP.
//!
//! A backend that requires a server gets one from the testbed, unless `LEASEHOLD_TEST_<SCHEME>` is set to a store URL.
//! Without either, its cases are shown as ignored; under `CI=true` that is a failure.

mod places;

use leasehold::conformance::{Layer, cases};

fn main() {
    let named = cases().map(|case| {
        let layer = match case.layer {
            Layer::Store => "store",
            Layer::Engine | Layer::Leases => "engine",
        };
        (format!("{layer}::{}", case.name), case)
    });
    places::run_suite(named, |place| place).exit();
}
