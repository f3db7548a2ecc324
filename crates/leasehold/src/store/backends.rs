//! The table of backends. Adding one is a file and a row here.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::Store;
use crate::{Error, Result};

type Opening<'a> = Pin<Box<dyn Future<Output = Result<Arc<dyn Store>>> + Send + 'a>>;

/// A kind of store that URLs can name.
pub struct Backend {
    /// The URL's scheme, which is also the name of the feature and of the file.
    pub scheme: &'static str,
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
}

/// Every backend there is, in this build or not.
pub const BACKENDS: &[Backend] = &[
    Backend {
        scheme: "sqlite",
        url: "sqlite:PATH",
        about: "a file that the processes of one machine share",
        #[cfg(feature = "sqlite")]
        open: Some(|url| Box::pin(super::sqlite::open(url))),
        #[cfg(not(feature = "sqlite"))]
        open: None,
    },
    Backend {
        scheme: "postgres",
        url: "postgres://USER@HOST/DATABASE",
        about: "a PostgreSQL database",
        #[cfg(feature = "postgres")]
        open: Some(|url| Box::pin(super::postgres::open(url))),
        #[cfg(not(feature = "postgres"))]
        open: None,
    },
    Backend {
        scheme: "etcd",
        url: "etcd://HOST:PORT,…",
        about: "an etcd cluster",
        #[cfg(feature = "etcd")]
        open: Some(|url| Box::pin(super::etcd::open(url))),
        #[cfg(not(feature = "etcd"))]
        open: None,
    },
    Backend {
        scheme: "mongodb",
        url: "mongodb://USER@HOST/DATABASE",
        about: "a MongoDB replica set",
        #[cfg(feature = "mongodb")]
        open: Some(|url| Box::pin(super::mongodb::open(url))),
        #[cfg(not(feature = "mongodb"))]
        open: None,
    },
    Backend {
        scheme: "mysql",
        url: "mysql://USER@HOST/DATABASE",
        about: "a MariaDB or MySQL database",
        #[cfg(feature = "mysql")]
        open: Some(|url| Box::pin(super::mysql::open(url))),
        #[cfg(not(feature = "mysql"))]
        open: None,
    },
    Backend {
        scheme: "dynamodb",
        url: "dynamodb://TABLE?region=REGION",
        about: "an Amazon DynamoDB table",
        #[cfg(feature = "dynamodb")]
        open: Some(|url| Box::pin(super::dynamodb::open(url))),
        #[cfg(not(feature = "dynamodb"))]
        open: None,
    },
    Backend {
        scheme: "memory",
        url: "memory:",
        about: "this process's memory: for tests, and for a service that may forget",
        open: Some(|url| Box::pin(super::memory::open(url))),
    },
    Backend {
        scheme: "redis",
        url: "redis://HOST:PORT",
        about: "Redis or Valkey, one primary",
        #[cfg(feature = "redis")]
        open: Some(|url| Box::pin(super::redis::open(url))),
        #[cfg(not(feature = "redis"))]
        open: None,
    },
];

/// Opens the store that a URL names.
pub async fn open(url: &str) -> Result<Arc<dyn Store>> {
    let Some((scheme, _)) = url.split_once(':') else {
        return Err(Error::invalid(format!(
            "the store URL has no scheme: use one of {}",
            known()
        )));
    };
    let Some(backend) = BACKENDS.iter().find(|backend| backend.scheme == scheme) else {
        return Err(Error::invalid(format!(
            "there is no store `{scheme}:`: use one of {}",
            known()
        )));
    };
    match backend.open {
        Some(open) => open(url).await,
        None => Err(Error::invalid(format!(
            "this build has no {scheme}: rebuild with `--features {scheme}`"
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
