//! `leasehold serve`.

use std::net::SocketAddr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use leasehold::core::{Invalid, Kind, Operation};
use leasehold::engine::Engine;
use leasehold_server::Config;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

use crate::arguments::Common;
use crate::exit::{Failure, USAGE};
use crate::store;

/// Serve leases over HTTP.
#[derive(Args, Debug)]
#[command(after_help = "\
After a SIGTERM or SIGINT it ends once all requests are answered. It keeps nothing of its own: run as many as you \
like on one store.

Examples:
  leasehold serve
  leasehold serve --listen 127.0.0.1:0 --store sqlite:leases.db --log json
  leasehold serve --purge-after 7d
  curl -X POST 'http://localhost:12345/locks/nightly?nonce=my-job-17'
  leasehold --store http://localhost:12345 list")]
pub(crate) struct Serve {
    /// Where to listen; port 0 takes any that is free.
    #[arg(long, value_name = "ADDRESS", default_value_t = default_address())]
    listen: SocketAddr,

    /// Delete records that have been free and empty for so long, an hour at least; or `never`.
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = retention)]
    #[arg(allow_hyphen_values = true)]
    purge_after: Retention,

    /// How to write the log, on standard error [default: text, with --json: json].
    #[arg(long, value_enum)]
    log: Option<Log>,

    /// What to log: `error`, `warn`, `info`, `debug`, `trace`, or by module as in RUST_LOG.
    #[arg(long, value_name = "LEVEL", env = "RUST_LOG", default_value = "info")]
    log_level: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Log {
    Text,
    Json,
}

/// For how long records are kept; `None` for ever.
#[derive(Clone, Copy, Debug)]
struct Retention(Option<Duration>);

fn retention(text: &str) -> Result<Retention, Invalid> {
    if text == "never" {
        return Ok(Retention(None));
    }
    let retention = leasehold::duration::parse(text)?;
    Operation::Purge { retention }.check(Kind::Lock)?;
    Ok(Retention(Some(retention)))
}

fn default_address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], leasehold_server::DEFAULT_PORT))
}

impl Serve {
    pub(crate) async fn execute(self, common: &Common) -> Result<u8, Failure> {
        self.start_log(common.json)?;
        let caught = |error| Failure::system("no signals can be caught", error);
        let mut terminate = signal(SignalKind::terminate()).map_err(caught)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(caught)?;
        let engine = Engine::start(self.open(common).await?).await?;
        let listener = TcpListener::bind(self.listen).await.map_err(|error| {
            let address = self.listen;
            Failure::system(
                &format!("{address} cannot be listened on: use another --listen"),
                error,
            )
        })?;
        let address = listener
            .local_addr()
            .map_err(|error| Failure::system("the listener has no address", error))?;
        if !address.ip().is_loopback() {
            tracing::warn!(%address, "anybody who can reach this address can take and end leases");
        }
        tracing::info!("listening on http://{address}");
        let shutdown = async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        let mut config = Config::default();
        config.purge = self.purge_after.0;
        config.store = store::scheme(&store::url(common)?).to_owned();
        leasehold_server::serve(listener, engine, config, shutdown).await;
        tracing::info!("ended");
        Ok(0)
    }

    async fn open(
        &self,
        common: &Common,
    ) -> Result<std::sync::Arc<dyn leasehold::store::Store>, Failure> {
        let url = store::url(common)?;
        if url.starts_with("http://") || url.starts_with("https://") {
            return Err(Failure::new(
                USAGE,
                "a service needs a store of its own, not another service: give --store sqlite:PATH",
            ));
        }
        Ok(leasehold::store::open(&url).await?)
    }

    fn start_log(&self, json: bool) -> Result<(), Failure> {
        let filter = EnvFilter::try_new(&self.log_level)
            .map_err(|error| Failure::new(USAGE, format!("--log-level: {error}")))?;
        let log = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr);
        if self.log.map_or(json, |log| log == Log::Json) {
            log.json().init();
        } else {
            let colours = std::io::IsTerminal::is_terminal(&std::io::stderr());
            log.with_ansi(colours).init();
        }
        Ok(())
    }
}
