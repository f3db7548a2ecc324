//! `leasehold bench`: measures how fast a store is.

mod histogram;
mod pool;
mod report;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use leasehold::Client;
use leasehold::core::Name;
use nix::sys::signal::Signal;

use crate::arguments::{self, Common};
use crate::exit::{self, Failure, USAGE};
use crate::signals::Signals;
use crate::{output, store};
use pool::WorkerPool;
use report::{Report, Run};

const EXPLANATION: &str = "\
A cycle acquires an exclusive lease with a fencing token, and releases it: two writes. Each task runs one cycle after \
another, on names that no other task uses, so there is no contention. The more tasks, the more cycles are batched into \
one write to the store: compare `--tasks 1,16,64`. With an `http://` store, the service and the network are measured too.

This WRITES TO THE STORE as fast as it can; if the database charges for writes, these are charged. At the end, and after \
Ctrl-C, which shows the results so far, all leases are released. The records remain, free and empty, until \
`leasehold purge` or a service deletes them.";

const EXAMPLES: &str = "\
Examples:
  leasehold bench                                       the default store, 64 tasks, 10 seconds
  leasehold bench --store redis://localhost --tasks 1,16,64
  leasehold bench --store http://localhost:12345 --for 30s
  leasehold bench --store postgres://localhost/app --json | jq '.runs[].cyclesPerSecond'
  leasehold purge --prefix leasehold-bench/ --older-than 1h";

/// Measure how fast a store is: leases acquired and released per second, and their latency.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
#[command(after_long_help = format!("{EXPLANATION}\n\n{EXAMPLES}"))]
pub(crate) struct Bench {
    /// Number of concurrent tasks; several numbers (`1,16,64`) are measured one after another.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "64")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1_000))]
    tasks: Vec<u16>,

    /// Number of names to lease.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    names: u32,

    /// How long to measure.
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = arguments::duration)]
    #[arg(allow_hyphen_values = true)]
    span: Duration,

    /// How long to run before the measurement.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = arguments::duration)]
    #[arg(allow_hyphen_values = true)]
    warm_up: Duration,

    /// Ttl of the leases, which are not renewed.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = arguments::duration)]
    #[arg(allow_hyphen_values = true)]
    ttl: Duration,

    /// Prefix of the names.
    #[arg(long, default_value = "leasehold-bench/")]
    prefix: String,
}

impl Bench {
    pub(crate) async fn execute(self, common: &Common) -> Result<u8, Failure> {
        let names = self.names()?;
        let mut signals = Signals::catch()?;
        let target = store::target_or_memory(common)?;
        let client = tokio::select! {
            client = store::connect(&target) => client?,
            signal = signals.end() => return Ok(exit::of_signal(signal)),
        };
        let count = output::grouped(self.names.into());
        if !common.json {
            output::note(&format!(
                "writing to the store: {count} names with the prefix {}",
                self.prefix
            ));
        }
        let mut runs = Vec::new();
        let end = self.measure(&client, names, &mut signals, &mut runs).await;
        store::close(&client).await;
        // Runs that ended before a failure are reported too.
        if end.is_ok() || !runs.is_empty() {
            let interrupted = matches!(end, Ok(Some(_)));
            let scheme = store::scheme(target.url());
            let report = Report::new(scheme, &self, interrupted, runs);
            if common.json {
                output::json(&report)?;
            } else {
                output::text(&report.for_people())?;
                let is_clean = end.is_ok() && !report.has_errors();
                self.report_leftovers(scheme, is_clean);
            }
        }
        Ok(end?.map_or(0, exit::of_signal))
    }

    /// Measures one run after another. Returns the signal that ended them early, if any.
    async fn measure(
        &self,
        client: &Client,
        names: Arc<[Name]>,
        signals: &mut Signals,
        runs: &mut Vec<Run>,
    ) -> Result<Option<Signal>, Failure> {
        for &tasks in &self.tasks {
            let mut pool = WorkerPool::start(client, &names, tasks, self.ttl);
            let (run, signal) = pool.run(self.warm_up, self.span, signals).await?;
            runs.extend(run);
            if signal.is_some() {
                return Ok(signal);
            }
        }
        Ok(None)
    }

    /// Returns the names to lease, after a check of all options but the ttl, which the first lease checks.
    fn names(&self) -> Result<Arc<[Name]>, Failure> {
        let most = self.tasks.iter().copied().max().unwrap_or_default();
        if self.names < most.into() {
            return Err(Failure::new(
                USAGE,
                format!(
                    "invalid --names: {most} tasks need as many names; give `--names {most}` or more"
                ),
            ));
        }
        if self.span.is_zero() {
            return Err(Failure::new(
                USAGE,
                "invalid --for: nothing can be measured in zero time; give a longer time",
            ));
        }
        if self.prefix.is_empty() {
            return Err(Failure::new(
                USAGE,
                "invalid --prefix: the prefix is empty, and the names could be in use; give a prefix of your own",
            ));
        }
        let width = (self.names - 1).to_string().len();
        let names =
            (0..self.names).map(|number| Name::lock(format!("{}{number:0width$}", self.prefix)));
        Ok(names.collect::<Result<_, _>>()?)
    }

    /// Reports the leases and records that the benchmark leaves in the store.
    fn report_leftovers(&self, scheme: &str, is_clean: bool) {
        let leases = if is_clean {
            "all leases are released".to_owned()
        } else {
            let ttl = leasehold::duration::format(self.ttl);
            format!("leases that could not be released expire within {ttl}")
        };
        let prefix = output::quoted(&self.prefix);
        let records = match scheme {
            "memory" => return,
            "http" | "https" => "the service purges the records automatically".to_owned(),
            _ => format!(
                "to delete the records in an hour, run `leasehold purge --prefix {prefix} --older-than 1h`"
            ),
        };
        output::note(&format!("{leases}; {records}"));
    }
}
