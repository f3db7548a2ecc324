//! The checks of `leasehold doctor` that apply to every store: whether it answers, how fast, and what its time is.

use std::time::{Duration, Instant, SystemTime};

use leasehold_core::{Name, Stamp, min_ttl};

use super::{Check, Level, Store};
use crate::{Error, Result};

/// The number of probes: enough that one slow answer does not decide the result.
const PROBES: usize = 16;
/// Answers slower than this put leases of a few seconds at risk: a renewal needs several round trips within its ttl.
const SLOW: Duration = Duration::from_millis(250);
/// The difference that reading two clocks one after the other may cause.
const NOISE: Duration = Duration::from_millis(1);

/// Checks whether leases are safe on this store: the checks for every store first, then the store's own.
///
/// Only reads. A store that does not answer is reported as a red check, not as an error.
///
/// ```
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
/// # runtime.block_on(async {
/// use leasehold::store::{self, Level};
///
/// let store = store::open("memory:").await?;
/// let checks = store::examine(store.as_ref()).await;
/// assert!(checks.iter().all(|check| check.level < Level::Red));
/// # Ok::<_, leasehold::Error>(())
/// # }).unwrap();
/// ```
pub async fn examine(store: &dyn Store) -> Vec<Check> {
    let mut checks = match measure(store).await {
        Ok(probes) => vec![speed(&probes), clock(&probes, store.facts().margin)],
        Err(error) => return vec![Check::from(error)],
    };
    match store.check().await {
        Ok(own) => checks.extend(own),
        Err(error) => checks.push(Check::from(error)),
    }
    checks
}

/// One request and its answer.
#[derive(Clone, Copy)]
struct Probe {
    /// When the request was sent, counted from the first one.
    sent: Duration,
    /// When the answer arrived.
    received: Duration,
    stamp: Stamp,
    /// This machine's wall clock at that time.
    wall: SystemTime,
}

async fn measure(store: &dyn Store) -> Result<Vec<Probe>> {
    let name = Name::lock("leasehold-doctor")?;
    // The first answer may include connecting.
    store.load(std::slice::from_ref(&name)).await?;
    let start = Instant::now();
    let mut probes = Vec::new();
    for _ in 0..PROBES {
        let sent = start.elapsed();
        let stamp = store.load(std::slice::from_ref(&name)).await?.stamp;
        probes.push(Probe {
            sent,
            received: start.elapsed(),
            stamp,
            wall: SystemTime::now(),
        });
    }
    Ok(probes)
}

fn speed(probes: &[Probe]) -> Check {
    let mut trips: Vec<_> = probes
        .iter()
        .map(|probe| probe.received - probe.sent)
        .collect();
    trips.sort();
    let (median, slowest) = (trips[trips.len() / 2], trips[trips.len() - 1]);
    let what = format!(
        "answers in {} (median of {}; the slowest took {})",
        millis(median),
        trips.len(),
        millis(slowest)
    );
    if slowest < SLOW {
        Check::green(what)
    } else {
        Check::yellow(
            what,
            "run closer to the database, or use leases of a minute and more",
        )
    }
}

/// Checks that the margin covers the store's clock steps between answers. The difference to this machine's clock is
/// only informational.
fn clock(probes: &[Probe], margin: Duration) -> Check {
    let step = step(probes);
    if step > margin + NOISE {
        return Check::red(
            format!(
                "its clock stepped by {} between two answers, and the margin is {}",
                millis(step),
                millis(margin)
            ),
            "keep the clocks of its nodes together, or raise the store's margin: `?margin=` in its URL",
        );
    }
    let last = probes[probes.len() - 1];
    let here = last.wall.duration_since(SystemTime::UNIX_EPOCH);
    let here = here.unwrap_or_default().as_micros() as i128;
    let there = i128::from(last.stamp.time.as_micros());
    let apart = Duration::from_micros((there - here).unsigned_abs() as u64);
    let which = if there > here { "ahead of" } else { "behind" };
    let error_bound = last.stamp.resolution + (last.received - last.sent);
    Check::green(format!(
        "its clock is steady, and {} {which} this machine's (±{}), which does not matter; {}",
        millis(apart),
        millis(error_bound),
        describe_min_ttl(margin)
    ))
}

/// Describes which ttls the margin allows.
fn describe_min_ttl(margin: Duration) -> String {
    match min_ttl(margin) {
        Duration::ZERO => "any ttl is allowed".to_owned(),
        min => format!("the describe_min_ttl ttl is {min:?}, four margins"),
    }
}

/// Returns a lower bound for the store's clock step between two of these answers.
fn step(probes: &[Probe]) -> Duration {
    let micros = |span: Duration| span.as_micros() as i128;
    // The store's time when this clock was zero lies between these two bounds.
    let earliest = probes
        .iter()
        .map(|probe| i128::from(probe.stamp.time.as_micros()) - micros(probe.received));
    let latest = probes.iter().map(|probe| {
        i128::from(probe.stamp.time.as_micros()) + micros(probe.stamp.resolution)
            - micros(probe.sent)
    });
    let apart = earliest.max().unwrap_or(0) - latest.min().unwrap_or(0);
    Duration::from_micros(u64::try_from(apart).unwrap_or(0))
}

fn millis(span: Duration) -> String {
    match span.as_secs() {
        0 => format!("{:.1} ms", span.as_secs_f64() * 1e3),
        _ => format!("{:.1} s", span.as_secs_f64()),
    }
}

impl From<Error> for Check {
    /// Creates a red check. The error's message includes the fix.
    fn from(error: Error) -> Self {
        Self {
            level: Level::Red,
            what: error.to_string(),
            fix: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::Time;

    use super::*;

    /// Creates answers every 10 ms from a clock that was `off` by the given number of milliseconds.
    fn probes(off: &[i64], resolution: Duration) -> Vec<Probe> {
        (0..)
            .zip(off)
            .map(|(index, off)| {
                let sent = Duration::from_millis(10 * index);
                let time = 1_700_000_000_000 + 10 * index + off.cast_unsigned();
                Probe {
                    sent,
                    received: sent + Duration::from_millis(1),
                    stamp: Stamp {
                        time: Time::from_micros(time * 1_000),
                        resolution,
                    },
                    wall: SystemTime::UNIX_EPOCH,
                }
            })
            .collect()
    }

    #[test]
    fn clock_step_above_margin_is_red() {
        let margin = Duration::from_millis(250);
        let fine = Duration::from_micros(1);
        assert_eq!(
            clock(&probes(&[0, 200, 0], fine), margin).level,
            Level::Green
        );
        assert_eq!(clock(&probes(&[0, 300, 0], fine), margin).level, Level::Red);
        assert_eq!(clock(&probes(&[300, 0, 0], fine), margin).level, Level::Red);
        let coarse = Duration::from_secs(1);
        assert_eq!(
            clock(&probes(&[0, 900, 0], coarse), margin).level,
            Level::Green
        );
    }

    #[test]
    fn clock_check_names_the_shortest_ttl() {
        let message = |margin| clock(&probes(&[0; 3], Duration::ZERO), margin).what;
        let server = message(Duration::from_millis(250));
        assert!(server.contains("describe_min_ttl ttl is 1s"), "{server}");
        let date = message(Duration::from_secs(2));
        assert!(date.contains("describe_min_ttl ttl is 8s"), "{date}");
    }

    #[test]
    fn slow_answers_are_yellow() {
        let mut probes = probes(&[0; 8], Duration::ZERO);
        assert_eq!(speed(&probes).level, Level::Green);
        probes[3].received += SLOW;
        assert_eq!(speed(&probes).level, Level::Yellow);
    }
}
