//! `leasehold token`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use jiff::{SignedDuration, Timestamp};
use leasehold_server::access::{AccessFile, Scope, TokenEntry};
use serde_json::{Value, json};

use crate::arguments::Common;
use crate::exit::{Failure, USAGE};
use crate::list::aligned;
use crate::output;

/// Make, list and revoke the tokens of a service.
///
/// They are kept in a file, as hashes: a token is shown once, when it is made. `leasehold serve --access FILE` lets in
/// whoever has one of them, and sees changes of the file by itself.
#[derive(Args, Debug)]
#[command(after_help = "\
A token stands for a principal, to which leases belong. To replace one, make another for the same principal, hand it \
out, and revoke the old one: leases stay.

Scopes are written RIGHT:PREFIX, for all names that start like that:
  read:PREFIX     see them: show, list, events
  acquire:PREFIX  take, hold and release them; put, remove and claim items; pass gates
  break:PREFIX    end somebody else's lease
  admin:PREFIX    all of that, and ending somebody's lease at once

Examples:
  leasehold token create ci --allow acquire:ci/ --allow read: --expires 90d --access access.toml
  leasehold token list --access access.toml
  leasehold token revoke 7gK2mQx9 --access access.toml
  leasehold serve --access access.toml
  LEASEHOLD_TOKEN=lh_… leasehold --store http://localhost:12345 list")]
pub(crate) struct Token {
    /// The file that has the tokens.
    #[arg(long, global = true, value_name = "FILE", env = "LEASEHOLD_ACCESS")]
    access: Option<PathBuf>,

    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make a token, and print it: it cannot be read again.
    Create {
        /// Whose it is: a stable name, such as that of a team or a program.
        principal: String,

        /// What it allows, as RIGHT:PREFIX. May be given several times.
        #[arg(long, value_name = "SCOPE", required = true)]
        allow: Vec<Scope>,

        /// How long it lasts (`12h`, `90d`) [default: until it is revoked].
        #[arg(long, value_name = "TIME", value_parser = leasehold::duration::parse)]
        expires: Option<Duration>,
    },
    /// List the tokens; they themselves are not kept.
    List,
    /// Revoke a token: whoever has it is refused from then on.
    Revoke {
        /// Its id, as `list` shows it, and as it stands in the token after `lh_`.
        id: String,
    },
    /// Add `expires = "never"` to tokens that do not say when they end.
    ///
    /// Every token has to say that, because a file that was cut off could otherwise make a token last for ever. Files of
    /// older versions do not. Check that the file is complete first.
    Migrate,
}

impl Token {
    pub(crate) fn execute(self, common: &Common) -> Result<u8, Failure> {
        let missing = || Failure::new(USAGE, "which file? Give --access FILE");
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
                    let mut described = described(&entry);
                    described["token"] = token.expose().into();
                    output::json(&described)?;
                } else {
                    let id = &entry.id;
                    output::note(&format!("token {id} of {principal}, shown this once:"));
                    output::text(token.expose())?;
                }
            }
            Action::List => list(&AccessFile::read(&path)?.tokens, common.json)?,
            Action::Revoke { id } => {
                AccessFile::revoke_token(&path, &id)?;
                if common.json {
                    output::json(&json!({ "revoked": id }))?;
                } else {
                    output::note(&format!("token {id} is revoked"));
                }
            }
            Action::Migrate => {
                let ids = AccessFile::migrate(&path)?;
                if common.json {
                    output::json(&json!({ "neverExpire": ids }))?;
                } else if ids.is_empty() {
                    output::note("nothing to do: every token says when it ends");
                } else {
                    output::note(&format!("tokens that never end: {}", ids.join(", ")));
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
        .ok_or_else(|| Failure::new(USAGE, "--expires is too far ahead"))
}

fn list(tokens: &[TokenEntry], json: bool) -> Result<(), Failure> {
    if json {
        let tokens: Vec<_> = tokens.iter().map(described).collect();
        return output::json(&json!({ "tokens": tokens }));
    }
    if tokens.is_empty() {
        output::note("no tokens: nobody is let in");
        return Ok(());
    }
    let mut rows = vec![["ID", "PRINCIPAL", "CREATED", "EXPIRES", "SCOPES"].map(str::to_owned)];
    rows.extend(tokens.iter().map(|token| {
        let expires = match token.expires {
            Some(expires) if token.is_over(Timestamp::now()) => format!("{expires} (over)"),
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

fn described(entry: &TokenEntry) -> Value {
    json!({
        "id": entry.id,
        "principal": entry.principal,
        "scopes": scopes(entry),
        "created": entry.created.to_string(),
        "expires": entry.expires.map(|expires| expires.to_string()),
        "expired": entry.is_over(Timestamp::now()),
    })
}

fn scopes(entry: &TokenEntry) -> Vec<String> {
    entry.scopes.iter().map(Scope::to_string).collect()
}
