//! The properties that must hold in every state.

use leasehold_core::{
    Acquire, BootTime, Clock, Fence, Interval, Mode, Now, Observations, Operation, Outcome, Record,
    Stamp, limits,
};

use crate::explore::Violation;
use crate::model::Leases;
use crate::witness::Witness;
use crate::world::{CLIENTS, InFlightSwap, World};

/// In every state, a client that relies on a lease is its only holder, or shares it within the limit.
pub(crate) fn state(model: &Leases, world: &World) -> Result<(), Violation> {
    let believes = |client: usize| {
        let belief = world.clients[client].belief.as_ref();
        belief.is_some_and(|belief| belief.until > model.boot(client, world))
            && !nonce_used_elsewhere(world, client)
    };
    let mut sharing: Vec<u8> = Vec::new();
    let mut exclusive: Vec<u8> = Vec::new();
    for client in (0..CLIENTS).filter(|client| believes(*client)) {
        let nonce = world.clients[client].nonce;
        let among = match model.config.modes[client] {
            Mode::Exclusive => &mut exclusive,
            Mode::Shared { .. } => &mut sharing,
        };
        if !among.contains(&nonce) {
            among.push(nonce);
        }
    }
    if exclusive.len() > 1 {
        return Err(format!("two exclusive holders believe: {exclusive:?}"));
    }
    if !exclusive.is_empty() && sharing.iter().any(|nonce| !exclusive.contains(nonce)) {
        return Err("an exclusive and a shared holder believe".to_owned());
    }
    let limit = model.config.modes.iter().find_map(|mode| match mode {
        Mode::Shared { limit } => *limit,
        Mode::Exclusive => None,
    });
    match limit {
        Some(limit) if sharing.len() > usize::from(limit) => {
            Err(format!("{} share, above the limit", sharing.len()))
        }
        _ => Ok(()),
    }
}

/// A caller that repeats a nonce declares its earlier process dead, so nothing is promised to that process.
fn nonce_used_elsewhere(world: &World, client: usize) -> bool {
    let nonce = world.clients[client].nonce;
    let mut others = (0..CLIENTS).filter(|other| *other != client);
    others.any(|other| world.clients[other].nonce == nonce)
}

/// When a write lands, fences grow, no contender overtakes a reservation, and a stale fence writes nothing.
pub(crate) fn landing(
    model: &Leases,
    world: &mut World,
    swap: &InFlightSwap,
) -> Result<(), Violation> {
    let Some(new) = &swap.put else {
        return Ok(());
    };
    let old = world.stored.as_ref().map(|stored| stored.record.clone());
    let old = old.as_deref();
    let held = |fence: Fence| {
        let holders = old.map_or(&[][..], |record| &record.holders);
        holders.iter().find(move |holder| holder.fence == fence)
    };
    for granted in new.holders.iter().filter(|new| held(new.fence).is_none()) {
        if granted.fence <= world.highest {
            return Err(format!(
                "fence {} granted after {}",
                granted.fence, world.highest
            ));
        }
        if old.is_none() && world.highest > Fence::default() {
            model.record_witness(Witness::Recreated);
        }
        world.highest = granted.fence;
        if let Some(reserved) =
            old.and_then(|old| reserved_by_another(model, world, old, granted.nonce))
        {
            return Err(format!("fence {} granted while {reserved}", granted.fence));
        }
    }
    if let Some(fence) = swap.writer {
        let live = held(fence).is_some_and(|holder| holder.broken.is_none());
        let exclusive = model.config.modes[swap.client] == Mode::Exclusive;
        let latest = old.is_some_and(|old| old.fence == fence);
        if !live || (exclusive && !latest) {
            return Err(format!("stale fence {fence} has written"));
        }
    }
    Ok(())
}

/// Returns another waiter's live reservation, by the store's own clock.
fn reserved_by_another(
    model: &Leases,
    world: &World,
    old: &Record,
    nonce: leasehold_core::Hash,
) -> Option<String> {
    let now = model.store_time(world, 0);
    let next = old.next.as_ref()?;
    let stands = next.until >= now && next.until <= now + limits::MAX_RESERVATION;
    let held = old.holders.iter().any(|holder| holder.nonce == nonce);
    (stands && next.nonce != nonce && !held).then(|| format!("reserved until {}", next.until))
}

/// For the stored record: a free lease can be acquired, a waiter with a reservation is next, and no hold lasts for ever.
pub(crate) fn stored(model: &Leases, world: &World) -> Result<(), Violation> {
    let Some(stored) = &world.stored else {
        return Ok(());
    };
    let record = &*stored.record;
    let time = model.store_time(world, 0);
    let none = Observations::none();
    let exactly = Now {
        interval: Interval::exactly(time),
        boot: BootTime::default(),
        earlier: None,
        stepped_at: None,
        restarted: world.restarted,
        margin: model.span(model.config.margin),
        observations: &none,
        high_water: leasehold_core::Time::default(),
    };
    let newcomer = Operation::Acquire(acquire(model, 15));
    let granted = |record: &Record, operation: &Operation, now: &Now<'_>| {
        let decision = (model.config.rules.apply)(Some(record), operation, now);
        matches!(decision.outcome, Outcome::Granted(_))
    };

    let since_restart = |ttl| world.restarted.map(|restarted| restarted + ttl);
    let held = record
        .holders
        .iter()
        .any(|holder| holder.expires_at >= time || since_restart(holder.ttl) >= Some(time));
    let reserved = record
        .next
        .as_ref()
        .filter(|next| next.until >= time && next.until <= time + limits::MAX_RESERVATION);
    if !held && reserved.is_none() && !granted(record, &newcomer, &exactly) {
        return Err("free and unreserved, but cannot be acquired".to_owned());
    }

    if let Some(next) = reserved {
        let mut free = record.clone();
        free.holders.clear();
        let waiter = Operation::Acquire(Acquire {
            nonce: next.nonce,
            mode: next.mode,
            ..acquire(model, 15)
        });
        if !granted(&free, &waiter, &exactly) {
            return Err("the waiter that has reserved is not granted".to_owned());
        }
        if granted(&free, &newcomer, &exactly) {
            return Err("granted ahead of the waiter that has reserved".to_owned());
        }
    }

    // A contender that observes the record now, and again once every holder must have expired, is granted the lease.
    let margin = model.span(model.config.margin);
    let boot = BootTime::default();
    let stamp = Stamp {
        time,
        resolution: std::time::Duration::ZERO,
    };
    let clock = Clock::new(boot, boot, stamp, margin).restarted(world.restarted);
    let mut observations = Observations::none();
    observations.update(Some(record), &clock, boot);
    let ttl = model.span(model.config.ttl.max(model.config.renewed_ttl));
    let later =
        boot + (ttl.max(limits::MAX_RESERVATION) + margin + model.span(model.config.horizon + 1));
    if !granted(record, &newcomer, &clock.now(later, &observations)) {
        return Err("still not free after every hold must have ended".to_owned());
    }
    Ok(())
}

fn acquire(model: &Leases, nonce: usize) -> Acquire {
    Acquire {
        nonce: model.nonces[nonce],
        owner: model.text.clone(),
        principal: None,
        ttl: model.span(model.config.ttl),
        mode: Mode::Exclusive,
        fence: None,
        floor: Fence::default(),
        in_state: None,
    }
}
