//! `leasehold token`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use jiff::{SignedDuration, Timestamp};
use leasehold_server::access::{AccessFile, Scope, TokenEntry};
use serde_json::{Value, json};

use crate::arguments::{self, Common};
use crate::exit::{Failure, USAGE};
use crate::output;
use crate::table::aligned;

/// Create, list and revoke the tokens of a service.
///
/// The access file stores tokens as hashes: a token is shown only once, when it is created. `leasehold serve --access FILE`
/// admits callers with one of these tokens, and reloads the file when it changes.
#[derive(Args, Debug)]
#[command(after_help = "\
A token authenticates a principal, to which leases belong. To replace a token, create another one for the same principal, \
distribute it, and revoke the old one: the leases of the principal are kept.

A scope is RIGHT:PREFIX, and applies to all names with that prefix:
  read:PREFIX     show, list, events
  acquire:PREFIX  acquire, renew, update and release leases; put, remove and claim items; pass gates
  break:PREFIX    break the lease of another holder
  admin:PREFIX    all of the above, and break leases at once (`--now`)

Examples:
  leasehold token create ci --allow acquire:ci/ --allow read: --expires 90d --access access.toml
  leasehold token list --access access.toml
  leasehold token revoke 7gK2mQx9 --access access.toml
  leasehold serve --access access.toml
  LEASEHOLD_TOKEN=lh_… leasehold --store http://localhost:12345 list")]
pub(crate) struct Token {
    /// Access file, which has the tokens.
    #[arg(long, global = true, value_name = "FILE", env = "LEASEHOLD_ACCESS")]
    access: Option<PathBuf>,

    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Create a token, and print it: it cannot be shown again.
    Create {
        /// Principal that the token authenticates: a stable name, such as that of a team or a program.
        principal: String,

        /// Scope that the token grants, as RIGHT:PREFIX. May be given several times.
        #[arg(long, value_name = "SCOPE", required = true)]
        allow: Vec<Scope>,

        /// How long the token is valid (`12h`, `90d`) [default: until it is revoked].
        #[arg(long, value_name = "TIME", value_parser = arguments::duration)]
        expires: Option<Duration>,
    },
    /// List the tokens: ids, principals and scopes, not the secrets.
    List,
    /// Revoke a token: callers that present it are refused from then on.
    Revoke {
        /// Id of the token, as shown by `list`; in the token it follows `lh_`.
        id: String,
    },
    /// Update an access file of an older version.
    ///
    /// Adds `expires = "never"` to tokens without an expiry. Every token must state its expiry, because a truncated file could
    /// otherwise make a token valid for ever. Check that the file is complete first.
    Migrate,
}

impl Token {
    pub(crate) fn execute(self, common: &Common) -> Result<u8, Failure> {
        let missing = || {
            Failure::new(
                USAGE,
                "no access file is given: give --access FILE, or set LEASEHOLD_ACCESS",
            )
        };
        let path = self.access.ok_or_else(missing)?;
        match self.action {
            Action::Create {
                principal,
                allow,
                expires,
            } => {
                let expires = expires.map(from_now).transpose()?;
                let created = AccessFile::create_token(&path, &principal, &allow, expires)?;
                let (token, entry) = created;
                if common.json {
                    let mut json = to_json(&entry);
                    json["token"] = token.expose().into();
                    output::json(&json)?;
                } else {
                    let id = &entry.id;
                    output::note(&format!("token {id} of {principal}, shown only once:"));
                    output::text(token.expose())?;
                }
            }
            Action::List => list(&AccessFile::read(&path)?.tokens, common.json)?,
            Action::Revoke { id } => {
                AccessFile::revoke_token(&path, &id)?;
                if common.json {
                    output::json(&json!({ "revoked": id }))?;
                } else {
                    output::note(&format!("revoked token {id}"));
                }
            }
            Action::Migrate => {
                let ids = AccessFile::migrate(&path)?;
                if common.json {
                    output::json(&json!({ "neverExpire": ids }))?;
                } else if ids.is_empty() {
                    output::note("nothing to do: every token has an expiry or never expires");
                } else {
                    output::note(&format!("tokens that never expire: {}", ids.join(", ")));
                }
            }
        }
        Ok(0)
    }
}

fn from_now(span: Duration) -> Result<Timestamp, Failure> {
    SignedDuration::try_from(span)
        .ok()
        .and_then(|span| Timestamp::now().checked_add(span).ok())
        .ok_or_else(|| {
            Failure::new(
                USAGE,
                "invalid --expires: the time is too far in the future",
            )
        })
}

fn list(tokens: &[TokenEntry], json: bool) -> Result<(), Failure> {
    if json {
        let tokens: Vec<_> = tokens.iter().map(to_json).collect();
        return output::json(&json!({ "tokens": tokens }));
    }
    if tokens.is_empty() {
        output::note(
            "no tokens: every caller is refused; create one with `leasehold token create`",
        );
        return Ok(());
    }
    let mut rows = vec![["ID", "PRINCIPAL", "CREATED", "EXPIRES", "SCOPES"].map(str::to_owned)];
    rows.extend(tokens.iter().map(|token| {
        let expires = match token.expires {
            Some(expires) if token.is_expired(Timestamp::now()) => format!("{expires} (expired)"),
            Some(expires) => expires.to_string(),
            None => "-".to_owned(),
        };
        let (id, principal) = (token.id.clone(), token.principal.clone());
        [
            id,
            principal,
            token.created.to_string(),
            expires,
            scopes(token).join(" "),
        ]
    }));
    output::text(&aligned(&rows))
}

fn to_json(entry: &TokenEntry) -> Value {
    json!({
        "id": entry.id,
        "principal": entry.principal,
        "scopes": scopes(entry),
        "created": entry.created.to_string(),
        "expires": entry.expires.map(|expires| expires.to_string()),
        "expired": entry.is_expired(Timestamp::now()),
    })
}

fn scopes(entry: &TokenEntry) -> Vec<String> {
    entry.scopes.iter().map(Scope::to_string).collect()
}
