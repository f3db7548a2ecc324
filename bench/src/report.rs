//! The table for people, and the file for programs.

use std::path::Path;

use serde_json::{Value, json};

use crate::Result;
use crate::goals::{Bound, Cell, Goal, P50, P99, RATE, Results, median};
use crate::plot;
use crate::sample::Sample;

/// Prints what was seen, and which goals are met.
pub(crate) fn print(results: &Results) {
    if !results.cells.is_empty() {
        println!();
        println!(
            "{:<28} {:>7} {:>10} {:>17} {:>10} {:>10}",
            "lock cycles", "callers", "median/s", "least–most", "p50 us", "p99 us"
        );
    }
    for cell in &results.cells {
        let rates = cell.counted(RATE);
        println!(
            "{:<28} {:>7} {:>10.0} {:>17} {:>10.1} {:>10.1}",
            cell.who,
            cell.callers,
            median(&rates),
            format!("{:.0}–{:.0}", least(&rates), most(&rates)),
            median(&cell.counted(P50)),
            median(&cell.counted(P99)),
        );
    }
    for (what, figures) in &results.figures {
        for figure in figures {
            println!("{what:<28} {figure}");
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
        goal.what,
        goal.median(),
        least(&goal.runs),
        most(&goal.runs),
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
                "what": goal.what,
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
        .map(|(what, runs)| json!({ "what": what, "runs": runs }))
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
        "who": cell.who,
        "callers": cell.callers,
        "rate": cell.all(|sample| sample.rate.round()),
        "p50_us": cell.all(P50),
        "p99_us": cell.all(P99),
        "taken": cell.all(|sample| sample.taken),
    })
}

impl Cell {
    pub(crate) fn all(&self, of: fn(&Sample) -> f64) -> Vec<f64> {
        self.samples.iter().map(of).collect()
    }
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}
