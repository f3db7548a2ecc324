//! The results as a table and as files.

use std::path::Path;

use serde_json::{Value, json};

use crate::Result;
use crate::goals::{Bound, Cell, Goal, P50, P99, RATE, Results, median};
use crate::plot;
use crate::sample::Sample;

/// Prints the measurements, and which goals are met.
pub(crate) fn print(results: &Results) {
    if !results.cells.is_empty() {
        println!();
        println!(
            "{:<28} {:>7} {:>10} {:>17} {:>10} {:>10}",
            "lock cycles", "callers", "median/s", "min–max", "p50 us", "p99 us"
        );
    }
    for cell in &results.cells {
        let rates = cell.quiet_values(RATE);
        println!(
            "{:<28} {:>7} {:>10.0} {:>17} {:>10.1} {:>10.1}",
            cell.contestant,
            cell.callers,
            median(&rates),
            format!("{:.0}–{:.0}", min(&rates), max(&rates)),
            median(&cell.quiet_values(P50)),
            median(&cell.quiet_values(P99)),
        );
    }
    for (label, figures) in &results.figures {
        for figure in figures {
            println!("{label:<28} {figure}");
        }
    }
    println!();
    for goal in results.goals() {
        println!("{}", line(&goal));
    }
}

fn line(goal: &Goal) -> String {
    let (sign, bound) = match goal.bound {
        Bound::AtLeast(bound) => ('≥', bound),
        Bound::AtMost(bound) => ('≤', bound),
    };
    let verdict = if goal.is_met() { "met" } else { "MISSED" };
    format!(
        "{:>2}  {:<62} {:>7.2}  ({:.2}–{:.2})  {sign} {bound}  {verdict}",
        goal.row,
        goal.description,
        goal.median(),
        min(&goal.runs),
        max(&goal.runs),
    )
}

/// Writes `results.json` and `results.svg`.
pub(crate) fn write(results: &Results, folder: &Path) -> Result<()> {
    let cells: Vec<Value> = results.cells.iter().map(cell).collect();
    let goals: Vec<Value> = results
        .goals()
        .iter()
        .map(|goal| {
            json!({
                "row": goal.row,
                "what": goal.description,
                "bound": goal.bound,
                "runs": goal.runs,
                "median": goal.median(),
                "met": goal.is_met(),
            })
        })
        .collect();
    let figures: Vec<Value> = results
        .figures
        .iter()
        .map(|(label, runs)| json!({ "what": label, "runs": runs }))
        .collect();
    let document = json!({ "goals": goals, "cycles": cells, "figures": figures });
    let mut text = serde_json::to_string_pretty(&document)?;
    text.push('\n');
    std::fs::write(folder.join("results.json"), text)?;
    std::fs::write(folder.join("results.svg"), plot::draw(results))?;
    Ok(())
}

fn cell(cell: &Cell) -> Value {
    json!({
        "who": cell.contestant,
        "callers": cell.callers,
        "rate": cell.values(|sample| sample.rate.round()),
        "p50_us": cell.values(P50),
        "p99_us": cell.values(P99),
        "taken": cell.values(|sample| sample.steal),
    })
}

impl Cell {
    pub(crate) fn values(&self, value: fn(&Sample) -> f64) -> Vec<f64> {
        self.samples.iter().map(value).collect()
    }
}

fn min(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

fn max(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}
