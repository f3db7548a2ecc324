//! `leasehold update`.

use clap::{ArgGroup, Args};
use leasehold::core::{Fence, Name};
use leasehold::host::{Host as _, Machine};
use leasehold::{UpdateOutcome, UpdateRequest, wire};
use serde_json::json;

use crate::arguments::{self, Common};
use crate::exit::Failure;
use crate::{body, output, store};

/// Write the body or state of a lease, and renew or release it in the same write.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("what").required(true).multiple(true))]
#[command(after_help = "\
Examples:
  leasehold update nightly 1794774434600001 'step 3'
  leasehold update nightly 1794774434600001 - <progress.json
  leasehold update nightly 1794774434600001 done --release
  leasehold update \"$LEASEHOLD_NAME\" \"$LEASEHOLD_FENCE\" 'step 3'     in a command of `leasehold run`")]
pub(crate) struct Update {
    /// Name of the lease.
    #[arg(value_parser = arguments::name)]
    name: Name,

    /// Fence of your lease.
    #[arg(value_parser = arguments::fence)]
    fence: Fence,

    /// New body: at most 64 KiB of text; `-` reads it from standard input.
    #[arg(group = "what")]
    body: Option<String>,

    /// New state: a label of at most 64 bytes; an empty one clears it.
    #[arg(long, group = "what")]
    state: Option<String>,

    /// Release the lease in the same write.
    #[arg(long, group = "what")]
    release: bool,
}

impl Update {
    pub(crate) async fn execute(self, common: &Common) -> Result<u8, Failure> {
        let body = self.body.as_deref().map(body::argument).transpose()?;
        let label = |state: String| (!state.is_empty()).then(|| state.into());
        let request = UpdateRequest {
            name: self.name.clone(),
            fence: self.fence,
            body: body.map(Into::into),
            state: self.state.map(label),
            then_release: self.release,
        };
        let client = store::connect(&store::target(common)?).await?;
        let sent = Machine.boot_time();
        let updated = client.leases().update(request).await;
        store::close(&client).await;
        match updated? {
            UpdateOutcome::Renewed(renewed) if common.json => {
                let lease = wire::Lease::renewed(&renewed.renewal, sent, renewed.deadline);
                output::json(&lease)?;
            }
            UpdateOutcome::Renewed(renewed) => {
                let until = output::time(renewed.renewal.expires_at);
                output::confirmation(&format!(
                    "updated {}, and renewed it until {until}",
                    self.name
                ))?;
            }
            UpdateOutcome::Completed if common.json => output::json(&json!({ "released": true }))?,
            UpdateOutcome::Completed => {
                output::confirmation(&format!("updated and released {}", self.name))?
            }
        }
        Ok(0)
    }
}
