//! Two-phase commit across two PostgreSQL databases, with the body of the lease as the journal.
//!
//! A job moves money from one database to the other, and may die at any step. The next holder of the lease reads in the body
//! how far the job got, and rolls it back or forward. In the end the two databases always agree.
//!
//! | body | what is certain | the next holder |
//! |---|---|---|
//! | empty | no transfer is in progress | starts one |
//! | `rollback` | at most one transaction is prepared, or it is unknown | rolls back all prepared transactions |
//! | `rollforward FENCE` | both transactions were prepared with this fence | commits those that are still prepared with it |
//!
//! A prepared transaction is named after the run, the database and the fence. The fence distinguishes it from those of a
//! zombie; run and database are needed because a server has one namespace for all its databases and runs.
//!
//! ```sh
//! cargo run -p leasehold-examples --bin two_databases -- --one postgres://… --other postgres://…
//! ```

use std::time::Duration;

use clap::Parser;
use leasehold::{Client, Lease};
use leasehold_examples::{Result, Setup, violated};
use tokio_postgres::{NoTls, SimpleQueryMessage};

/// The prefix of all prepared transactions, those of earlier runs included.
const PREPARED: &str = "leasehold-example";
/// The number of steps; a run can be killed before each of them.
const STEPS: u32 = 8;

/// Two-phase commit: moves money between two databases, although the job is killed
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    setup: Setup,
    /// A PostgreSQL database that allows prepared transactions
    #[arg(long, value_name = "URL")]
    one: String,
    /// A second PostgreSQL database
    #[arg(long, value_name = "URL")]
    other: String,
    /// Time to live of the lease [default: the shortest that suits the store]
    #[arg(long, value_parser = leasehold::duration::parse)]
    ttl: Option<Duration>,
    /// Kill the job before this step only [default: before each step in turn]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(STEPS)))]
    step: Option<u32>,
    #[arg(long, hide = true)]
    die_at: Option<u32>,
}

impl Args {
    /// Returns the name of the job and of its lease. Each run of the example has its own.
    fn job(&self) -> String {
        format!("{}job.123", self.setup.prefix())
    }

    async fn open(&self) -> Result<[Database; 2]> {
        Ok([
            Database::open(&self.one, "one", self).await?,
            Database::open(&self.other, "other", self).await?,
        ])
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    match args.setup.worker() {
        Some(_) => run(&args).await,
        None => run_steps(args).await,
    }
}

/// Runs the job once, after the recovery from an earlier run.
async fn run(args: &Args) -> Result<()> {
    let client = leasehold::connect(&args.setup.store()).await?;
    let lease = client
        .lease(args.job())
        .ttl(args.setup.ttl(args.ttl).await?)
        .wait_forever()
        .acquire()
        .await?;
    let [one, other] = args.open().await?;
    recover(&lease, [&one, &other]).await?;
    transfer(&lease, &one, &other, Death(args.die_at)).await?;
    lease.release().await?;
    client.close().await;
    Ok(())
}

async fn recover(lease: &Lease, databases: [&Database; 2]) -> Result<()> {
    let body = lease.body();
    let forward = body.strip_prefix("rollforward ");
    for database in databases {
        for id in database.prepared(&database.ids).await? {
            let fence = id.rsplit('/').next();
            let verb = if forward.is_some() && forward == fence {
                "commit"
            } else {
                "rollback"
            };
            database.run(&format!("{verb} prepared '{id}'")).await?;
        }
    }
    if !body.is_empty() {
        println!(
            "found `{body}`: rolled {}",
            if forward.is_some() { "forward" } else { "back" }
        );
        lease.update("").await?;
    }
    Ok(())
}

/// Moves money in steps. Before each step, the body says what the next holder must know if this one dies in it.
async fn transfer(lease: &Lease, one: &Database, other: &Database, death: Death) -> Result<()> {
    let id = |database: &Database| format!("{}{}", database.ids, lease.fence());
    let (in_one, in_other) = (id(one), id(other));
    one.run("begin; update account set balance = balance - 10")
        .await?;
    other
        .run("begin; update account set balance = balance + 10")
        .await?;
    death.before(1);
    lease.update("rollback").await?;
    death.before(2);
    other
        .run(&format!("prepare transaction '{in_other}'"))
        .await?;
    death.before(3);
    one.run(&format!("prepare transaction '{in_one}'")).await?;
    death.before(4);
    lease
        .update(format!("rollforward {}", lease.fence()))
        .await?;
    death.before(5);
    other.run(&format!("commit prepared '{in_other}'")).await?;
    death.before(6);
    one.run(&format!("commit prepared '{in_one}'")).await?;
    death.before(7);
    lease.update("").await?;
    death.before(8);
    Ok(())
}

/// The step before which the process kills itself with SIGKILL.
struct Death(Option<u32>);

impl Death {
    fn before(&self, step: u32) {
        if self.0 == Some(step) {
            let _ =
                nix::sys::signal::kill(nix::unistd::Pid::this(), nix::sys::signal::Signal::SIGKILL);
        }
    }
}

/// One of the two databases.
struct Database {
    client: tokio_postgres::Client,
    /// The prefix of the prepared transactions of this run in this database.
    ids: String,
}

impl Database {
    async fn open(url: &str, role: &str, args: &Args) -> Result<Self> {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(connection);
        // Fails, and is retried, instead of waiting for ever for the locks of a zombie.
        client.batch_execute("set lock_timeout = '5s'").await?;
        let ids = format!("{PREPARED}/{}/{role}/", args.job());
        Ok(Self { client, ids })
    }

    async fn run(&self, statements: &str) -> Result<()> {
        Ok(self.client.batch_execute(statements).await?)
    }

    /// Returns the prepared transactions in this database with this prefix.
    async fn prepared(&self, ids: &str) -> Result<Vec<String>> {
        let query = format!(
            "select gid from pg_prepared_xacts where database = current_database() and starts_with(gid, '{ids}')"
        );
        self.texts(&query).await
    }

    /// Rolls back the transactions that an interrupted run left prepared, and recreates the account.
    async fn reset(&self) -> Result<()> {
        for id in self.prepared(&format!("{PREPARED}/")).await? {
            println!("rolled back `{id}`, which an earlier run left prepared");
            self.run(&format!("rollback prepared '{id}'")).await?;
        }
        let account = "drop table if exists account; create table account (balance bigint); insert into account values (1000)";
        self.run(account).await
    }

    /// Identifies the database and its server.
    async fn identity(&self) -> Result<Vec<String>> {
        self.texts("select current_database() || pg_postmaster_start_time()")
            .await
    }

    async fn texts(&self, query: &str) -> Result<Vec<String>> {
        let rows = self.client.simple_query(query).await?;
        let text = |message| match message {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        };
        Ok(rows.into_iter().filter_map(text).collect())
    }

    async fn balance(&self) -> Result<i64> {
        let balance = self.texts("select balance from account").await?;
        Ok(balance
            .first()
            .ok_or("the table `account` is empty")?
            .parse()?)
    }
}

/// For each step: starts a run that dies before it, then one that completes, and checks that the databases agree.
async fn run_steps(mut args: Args) -> Result<()> {
    let folder = tempfile::tempdir()?;
    args.setup = args.setup.with_folder(folder.path());
    let [one, other] = args.open().await?;
    if one.identity().await? == other.identity().await? {
        return Err("`--one` and `--other` are the same database: give two".into());
    }
    for database in [&one, &other] {
        database.reset().await?;
    }
    let setup = &args.setup;
    let client = leasehold::connect(&setup.store()).await?;
    let mut moved = 0;
    for step in args.step.map_or(1..=STEPS, |step| step..=step) {
        // From step 5 on, the killed run has committed to moving the money.
        let killed = run_worker(setup, Some(step))?;
        if killed.success() {
            return violated(format!("the job dies before step {step}"));
        }
        if !run_worker(setup, None)?.success() {
            return violated("the next run recovers and completes");
        }
        moved += if step >= 5 { 20 } else { 10 };
        check_agreement(&client, &args.job(), &one, &other, moved).await?;
        println!("killed before step {step}: both databases agree, {moved} moved");
    }
    client.close().await;
    Ok(())
}

fn run_worker(setup: &Setup, die_at: Option<u32>) -> Result<std::process::ExitStatus> {
    let mut run = leasehold_examples::worker_command(setup, 0)?;
    if let Some(step) = die_at {
        run.args(["--die-at", &step.to_string()]);
    }
    Ok(run.status()?)
}

async fn check_agreement(
    client: &Client,
    job: &str,
    one: &Database,
    other: &Database,
    moved: i64,
) -> Result<()> {
    let balances = (one.balance().await?, other.balance().await?);
    if balances != (1000 - moved, 1000 + moved) {
        return violated(format!("the databases agree: {balances:?}, {moved} moved"));
    }
    for database in [one, other] {
        if !database.prepared(&database.ids).await?.is_empty() {
            return violated("no transaction is left prepared");
        }
    }
    let name = leasehold::core::Name::lock(job)?;
    let job = client
        .leases()
        .show(&name)
        .await?
        .ok_or("the job has a record")?;
    if !job.record.body.is_empty() {
        return violated(format!("the job is done: {}", job.record.body));
    }
    Ok(())
}
