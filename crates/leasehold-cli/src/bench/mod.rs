//! `leasehold bench`: how fast one store is.

mod crew;
mod histogram;
mod report;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use leasehold::Client;
use leasehold::core::Name;
use nix::sys::signal::Signal;

use crate::arguments::Common;
use crate::exit::{self, Failure, USAGE};
use crate::signals::Signals;
use crate::{output, store};
use crew::Crew;
use report::{Report, Run};

const EXPLANATION: &str = "\
A cycle takes an exclusive lease with a fencing token, and releases it: two writes. Each task begins its next cycle when the \
last has ended, on names that no other task uses, so nobody ever waits for a lease. The more tasks, the more cycles share \
one write to the store: compare `--tasks 1,16,64`. An `http://` store measures the service, and the way to it.

It WRITES INTO THE STORE, as fast as that can; where writes are paid for, they are paid for. Whatever it holds is \
released at its end, also after Ctrl-C, which shows what was measured so far. The records stay, free and empty, until \
`leasehold purge` (or the service, by itself) deletes them.";

const EXAMPLES: &str = "\
Examples:
  leasehold bench                                       the default store, 64 tasks, 10 seconds
  leasehold bench --store redis://localhost --tasks 1,16,64
  leasehold bench --store http://localhost:12345 --for 30s
  leasehold bench --store postgres://localhost/app --json | jq '.runs[].cyclesPerSecond'
  leasehold purge --prefix leasehold-bench/ --older-than 1h";

/// Measure how fast a store is: leases taken and released per second, and how long that takes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
#[command(after_long_help = format!("{EXPLANATION}\n\n{EXAMPLES}"))]
pub(crate) struct Bench {
    /// So many tasks at once; several numbers are measured one after another (`1,16,64`).
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "64")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1_000))]
    tasks: Vec<u16>,

    /// How many names there are to take.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    names: u32,

    /// How long to measure.
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = leasehold::duration::parse)]
    #[arg(allow_hyphen_values = true)]
    span: Duration,

    /// How long to run before that, unmeasured.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = leasehold::duration::parse)]
    #[arg(allow_hyphen_values = true)]
    warm_up: Duration,

    /// The leases' ttl. Nothing is renewed.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = leasehold::duration::parse)]
    #[arg(allow_hyphen_values = true)]
    ttl: Duration,

    /// What the names begin with.
    #[arg(long, default_value = "leasehold-bench/")]
    prefix: String,
}

impl Bench {
    pub(crate) async fn execute(self, common: &Common) -> Result<u8, Failure> {
        let names = self.names()?;
        let mut signals = Signals::catch()?;
        let place = store::any_place(common)?;
        let client = tokio::select! {
            client = store::connect(&place) => client?,
            signal = signals.end() => return Ok(exit::by(signal)),
        };
        let count = output::grouped(self.names.into());
        if !common.json {
            output::note(&format!(
                "writing to the store: {count} names that begin with {}",
                self.prefix
            ));
        }
        let mut runs = Vec::new();
        let end = self.measure(&client, names, &mut signals, &mut runs).await;
        store::close(&client).await;
        // What was measured before something failed is told as well.
        if end.is_ok() || !runs.is_empty() {
            let interrupted = matches!(end, Ok(Some(_)));
            let report = Report::new(store::scheme(place.url()), &self, interrupted, runs);
            if common.json {
                output::json(&report)?;
            } else {
                output::text(&report.for_people())?;
                let is_clean = end.is_ok() && !report.has_errors();
                self.tell_what_stays(store::scheme(place.url()), is_clean);
            }
        }
        Ok(end?.map_or(0, exit::by))
    }

    /// One run after the other; the signal that ended it, if one did.
    async fn measure(
        &self,
        client: &Client,
        names: Arc<[Name]>,
        signals: &mut Signals,
        runs: &mut Vec<Run>,
    ) -> Result<Option<Signal>, Failure> {
        for &tasks in &self.tasks {
            let mut crew = Crew::start(client, &names, tasks, self.ttl);
            let (run, signal) = crew.run(self.warm_up, self.span, signals).await?;
            runs.extend(run);
            if signal.is_some() {
                return Ok(signal);
            }
        }
        Ok(None)
    }

    /// The names to take, if they and the rest can be used. (The ttl is looked at with the first lease.)
    fn names(&self) -> Result<Arc<[Name]>, Failure> {
        let most = self.tasks.iter().copied().max().unwrap_or_default();
        if self.names < most.into() {
            let names = self.names;
            let message =
                format!("{most} tasks need as many names: give `--names {most}`, not {names}");
            return Err(Failure::new(USAGE, message));
        }
        if self.span.is_zero() {
            return Err(Failure::new(USAGE, "nothing can be measured in no time"));
        }
        if self.prefix.is_empty() {
            return Err(Failure::new(
                USAGE,
                "the prefix is empty: the names might be somebody's",
            ));
        }
        let width = (self.names - 1).to_string().len();
        let names =
            (0..self.names).map(|number| Name::lock(format!("{}{number:0width$}", self.prefix)));
        Ok(names.collect::<Result<_, _>>()?)
    }

    fn tell_what_stays(&self, scheme: &str, is_clean: bool) {
        let held = if is_clean {
            "nothing is held any more".to_owned()
        } else {
            let ttl = leasehold::duration::format(self.ttl);
            format!("what could not be released is free in {ttl}")
        };
        let prefix = output::quoted(&self.prefix);
        let records = match scheme {
            "memory" => return,
            "http" | "https" => "the service purges the records by itself".to_owned(),
            _ => format!(
                "in an hour, `leasehold purge --prefix {prefix} --older-than 1h` deletes the records"
            ),
        };
        output::note(&format!("{held}; {records}"));
    }
}
