//! Reports and comparisons as Markdown (GitHub's tables), for the summaries of CI systems: the gates first, a line
//! each, then a table.

use itg_core::text::visible;

use crate::compare::Comparison;
use crate::gate::{Judgement, Outcome, counted};
use crate::report::Report;
use crate::summary;

/// A report, with what the gates found.
#[must_use]
pub fn report(report: &Report, gates: &[Outcome]) -> String {
    let flows: Vec<_> = counted(report).collect();
    let mut out = of_gates(gates);
    out.push_str(&table(&summary::table(report, &flows)));
    let said = summary::said(report, &flows);
    if !said.is_empty() {
        out.push('\n');
        said.iter().for_each(|line| out.push_str(&format!("- {}\n", escaped(line))));
    }
    out
}

/// A comparison, with what the gates found: a row a figure whose interval leaves 0 out, and of all figures of the total.
#[must_use]
pub fn comparison(comparison: &Comparison, gates: &[Outcome]) -> String {
    let mut out = of_gates(gates);
    let head = ["flow", "figure", "A", "B", "B - A", "relative", "95 % interval of B - A", "clear"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for pairing in [&comparison.total].into_iter().chain(&comparison.flows) {
        let figures = pairing.figures.iter();
        for figure in figures.filter(|figure| pairing.flow.is_none() || figure.clear == Some(true))
        {
            let text =
                |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |v| figure.text(v));
            let relative = figure.relative.map(|relative| format!("{:+.2} %", 100.0 * relative));
            let interval =
                figure.interval.map(|ends| ends.map(|end| figure.text(end)).join(" to "));
            rows.push(vec![
                pairing.flow.map_or_else(|| "total".to_owned(), |flow| flow.to_string()),
                figure.metric.to_owned(),
                text(figure.a),
                text(figure.b),
                text(figure.difference),
                relative.unwrap_or_else(|| "-".to_owned()),
                interval.unwrap_or_else(|| "-".to_owned()),
                match figure.clear {
                    Some(true) => "yes",
                    Some(false) => "no",
                    None => "-",
                }
                .to_owned(),
            ]);
        }
    }
    out.push_str(&table(&rows));
    out.push_str(&format!("\nA: {}\n\nB: {}\n", escaped(&comparison.a), escaped(&comparison.b)));
    for notice in &comparison.notices {
        out.push_str(&format!("\n- {}\n", escaped(notice)));
    }
    out
}

/// The gates, a row each.
fn of_gates(gates: &[Outcome]) -> String {
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
fn table(rows: &[Vec<String>]) -> String {
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
fn escaped(text: &str) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_others_are_text() {
        for (text, want) in [
            ("a|b", "a\\|b"),
            ("<img src=x>", "&lt;img src=x>"),
            ("[x](http://y)", "\\[x\\](http://y)"),
            ("\u{1b}[2J", "\\\\u001b\\[2J"),
            ("`x` a_b", "\\`x\\` a\\_b"),
        ] {
            assert_eq!(escaped(text), want);
        }
    }

    #[test]
    fn a_table_has_a_head() {
        let rows = [vec!["a".to_owned(), "b".to_owned()], vec!["1".to_owned(), "x|y".to_owned()]];
        assert_eq!(table(&rows), "| a | b |\n| --- | --- |\n| 1 | x\\|y |\n");
    }
}
