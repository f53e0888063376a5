//! Gates: conditions under which a run counts as failed, such as `delay.p99 > 20ms`.
//!
//! ```text
//! GATE  = [SCOPE "."] METRIC OP VALUE
//! SCOPE = "total" | "flow" "." FLOW | FLOW      without one: any flow
//! FLOW  = the name of a flow in its experiment, or its number (behind "flow." only)
//! OP    = "<" | "<=" | ">" | ">=" | "==" | "!="
//! ```
//! A value has the unit of its metric: `20ms`, `0.1%`, `10Mbps`, `100pps`, `1500B`, `5`, `pass`. A share that was
//! written without a unit is repeated in percent: `loss > 0.1` is `loss > 10%`. Of a
//! flow with logs of both sides the entry that the total counts is judged. A gate is *failed* when the
//! condition holds for the total, for that flow, or for at least one flow. It is *unknown* when it
//! does not hold anywhere but somewhere the figure is not known, or when there is no flow: a run
//! that measured nothing must not pass by that.

use std::fmt;

use serde_json::Value;

pub use crate::kind::Kind;
use crate::report::{FlowReport, Metrics, Report};

mod figure;
mod metrics;

pub use figure::Figure;
use metrics::{Get, metric};

/// Text that is no gate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// No operator.
    #[error(
        "`{0}` is no gate: expected METRIC OP VALUE, such as `delay.p99 > 20ms` or `loss > 0.1%`"
    )]
    Shape(String),
    /// A name that is no metric.
    #[error("unknown metric `{name}`: {hint}")]
    Metric {
        /// As written.
        name: String,
        /// Metric that was probably meant, or those there are.
        hint: String,
    },
    /// A flow that is not named by a number.
    #[error(
        "`{0}` names no flow: expected flow.NAME.METRIC or flow.NUMBER.METRIC, such as flow.3.loss"
    )]
    Flow(String),
    /// A value that does not fit the metric.
    #[error("`{value}` does not fit {metric}: {reason}")]
    Value {
        /// The metric.
        metric: String,
        /// As written.
        value: String,
        /// Fault of the value.
        reason: String,
    },
    /// An order of verdicts.
    #[error("{metric} has no order: compare with == or !=")]
    Order {
        /// The metric.
        metric: String,
    },
}

/// Part of a report that is judged.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Scope {
    AnyFlow,
    /// The flows of this name or number.
    Flow(String),
    Total,
}

impl Scope {
    /// Returns true if a flow is meant by its name or number.
    fn names(flow: &FlowReport, asked: &str) -> bool {
        flow.name == asked || flow.flow.to_string() == asked
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Less,
    AtMost,
    More,
    AtLeast,
    Equal,
    Differs,
}

impl Op {
    /// Longer ones first.
    const ALL: [(&'static str, Self); 6] = [
        ("<=", Self::AtMost),
        (">=", Self::AtLeast),
        ("==", Self::Equal),
        ("!=", Self::Differs),
        ("<", Self::Less),
        (">", Self::More),
    ];

    #[allow(clippy::float_cmp, reason = "a condition says exactly what it says")]
    fn holds(self, value: f64, limit: f64) -> bool {
        match self {
            Self::Less => value < limit,
            Self::AtMost => value <= limit,
            Self::More => value > limit,
            Self::AtLeast => value >= limit,
            Self::Equal => value == limit,
            Self::Differs => value != limit,
        }
    }
}

/// A condition for failure.
#[derive(Clone, Debug)]
pub struct Gate {
    text: String,
    scope: Scope,
    metric: String,
    kind: Kind,
    get: Get,
    op: Op,
    limit: f64,
}

/// Outcome of a gate on a report.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The gate, as written; a share in percent.
    pub gate: String,
    /// True if it judges the fidelity of the traffic, and not the effect of the network on it.
    pub fidelity: bool,
    /// Judgement, with the figures behind it.
    pub judgement: Judgement,
}

/// Judgement of a gate, with the figures behind it.
#[derive(Clone, Debug, PartialEq)]
pub enum Judgement {
    /// The condition holds nowhere; the figure that came closest, where there is one.
    Passed {
        /// "total: delay.p99 is 3ms".
        closest: String,
    },
    /// The condition holds.
    Failed {
        /// "flow 3: delay.p99 is 23ms".
        worst: String,
        /// For how many flows; 1 for the total.
        times: u64,
        /// Of how many.
        of: u64,
    },
    /// The figure is not known.
    Unknown {
        /// "flow 3: delay.p99 is not known".
        reason: String,
    },
    /// The interval of a change does not tell whether the condition holds.
    Unsettled {
        /// "flow 3: delay.p99: 10ms, then 12ms; B - A 0.9ms to 3ms, the gate is at 1ms".
        reason: String,
    },
}

impl Outcome {
    /// Returns true if the condition is known to hold nowhere.
    #[must_use]
    pub const fn passed(&self) -> bool {
        matches!(self.judgement, Judgement::Passed { .. })
    }

    /// Returns true if the gate passed or is not settled, or could not be judged and that is allowed.
    #[must_use]
    pub const fn is_fine(&self, allow_unknown: bool) -> bool {
        let settled = !matches!(self.judgement, Judgement::Unsettled { .. });
        self.passed() || !settled || (allow_unknown && self.is_unknown())
    }

    /// Returns true if the figure was not known.
    #[must_use]
    pub const fn is_unknown(&self) -> bool {
        matches!(self.judgement, Judgement::Unknown { .. })
    }

    /// Outcome as a clause.
    #[must_use]
    pub fn sentence(&self) -> String {
        match &self.judgement {
            Judgement::Passed { closest } => closest.clone(),
            Judgement::Failed { worst, of: 1, .. } => worst.clone(),
            Judgement::Failed { worst, times, of } => {
                format!("{worst}; holds for {times} of {of} flows")
            }
            Judgement::Unknown { reason } | Judgement::Unsettled { reason } => reason.clone(),
        }
    }
}

/// Exit code of a program whose run failed a gate.
pub const GATE_FAILED: u8 = 99;
/// Exit code when all gates that failed judge the fidelity.
pub const FIDELITY_FAILED: u8 = 98;

/// The exit code that gates ask for; `None` when none failed. One that cannot be judged failed, unless
/// `allow_unknown`.
#[must_use]
pub fn exit_code(gates: &[Outcome], allow_unknown: bool) -> Option<u8> {
    let mut failed = gates.iter().filter(|gate| !gate.is_fine(allow_unknown)).peekable();
    failed.peek()?;
    Some(if failed.all(|gate| gate.fidelity) { FIDELITY_FAILED } else { GATE_FAILED })
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.judgement {
            Judgement::Passed { .. } => "passed",
            Judgement::Failed { .. } => "FAILED",
            Judgement::Unknown { .. } => "cannot be judged",
            Judgement::Unsettled { .. } => "is not settled",
        };
        write!(f, "gate `{}` {word}: {}", self.gate, self.sentence())
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl PartialEq for Gate {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl std::str::FromStr for Gate {
    type Err = GateError;

    fn from_str(text: &str) -> Result<Self, GateError> {
        Self::parse(text)
    }
}

impl Gate {
    /// Reads a gate.
    ///
    /// # Errors
    /// [`GateError`] names what is wrong.
    pub fn parse(text: &str) -> Result<Self, GateError> {
        let text = text.trim();
        let place = text.find(['<', '>', '=', '!']);
        let (left, rest) =
            place.map(|at| text.split_at(at)).ok_or_else(|| GateError::Shape(text.to_owned()))?;
        let found = Op::ALL.iter().find(|(sign, _)| rest.starts_with(sign));
        let &(sign, op) = found.ok_or_else(|| GateError::Shape(text.to_owned()))?;
        let value = rest[sign.len()..].trim();
        let (scope, name) = scope(left.trim())?;
        let (metric, kind, get) = metric(name)?;
        if kind == Kind::Verdict && !matches!(op, Op::Equal | Op::Differs) {
            return Err(GateError::Order { metric });
        }
        let limit = kind.parse(value).map_err(|reason| GateError::Value {
            metric: metric.clone(),
            value: value.to_owned(),
            reason,
        })?;
        // A share without a unit is often a percentage whose sign was forgotten: the user is shown what it is.
        let percent = kind.text(limit);
        let bare = kind == Kind::Share && limit != 0.0 && !value.ends_with('%');
        let text = match bare
            && kind.parse(&percent).is_ok_and(|again| again.to_bits() == limit.to_bits())
        {
            true => format!("{} {sign} {percent}", left.trim()),
            false => text.to_owned(),
        };
        Ok(Self { text, scope, metric, kind, get, op, limit })
    }

    /// The flow that is named, by its name or number.
    #[must_use]
    pub fn flow(&self) -> Option<&str> {
        match &self.scope {
            Scope::Flow(asked) => Some(asked),
            Scope::AnyFlow | Scope::Total => None,
        }
    }

    /// Judges a report.
    #[must_use]
    pub fn judge(&self, report: &Report) -> Outcome {
        let value = |metrics: &Metrics, entry: &dyn Fn() -> Value| self.get.of(metrics, entry);
        let of_flow = |flow: &FlowReport| (flow.title(), value(&flow.metrics, &|| json(flow)));
        let subjects: Vec<(String, Option<f64>)> = match &self.scope {
            Scope::Total => {
                let total = value(&report.total.metrics, &|| json(&report.total));
                vec![("total".to_owned(), total)]
            }
            Scope::AnyFlow => counted(report).map(of_flow).collect(),
            Scope::Flow(asked) => {
                counted(report).filter(|flow| Scope::names(flow, asked)).map(of_flow).collect()
            }
        };
        Outcome {
            gate: self.text.clone(),
            fidelity: self.metric.starts_with("fidelity")
                || self.metric.ends_with("_ks")
                || self.metric == "rate_error",
            judgement: self.over(&subjects),
        }
    }

    fn over(&self, subjects: &[(String, Option<f64>)]) -> Judgement {
        let clause = |name: &str, value: f64| {
            format!("{name}: {} is {}", self.metric, self.kind.text(value))
        };
        // The worst is the farthest on the wrong side, the closest the nearest to it.
        let mut extreme: Option<(f64, &str)> = None;
        let (mut times, mut unknown) = (0, None);
        let mut any = false;
        for (name, value) in subjects {
            let Some(value) = *value else {
                unknown = unknown.or(Some(name));
                continue;
            };
            let holds = self.op.holds(value, self.limit);
            times += u64::from(holds);
            let farther = match self.op {
                Op::Less | Op::AtMost => extreme.is_none_or(|(so_far, _)| value < so_far),
                _ => extreme.is_none_or(|(so_far, _)| value > so_far),
            };
            // Once the condition holds somewhere, only such figures are of interest.
            if (holds && !any) || (holds == any && farther) {
                extreme = Some((value, name));
            }
            any |= holds;
        }
        match (extreme, unknown) {
            (Some((value, name)), _) if any => {
                Judgement::Failed { worst: clause(name, value), times, of: subjects.len() as u64 }
            }
            (_, Some(name)) => {
                Judgement::Unknown { reason: format!("{name}: {} is not known", self.metric) }
            }
            (Some((value, name)), None) => Judgement::Passed { closest: clause(name, value) },
            (None, None) => Judgement::Unknown { reason: "there is no such flow".to_owned() },
        }
    }
}

/// The scope of a name, and the name of the metric.
fn scope(name: &str) -> Result<(Scope, &str), GateError> {
    if let Some(metric) = name.strip_prefix("total.") {
        return Ok((Scope::Total, metric));
    }
    // Names of flows may hold points: what follows the name is a metric.
    let ends = |rest: &str| {
        let mut points = rest.match_indices('.').map(|(at, _)| at);
        points.find(|&at| metric(&rest[at + 1..]).is_ok())
    };
    if let Some(rest) = name.strip_prefix("flow.") {
        let at = ends(rest).or_else(|| rest.find('.')).filter(|&at| at > 0);
        let at = at.ok_or_else(|| GateError::Flow(name.to_owned()))?;
        return Ok((Scope::Flow(rest[..at].to_owned()), &rest[at + 1..]));
    }
    match ends(name).filter(|&at| at > 0 && metric(name).is_err()) {
        Some(at) => Ok((Scope::Flow(name[..at].to_owned()), &name[at + 1..])),
        None => Ok((Scope::AnyFlow, name)),
    }
}

/// Kind of the metric of this name, where gates know it.
#[must_use]
pub fn kind_of(metric_name: &str) -> Option<Kind> {
    metric(metric_name).ok().map(|(_, kind, _)| kind)
}

/// An entry of a report as JSON.
fn json(entry: &impl serde::Serialize) -> Value {
    // Every key is a text, and every figure has a JSON form.
    serde_json::to_value(entry).unwrap_or(Value::Null)
}

/// The entries that the total counts: the first of those of one flow and run.
pub(crate) fn counted(report: &Report) -> impl Iterator<Item = &FlowReport> {
    let mut before: Option<(u32, &str)> = None;
    report.flows.iter().filter(move |flow| {
        let key = (flow.flow, flow.run.as_str());
        before.replace(key) != Some(key)
    })
}
