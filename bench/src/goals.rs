//! The measurements, and the goals that they must meet.

use std::fmt;

use serde::Serialize;

use crate::sample::Sample;

/// All measurements, in the order of their first appearance.
#[derive(Default)]
pub(crate) struct Results {
    pub(crate) cells: Vec<Cell>,
    pub(crate) figures: Vec<(String, Vec<Figure>)>,
}

/// Lock cycles of one contestant, with a number of connections or tasks.
pub(crate) struct Cell {
    pub(crate) contestant: String,
    pub(crate) callers: usize,
    pub(crate) samples: Vec<Sample>,
}

impl Cell {
    /// Returns the values of the quieter half of the samples.
    pub(crate) fn quiet_values(&self, value: SampleValue) -> Vec<f64> {
        quieter_half(
            self.samples
                .iter()
                .map(|sample| (sample.steal, value(sample))),
        )
    }
}

/// A measurement other than lock cycles.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figure {
    pub(crate) unit: &'static str,
    #[serde(rename = "least")]
    pub(crate) min: f64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    /// The fraction of the processor time that was stolen meanwhile.
    #[serde(rename = "taken")]
    pub(crate) steal: f64,
}

impl Figure {
    /// Returns the distribution of times in microseconds.
    pub(crate) fn micros(mut all: Vec<f64>) -> Self {
        all.sort_by(f64::total_cmp);
        let at = |quantile: f64| all[((all.len() - 1) as f64 * quantile).round() as usize];
        Self {
            unit: "us",
            min: at(0.0),
            p50: at(0.5),
            p99: at(0.99),
            steal: 0.0,
        }
    }

    /// Returns a fraction of one processor.
    pub(crate) fn share_of_core(fraction: f64) -> Self {
        Self::single("% of a core", 100.0 * fraction)
    }

    pub(crate) fn bytes(bytes: f64) -> Self {
        Self::single("bytes", bytes)
    }

    fn single(unit: &'static str, value: f64) -> Self {
        Self {
            unit,
            min: value,
            p50: value,
            p99: value,
            steal: 0.0,
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            unit,
            min,
            p50,
            p99,
            ..
        } = self;
        if min == p99 {
            write!(f, "{p50:.1} {unit}")
        } else {
            write!(f, "p50 {p50:.1}  p99 {p99:.1}  min {min:.1} {unit}")
        }
    }
}

/// A bound, and which side of it is good.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

/// A bound, and the values of the quieter half of the runs.
#[derive(Serialize)]
pub(crate) struct Goal {
    pub(crate) row: u8,
    #[serde(rename = "what")]
    pub(crate) description: String,
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

/// Returns the values of the half of the rounds with the least steal time. Each round is a pair of steal time and value.
fn quieter_half(rounds: impl Iterator<Item = (f64, f64)>) -> Vec<f64> {
    let mut rounds: Vec<_> = rounds.collect();
    rounds.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    rounds.truncate(rounds.len().div_ceil(2));
    rounds.into_iter().map(|(_, value)| value).collect()
}

type SampleValue = fn(&Sample) -> f64;
pub(crate) const RATE: SampleValue = |sample| sample.rate;
pub(crate) const P50: SampleValue = |sample| sample.p50;
pub(crate) const P99: SampleValue = |sample| sample.p99;

impl Results {
    pub(crate) fn add_sample(&mut self, contestant: &str, callers: usize, sample: Sample) {
        let known = self
            .cells
            .iter_mut()
            .find(|cell| cell.contestant == contestant && cell.callers == callers);
        match known {
            Some(cell) => cell.samples.push(sample),
            None => self.cells.push(Cell {
                contestant: contestant.to_owned(),
                callers,
                samples: vec![sample],
            }),
        }
    }

    pub(crate) fn add_figure(&mut self, label: &str, figure: Figure) {
        match self.figures.iter_mut().find(|(known, _)| known == label) {
            Some((_, figures)) => figures.push(figure),
            None => self.figures.push((label.to_owned(), vec![figure])),
        }
    }

    pub(crate) fn cell(&self, contestant: &str, callers: usize) -> Option<&Cell> {
        let mut cells = self.cells.iter();
        cells.find(|cell| cell.contestant == contestant && cell.callers == callers)
    }

    fn samples(&self, contestant: &str, callers: usize) -> &[Sample] {
        let cell = self.cell(contestant, callers);
        cell.map_or(&[], |cell| &cell.samples)
    }

    fn figures(&self, label: &str) -> &[Figure] {
        let found = self.figures.iter().find(|(known, _)| known == label);
        found.map_or(&[], |(_, figures)| figures)
    }

    /// Returns the values of the quieter half of the figures with this label.
    pub(crate) fn quiet_values(&self, label: &str, value: fn(&Figure) -> f64) -> Vec<f64> {
        let figures = self.figures(label).iter();
        quieter_half(figures.map(|figure| (figure.steal, value(figure))))
    }

    /// Returns the goals for which there are measurements.
    pub(crate) fn goals(&self) -> Vec<Goal> {
        use Bound::{AtLeast, AtMost};
        let mut goals = Vec::new();
        let mut cycles =
            |row, callers, value: SampleValue, unit, ours: &str, theirs: &str, bound| {
                let (one, other) = (self.samples(ours, callers), self.samples(theirs, callers));
                let ratios = one
                    .iter()
                    .zip(other)
                    .map(|(one, other)| (one.steal.max(other.steal), value(one) / value(other)));
                goals.push(Goal {
                    row,
                    description: format!("{unit}, {callers}: {ours} / {theirs}"),
                    bound,
                    runs: quieter_half(ratios),
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
        for (callers, min) in [(1, 1.5), (16, 4.0), (64, 5.0)] {
            cycles(3, callers, RATE, "rate", durable, "etcd", AtLeast(min));
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
        let mut figures = |row, label: &str, value: fn(&Figure) -> f64, unit: &str, bound| {
            goals.push(Goal {
                row,
                description: format!("{unit}: {label}"),
                bound,
                runs: self.quiet_values(label, value),
            });
        };
        for store in ["memory", "SQLite"] {
            let label = format!("takeover, {store}");
            let p99 = "p99 in ms beyond the ttl";
            figures(8, &label, |delay| delay.p99 / 1_000.0, p99, AtMost(5.0));
            let label = format!("idle leases, {store}");
            figures(10, &label, |share| share.p50, "% of a core", AtMost(10.0));
        }
        // No takeover may be early, in the noisy rounds either.
        for store in ["memory", "SQLite"] {
            let label = format!("takeover, {store}");
            let earliest = self.figures(&label).iter().map(|delay| delay.min / 1_000.0);
            goals.push(Goal {
                row: 8,
                description: format!("earliest of all in ms beyond the ttl: {label}"),
                bound: AtLeast(0.0),
                runs: earliest.reduce(f64::min).into_iter().collect(),
            });
        }
        let mut ratio =
            |row, ours: &str, theirs: &str, unit: &str, bound| {
                let pairs = self.figures(ours).iter().zip(self.figures(theirs));
                goals.push(Goal {
                    row,
                    description: format!("{unit}: {ours} / {theirs}"),
                    bound,
                    runs: quieter_half(pairs.map(|(ours, theirs)| {
                        (ours.steal.max(theirs.steal), ours.p50 / theirs.p50)
                    })),
                });
            };
        let etcd = "hand-off, etcd";
        ratio(7, "hand-off, memory", etcd, "p50", AtMost(0.1));
        ratio(7, "hand-off, SQLite", etcd, "p50", AtMost(0.4));
        let (lock, redis) = ("memory of a lock", "memory of a lock, Redis");
        ratio(11, lock, redis, "bytes", AtMost(1.0));
        goals.retain(|goal| !goal.runs.is_empty());
        goals.sort_by_key(|goal| goal.row);
        goals
    }
}
