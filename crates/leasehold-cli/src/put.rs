//! `leasehold put`.

use std::path::PathBuf;

use clap::Args;
use leasehold::core::{Name, Nonce};
use leasehold::host::{Host as _, Machine};
use leasehold::{PutRequest, wire};

use crate::arguments::{self, Common};
use crate::exit::Failure;
use crate::{body, output, store};

/// Create or reset a work item: a name with a state and a body, for `claim` and `work`.
#[derive(Args, Debug)]
#[command(after_help = "\
An existing item moves to this state, unless a worker has claimed it (exit code 75). It keeps its body unless a new
one is given; `--body ''` empties it.

Examples:
  leasehold put order-17 --state REQUESTED --body 'three apples'
  leasehold put order-17 --state REQUESTED --body-file order.json
  jq .order <mail.json | leasehold put order-17 --state REQUESTED --body -
  leasehold put order-17 --state REQUESTED                       retry it, with its present body
  leasehold put order-17 --state REQUESTED --nonce mail-4711     safe to repeat: the second call changes nothing")]
pub(crate) struct Put {
    /// Name of the item.
    #[arg(value_parser = arguments::name)]
    name: Name,

    /// State of the item: a label of at most 64 bytes.
    #[arg(long)]
    state: String,

    /// Body of the item: at most 64 KiB of text; `-` reads it from standard input [default: the present body].
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    body: Option<String>,

    /// Read the body from this file; `-` is standard input.
    #[arg(long, value_name = "PATH", conflicts_with = "body")]
    body_file: Option<PathBuf>,

    /// Identifies this put: a repetition with the same nonce changes nothing, unless another put came between
    /// [default: random].
    #[arg(long)]
    nonce: Option<String>,
}

impl Put {
    pub(crate) async fn execute(self, common: &Common) -> Result<u8, Failure> {
        let nonce = match &self.nonce {
            Some(nonce) => Nonce::new(nonce)?,
            // With a nonce, the outcome can be looked up if the answer of the store is lost.
            None => Nonce::new(format!("{:032x}", Machine.random()))?,
        };
        let body = match (&self.body, &self.body_file) {
            (Some(body), _) => Some(body::argument(body)?),
            (None, Some(path)) => Some(body::file(path)?),
            (None, None) => None,
        };
        let request = PutRequest {
            name: self.name.clone(),
            state: self.state.as_str().into(),
            body: body.map(Into::into),
            nonce: Some(nonce),
        };
        let client = store::connect(&store::target(common)?).await?;
        let put = client.leases().put(request).await;
        store::close(&client).await;
        put.map_err(|error| Failure::of(&self.name, error))?;
        if common.json {
            output::json(&wire::PutResponse { stored: true })?;
        } else {
            output::confirmation(&format!("stored {} in state {}", self.name, self.state))?;
        }
        Ok(0)
    }
}
