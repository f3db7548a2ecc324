//! `leasehold work`: a command for each work item in a state, for as long as there are any.

mod crew;
mod item;
mod progress;

use std::ffi::OsString;

use clap::Args;
use leasehold::core::{Fence, Kind, Operation, Update};

use crate::arguments::Common;
use crate::claim::Which;
use crate::exit::{self, Failure, USAGE};
use crate::signals::Signals;
use crate::{output, store};
use crew::{Crew, End};

const EXPLANATION: &str = "\
Each item is claimed, oldest first, and its body given to the command on standard input. The claim is renewed for as \
long as the command runs. When it ends with 0, the item moves on to the state of `--next`, otherwise to that of \
`--failed`, and is let go in the same write; its body stays as it is, unless `--output` makes what the command printed \
the new one. A command that ends with 126 or 127 could not be run: its item is given back, and `work` ends with that code.

Start as many as you like, on as many machines: no item is ever with two at once. The command gets LEASEHOLD_NAME, \
LEASEHOLD_FENCE (pass it on to whatever can check it), LEASEHOLD_STATE, LEASEHOLD_BODY, LEASEHOLD_EXPIRES and \
LEASEHOLD_STORE, and as with `run` no secrets. As with `run`, a command whose claim is lost is ended with its whole process group before anybody \
else can get the item, also when `leasehold` itself is killed; the item goes to somebody else after the ttl.

It waits for more items until it gets a signal (Ctrl-C, TERM), and while the store does not answer. Then it claims no \
more and lets the running commands finish. A second signal is handed on to them, and the items of those that fail by \
it are given back at once.";

const EXAMPLES: &str = "\
Examples:
  leasehold put order-17 --state REQUESTED --body 'three apples'
  leasehold work REQUESTED --next DONE --failed FAILED -- ./pack.sh
  leasehold work REQUESTED --next DONE --failed FAILED --parallel 4 --drain -- ./pack.sh
  leasehold work RAW --next COOKED --failed BURNT --output -- tr a-z A-Z
  leasehold list --state FAILED";

/// Run a command for each work item in a state, and move the item on by its exit code.
#[derive(Args, Debug)]
#[command(
    override_usage = "leasehold work [OPTIONS] <STATE> --next <STATE> --failed <STATE> -- <COMMAND>..."
)]
#[command(after_help = EXAMPLES)]
#[command(after_long_help = format!("{EXPLANATION}\n\n{EXAMPLES}\n\n{}", exit::TABLE))]
pub(crate) struct Work {
    #[command(flatten)]
    which: Which,

    /// The state of an item whose command ended with 0; an empty one clears it.
    #[arg(long, value_name = "STATE")]
    next: String,

    /// The state of an item whose command failed.
    #[arg(long, value_name = "STATE")]
    failed: String,

    /// So many commands at once.
    #[arg(short, long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    parallel: u16,

    /// Make what a successful command prints the item's new body.
    #[arg(long)]
    output: bool,

    /// End when there is nothing to claim any more, instead of waiting. What others work on is theirs.
    #[arg(long)]
    drain: bool,

    /// Say nothing about items and how many there were.
    #[arg(short, long)]
    quiet: bool,

    /// The command to run for each item, and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Work {
    pub(crate) async fn execute(mut self, common: &Common) -> Result<u8, Failure> {
        // In `work -- -state -- COMMAND` the second pair of dashes is the one that was meant.
        if self.command.len() > 1 && self.command[0] == "--" {
            self.command.remove(0);
        }
        self.check()?;
        let mut signals = Signals::catch()?;
        let place = store::place(common)?;
        let client = tokio::select! {
            client = store::connect(&place) => client?,
            signal = signals.end() => return Ok(exit::by(signal)),
        };
        let mut crew = Crew::new(self, client.clone(), place);
        let end = crew.work(&mut signals).await;
        store::close(&client).await;
        let tally = crew.tally();
        if common.json {
            output::json(tally)?;
        } else {
            crew.progress().sum_up(tally);
        }
        match end? {
            End::Interrupted(signal) => Ok(exit::by(signal)),
            End::CannotRun(code) => Ok(code),
            End::Over if tally.failed > 0 => Ok(exit::FAILED),
            End::Over => Ok(0),
        }
    }

    /// A state that is wrong must show before any command has run.
    fn check(&self) -> Result<(), Failure> {
        for (option, state) in [("--next", &self.next), ("--failed", &self.failed)] {
            if *state == self.which.state {
                return Err(Failure::new(
                    USAGE,
                    format!("{option} is {state} itself: items would be worked on again and again"),
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
