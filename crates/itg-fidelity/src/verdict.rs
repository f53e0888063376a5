//! The verdict and the figures behind it, as they stand in a report.

use serde::Serialize;

use crate::autocorrelation::LAGS;
use crate::distribution_test::ChiSquare;

/// Cause of a verdict that is not *pass*.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Packets left at other times than planned: the sender or its host could not keep up.
    LateSender,
    /// Packets were left out by the sender because they were late, or dropped by a queueing discipline for their time.
    DroppedPackets,
    /// The distribution in force is the requested one, truncated: values that cannot be used are
    /// drawn again.
    TruncatedLaw,
    /// The packets follow their plan, but the plan does not follow the distribution, or not the seed: the
    /// generator draws wrongly.
    Generator,
    /// The sender stood still for many inter-departure times: its host gave it no time.
    HostStalled,
    /// TCP took no more: the network or the receiver was slower than the plan.
    BackPressure,
    /// The socket or the device took no more packets: its queue was full.
    FullQueue,
    /// The times in the log are too coarse for inter-departure times so short.
    Resolution,
    /// Packets of the plan did not leave: the sender's kernel refused them, or the flow ended before.
    Incomplete,
    /// The user ended the flow before its plan; changes no verdict.
    Interrupted,
}

impl Cause {
    /// The word in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LateSender => "late_sender",
            Self::DroppedPackets => "dropped_packets",
            Self::TruncatedLaw => "truncated_law",
            Self::Generator => "generator",
            Self::HostStalled => "host_stalled",
            Self::BackPressure => "back_pressure",
            Self::FullQueue => "full_queue",
            Self::Resolution => "resolution",
            Self::Incomplete => "incomplete",
            Self::Interrupted => "interrupted",
        }
    }
}

/// The verdict on a flow, from the least to the worst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Nothing to compare.
    #[default]
    Unknown,
    /// The traffic asked for.
    Pass,
    /// No difference was found, but the times in the log are too coarse to tell.
    Unresolved,
    /// Other traffic than asked for: the generator had the packets, the path did not take them.
    NetworkLimited,
    /// Visibly different.
    Warn,
    /// Other traffic than asked for.
    Fail,
}

impl Verdict {
    /// All of them, in order.
    pub const ALL: [Self; 6] =
        [Self::Unknown, Self::Pass, Self::Unresolved, Self::NetworkLimited, Self::Warn, Self::Fail];

    /// The word in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Pass => "pass",
            Self::Unresolved => "unresolved",
            Self::NetworkLimited => "network-limited",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// Distance between planned and actual sums of successive inter-departure times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ScaleDistance {
    /// Inter-departure times in a sum.
    pub gaps: u64,
    /// Number of sums.
    pub sums: u64,
    /// Wasserstein-1 distance, divided by the mean planned sum.
    pub distance: f64,
    /// Half-width of its interval, in the same unit.
    pub half_width: f64,
}

impl ScaleDistance {
    /// End of the interval that is nearer to 0.
    #[must_use]
    pub fn near_end(&self) -> f64 {
        (self.distance - self.half_width).max(0.0)
    }
}

/// Flows of a total by their verdicts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Tally {
    /// Number of flows with each verdict that occurs.
    pub verdicts: std::collections::BTreeMap<&'static str, u64>,
    /// Number of flows with each cause that occurs; a flow may have several.
    pub causes: std::collections::BTreeMap<&'static str, u64>,
    /// Numbers of the worst flows that do not pass, the worst first; three at most.
    pub worst: Vec<u32>,
}

/// Verdict and the figures behind it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Fidelity {
    /// The verdict.
    pub verdict: Verdict,
    /// Burst mode: so many packets at a time were due together. The requested inter-departure times
    /// are then those between bursts, and 0 within them.
    pub burst: Option<u32>,
    /// Kolmogorov distance between planned and actual inter-departure times, 0 to 1, with a horizontal
    /// tolerance of 5 % of their mean.
    pub idt_ks: Option<f64>,
    /// Distance between asked and actual sizes, 0 to 1.
    pub size_ks: Option<f64>,
    /// Mean packet rate sent / planned − 1.
    pub rate_error: Option<f64>,
    /// Distance between the planned inter-departure times and their requested distribution, 0 to 1;
    /// `None` with ON/OFF periods, and where the distribution is not known.
    pub idt_law_ks: Option<f64>,
    /// Error that a true generator has by chance (ε of the band) in `idt_law_ks`.
    pub idt_law_band: Option<f64>,
    /// Distance between the sizes sent and their requested distribution, 0 to 1.
    pub size_law_ks: Option<f64>,
    /// Error that a true generator has by chance in `size_law_ks`.
    pub size_law_band: Option<f64>,
    /// Chi-square test of the sizes, where their distribution is discrete.
    pub size_chi_square: Option<ChiSquare>,
    /// Mean of the actual inter-departure times, in nanoseconds.
    pub idt_mean_ns: Option<f64>,
    /// Half-width of the interval of `idt_mean_ns`, in nanoseconds.
    pub idt_mean_half_width_ns: Option<f64>,
    /// Mean of the distribution of inter-departure times, in nanoseconds.
    pub idt_law_mean_ns: Option<f64>,
    /// Autocorrelation of the actual inter-departure times at lags 1, 2 and 3.
    pub idt_autocorrelation: Option<[Option<f64>; LAGS]>,
    /// Mean planned inter-departure time, in nanoseconds (with ON/OFF periods, that within them): the unit of
    /// the figures below. `None` where packets leave as fast as possible.
    pub gap_ns: Option<f64>,
    /// Wasserstein-1 distance between planned and actual inter-departure times, in mean planned ones, and the
    /// same for sums of 2, 4, … 1024 successive ones.
    pub scales: Vec<ScaleDistance>,
    /// Mean of |sent − planned| over the inter-departure times, in mean planned ones.
    pub gap_error: Option<f64>,
    /// Half-width of the interval of `gap_error`.
    pub gap_error_half_width: Option<f64>,
    /// 99th percentile of the lateness beyond that of the most punctual packets, in mean planned
    /// inter-departure times.
    pub late_p99_gaps: Option<f64>,
    /// Share of the packets whose lateness beyond that is more than one mean planned inter-departure time.
    pub late_share: Option<f64>,
    /// Longest time that the sender stood still, in mean planned inter-departure times.
    pub stall_gaps: Option<f64>,
    /// Share of the packets that did not have their planned size, of those whose plan was computed again.
    pub size_error: Option<f64>,
    /// Packets that had to wait because the socket, or the device, took no more; `None` where it was not counted.
    pub waited_packets: Option<u64>,
    /// Uncertainty of the times in the log, in nanoseconds; `None` where the log does not show it.
    pub resolution_ns: Option<f64>,
    /// Packet rate from which on that is more than 5 % of the mean planned inter-departure time.
    pub resolved_up_to_pps: Option<f64>,
    /// In a total: flows by their verdicts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tally: Option<Tally>,
    /// Causes of a verdict that is not *pass*.
    pub causes: Vec<Cause>,
    /// Reasons of a verdict that is not *pass*, one clause each.
    pub reasons: Vec<String>,
}

impl Fidelity {
    /// Makes the verdict at least as bad as this, for this reason.
    pub fn object(&mut self, verdict: Verdict, cause: Cause, reason: String) {
        self.verdict = self.verdict.max(verdict);
        self.reasons.push(reason);
        self.add_cause(cause);
    }

    /// Names a cause, once.
    pub fn add_cause(&mut self, cause: Cause) {
        if let Err(place) = self.causes.binary_search(&cause) {
            self.causes.insert(place, cause);
        }
    }

    /// Packets of the plan did not leave: many of them fail the flow, few are a warning.
    pub fn incomplete(&mut self, many: bool, why: String) {
        self.verdict = self.verdict.max(if many { Verdict::Fail } else { Verdict::Warn });
        self.add_cause(Cause::Incomplete);
        // The sender's log may have told it already.
        if !self.reasons.contains(&why) {
            self.reasons.insert(0, why);
        }
    }

    /// Nothing is known of so many packets at the end of the plan: what is there passes, the flow does not.
    pub fn not_beyond_log(&mut self, rest: u64, planned: u64) {
        if self.verdict == Verdict::Pass {
            self.verdict = Verdict::Unknown;
        }
        self.reasons.insert(0, format!("nothing is known of {rest} of {planned} planned packets: logs and accounts end before"));
    }

    /// Of a total in which so many flows of all could not be judged: they do not pass with the others.
    pub fn not_all_judged(&mut self, unknown: u64, all: u64) {
        if unknown > 0 && self.verdict == Verdict::Pass {
            self.verdict = Verdict::Unknown;
            self.reasons.insert(0, format!("{unknown} of {all} flows could not be judged"));
        }
    }

    /// Largest distance over the scales, by the near end of its interval: how far flows with the same verdict
    /// are from their plans.
    #[must_use]
    pub fn severity(&self) -> f64 {
        let scales = self.scales.iter().map(ScaleDistance::near_end);
        scales.chain(self.gap_error).chain(self.size_ks).fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_schema_is_up_to_date() {
        let settings = schemars::generate::SchemaSettings::draft2020_12().for_serialize();
        let mut generator = settings.into_generator();
        generator.subschema_for::<Fidelity>();
        itg_testkit::published::compare_definitions("report", generator.take_definitions(true));
    }
}
