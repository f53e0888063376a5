//! Reports as Markdown (GitHub's tables), for the summaries of CI systems: the gates first, a line
//! each, then a table.

use itg_core::text::visible;

use crate::gate::{Judgement, Outcome, counted};
use crate::report::Report;
use crate::summary;

/// A report, with what the gates found.
#[must_use]
pub fn report(report: &Report, gates: &[Outcome]) -> String {
    let flows: Vec<_> = counted(report).collect();
    let mut out = outcomes(gates);
    out.push_str(&table(&summary::table(report, &flows)));
    let said = summary::said(report, &flows);
    if !said.is_empty() {
        out.push('\n');
        said.iter().for_each(|line| out.push_str(&format!("- {}\n", escaped(line))));
    }
    out
}

/// The outcomes of gates, a row each; empty without gates.
#[must_use]
pub fn outcomes(gates: &[Outcome]) -> String {
    if gates.is_empty() {
        return String::new();
    }
    let mut rows = vec![["result", "fails if", "found"].map(str::to_owned).to_vec()];
    for gate in gates {
        let result = match gate.judgement {
            Judgement::Passed { .. } => "passed",
            Judgement::Failed { .. } => "**FAILED**",
            Judgement::Unsettled { .. } => "not settled",
            Judgement::Unknown { .. } => "**not known**",
        };
        rows.push(vec![result.to_owned(), gate.gate.clone(), gate.sentence()]);
    }
    table(&rows) + "\n"
}

/// A table, the first row being its head. Cells hold what they are given, but for the marks of the results above.
#[must_use]
pub fn table(rows: &[Vec<String>]) -> String {
    let mut out = String::new();
    for (place, row) in rows.iter().enumerate() {
        let cells: Vec<_> = row.iter().map(|cell| escaped(cell)).collect();
        out.push_str(&format!("| {} |\n", cells.join(" | ")));
        if place == 0 {
            out.push_str(&format!("|{}\n", " --- |".repeat(row.len())));
        }
    }
    out
}

/// A text that Markdown shows as it is: names come from files of others.
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in visible(text).chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '&' => out.push_str("&amp;"),
            '|' | '`' | '[' | ']' | '_' | '\\' | '~' => {
                out.push('\\');
                out.push(c);
            }
            _ => out.push(c),
        }
    }
    out
}
