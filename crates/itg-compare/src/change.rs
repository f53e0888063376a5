//! Gates on a comparison: conditions on the change from A to B under which a run counts as failed, such as
//! `delay.p99 > +10%`.
//!
//! ```text
//! GATE   = [SCOPE "."] METRIC OP CHANGE
//! SCOPE  = "total" | "flow" "." NUMBER | NUMBER     without one: any flow
//! OP     = "<" | "<=" | ">" | ">="
//! CHANGE = ("+" | "-") (SHARE "%" | VALUE)          a share of the value in A, or a value with the unit of the metric
//! ```
//! The interval decides: a gate is *failed* when the 95 % interval of B − A lies beyond the change as a whole, *passed*
//! when it does not reach beyond it, and *not settled* when the change lies within it, or when there is no interval.
//! A change that is not settled is told and does not fail. A figure that one of the runs does not know is *unknown*, and
//! so is every figure where the traffic of one of the runs failed.

use std::fmt;
use std::str::FromStr;

use itg_core::text::suggestion;
use itg_stats::gate::{Judgement, Kind, Outcome, kind_of};

use crate::comparison::{Comparison, Difference, Pairing};
use crate::figures::FIGURES;
use crate::text::cells;

/// A condition on a change.
#[derive(Clone, Debug, PartialEq)]
pub struct ChangeGate {
    text: String,
    scope: Scope,
    metric: &'static str,
    more: bool,
    change: Change,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    Any,
    Total,
    Flow(u32),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    /// Of the magnitude of the value in A.
    Share(f64),
    /// In the unit of the metric.
    Value(f64),
}

/// A text that is no gate on a change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeGateError {
    /// No operator, or no sign.
    #[error(
        "`{0}` is no gate of a comparison: expected METRIC OP CHANGE with a sign, such as `delay.p99 > +10%` or \
         `bitrate < -1Mbps`"
    )]
    Shape(String),
    /// A name that is no figure of comparisons.
    #[error("unknown figure `{name}`: {hint}")]
    Figure {
        /// As written.
        name: String,
        /// Figure that was probably meant.
        hint: String,
    },
    /// A change that does not fit.
    #[error("`{value}` does not fit {metric}: {reason}")]
    Value {
        /// The figure.
        metric: &'static str,
        /// As written.
        value: String,
        /// Fault of the value.
        reason: String,
    },
}

impl FromStr for ChangeGate {
    type Err = ChangeGateError;

    fn from_str(text: &str) -> Result<Self, ChangeGateError> {
        let text = text.trim();
        let shape = || ChangeGateError::Shape(text.to_owned());
        let at = text.find(['<', '>']).ok_or_else(shape)?;
        let (left, rest) = text.split_at(at);
        let more = rest.starts_with('>');
        let value = rest[1..].trim_start_matches('=').trim();
        let (scope, name) = scope(left.trim()).ok_or_else(shape)?;
        let found = FIGURES.iter().find(|(known, ..)| *known == name);
        let Some(&(metric, ..)) = found else {
            let hint = suggestion(name, FIGURES.map(|(name, ..)| name));
            return Err(ChangeGateError::Figure { name: name.to_owned(), hint });
        };
        let (sign, size) = match (value.strip_prefix('+'), value.strip_prefix('-')) {
            (Some(size), _) => (1.0, size.trim()),
            (_, Some(size)) => (-1.0, size.trim()),
            _ => return Err(shape()),
        };
        let wrong =
            |reason: String| ChangeGateError::Value { metric, value: value.to_owned(), reason };
        let change = match size.strip_suffix('%') {
            Some(percent) => {
                let percent = percent.trim().parse::<f64>().ok().filter(|share| share.is_finite());
                let percent = percent.ok_or_else(|| wrong(format!("no number in `{size}`")))?;
                Change::Share(sign * percent / 100.0)
            }
            None => Change::Value(sign * kind(metric).parse(size).map_err(wrong)?),
        };
        Ok(Self { text: text.to_owned(), scope, metric, more, change })
    }
}

/// The kind of a figure of comparisons, which gates know, too.
fn kind(name: &str) -> Kind {
    kind_of(name).unwrap_or(Kind::Number)
}

/// The scope of a name, and the name of the figure.
fn scope(name: &str) -> Option<(Scope, &str)> {
    if let Some(figure) = name.strip_prefix("total.") {
        return Some((Scope::Total, figure));
    }
    let rest = name.strip_prefix("flow.");
    let named = rest.unwrap_or(name).split_once('.');
    match named.and_then(|(number, figure)| Some((number.parse().ok()?, figure))) {
        Some((number, figure)) => Some((Scope::Flow(number), figure)),
        None if rest.is_some() => None,
        None => Some((Scope::Any, name)),
    }
}

impl fmt::Display for ChangeGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Finding of one figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Finding {
    Passed,
    NotSettled,
    Unknown,
    Failed,
}

impl ChangeGate {
    /// Judges a comparison.
    #[must_use]
    pub fn judge(&self, comparison: &Comparison) -> Outcome {
        let judgement = match comparison.failed[..] {
            [] => self.weigh(comparison),
            ["a"] => Judgement::Unknown { reason: "the traffic of A failed".to_owned() },
            ["b"] => Judgement::Unknown { reason: "the traffic of B failed".to_owned() },
            _ => Judgement::Unknown { reason: "the traffic of both runs failed".to_owned() },
        };
        Outcome { gate: self.text.clone(), fidelity: false, judgement }
    }

    fn weigh(&self, comparison: &Comparison) -> Judgement {
        let pairings: Vec<&Pairing> = match self.scope {
            Scope::Any => comparison.flows.iter().collect(),
            Scope::Total => vec![&comparison.total],
            Scope::Flow(number) => {
                comparison.flows.iter().filter(|flow| flow.flow == Some(number)).collect()
            }
        };
        let of = pairings.len() as u64;
        let mut times = 0;
        let mut worst: Option<(Finding, String)> = None;
        for pairing in pairings {
            let figures = pairing.figures.iter();
            let Some(figure) = figures.clone().find(|figure| figure.metric == self.metric) else {
                continue;
            };
            let (finding, told) = self.of_figure(figure);
            times += u64::from(finding == Finding::Failed);
            if worst.as_ref().is_none_or(|(so_far, _)| finding > *so_far) {
                let subject =
                    pairing.flow.map_or_else(|| "total".to_owned(), |n| format!("flow {n}"));
                worst = Some((finding, format!("{subject}: {}: {told}", self.metric)));
            }
        }
        let none = || (Finding::Unknown, "there is no such flow in both runs".to_owned());
        match worst.unwrap_or_else(none) {
            (Finding::Passed, closest) => Judgement::Passed { closest },
            (Finding::NotSettled, reason) => Judgement::Unsettled { reason },
            (Finding::Unknown, reason) => Judgement::Unknown { reason },
            (Finding::Failed, worst) => Judgement::Failed { worst, times, of },
        }
    }

    fn of_figure(&self, figure: &Difference) -> (Finding, String) {
        let [a, b] = cells(figure, [figure.a, figure.b]);
        let values = format!("{a}, then {b}");
        let (Some(size), Some(_)) = (figure.a, figure.difference) else {
            return (Finding::Unknown, format!("{values}: the change is not known"));
        };
        let limit = match self.change {
            Change::Share(share) => share * size.abs(),
            Change::Value(value) => value,
        };
        let Some([low, high]) = figure.interval else {
            return (Finding::NotSettled, format!("{values}: no interval for this figure"));
        };
        let [a, b, from, to, at] =
            cells(figure, [figure.a, figure.b, Some(low), Some(high), Some(limit)]);
        let told = format!("{a}, then {b}; B - A {from} to {to}, the gate is at {at}");
        let finding = match self.more {
            true if low > limit => Finding::Failed,
            true if high <= limit => Finding::Passed,
            false if high < limit => Finding::Failed,
            false if low >= limit => Finding::Passed,
            _ => Finding::NotSettled,
        };
        (finding, told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::Resampling;

    fn figure(a: Option<f64>, b: Option<f64>, interval: Option<[f64; 2]>) -> Difference {
        Difference {
            metric: "delay.p99",
            unit: "ns",
            a,
            b,
            difference: a.zip(b).map(|(a, b)| b - a),
            relative: None,
            interval,
            clear: None,
        }
    }

    fn compared(figures: Vec<Difference>) -> Comparison {
        let pairing = |(flow, figure): (u32, Difference)| Pairing {
            flow: Some(flow),
            figures: vec![figure],
            delay: None,
        };
        Comparison {
            schema: 1,
            a: String::new(),
            b: String::new(),
            resampling: Resampling::default(),
            total: Pairing { flow: None, figures: figures.clone(), delay: None },
            flows: (1..).zip(figures).map(pairing).collect(),
            only_a: Vec::new(),
            only_b: Vec::new(),
            failed: Vec::new(),
            notices: Vec::new(),
        }
    }

    #[test]
    fn the_interval_decides() {
        let ms = |low: f64, high: f64| Some([low * 1e6, high * 1e6]);
        let of = |interval| figure(Some(10e6), Some(12e6), interval);
        for (gate, tested, want) in [
            ("delay.p99 > +10%", of(ms(1.1, 3.0)), "FAILED: flow 1: delay.p99: 10ms, then 12ms"),
            ("delay.p99 > +10%", of(ms(0.9, 3.0)), "is not settled: flow 1"),
            ("delay.p99 > +30%", of(ms(1.0, 3.0)), "passed: flow 1"),
            ("delay.p99 > +1ms", of(ms(1.1, 3.0)), "FAILED"),
            ("delay.p99 < -10%", of(ms(-3.0, -1.1)), "FAILED"),
            ("delay.p99 < -10%", of(ms(-3.0, -0.9)), "is not settled"),
            ("delay.p99 < -10%", of(ms(-0.5, 3.0)), "passed"),
            (
                "delay.p99 > +10%",
                of(None),
                "is not settled: flow 1: delay.p99: 10ms, then 12ms: no interval",
            ),
            ("delay.p99 > +10%", figure(Some(1.0), None, None), "cannot be judged"),
            (
                "flow.2.delay.p99 > +10%",
                of(ms(1.1, 3.0)),
                "cannot be judged: there is no such flow",
            ),
            ("total.delay.p99 > +10%", of(ms(1.1, 3.0)), "FAILED: total"),
            ("1.delay.p99 > +10%", of(ms(1.1, 3.0)), "FAILED: flow 1"),
        ] {
            let outcome = gate.parse::<ChangeGate>().expect(gate).judge(&compared(vec![tested]));
            let got = outcome.to_string();
            let got = got.strip_prefix(&format!("gate `{gate}` ")).expect("its name");
            assert!(got.starts_with(want), "{gate}: {got}");
            assert_eq!(
                outcome.is_fine(false),
                !want.starts_with("FAILED") && !want.starts_with("cannot")
            );
        }
    }

    #[test]
    fn a_run_whose_traffic_failed_is_not_judged() {
        let gate: ChangeGate = "delay.p99 > +10%".parse().expect("a gate");
        let figure = figure(Some(10e6), Some(12e6), Some([1.1e6, 3e6]));
        for (failed, want) in [
            (vec!["a"], "the traffic of A failed"),
            (vec!["b"], "the traffic of B failed"),
            (vec!["a", "b"], "the traffic of both runs failed"),
        ] {
            let comparison = Comparison { failed, ..compared(vec![figure.clone()]) };
            let outcome = gate.judge(&comparison);
            let told = format!("gate `delay.p99 > +10%` cannot be judged: {want}");
            assert_eq!(outcome.to_string(), told);
            assert!(!outcome.is_fine(false) && outcome.is_fine(true));
        }
    }

    #[test]
    fn the_worst_flow_is_told() {
        let interval = |low: f64| Some([low, low + 1e5]);
        let figures = [0.0, 2e6, 0.9e6].map(|low| figure(Some(10e6), Some(11e6), interval(low)));
        let gate: ChangeGate = "delay.p99 > +1ms".parse().expect("a gate");
        let text = gate.judge(&compared(figures.to_vec())).to_string();
        assert!(
            text.contains("FAILED: flow 2") && text.ends_with("holds for 1 of 3 flows"),
            "{text}"
        );
    }

    #[test]
    fn mistakes_are_named() {
        for (text, want) in [
            ("delay.p99", "is no gate of a comparison"),
            ("delay.p99 > 10%", "is no gate of a comparison"),
            ("delay.p99 == +10%", "is no gate of a comparison"),
            ("flow.x.loss > +1%", "is no gate of a comparison"),
            ("delay.p98 > +10%", "unknown figure `delay.p98`: did you mean `delay.p9"),
            ("delay.p99 > +ten%", "does not fit delay.p99: no number"),
            ("delay.p99 > +10", "`+10` does not fit delay.p99"),
            ("bitrate < -10pps", "expected bits per second"),
        ] {
            let error = text.parse::<ChangeGate>().expect_err(text).to_string();
            assert!(error.contains(want), "{text}: {error}");
        }
    }
}
