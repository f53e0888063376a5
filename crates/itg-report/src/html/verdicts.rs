//! The two verdicts: on the traffic that was sent, and on what the network did to it.

use itg_stats::Report;
use itg_stats::fidelity::Verdict;
use itg_stats::gate::{Judgement, Outcome};
use maud::{Markup, html};

use crate::html::parts::{self, share, sign, time};
use crate::svg::axis::count;

/// Reasons that are listed one by one.
const REASONS: usize = 8;

/// Verdicts on the run: the generator's first, then the network's. A gate on the fidelity stands with the first.
pub(super) fn verdicts(report: &Report, gates: &[Outcome]) -> Markup {
    let (of_traffic, of_network): (Vec<&Outcome>, Vec<&Outcome>) =
        gates.iter().partition(|gate| gate.fidelity);
    html! {
        section aria-label="Verdicts" {
            div.verdicts { (traffic(report, &of_traffic)) (network(report, &of_network)) }
        }
    }
}

fn traffic(report: &Report, gates: &[&Outcome]) -> Markup {
    let fidelity = &report.total.metrics.fidelity;
    let verdict = fidelity.verdict;
    let sentence = match verdict {
        Verdict::Pass => "The traffic sent was the traffic asked for.",
        Verdict::Warn => "The traffic sent differs visibly from the traffic asked for.",
        Verdict::Fail => "The traffic sent was not the traffic asked for.",
        Verdict::NetworkLimited => {
            "The network took less than the traffic asked for; the generator had the packets ready."
        }
        Verdict::Unresolved => {
            "No difference was found, but the times in the logs are too coarse to tell."
        }
        Verdict::Unknown => "Whether the traffic sent was the traffic asked for is not known.",
    };
    let class = if gates.iter().all(|gate| gate.passed()) { verdict.name() } else { "fail" };
    html! {
        div class={ "verdict " (class) } {
            p.about { "Traffic as asked" }
            strong { (sign(verdict)) " " (verdict.name().to_uppercase()) }
            span { (sentence) }
            @if !fidelity.reasons.is_empty() {
                ul {
                    @for reason in fidelity.reasons.iter().take(REASONS) { li { (parts::named(report, reason)) } }
                    @if fidelity.reasons.len() > REASONS {
                        li { "and " (fidelity.reasons.len() - REASONS) " more: see the flows" }
                    }
                }
            }
            (list(gates))
        }
    }
}

/// The gates on what the network did; without any, what it did, which is not judged.
fn network(report: &Report, gates: &[&Outcome]) -> Markup {
    let m = &report.total.metrics;
    let failed = gates.iter().filter(|gate| !gate.passed()).count();
    let (class, word) = match (gates.is_empty(), failed) {
        (true, _) => ("unknown", "NOT JUDGED"),
        (false, 0) => ("pass", "✓ GATES"),
        (false, _) => ("fail", "✗ GATES"),
    };
    html! {
        div class={ "verdict " (class) } {
            p.about { "Network" }
            strong { (word) }
            @if gates.is_empty() {
                span { "There are no gates on it." }
                ul {
                    li {
                        "Lost: "
                        @match m.lost { Some(lost) => { (count(lost)) " packets, " (share(m.loss_share())) }, None => "not known" }
                    }
                    @if let Some(delay) = m.delay_ns.filter(|_| report.total.flows == 1) {
                        li { "Delay: median " (time(Some(delay.p50 as f64))) ", 99th percentile " (time(Some(delay.p99 as f64))) }
                    }
                    @if let Some(reordered) = m.reordered { li { "Reordered: " (count(reordered)) " packets" } }
                }
            } @else {
                span {
                    @if failed > 0 { (failed) " of " (gates.len()) " conditions for failure hold." }
                    @else if gates.len() == 1 { "The condition for failure does not hold." }
                    @else { "None of the " (gates.len()) " conditions for failure holds." }
                }
                (list(gates))
            }
        }
    }
}

fn list(gates: &[&Outcome]) -> Markup {
    html! {
        @if !gates.is_empty() { ul {
            @for gate in gates {
                li {
                    code { (gate.gate) } ": "
                    @match &gate.judgement {
                        Judgement::Passed { .. } => "does not hold",
                        Judgement::Failed { .. } => strong { "holds" },
                        Judgement::Unknown { .. } => strong { "cannot be judged" },
                        Judgement::Unsettled { .. } => "is not settled",
                    }
                    " – " (gate.sentence())
                }
            }
        } }
    }
}

#[cfg(test)]
mod tests {
    use itg_stats::{Analysis, Options};

    use super::*;

    fn outcome(fidelity: bool, failed: bool) -> Outcome {
        let words = "flow 1: loss is 3 %".to_owned();
        let judgement = match failed {
            true => Judgement::Failed { worst: words, times: 1, of: 1 },
            false => Judgement::Passed { closest: words },
        };
        Outcome { gate: "loss > 1%".to_owned(), fidelity, judgement }
    }

    #[test]
    fn one_verdict_is_never_red_for_the_other() {
        let report = Analysis::new(Options::default()).finish();
        for (traffic, network, want) in [
            (None, None, ["unknown", "unknown"]),
            (None, Some(true), ["unknown", "fail"]),
            (Some(true), None, ["fail", "unknown"]),
            (Some(true), Some(false), ["fail", "pass"]),
            (Some(false), Some(true), ["unknown", "fail"]),
        ] {
            let gates: Vec<Outcome> = [(true, traffic), (false, network)]
                .into_iter()
                .filter_map(|(fidelity, failed)| Some(outcome(fidelity, failed?)))
                .collect();
            let page = verdicts(&report, &gates).into_string();
            let found: Vec<&str> = page
                .split("class=\"verdict ")
                .skip(1)
                .filter_map(|text| text.split('"').next())
                .collect();
            assert_eq!(found, want, "{traffic:?} {network:?}: {page}");
            for name in ["Traffic as asked", "Network"] {
                assert_eq!(page.matches(&format!(">{name}</p>")).count(), 1, "{page}");
            }
        }
    }
}
