//! The distribution of latencies, as rows and as bars.

use std::fmt::Write as _;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::output;

/// Where the rows of the first decade begin, in nanoseconds: round numbers in steps of about the same ratio.
const STEPS: [u64; 6] = [100, 150, 200, 300, 500, 700];
/// Enough decades for the longest cycle that is recorded.
const DECADES: u32 = 11;
/// The length of the longest bar, in characters.
const WIDTH: f64 = 40.0;
/// Characters filled by zero to seven eighths.
const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];

/// The number of cycles whose latency is at least `from_ns` and less than `to_ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    from_ns: u64,
    to_ns: u64,
    count: u64,
}

/// Returns the latencies in contiguous rows. The slowest thousandth shares one row.
pub(super) fn rows(latency: &Histogram<u64>) -> Vec<Row> {
    if latency.is_empty() {
        return Vec::new();
    }
    let starts = (0..DECADES).flat_map(|decade| STEPS.map(|step| step * 10_u64.pow(decade)));
    let starts: Vec<u64> = std::iter::once(0).chain(starts).collect();
    let row_of = |value: u64| starts.partition_point(|start| *start <= value) - 1;
    let slow = row_of(latency.value_at_quantile(0.999)) + 1;
    let mut rows: Vec<Row> = starts[row_of(latency.min())..=slow]
        .windows(2)
        .map(|edges| Row {
            from_ns: edges[0],
            to_ns: edges[1],
            count: 0,
        })
        .collect();
    rows.push(Row {
        from_ns: starts[slow],
        to_ns: latency.max() + 1,
        count: 0,
    });
    for recorded in latency.iter_recorded() {
        let value = recorded.value_iterated_to();
        let row = rows.partition_point(|row| row.from_ns <= value).max(1) - 1;
        rows[row].count += recorded.count_at_value();
    }
    rows.pop_if(|last| last.count == 0);
    rows
}

/// Draws the rows as bars.
pub(super) fn draw(rows: &[Row]) -> String {
    let total: u64 = rows.iter().map(|row| row.count).sum();
    let highest = rows.iter().map(|row| row.count).max().unwrap_or(0);
    let mut lines = String::new();
    for row in rows {
        let (from, to) = (output::precise(row.from_ns), output::precise(row.to_ns));
        let percent = part(row.count, total) * 100.0;
        let bar = bar(part(row.count, highest));
        let line = format!("{from:>7} – {to:<7} {percent:>5.1} %  {bar}");
        let _ = writeln!(lines, "{}", line.trim_end());
    }
    lines
}

fn bar(part: f64) -> String {
    let eighths = (part * WIDTH * 8.0).ceil() as usize;
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

fn part(count: u64, of: u64) -> f64 {
    if of == 0 {
        0.0
    } else {
        count as f64 / of as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(nanos: impl IntoIterator<Item = u64>) -> Histogram<u64> {
        let mut latency = Histogram::new_with_max(3_600_000_000_000, 3).unwrap();
        for value in nanos {
            latency.record(value).unwrap();
        }
        latency
    }

    #[test]
    fn every_cycle_is_in_one_row_and_rows_have_no_gaps() {
        let latency = histogram((1..5_000).map(|n| n * n));
        let rows = rows(&latency);
        assert_eq!(rows.iter().map(|row| row.count).sum::<u64>(), 4_999);
        assert!(rows.windows(2).all(|two| two[0].to_ns == two[1].from_ns));
        assert!(rows[0].from_ns <= latency.min());
        assert!(rows[rows.len() - 1].to_ns > latency.max());
    }

    #[test]
    fn outliers_share_one_row() {
        let usual = std::iter::repeat_n(250_000, 9_999);
        let drawn = draw(&rows(&histogram(usual.chain([2_000_000_000]))));
        let lines: Vec<_> = drawn.lines().collect();
        assert_eq!(lines.len(), 2, "{drawn}");
        assert!(lines[0].ends_with(&"█".repeat(40)), "{drawn}");
        assert!(lines[0].contains("200µs – 300µs   100.0 %"), "{drawn}");
        assert!(lines[1].starts_with("  300µs – 2.00s"), "{drawn}");
        assert!(
            lines[1].ends_with("▏"),
            "a single outlier is visible: {drawn}"
        );
        assert_eq!(draw(&rows(&histogram([]))), "");
    }
}
