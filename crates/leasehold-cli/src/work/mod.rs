//! `leasehold work`: runs a command for each work item in a state.

mod item;
mod pool;
mod progress;

use std::ffi::OsString;

use clap::Args;
use leasehold::core::{Fence, Kind, Operation, Update};

use crate::arguments::Common;
use crate::claim::ItemOptions;
use crate::exit::{self, Failure, USAGE};
use crate::signals::Signals;
use crate::{output, store};
use pool::{End, WorkerPool};

const EXPLANATION: &str = "\
Items are claimed oldest first. The command receives the body of its item on standard input, and the claim is renewed \
while the command runs. If the command ends with 0, the item moves to the state of `--next`, otherwise to that of \
`--failed`, and is released in the same write. Its body is kept, unless `--output` replaces it by what the command \
printed. A command that ends with 126 or 127 could not be executed: its item is given back, and `work` ends with that \
code.

Start any number of workers on any number of machines: an item is never processed by two at the same time. The command \
receives LEASEHOLD_NAME, LEASEHOLD_FENCE (pass it to the resources that check fences), LEASEHOLD_STATE, LEASEHOLD_BODY, \
LEASEHOLD_EXPIRES and LEASEHOLD_STORE. As with `run`, it receives no secrets, and if its claim is lost, its whole process \
group is ended before another worker can get the item, even if `leasehold` itself is killed. Another worker gets the \
item after the ttl.

`work` waits for more items until it receives a signal (Ctrl-C, TERM), also while the store is unavailable. After the \
signal it claims no more items and waits for the running commands. A second signal is forwarded to the commands, and \
the items of commands that it ends are given back at once.";

const EXAMPLES: &str = "\
Examples:
  leasehold put order-17 --state REQUESTED --body 'three apples'
  leasehold work REQUESTED --next DONE --failed FAILED -- ./pack.sh
  leasehold work REQUESTED --next DONE --failed FAILED --parallel 4 --drain -- ./pack.sh
  leasehold work RAW --next COOKED --failed BURNT --output -- tr a-z A-Z
  leasehold list --state FAILED";

/// Run a command for each work item in a state, and move the item to its next state.
#[derive(Args, Debug)]
#[command(
    override_usage = "leasehold work [OPTIONS] <STATE> --next <STATE> --failed <STATE> -- <COMMAND>..."
)]
#[command(after_help = EXAMPLES)]
#[command(after_long_help = format!("{EXPLANATION}\n\n{EXAMPLES}\n\n{}", exit::TABLE))]
pub(crate) struct Work {
    #[command(flatten)]
    items: ItemOptions,

    /// State for items whose command ended with 0; an empty one clears the state.
    #[arg(long, value_name = "STATE")]
    next: String,

    /// State for items whose command failed.
    #[arg(long, value_name = "STATE")]
    failed: String,

    /// How many commands run at the same time.
    #[arg(short, long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    parallel: u16,

    /// Replace the body of the item by what a successful command prints.
    #[arg(long)]
    output: bool,

    /// Exit if there is no item to claim, instead of waiting. Items that other workers have claimed are not waited for.
    #[arg(long)]
    drain: bool,

    /// Do not report items or the summary.
    #[arg(short, long)]
    quiet: bool,

    /// Command to run for each item, with its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Work {
    pub(crate) async fn execute(mut self, common: &Common) -> Result<u8, Failure> {
        // In `work -- -state -- COMMAND`, the second `--` separates the command.
        if self.command.len() > 1 && self.command[0] == "--" {
            self.command.remove(0);
        }
        self.check()?;
        let mut signals = Signals::catch()?;
        let target = store::target(common)?;
        let client = tokio::select! {
            client = store::connect(&target) => client?,
            signal = signals.end() => return Ok(exit::of_signal(signal)),
        };
        let mut pool = WorkerPool::new(self, client.clone(), target);
        let end = pool.work(&mut signals).await;
        store::close(&client).await;
        let summary = pool.summary();
        if common.json {
            output::json(summary)?;
        } else {
            pool.progress().report_summary(summary);
        }
        match end? {
            End::Interrupted(signal) => Ok(exit::of_signal(signal)),
            End::CannotRun(code) => Ok(code),
            End::Finished if summary.failed > 0 => Ok(exit::FAILED),
            End::Finished => Ok(0),
        }
    }

    /// Refuses invalid states before any command runs.
    fn check(&self) -> Result<(), Failure> {
        for (option, state) in [("--next", &self.next), ("--failed", &self.failed)] {
            if *state == self.items.state {
                return Err(Failure::new(
                    USAGE,
                    format!(
                        "invalid {option} `{state}`: items are claimed from this state; give another one"
                    ),
                ));
            }
            let label = (!state.is_empty()).then(|| state.as_str().into());
            let update = Operation::Update(Update {
                fence: Fence::default(),
                principal: None,
                body: None,
                state: Some(label),
                then_release: true,
            });
            update.check(Kind::Lock)?;
        }
        Ok(())
    }
}
