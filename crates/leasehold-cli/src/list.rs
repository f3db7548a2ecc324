//! `leasehold list`.

use std::cmp::Reverse;
use std::io::IsTerminal as _;
use std::time::Duration;

use clap::{Args, ValueEnum};
use leasehold::wire::{Gates, HolderView, LockView, Locks};
use leasehold::{Client, ListRequest};

use crate::arguments::Common;
use crate::exit::{Failure, USAGE};
use crate::show::left;
use crate::{output, store, table};

/// How many leases to request per page.
const PAGE_SIZE: usize = 100;

/// List leases and their holders.
///
/// The table has held leases first, then free ones, each by name; with `--state`, the oldest item first. Names and owners
/// are cut to the width of the terminal, if standard output is one. With `--json`, the order is that of the store: by name,
/// or the oldest item first.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  leasehold list
  leasehold list --held --prefix backups/
  leasehold list --sort since --limit 10            the ten that are held the longest
  leasehold list --state REQUESTED --limit 10 --json
  leasehold list --gates --held                     the gates that are shut")]
pub(crate) struct List {
    /// List gates instead; a shut gate counts as held.
    #[arg(long, conflicts_with = "state")]
    gates: bool,

    /// Only names with this prefix.
    #[arg(long, default_value = "", hide_default_value = true)]
    prefix: String,

    /// Only work items in this state, oldest first.
    #[arg(long)]
    state: Option<String>,

    /// Only leases that are held.
    #[arg(long, conflicts_with = "free")]
    held: bool,

    /// Only leases that are free.
    #[arg(long)]
    free: bool,

    /// List at most N. With `--reverse`, and with `--sort` by anything but the name, all leases are fetched to find them.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,

    /// Continue a list that `--limit` has cut: the `cursor` of its JSON.
    #[arg(long, allow_hyphen_values = true)]
    cursor: Option<String>,

    /// Order of the list. `since`: the longest held first; `expires`: the next to expire first. Free leases come last.
    #[arg(long, value_enum, value_name = "KEY")]
    sort: Option<Key>,

    /// Reverse the order. Free leases still come last, unless names are sorted.
    #[arg(long)]
    reverse: bool,
}

/// What a list is sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Key {
    Name,
    Since,
    Owner,
    Expires,
}

impl List {
    pub(crate) async fn execute(self, common: &Common) -> Result<u8, Failure> {
        if self.cursor.is_some() && self.requires_all() {
            return Err(Failure::new(
                USAGE,
                "cannot continue at a cursor in this order: a cursor is a place in the order of the store; leave `--sort` \
                 and `--reverse` out, or list all without `--cursor`",
            ));
        }
        let target = store::target(common)?;
        let shown = store::shown(target.url());
        let client = store::connect(&target).await?;
        let listed = self.fetch(&client).await;
        store::close(&client).await;
        let (mut locks, cursor) = listed?;
        self.sort(&mut locks);
        if self.requires_all() {
            locks.truncate(self.limit.unwrap_or(usize::MAX));
        }
        if common.json && self.gates {
            let gates = locks;
            output::json(&Gates { gates, cursor })?;
        } else if common.json {
            output::json(&Locks { locks, cursor })?;
        } else {
            if locks.is_empty() {
                output::note(&format!("nothing to list in {shown}"));
            } else {
                if std::io::stderr().is_terminal() {
                    output::note(&format!("leases in {shown}"));
                }
                self.put_held_first(&mut locks);
                let rows = rows(&locks, self.gates);
                output::text(&table::fitted(
                    &rows,
                    table::terminal_width(),
                    &[NAME, OWNER],
                ))?;
            }
            if let Some(cursor) = cursor {
                let cursor = output::quoted(&cursor);
                output::note(&format!(
                    "there may be more: continue with `--cursor {cursor}`"
                ));
            }
        }
        Ok(0)
    }

    /// Returns whether the order of the list is not that of the store, so that the first entry may be on the last page.
    fn requires_all(&self) -> bool {
        let is_by_name = self.sort == Some(Key::Name) && self.state.is_none();
        self.reverse || self.sort.is_some() && !is_by_name
    }

    /// Fetches pages until there are no more, or the limit is reached. In the latter case, returns the cursor of the rest.
    async fn fetch(&self, client: &Client) -> leasehold::Result<(Vec<LockView>, Option<String>)> {
        let limit = match self.limit {
            Some(limit) if !self.requires_all() => limit,
            _ => usize::MAX,
        };
        let mut request = ListRequest {
            gates: self.gates,
            prefix: self.prefix.clone(),
            state: self.state.as_deref().map(Into::into),
            held: (self.held || self.free).then_some(self.held),
            cursor: self.cursor.clone(),
            ..ListRequest::default()
        };
        let mut locks = Vec::new();
        while locks.len() < limit {
            request.limit = PAGE_SIZE.min(limit - locks.len());
            let page = client.leases().list(request.clone()).await?;
            let views = page.leases.iter();
            locks.extend(views.map(|(name, view)| LockView::new(name, view)));
            request.cursor = page.cursor;
            if request.cursor.is_none() {
                break;
            }
        }
        Ok((locks, request.cursor))
    }

    /// Sorts by the given key, if any. A lease with several holders counts as the first of them in that order.
    fn sort(&self, locks: &mut [LockView]) {
        let Some(key) = self.sort.or(self.reverse.then_some(Key::Name)) else {
            return;
        };
        if self.sort.is_some() || self.state.is_none() {
            locks.sort_by(|a, b| a.name.cmp(&b.name));
        }
        match key {
            Key::Name if self.reverse => locks.reverse(),
            Key::Name => {}
            Key::Since => self.sort_by(locks, |holder| holder.acquire_time),
            Key::Owner => self.sort_by(locks, |holder| holder.owner.clone()),
            Key::Expires => self.sort_by(locks, |holder| holder.expire_time),
        }
    }

    /// Sorts by a property of the holders. Leases without one come last, in the order that they have.
    fn sort_by<K: Ord>(&self, locks: &mut [LockView], key: impl Fn(&HolderView) -> K) {
        if self.reverse {
            let first =
                |lock: &LockView| lock.holders.iter().map(|holder| Reverse(key(holder))).min();
            locks.sort_by_cached_key(|lock| (!lock.held, first(lock)));
        } else {
            let first = |lock: &LockView| lock.holders.iter().map(&key).min();
            locks.sort_by_cached_key(|lock| (!lock.held, first(lock)));
        }
    }

    /// Puts held leases before free ones, unless an order is given.
    fn put_held_first(&self, locks: &mut [LockView]) {
        if self.sort.is_none() && !self.reverse && self.state.is_none() {
            locks.sort_by_key(|lock| !lock.held);
        }
    }
}

/// The columns of names and owners, which are cut to the width of a terminal.
const NAME: usize = 0;
const OWNER: usize = 1;

/// Formats one row per holder, or per free lease, below the headings.
fn rows(locks: &[LockView], gates: bool) -> Vec<[String; 6]> {
    let headings = if gates {
        ["NAME", "PASSED BY", "FENCE", "SINCE", "OPENS", "STATE"]
    } else {
        ["NAME", "HELD BY", "FENCE", "SINCE", "EXPIRES", "STATE"]
    };
    let mut rows = vec![headings.map(str::to_owned)];
    for lock in locks {
        let name = lock.name.to_string();
        let state = lock.state.as_deref().unwrap_or("-").to_owned();
        if lock.holders.is_empty() {
            let fence = lock.fence.to_string();
            let none = || "-".to_owned();
            rows.push([name, none(), fence, none(), none(), state]);
            continue;
        }
        for holder in &lock.holders {
            let (owner, fence) = (holder.owner.to_string(), holder.fence.to_string());
            let broken = if holder.broken.is_some() {
                " (broken)"
            } else {
                ""
            };
            let expires = format!("in {}{broken}", left(holder));
            rows.push([
                name.clone(),
                owner,
                fence,
                since(holder),
                expires,
                state.clone(),
            ]);
        }
    }
    rows
}

/// Formats since when a holder has the lease: `3m 05s ago`, or the time if that is more than a day.
fn since(holder: &HolderView) -> String {
    // By the store's clock, because the clock of this machine may be wrong.
    let now = Duration::from_micros(holder.expire_time.as_micros())
        .saturating_sub(Duration::from_millis(holder.left));
    let held = now.saturating_sub(Duration::from_micros(holder.acquire_time.as_micros()));
    if held < Duration::from_hours(24) {
        format!("{} ago", output::span(held))
    } else {
        output::time_to_second(holder.acquire_time)
    }
}
