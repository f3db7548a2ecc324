//! The results of a benchmark, for people and for programs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::Bench;
use super::histogram::{self, Row};
use super::worker::Summary;
use crate::output;

/// One run, with a fixed number of tasks.
pub(super) struct Run {
    pub(super) tasks: u16,
    pub(super) span: Duration,
    pub(super) summary: Summary,
}

/// The results of all runs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    /// Only the scheme of the URL: the rest may contain a secret.
    store: String,
    names: u32,
    prefix: String,
    ttl: u64,
    interrupted: bool,
    runs: Vec<Measurement>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Measurement {
    tasks: u16,
    seconds: f64,
    cycles: u64,
    cycles_per_second: f64,
    latency_ns: Latency,
    errors: BTreeMap<String, u64>,
    histogram: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Latency {
    min: u64,
    p50: u64,
    p90: u64,
    p99: u64,
    #[serde(rename = "p99.9")]
    p99_9: u64,
    max: u64,
}

impl Report {
    pub(super) fn new(scheme: &str, bench: &Bench, interrupted: bool, runs: Vec<Run>) -> Self {
        Self {
            store: scheme.to_owned(),
            names: bench.names,
            prefix: bench.prefix.clone(),
            ttl: u64::try_from(bench.ttl.as_millis()).unwrap_or(u64::MAX),
            interrupted,
            runs: runs.into_iter().map(Measurement::from).collect(),
        }
    }

    pub(super) fn has_errors(&self) -> bool {
        self.runs.iter().any(|run| !run.errors.is_empty())
    }

    /// Formats a table of the runs, and a histogram of each.
    pub(super) fn for_people(&self) -> String {
        if self.runs.is_empty() {
            return "nothing was measured".to_owned();
        }
        let head = [
            "TASKS", "CYCLES/S", "P50", "P90", "P99", "P99.9", "MAX", "ERRORS",
        ];
        let head = head.map(str::to_owned);
        let rows: Vec<_> = std::iter::once(head)
            .chain(self.runs.iter().map(Measurement::cells))
            .collect();
        let mut text = right_aligned(&rows);
        for run in &self.runs {
            for (kind, count) in &run.errors {
                let count = output::grouped(*count);
                let _ = writeln!(text, "{}: {count} × {kind}", tasks(run.tasks));
            }
        }
        for run in self.runs.iter().filter(|run| run.cycles > 0) {
            let cycles = output::grouped(run.cycles);
            let (tasks, seconds) = (tasks(run.tasks), run.seconds);
            let _ = writeln!(text, "\n{cycles} cycles of {tasks} in {seconds:.1} s:");
            text.push_str(&histogram::draw(&run.histogram));
        }
        text
    }
}

impl Measurement {
    fn cells(&self) -> [String; 8] {
        let Latency {
            p50,
            p90,
            p99,
            p99_9,
            max,
            ..
        } = self.latency_ns;
        let [p50, p90, p99, p99_9, max] = [p50, p90, p99, p99_9, max].map(output::precise);
        let rate = output::grouped(self.cycles_per_second.round() as u64);
        let errors = output::grouped(self.errors.values().sum());
        [
            self.tasks.to_string(),
            rate,
            p50,
            p90,
            p99,
            p99_9,
            max,
            errors,
        ]
    }
}

impl From<Run> for Measurement {
    fn from(run: Run) -> Self {
        let Summary { latency, errors } = run.summary;
        let seconds = run.span.as_secs_f64();
        let cycles = latency.len();
        Self {
            tasks: run.tasks,
            seconds,
            cycles,
            cycles_per_second: cycles as f64 / seconds,
            histogram: histogram::rows(&latency),
            latency_ns: Latency::from(&latency),
            errors,
        }
    }
}

impl From<&Histogram<u64>> for Latency {
    fn from(latency: &Histogram<u64>) -> Self {
        Self {
            min: latency.min(),
            p50: latency.value_at_quantile(0.5),
            p90: latency.value_at_quantile(0.9),
            p99: latency.value_at_quantile(0.99),
            p99_9: latency.value_at_quantile(0.999),
            max: latency.max(),
        }
    }
}

/// Formats a number of tasks: `1 task`, `64 tasks`.
pub(super) fn tasks(count: u16) -> String {
    let word = if count == 1 { "task" } else { "tasks" };
    format!("{count} {word}")
}

fn right_aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<_> = (0..N).map(|column| width(column).unwrap_or(0)).collect();
    let mut lines = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths);
        let cells: Vec<_> = cells
            .map(|(cell, width)| format!("{cell:>width$}"))
            .collect();
        lines.push_str(&cells.join("  "));
        lines.push('\n');
    }
    lines
}
