//! The table of backends. A new backend needs a module and a row here.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::{Store, url};
use crate::{Error, Result};

type OpenFuture<'a> = Pin<Box<dyn Future<Output = Result<Arc<dyn Store>>> + Send + 'a>>;

/// A kind of store, selected by the scheme of a URL.
pub struct Backend {
    /// The URL's scheme, which is also the name of the feature and of the module.
    pub scheme: &'static str,
    /// Other schemes for the same store. The store interprets the difference, such as TLS for `rediss`.
    pub aliases: &'static [&'static str],
    /// The display name.
    pub title: &'static str,
    /// The form of a URL.
    pub url: &'static str,
    /// A one-line description.
    pub about: &'static str,
    /// Opens the store; `None` if this build lacks the feature.
    open: Option<fn(&str) -> OpenFuture<'_>>,
}

impl Backend {
    /// Returns whether this build includes the backend.
    pub fn is_built(&self) -> bool {
        self.open.is_some()
    }

    fn has_scheme(&self, scheme: &str) -> bool {
        self.scheme == scheme || self.aliases.contains(&scheme)
    }
}

/// A row of the table. The scheme names the feature; `or` adds an alias.
macro_rules! backend {
    ($scheme:literal, $module:ident, $title:literal, $url:literal, $about:literal $(, or $alias:literal)*) => {
        Backend {
            scheme: $scheme,
            aliases: &[$($alias),*],
            title: $title,
            url: $url,
            about: $about,
            #[cfg(feature = $scheme)]
            open: Some(|url| Box::pin(super::$module::open(url))),
            #[cfg(not(feature = $scheme))]
            open: None,
        }
    };
}

/// Every backend, whether this build includes it or not.
#[rustfmt::skip]
pub const BACKENDS: &[Backend] = &[
    backend!("sqlite", sqlite, "SQLite", "sqlite:PATH", "a file that the processes of one machine share"),
    Backend {
        scheme: "memory",
        aliases: &[],
        title: "memory",
        url: "memory:",
        about: "this process's memory: for tests, and for a service that may lose its leases",
        open: Some(|url| Box::pin(super::memory::open(url))),
    },
    backend!("postgres", postgres, "PostgreSQL", "postgres://USER@HOST/DATABASE", "a PostgreSQL database", or "postgresql"),
    backend!("mysql", mysql, "MySQL", "mysql://USER@HOST/DATABASE", "a MariaDB or MySQL database", or "mariadb"),
    backend!("redis", redis, "Redis", "redis://HOST:PORT", "Redis or Valkey, one primary", or "rediss"),
    backend!("mongodb", mongodb, "MongoDB", "mongodb://USER@HOST/DATABASE", "a MongoDB replica set", or "mongodb+srv"),
    backend!("etcd", etcd, "etcd", "etcd://HOST:PORT,…", "an etcd cluster"),
    backend!("dynamodb", dynamodb, "DynamoDB", "dynamodb://TABLE?region=REGION", "an Amazon DynamoDB table"),
    backend!("azblob", azblob, "Azure Blob Storage", "azblob://ACCOUNT/CONTAINER", "a container of Azure Blob Storage"),
    backend!("cosmos", cosmos, "Cosmos DB", "cosmos://ACCOUNT/DATABASE/CONTAINER", "a container of Azure Cosmos DB"),
];

/// Opens the store that a URL names.
pub async fn open(url: &str) -> Result<Arc<dyn Store>> {
    let Some((scheme, _)) = url.split_once(':') else {
        return Err(Error::invalid(format!(
            "cannot open the store: its URL has no scheme; use one of {}",
            known_urls()
        )));
    };
    let Some(backend) = BACKENDS.iter().find(|backend| backend.has_scheme(scheme)) else {
        return Err(Error::invalid(format!(
            "cannot open the store: unknown scheme `{scheme}:`; use one of {}",
            known_urls()
        )));
    };
    url::check(url)?;
    match backend.open {
        Some(open) => open(url).await,
        None => Err(Error::invalid(format!(
            "this build does not include {}: rebuild with `--features {}`",
            backend.title, backend.scheme
        ))),
    }
}

fn known_urls() -> String {
    let urls: Vec<_> = BACKENDS
        .iter()
        .map(|backend| format!("`{}`", backend.url))
        .collect();
    urls.join(", ")
}
