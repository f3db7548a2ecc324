//! What a `mongodb://` or `mongodb+srv://` URL says.

use std::time::Duration;

use mongodb::error::ErrorKind;
use mongodb::options::ClientOptions;
use percent_encoding::percent_decode_str;

use super::{PATIENCE, failure};
use crate::{Error, Result, duration};

/// Those that are this store's own.
const OWN: [&str; 3] = ["changes", "collection", "margin"];

/// Those that the driver reads, whatever their capitals.
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

/// What a URL says of the store.
pub(super) struct Options {
    pub(super) database: String,
    pub(super) collection: String,
    pub(super) margin: Duration,
    /// Whether to follow changes.
    pub(super) changes: bool,
}

impl Options {
    /// Reads a URL. No error repeats any part of it that may be secret.
    pub(super) async fn parse(url: &str) -> Result<(Self, ClientOptions)> {
        let (place, query) = url.split_once('?').unwrap_or((url, ""));
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
                    refuse_less(known, &value)?;
                    driver.push(pair);
                }
                _ => return Err(unknown(key)),
            }
        }
        let server = read(place, &driver).await?;
        options.database = server.default_database.clone().ok_or_else(|| {
            Error::invalid("the store URL names no database: `mongodb://HOST/DATABASE`")
        })?;
        Ok((options, server))
    }
}

/// What the driver makes of it, with what a URL seldom says and every connection should have.
async fn read(place: &str, driver: &[&str]) -> Result<ClientOptions> {
    let url = format!("{place}?{}", driver.join("&"));
    // Only `mongodb+srv:` asks anybody: the hosts are in the DNS.
    let Ok(parsed) = tokio::time::timeout(PATIENCE, ClientOptions::parse(url)).await else {
        return Err(failure::unresolved("no answer in time"));
    };
    let mut server = parsed.map_err(|error| match &*error.kind {
        ErrorKind::DnsResolve { message, .. } => failure::unresolved(message),
        // What it says might be a part of the password.
        _ if place.contains('@') => Error::invalid(
            "the store URL is not of the form `mongodb://USER:PASSWORD@HOST/DATABASE`: mind that `%`, `/`, `:` and `@` \
             in user and password are written as `%25`, `%2F`, `%3A` and `%40`",
        ),
        _ => failure::connecting(&error),
    })?;
    server.app_name.get_or_insert_with(|| "leasehold".into());
    let patience = Duration::from_secs(2);
    server.connect_timeout.get_or_insert(patience);
    server.server_selection_timeout.get_or_insert(patience);
    server.max_pool_size.get_or_insert(32);
    server.max_connecting.get_or_insert(8);
    server.heartbeat_freq.get_or_insert(patience);
    // Without this, even `run_command` is repeated after an error that the server marks as overload.
    server.retry_writes = Some(false);
    Ok(server)
}

/// Less than leases need is refused rather than silently overruled.
fn refuse_less(key: &str, value: &str) -> Result<()> {
    let (needed, why): (&[&str], _) = match key.to_ascii_lowercase().as_str() {
        "w" => (&["majority"], "fewer may forget a lease"),
        "journal" => (&["true"], "memory may forget a lease"),
        "readconcernlevel" => (&["linearizable", "majority"], "less may be old"),
        "readpreference" => (&["primary"], "others may be behind"),
        _ => return Ok(()),
    };
    if needed.contains(&value.to_ascii_lowercase().as_str()) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "`{key}` in the store URL must be `{}`, since {why}: leave it out",
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
        "`mongodb:` has no option `{key}`: there are {}, and of the driver's {}",
        OWN.join(", "),
        DRIVER.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn problem(url: &str) -> String {
        match Options::parse(url).await {
            Err(Error::Invalid(problem)) => problem.to_string(),
            Err(other) => panic!("{other:?}"),
            Ok(_) => panic!("`{url}` was taken"),
        }
    }

    #[tokio::test]
    async fn what_a_url_says_is_taken() {
        let url = "mongodb://ada:s%40cret@a,b:27018/app?replicaSet=rs0&collection=mine&changes=off&margin=1s";
        let (options, server) = Options::parse(url).await.expect("a good URL");
        assert_eq!((&*options.database, &*options.collection), ("app", "mine"));
        assert_eq!(
            (options.margin, options.changes),
            (Duration::from_secs(1), false)
        );
        assert_eq!(server.hosts.len(), 2);
        assert_eq!(server.repl_set_name.as_deref(), Some("rs0"));
    }

    #[tokio::test]
    async fn less_than_leases_need_is_refused() {
        for weak in [
            "w=1",
            "w=0",
            "journal=false",
            "readPreference=nearest",
            "readConcernLevel=local",
        ] {
            let told = problem(&format!("mongodb://a/app?{weak}")).await;
            let (key, _) = weak.split_once('=').expect("an option");
            assert!(told.contains(key) && told.contains("must be"), "{told}");
        }
        let strong = "mongodb://a/app?w=majority&journal=true&readPreference=primary&readConcernLevel=linearizable";
        assert!(Options::parse(strong).await.is_ok());
    }

    #[tokio::test]
    async fn a_wrong_url_is_explained_without_its_secrets() {
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
            let told = problem(url).await;
            assert!(!told.contains("ecret"), "{told}");
        }
    }
}
