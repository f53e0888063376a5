//! The flows that are drawn side by side, each with its name and its line.

use std::collections::BTreeSet;

use itg_stats::Report;
use itg_stats::plot::{Curves, Plots};

/// Lines that look different.
const LINES: [&str; 8] = ["l1", "l2", "l3", "l4", "l5", "l6", "l7", "l8"];

/// A flow in a plot of several.
#[derive(Debug)]
pub(super) struct NamedFlow<'a> {
    /// Its name, with its run where flows of several runs have the same.
    pub(super) name: String,
    /// Class of its line.
    pub(super) class: &'static str,
    pub(super) curves: &'a Curves,
}

/// The flows that are drawn one by one, as many as there are lines.
pub(super) fn named<'a>(report: &Report, plots: &'a Plots) -> Vec<NamedFlow<'a>> {
    let drawn = || {
        let flows =
            plots.flows.iter().filter_map(|drawn| Some((drawn, report.flows.get(drawn.place)?)));
        flows.take(LINES.len())
    };
    let runs: BTreeSet<&str> = drawn().map(|(_, flow)| flow.run.as_str()).collect();
    drawn()
        .zip(LINES)
        .map(|((drawn, flow), class)| {
            let number = flow.flow.to_string();
            let name =
                if flow.name == number { format!("flow {number}") } else { flow.name.clone() };
            let name = if flow.meter == Some("rtt") { format!("{name} (rtt)") } else { name };
            let name = if runs.len() > 1 { format!("{name}, run {}", flow.run) } else { name };
            NamedFlow { name, class, curves: &drawn.curves }
        })
        .collect()
}

/// Words for them together: "all flows", or so many of all.
pub(super) fn words(flows: &[NamedFlow<'_>], all: usize) -> String {
    if flows.len() >= all {
        "all flows".to_owned()
    } else {
        format!("the {} of {all} flows that look worst", flows.len())
    }
}

/// Words for them in a title: "each flow", or so many of all.
pub(super) fn title(flows: usize, all: usize) -> String {
    if flows >= all { "each flow".to_owned() } else { format!("{flows} flows of {all}") }
}
