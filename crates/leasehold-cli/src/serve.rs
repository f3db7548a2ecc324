//! `leasehold serve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use leasehold::core::{Invalid, Kind, Operation};
use leasehold::engine::Engine;
use leasehold::store::{Store, has_secret};
use leasehold_server::access::{Access, Limits};
use leasehold_server::{Audit, AuditOptions, Config, OnFailure, Tls, TlsFiles, Traces};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::arguments::Common;
use crate::exit::{DENIED, Failure, USAGE};
use crate::notify::Manager;
use crate::secret::{Setting, exposure};
use crate::{log, output, store};

/// File descriptors reserved for everything but client connections: the store, files, the probe reserve, and connections
/// that are being closed.
const RESERVED_DESCRIPTORS: u64 = 320;

/// Serve leases over HTTP, with a dashboard.
#[derive(Args, Debug)]
#[command(after_help = "\
The dashboard is at `/`, and the API documentation at `/docs`. The service keeps no state of its own: run as many as you \
like on one store. On SIGTERM or SIGINT it answers the open requests and exits; on SIGHUP it reopens the audit log. \
It notifies systemd (Type=notify) when it is ready and when it stops, and supports WatchdogSec=.

Examples:
  leasehold serve
  leasehold serve --listen 127.0.0.1:0 --store sqlite:leases.db --log json
  leasehold serve --purge-after 7d
  leasehold serve --access access.toml --audit audit.jsonl
  leasehold serve --otlp-endpoint http://localhost:4318
  leasehold serve --config /etc/leasehold.toml --print-config
  leasehold serve --listen 0.0.0.0:12345 --access access.toml --tls-cert cert.pem --tls-key key.pem
  curl -X POST 'http://localhost:12345/locks/nightly?nonce=my-job-17'
  leasehold --store http://localhost:12345 list")]
pub(crate) struct Serve {
    /// TOML file with options, named as here: `listen = "127.0.0.1:12345"`. The command line takes precedence over the
    /// environment, and the environment over the file.
    #[arg(long, value_name = "FILE", env = "LEASEHOLD_CONFIG")]
    config: Option<PathBuf>,

    /// Print the effective options and their sources in the format of that file, and exit.
    #[arg(long)]
    pub(crate) print_config: bool,

    /// The text that `print_config` prints.
    #[arg(skip)]
    pub(crate) effective: String,

    /// Address and port to listen on; port 0 picks a free port.
    #[arg(long, value_name = "ADDRESS", env = "LEASEHOLD_LISTEN", default_value_t = default_address())]
    listen: SocketAddr,

    /// Require tokens: only callers with a token of this file are admitted (see `leasehold token`). The file is reloaded
    /// when it changes.
    #[arg(long, value_name = "FILE", env = "LEASEHOLD_ACCESS")]
    access: Option<PathBuf>,

    /// Serve TLS with this certificate (PEM). The file is reloaded when it changes.
    #[arg(
        long,
        value_name = "FILE",
        env = "LEASEHOLD_TLS_CERT",
        requires = "tls_key"
    )]
    tls_cert: Option<PathBuf>,

    /// Private key of the certificate (PEM).
    #[arg(
        long,
        value_name = "FILE",
        env = "LEASEHOLD_TLS_KEY",
        requires = "tls_cert"
    )]
    tls_key: Option<PathBuf>,

    /// Accept client certificates of these authorities (PEM) instead of tokens; the access file grants their rights.
    #[arg(
        long,
        value_name = "FILE",
        env = "LEASEHOLD_TLS_CLIENT_CA",
        requires = "tls_cert"
    )]
    #[arg(requires = "access")]
    tls_client_ca: Option<PathBuf>,

    /// Maximum requests per second for one token.
    #[arg(long, value_name = "N", env = "LEASEHOLD_MAX_RATE", default_value_t = Limits::default().rate)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    max_rate: u32,

    /// Maximum waiting requests and event subscriptions per token; at most half of --max-connections, because each
    /// occupies a connection.
    #[arg(long, value_name = "N", env = "LEASEHOLD_MAX_WAITS", default_value_t = Limits::default().waits)]
    max_waits: usize,

    /// Maximum open connections. Beyond that, idle connections are closed, starting with the address that has most. While
    /// all are busy, further connections are answered on /healthz, /readyz and /metrics only.
    #[arg(long, value_name = "N", env = "LEASEHOLD_MAX_CONNECTIONS")]
    #[arg(default_value_t = Config::default().max_connections as u64)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    max_connections: u64,

    /// Maximum open connections per client address [default: half of --max-connections]. IPv6 addresses count by /64
    /// network. Behind a proxy all clients share the address of the proxy: set it to --max-connections there.
    #[arg(long, value_name = "N", env = "LEASEHOLD_MAX_CONNECTIONS_PER_ADDRESS")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    max_connections_per_address: Option<u64>,

    /// Maximum subscribers of /events; at most half of --max-connections, because each occupies a connection. One address
    /// may have the same share of subscribers as of connections.
    #[arg(long, value_name = "N", env = "LEASEHOLD_MAX_SUBSCRIBERS")]
    #[arg(default_value_t = Config::default().max_subscribers as u64)]
    max_subscribers: u64,

    /// Write an audit log to this file: every change with its caller before it is made, its outcome, and refused callers,
    /// one JSON object per line.
    #[arg(long, value_name = "FILE", env = "LEASEHOLD_AUDIT")]
    audit: Option<PathBuf>,

    /// What to do with changes that cannot be recorded in the audit log, for example because its disk is full: `refuse`
    /// them with 503 and report not ready, or `continue` without a record.
    #[arg(long, value_name = "WHAT", env = "LEASEHOLD_AUDIT_ON_FAILURE")]
    #[arg(value_enum, default_value_t = OnAuditFailure::Refuse)]
    audit_on_failure: OnAuditFailure,

    /// Rotate the audit log when it reaches this size, such as `100M`: FILE is renamed to FILE.1, FILE.1 to FILE.2, …
    #[arg(long, value_name = "SIZE", env = "LEASEHOLD_AUDIT_MAX_SIZE")]
    #[arg(requires = "audit", value_parser = file_size)]
    audit_max_size: Option<u64>,

    /// How many rotated audit files to keep; older ones are deleted.
    #[arg(long, value_name = "N", env = "LEASEHOLD_AUDIT_KEEP", default_value_t = AuditOptions::default().keep)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    audit_keep: u32,

    /// Send OpenTelemetry traces of requests to the collector at this URL (OTLP over HTTP), such as
    /// `http://localhost:4318`. Configure it with the variables of OpenTelemetry (OTEL_TRACES_SAMPLER,
    /// OTEL_EXPORTER_OTLP_HEADERS, …).
    #[arg(long, value_name = "URL", env = "LEASEHOLD_OTLP_ENDPOINT")]
    otlp_endpoint: Option<String>,

    /// Accept requests for this host name; `*` accepts any. May be given several times. By default, a service on loopback
    /// without --access accepts only `localhost` and loopback addresses, so that no web page can reach it through a name
    /// that resolves to this machine (DNS rebinding).
    #[arg(
        long = "allow-host",
        value_name = "NAME",
        env = "LEASEHOLD_ALLOW_HOST",
        value_delimiter = ','
    )]
    allow_host: Vec<String>,

    /// Listen beyond loopback without tokens or TLS, because something else protects the service.
    #[arg(long, env = "LEASEHOLD_INSECURE")]
    insecure: bool,

    /// Delete records that have been free and empty for this long (at least an hour), or `never`.
    #[arg(
        long,
        value_name = "TIME",
        env = "LEASEHOLD_PURGE_AFTER",
        default_value = "24h"
    )]
    #[arg(value_parser = retention)]
    #[arg(allow_hyphen_values = true)]
    purge_after: Retention,

    /// Format of the log, which goes to standard error [default: text; with --json: json].
    #[arg(long, value_enum, env = "LEASEHOLD_LOG")]
    log: Option<log::Format>,

    /// Log level: `error`, `warn`, `info`, `debug`, `trace`, or by module as in RUST_LOG.
    #[arg(long, value_name = "LEVEL", env = "RUST_LOG", default_value = "info")]
    log_level: String,
}

/// What happens to changes that cannot be recorded in the audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OnAuditFailure {
    Refuse,
    Continue,
}

/// The smallest size at which an audit file may be rotated.
const MIN_FILE_SIZE: u64 = 64 * 1024;

/// Parses a size in bytes: `1000000`, `512K`, `100M`, `2G`.
fn file_size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|last: char| !last.is_ascii_digit());
    let unit = &text[digits.len()..];
    let factor = match unit.to_ascii_uppercase().as_str() {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => 0,
    };
    let bytes = digits
        .parse()
        .ok()
        .and_then(|number: u64| number.checked_mul(factor));
    bytes
        .filter(|bytes| *bytes >= MIN_FILE_SIZE)
        .ok_or_else(|| {
            "give a size of at least `64K`, in bytes or with the unit `K`, `M` or `G` (powers of 1024)".into()
        })
}

/// How long unused records are kept; `None` means for ever.
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

/// Raises the soft limit of file descriptors to the hard limit, and returns how many of the requested connections they
/// allow. The usual soft limit of 1,024 would allow about 700.
fn connection_limit(requested: u64) -> usize {
    let (_, hard_limit) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((0, u64::MAX));
    if let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, hard_limit, hard_limit) {
        tracing::warn!(%error, "cannot raise the limit of file descriptors: connections may be refused");
    }
    let possible = hard_limit.saturating_sub(RESERVED_DESCRIPTORS).max(1);
    if possible < requested {
        tracing::warn!(
            "accepting {possible} connections instead of {requested}: the limit of file descriptors is {hard_limit}"
        );
    }
    to_usize(requested.min(possible))
}

fn to_usize(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn default_address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], leasehold_server::DEFAULT_PORT))
}

impl Serve {
    pub(crate) async fn execute(self, common: &Common) -> Result<u8, Failure> {
        if self.print_config {
            output::text(&self.effective)?;
            return Ok(0);
        }
        let format = match common.json {
            true => log::Format::Json,
            false => log::Format::Text,
        };
        log::start(self.log.unwrap_or(format), &self.log_level)?;
        let store = store::setting(common)?;
        self.warn_of_exposed_files(&store);
        let manager = Manager::from_environment();
        let cannot_catch = |error| Failure::system("cannot catch signals", error);
        let mut terminate = signal(SignalKind::terminate()).map_err(cannot_catch)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(cannot_catch)?;
        let mut hangup = signal(SignalKind::hangup()).map_err(cannot_catch)?;
        // Caught, so that a write beyond the file size limit fails instead of killing the process.
        let _beyond_limit =
            signal(SignalKind::from_raw(Signal::SIGXFSZ as i32)).map_err(cannot_catch)?;
        let mut config = Config::default();
        config.purge = self.purge_after.0;
        config.store = store::scheme(store.value()).to_owned();
        config.access = self.access.as_deref().map(Access::open).transpose()?;
        config.allowed_hosts = self.allow_host.clone();
        config.limits = Limits {
            rate: self.max_rate,
            waits: self.max_waits,
        };
        config.max_connections = connection_limit(self.max_connections);
        let per_address = self.max_connections_per_address;
        config.max_connections_per_address = per_address.map(to_usize);
        config.max_subscribers = to_usize(self.max_subscribers);
        config.audit = self.open_audit()?;
        let audit = config.audit.clone();
        config.tls = self.tls_files().map(Tls::open).transpose()?;
        let endpoint = self.otlp_endpoint.as_deref();
        config.traces = endpoint.map(Traces::open).transpose()?;
        self.check_exposure()?;
        let engine = Engine::start(open(store.value()).await?).await?;
        let listener = TcpListener::bind(self.listen).await.map_err(|error| {
            let address = self.listen;
            Failure::system(
                &format!("cannot listen on {address} (use another --listen)"),
                error,
            )
        })?;
        let address = listener
            .local_addr()
            .map_err(|error| Failure::system("cannot read the address of the listener", error))?;
        let scheme = if config.tls.is_some() {
            "https"
        } else {
            "http"
        };
        let status = format!("listening on {scheme}://{address}");
        tracing::info!("{status}");
        manager.ready(&status);
        let shutdown = async {
            loop {
                tokio::select! {
                    _ = terminate.recv() => break,
                    _ = interrupt.recv() => break,
                    _ = hangup.recv() => {
                        tracing::info!("SIGHUP: reopening the audit log; other files are reloaded when they change");
                        audit.as_ref().inspect(|audit| audit.reopen());
                    }
                }
            }
            manager.stopping();
        };
        tokio::select! {
            () = leasehold_server::serve(listener, engine, config, shutdown) => {}
            never = manager.keep_alive() => match never {},
        }
        tracing::info!("stopped");
        Ok(0)
    }

    fn open_audit(&self) -> leasehold::Result<Option<Audit>> {
        let mut options = AuditOptions::default();
        options.on_failure = match self.audit_on_failure {
            OnAuditFailure::Refuse => OnFailure::Refuse,
            OnAuditFailure::Continue => OnFailure::Continue,
        };
        options.max_bytes = self.audit_max_size;
        options.keep = self.audit_keep;
        let path = self.audit.as_deref();
        path.map(|path| Audit::open_with(path, options)).transpose()
    }

    fn tls_files(&self) -> Option<TlsFiles> {
        Some(TlsFiles {
            certificate: self.tls_cert.clone()?,
            key: self.tls_key.clone()?,
            client_authorities: self.tls_client_ca.clone(),
        })
    }

    /// Refuses to listen beyond loopback without tokens and TLS, unless `--insecure` is given.
    fn check_exposure(&self) -> Result<(), Failure> {
        let is_protected = self.access.is_some() && self.tls_cert.is_some();
        if self.listen.ip().is_loopback() || is_protected {
            return Ok(());
        }
        let address = self.listen;
        if self.insecure {
            tracing::warn!(%address, "insecure: clients that reach this address may read or change leases without authorisation");
            return Ok(());
        }
        Err(Failure::new(
            DENIED,
            format!(
                "cannot listen on {address}: beyond loopback, tokens and TLS are required; give --access, --tls-cert \
                 and --tls-key, or --insecure if something else protects the service"
            ),
        ))
    }

    /// Warns of files with secrets that other users can access.
    fn warn_of_exposed_files(&self, store: &Setting) {
        let config = self.config.as_deref().filter(|_| has_secret(store.value()));
        let files = [config, self.access.as_deref(), self.tls_key.as_deref()];
        let warnings = files.into_iter().flatten().filter_map(exposure);
        for warning in warnings.chain(store.exposures()) {
            tracing::warn!("{warning}");
        }
    }
}

async fn open(url: &str) -> Result<Arc<dyn Store>, Failure> {
    if matches!(store::scheme(url), "http" | "https") {
        return Err(Failure::new(
            USAGE,
            "cannot serve another service: give a database as the store, such as `--store sqlite:PATH`",
        ));
    }
    Ok(leasehold::store::open(url).await?)
}
