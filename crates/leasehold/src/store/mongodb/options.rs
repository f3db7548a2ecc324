//! The options of a `mongodb://` or `mongodb+srv://` URL.

use std::time::Duration;

use mongodb::error::ErrorKind;
use mongodb::options::ClientOptions;
use percent_encoding::percent_decode_str;

use super::{CALL_TIMEOUT, failure};
use crate::{Error, Result, duration};

/// The options of this store.
const OWN: [&str; 3] = ["changes", "collection", "margin"];

/// The options of the driver, in any case.
const DRIVER: [&str; 24] = [
    "appName",
    "authMechanism",
    "authMechanismProperties",
    "authSource",
    "connectTimeoutMS",
    "directConnection",
    "heartbeatFrequencyMS",
    "journal",
    "maxConnecting",
    "maxIdleTimeMS",
    "maxPoolSize",
    "minPoolSize",
    "readConcernLevel",
    "readPreference",
    "replicaSet",
    "retryReads",
    "retryWrites",
    "serverSelectionTimeoutMS",
    "srvMaxHosts",
    "srvServiceName",
    "tls",
    "tlsCAFile",
    "tlsCertificateKeyFile",
    "w",
];

/// The store's options of a URL.
pub(super) struct MongodbOptions {
    pub(super) database: String,
    pub(super) collection: String,
    pub(super) margin: Duration,
    /// Whether to watch for changes.
    pub(super) changes: bool,
}

impl MongodbOptions {
    /// Parses a URL. No error repeats any part of it that may be secret.
    pub(super) async fn parse(url: &str) -> Result<(Self, ClientOptions)> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let mut options = Self {
            database: String::new(),
            collection: "leases".into(),
            margin: Duration::from_millis(250),
            changes: true,
        };
        let mut driver = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, raw) = pair.split_once('=').unwrap_or((pair, ""));
            let value = percent_decode_str(raw)
                .decode_utf8()
                .map_err(|_| Error::invalid(format!("`{key}` in the store URL is not UTF-8")))?;
            match key {
                "changes" => options.changes = on_or_off(key, &value)?,
                "collection" => options.collection = value.into_owned(),
                "margin" => options.margin = duration::parse(&value)?,
                known if DRIVER.iter().any(|name| name.eq_ignore_ascii_case(known)) => {
                    refuse_weaker(known, &value)?;
                    driver.push(pair);
                }
                _ => return Err(unknown(key)),
            }
        }
        let server = read(base, &driver).await?;
        options.database = server.default_database.clone().ok_or_else(|| {
            Error::invalid("the store URL has no database: use `mongodb://HOST/DATABASE`")
        })?;
        Ok((options, server))
    }
}

/// Parses the driver's options, and sets defaults for what a URL usually leaves out.
async fn read(base: &str, driver: &[&str]) -> Result<ClientOptions> {
    let url = format!("{base}?{}", driver.join("&"));
    // Only `mongodb+srv:` sends a request, to look up the hosts in the DNS.
    let Ok(parsed) = tokio::time::timeout(CALL_TIMEOUT, ClientOptions::parse(url)).await else {
        return Err(failure::unresolved("no answer in time"));
    };
    let mut server = parsed.map_err(|error| match &*error.kind {
        ErrorKind::DnsResolve { message, .. } => failure::unresolved(message),
        // The driver's message may contain a part of the password.
        _ if base.contains('@') => Error::invalid(
            "the store URL is not of the form `mongodb://USER:PASSWORD@HOST/DATABASE`: in user and password, write `%`, `/`, \
             `:` and `@` as `%25`, `%2F`, `%3A` and `%40`",
        ),
        _ => failure::while_connecting(&error),
    })?;
    server.app_name.get_or_insert_with(|| "leasehold".into());
    let timeout = Duration::from_secs(2);
    server.connect_timeout.get_or_insert(timeout);
    server.server_selection_timeout.get_or_insert(timeout);
    server.max_pool_size.get_or_insert(32);
    server.max_connecting.get_or_insert(8);
    server.heartbeat_freq.get_or_insert(timeout);
    // Without this, the driver retries even `run_command` after an error that the server marks as overload.
    server.retry_writes = Some(false);
    Ok(server)
}

/// Refuses weaker guarantees than leases require, rather than silently overriding them.
fn refuse_weaker(key: &str, value: &str) -> Result<()> {
    let (needed, why): (&[&str], _) = match key.to_ascii_lowercase().as_str() {
        "w" => (&["majority"], "fewer members may lose a lease"),
        "journal" => (&["true"], "unjournaled writes may be lost"),
        "readconcernlevel" => (&["linearizable", "majority"], "weaker reads may be stale"),
        "readpreference" => (&["primary"], "secondaries may be behind"),
        _ => return Ok(()),
    };
    if needed.contains(&value.to_ascii_lowercase().as_str()) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "`{key}` in the store URL must be `{}`, because {why}: remove the option",
        needed[0]
    )))
}

fn on_or_off(key: &str, value: &str) -> Result<bool> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(Error::invalid(format!(
            "`{key}` in the store URL is `on` or `off`"
        ))),
    }
}

fn unknown(key: &str) -> Error {
    Error::invalid(format!(
        "`mongodb:` has no option `{key}`: use {}, or the driver's {}",
        OWN.join(", "),
        DRIVER.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn problem(url: &str) -> String {
        match MongodbOptions::parse(url).await {
            Err(Error::Invalid(problem)) => problem.to_string(),
            Err(other) => panic!("{other:?}"),
            Ok(_) => panic!("`{url}` was accepted"),
        }
    }

    #[tokio::test]
    async fn options_are_read_from_the_url() {
        let url = "mongodb://ada:s%40cret@a,b:27018/app?replicaSet=rs0&collection=mine&changes=off&margin=1s";
        let (options, server) = MongodbOptions::parse(url).await.expect("a good URL");
        assert_eq!((&*options.database, &*options.collection), ("app", "mine"));
        assert_eq!(
            (options.margin, options.changes),
            (Duration::from_secs(1), false)
        );
        assert_eq!(server.hosts.len(), 2);
        assert_eq!(server.repl_set_name.as_deref(), Some("rs0"));
    }

    #[tokio::test]
    async fn weaker_guarantees_than_leases_require_are_refused() {
        for weak in [
            "w=1",
            "w=0",
            "journal=false",
            "readPreference=nearest",
            "readConcernLevel=local",
        ] {
            let message = problem(&format!("mongodb://a/app?{weak}")).await;
            let (key, _) = weak.split_once('=').expect("an option");
            assert!(
                message.contains(key) && message.contains("must be"),
                "{message}"
            );
        }
        let strong = "mongodb://a/app?w=majority&journal=true&readPreference=primary&readConcernLevel=linearizable";
        assert!(MongodbOptions::parse(strong).await.is_ok());
    }

    #[tokio::test]
    async fn invalid_url_is_refused_without_repeating_its_secret() {
        assert!(
            problem("mongodb://a/app?banana=1")
                .await
                .contains("collection")
        );
        assert!(problem("mongodb://a").await.contains("no database"));
        for url in [
            "mongodb://ada:s/ecret@a/app",
            "mongodb://ada:s%ecret@a/app",
            "mongodb://ada:s@ecret@a/app",
        ] {
            let message = problem(url).await;
            assert!(!message.contains("ecret"), "{message}");
        }
    }
}
