//! The cases of a sweep beside each other, as one page.

use itg_compare::sweep::Table;
use maud::{Markup, html};

use crate::html::document::{drawings, whole};
use crate::svg;

/// The page.
#[must_use]
pub fn page(table: &Table, command: &str) -> String {
    let title = format!("Sweep: {}", table.name);
    let runs: u32 = table.cases.iter().map(|row| row.repetitions).sum();
    let charts = svg::of_sweep(table);
    let body = html! {
        header {
            h1 { (title) }
            p.sub { (table.cases.len()) " cases · " (runs) " runs" }
        }
        @if !charts.is_empty() {
            section aria-label="Plots" {
                h2 { "Plots" }
                (drawings(charts.iter().map(|(_, chart)| chart), "sweep"))
            }
        }
        section aria-label="Comparison" {
            h2 { "Comparison" }
            (comparison(table))
            @let failures = table.failures();
            @if !failures.is_empty() {
                div.notes.warn { ul { @for line in &failures { li { (line) } } } }
            }
        }
        h2 { "How to read this" }
        details open {
            summary { "What the columns mean" }
            dl.how {
                dt { "mean ± half" } dd { "Mean over the runs of a case, and half the width of its 95 % interval (Student's t). The interval tells what varies from run to run." }
                dt { "Whiskers" } dd { "The same interval. A case with one run has none." }
                dt { "Several cases" } dd { "An interval is that of one figure of one case: among twenty, one misses. Where a rule has chosen the number of runs it is a little too narrow when the runs are few." }
            }
        }
        h2 { "Doing it again" }
        pre { (command) }
    };
    whole(&title, &body)
}

fn comparison(table: &Table) -> Markup {
    html! {
        div.scroll {
            table {
                thead { tr {
                    @for name in &table.variables { th.t { (name) } }
                    th { "Runs" }
                    @if table.any_failed() { th { "Failed" } }
                    @for metric in &table.metrics { th { (metric.name) } }
                } }
                tbody {
                    @for row in &table.cases {
                        tr {
                            @for name in &table.variables {
                                td.t { (row.values.get(name).map_or("–", String::as_str)) }
                            }
                            td { (row.repetitions) }
                            @if table.any_failed() { td { (row.failed.len()) } }
                            @for (metric, cell) in table.metrics.iter().zip(&row.figures) {
                                td { (cell.text(metric.kind)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use itg_compare::sweep::{Run, Runs};
    use itg_stats::gate::Figure;

    use super::*;

    #[test]
    fn the_page_holds_every_case_and_escapes_what_it_shows() {
        let runs = |value: &str, loss: f64| Runs {
            case: format!("v={value}"),
            values: BTreeMap::from([("v".to_owned(), value.to_owned())]),
            runs: vec![
                Run {
                    figures: BTreeMap::from([("loss".to_owned(), Some(loss))]),
                    ..Run::default()
                };
                2
            ],
            repeated: vec!["<i>/1-failed-1".to_owned()],
        };
        let figures = [Figure::parse("loss").expect("known")];
        let cases = vec![runs("<b>", 0.25), runs("two", 0.5)];
        let table = Table::new("a & b", &["v".to_owned()], &figures, cases, false);
        let page = page(&table, "itg-cluster run x.toml");
        for want in [
            "Sweep: a &amp; b",
            "&lt;b&gt;",
            "25% ± 0%",
            "2 cases · 4 runs",
            "failed and repeated: 2 runs: &lt;i&gt;/1-failed-1",
            "<svg",
            "itg-cluster run x.toml",
        ] {
            assert!(page.contains(want), "{want}");
        }
        assert!(!page.contains("<b>"), "values are text");
    }
}
