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

use itg_core::units::{
    Rate, format_bit_rate, format_bytes, format_duration_ns, parse_bytes, parse_count,
    parse_duration_ns,
};

use serde_json::Value;

use crate::fidelity::Verdict;
use crate::report::{FlowReport, Metrics, Report};

mod figure;
mod metrics;

pub use figure::Figure;
pub use metrics::metrics;
use metrics::{Get, metric, rank};

/// Kind of a metric: the unit of its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nanoseconds; written with a unit.
    Time,
    /// A share from 0 to 1; written as such or in percent.
    Share,
    /// Bits per second.
    BitRate,
    /// Packets per second.
    PacketRate,
    /// Bytes.
    Size,
    /// A whole number.
    Count,
    /// A plain number.
    Number,
    /// `pass`, `warn`, `fail`, `network-limited`, `unresolved` or `unknown`.
    Verdict,
}

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

impl Kind {
    /// Kind of the metric of this name, where gates know it.
    #[must_use]
    pub fn of(metric_name: &str) -> Option<Self> {
        metric(metric_name).ok().map(|(_, kind, _)| kind)
    }

    /// Reads a value of this kind, with its unit.
    ///
    /// # Errors
    /// The text is no such value: the reason in words.
    pub fn parse(self, text: &str) -> Result<f64, String> {
        let number = |text: &str| -> Result<f64, String> {
            let number = text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
            number.ok_or_else(|| format!("no number in `{text}`"))
        };
        match self {
            Self::Time => {
                parse_duration_ns(text).map(|ns| ns as f64).map_err(|error| error.to_string())
            }
            Self::Share => match text.strip_suffix('%') {
                // Rounded once, so that 0.7% is 0.007.
                Some(percent) => number(&format!("{}e-2", percent.trim()))
                    .or_else(|_| number(percent).map(|percent| percent / 100.0)),
                None => number(text),
            },
            Self::BitRate => match zero_or_rate(text)? {
                None => Ok(0.0),
                Some(Rate::Bits(rate)) => Ok(rate.0 as f64),
                Some(Rate::Packets(_)) => {
                    Err("expected bits per second, such as 10Mbps".to_owned())
                }
            },
            Self::PacketRate => match zero_or_rate(text)? {
                None => Ok(0.0),
                Some(Rate::Packets(rate)) => Ok(rate),
                Some(Rate::Bits(_)) => {
                    Err("expected packets per second, such as 100pps".to_owned())
                }
            },
            Self::Size => {
                parse_bytes(text).map(|bytes| bytes.0 as f64).map_err(|error| error.to_string())
            }
            Self::Count => {
                parse_count(text).map(|count| count as f64).map_err(|error| error.to_string())
            }
            // Numbers of the report that are counts are written as such, too.
            Self::Number => {
                number(text).or_else(|why| parse_count(text).map(|n| n as f64).map_err(|_| why))
            }
            Self::Verdict => {
                let verdict = Verdict::ALL.into_iter().find(|verdict| verdict.name() == text);
                let found = verdict.map(rank);
                found.ok_or_else(|| {
                    "expected pass, warn, fail, network-limited, unresolved or unknown".to_owned()
                })
            }
        }
    }

    /// The unit of its values in machine-readable forms.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Time => "ns",
            Self::BitRate => "bit/s",
            Self::PacketRate => "packets/s",
            Self::Size => "bytes",
            Self::Share | Self::Count | Self::Number | Self::Verdict => "1",
        }
    }

    /// A value for people, with its unit.
    #[must_use]
    pub fn text(self, value: f64) -> String {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "conversions saturate; figures of reports are far from that"
        )]
        let magnitude = value.abs().round() as u64;
        let sign = if value < 0.0 && magnitude > 0 { "-" } else { "" };
        match self {
            Self::Time => {
                // To five digits.
                let grain = 10u64.pow(magnitude.max(1).ilog10().saturating_sub(4));
                let rounded = magnitude.saturating_add(grain / 2) / grain * grain;
                format!("{sign}{}", format_duration_ns(rounded))
            }
            Self::Share => format!("{}%", shortened(100.0 * value)),
            Self::BitRate => format_bit_rate(value),
            Self::PacketRate => format!("{}pps", shortened(value)),
            Self::Size => format_bytes(magnitude),
            Self::Count => format!("{sign}{magnitude}"),
            Self::Number => shortened(value),
            Self::Verdict => {
                let verdict = Verdict::ALL.into_iter().find(|verdict| rank(*verdict) >= value);
                verdict.unwrap_or_default().name().to_owned()
            }
        }
    }
}

fn zero_or_rate(text: &str) -> Result<Option<Rate>, String> {
    if text == "0" {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|error: itg_core::units::UnitError| error.to_string())
}

/// At most six digits after the point.
fn shortened(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delay::Delay;
    use crate::fidelity::Fidelity;
    use crate::report::{REPORT_SCHEMA, TotalReport};

    fn flow(number: u32, side: &'static str, p99: Option<i64>, lost: u64) -> FlowReport {
        let delay = |p99| Delay {
            min: 1,
            mean: 2.5,
            max: 40_000_000,
            stddev: 1.0,
            p50: 2,
            p90: 3,
            p99,
            p999: p99 + 1,
        };
        FlowReport {
            flow: number,
            name: number.to_string(),
            proto: Some("udp"),
            src: String::new(),
            dst: String::new(),
            side,
            run: "c0ffee".to_owned(),
            seed: None,
            meter: Some("owd"),
            profile: None,
            metrics: Metrics {
                packets: 1_000 - lost,
                bitrate_bps: 5e6,
                packet_rate_pps: 100.0,
                lost: Some(lost),
                sent_packets: Some(1_000),
                delay_ns: p99.map(delay),
                delay_percents_ns: p99
                    .map(|_| Box::new(std::array::from_fn(|place| 1_000 * (place as i64 + 1)))),
                fidelity: Fidelity { verdict: Verdict::Pass, ..Fidelity::default() },
                ..Metrics::default()
            },
            clock: None,
            host_buffer_errors: None,
            receive_buffer_bytes: None,
            foreign_packets: None,
            marks: None,
            tcp: None,
            departures: None,
            end: None,
            notices: Vec::new(),
        }
    }

    fn report(flows: Vec<FlowReport>) -> Report {
        let metrics = flows.first().map(|flow| flow.metrics.clone()).unwrap_or_default();
        Report {
            schema: REPORT_SCHEMA,
            manifest: serde_json::Map::new(),
            promises: Vec::new(),
            total: TotalReport { flows: flows.len() as u64, metrics, unmatched: None },
            flows,
            groups: None,
            intervals: None,
            plots: None,
            damage: Vec::new(),
            errors: Vec::new(),
            notices: Vec::new(),
        }
    }

    #[test]
    fn gates_judge() {
        let all = report(vec![
            flow(1, "receiver", Some(20_000_000), 0),
            flow(1, "sender", None, 999),
            flow(2, "receiver", Some(23_500_000), 1),
            flow(3, "receiver", None, 10),
            FlowReport { name: "call".to_owned(), ..flow(4, "receiver", Some(5000), 0) },
            FlowReport { name: "a.b".to_owned(), ..flow(5, "receiver", Some(6000), 0) },
        ]);
        for (gate, want) in [
            ("delay.p99 > 20ms", "FAILED: flow 2: delay.p99 is 23.5ms; holds for 1 of 5 flows"),
            ("delay.p99 >= 20ms", "FAILED: flow 2: delay.p99 is 23.5ms; holds for 2 of 5 flows"),
            ("total.delay.p99>20ms", "passed: total: delay.p99 is 20ms"),
            ("delay.p99 > 1s", "cannot be judged: flow 3: delay.p99 is not known"),
            ("flow.2.delay.p99 > 1s", "passed: flow 2: delay.p99 is 23.5ms"),
            ("flow.9.loss > 1%", "cannot be judged: there is no such flow"),
            ("flow.x.loss > 1%", "cannot be judged: there is no such flow"),
            ("flow.call.delay.p99 > 1s", "passed: flow 4 (call): delay.p99 is 5us"),
            ("call.delay.p99 > 1s", "passed: flow 4 (call): delay.p99 is 5us"),
            ("a.b.delay.p99 > 1s", "passed: flow 5 (a.b): delay.p99 is 6us"),
            ("5.delay.p99 > 1s", "passed: flow 5 (a.b): delay.p99 is 6us"),
            ("loss > 0.1%", "FAILED: flow 3: loss is 1%; holds for 1 of 5 flows"),
            ("lost > 10", "passed: flow 3: lost is 10"),
            ("packets < 1k", "FAILED: flow 3: packets is 990; holds for 2 of 5 flows"),
            ("total.bitrate < 4.9Mbps", "passed: total: bitrate is 5.00 Mbit/s"),
            ("packet_rate != 100pps", "passed: flow 1: packet_rate is 100pps"),
            ("fidelity != pass", "passed: flow 1: fidelity is pass"),
            ("fidelity == pass", "FAILED: flow 1: fidelity is pass; holds for 5 of 5 flows"),
            ("jitter.mean > 0", "cannot be judged: flow 1: jitter.mean is not known"),
            ("flow.2.delay_ns.p99 > 20ms", "FAILED: flow 2: delay_ns.p99 is 23.5ms"),
            ("sent_packets < 1k", "passed: flow 1: sent_packets is 1000"),
            ("flow.2.delay.p95 > 95us", "passed: flow 2: delay.p95 is 95us"),
            ("flow.2.delay.p05 > 5us", "passed: flow 2: delay.p05 is 5us"),
            ("flow.2.delay.p96 > 95us", "FAILED: flow 2: delay.p96 is 96us"),
            ("flow.3.delay.p95 > 1s", "cannot be judged: flow 3: delay.p95 is not known"),
            ("clock.offset_ns > 1ms", "cannot be judged: flow 1: clock.offset_ns is not known"),
            (
                "fidelity.stall_gaps > 3",
                "cannot be judged: flow 1: fidelity.stall_gaps is not known",
            ),
            (
                "ledger.loss.network > 10k",
                "cannot be judged: flow 1: ledger.loss.network is not known",
            ),
            ("duration == 0s", "FAILED: flow 1: duration is 0s; holds for 5 of 5 flows"),
        ] {
            let outcome = Gate::parse(gate).expect(gate).judge(&all);
            let got = outcome.to_string();
            let got = got.strip_prefix(&format!("gate `{gate}` ")).expect("its name").to_owned();
            assert_eq!(got, want, "{gate}");
            assert_eq!(outcome.fidelity, gate.starts_with("fidelity"), "{gate}");
        }
        let none = Gate::parse("loss > 1%").expect("a gate").judge(&report(Vec::new()));
        assert!(none.is_unknown());
    }

    /// What has no unit is shown in the one in which figures are told.
    #[test]
    fn shares_are_repeated_in_percent() {
        for (gate, shown) in [
            ("loss > 0.1", "loss > 10%"),
            ("flow.3.loss>=0.001", "flow.3.loss >= 0.1%"),
            ("rate_error > 1", "rate_error > 100%"),
            ("loss > 0.007", "loss > 0.7%"),
            ("loss > 0.1%", "loss > 0.1%"),
            ("loss > 0", "loss > 0"),
            ("loss > 1e-12", "loss > 1e-12"),
            ("idt_ks > 0.1", "idt_ks > 0.1"),
        ] {
            assert_eq!(Gate::parse(gate).expect(gate).to_string(), shown);
        }
    }

    /// The keys that gates know are those of the published schema.
    #[test]
    fn every_number_of_the_report_can_be_judged() {
        fn walk(node: &Value, defs: &Value, path: &str, out: &mut Vec<String>) {
            if let Some(name) = node["$ref"].as_str().and_then(|name| name.rsplit('/').next()) {
                return walk(&defs[name], defs, path, out);
            }
            for key in ["anyOf", "oneOf", "allOf"] {
                for part in node[key].as_array().into_iter().flatten() {
                    walk(part, defs, path, out);
                }
            }
            for (key, part) in node["properties"].as_object().into_iter().flatten() {
                let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                walk(part, defs, &below, out);
            }
            let number = |kind: &Value| kind == "integer" || kind == "number";
            let kinds = node["type"].as_array().map_or(&[][..], Vec::as_slice);
            if number(&node["type"]) || kinds.iter().any(number) {
                out.push(path.to_owned());
            }
        }
        let schema = include_str!("report.schema.json");
        let schema: Value = serde_json::from_str(schema).expect("JSON");
        let mut found = Vec::new();
        walk(&schema["$defs"]["FlowReport"], &schema["$defs"], "", &mut found);
        found.retain(|path| path != "flow" && path != "seed");
        found.sort();
        assert_eq!(found, metrics::JSON, "the list in metrics.rs, against docs/report.schema.json");
    }

    #[test]
    fn gates_decide_the_exit_code() {
        let outcome = |fidelity, judgement| Outcome { gate: String::new(), fidelity, judgement };
        let passed = || Judgement::Passed { closest: String::new() };
        let failed = || Judgement::Failed { worst: String::new(), times: 1, of: 1 };
        let unknown = || Judgement::Unknown { reason: String::new() };
        for (gates, allow, want) in [
            (vec![], false, None),
            (vec![outcome(false, passed()), outcome(true, passed())], false, None),
            (vec![outcome(false, passed()), outcome(true, failed())], false, Some(98)),
            (vec![outcome(false, failed()), outcome(true, failed())], false, Some(99)),
            (vec![outcome(false, unknown())], false, Some(99)),
            (vec![outcome(false, unknown())], true, None),
            (vec![outcome(true, unknown()), outcome(false, failed())], true, Some(99)),
        ] {
            assert_eq!(exit_code(&gates, allow), want, "{gates:?} {allow}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (text, want) in [
            (
                "",
                "`` is no gate: expected METRIC OP VALUE, such as `delay.p99 > 20ms` or `loss > 0.1%`",
            ),
            (
                "loss",
                "`loss` is no gate: expected METRIC OP VALUE, such as `delay.p99 > 20ms` or `loss > 0.1%`",
            ),
            (
                "loss = 3",
                "`loss = 3` is no gate: expected METRIC OP VALUE, such as `delay.p99 > 20ms` or `loss > 0.1%`",
            ),
            (
                "flow..loss > 1",
                "`flow..loss` names no flow: expected flow.NAME.METRIC or flow.NUMBER.METRIC, such as flow.3.loss",
            ),
            ("fidelity > pass", "fidelity has no order: compare with == or !="),
            (
                "fidelity != good",
                "`good` does not fit fidelity: expected pass, warn, fail, network-limited, unresolved or unknown",
            ),
            (
                "bitrate < 5pps",
                "`5pps` does not fit bitrate: expected bits per second, such as 10Mbps",
            ),
            ("loss > nan", "`nan` does not fit loss: no number in `nan`"),
        ] {
            assert_eq!(
                Gate::parse(text).map_err(|e| e.to_string()),
                Err(want.to_owned()),
                "{text}"
            );
        }
        for (text, part) in [
            ("delay.p101 > 1ms", "unknown metric `delay.p101`: did you mean `delay.p"),
            ("delay_ns.p98 > 1ms", "unknown metric `delay_ns.p98`: did you mean `delay_ns.p9"),
            (
                "delay.p9 > 1ms",
                "unknown metric `delay.p9`: did you mean `delay.p90` or `delay.p99`? (`delay.p09` is percentile 9)",
            ),
            ("total.delay.p5 > 1ms", "unknown metric `delay.p5`: did you mean `delay.p50`?"),
            ("call.delay.p5 > 1ms", "unknown metric `call.delay.p5`: did you mean `delay.p50`?"),
            ("call.los > 1", "unknown metric `call.los`: did you mean `call.los"),
            ("los > 1", "unknown metric `los`: did you mean `los"),
            ("performance > 1", "unknown metric `performance`: gates know loss, lost"),
            ("delay.p99 > 20", "`20` does not fit delay.p99"),
        ] {
            let error = Gate::parse(text).expect_err(text).to_string();
            assert!(error.starts_with(part), "{error}");
        }
    }
}
