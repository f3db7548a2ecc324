//! The conformance suite: every case on every backend of the table, through the store and through the engine, each a
//! test of its own (`sqlite::engine::takes_over_after_expiry`). The server's tests run it once more over HTTP.
//!
//! A backend that needs a server gets one from the testbed, unless `LEASEHOLD_TEST_<SCHEME>` is a store URL to test on.
//! Where neither is there its cases show as ignored; under `CI=true` that is a failure.

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
