//! Which store: the one that was named, or a file of the user's own.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use leasehold::store::{BACKENDS, has_secret, redacted};
use leasehold::{Client, Remote};

use crate::arguments::Common;
use crate::exit::{Failure, USAGE};
use crate::secret::{Setting, WITHHELD};
use crate::{default_store, output};

/// How long leaving may take. What is not released by then expires.
const TIDY: Duration = Duration::from_secs(2);

/// What `--help` says about `--store`.
pub(crate) fn help() -> String {
    let mut lines = vec![
        "Where the leases are kept. Without it, in a SQLite file in your data folder \
         ($XDG_DATA_HOME/leasehold/leases.db), which all programs that you run on this machine share, so that no \
         server is needed. Other users have files of their own: a cron job of root and your shell do not exclude each \
         other unless both name one store, such as sqlite:/var/lib/leasehold/leases.db in a folder that both can write \
         to."
            .to_owned(),
        String::new(),
        "Every user of this machine can see arguments (`ps`). So give a URL with a password as LEASEHOLD_STORE, or as \
         @FILE: the only line of that file, which none but you can read (`chmod 600`)."
            .to_owned(),
        String::new(),
    ];
    let built = BACKENDS.iter().filter(|backend| backend.is_built());
    let stores = built.map(|backend| {
        let aliases = backend
            .aliases
            .iter()
            .map(|alias| format!(" (or {alias}://)"));
        let about = aliases.fold(backend.about.to_owned(), |about, alias| about + &alias);
        (backend.url, about)
    });
    let services = [
        ("http://HOST:PORT", "a running `leasehold serve`"),
        (
            "https://HOST:PORT?ca=FILE",
            "…with TLS; `ca` is whom to trust, `cert` and `key` what to show",
        ),
    ];
    let services = services.map(|(url, about)| (url, about.to_owned()));
    let stores: Vec<_> = stores.chain(services).collect();
    let width = stores.iter().map(|(url, _)| url.len()).max().unwrap_or(0);
    for (url, about) in stores {
        lines.push(format!("  {url:<width$}  {about}"));
    }
    lines.join("\n")
}

/// The store that is meant, such that its URL also means the same in a command that changes folder.
pub(crate) fn setting(common: &Common) -> Result<Setting, Failure> {
    let Some(given) = &common.store else {
        return default_store::path().map(|path| Setting::from(format!("sqlite:{path}")));
    };
    if given == WITHHELD {
        return Err(Failure::new(
            USAGE,
            "the store of the command around this one has a password in its URL, which is not handed on: keep the URL in \
             a file and give it as `--store @FILE` there, or here",
        ));
    }
    Ok(Setting::read("--store", given)?.map(from_anywhere))
}

/// Its URL.
pub(crate) fn url(common: &Common) -> Result<String, Failure> {
    let setting = setting(common)?;
    note_exposure(&setting);
    Ok(setting.value().to_owned())
}

fn note_exposure(setting: &Setting) {
    setting
        .exposures()
        .for_each(|warning| output::note(&warning));
}

/// The URL of the database itself, for commands that look after it.
pub(crate) fn database(common: &Common) -> Result<String, Failure> {
    let url = url(common)?;
    match scheme(&url) {
        "http" | "https" => Err(Failure::new(
            USAGE,
            "that is a service: name the database behind it, as the service's own `--store` does",
        )),
        _ => Ok(url),
    }
}

/// What a URL begins with. It is all of a URL that may be shown: the rest can hold a secret.
pub(crate) fn scheme(url: &str) -> &str {
    url.split(':').next().unwrap_or_default()
}

/// The URL for people, as far as it cannot hold a secret.
pub(crate) fn shown(url: &str) -> String {
    match scheme(url) {
        "sqlite" | "memory" => redacted(url),
        scheme => format!("{scheme}:…"),
    }
}

/// Where the leases are, and who asks for them.
pub(crate) struct Place {
    store: Setting,
    token: Option<Setting>,
}

impl Place {
    pub(crate) fn url(&self) -> &str {
        self.store.value()
    }

    /// The service that it is, if it is one.
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
                    "the token of the command around this one is not handed on: keep it in a file and give it as `--token \
                     @FILE` there, or here",
                ));
            }
            Some(token) => service.with_token(token.value())?,
        }))
    }

    /// What a command gets to know, so that it finds the same leases. No secrets: it may hand on all that it has, or show
    /// it. What comes from a file it can read where it may.
    pub(crate) fn environment(&self) -> Vec<(&'static str, Option<String>)> {
        let store = self.store.for_command(has_secret(self.url()));
        let token = self.token.as_ref().map(|token| token.for_command(true));
        vec![("LEASEHOLD_STORE", Some(store)), ("LEASEHOLD_TOKEN", token)]
    }
}

/// Where the leases are, and who asks for them. A store that other processes cannot see is refused: a lease there would
/// exclude nobody and end with the command.
pub(crate) fn place(common: &Common) -> Result<Place, Failure> {
    let place = any_place(common)?;
    if scheme(place.url()) == "memory" {
        return Err(Failure::new(
            USAGE,
            "`memory:` cannot be used by this command: its leases are in this process alone and protect nothing from \
             others; name a file (`--store sqlite:PATH`) or a database, or share the memory of a service (`leasehold \
             serve --store memory:`, then `--store http://localhost:12345`)",
        ));
    }
    if common.store.is_none()
        && let Some(path) = place.url().strip_prefix("sqlite:")
        && let Some(warning) = default_store::warning(path)
    {
        output::note(&warning);
    }
    Ok(place)
}

/// The same for a command that protects nothing, such as a benchmark.
pub(crate) fn any_place(common: &Common) -> Result<Place, Failure> {
    let store = setting(common)?;
    let token = common.token.as_deref().filter(|token| !token.is_empty());
    let token = token
        .map(|given| Setting::read("--token", given))
        .transpose()?;
    for setting in [&store].into_iter().chain(&token) {
        note_exposure(setting);
    }
    Ok(Place { store, token })
}

/// Connects to the store.
pub(crate) async fn connect(place: &Place) -> Result<Client, Failure> {
    match place.service()? {
        Some(service) => Ok(Client::new(Arc::new(service))),
        None => Ok(leasehold::connect(place.url()).await?),
    }
}

/// Leaves the store in good order: nobody waits in line any more, and what was granted and not taken is released.
pub(crate) async fn close(client: &Client) {
    let _ = tokio::time::timeout(TIDY, client.close()).await;
}

/// `sqlite:` with an absolute path, if the path is a relative one.
fn from_anywhere(url: &str) -> String {
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
    fn commands_get_the_store_without_its_password() {
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
            let place = Place {
                store: Setting::from(store.to_owned()),
                token: token.map(|token: &str| Setting::from(token.to_owned())),
            };
            let [(_, store), (_, token)] = &*place.environment() else {
                panic!("there are two variables");
            };
            assert_eq!([store.as_deref(), token.as_deref()], expected);
        }
    }
}
