//! `leasehold update`.

use std::io::Read as _;

use clap::{ArgGroup, Args};
use leasehold::core::{Fence, Name, limits};
use leasehold::host::{Host as _, Machine};
use leasehold::{UpdateRequest, Updated, wire};
use serde_json::json;

use crate::arguments::{self, Common};
use crate::exit::{Failure, USAGE};
use crate::{output, store};

/// Write a lease's body or state, and renew it or let go.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("what").required(true).multiple(true))]
#[command(after_help = "\
Examples:
  leasehold update nightly 1794774434600001 'step 3'
  leasehold update nightly 1794774434600001 - <progress.json
  leasehold update nightly 1794774434600001 done --release
  leasehold update \"$LEASEHOLD_NAME\" \"$LEASEHOLD_FENCE\" 'step 3'     in a command of `leasehold run`")]
pub(crate) struct Update {
    /// The lease's name.
    #[arg(value_parser = arguments::name)]
    name: Name,

    /// The fence that you hold it by.
    #[arg(value_parser = arguments::fence)]
    fence: Fence,

    /// The new body, at most 64 KiB of text; `-` reads it from standard input.
    #[arg(group = "what")]
    body: Option<String>,

    /// The new state, a label of at most 64 bytes; an empty one clears it.
    #[arg(long, group = "what")]
    state: Option<String>,

    /// Let go in the same write.
    #[arg(long, group = "what")]
    release: bool,
}

impl Update {
    pub(crate) async fn execute(self, common: &Common) -> Result<u8, Failure> {
        let body = match self.body.as_deref() {
            Some("-") => Some(standard_input()?),
            body => body.map(str::to_owned),
        };
        let label = |state: String| (!state.is_empty()).then(|| state.into());
        let request = UpdateRequest {
            name: self.name.clone(),
            fence: self.fence,
            body: body.map(Into::into),
            state: self.state.map(label),
            then_release: self.release,
        };
        let client = store::connect(&store::url(common)?).await?;
        let asked = Machine.boot_time();
        let updated = client.leases().update(request).await;
        store::close(&client).await;
        match updated? {
            Updated::Renewed(renewed) if common.json => {
                let lease = wire::Lease::renewed(&renewed.renewal, asked, renewed.deadline);
                output::json(&lease)?;
            }
            Updated::Renewed(renewed) => {
                let until = output::time(renewed.renewal.expires_at);
                output::text(&format!(
                    "{} is updated, and yours until {until}",
                    self.name
                ))?;
            }
            Updated::Completed if common.json => output::json(&json!({ "released": true }))?,
            Updated::Completed => output::text(&format!("{} is updated and released", self.name))?,
        }
        Ok(0)
    }
}

/// All of standard input, though no more than it takes to see that it is too much.
fn standard_input() -> Result<String, Failure> {
    let mut bytes = Vec::new();
    std::io::stdin()
        .take(limits::BODY_BYTES as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::system("the body cannot be read from standard input", error))?;
    if bytes.len() > limits::BODY_BYTES {
        let most = limits::BODY_BYTES;
        return Err(Failure::new(
            USAGE,
            format!("the body has more than {most} bytes"),
        ));
    }
    String::from_utf8(bytes).map_err(|_| {
        Failure::new(
            USAGE,
            "the body is not UTF-8: encode it, for instance as base64",
        )
    })
}
