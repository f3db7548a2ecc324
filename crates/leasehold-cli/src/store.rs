//! The store that a command uses: the given one, or the default store of the user.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use leasehold::store::{has_secret, redacted};
use leasehold::{Client, Remote};

use crate::arguments::Common;
use crate::exit::{Failure, USAGE};
use crate::secret::{Setting, WITHHELD};
use crate::{default_store, output};

/// How long closing may take. A lease that is not released by then expires.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns the given or the default store. A relative path becomes absolute, so that it stays valid in a command that
/// changes its working folder.
pub(crate) fn setting(common: &Common) -> Result<Setting, Failure> {
    let Some(given) = &common.store else {
        return default_store::path().map(|path| Setting::from(format!("sqlite:{path}")));
    };
    if given == WITHHELD {
        return Err(Failure::new(
            USAGE,
            "cannot inherit the store of the enclosing `leasehold` command: its URL contains a password, which is not \
             passed on; keep the URL in a file and give `--store @FILE` there or here",
        ));
    }
    Ok(Setting::read("--store", given)?.map(with_absolute_path))
}

/// Returns the URL of the store, and warns if its file is readable by others.
pub(crate) fn url(common: &Common) -> Result<String, Failure> {
    let setting = setting(common)?;
    warn_of_exposure(&setting);
    Ok(setting.value().to_owned())
}

fn warn_of_exposure(setting: &Setting) {
    setting
        .exposures()
        .for_each(|warning| output::note(&warning));
}

/// Returns the URL of a database, for commands that administer it. A service is refused.
pub(crate) fn database(common: &Common) -> Result<String, Failure> {
    let url = url(common)?;
    match scheme(&url) {
        "http" | "https" => Err(Failure::new(
            USAGE,
            "cannot use a service for this command: name the database behind it, the `--store` of `leasehold serve`",
        )),
        _ => Ok(url),
    }
}

/// Returns the scheme of a URL: the only part that is always safe to show, because the rest may contain a secret.
pub(crate) fn scheme(url: &str) -> &str {
    url.split(':').next().unwrap_or_default()
}

/// Returns the parts of a URL that cannot contain a secret.
pub(crate) fn shown(url: &str) -> String {
    match scheme(url) {
        "sqlite" | "memory" => redacted(url),
        scheme => format!("{scheme}:…"),
    }
}

/// The store to connect to, and the token to present.
pub(crate) struct Target {
    store: Setting,
    token: Option<Setting>,
}

impl Target {
    pub(crate) fn url(&self) -> &str {
        self.store.value()
    }

    /// Returns a client of the service if the URL is that of a service.
    pub(crate) fn service(&self) -> Result<Option<Remote>, Failure> {
        let url = self.url();
        if !matches!(scheme(url), "http" | "https") {
            return Ok(None);
        }
        let service = Remote::connect(url)?;
        Ok(Some(match &self.token {
            None => service,
            Some(token) if token.value() == WITHHELD => {
                return Err(Failure::new(
                    USAGE,
                    "cannot inherit the token of the enclosing `leasehold` command: tokens are not passed on; keep it \
                     in a file and give `--token @FILE` there or here",
                ));
            }
            Some(token) => service.with_token(token.value())?,
        }))
    }

    /// Returns the variables with which a child command finds the same leases. They contain no secrets, because the child
    /// may print or pass on its environment; a secret that came from a file is passed as the path of that file.
    pub(crate) fn environment(&self) -> Vec<(&'static str, Option<String>)> {
        let store = self.store.for_command(has_secret(self.url()));
        let token = self.token.as_ref().map(|token| token.for_command(true));
        vec![("LEASEHOLD_STORE", Some(store)), ("LEASEHOLD_TOKEN", token)]
    }
}

/// Returns the store and the token of a command. `memory:` is refused: other processes cannot see its leases, which
/// would exclude none of them.
pub(crate) fn target(common: &Common) -> Result<Target, Failure> {
    let target = target_or_memory(common)?;
    if scheme(target.url()) == "memory" {
        return Err(Failure::new(
            USAGE,
            "cannot use `memory:` for this command: other processes do not see its leases, so they protect nothing; use \
             a file (`--store sqlite:PATH`), a database, or a service (`leasehold serve --store memory:`, then \
             `--store http://localhost:12345`)",
        ));
    }
    if common.store.is_none()
        && let Some(path) = target.url().strip_prefix("sqlite:")
        && let Some(warning) = default_store::warning(path)
    {
        output::note(&warning);
    }
    Ok(target)
}

/// As [`target`], but allows `memory:`: for commands that protect nothing, such as a benchmark.
pub(crate) fn target_or_memory(common: &Common) -> Result<Target, Failure> {
    let store = setting(common)?;
    let token = common.token.as_deref().filter(|token| !token.is_empty());
    let token = token
        .map(|given| Setting::read("--token", given))
        .transpose()?;
    for setting in [&store].into_iter().chain(&token) {
        warn_of_exposure(setting);
    }
    Ok(Target { store, token })
}

/// Connects to the store.
pub(crate) async fn connect(target: &Target) -> Result<Client, Failure> {
    match target.service()? {
        Some(service) => Ok(Client::new(Arc::new(service))),
        None => Ok(leasehold::connect(target.url()).await?),
    }
}

/// Closes the client: ends its waits and releases undelivered grants, within [`CLOSE_TIMEOUT`].
pub(crate) async fn close(client: &Client) {
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, client.close()).await;
}

/// Makes the path of a `sqlite:` URL absolute. Other URLs stay as they are.
fn with_absolute_path(url: &str) -> String {
    let relative = url
        .strip_prefix("sqlite:")
        .filter(|path| !path.is_empty() && !path.starts_with(['/', ':', '?']));
    let folder = std::env::current_dir().ok();
    match (relative, folder.as_deref().and_then(Path::to_str)) {
        (Some(path), Some(folder)) => format!("sqlite:{folder}/{path}"),
        _ => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn child_commands_receive_the_store_without_its_password() {
        for (store, token, expected) in [
            (
                "postgres://app:s3cret@db1/app",
                None,
                [Some(WITHHELD), None],
            ),
            (
                "postgres://app@db1/app",
                None,
                [Some("postgres://app@db1/app"), None],
            ),
            (
                "http://db1",
                Some("lh_s3cret"),
                [Some("http://db1"), Some(WITHHELD)],
            ),
        ] {
            let target = Target {
                store: Setting::from(store.to_owned()),
                token: token.map(|token: &str| Setting::from(token.to_owned())),
            };
            let [(_, store), (_, token)] = &*target.environment() else {
                panic!("expected two variables");
            };
            assert_eq!([store.as_deref(), token.as_deref()], expected);
        }
    }
}
