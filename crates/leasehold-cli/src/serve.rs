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

/// File descriptors for what is not counted as a client's connection: the store, files, the system, and connections of the
/// reserve for probes or about to be closed.
const DESCRIPTORS: u64 = 320;

/// Serve leases over HTTP.
#[derive(Args, Debug)]
#[command(after_help = "\
After a SIGTERM or SIGINT it ends once all requests are answered; after a SIGHUP it opens the audit log again. It keeps nothing of its own: run as many as you \
like on one store. It tells systemd (Type=notify) that it is ready, that it stops, and with WatchdogSec= that it lives.
A browser finds a dashboard at `/`, and the API at `/docs`.

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
    /// A TOML file whose keys are the options here: `listen = "127.0.0.1:12345"`. The command line counts more, then the
    /// environment, then the file.
    #[arg(long, value_name = "FILE", env = "LEASEHOLD_CONFIG")]
    config: Option<PathBuf>,

    /// Print every option as it stands, as such a file, and where it comes from; and end.
    #[arg(long)]
    pub(crate) print_config: bool,

    /// What `print_config` prints.
    #[arg(skip)]
    pub(crate) effective: String,

    /// Where to listen; port 0 takes any that is free.
    #[arg(long, value_name = "ADDRESS", env = "LEASEHOLD_LISTEN", default_value_t = default_address())]
    listen: SocketAddr,

    /// Let in only those who have a token in this file: see `leasehold token`. Changes of the file are followed.
    #[arg(long, value_name = "FILE", env = "LEASEHOLD_ACCESS")]
    access: Option<PathBuf>,

    /// Speak TLS, with this certificate (PEM). Changes of the file are followed.
    #[arg(
        long,
        value_name = "FILE",
        env = "LEASEHOLD_TLS_CERT",
        requires = "tls_key"
    )]
    tls_cert: Option<PathBuf>,

    /// The key of the certificate.
    #[arg(
        long,
        value_name = "FILE",
        env = "LEASEHOLD_TLS_KEY",
        requires = "tls_cert"
    )]
    tls_key: Option<PathBuf>,

    /// Clients may show certificates of these authorities instead of tokens; the access file says what they allow.
    #[arg(
        long,
        value_name = "FILE",
        env = "LEASEHOLD_TLS_CLIENT_CA",
        requires = "tls_cert"
    )]
    #[arg(requires = "access")]
    tls_client_ca: Option<PathBuf>,

    /// Requests a second that one token may make.
    #[arg(long, value_name = "N", env = "LEASEHOLD_MAX_RATE", default_value_t = Limits::default().rate)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    max_rate: u32,

    /// Requests of one token that may wait for a lease or subscribe to events at once; never more than half of
    /// --max-connections, because each has a connection.
    #[arg(long, value_name = "N", env = "LEASEHOLD_MAX_WAITS", default_value_t = Limits::default().waits)]
    max_waits: usize,

    /// Connections at once. When there are more, idle ones are closed for them, those of the address that has most first; while
    /// all are busy, only /healthz, /readyz and /metrics are answered on further connections.
    #[arg(long, value_name = "N", env = "LEASEHOLD_MAX_CONNECTIONS")]
    #[arg(default_value_t = Config::default().max_connections as u64)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    max_connections: u64,

    /// Connections of one address at once [default: half of --max-connections]. An IPv6 address counts by its /64 network.
    /// Behind a proxy all callers have the proxy's address: set it to --max-connections there.
    #[arg(long, value_name = "N", env = "LEASEHOLD_MAX_CONNECTIONS_PER_ADDRESS")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    max_connections_per_address: Option<u64>,

    /// Subscribers of /events at once, each of which keeps a connection; never more than half of --max-connections. One
    /// address may have the same share of them as of the connections.
    #[arg(long, value_name = "N", env = "LEASEHOLD_MAX_SUBSCRIBERS")]
    #[arg(default_value_t = Config::default().max_subscribers as u64)]
    max_subscribers: u64,

    /// Record in this file who asked for which change, before it is carried out, its outcome, and who was refused: a JSON
    /// object a line.
    #[arg(long, value_name = "FILE", env = "LEASEHOLD_AUDIT")]
    audit: Option<PathBuf>,

    /// What to do with changes that the audit log cannot record, as when its disk is full: `refuse` them with 503 and not
    /// be ready, or `continue` without a record.
    #[arg(long, value_name = "WHAT", env = "LEASEHOLD_AUDIT_ON_FAILURE")]
    #[arg(value_enum, default_value_t = OnAuditFailure::Refuse)]
    audit_on_failure: OnAuditFailure,

    /// Begin a new audit file when the present one has this size, as `100M`; the full one becomes FILE.1, and so on.
    #[arg(long, value_name = "SIZE", env = "LEASEHOLD_AUDIT_MAX_SIZE")]
    #[arg(requires = "audit", value_parser = file_size)]
    audit_max_size: Option<u64>,

    /// How many full audit files to keep; the oldest is deleted.
    #[arg(long, value_name = "N", env = "LEASEHOLD_AUDIT_KEEP", default_value_t = AuditOptions::default().keep)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    audit_keep: u32,

    /// Send OpenTelemetry traces of requests to the collector at this URL, as `http://localhost:4318`: by OTLP over HTTP.
    /// OpenTelemetry's own variables (OTEL_TRACES_SAMPLER, OTEL_EXPORTER_OTLP_HEADERS, …) say how.
    #[arg(long, value_name = "URL", env = "LEASEHOLD_OTLP_ENDPOINT")]
    otlp_endpoint: Option<String>,

    /// Answer requests for this host name, too; `*` allows any. Can be given several times. Without it a service on
    /// loopback that has no --access answers to `localhost` and loopback addresses only, so that no web page can reach it
    /// by a name that resolves to this machine.
    #[arg(
        long = "allow-host",
        value_name = "NAME",
        env = "LEASEHOLD_ALLOW_HOST",
        value_delimiter = ','
    )]
    allow_host: Vec<String>,

    /// Listen where others can connect even without tokens or without TLS, because something else protects it.
    #[arg(long, env = "LEASEHOLD_INSECURE")]
    insecure: bool,

    /// Delete records that have been free and empty for so long, an hour at least; or `never`.
    #[arg(
        long,
        value_name = "TIME",
        env = "LEASEHOLD_PURGE_AFTER",
        default_value = "24h"
    )]
    #[arg(value_parser = retention)]
    #[arg(allow_hyphen_values = true)]
    purge_after: Retention,

    /// How to write the log, on standard error [default: text, with --json: json].
    #[arg(long, value_enum, env = "LEASEHOLD_LOG")]
    log: Option<log::Format>,

    /// What to log: `error`, `warn`, `info`, `debug`, `trace`, or by module as in RUST_LOG.
    #[arg(long, value_name = "LEVEL", env = "RUST_LOG", default_value = "info")]
    log_level: String,
}

/// What happens to changes that the audit log cannot record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OnAuditFailure {
    Refuse,
    Continue,
}

/// The smallest audit file after which a new one is begun.
const LEAST_FILE_SIZE: u64 = 64 * 1024;

/// Bytes, as `1000000`, `512K`, `100M` or `2G`.
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
        .filter(|bytes| *bytes >= LEAST_FILE_SIZE)
        .ok_or_else(|| {
            "give bytes, `64K` or more, with `K`, `M` or `G` for their powers of 1024".into()
        })
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

/// As many connections as are wanted, or as the system has file descriptors for: those that it gives only to those who ask
/// are asked for, because otherwise a thousand connections would be the end of it.
fn connections(wanted: u64) -> usize {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((0, u64::MAX));
    if let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, most, most) {
        tracing::warn!(%error, "there may be too few file descriptors");
    }
    let possible = most.saturating_sub(DESCRIPTORS).max(1);
    if possible < wanted {
        tracing::warn!("only {possible} connections at once: there are {most} file descriptors");
    }
    to_usize(wanted.min(possible))
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
        self.warn_of_exposure(&store);
        let manager = Manager::from_environment();
        let caught = |error| Failure::system("no signals can be caught", error);
        let mut terminate = signal(SignalKind::terminate()).map_err(caught)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(caught)?;
        let mut hangup = signal(SignalKind::hangup()).map_err(caught)?;
        // Caught, so that a write beyond the limit of file sizes fails instead of ending the process.
        let _beyond_limit = signal(SignalKind::from_raw(Signal::SIGXFSZ as i32)).map_err(caught)?;
        let mut config = Config::default();
        config.purge = self.purge_after.0;
        config.store = store::scheme(store.value()).to_owned();
        config.access = self.access.as_deref().map(Access::open).transpose()?;
        config.allowed_hosts = self.allow_host.clone();
        config.limits = Limits {
            rate: self.max_rate,
            waits: self.max_waits,
        };
        config.max_connections = connections(self.max_connections);
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
                &format!("{address} cannot be listened on: use another --listen"),
                error,
            )
        })?;
        let address = listener
            .local_addr()
            .map_err(|error| Failure::system("the listener has no address", error))?;
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
                        tracing::info!("SIGHUP: opening the audit log again; other files are followed anyway");
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
        tracing::info!("ended");
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

    /// Beyond this machine, somebody must have to show who they are, where nobody can listen.
    fn check_exposure(&self) -> Result<(), Failure> {
        let guarded = self.access.is_some() && self.tls_cert.is_some();
        if self.listen.ip().is_loopback() || guarded {
            return Ok(());
        }
        let address = self.listen;
        if self.insecure {
            tracing::warn!(%address, "insecure: whoever can reach this address may read or use what it should not");
            return Ok(());
        }
        Err(Failure::new(
            DENIED,
            format!(
                "others can connect to {address}: that takes --access, --tls-cert and --tls-key; or --insecure, where \
                 something else protects it"
            ),
        ))
    }

    /// Warns of files with secrets that others can use.
    fn warn_of_exposure(&self, store: &Setting) {
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
            "a service needs a store of its own, not another service: give --store sqlite:PATH",
        ));
    }
    Ok(leasehold::store::open(url).await?)
}
