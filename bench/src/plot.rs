//! The chart in the README: groups of bars, each with a scale of its own.

use std::fmt::Write as _;

use crate::goals::{RATE, Results, median};

const WIDTH: f64 = 760.0;
const LEFT: f64 = 210.0;
const BAR: f64 = 18.0;
const GAP: f64 = 6.0;

/// The groups of rates, with 64 connections or tasks.
const RATES: [(&str, &[&str]); 4] = [
    (
        "In memory, 64 connections: cycles/s",
        &["service, memory", "Redis"],
    ),
    (
        "Every answer durable on disk, 64 connections: cycles/s",
        &["service, SQLite", "Redis, every write synced", "etcd"],
    ),
    (
        "On PostgreSQL, 64 tasks: cycles/s",
        &["library, PostgreSQL", "PostgreSQL, a row"],
    ),
    (
        "On Redis, 64 tasks: cycles/s",
        &["library, Redis", "Redis, a script"],
    ),
];

/// The times from a release to the next grant.
const HAND_OFFS: (&str, &[&str]) = (
    "Hand-off: from a release to the grant of the next of eight waiters, in µs (less is better)",
    &["hand-off, memory", "hand-off, SQLite", "hand-off, etcd"],
);

/// Draws an SVG for light and dark pages.
pub(crate) fn draw(results: &Results) -> String {
    let rate = |contestant: &&str| {
        let rates = results.cell(contestant, 64)?.quiet_values(RATE);
        let is_ours = contestant.starts_with("service") || contestant.starts_with("library");
        Some(Bar::new(contestant, is_ours, median(&rates)))
    };
    let time = |label: &&str| {
        let p50 = results.quiet_values(label, |figure| figure.p50);
        let contestant = label.trim_start_matches("hand-off, ");
        (!p50.is_empty()).then(|| Bar::new(contestant, contestant != "etcd", median(&p50)))
    };
    let mut body = String::new();
    let mut y = 0.0;
    for (title, contestants) in RATES {
        group(
            &mut body,
            &mut y,
            title,
            contestants.iter().filter_map(rate),
        );
    }
    let (title, contestants) = HAND_OFFS;
    group(
        &mut body,
        &mut y,
        title,
        contestants.iter().filter_map(time),
    );
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0} {height:.0}" font-family="sans-serif" font-size="13" role="img">
<title>Leasehold compared with Redis, etcd and PostgreSQL: lock cycles (acquire with a fence, release) per second, and hand-off</title>
<style>text {{ fill: #333 }} .title {{ font-weight: bold }} .ours {{ fill: #0a7d5a }} .theirs {{ fill: #9aa5b1 }}
@media (prefers-color-scheme: dark) {{ text {{ fill: #ddd }} .ours {{ fill: #2fbf8f }} .theirs {{ fill: #5b6672 }} }}</style>
{body}</svg>
"#,
        height = y + 10.0,
    )
}

struct Bar {
    label: String,
    class: &'static str,
    value: f64,
}

impl Bar {
    fn new(contestant: &str, is_ours: bool, value: f64) -> Self {
        let (label, class) = match is_ours {
            true => (format!("Leasehold, {contestant}"), "ours"),
            false => (contestant.to_owned(), "theirs"),
        };
        Self {
            label,
            class,
            value,
        }
    }
}

/// Draws a title and its bars.
fn group(body: &mut String, y: &mut f64, title: &str, bars: impl Iterator<Item = Bar>) {
    let bars: Vec<_> = bars.collect();
    let highest = bars.iter().map(|bar| bar.value).fold(1.0, f64::max);
    *y += 26.0;
    let _ = writeln!(
        body,
        r#"<text class="title" x="0" y="{y:.0}">{title}</text>"#
    );
    *y += 10.0;
    for Bar {
        label,
        class,
        value,
    } in bars
    {
        let width = (WIDTH - LEFT - 90.0) * value / highest;
        let (text, end) = (*y + BAR - 4.0, LEFT + width + 6.0);
        let _ = writeln!(
            body,
            r#"<text x="{x:.0}" y="{text:.0}" text-anchor="end">{label}</text><rect class="{class}" x="{LEFT:.0}" y="{y:.0}" width="{width:.0}" height="{BAR:.0}" rx="3"/><text x="{end:.0}" y="{text:.0}">{value:.0}</text>"#,
            x = LEFT - 8.0,
        );
        *y += BAR + GAP;
    }
}
