//! The two verdicts: on the traffic that was sent, and on what the network did to it.

use itg_stats::Report;
use itg_stats::fidelity::Verdict;
use itg_stats::gate::{Judgement, Outcome};
use maud::{Markup, html};

use crate::html::parts::{self, badge, share, sign, time};
use crate::svg::axis::count;

/// Reasons that are listed one by one.
const REASONS: usize = 8;
/// Heading of a card that is red for its gates.
const FAILED_GATES: &str = "✗ GATES";

/// Verdicts on the run: the generator's first, then the network's. A gate on the fidelity stands with the first.
/// With `allow_unknown` one whose figure is not known is no failure, as for the exit code.
pub(super) fn verdicts(report: &Report, gates: &[Outcome], allow_unknown: bool) -> Markup {
    let (of_traffic, of_network): (Vec<&Outcome>, Vec<&Outcome>) =
        gates.iter().partition(|gate| gate.fidelity);
    let [of_traffic, of_network] =
        [of_traffic, of_network].map(|list| Gates::of(list, allow_unknown));
    html! {
        section aria-label="Verdicts" {
            div.verdicts { (traffic(report, &of_traffic)) (network(report, &of_network)) }
        }
    }
}

/// Gates on the traffic, or on the network.
struct Gates<'a> {
    list: Vec<&'a Outcome>,
    /// Those whose condition holds.
    hold: usize,
    /// Those whose figure is not known.
    unknown: usize,
    /// True if the exit code tells of one.
    fail: bool,
}

impl<'a> Gates<'a> {
    fn of(list: Vec<&'a Outcome>, allow_unknown: bool) -> Self {
        let holds = |gate: &&&Outcome| matches!(gate.judgement, Judgement::Failed { .. });
        Self {
            hold: list.iter().filter(holds).count(),
            unknown: list.iter().filter(|gate| gate.is_unknown()).count(),
            fail: !list.iter().all(|gate| gate.is_fine(allow_unknown)),
            list,
        }
    }

    /// Number of gates that hold and of those that cannot be judged.
    fn sentence(&self) -> String {
        let all = self.list.len();
        let unknown = match self.unknown {
            0 => String::new(),
            1 if all == 1 => return "The condition for failure cannot be judged.".to_owned(),
            unknown => format!("; {unknown} cannot be judged"),
        };
        match (self.hold, all) {
            (0, 1) => "The condition for failure does not hold.".to_owned(),
            (0, _) => format!("None of the {all} conditions for failure holds{unknown}."),
            (1, 1) => "The condition for failure holds.".to_owned(),
            (hold, _) => format!("{hold} of {all} conditions for failure hold{unknown}."),
        }
    }
}

fn traffic(report: &Report, gates: &Gates<'_>) -> Markup {
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
    // A gate may be stricter than the verdict: then the card is the gate's, and the verdict stands below.
    let stricter = gates.fail && verdict != Verdict::Fail;
    let class = if stricter { "fail" } else { verdict.name() };
    html! {
        div class={ "verdict " (class) } {
            p.about { "Traffic as asked" }
            @if stricter {
                strong { (FAILED_GATES) }
                span { (gates.sentence()) " By itself: " (badge(verdict)) " " (sentence) }
            } @else {
                strong { (sign(verdict)) " " (verdict.name().to_uppercase()) }
                span { (sentence) }
            }
            @if !fidelity.reasons.is_empty() {
                ul {
                    @for reason in fidelity.reasons.iter().take(REASONS) { li { (parts::named(report, reason)) } }
                    @if fidelity.reasons.len() > REASONS {
                        li { "and " (fidelity.reasons.len() - REASONS) " more: see the flows" }
                    }
                }
            }
            (list(&gates.list))
        }
    }
}

/// The gates on what the network did; without any, what it did, which is not judged.
fn network(report: &Report, gates: &Gates<'_>) -> Markup {
    let m = &report.total.metrics;
    let (class, word) = match (gates.list.len(), gates.fail) {
        (0, _) => ("unknown", "NOT JUDGED"),
        (_, true) => ("fail", FAILED_GATES),
        (all, false) if gates.unknown == all => ("unknown", "? GATES"),
        (_, false) => ("pass", "✓ GATES"),
    };
    html! {
        div class={ "verdict " (class) } {
            p.about { "Network" }
            strong { (word) }
            @if gates.list.is_empty() {
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
                span { (gates.sentence()) }
                (list(&gates.list))
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
            let page = verdicts(&report, &gates, false).into_string();
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

    /// Class and heading of a card.
    fn heading(card: &str) -> (String, String) {
        let between = |from: &str, to: &str| {
            let rest = card.split_once(from).map_or("", |(_, rest)| rest);
            rest.split_once(to).map_or("", |(text, _)| text).to_owned()
        };
        (between("class=\"verdict ", "\""), between("<strong>", "</strong>"))
    }

    #[test]
    fn the_colour_the_heading_and_the_exit_code_say_the_same() {
        let mut report = Analysis::new(Options::default()).finish();
        report.total.metrics.fidelity.verdict = Verdict::Pass;
        let unknown = |fidelity| Outcome {
            judgement: Judgement::Unknown { reason: "flow 1: loss is not known".to_owned() },
            ..outcome(fidelity, false)
        };
        for fidelity in [false, true] {
            let card = |gate: Outcome, allow_unknown| {
                let gates = Gates::of(vec![&gate], allow_unknown);
                let card = match fidelity {
                    true => traffic(&report, &gates).into_string(),
                    false => network(&report, &gates).into_string(),
                };
                let (class, heading) = heading(&card);
                let fails = itg_stats::gate::exit_code(&[gate], allow_unknown).is_some();
                assert_eq!(class == "fail", fails, "{card}");
                assert_eq!(heading.starts_with('✗'), fails, "{card}");
                card
            };
            assert!(card(outcome(fidelity, true), false).contains("condition for failure holds."));
            card(outcome(fidelity, false), false);
            for allow_unknown in [false, true] {
                let card = card(unknown(fidelity), allow_unknown);
                assert!(!card.contains("hold."), "{card}");
                assert!(card.contains("cannot be judged"), "{card}");
            }
        }
    }
}
