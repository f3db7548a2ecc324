//! What was seen, and what must come out of it.

use std::fmt;

use serde::Serialize;

use crate::sample::Sample;

/// All that was seen, in the order in which it was seen first.
#[derive(Default)]
pub(crate) struct Results {
    pub(crate) cells: Vec<Cell>,
    pub(crate) figures: Vec<(String, Vec<Figure>)>,
}

/// Lock cycles of one contestant, with so many connections or tasks.
pub(crate) struct Cell {
    pub(crate) who: String,
    pub(crate) callers: usize,
    pub(crate) samples: Vec<Sample>,
}

impl Cell {
    /// The values of those that count.
    pub(crate) fn counted(&self, of: Of) -> Vec<f64> {
        quieter(self.samples.iter().map(|it| (it.taken, of(it))))
    }
}

/// Something else than lock cycles.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figure {
    pub(crate) unit: &'static str,
    pub(crate) least: f64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    /// The part of the processors that others took meanwhile.
    pub(crate) taken: f64,
}

impl Figure {
    /// Many times, in microseconds.
    pub(crate) fn micros(mut all: Vec<f64>) -> Self {
        all.sort_by(f64::total_cmp);
        let at = |quantile: f64| all[((all.len() - 1) as f64 * quantile).round() as usize];
        Self {
            unit: "us",
            least: at(0.0),
            p50: at(0.5),
            p99: at(0.99),
            taken: 0.0,
        }
    }

    /// One part of one processor.
    pub(crate) fn share(of_one: f64) -> Self {
        Self::single("% of a core", 100.0 * of_one)
    }

    pub(crate) fn bytes(bytes: f64) -> Self {
        Self::single("bytes", bytes)
    }

    fn single(unit: &'static str, value: f64) -> Self {
        Self {
            unit,
            least: value,
            p50: value,
            p99: value,
            taken: 0.0,
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            unit,
            least,
            p50,
            p99,
            ..
        } = self;
        if least == p99 {
            write!(f, "{p50:.1} {unit}")
        } else {
            write!(f, "p50 {p50:.1}  p99 {p99:.1}  least {least:.1} {unit}")
        }
    }
}

/// Which side of a bound is good.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

/// A bound, and what came out in each run that counts.
#[derive(Serialize)]
pub(crate) struct Goal {
    pub(crate) row: u8,
    pub(crate) what: String,
    pub(crate) bound: Bound,
    pub(crate) runs: Vec<f64>,
}

impl Goal {
    pub(crate) fn median(&self) -> f64 {
        median(&self.runs)
    }

    pub(crate) fn is_met(&self) -> bool {
        match self.bound {
            Bound::AtLeast(bound) => self.median() >= bound,
            Bound::AtMost(bound) => self.median() <= bound,
        }
    }
}

pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match sorted.len() % 2 {
        0 => (sorted[half - 1] + sorted[half]) / 2.0,
        _ => sorted[half],
    }
}

/// The values of the quieter half of all rounds, each of which comes with what others took of the processors meanwhile.
fn quieter(rounds: impl Iterator<Item = (f64, f64)>) -> Vec<f64> {
    let mut rounds: Vec<_> = rounds.collect();
    rounds.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    rounds.truncate(rounds.len().div_ceil(2));
    rounds.into_iter().map(|(_, value)| value).collect()
}

type Of = fn(&Sample) -> f64;
pub(crate) const RATE: Of = |sample| sample.rate;
pub(crate) const P50: Of = |sample| sample.p50;
pub(crate) const P99: Of = |sample| sample.p99;

impl Results {
    pub(crate) fn note(&mut self, who: &str, callers: usize, sample: Sample) {
        let known = self
            .cells
            .iter_mut()
            .find(|cell| cell.who == who && cell.callers == callers);
        match known {
            Some(cell) => cell.samples.push(sample),
            None => self.cells.push(Cell {
                who: who.to_owned(),
                callers,
                samples: vec![sample],
            }),
        }
    }

    pub(crate) fn figure(&mut self, what: &str, figure: Figure) {
        match self.figures.iter_mut().find(|(known, _)| known == what) {
            Some((_, figures)) => figures.push(figure),
            None => self.figures.push((what.to_owned(), vec![figure])),
        }
    }

    pub(crate) fn cell(&self, who: &str, callers: usize) -> Option<&Cell> {
        let mut cells = self.cells.iter();
        cells.find(|cell| cell.who == who && cell.callers == callers)
    }

    fn samples(&self, who: &str, callers: usize) -> &[Sample] {
        let cell = self.cell(who, callers);
        cell.map_or(&[], |cell| &cell.samples)
    }

    fn figures(&self, what: &str) -> &[Figure] {
        let found = self.figures.iter().find(|(known, _)| known == what);
        found.map_or(&[], |(_, figures)| figures)
    }

    /// The values of those figures that count.
    pub(crate) fn counted(&self, what: &str, of: fn(&Figure) -> f64) -> Vec<f64> {
        quieter(self.figures(what).iter().map(|it| (it.taken, of(it))))
    }

    /// All goals of which something was measured.
    pub(crate) fn goals(&self) -> Vec<Goal> {
        use Bound::{AtLeast, AtMost};
        let mut goals = Vec::new();
        let mut cycles = |row, callers, of: Of, unit, ours: &str, theirs: &str, bound| {
            let (one, other) = (self.samples(ours, callers), self.samples(theirs, callers));
            let ratios = one
                .iter()
                .zip(other)
                .map(|(one, other)| (one.taken.max(other.taken), of(one) / of(other)));
            goals.push(Goal {
                row,
                what: format!("{unit}, {callers}: {ours} / {theirs}"),
                bound,
                runs: quieter(ratios),
            });
        };
        for callers in [16, 64] {
            cycles(
                1,
                callers,
                RATE,
                "rate",
                "service, memory",
                "Redis",
                AtLeast(1.0),
            );
        }
        let (durable, synced) = ("service, SQLite", "Redis, every write synced");
        cycles(2, 64, RATE, "rate", durable, synced, AtLeast(1.0));
        for (callers, least) in [(1, 1.5), (16, 4.0), (64, 5.0)] {
            cycles(3, callers, RATE, "rate", durable, "etcd", AtLeast(least));
        }
        cycles(4, 1, P50, "p50", durable, synced, AtMost(1.3));
        let (ours, row) = ("library, PostgreSQL", "PostgreSQL, a row");
        cycles(5, 64, RATE, "rate", ours, row, AtLeast(2.5));
        let (ours, script) = ("library, Redis", "Redis, a script");
        cycles(6, 64, RATE, "rate", ours, script, AtLeast(1.5));
        cycles(6, 1, P50, "p50", ours, script, AtMost(1.1));
        for callers in [16, 64] {
            let (ours, theirs) = ("client of the service", "redis crate");
            cycles(12, callers, RATE, "rate", ours, theirs, AtLeast(1.0));
        }
        for store in ["memory", "SQLite", "PostgreSQL"] {
            let names = |count: &str| format!("{store}, {count} names");
            let (many, few) = (names("1,000,000"), names("1,000"));
            cycles(9, 64, RATE, "rate", &many, &few, AtLeast(0.8));
        }
        let mut figures = |row, what: &str, of: fn(&Figure) -> f64, unit: &str, bound| {
            goals.push(Goal {
                row,
                what: format!("{unit}: {what}"),
                bound,
                runs: self.counted(what, of),
            });
        };
        for store in ["memory", "SQLite"] {
            let what = format!("take-over, {store}");
            let p99 = "p99 in ms beyond the ttl";
            figures(8, &what, |late| late.p99 / 1_000.0, p99, AtMost(5.0));
            let what = format!("idle leases, {store}");
            figures(10, &what, |share| share.p50, "% of a core", AtMost(10.0));
        }
        // Never is never, in whichever round.
        for store in ["memory", "SQLite"] {
            let what = format!("take-over, {store}");
            let earliest = self.figures(&what).iter().map(|late| late.least / 1_000.0);
            goals.push(Goal {
                row: 8,
                what: format!("earliest of all in ms beyond the ttl: {what}"),
                bound: AtLeast(0.0),
                runs: earliest.reduce(f64::min).into_iter().collect(),
            });
        }
        let mut ratio =
            |row, ours: &str, theirs: &str, unit: &str, bound| {
                let pairs = self.figures(ours).iter().zip(self.figures(theirs));
                goals.push(Goal {
                    row,
                    what: format!("{unit}: {ours} / {theirs}"),
                    bound,
                    runs: quieter(pairs.map(|(ours, theirs)| {
                        (ours.taken.max(theirs.taken), ours.p50 / theirs.p50)
                    })),
                });
            };
        let etcd = "hand-over, etcd";
        ratio(7, "hand-over, memory", etcd, "p50", AtMost(0.1));
        ratio(7, "hand-over, SQLite", etcd, "p50", AtMost(0.4));
        let (lock, redis) = ("memory of a lock", "memory of a lock, Redis");
        ratio(11, lock, redis, "bytes", AtMost(1.0));
        goals.retain(|goal| !goal.runs.is_empty());
        goals.sort_by_key(|goal| goal.row);
        goals
    }
}
