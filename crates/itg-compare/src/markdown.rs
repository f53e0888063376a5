//! Comparisons as Markdown, for the summaries of CI systems.

use itg_stats::gate::Outcome;
use itg_stats::markdown::{escaped, outcomes, table};

use crate::comparison::Comparison;

/// A comparison, with what the gates found: a row a figure whose interval leaves 0 out, and of all figures of the total.
#[must_use]
pub fn comparison(comparison: &Comparison, gates: &[Outcome]) -> String {
    let mut out = outcomes(gates);
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
