//! `leasehold show`.

use std::time::Duration;

use clap::Args;
use leasehold::core::Name;
use leasehold::wire::{HolderView, LockView, ModeKind};
use serde_json::json;

use crate::arguments::{self, Common};
use crate::exit::{self, Failure};
use crate::{output, store};

/// Show a lease: its holders, fence, state and body.
///
/// The exit code is 1 if there is no record of the name: it was not used yet, or has been purged since. Such a name is free.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  leasehold show nightly
  leasehold show nightly --json | jq -r .body
  leasehold show --gate device-42
  leasehold show -- -x                          a name that begins with a dash")]
pub(crate) struct Show {
    /// Name of the lease.
    #[arg(value_parser = arguments::name)]
    name: Name,

    /// Show the gate of this name instead.
    #[arg(long)]
    gate: bool,
}

impl Show {
    pub(crate) async fn execute(self, common: &Common) -> Result<u8, Failure> {
        let name = if self.gate {
            Name::gate(self.name.as_str())?
        } else {
            self.name
        };
        let client = store::connect(&store::target(common)?).await?;
        let view = client.leases().show(&name).await;
        store::close(&client).await;
        let lock = view?.map(|view| LockView::new(&name, &view));
        let code = if lock.is_some() { 0 } else { exit::FAILED };
        match lock {
            Some(lock) if common.json => output::json(&lock)?,
            Some(lock) if self.gate => output::text(&gate_for_people(&lock))?,
            Some(lock) => output::text(&for_people(&lock))?,
            // A name without a record is free.
            None if common.json => {
                let name = name.as_str();
                output::json(&json!({ "name": name, "held": false, "holders": [] }))?;
            }
            None if self.gate => {
                output::text(&format!("{name} is open: it has not been passed yet"))?
            }
            None => output::text(&format!("{name} is free: it has not been used yet"))?,
        }
        Ok(code)
    }
}

fn for_people(lock: &LockView) -> String {
    let mut lines = vec![match lock.holders.len() {
        0 => format!("{} is free", lock.name),
        1 => format!("{} is held", lock.name),
        n => format!("{} is held by {n}", lock.name),
    }];
    lines.extend(lock.holders.iter().map(holder));
    if lock.reserved {
        lines.push("  next     reserved for a waiter".to_owned());
    }
    if let Some(last) = &lock.last {
        let how = serde_json::to_value(last.how).unwrap_or_default();
        let (how, at) = (
            how.as_str().unwrap_or("ended"),
            output::time_to_second(last.at),
        );
        lines.push(format!(
            "  last     {} (fence {}), {how} at {at}",
            last.owner, last.fence
        ));
    }
    lines.push(format!("  fence    {} (highest granted)", lock.fence));
    if let Some(state) = &lock.state {
        let since = lock
            .state_since
            .map(output::time_to_second)
            .unwrap_or_default();
        lines.push(format!("  state    {state} since {since}"));
    }
    if !lock.body.is_empty() {
        lines.push(format!("  body     {}", lock.body));
    }
    output::joined(&lines)
}

fn gate_for_people(gate: &LockView) -> String {
    let name = &gate.name;
    let Some(passed) = gate.holders.first() else {
        return format!("{name} is open");
    };
    let (owner, fence, left) = (&passed.owner, passed.fence, left(passed));
    let at = output::time_to_second(passed.acquire_time);
    output::joined(&[
        format!("{name} is shut for another {left}"),
        format!("  passed   by {owner} (fence {fence}) at {at}"),
    ])
}

fn holder(holder: &HolderView) -> String {
    let mode = match (holder.mode, holder.limit) {
        (ModeKind::Exclusive, _) => String::new(),
        (ModeKind::Shared, None) => ", shared".to_owned(),
        (ModeKind::Shared, Some(limit)) => format!(", shared by at most {limit}"),
    };
    let since = output::time_to_second(holder.acquire_time);
    let (owner, fence, expiry) = (&holder.owner, holder.fence, expiry(holder));
    format!("  holder   {owner} (fence {fence}{mode}) since {since}, {expiry}")
}

/// Formats when a holder last renewed its lease, and when it expires: a live holder renews it before.
fn expiry(holder: &HolderView) -> String {
    let left = left(holder);
    if let Some(reason) = &holder.broken {
        return format!("expires in {left}; broken: {reason}");
    }
    let expires = format!("expires in {left} unless renewed");
    if holder.renew_time == holder.acquire_time {
        return expires;
    }
    // By the store's clock, because the clock of this machine may be wrong.
    let renewed = Duration::from_millis(holder.ttl.saturating_sub(holder.left));
    format!("renewed {} ago, {expires}", output::span(renewed))
}

/// Formats the time until the lease of a holder expires unless it is renewed.
pub(crate) fn left(holder: &HolderView) -> String {
    output::span(Duration::from_millis(holder.left))
}

#[cfg(test)]
mod tests {
    use leasehold::core::{Fence, Time};

    use super::*;

    #[test]
    fn holder_is_shown_with_its_last_renewal_and_its_expiry() {
        let held = HolderView {
            fence: Fence::new(7).unwrap(),
            owner: "web-1".into(),
            principal: None,
            mode: ModeKind::Exclusive,
            limit: None,
            ttl: 30_000,
            acquire_time: Time::from_micros(0),
            renew_time: Time::from_micros(60_000_000),
            expire_time: Time::from_micros(90_000_000),
            left: 26_800,
            broken: None,
        };
        let text = "  holder   web-1 (fence 7) since 1970-01-01T00:00:00Z, ";
        let renewed = "renewed 3.2s ago, expires in 26.8s unless renewed";
        assert_eq!(holder(&held), format!("{text}{renewed}"));

        let new = HolderView {
            renew_time: held.acquire_time,
            ..held.clone()
        };
        assert_eq!(expiry(&new), "expires in 26.8s unless renewed");

        // A broken holder cannot renew its lease.
        let broken = HolderView {
            broken: Some("stuck".into()),
            ..held
        };
        assert_eq!(expiry(&broken), "expires in 26.8s; broken: stuck");
    }
}
