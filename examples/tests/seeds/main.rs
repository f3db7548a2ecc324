//! Runs every example as a user does: on SQLite, and on the database of the request that it comes from.

use std::process::Command;

use leasehold_testbed::Server;

/// Runs an example, and returns its output. The example checks the guarantees itself, and fails if one is violated.
async fn run_example(program: &'static str, arguments: Vec<String>) -> Result<String, String> {
    let running = tokio::task::spawn_blocking(move || {
        let mut command = Command::new(program);
        command.args(arguments).env_remove("LEASEHOLD_STORE");
        command.output().expect("the example starts")
    });
    let ran = running.await.expect("no panic");
    let [output, errors] = [&ran.stdout, &ran.stderr].map(|text| String::from_utf8_lossy(text));
    if ran.status.success() {
        Ok(output.into_owned())
    } else {
        Err(format!("{output}{errors}"))
    }
}

/// Returns the arguments that select a server's store.
async fn store_arguments(scheme: &str) -> Vec<String> {
    if scheme == "sqlite" {
        return Vec::new();
    }
    let url = leasehold_testbed::url(scheme).await;
    vec!["--store".into(), url.expect("the server is installed")]
}

/// As [`store_arguments`], with a small clock margin that allows a short ttl, because all `Date` headers come from one clock.
async fn store_arguments_with_small_margin(scheme: &str) -> Vec<String> {
    let mut arguments = store_arguments(scheme).await;
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
            let mut arguments = store_arguments($store).await;
            arguments.extend([$($argument.to_owned()),*]);
            let output = run_example(env!(concat!("CARGO_BIN_EXE_", $program)), arguments).await;
            println!("{}", output.unwrap_or_else(|error| panic!("{error}")));
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
    alerts_are_throttled_on_sqlite: "telemetry" on "sqlite" with "--every=500ms";
    alerts_are_throttled_on_azblob: "telemetry" on "azblob" with "--events=2000";
    alerts_are_throttled_on_cosmos: "telemetry" on "cosmos" with "--events=2000";
    alerts_are_throttled_without_the_cache: "telemetry" on "sqlite" with "--no-cache";
    wall_clocks_do_not_matter_on_sqlite: "critical_section" on "sqlite";
    wall_clocks_do_not_matter_on_cosmos: "critical_section" on "cosmos";
    wall_clocks_do_not_matter_on_mongodb: "critical_section" on "mongodb";
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn increments_are_lost_without_the_lease() {
    let arguments = vec!["--unlocked".to_owned()];
    let result = run_example(env!("CARGO_BIN_EXE_critical_section"), arguments).await;
    let error = result.expect_err("only the lease protects the counter");
    assert!(error.contains("no increment is lost"), "{error}");
}

/// The databases that several processes can share, except those of Azure, whose emulators are too slow for many writes.
const SHARED: [&str; 7] = [
    "sqlite", "postgres", "mysql", "redis", "mongodb", "etcd", "dynamodb",
];

/// Returns the number after some words in the output of an example: `number("saved ", …)`.
fn number(words: &str, output: &str) -> u64 {
    let rest = output
        .split(words)
        .nth(1)
        .expect("the output has these words");
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next();
    digits
        .and_then(|digits| digits.parse().ok())
        .expect("a number follows the words")
}

/// 8 processes with 1,000 calls each on 50 gates: no gate is passed twice within a period, and if the period is long, at
/// least nine of ten calls are refused by the cache.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gates_are_passed_once_per_period_on_every_database() {
    for scheme in SHARED {
        for period in ["--every=300ms", "--every=20s"] {
            let mut arguments = store_arguments_with_small_margin(scheme).await;
            let hot = "--events=8000 --devices=50 --processes=8 --too-hot=0";
            arguments.extend(hot.split(' ').chain([period]).map(str::to_owned));
            let output = run_example(env!("CARGO_BIN_EXE_telemetry"), arguments).await;
            let output = output.unwrap_or_else(|error| panic!("{scheme}: {error}"));
            let (calls, saved) = (number("\n", &output), number("saved ", &output));
            println!("{scheme} {period}: {output}");
            assert!(
                period == "--every=300ms" || saved >= 9 * calls,
                "{scheme}: {output}"
            );
        }
    }
}

/// 4 workers on 500 items, killed at random: every item is completed once, and a killed worker cannot complete one late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_item_is_completed_once_despite_crashes_on_every_database() {
    for scheme in SHARED {
        let mut arguments = store_arguments_with_small_margin(scheme).await;
        let busy = "--items=500 --connectors=4 --kills=3 --ttl=2s";
        arguments.extend(busy.split(' ').map(str::to_owned));
        let output = run_example(env!("CARGO_BIN_EXE_negotiations"), arguments).await;
        let output = output.unwrap_or_else(|error| panic!("{scheme}: {error}"));
        println!("{scheme}: {output}");
        assert!(number("FINALIZED, ", &output) > 0, "{scheme}: {output}");
    }
}

/// Starts a PostgreSQL that allows two prepared transactions at a time, which is what one run on one server requires.
async fn postgres() -> Server {
    let server = Server::builder("postgres")
        .arg("-c")
        .arg("max_prepared_transactions=2");
    server.start().await.expect("PostgreSQL is installed")
}

async fn run_two_databases(one: &str, other: &str, more: Vec<String>) -> String {
    let mut arguments = vec!["--one".into(), one.into(), "--other".into(), other.into()];
    arguments.extend(more);
    let result = run_example(env!("CARGO_BIN_EXE_two_databases"), arguments).await;
    let output = result.unwrap_or_else(|error| panic!("{error}"));
    println!("{output}");
    output
}

/// With the default ttl, because under load a commit of SQLite may take longer than a short ttl allows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_databases_agree_on_sqlite() {
    let (one, other) = tokio::join!(postgres(), postgres());
    run_two_databases(&one.url(), &other.url(), Vec::new()).await;
}

/// With the default ttl, each takeover takes ten seconds, so there is only one: after both transactions are prepared, and
/// before that is recorded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_databases_agree_on_dynamodb() {
    let (one, other) = tokio::join!(postgres(), postgres());
    let mut more = store_arguments("dynamodb").await;
    more.push("--step=4".into());
    run_two_databases(&one.url(), &other.url(), more).await;
}

/// All databases of a server share the names of prepared transactions, and a transaction that an interrupted run left
/// prepared locks the account.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_databases_of_one_server_agree_in_repeated_runs() {
    let server = postgres().await;
    let (one, other) = (server.url(), server.url().replace("/leasehold", "/other"));
    execute(&one, "create database other").await;
    let more = vec!["--step=4".to_owned()];
    run_two_databases(&one, &other, more.clone()).await;
    let prepare = "begin; update account set balance = 0; prepare transaction 'leasehold-example/earlier/job/one/7'";
    execute(&one, prepare).await;
    let output = run_two_databases(&one, &other, more).await;
    assert!(output.contains("earlier/job/one/7"), "{output}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_database_given_twice_is_refused() {
    let server = postgres().await;
    let url = server.url();
    let arguments = ["--one", &url, "--other", &url].map(str::to_owned);
    let result = run_example(env!("CARGO_BIN_EXE_two_databases"), arguments.into()).await;
    let error = result.expect_err("both URLs name one database");
    assert!(error.contains("the same database"), "{error}");
}

async fn execute(url: &str, statements: &str) {
    let connected = tokio_postgres::connect(url, tokio_postgres::NoTls).await;
    let (client, connection) = connected.expect("the server accepts connections");
    let connection = tokio::spawn(connection);
    let executed = client.batch_execute(statements).await;
    executed.unwrap_or_else(|error| panic!("{statements}: {error}"));
    drop(client);
    let _ = connection.await;
}
