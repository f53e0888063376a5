//! Comparison of the traffic sent with the traffic requested.
//!
//! For every pair of packets with consecutive sequence numbers the planned inter-departure time
//! (IDT) is compared with the actual one. Over all pairs, `idt_ks` is the Kolmogorov distance of
//! the two empirical distribution functions P (planned) and S (sent) with a horizontal tolerance τ
//! of [`GAP_TOLERANCE_NS`]:
//!
//! > idt_ks = supₓ max( P(x) − S(x + τ), S(x) − P(x + τ), 0 )
//!
//! It is the smallest ε for which S lies between P(x − τ) − ε and P(x + τ) + ε everywhere: a Lévy
//! distance whose horizontal part is fixed. Without the tolerance, a sender that is 1 µs late on a
//! constant IDT would have distance 1. Beyond 16 384 IDTs, values are kept to three digits, and τ
//! grows by the width of their buckets (at most 0.2 % of the IDT). `size_ks` is the plain
//! two-sample distance of Smirnov between the sizes sent and the sizes planned for the same
//! packets.
//!
//! A second test finds a generator that draws wrongly: it compares the traffic sent with the
//! requested distribution, not with the plan. All IDTs and sizes sent are tested: Kolmogorov
//! distance with its confidence band, chi-square for discrete sizes, the mean with its interval,
//! and autocorrelation at small lags (see [`crate::distribution_test`], [`crate::autocorrelation`]). Each is
//! judged by its distance beyond that of chance.
//!
//! If the rate was changed while the flow ran (see `itg_core::rate`), the plan has the changes, and
//! the traffic sent is compared with it; the distribution of IDTs, which holds for one rate, is not
//! compared. A notice says so.
//!
//! In burst mode (see `itg_core::schedule`) packets are planned several at a time, and what was sent is set
//! against that plan; the requested distribution of IDTs does not hold for such packets, and is not
//! compared. The verdict says so.
//!
//! The verdict is *fail* when a distance exceeds [`WARN_LIMIT`], when the time from the first
//! packet to the last is off by more than [`RATE_LIMIT`] of the planned one (plus τ), which is the
//! mean packet rate, or when more than [`SKIPPED_LIMIT`] of the packets were left out; *warn* when
//! a distance exceeds [`PASS_LIMIT`] or the 99th percentile of lateness what the sender declared;
//! the same limits hold for distances to the distribution less their band, and [`RATE_LIMIT`] for
//! the mean beyond its interval; successive IDTs that are correlated by more than
//! [`CORRELATION_LIMIT`] beyond chance fail too; *unknown* when there is no IDT to compare. Times
//! that the kernel was told and kept (`--pacing txtime`) pass only when stamps of departures say so:
//! without any they are *unknown*; *warn* when 1 % of the stamps are off by more than τ, or a packet
//! was dropped for its time. Sources: Kolmogorov 1933 and Smirnov 1939 for the distance; Lévy's
//! metric for the tolerance; the limits are ours.

use std::collections::BTreeMap;
use std::sync::Arc;

use itg_core::distribution::{Distribution, Resolved};
use itg_core::flow::{Flow, FlowError, FlowSpec};
use itg_core::seed::RunSeed;
use itg_core::units::format_duration_ns;
use serde::Serialize;

use crate::autocorrelation::{Autocorrelation, LAGS};
use crate::distribution_test::{ChiSquare, Z, band, chi_square, law_distance};
use crate::moments::Moments;
use crate::quantiles::{Counts, Point, Quantiles};
use crate::samples::{SampleDistribution, signed_difference};
use crate::stall::{Stall, Stalls};

/// Horizontal tolerance of inter-departure times, in nanoseconds: 100 µs.
pub const GAP_TOLERANCE_NS: u64 = 100_000;
/// Largest distance that passes.
pub const PASS_LIMIT: f64 = 0.05;
/// Largest distance that is only warned about.
pub const WARN_LIMIT: f64 = 0.15;
/// Largest relative error of the mean packet rate.
pub const RATE_LIMIT: f64 = 0.01;
/// Largest share of packets that the sender may leave out.
pub const SKIPPED_LIMIT: f64 = 0.01;

/// Largest autocorrelation of successive inter-departure times beyond chance, where the
/// distribution draws each by itself.
pub const CORRELATION_LIMIT: f64 = 0.15;
/// Largest effect (Cohen's w) of a chi-square test that passes, and that is only warned about.
const EFFECT_LIMITS: (f64, f64) = (0.1, 0.3);

/// The distributions of a flow, as they are in force.
#[derive(Clone, Debug)]
pub struct Distributions(Arc<DistributionPair>);

#[derive(Debug)]
struct DistributionPair {
    /// Of inter-departure times; `None` where pauses, bursts or changes of the rate make them differ
    /// from the distribution.
    idt: Option<Resolved>,
    size: Resolved,
    burst: Option<u32>,
}

impl Distributions {
    /// The distributions of a flow.
    ///
    /// # Errors
    /// A description that cannot be run, such as an empirical distribution whose table is not in
    /// the log.
    pub fn new(spec: &FlowSpec, seed: u64) -> Result<Self, FlowError> {
        let flow = Flow::resolve(spec.clone(), RunSeed(seed))?;
        let alone = flow.on_off().is_none() && spec.burst.is_none() && spec.changes.is_empty();
        let idt = alone.then(|| flow.idt().clone());
        Ok(Self(Arc::new(DistributionPair { idt, size: flow.size().clone(), burst: spec.burst })))
    }
}

/// Cause of a verdict that is not *pass*.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Packets left later than the tolerance: the sender or its host could not keep up.
    LateSender,
    /// Packets were left out by the sender because they were late, or dropped by a queueing discipline for their time.
    DroppedPackets,
    /// The distribution in force is the requested one, truncated: values that cannot be used are
    /// drawn again.
    TruncatedLaw,
    /// The packets follow their plan, but the plan does not follow the distribution: the generator
    /// draws wrongly.
    Generator,
}

/// The verdict on a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Nothing to compare.
    #[default]
    Unknown,
    /// The traffic asked for.
    Pass,
    /// Visibly different.
    Warn,
    /// Other traffic than asked for.
    Fail,
}

impl Verdict {
    /// The word in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Pass => "pass",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// Verdict and the figures behind it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Fidelity {
    /// The verdict.
    pub verdict: Verdict,
    /// Burst mode: so many packets at a time were due together. The requested inter-departure times
    /// are then those between bursts, and 0 within them.
    pub burst: Option<u32>,
    /// Distance between planned and actual inter-departure times, 0 to 1.
    pub idt_ks: Option<f64>,
    /// Distance between asked and actual sizes, 0 to 1.
    pub size_ks: Option<f64>,
    /// Mean packet rate sent / planned − 1.
    pub rate_error: Option<f64>,
    /// Distance between the actual inter-departure times and their requested distribution, 0 to 1;
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
    /// Causes of a verdict that is not *pass*.
    pub causes: Vec<Cause>,
    /// Reasons of a verdict that is not *pass*, one clause each.
    pub reasons: Vec<String>,
}

/// One packet of which both the planned and the actual time of sending are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departed {
    /// Sequence number.
    pub seq: u64,
    /// Planned, in nanoseconds from the start of the flow.
    pub planned_ns: u64,
    /// Sent, in Unix nanoseconds of the sender's clock.
    pub sent_ns: u64,
}

/// Data that departures are judged by, beside their plan.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked<'a> {
    /// Share of the packets that the sender left out.
    pub skipped_share: f64,
    /// The distributions of the flow, where they are known.
    pub distributions: Option<&'a Distributions>,
    /// Lateness that 99 % of the packets do not exceed as the sender declared, in nanoseconds.
    pub late_p99_ns: Option<u64>,
}

/// Planned against actual departures of one flow.
#[derive(Clone, Debug, Default)]
pub struct Departures {
    lateness: SampleDistribution,
    planned: Quantiles,
    sent: Quantiles,
    gaps: Autocorrelation,
    gap_moments: Moments,
    sizes: BTreeMap<u32, i64>,
    sizes_compared: u64,
    all_sizes: Counts,
    /// The ones with the smallest and the largest number.
    first: Option<Departed>,
    last: Option<Departed>,
    /// The ones taken first and last.
    head: Option<Departed>,
    before: Option<Departed>,
    stalls: Stalls,
}

impl Departures {
    /// Takes a packet; `epoch_unix_ns` is the instant that planned times count from, when known.
    pub fn add(&mut self, packet: Departed, epoch_unix_ns: Option<u64>) {
        if let Some(epoch) = epoch_unix_ns {
            let due = epoch.saturating_add(packet.planned_ns);
            self.lateness.add(signed_difference(packet.sent_ns, due));
        }
        self.follow(packet);
        self.span(packet);
    }

    /// Takes packets of consecutive numbers: the same as one by one, and sooner.
    pub fn add_in_order(&mut self, packets: &[Departed], epoch_unix_ns: Option<u64>) {
        /// Packets taken at once.
        const RUN: usize = 128;
        let (mut planned, mut sent) = ([0; RUN], [0; RUN]);
        for packets in packets.chunks(RUN) {
            let (first, last) = (packets[0], packets[packets.len() - 1]);
            if let Some(epoch) = epoch_unix_ns {
                let lateness = &mut planned[..packets.len()];
                for (late, packet) in lateness.iter_mut().zip(packets) {
                    let due = epoch.saturating_add(packet.planned_ns);
                    *late = signed_difference(packet.sent_ns, due);
                }
                self.lateness.add_all(lateness);
            }
            self.follow(first);
            for (at, pair) in packets.windows(2).enumerate() {
                planned[at] = signed_difference(pair[1].planned_ns, pair[0].planned_ns);
                sent[at] = signed_difference(pair[1].sent_ns, pair[0].sent_ns);
            }
            let gaps = packets.len() - 1;
            self.stalls.follow_all(packets, &planned[..gaps], &sent[..gaps]);
            self.planned.add_all(&planned[..gaps]);
            self.sent.add_all(&sent[..gaps]);
            self.gaps.add_all(&sent[..gaps]);
            self.gap_moments.add_all(&sent[..gaps]);
            self.before = Some(last);
            self.span(first);
            self.span(last);
        }
    }

    /// Takes the size a packet had, in bytes.
    #[inline]
    pub fn count(&mut self, size: u32) {
        self.all_sizes.add(size);
    }

    /// Takes the size a packet had and the one planned for it, in bytes.
    pub fn add_size(&mut self, sent: u32, planned: u32) {
        self.sizes_compared += 1;
        if sent != planned {
            self.count_size(sent, 1);
            self.count_size(planned, -1);
        }
    }

    /// Takes the packets of a later part of the same flow, and the inter-departure time between the
    /// two parts.
    pub fn append(&mut self, later: &Self) {
        if let Some(head) = later.head {
            self.follow(head);
        }
        self.gaps.append(&later.gaps);
        self.gap_moments.merge(&later.gap_moments);
        self.all_sizes.merge(&later.all_sizes);
        self.before = later.before.or(self.before);
        self.planned.merge(&later.planned);
        self.sent.merge(&later.sent);
        self.lateness.merge(&later.lateness);
        for (&size, &count) in &later.sizes {
            self.count_size(size, count);
        }
        self.sizes_compared += later.sizes_compared;
        for packet in [later.first, later.last].into_iter().flatten() {
            self.span(packet);
        }
        self.stalls.merge(&later.stalls);
    }

    /// The longest times for which nothing left: see [`Stall`].
    pub fn stalls(&self) -> impl Iterator<Item = Stall> {
        self.first
            .zip(self.last)
            .into_iter()
            .flat_map(|(first, last)| self.stalls.told(first, last))
    }

    #[inline]
    fn follow(&mut self, packet: Departed) {
        if let Some(before) = self.before.filter(|b| b.seq.checked_add(1) == Some(packet.seq)) {
            let planned = signed_difference(packet.planned_ns, before.planned_ns);
            let gap = signed_difference(packet.sent_ns, before.sent_ns);
            self.planned.add(planned);
            self.sent.add(gap);
            self.gaps.add(gap);
            self.gap_moments.add(gap);
            self.stalls.follow(before.seq, planned, gap);
        } else if let Some(before) = self.before {
            self.gaps.interrupt();
            self.stalls.jump(before, packet);
        }
        if self.head.is_none() {
            self.head = Some(packet);
        }
        self.before = Some(packet);
    }

    fn span(&mut self, packet: Departed) {
        if self.first.is_none_or(|first| packet.seq < first.seq) {
            self.first = Some(packet);
        }
        if self.last.is_none_or(|last| packet.seq > last.seq) {
            self.last = Some(packet);
        }
    }

    /// Sizes that both have cancel out: only differences are kept.
    fn count_size(&mut self, size: u32, count: i64) {
        let entry = self.sizes.entry(size).or_default();
        *entry += count;
        if *entry == 0 {
            self.sizes.remove(&size);
        }
    }

    /// Returns true if no packet has been taken.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Sent − due for every packet, in nanoseconds.
    #[must_use]
    pub const fn lateness(&self) -> &SampleDistribution {
        &self.lateness
    }

    /// Inter-departure times between packets of consecutive numbers in nanoseconds: planned and
    /// sent.
    #[must_use]
    pub const fn gaps(&self) -> (&Quantiles, &Quantiles) {
        (&self.planned, &self.sent)
    }

    /// The verdict.
    #[must_use]
    pub fn judge(&self, asked: &Asked<'_>) -> Fidelity {
        let Asked { skipped_share, distributions, late_p99_ns } = *asked;
        let burst = distributions.and_then(|Distributions(distributions)| distributions.burst);
        if self.planned.count() == 0 {
            return Fidelity { burst, ..Fidelity::default() };
        }
        let planned = self.planned.points();
        let sent = self.sent.points();
        let idt_ks = distance(&planned, &sent, GAP_TOLERANCE_NS);
        let size_ks = self.size_distance();
        let mut judge = Judge::default();
        for (what, ks) in [("gaps", Some(idt_ks)), ("sizes", size_ks)] {
            let words = |ks: f64| format!("{what} differ from the plan by {ks:.3}");
            judge.limits(ks.unwrap_or(0.0), (PASS_LIMIT, WARN_LIMIT), words);
        }
        let (rate_error, rate_off) = self.rate();
        if let Some(error) = rate_error.filter(|_| rate_off) {
            judge.fail(format!("mean packet rate is off by {:+.2} %", 100.0 * error));
        }
        if skipped_share > SKIPPED_LIMIT {
            judge.fail(format!("{:.2} % of the packets were left out", 100.0 * skipped_share));
            judge.causes.push(Cause::DroppedPackets);
        }
        let off_plan = judge.verdict > Verdict::Pass;
        let [late] = self.lateness.quantiles().at([0.99]);
        if off_plan && late.unsigned_abs() > GAP_TOLERANCE_NS && late > 0 {
            judge.causes.push(Cause::LateSender);
        }
        let mut fidelity =
            Fidelity { burst, idt_ks: Some(idt_ks), size_ks, rate_error, ..Fidelity::default() };
        if let Some(Distributions(distributions)) = distributions {
            let before = judge.verdict;
            if let Some(distribution) = &distributions.idt {
                self.judge_gaps(distribution, &sent, &mut judge, &mut fidelity);
            }
            self.judge_sizes(&distributions.size, &mut judge, &mut fidelity);
            if judge.verdict > before && !off_plan {
                judge.causes.push(Cause::Generator);
            }
            let truncated = distributions
                .idt
                .as_ref()
                .is_some_and(|distribution| distribution.notice().is_some())
                || distributions.size.notice().is_some();
            if judge.verdict > Verdict::Pass && truncated {
                judge.causes.push(Cause::TruncatedLaw);
            }
        }
        if let Some(most) = late_p99_ns.filter(|&most| late > 0 && late.unsigned_abs() > most) {
            judge.warn(format!(
                "99 % of the packets left up to {} late, {} was declared",
                format_duration_ns(late.unsigned_abs()),
                format_duration_ns(most)
            ));
            if !judge.causes.contains(&Cause::LateSender) {
                judge.causes.push(Cause::LateSender);
            }
        }
        judge.causes.sort_unstable();
        Fidelity {
            verdict: judge.verdict,
            reasons: judge.reasons,
            causes: judge.causes,
            ..fidelity
        }
    }

    /// Tests the actual inter-departure times against their distribution.
    fn judge_gaps(
        &self,
        distribution: &Resolved,
        sent: &[Point],
        judge: &mut Judge,
        into: &mut Fidelity,
    ) {
        let tolerance = GAP_TOLERANCE_NS as f64;
        let asked = distribution.distribution();
        let (n, epsilon) = (self.sent.count(), band(self.sent.count()));
        let ks = law_distance(sent, tolerance, |x| asked.cdf(x));
        let words =
            |_| format!("gaps differ from their law by {ks:.3} (chance explains {epsilon:.3})");
        judge.limits(ks - epsilon, (PASS_LIMIT, WARN_LIMIT), words);
        (into.idt_law_ks, into.idt_law_band) = (Some(ks), Some(epsilon));
        let mean = self.gap_moments.mean();
        let width = Z * (self.gap_moments.variance() / n.max(1) as f64).sqrt();
        (into.idt_mean_ns, into.idt_mean_half_width_ns) = (Some(mean), Some(width));
        let (wanted, spread) = (distribution.mean(), asked.variance());
        into.idt_law_mean_ns = wanted.is_finite().then_some(wanted);
        // The mean of few inter-departure times of a wide distribution says little, and nothing
        // where the distribution has no variance; a few inter-departure times may be off by the
        // tolerance at each end.
        let chance = Z * (spread.max(self.gap_moments.variance()) / n.max(1) as f64).sqrt();
        let limit = RATE_LIMIT * wanted + chance + tolerance / n.max(1) as f64;
        if spread.is_finite() && wanted > 0.0 && (mean - wanted).abs() > limit {
            let off = 100.0 * (mean / wanted - 1.0);
            judge.fail(format!("the mean gap is off the mean of its law by {off:+.2} %"));
        }
        let lags = self.gaps.at_lags();
        into.idt_autocorrelation = lags.iter().any(Option::is_some).then_some(lags);
        if distribution.is_constant().is_none() && spread.is_finite() && wanted > tolerance {
            let chance = Z / (self.gaps.pairs().max(1) as f64).sqrt();
            let worst = lags.iter().flatten().fold(0.0f64, |worst, &lag| worst.max(lag));
            if worst - chance > CORRELATION_LIMIT {
                judge.fail(format!("successive gaps are correlated by {worst:.3}: bursts"));
            }
        }
    }

    /// Tests the sizes sent against their distribution.
    fn judge_sizes(&self, distribution: &Resolved, judge: &mut Judge, into: &mut Fidelity) {
        let counts = self.all_sizes.list();
        let n = counts.iter().map(|&(_, count)| count).sum();
        if n == 0 {
            return;
        }
        let asked = distribution.distribution();
        let point = |&(size, count): &(u64, u64)| {
            let size = i64::try_from(size).unwrap_or(i64::MAX);
            Point { low: size, high: size, count }
        };
        let points: Vec<_> = counts.iter().map(point).collect();
        let epsilon = band(n);
        // Sizes are rounded to whole bytes, up to half a byte either way.
        let ks = law_distance(&points, 0.5, |x| asked.cdf(x));
        let words =
            |_| format!("sizes differ from their law by {ks:.3} (chance explains {epsilon:.3})");
        judge.limits(ks - epsilon, (PASS_LIMIT, WARN_LIMIT), words);
        (into.size_law_ks, into.size_law_band) = (Some(ks), Some(epsilon));
        if !is_discrete(asked) {
            return;
        }
        let range = counts.first().zip(counts.last());
        let mass = |from: u64, to: u64| {
            asked.cdf((to as f64 + 0.5).next_down()) - asked.cdf((from as f64 - 0.5).next_down())
        };
        let test = range.and_then(|(first, last)| chi_square(&counts, (first.0, last.0), mass));
        if let Some(test) = test {
            let words = |w: f64| {
                let (x, degrees) = (test.statistic, test.degrees);
                format!("sizes: chi-square {x:.1} with {degrees} degrees, effect {w:.2}")
            };
            judge.limits(test.effect, EFFECT_LIMITS, words);
            into.size_chi_square = Some(test);
        }
    }

    fn size_distance(&self) -> Option<f64> {
        let mut sum = 0i64;
        let largest = self.sizes.values().fold(0, |largest: u64, &count| {
            sum += count;
            largest.max(sum.unsigned_abs())
        });
        (self.sizes_compared > 0).then(|| largest as f64 / self.sizes_compared as f64)
    }

    /// Relative error of the mean rate between first and last packet, and whether it is too large.
    fn rate(&self) -> (Option<f64>, bool) {
        let (Some(first), Some(last)) = (self.first, self.last) else { return (None, false) };
        let planned = signed_difference(last.planned_ns, first.planned_ns) as f64;
        let sent = signed_difference(last.sent_ns, first.sent_ns) as f64;
        if planned <= 0.0 || sent <= 0.0 {
            return (None, false);
        }
        let limit = RATE_LIMIT * planned + GAP_TOLERANCE_NS as f64;
        (Some(planned / sent - 1.0), (sent - planned).abs() > limit)
    }
}

/// The verdict while it is found.
struct Judge {
    verdict: Verdict,
    reasons: Vec<String>,
    causes: Vec<Cause>,
}

impl Default for Judge {
    fn default() -> Self {
        Self { verdict: Verdict::Pass, reasons: Vec::new(), causes: Vec::new() }
    }
}

impl Judge {
    fn warn(&mut self, reason: String) {
        self.verdict = self.verdict.max(Verdict::Warn);
        self.reasons.push(reason);
    }

    fn fail(&mut self, reason: String) {
        self.verdict = Verdict::Fail;
        self.reasons.push(reason);
    }

    /// Warns beyond the first limit, fails beyond the second.
    fn limits(&mut self, value: f64, (pass, warn): (f64, f64), words: impl Fn(f64) -> String) {
        if value > pass {
            let verdict = if value > warn { Verdict::Fail } else { Verdict::Warn };
            self.verdict = self.verdict.max(verdict);
            self.reasons.push(words(value));
        }
    }
}

/// Returns true if a distribution gives single values with probability above 0, and more than one.
fn is_discrete(distribution: &Distribution) -> bool {
    match distribution {
        Distribution::Poisson { .. } | Distribution::Discrete(_) => true,
        Distribution::Trunc { distribution, .. } => is_discrete(distribution),
        _ => false,
    }
}

/// Kolmogorov distance of two samples with a horizontal tolerance; both ascend, neither is empty.
#[must_use]
pub fn distance(a: &[Point], b: &[Point], tolerance: u64) -> f64 {
    one_sided(a, b, tolerance).max(one_sided(b, a, tolerance))
}

/// supₓ A(x) − B(x + τ), at least 0. A only grows at its own points, so those are enough.
fn one_sided(a: &[Point], b: &[Point], tolerance: u64) -> f64 {
    let total = |points: &[Point]| points.iter().map(|p| p.count).sum::<u64>().max(1) as f64;
    let (a_total, b_total) = (total(a), total(b));
    let mut b = b.iter().peekable();
    let (mut in_a, mut in_b) = (0u64, 0u64);
    let mut largest = 0.0f64;
    for point in a {
        in_a += point.count;
        let reach = point.high.saturating_add_unsigned(tolerance);
        while let Some(other) = b.next_if(|other| other.low <= reach) {
            in_b += other.count;
        }
        largest = largest.max(in_a as f64 / a_total - in_b as f64 / b_total);
    }
    largest
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
