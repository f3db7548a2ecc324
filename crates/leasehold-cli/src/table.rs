//! Tables for people: aligned columns, cut to the width of a terminal.

use std::io::{IsTerminal as _, stdout};

use crate::output;

/// The width to which a column is cut at most.
const MIN_WIDTH: usize = 8;

/// Formats rows as lines of aligned columns, each cell escaped.
pub(crate) fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    fitted(rows, usize::MAX, &[])
}

/// As [`aligned`], with some columns cut so that a line fits into `limit` characters, if possible. A cut cell ends in `…`.
pub(crate) fn fitted<const N: usize>(
    rows: &[[String; N]],
    limit: usize,
    can_cut: &[usize],
) -> String {
    let escape = |row: &[String; N]| {
        row.each_ref()
            .map(|cell| output::escaped(cell).into_owned())
    };
    let rows: Vec<_> = rows.iter().map(escape).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or_default()
    };
    let mut widths: [usize; N] = std::array::from_fn(width);
    while widths.iter().sum::<usize>() + 2 * (N - 1) > limit {
        let columns = can_cut.iter().copied();
        let widest = columns.max_by_key(|column| widths[*column]);
        match widest {
            Some(widest) if widths[widest] > MIN_WIDTH => widths[widest] -= 1,
            _ => break,
        }
    }
    let mut lines = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths);
        let line: Vec<String> = cells
            .map(|(cell, width)| format!("{:<width$}", cut(cell, *width)))
            .collect();
        lines.push_str(line.join("  ").trim_end());
        lines.push('\n');
    }
    lines
}

/// Cuts a text to a number of characters, the last of which is then `…`.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept = text.chars().take(width.saturating_sub(1));
    kept.chain(['…']).collect()
}

/// Returns the width of the terminal on standard output; without one, there is no limit, because programs read the text.
pub(crate) fn terminal_width() -> usize {
    if !stdout().is_terminal() {
        return usize::MAX;
    }
    match terminal_size::terminal_size_of(stdout()) {
        Some((terminal_size::Width(width), _)) if width > 0 => usize::from(width),
        _ => usize::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows<const N: usize, const M: usize>(rows: [[&str; N]; M]) -> [[String; N]; M] {
        rows.map(|row| row.map(str::to_owned))
    }

    #[test]
    fn columns_are_aligned() {
        let rows = rows([["NAME", "BY"], ["émoji 🔒", "host:1"], ["a", "-\nb"]]);
        assert_eq!(
            aligned(&rows),
            "NAME     BY\némoji 🔒  host:1\na        -\\nb\n"
        );
    }

    #[test]
    fn the_widest_columns_are_cut_first_and_others_stay_whole() {
        let rows = rows([
            ["NAME", "HELD BY", "FENCE"],
            ["backups/of/a/database", "host-1:4711", "123456789"],
        ]);
        assert_eq!(
            fitted(&rows, 36, &[0, 1]),
            "NAME          HELD BY      FENCE\nbackups/of/…  host-1:4711  123456789\n"
        );
        // A narrow terminal wraps lines rather than hide what tells names apart.
        assert_eq!(
            fitted(&rows, 10, &[0, 1]),
            "NAME      HELD BY   FENCE\nbackups…  host-1:…  123456789\n"
        );
        assert_eq!(fitted(&rows, usize::MAX, &[0, 1]), aligned(&rows));
    }
}
