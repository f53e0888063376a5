//! The flows that are drawn side by side, each with its name and its line.

use std::collections::{BTreeMap, BTreeSet};

use itg_stats::Report;
use itg_stats::plot::{Curves, Plots};
use itg_stats::report::FlowReport;

/// Lines that look different.
const LINES: [&str; 8] = ["l1", "l2", "l3", "l4", "l5", "l6", "l7", "l8"];

/// A flow in a plot of several.
#[derive(Debug)]
pub(super) struct NamedFlow<'a> {
    /// Its name, by [`names`].
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
    let names = names(&drawn().map(|(_, flow)| flow).collect::<Vec<_>>());
    let named = drawn().zip(names).zip(LINES);
    named
        .map(|(((drawn, _), name), class)| NamedFlow { name, class, curves: &drawn.curves })
        .collect()
}

/// Names of flows for a legend: with the number where a name stands for several, and with the run if there are several.
pub(super) fn names(flows: &[&FlowReport]) -> Vec<String> {
    let runs: BTreeSet<&str> = flows.iter().map(|flow| flow.run.as_str()).collect();
    let mut with_name: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for flow in flows {
        *with_name.entry((&flow.run, &flow.name)).or_default() += 1;
    }
    let name = |flow: &&FlowReport| {
        let repeats = with_name.get(&(flow.run.as_str(), flow.name.as_str())) > Some(&1);
        let numbered = repeats || flow.name == flow.flow.to_string();
        let name = if numbered { flow.title() } else { flow.name.clone() };
        let name = if flow.meter == Some("rtt") { format!("{name} (rtt)") } else { name };
        if runs.len() > 1 { format!("{name}, run {}", flow.run) } else { name }
    };
    flows.iter().map(name).collect()
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
    if flows >= all {
        "each flow".to_owned()
    } else {
        format!("{flows} of {all} flows, those that look worst")
    }
}
