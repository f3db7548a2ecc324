//! Every example, as a user runs it: on SQLite, and on the database that it was asked from.

use std::process::Command;

/// Runs an example to its end, and returns what it said. It looks for broken promises itself, and fails on one.
async fn play(program: &'static str, arguments: Vec<String>) -> Result<String, String> {
    let playing = tokio::task::spawn_blocking(move || {
        let mut command = Command::new(program);
        command.args(arguments).env_remove("LEASEHOLD_STORE");
        command.output().expect("it runs")
    });
    let played = playing.await.expect("no panic");
    let [said, wrong] = [&played.stdout, &played.stderr].map(|text| String::from_utf8_lossy(text));
    if played.status.success() {
        Ok(said.into_owned())
    } else {
        Err(format!("{said}{wrong}"))
    }
}

/// The arguments that name a server's store. `Date` headers tell whole seconds of one and the same clock here, so the
/// margin can be small, and the ttl with it.
async fn on(scheme: &str) -> Vec<String> {
    if scheme == "sqlite" {
        return Vec::new();
    }
    let url = leasehold_testbed::url(scheme)
        .await
        .expect("the server is installed");
    let url = match scheme {
        "azblob" | "cosmos" | "dynamodb" | "etcd" if url.contains('?') => {
            format!("{url}&margin=100ms")
        }
        "azblob" | "cosmos" | "dynamodb" | "etcd" => format!("{url}?margin=100ms"),
        _ => url,
    };
    vec!["--store".into(), url]
}

macro_rules! examples {
    ($($test:ident: $program:literal on $store:literal $(with $argument:literal)*;)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            let mut arguments = on($store).await;
            arguments.extend([$($argument.to_owned()),*]);
            let played = play(env!(concat!("CARGO_BIN_EXE_", $program)), arguments).await;
            println!("{}", played.unwrap_or_else(|wrong| panic!("{wrong}")));
        }
    )*};
}

examples! {
    workers_lead_in_turn_on_sqlite: "leader" on "sqlite" with "--ttl=1s";
    workers_lead_in_turn_on_cosmos: "leader" on "cosmos";
    connectors_take_over_on_sqlite: "negotiations" on "sqlite" with "--ttl=1s";
    connectors_take_over_on_cosmos: "negotiations" on "cosmos";
    devices_are_throttled_on_sqlite: "telemetry" on "sqlite" with "--every=500ms";
    devices_are_throttled_on_azblob: "telemetry" on "azblob" with "--processes=2" with "--every=5s";
    devices_are_throttled_on_cosmos: "telemetry" on "cosmos" with "--processes=2" with "--every=5s";
    every_call_asks_without_the_cache: "telemetry" on "sqlite" with "--no-cache";
    clocks_do_not_matter_on_sqlite: "critical_section" on "sqlite";
    clocks_do_not_matter_on_mongodb: "critical_section" on "mongodb";
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_lease_increments_are_lost() {
    let arguments = vec!["--unlocked".to_owned()];
    let wrong = play(env!("CARGO_BIN_EXE_critical_section"), arguments).await;
    let wrong = wrong.expect_err("the lease is what protects the counter");
    assert!(wrong.contains("no increment is lost"), "{wrong}");
}

/// The databases that several processes can share, but for Azure's: their emulators take seconds for hundreds of writes.
const SHARED: [&str; 7] = [
    "sqlite", "postgres", "mysql", "redis", "mongodb", "etcd", "dynamodb",
];

/// What an example says after a word, as a number: `number("saved ", …)`.
fn number(after: &str, said: &str) -> u64 {
    let rest = said.split(after).nth(1).expect("it says so");
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next();
    digits
        .and_then(|digits| digits.parse().ok())
        .expect("a number")
}

/// 8 processes with 1,000 calls each on 50 gates: never two passes within a period, and where the period is long, at
/// least nine of ten calls are refused without asking the store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gates_hold_on_every_database() {
    for scheme in SHARED {
        for period in ["--every=300ms", "--every=20s"] {
            let mut arguments = on(scheme).await;
            let hot = "--events=8000 --devices=50 --processes=8 --too-hot=0";
            arguments.extend(hot.split(' ').chain([period]).map(str::to_owned));
            let said = play(env!("CARGO_BIN_EXE_telemetry"), arguments).await;
            let said = said.unwrap_or_else(|wrong| panic!("{scheme}: {wrong}"));
            let (calls, saved) = (number("\n", &said), number("saved ", &said));
            println!("{scheme} {period}: {said}");
            assert!(
                period == "--every=300ms" || saved >= 9 * calls,
                "{scheme}: {said}"
            );
        }
    }
}

/// 4 workers on 500 items, killed at random: every item is done once, none is stuck, and the dead cannot finish late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_survives_crashes_on_every_database() {
    for scheme in SHARED {
        let mut arguments = on(scheme).await;
        let busy = "--items=500 --connectors=4 --kills=3 --ttl=2s";
        arguments.extend(busy.split(' ').map(str::to_owned));
        let said = play(env!("CARGO_BIN_EXE_negotiations"), arguments).await;
        let said = said.unwrap_or_else(|wrong| panic!("{scheme}: {wrong}"));
        println!("{scheme}: {said}");
        assert!(number("FINALIZED, ", &said) > 0, "{scheme}: {said}");
    }
}

/// Two PostgreSQL databases that allow prepared transactions.
async fn two_databases(store: Vec<String>) {
    let server = || {
        leasehold_testbed::Server::builder("postgres")
            .arg("-c")
            .arg("max_prepared_transactions=5")
    };
    let (one, other) = tokio::join!(server().start(), server().start());
    let [one, other] = [one, other].map(|server| server.expect("PostgreSQL is installed"));
    let mut arguments = store;
    arguments.extend(["--one".into(), one.url(), "--other".into(), other.url()]);
    let played = play(env!("CARGO_BIN_EXE_two_databases"), arguments).await;
    println!("{}", played.unwrap_or_else(|wrong| panic!("{wrong}")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_databases_agree_on_sqlite() {
    two_databases(vec!["--ttl=500ms".into()]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_databases_agree_on_dynamodb() {
    two_databases(on("dynamodb").await).await;
}
