//! Every example, as a user runs it: on SQLite, and on the database that it was asked from.

use std::process::Command;

use leasehold_testbed::Server;

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

/// The arguments that name a server's store, and nothing else, as a user starts it.
async fn on(scheme: &str) -> Vec<String> {
    if scheme == "sqlite" {
        return Vec::new();
    }
    let url = leasehold_testbed::url(scheme).await;
    vec!["--store".into(), url.expect("the server is installed")]
}

/// The same with a small margin, which allows a short ttl: all `Date` headers here come from one clock.
async fn on_quick(scheme: &str) -> Vec<String> {
    let mut arguments = on(scheme).await;
    if let (Some(url), "azblob" | "cosmos" | "dynamodb" | "etcd") = (arguments.last_mut(), scheme) {
        let separator = if url.contains('?') { '&' } else { '?' };
        url.push_str(&format!("{separator}margin=100ms"));
    }
    arguments
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
    workers_lead_in_turn_on_dynamodb: "leader" on "dynamodb";
    connectors_take_over_on_sqlite: "negotiations" on "sqlite" with "--ttl=1s";
    connectors_take_over_on_cosmos: "negotiations" on "cosmos";
    connectors_take_over_on_dynamodb: "negotiations" on "dynamodb";
    devices_are_throttled_on_sqlite: "telemetry" on "sqlite" with "--every=500ms";
    devices_are_throttled_on_azblob: "telemetry" on "azblob" with "--events=2000";
    devices_are_throttled_on_cosmos: "telemetry" on "cosmos" with "--events=2000";
    every_call_asks_without_the_cache: "telemetry" on "sqlite" with "--no-cache";
    clocks_do_not_matter_on_sqlite: "critical_section" on "sqlite";
    clocks_do_not_matter_on_cosmos: "critical_section" on "cosmos";
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
            let mut arguments = on_quick(scheme).await;
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
        let mut arguments = on_quick(scheme).await;
        let busy = "--items=500 --connectors=4 --kills=3 --ttl=2s";
        arguments.extend(busy.split(' ').map(str::to_owned));
        let said = play(env!("CARGO_BIN_EXE_negotiations"), arguments).await;
        let said = said.unwrap_or_else(|wrong| panic!("{scheme}: {wrong}"));
        println!("{scheme}: {said}");
        assert!(number("FINALIZED, ", &said) > 0, "{scheme}: {said}");
    }
}

/// A PostgreSQL that allows prepared transactions: two at a time, which is what one run needs of one server.
async fn postgres() -> Server {
    let server = Server::builder("postgres")
        .arg("-c")
        .arg("max_prepared_transactions=2");
    server.start().await.expect("PostgreSQL is installed")
}

async fn play_two_databases(one: &str, other: &str, more: Vec<String>) -> String {
    let mut arguments = vec!["--one".into(), one.into(), "--other".into(), other.into()];
    arguments.extend(more);
    let played = play(env!("CARGO_BIN_EXE_two_databases"), arguments).await;
    let said = played.unwrap_or_else(|wrong| panic!("{wrong}"));
    println!("{said}");
    said
}

/// With the default ttl: under load a commit of SQLite takes longer than a short one leaves time for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_databases_agree_on_sqlite() {
    let (one, other) = tokio::join!(postgres(), postgres());
    play_two_databases(&one.url(), &other.url(), Vec::new()).await;
}

/// With the default ttl each death takes ten seconds, so there is only one: after both have prepared, and before that is
/// recorded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_databases_agree_on_dynamodb() {
    let (one, other) = tokio::join!(postgres(), postgres());
    let mut more = on("dynamodb").await;
    more.push("--step=4".into());
    play_two_databases(&one.url(), &other.url(), more).await;
}

/// All databases of a server share the names of prepared transactions. A transaction that an interrupted run left prepared
/// keeps the account locked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_databases_of_one_server_agree_again_and_again() {
    let server = postgres().await;
    let (one, other) = (server.url(), server.url().replace("/leasehold", "/other"));
    execute(&one, "create database other").await;
    let more = vec!["--step=4".to_owned()];
    play_two_databases(&one, &other, more.clone()).await;
    let prepare = "begin; update account set balance = 0; prepare transaction 'leasehold-example/earlier/job/one/7'";
    execute(&one, prepare).await;
    let said = play_two_databases(&one, &other, more).await;
    assert!(said.contains("earlier/job/one/7"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_database_is_not_two() {
    let server = postgres().await;
    let url = server.url();
    let arguments = ["--one", &url, "--other", &url].map(str::to_owned);
    let wrong = play(env!("CARGO_BIN_EXE_two_databases"), arguments.into()).await;
    let wrong = wrong.expect_err("there is one database");
    assert!(wrong.contains("the same database"), "{wrong}");
}

async fn execute(url: &str, statements: &str) {
    let connected = tokio_postgres::connect(url, tokio_postgres::NoTls).await;
    let (client, connection) = connected.expect("it listens");
    let connection = tokio::spawn(connection);
    let executed = client.batch_execute(statements).await;
    executed.unwrap_or_else(|error| panic!("{statements}: {error}"));
    drop(client);
    let _ = connection.await;
}
