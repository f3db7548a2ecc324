//! Two-phase commit across two PostgreSQL databases, with the lease's body as the journal.
//!
//! A job moves money from one database to the other. It may die at any step: whoever gets the lease next finds in the
//! body how far the last one came, and rolls it back or forward. The two databases always agree in the end.
//!
//! | body | what is certain | so the next one |
//! |---|---|---|
//! | empty | nothing is under way | starts |
//! | `rollback` | not both are prepared, or nobody knows | rolls back whatever is prepared |
//! | `rollforward FENCE` | both were prepared by this fence | commits what is still prepared by it |
//!
//! A prepared transaction is named after the run, the database and the fence that made it. The fence distinguishes those
//! of a zombie; the rest is needed because one server has one namespace for all its databases and runs.
//!
//! ```sh
//! cargo run -p leasehold-examples --bin two_databases -- --one postgres://… --other postgres://…
//! ```

use std::time::Duration;

use clap::Parser;
use leasehold::{Client, Lease};
use leasehold_examples::{Result, Stage, broken};
use tokio_postgres::{NoTls, SimpleQueryMessage};

/// The prefix of all prepared transactions, those of earlier runs included.
const PREPARED: &str = "leasehold-example";
/// Where a run can be made to die: before each of its steps.
const STEPS: u32 = 8;

/// Moves money between two databases, whatever dies in between
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    stage: Stage,
    /// A PostgreSQL database that allows prepared transactions
    #[arg(long, value_name = "URL")]
    one: String,
    /// Another
    #[arg(long, value_name = "URL")]
    other: String,
    /// How long the lease outlives its holder; what suits the store unless given
    #[arg(long, value_parser = leasehold::duration::parse)]
    ttl: Option<Duration>,
    /// Dies before this step only; before each in turn unless given
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(STEPS)))]
    step: Option<u32>,
    #[arg(long, hide = true)]
    die_at: Option<u32>,
}

impl Args {
    /// Returns the name of the job and of its lease. Each run of the example has its own.
    fn job(&self) -> String {
        format!("{}job.123", self.stage.prefix())
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
    match args.stage.worker() {
        Some(_) => run(&args).await,
        None => conduct(args).await,
    }
}

/// One run of the job: first puts right what the last one left behind.
async fn run(args: &Args) -> Result<()> {
    let client = leasehold::connect(&args.stage.store()).await?;
    let lease = client
        .lease(args.job())
        .ttl(args.stage.ttl(args.ttl).await?)
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

/// Each step is preceded by what the next holder must know if this one dies in it.
async fn transfer(lease: &Lease, one: &Database, other: &Database, death: Death) -> Result<()> {
    let id = |database: &Database| format!("{}{}", database.ids, lease.fence());
    let (in_one, in_other) = (id(one), id(other));
    one.run("begin; update account set balance = balance - 10")
        .await?;
    other
        .run("begin; update account set balance = balance + 10")
        .await?;
    death.comes_at(1);
    lease.update("rollback").await?;
    death.comes_at(2);
    other
        .run(&format!("prepare transaction '{in_other}'"))
        .await?;
    death.comes_at(3);
    one.run(&format!("prepare transaction '{in_one}'")).await?;
    death.comes_at(4);
    lease
        .update(format!("rollforward {}", lease.fence()))
        .await?;
    death.comes_at(5);
    other.run(&format!("commit prepared '{in_other}'")).await?;
    death.comes_at(6);
    one.run(&format!("commit prepared '{in_one}'")).await?;
    death.comes_at(7);
    lease.update("").await?;
    death.comes_at(8);
    Ok(())
}

/// When the process dies, as by `kill -9`.
struct Death(Option<u32>);

impl Death {
    fn comes_at(&self, step: u32) {
        if self.0 == Some(step) {
            let _ =
                nix::sys::signal::kill(nix::unistd::Pid::this(), nix::sys::signal::Signal::SIGKILL);
        }
    }
}

/// One of the two databases.
struct Database {
    client: tokio_postgres::Client,
    /// The prefix of this run's prepared transactions in this database.
    ids: String,
}

impl Database {
    async fn open(url: &str, role: &str, args: &Args) -> Result<Self> {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(connection);
        // Behind a zombie's locks it fails, and is tried again, instead of waiting for ever.
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

    /// Rolls back the transactions that an interrupted run left prepared, and makes the account again.
    async fn start_over(&self) -> Result<()> {
        for id in self.prepared(&format!("{PREPARED}/")).await? {
            println!("an earlier run left `{id}` prepared: rolled back");
            self.run(&format!("rollback prepared '{id}'")).await?;
        }
        let fresh = "drop table if exists account; create table account (balance bigint); insert into account values (1000)";
        self.run(fresh).await
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
        Ok(balance.first().ok_or("there is no account")?.parse()?)
    }
}

/// For each step: a run that dies there, then one that does not. After each pair the two databases must agree.
async fn conduct(mut args: Args) -> Result<()> {
    let folder = tempfile::tempdir()?;
    args.stage = args.stage.within(folder.path());
    let [one, other] = args.open().await?;
    if one.identity().await? == other.identity().await? {
        return Err("`--one` and `--other` are the same database: give two".into());
    }
    for database in [&one, &other] {
        database.start_over().await?;
    }
    let stage = &args.stage;
    let client = leasehold::connect(&stage.store()).await?;
    let mut moved = 0;
    for step in args.step.map_or(1..=STEPS, |step| step..=step) {
        // What is certain before the death counts: from step 5 on the money has moved.
        let dead = worker(stage, Some(step))?;
        if dead.success() {
            return broken(format!("it dies before step {step}"));
        }
        if !worker(stage, None)?.success() {
            return broken("the next run puts everything right");
        }
        moved += if step >= 5 { 20 } else { 10 };
        agree(&client, &args.job(), &one, &other, moved).await?;
        println!("died before step {step}: both databases agree, {moved} moved");
    }
    client.close().await;
    Ok(())
}

fn worker(stage: &Stage, die_at: Option<u32>) -> Result<std::process::ExitStatus> {
    let mut run = leasehold_examples::copy(stage, 0)?;
    if let Some(step) = die_at {
        run.args(["--die-at", &step.to_string()]);
    }
    Ok(run.status()?)
}

async fn agree(
    client: &Client,
    job: &str,
    one: &Database,
    other: &Database,
    moved: i64,
) -> Result<()> {
    let balances = (one.balance().await?, other.balance().await?);
    if balances != (1000 - moved, 1000 + moved) {
        return broken(format!("the databases agree: {balances:?}, {moved} moved"));
    }
    for database in [one, other] {
        if !database.prepared(&database.ids).await?.is_empty() {
            return broken("nothing is left prepared");
        }
    }
    let name = leasehold::core::Name::lock(job)?;
    let job = client
        .leases()
        .show(&name)
        .await?
        .ok_or("the job has a record")?;
    if !job.record.body.is_empty() {
        return broken(format!("the job is done: {}", job.record.body));
    }
    Ok(())
}
