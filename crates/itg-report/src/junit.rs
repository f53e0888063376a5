//! Results of gates as JUnit XML, for what shows tests.

use itg_stats::Report;
use itg_stats::fidelity::Verdict;
use itg_stats::gate::{Judgement, Outcome};
use itg_stats::report::FlowReport;
use maud::html as markup;

use crate::svg::printable;

/// Outcome of a test that did not pass.
enum Short {
    Failure(String),
    Skipped(String),
}

/// The gates as test cases, which took so many nanoseconds.
#[must_use]
pub fn junit(gates: &[Outcome], allow_unknown: bool, duration_ns: u64) -> String {
    let case = |gate: &Outcome| {
        let short = match &gate.judgement {
            Judgement::Passed { .. } => None,
            Judgement::Unsettled { .. } => Some(Short::Skipped(gate.sentence())),
            Judgement::Unknown { .. } if allow_unknown => Some(Short::Skipped(gate.sentence())),
            Judgement::Unknown { .. } | Judgement::Failed { .. } => {
                Some(Short::Failure(gate.sentence()))
            }
        };
        (format!("not {}", gate.gate), short)
    };
    text(&gates.iter().map(case).collect::<Vec<_>>(), duration_ns)
}

/// The fidelity of each entry of a report as a test case.
#[must_use]
pub fn junit_of_fidelity(report: &Report) -> String {
    let case = |flow: &FlowReport| {
        let fidelity = &flow.metrics.fidelity;
        let reasons = fidelity.reasons.join("; ");
        let short = match fidelity.verdict {
            Verdict::Fail => Some(Short::Failure(reasons)),
            Verdict::Unknown => Some(Short::Skipped("the fidelity is not known".to_owned())),
            Verdict::Unresolved => Some(Short::Skipped(reasons)),
            Verdict::Pass | Verdict::Warn | Verdict::NetworkLimited => None,
        };
        (format!("flow {} ({}): fidelity", flow.flow, flow.side), short)
    };
    let cases: Vec<_> = report.flows.iter().map(case).collect();
    text(&cases, report.total.metrics.duration_ns)
}

fn text(cases: &[(String, Option<Short>)], duration_ns: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "to the microsecond")]
    let seconds = format!("{:.6}", duration_ns as f64 / 1e9);
    let shorts = || cases.iter().filter_map(|(_, short)| short.as_ref());
    let failures = shorts().filter(|short| matches!(short, Short::Failure(_))).count();
    let skipped = shorts().count() - failures;
    let xml = markup! {
        testsuites tests=(cases.len()) failures=(failures) {
            testsuite name="itg" tests=(cases.len()) failures=(failures) errors="0" skipped=(skipped) time=(seconds) {
                @for (name, short) in cases {
                    testcase classname="itg" name=(name) time="0" {
                        @match short {
                            Some(Short::Failure(why)) => failure message=(why) { (why) },
                            Some(Short::Skipped(why)) => skipped message=(why) {},
                            None => {}
                        }
                    }
                }
            }
        }
    };
    let xml = printable(&xml.into_string());
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{xml}\n")
}
