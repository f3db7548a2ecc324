//! The table of backends. Adding one is a file and a row here.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::{Store, url};
use crate::{Error, Result};

type Opening<'a> = Pin<Box<dyn Future<Output = Result<Arc<dyn Store>>> + Send + 'a>>;

/// A kind of store that URLs can name.
pub struct Backend {
    /// The URL's scheme, which is also the name of the feature and of the file.
    pub scheme: &'static str,
    /// Other schemes that lead here too. What they say beyond the first, such as `rediss` TLS, the store knows.
    pub aliases: &'static [&'static str],
    /// What people call it.
    pub title: &'static str,
    /// What a URL looks like.
    pub url: &'static str,
    /// One line for people.
    pub about: &'static str,
    /// Opens it; `None` when this build lacks the feature.
    open: Option<fn(&str) -> Opening<'_>>,
}

impl Backend {
    /// Whether this build has it.
    pub fn is_built(&self) -> bool {
        self.open.is_some()
    }

    fn answers_to(&self, scheme: &str) -> bool {
        self.scheme == scheme || self.aliases.contains(&scheme)
    }
}

/// A row of the table. The scheme is the feature, and the module; `or` is an alias.
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

/// Every backend there is, in this build or not.
#[rustfmt::skip]
pub const BACKENDS: &[Backend] = &[
    backend!("sqlite", sqlite, "SQLite", "sqlite:PATH", "a file that the processes of one machine share"),
    Backend {
        scheme: "memory",
        aliases: &[],
        title: "memory",
        url: "memory:",
        about: "this process's memory: for tests, and for a service that may forget",
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
            "the store URL has no scheme: use one of {}",
            known()
        )));
    };
    let Some(backend) = BACKENDS.iter().find(|backend| backend.answers_to(scheme)) else {
        return Err(Error::invalid(format!(
            "there is no store `{scheme}:`: use one of {}",
            known()
        )));
    };
    url::check(url)?;
    match backend.open {
        Some(open) => open(url).await,
        None => Err(Error::invalid(format!(
            "this build has no {}: rebuild with `--features {}`",
            backend.title, backend.scheme
        ))),
    }
}

fn known() -> String {
    let urls: Vec<_> = BACKENDS
        .iter()
        .map(|backend| format!("`{}`", backend.url))
        .collect();
    urls.join(", ")
}
