//! `leasehold list`.

use std::io::IsTerminal as _;

use clap::Args;
use leasehold::wire::{Gates, LockView, Locks};
use leasehold::{Client, ListRequest};

use crate::arguments::Common;
use crate::exit::Failure;
use crate::show::left;
use crate::{output, store};

/// How many leases to request per page.
const PAGE_SIZE: usize = 100;

/// List leases and their holders.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  leasehold list
  leasehold list --held --prefix backups/
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

    /// List at most N.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

impl List {
    pub(crate) async fn execute(self, common: &Common) -> Result<u8, Failure> {
        let target = store::target(common)?;
        let shown = store::shown(target.url());
        let client = store::connect(&target).await?;
        let locks = self.all(&client).await;
        store::close(&client).await;
        let locks = locks?;
        if common.json && self.gates {
            let (gates, cursor) = (locks, None);
            output::json(&Gates { gates, cursor })?;
        } else if common.json {
            let cursor = None;
            output::json(&Locks { locks, cursor })?;
        } else if locks.is_empty() {
            output::note(&format!("nothing to list in {shown}"));
        } else {
            if std::io::stderr().is_terminal() {
                output::note(&format!("leases in {shown}"));
            }
            output::text(&table(&locks, self.gates))?;
        }
        Ok(0)
    }

    /// Fetches pages until the limit is reached or there are no more.
    async fn all(&self, client: &Client) -> leasehold::Result<Vec<LockView>> {
        let limit = self.limit.unwrap_or(usize::MAX);
        let mut request = ListRequest {
            gates: self.gates,
            prefix: self.prefix.clone(),
            state: self.state.as_deref().map(Into::into),
            held: (self.held || self.free).then_some(self.held),
            ..ListRequest::default()
        };
        let mut locks = Vec::new();
        while locks.len() < limit {
            request.limit = PAGE_SIZE.min(limit - locks.len());
            let page = client.leases().list(request.clone()).await?;
            let views = page.leases.iter();
            locks.extend(views.map(|(name, view)| LockView::new(name, view)));
            match page.cursor {
                Some(cursor) => request.cursor = Some(cursor),
                None => break,
            }
        }
        Ok(locks)
    }
}

/// Formats one line per holder, or per free lease, in columns.
fn table(locks: &[LockView], gates: bool) -> String {
    let holder = if gates { "PASSED BY" } else { "HELD BY" };
    let mut rows = vec![["NAME", holder, "FENCE", "FOR", "STATE"].map(str::to_owned)];
    for lock in locks {
        let name = lock.name.to_string();
        let state = lock.state.as_deref().unwrap_or("-").to_owned();
        if lock.holders.is_empty() {
            let none = "-".to_owned();
            let fence = lock.fence.to_string();
            rows.push([name, none.clone(), fence, none, state]);
            continue;
        }
        for holder in &lock.holders {
            let broken = if holder.broken.is_some() {
                " (broken)"
            } else {
                ""
            };
            let owner = format!("{}{broken}", holder.owner);
            let fence = holder.fence.to_string();
            rows.push([name.clone(), owner, fence, left(holder), state.clone()]);
        }
    }
    aligned(&rows)
}

/// Formats rows as lines of aligned columns, each cell escaped.
pub(crate) fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let escape = |row: &[String; N]| {
        row.each_ref()
            .map(|cell| output::escaped(cell).into_owned())
    };
    let rows: Vec<_> = rows.iter().map(escape).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..N).map(width).collect();
    let mut lines = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths);
        let line: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        lines.push_str(line.join("  ").trim_end());
        lines.push('\n');
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = [["NAME", "BY"], ["émoji 🔒", "host:1"], ["a", "-\nb"]];
        let rows = rows.map(|row| row.map(str::to_owned));
        assert_eq!(
            aligned(&rows),
            "NAME     BY\némoji 🔒  host:1\na        -\\nb\n"
        );
    }
}
