//! `leasehold stores`, which is the help topic `leasehold help stores` too.

use std::fmt::Write as _;

use clap::Args;
use leasehold::store::{BACKENDS, Backend};

use crate::arguments::Common;
use crate::exit::Failure;
use crate::output;

/// Print the URLs of stores and their options, as `leasehold help stores` does.
#[derive(Args, Debug)]
#[command(long_about = topic(), override_help = topic())]
pub(crate) struct Stores {}

impl Stores {
    pub(crate) fn execute(self, common: &Common) -> Result<u8, Failure> {
        if common.json {
            output::json(&topic())?;
        } else {
            output::raw(&topic())?;
        }
        Ok(0)
    }
}

const INTRODUCTION: &str = "\
A store is the database or the service that keeps the leases. `--store URL` or LEASEHOLD_STORE
names it.

The default is the SQLite file /var/lib/leasehold/leases.db if it exists (`leasehold init --system`
creates it), and otherwise one in your data folder ($XDG_DATA_HOME/leasehold/leases.db). No server
is needed. Without the file of the system, each user has a separate default store: a cron job of
root and your shell do not exclude each other.

Every user of this machine can see arguments (`ps`). Give a URL with a password as LEASEHOLD_STORE,
or as @FILE: a file that contains only the URL and that only you can read (`chmod 600`).

Options follow a `?` and are separated by `&`: quote such a URL for the shell. Special characters in
a password are percent-encoded.
";

/// The options of a store or service, by the scheme of its URL.
const OPTIONS: &[(&str, &[(&str, &str)])] = &[
    (
        "postgres",
        &[
            ("schema=NAME", "schema of the table"),
            (
                "sslmode=MODE",
                "disable, prefer (the default), require, verify-ca or verify-full",
            ),
            ("sslrootcert=FILE", "PEM certificates to trust, or `system`"),
            ("changes=off", "no hints of changes: waiters poll"),
            (
                "connections=N",
                "maximum number of connections for calls: 8",
            ),
            ("margin=TIME", "how far the server's clock may step: 250ms"),
            ("…", "and those of libpq, such as host and connect_timeout"),
        ],
    ),
    (
        "mysql",
        &[
            (
                "ssl-mode=MODE",
                "disabled (the default), required, verify_ca or verify_identity",
            ),
            (
                "ssl-ca=FILE",
                "PEM certificates of authorities to trust, besides the public ones",
            ),
            ("socket=PATH", "Unix socket instead of host and port"),
            (
                "connections=N",
                "maximum number of connections for calls: 8",
            ),
            ("margin=TIME", "how far the server's clock may step: 250ms"),
        ],
    ),
    (
        "redis",
        &[
            ("prefix=TEXT", "prefix of all keys: leasehold"),
            (
                "changes=off",
                "no hints of changes: waiters on other machines poll",
            ),
            (
                "wait=N",
                "a write counts once this many replicas have it: 0",
            ),
            ("wait_timeout=TIME", "how long to wait for the replicas: 1s"),
            ("ca=FILE", "with rediss:, PEM certificates to trust"),
            (
                "cert=FILE, key=FILE",
                "with rediss:, the client's certificate and key",
            ),
            ("margin=TIME", "how far the server's clock may step: 250ms"),
        ],
    ),
    (
        "mongodb",
        &[
            ("collection=NAME", "collection of the records: leases"),
            ("changes=off", "no change stream: waiters poll"),
            (
                "margin=TIME",
                "how much the members' clocks may differ: 250ms",
            ),
            (
                "…",
                "and those of the driver, such as replicaSet, tls and authSource",
            ),
        ],
    ),
    (
        "etcd",
        &[
            ("prefix=TEXT", "prefix of all keys: leasehold/"),
            ("changes=off", "no watch: waiters poll"),
            ("margin=TIME", "how much the members' clocks may differ: 2s"),
            ("tls=on", "encrypted; the host must match the certificate"),
            ("ca=FILE", "PEM certificates to trust"),
            ("cert=FILE, key=FILE", "the client's certificate and key"),
        ],
    ),
    (
        "dynamodb",
        &[
            ("region=NAME", "AWS region: the environment's"),
            ("endpoint=URL", "an emulator or a VPC endpoint"),
            ("profile=NAME", "profile of the AWS configuration files"),
            (
                "poll=TIME",
                "how often to look at a name that has waiters: 250ms",
            ),
            (
                "margin=TIME",
                "how much the time of two answers may differ: 2s",
            ),
        ],
    ),
    (
        "azblob",
        &[
            ("key=KEY", "key of the account: AZURE_STORAGE_KEY"),
            (
                "sas=TOKEN",
                "shared access signature: AZURE_STORAGE_SAS_TOKEN",
            ),
            ("auth=entra, auth=cli", "Microsoft Entra ID, or `az login`"),
            (
                "endpoint=URL",
                "another cloud, a private endpoint or an emulator",
            ),
            (
                "poll=TIME",
                "how often to look at a name that has waiters: 250ms",
            ),
            (
                "margin=TIME",
                "how much the time of two answers may differ: 2s",
            ),
            ("timeout=TIME", "how long one store call may take: 4s"),
        ],
    ),
    (
        "cosmos",
        &[
            ("key=KEY", "key of the account: AZURE_COSMOS_KEY"),
            ("auth=entra, auth=cli", "Microsoft Entra ID, or `az login`"),
            ("endpoint=URL", "another cloud or an emulator"),
            (
                "poll=TIME",
                "how often to look at a name that has waiters: 250ms",
            ),
            (
                "margin=TIME",
                "how much the time of two answers may differ: 2s",
            ),
        ],
    ),
    (
        "https",
        &[
            ("ca=FILE", "PEM certificates of authorities to trust"),
            (
                "cert=FILE, key=FILE",
                "the client's certificate and key, if the service requires them",
            ),
        ],
    ),
];

/// Returns the help topic: the stores of this build, with the options of their URLs.
fn topic() -> String {
    let mut text = INTRODUCTION.to_owned();
    for backend in BACKENDS.iter().filter(|backend| backend.is_built()) {
        let url = with_aliases(backend);
        add(&mut text, &url, backend.about, backend.scheme);
    }
    let service =
        "a running `leasehold serve`; requires a token (`--token`) if access is controlled";
    add(&mut text, "http://HOST:PORT", service, "http");
    add(&mut text, "https://HOST:PORT", "the same over TLS", "https");
    text
}

fn with_aliases(backend: &Backend) -> String {
    let aliases = backend.aliases.iter();
    aliases.fold(backend.url.to_owned(), |url, alias| {
        format!("{url} (or {alias}://)")
    })
}

/// Adds a store and its options.
fn add(text: &mut String, url: &str, about: &str, scheme: &str) {
    let _ = write!(text, "\n  {url}\n      {about}\n");
    let known = OPTIONS.iter().filter(|(of, _)| *of == scheme);
    for (option, meaning) in known.flat_map(|(_, options)| *options) {
        let _ = writeln!(text, "        {option:<21} {meaning}");
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Returns the names in the first column of the table of options on the page of a store.
    fn documented(scheme: &str) -> Vec<String> {
        let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/stores");
        let page = std::fs::read_to_string(pages.join(format!("{scheme}.md"))).unwrap();
        let (_, options) = page.split_once("## Options\n").unwrap();
        let (options, _) = options.split_once("\n## ").unwrap();
        let cells = options.lines().filter_map(|line| line.split('|').nth(1));
        let names = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
        let names = names.map(|name| name.split('=').next().unwrap_or(name).to_owned());
        names.collect()
    }

    /// Returns the names of the options in the help topic.
    fn listed(scheme: &str) -> Vec<String> {
        let known = OPTIONS.iter().filter(|(of, _)| *of == scheme);
        let options = known.flat_map(|(_, options)| *options);
        let words = options.flat_map(|(option, _)| option.split(", "));
        let mut names: Vec<_> = words
            .filter_map(|word| Some(word.split_once('=')?.0.to_owned()))
            .collect();
        names.dedup();
        names
    }

    #[test]
    fn help_lists_the_options_of_the_pages_of_the_stores() {
        for backend in BACKENDS.iter().filter(|backend| backend.scheme != "memory") {
            let scheme = backend.scheme;
            assert_eq!(listed(scheme), documented(scheme), "{scheme}");
        }
    }

    #[test]
    fn help_fits_into_a_terminal() {
        for line in topic().lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }
}
