//! The picture in the README: cycles in a second, as bars.

use std::fmt::Write as _;

use crate::goals::{Cell, Results, median};

const WIDTH: f64 = 760.0;
const LEFT: f64 = 210.0;
const BAR: f64 = 18.0;
const GAP: f64 = 6.0;

/// What stands together.
const GROUPS: [(&str, usize, &[&str]); 4] = [
    (
        "In memory, 64 connections",
        64,
        &["service, memory", "Redis"],
    ),
    (
        "Every answer on the disk, 64 connections",
        64,
        &["service, SQLite", "Redis, every write synced", "etcd"],
    ),
    (
        "On PostgreSQL, 64 tasks",
        64,
        &["library, PostgreSQL", "PostgreSQL, a row"],
    ),
    (
        "On Redis, 64 tasks",
        64,
        &["library, Redis", "Redis, a script"],
    ),
];

/// An SVG for light and dark pages.
pub(crate) fn draw(results: &Results) -> String {
    let find = |who: &str, callers| {
        results
            .cells
            .iter()
            .find(|cell| cell.who == who && cell.callers == callers)
    };
    let rate = |cell: &Cell| median(&cell.all(|sample| sample.rate));
    let most = results.cells.iter().map(rate).fold(1.0, f64::max);
    let mut body = String::new();
    let mut y = 10.0;
    for (title, callers, contestants) in GROUPS {
        y += 22.0;
        let _ = writeln!(
            body,
            r#"<text class="title" x="0" y="{y:.0}">{title}</text>"#
        );
        y += 10.0;
        for who in contestants {
            let Some(cell) = find(who, callers) else {
                continue;
            };
            let ours = who.starts_with("service") || who.starts_with("library");
            bar(&mut body, y, who, rate(cell), most, ours);
            y += BAR + GAP;
        }
    }
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0} {height:.0}" font-family="sans-serif" font-size="13" role="img">
<title>Lock cycles (acquire with a fence, release) in a second</title>
<style>text {{ fill: #333 }} .title {{ font-weight: bold }} .ours {{ fill: #0a7d5a }} .theirs {{ fill: #9aa5b1 }}
@media (prefers-color-scheme: dark) {{ text {{ fill: #ddd }} .ours {{ fill: #2fbf8f }} .theirs {{ fill: #5b6672 }} }}</style>
{body}</svg>
"#,
        height = y + 10.0,
    )
}

fn bar(body: &mut String, y: f64, who: &str, rate: f64, most: f64, ours: bool) {
    let class = if ours { "ours" } else { "theirs" };
    let width = (WIDTH - LEFT - 90.0) * rate / most;
    let (text, end) = (y + BAR - 4.0, LEFT + width + 6.0);
    let called = if ours {
        "Leasehold ".to_owned() + who
    } else {
        who.to_owned()
    };
    let _ = writeln!(
        body,
        r#"<text x="{x:.0}" y="{text:.0}" text-anchor="end">{called}</text><rect class="{class}" x="{LEFT:.0}" y="{y:.0}" width="{width:.0}" height="{BAR:.0}" rx="3"/><text x="{end:.0}" y="{text:.0}">{rate:.0}/s</text>"#,
        x = LEFT - 8.0,
    );
}
