//! The table of metrics: what is measured, once. JSON, text, CSV, gates, sweeps, the page, Prometheus and
//! `docs/decode.md` read it.
//!
//! A new metric is a field of [`Metrics`] and a row of [`METRICS`] here, and the line that computes it. Rows are in the
//! order of the columns of `--format csv`: a new one with a column comes behind the old ones.

use serde::Serialize;

use crate::delay::{Delay, DelayBasis, DelayStats, Jitter, Lateness, SampleDistribution};
use crate::departures::Departed;
use crate::fidelity::{Fidelity, Verdict};
use crate::figures::{Ipdv, Ledger, LossModel, Pdv, Percentiles, Percents, Reordering, Way};
use crate::kind::{Kind, rank};
use crate::packet_account::PacketAccount;
use crate::sequence::Loss;
use crate::sum::Sum;
use crate::volume::{LossBasis, Volume};

/// The figures of a flow, or of all flows.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Metrics {
    /// Packets: arrived at the receiver, sent at the sender, come back in a round-trip flow.
    pub packets: u64,
    /// Their bytes, ITG's header included, headers of the protocols below excluded.
    pub bytes: u64,
    /// Time between the first and the last of them.
    pub duration_ns: u64,
    /// Of n packets 8 · bytes · (n − 1) / n / duration; null for one packet.
    pub bitrate_bps: Option<f64>,
    /// (n − 1) / duration; null for one packet.
    pub packet_rate_pps: Option<f64>,
    /// 8 · bytes / the planned time of the flow, where it has one: an outage at its end shows here.
    pub bitrate_over_plan_bps: Option<f64>,
    /// Packets that were sent and did not arrive.
    pub lost: Option<u64>,
    /// Arrivals of packets that had arrived before.
    pub duplicated: Option<u64>,
    /// Packets that arrived after one with a larger number.
    pub reordered: Option<u64>,
    /// Runs of consecutive lost packets.
    pub loss_bursts: Option<u64>,
    /// Lost packets per run; 0 without loss.
    pub loss_burst_mean: Option<f64>,
    /// Delay; one-way, or of the round trip when `meter` is `rtt` and `side` is `sender`.
    pub delay_ns: Option<Delay>,
    /// Basis of the delay: absolute or relative.
    pub delay_basis: Option<DelayBasis>,
    /// Variation of the delay.
    pub jitter_ns: Option<Jitter>,
    /// Lateness: time from the planned time of a packet until it left, in nanoseconds.
    pub lateness_ns: Option<Lateness>,
    /// Agreement of the traffic sent with the traffic requested.
    #[cfg_attr(test, schemars(schema_with = "crate::report::schema::fidelity"))]
    pub fidelity: Fidelity,
    /// Packets sent, where that is known.
    pub sent_packets: Option<u64>,
    /// Packets that the sender left out because they were late.
    pub skipped_packets: Option<u64>,
    /// Different packets that arrived beyond those that their senders account for. Above 0 `lost` is not known.
    pub excess_packets: u64,
    /// Source of the number of lost packets.
    pub lost_basis: Option<LossBasis>,
    /// Delays below 0, which only clocks that disagree can give; they are part of `delay_ns`.
    pub negative_delays: u64,
    /// Rate of the bytes of first arrivals over the same time: duplicates do not count (RFC 2647, section 3.17).
    pub goodput_bps: Option<f64>,
    /// Percentiles of the delay, with the count behind them.
    pub delay_percentiles_ns: Option<Percentiles>,
    /// Percentiles 1 to 99 of the delay (nearest rank), for gates.
    #[serde(skip)]
    pub delay_percents_ns: Option<Percents>,
    /// Delay variation from packet to packet.
    pub ipdv_ns: Option<Ipdv>,
    /// Delay variation against the smallest delay.
    pub pdv_ns: Option<Pdv>,
    /// Loss as a process of two states; `None` where it is not known which packets were lost.
    pub loss_model: Option<LossModel>,
    /// Extent of reordering.
    pub reordering: Option<Reordering>,
    /// Time of the packets by its place, and lost packets by the place of their loss.
    pub ledger: Ledger,
    /// Congestion control of TCP that the sender's kernel used, by its name there; of several flows where all had it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<String>,
    /// Arrivals without the kernel's time stamp: the program's time of reading stands for it, as always on TCP.
    pub unstamped_packets: Option<u64>,
    /// Account: what became of each packet of the plan.
    pub account: PacketAccount,
    /// Lost packets in a row at the very end of the flow.
    pub lost_at_end: Option<u64>,
    /// Setting of the sender that its rate shows, of a flow as fast as possible: the rate is not the path's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limited_by: Option<String>,
}

impl Metrics {
    /// Figures of a volume; everything else unknown.
    #[must_use]
    pub fn of_volume(volume: &Volume) -> Self {
        let mut metrics = Self::default();
        metrics.set_volume(volume);
        metrics
    }

    /// Sets the figures of a volume.
    pub fn set_volume(&mut self, volume: &Volume) {
        self.packets = volume.packets;
        self.bytes = volume.bytes;
        self.duration_ns = volume.duration_ns();
        self.bitrate_bps = volume.bitrate_bps();
        self.packet_rate_pps = volume.packet_rate_pps();
    }

    /// Notes what its sender held a flow as fast as possible to, in bits a second, where the rate comes near to it.
    pub fn set_limit(&mut self, limit_bps: Option<u64>) {
        let near = limit_bps
            .zip(self.bitrate_bps)
            .filter(|(limit, rate)| (LIMITED..=2.0 - LIMITED).contains(&(rate / *limit as f64)));
        self.limited_by = near.map(|_| "pacing_rate".to_owned());
    }

    pub(crate) fn set_bursts(&mut self, loss: Loss) {
        self.loss_bursts = Some(loss.bursts);
        let mean = if loss.bursts == 0 { 0.0 } else { loss.lost as f64 / loss.bursts as f64 };
        self.loss_burst_mean = Some(mean);
    }

    pub(crate) fn set_delay(&mut self, delay: &DelayStats) {
        self.delay_ns = delay.delay();
        self.jitter_ns = delay.jitter();
        self.delay_percentiles_ns = Percentiles::of(delay.distribution().quantiles());
        let percents = || {
            let shares = std::array::from_fn(|place| (place + 1) as f64 / 100.0);
            Percents::of(delay.distribution().quantiles().at(shares))
        };
        self.delay_percents_ns = self.delay_ns.map(|_| percents());
        self.ipdv_ns = delay.ipdv();
        self.pdv_ns = delay.pdv();
        self.negative_delays = delay.negative();
    }

    /// Adds the stamps of departures: the time in the sender's stack, and, where the kernel kept
    /// the times of packets, their lateness and its effect on the verdict.
    pub(crate) fn set_departures(&mut self, departed: &Departed) {
        self.ledger.departure_ns = Way::of(&departed.stack);
        if departed.report.held {
            departed.judge(&mut self.fidelity);
            self.set_lateness(&departed.lateness);
            self.ledger.lateness_ns = Way::of(&departed.lateness);
        }
    }

    pub(crate) fn set_lateness(&mut self, lateness: &SampleDistribution) {
        let max = lateness.moments().max();
        let [p50, p99] = lateness.quantiles().at([0.5, 0.99]);
        self.lateness_ns = (lateness.moments().count() > 0).then_some(Lateness { p50, p99, max });
    }

    /// Share of the packets sent that were lost. Where their number is not known it is taken as
    /// D-ITG does: L / (n + L), n without duplicates.
    #[must_use]
    pub fn loss_share(&self) -> Option<f64> {
        let lost = self.lost?;
        let arrived = self.packets.saturating_sub(self.duplicated.unwrap_or(0));
        let sent = self.sent_packets.unwrap_or_else(|| arrived.saturating_add(lost));
        // Of nothing there is no share.
        (sent > 0).then(|| lost as f64 / sent as f64)
    }
}

/// Value of a metric.
#[derive(Clone, Debug, PartialEq)]
pub enum Figure {
    /// A whole number of 0 or more.
    Count(u64),
    /// A time in nanoseconds, with its sign.
    Time(i64),
    /// Any number.
    Number(f64),
    /// A word.
    Word(String),
}

impl Figure {
    /// The value as a number; `None` of a word.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "figures are told to fifteen digits")]
    pub const fn number(&self) -> Option<f64> {
        match self {
            Self::Count(count) => Some(*count as f64),
            Self::Time(ns) => Some(*ns as f64),
            Self::Number(number) => Some(*number),
            Self::Word(_) => None,
        }
    }
}

impl Figure {
    /// The value as gates compare it: that of a verdict by its place among all of them.
    #[must_use]
    pub fn rank(&self) -> Option<f64> {
        let Self::Word(word) = self else { return self.number() };
        Verdict::ALL.into_iter().find(|verdict| verdict.name() == word).map(rank)
    }
}

/// Writes the exact value. A fraction always has its point, so that readers that look at some rows alone do not take a
/// column for whole numbers.
impl std::fmt::Display for Figure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Count(count) => count.fmt(f),
            Self::Time(ns) => ns.fmt(f),
            Self::Number(number) => write!(f, "{number:?}"),
            Self::Word(word) => f.write_str(word),
        }
    }
}

/// Way to a value.
#[derive(Clone, Copy, Debug)]
enum Get {
    Count(fn(&Metrics) -> Option<u64>),
    Time(fn(&Metrics) -> Option<i64>),
    Number(fn(&Metrics) -> Option<f64>),
    Word(fn(&Metrics) -> Option<&str>),
}

/// Part of the text in which a metric has a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// In the lines of ITGDec's block, which keep its order and form.
    Classic,
    /// On the page alone.
    Page,
    /// Packets.
    Packets,
    /// Delays.
    Delays,
    /// The two hosts.
    Hosts,
    /// Fidelity.
    Fidelity,
}

/// A line of a metric for people, in the text and on the page.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// Part of the text.
    pub part: Part,
    /// Words before the value.
    pub label: &'static str,
    /// Condition of the line in the text, where most reports have nothing to tell there.
    pub when: fn(&Metrics) -> bool,
}

/// A metric: a row of [`METRICS`].
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Keys in the JSON report, joined by points; empty where it is not in there.
    pub key: &'static str,
    /// Name for gates and sweeps; empty where that is the key.
    pub name: &'static str,
    /// Column of `--format csv`; empty without one.
    pub column: &'static str,
    /// Kind of its values, which says their unit.
    pub kind: Kind,
    /// Things counted, or the unit where the kind does not say it: `packets`, `runs`.
    pub unit: &'static str,
    /// Line for people.
    pub line: Option<Line>,
    /// Counter on the pages for Prometheus, and its help.
    pub counter: Option<(&'static str, &'static str)>,
    /// Definition.
    pub meaning: &'static str,
    /// Source of the definition.
    pub source: &'static str,
    get: Get,
    /// The count, for the sum over flows: not known where that of one flow is not.
    sum: Option<fn(&mut Metrics) -> &mut Option<u64>>,
}

impl Metric {
    const fn new(key: &'static str, kind: Kind, get: Get) -> Self {
        let (name, column, unit, meaning, source) = ("", "", "", "", "");
        let (line, counter, sum) = (None, None, None);
        Self { key, name, column, kind, unit, line, counter, meaning, source, get, sum }
    }

    const fn packets(key: &'static str, get: fn(&Metrics) -> Option<u64>) -> Self {
        Self { unit: "packets", ..Self::new(key, Kind::Count, Get::Count(get)) }
    }

    const fn time(key: &'static str, get: fn(&Metrics) -> Option<i64>) -> Self {
        Self::new(key, Kind::Time, Get::Time(get))
    }

    const fn number(key: &'static str, kind: Kind, get: fn(&Metrics) -> Option<f64>) -> Self {
        Self::new(key, kind, Get::Number(get))
    }

    const fn gate(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    const fn csv(self, column: &'static str) -> Self {
        Self { column, ..self }
    }

    const fn unit(self, unit: &'static str) -> Self {
        Self { unit, ..self }
    }

    const fn line(self, part: Part, label: &'static str) -> Self {
        self.line_when(part, label, |_| true)
    }

    const fn line_when(self, part: Part, label: &'static str, when: fn(&Metrics) -> bool) -> Self {
        Self { line: Some(Line { part, label, when }), ..self }
    }

    const fn counter(self, family: &'static str, help: &'static str) -> Self {
        Self { counter: Some((family, help)), ..self }
    }

    const fn is(self, meaning: &'static str, source: &'static str) -> Self {
        Self { meaning, source, ..self }
    }

    const fn sum(self, sum: fn(&mut Metrics) -> &mut Option<u64>) -> Self {
        Self { sum: Some(sum), ..self }
    }

    /// The name by which gates, sweeps and people call it.
    #[must_use]
    pub const fn title(&self) -> &'static str {
        if self.name.is_empty() { self.key } else { self.name }
    }

    /// Its value; `None` where it is not known.
    #[must_use]
    pub fn of(&self, metrics: &Metrics) -> Option<Figure> {
        match self.get {
            Get::Count(get) => get(metrics).map(Figure::Count),
            Get::Time(get) => get(metrics).map(Figure::Time),
            Get::Number(get) => get(metrics).map(Figure::Number),
            Get::Word(get) => get(metrics).map(|word| Figure::Word(word.to_owned())),
        }
    }

    /// The metric that gates call by this name, or that has this key.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        let called = METRICS.iter().find(|metric| metric.title() == name);
        called.or_else(|| METRICS.iter().find(|metric| metric.key == name))
    }
}

/// Sums over flows of the counts that have one.
#[derive(Clone, Debug, Default)]
pub struct Sums(Vec<Sum>);

impl Sums {
    /// Adds the counts of a flow.
    pub fn add(&mut self, of: &Metrics) {
        let counts =
            METRICS.iter().filter(|metric| metric.sum.is_some()).map(|metric| match metric.get {
                Get::Count(get) => get(of),
                _ => None,
            });
        for (place, count) in counts.enumerate() {
            if self.0.len() <= place {
                self.0.push(Sum::default());
            }
            self.0[place].add(count);
        }
    }

    /// Puts the sums into the figures of all flows.
    pub fn put(&self, into: &mut Metrics) {
        let slots = METRICS.iter().filter_map(|metric| metric.sum);
        for (slot, sum) in slots.zip(&self.0) {
            *slot(into) = sum.known();
        }
    }
}

/// Share of a limit from which on a rate is the limit's; the rest is for headers and the rise of TCP.
const LIMITED: f64 = 0.9;

/// A count that is always known.
const fn whole(count: u64) -> Option<u64> {
    Some(count)
}

const fn lost(m: &Metrics) -> bool {
    matches!(m.lost, Some(1..))
}

fn pdv(m: &Metrics, which: fn(&Percentiles) -> Option<i64>) -> Option<i64> {
    which(&m.pdv_ns?.percentiles)
}

fn percentile(m: &Metrics, which: fn(&Percentiles) -> Option<i64>) -> Option<i64> {
    which(&m.delay_percentiles_ns?)
}

const RFC_5481_PDV: &str = "RFC 5481, 4.2";
const RFC_5481_IPDV: &str = "RFC 5481, 4.1";
const RANK: &str = "nearest rank: the ⌈q·n⌉-th smallest";
const TOLD: &str = "nearest rank; unknown where fewer than 10 values lie beyond";

/// All metrics.
#[rustfmt::skip]
pub const METRICS: &[Metric] = {
    use Kind::{BitRate, Count, Number, PacketRate, Share, Size, Time, Verdict, Word};
    use Metric as M;
    use Part::{Classic, Delays, Fidelity, Hosts, Packets, Page};
    &[
        M::packets("packets", |m| whole(m.packets)).csv("packets").line(Classic, "Packets")
            .is("n: arrivals, duplicates included; sent at a sender; come back in a round-trip flow", "D-ITG"),
        M::new("bytes", Size, Get::Count(|m| whole(m.bytes))).csv("bytes").line(Classic, "Bytes")
            .is("their bytes, headers below ITG's excluded", "D-ITG"),
        M::new("duration_ns", Time, Get::Count(|m| whole(m.duration_ns))).gate("duration").csv("duration_ns")
            .line(Classic, "Duration").is("T = max t − min t", "D-ITG"),
        M::number("bitrate_bps", BitRate, |m| m.bitrate_bps).gate("bitrate").csv("bitrate_bps")
            .line(Classic, "Throughput").is("8 · bytes · (n − 1) / (n · T): the first packet opens T; none for one packet", "ours"),
        M::number("packet_rate_pps", PacketRate, |m| m.packet_rate_pps).gate("packet_rate").csv("packet_rate_pps")
            .line(Classic, "Packet rate").is("(n − 1) / T; none for one packet", "ours"),
        M::packets("sent_packets", |m| m.sent_packets).csv("sent_packets").line(Packets, "Packets sent")
            .sum(|m| &mut m.sent_packets).is("packets that the senders counted, or that are in their logs", "ours"),
        M::packets("skipped_packets", |m| m.skipped_packets).csv("skipped_packets")
            .counter("itg_flow_skipped_packets_total", "Packets that the sender left out because they were \
                late; once the flow has ended.")
            .line_when(Packets, "Packets left out", |m| m.skipped_packets > Some(0))
            .sum(|m| &mut m.skipped_packets).is("packets that the sender left out because they were late", "ours"),
        M::number("", Share, Metrics::loss_share).gate("loss").is("`lost` / packets sent", "RFC 7680"),
        M::packets("lost", |m| m.lost).csv("lost")
            .counter("itg_flow_lost_packets_total", "Packets that never arrived, by both sides' accounts; once \
                the flow has ended.")
            .line(Classic, "Lost")
            .sum(|m| &mut m.lost).is("packets sent that never arrived, see below", "RFC 7680"),
        M::packets("duplicated", |m| m.duplicated).csv("duplicated")
            .counter("itg_flow_duplicated_packets_total", "Packets that arrived once more; once the flow has ended.")
            .line(Packets, "Duplicate packets").sum(|m| &mut m.duplicated)
            .is("arrivals of a sequence number that had arrived before", "RFC 5560"),
        M::packets("reordered", |m| m.reordered).csv("reordered")
            .counter("itg_flow_reordered_packets_total", "Packets that arrived behind one with a larger number.")
            .line(Packets, "Reordered packets").sum(|m| &mut m.reordered)
            .is("first arrivals of a number smaller than one that had arrived", "RFC 4737, section 3 (s < NextExp)"),
        M::packets("loss_bursts", |m| m.loss_bursts).unit("runs").csv("loss_bursts").line(Packets, "Loss bursts")
            .is("runs of consecutive lost packets, one at the end included where the end is known",
                "RFC 3357 (loss periods)"),
        M::number("loss_burst_mean", Number, |m| m.loss_burst_mean).unit("packets").csv("loss_burst_mean")
            .line(Classic, "Packets lost in a burst, mean").is("`lost` / `loss_bursts`; 0 without loss",
                "D-ITG's L / E, exact"),
        M::time("delay_ns.min", |m| m.delay_ns.map(|d| d.min)).gate("delay.min").csv("delay_min_ns")
            .line(Classic, "Delay, smallest").is("smallest Dᵢ", "RFC 7679"),
        M::number("delay_ns.mean", Time, |m| m.delay_ns.map(|d| d.mean)).gate("delay.mean").csv("delay_mean_ns")
            .line(Classic, "Delay, mean").is("ΣDᵢ / n; negative ones count", "RFC 7679"),
        M::time("delay_ns.max", |m| m.delay_ns.map(|d| d.max)).gate("delay.max").csv("delay_max_ns")
            .line(Classic, "Delay, largest").is("largest Dᵢ", "RFC 7679"),
        M::number("delay_ns.stddev", Time, |m| m.delay_ns.map(|d| d.stddev)).gate("delay.stddev").csv("delay_stddev_ns")
            .line(Classic, "Delay, standard deviation").is("√(Σ(Dᵢ − mean)² / n), of the population", "D-ITG"),
        M::time("delay_ns.p50", |m| m.delay_ns.map(|d| d.p50)).gate("delay.p50").csv("delay_p50_ns")
            .line_when(Delays, "Delay, median", |m| m.delay_ns.is_some()).is(RANK, "RFC 7679, section 5.1"),
        M::time("delay_ns.p90", |m| m.delay_ns.map(|d| d.p90)).gate("delay.p90").csv("delay_p90_ns")
            .line_when(Delays, "Delay, 90th percentile", |m| m.delay_ns.is_some()).is(RANK, "RFC 7679, section 5.1"),
        M::time("delay_ns.p99", |m| m.delay_ns.map(|d| d.p99)).gate("delay.p99").csv("delay_p99_ns")
            .line_when(Delays, "Delay, 99th percentile", |m| m.delay_ns.is_some()).is(RANK, "RFC 7679, section 5.1"),
        M::time("delay_ns.p999", |m| m.delay_ns.map(|d| d.p999)).gate("delay.p999").csv("delay_p999_ns")
            .line_when(Delays, "Delay, 99.9th percentile", |m| m.delay_ns.is_some()).is(RANK, "RFC 7679, section 5.1"),
        M::new("delay_basis.uncertainty_ns", Time, Get::Count(|m| m.delay_basis.and_then(|b| b.uncertainty_ns)))
            .gate("delay.uncertainty").csv("delay_uncertainty_ns")
            .is("largest error of an absolute delay, see below", "ours"),
        M::number("jitter_ns.mean", Time, |m| m.jitter_ns.map(|j| j.mean)).gate("jitter.mean").csv("jitter_mean_ns")
            .line(Classic, "Jitter, mean")
            .is("Σ |Dᵢ − Dᵢ₋₁| / (n − 1) in order of arrival", "D-ITG; RFC 3393, absolute"),
        M::number("jitter_ns.rfc3550", Time, |m| m.jitter_ns.and_then(|j| j.rfc3550)).gate("jitter.rfc3550")
            .csv("jitter_rfc3550_ns").line_when(Delays, "Jitter, RFC 3550", |m| m.jitter_ns.is_some())
            .is("J after the last packet, J ← J + (|Dᵢ − Dᵢ₋₁| − J) / 16", "RFC 3550, 6.4.1"),
        M::time("jitter_ns.p99", |m| m.jitter_ns.map(|j| j.p99)).gate("jitter.p99").csv("jitter_p99_ns")
            .line_when(Delays, "Jitter, 99th percentile", |m| m.jitter_ns.is_some())
            .is("99th percentile of |Dᵢ − Dᵢ₋₁|", "RFC 3393"),
        M::time("lateness_ns.p50", |m| m.lateness_ns.map(|l| l.p50)).gate("lateness.p50").csv("lateness_p50_ns")
            .line(Hosts, "Lateness, median").is("sent − (start of the flow + planned); with `--pacing txtime` left the \
                stack − that, of the sampled packets", "ours"),
        M::time("lateness_ns.p99", |m| m.lateness_ns.map(|l| l.p99)).gate("lateness.p99").csv("lateness_p99_ns")
            .line(Hosts, "Lateness, 99th perc.").is("99th percentile of it", "ours"),
        M::time("lateness_ns.max", |m| m.lateness_ns.map(|l| l.max)).gate("lateness.max").csv("lateness_max_ns")
            .line(Hosts, "Lateness, maximum").is("largest of it", "ours"),
        M::new("fidelity.verdict", Verdict, Get::Word(|m| Some(m.fidelity.verdict.name()))).gate("fidelity")
            .csv("fidelity")
            .is("judgement of the traffic sent, see [fidelity](fidelity.md)", "ours"),
        M::new("fidelity.burst", Count, Get::Count(|m| m.fidelity.burst.map(u64::from))).unit("packets")
            .line(Page, "Burst mode, packets at a time").is("burst mode: packets that were due together", "ours"),
        M::number("fidelity.idt_ks", Number, |m| m.fidelity.idt_ks).gate("idt_ks").csv("idt_ks").unit("(0 to 1)")
            .line(Fidelity, "Gaps, distance to plan")
            .is("Kolmogorov–Smirnov distance of inter-departure times, sent and planned", "ours"),
        M::number("fidelity.gap_error", Number, |m| m.fidelity.gap_error)
            .gate("fidelity.gap_error").unit("of their mean")
            .line(Fidelity, "Gaps, error on average").is("mean error of an inter-departure time, in units of their mean", "ours"),
        M::number("fidelity.late_share", Share, |m| m.fidelity.late_share).gate("fidelity.late_share")
            .line(Page, "Packets more than a mean gap late").is("share of packets late by more than a mean inter-departure time", "ours"),
        M::number("fidelity.stall_gaps", Number, |m| m.fidelity.stall_gaps).gate("fidelity.stall_gaps")
            .line(Page, "Longest stall, in mean gaps").is("longest stall, in mean inter-departure times", "ours"),
        M::number("fidelity.size_ks", Number, |m| m.fidelity.size_ks).gate("size_ks").csv("size_ks").unit("(0 to 1)")
            .line(Fidelity, "Sizes, distance to plan").is("the same of sizes", "ours"),
        M::number("fidelity.size_error", Share, |m| m.fidelity.size_error).gate("fidelity.size_error")
            .is("mean error of a size, of the mean size", "ours"),
        M::number("fidelity.rate_error", Share, |m| m.fidelity.rate_error).gate("rate_error").csv("rate_error")
            .line(Fidelity, "Mean rate against plan").is("mean rate / planned − 1; gates judge its magnitude", "ours"),
        M::number("fidelity.idt_law_ks", Number, |m| m.fidelity.idt_law_ks).csv("idt_law_ks")
            .line(Page, "Gaps, distance to distribution").is("distance of inter-departure times to their distribution", "ours"),
        M::number("fidelity.idt_law_band", Number, |m| m.fidelity.idt_law_band).csv("idt_law_band")
            .is("distance that chance alone gives them", "ours"),
        M::number("fidelity.size_law_ks", Number, |m| m.fidelity.size_law_ks).csv("size_law_ks")
            .line(Page, "Sizes, distance to distribution").is("distance of sizes to their distribution", "ours"),
        M::number("fidelity.size_law_band", Number, |m| m.fidelity.size_law_band).csv("size_law_band")
            .is("distance that chance alone gives them", "ours"),
        M::number("goodput_bps", BitRate, |m| m.goodput_bps).gate("goodput").csv("goodput_bps")
            .line_when(Packets, "Goodput", |m| m.duplicated > Some(0))
            .is("`bitrate` of the bytes of first arrivals", "RFC 2647, 3.17"),
        M::packets("negative_delays", |m| whole(m.negative_delays)).csv("negative_delays")
            .line_when(Delays, "Negative delays", |m| m.negative_delays > 0)
            .is("delays below 0, which only clocks that disagree give", "ours"),
        M::packets("delay_percentiles_ns.count", |m| m.delay_percentiles_ns.map(|p| p.count)).csv("delay_count")
            .is("delays known", "ours"),
        M::time("delay_percentiles_ns.p75", |m| percentile(m, |p| p.p75)).csv("delay_p75_ns").is(TOLD, "RFC 7679, 5.1"),
        M::time("delay_percentiles_ns.p95", |m| percentile(m, |p| p.p95)).csv("delay_p95_ns").is(TOLD, "RFC 7679, 5.1"),
        M::time("delay_percentiles_ns.p9999", |m| percentile(m, |p| p.p9999)).csv("delay_p9999_ns")
            .is(TOLD, "RFC 7679, 5.1"),
        M::time("delay_percentiles_ns.p99999", |m| percentile(m, |p| p.p99999)).csv("delay_p99999_ns")
            .is(TOLD, "RFC 7679, 5.1"),
        M::time("ipdv_ns.min", |m| m.ipdv_ns.map(|v| v.min)).csv("ipdv_min_ns")
            .is("smallest Dᵢ − Dᵢ₋₁ over successive arrivals, signed", RFC_5481_IPDV),
        M::time("ipdv_ns.p1", |m| m.ipdv_ns.map(|v| v.p1)).csv("ipdv_p1_ns").is("percentile 1 of it", RFC_5481_IPDV),
        M::time("ipdv_ns.p50", |m| m.ipdv_ns.map(|v| v.p50)).csv("ipdv_p50_ns").is("median of it", RFC_5481_IPDV),
        M::time("ipdv_ns.p99", |m| m.ipdv_ns.map(|v| v.p99)).csv("ipdv_p99_ns")
            .is("percentile 99 of it", RFC_5481_IPDV),
        M::time("ipdv_ns.max", |m| m.ipdv_ns.map(|v| v.max)).csv("ipdv_max_ns").is("largest of it", RFC_5481_IPDV),
        M::number("pdv_ns.mean", Time, |m| m.pdv_ns.map(|v| v.mean)).csv("pdv_mean_ns")
            .is("mean of Dᵢ − min D", RFC_5481_PDV),
        M::time("pdv_ns.p50", |m| pdv(m, |p| p.p50)).csv("pdv_p50_ns").is("median of it", RFC_5481_PDV),
        M::time("pdv_ns.p99", |m| pdv(m, |p| p.p99)).csv("pdv_p99_ns")
            .line_when(Delays, "PDV, 99th percentile", |m| m.pdv_ns.is_some()).is("percentile 99 of it", RFC_5481_PDV),
        M::time("pdv_ns.p999", |m| pdv(m, |p| p.p999)).csv("pdv_p999_ns").is("percentile 99.9 of it", RFC_5481_PDV),
        M::number("loss_model.p", Number, |m| m.loss_model.and_then(|l| l.p)).csv("loss_model_p").unit("(Gilbert p)")
            .line_when(Packets, "Loss behind an arrival", lost).is("share of arrivals followed by a loss",
                "Gilbert 1960; estimator Yajnik et al. 1999"),
        M::number("loss_model.r", Number, |m| m.loss_model.and_then(|l| l.r)).csv("loss_model_r").unit("(Gilbert r)")
            .line_when(Packets, "Arrival behind a loss", lost).is("share of losses followed by an arrival",
                "Gilbert 1960; estimator Yajnik et al. 1999"),
        M::packets("loss_model.burst_max", |m| m.loss_model.map(|l| l.burst_max)).csv("loss_model_burst_max")
            .line_when(Packets, "Longest loss burst", lost).is("longest run of lost packets", "RFC 3357"),
        M::number("reordering.extent_mean", Number, |m| m.reordering.map(|r| r.extent_mean)).unit("packets")
            .csv("reordering_extent_mean").line_when(Packets, "Reordering extent, mean", |m| m.reordered > Some(0))
            .is("of a reordered packet: how many arrivals before it the first larger number came", "RFC 4737, 4.2.1"),
        M::packets("reordering.extent_max", |m| m.reordering.map(|r| r.extent_max)).csv("reordering_extent_max")
            .line_when(Packets, "Reordering extent, max.", |m| m.reordered > Some(0))
            .is("largest of it", "RFC 4737, 4.2.1"),
        M::packets("reordering.free_runs", |m| m.reordering.map(|r| r.free_runs)).unit("runs")
            .is("runs of new packets in order that a reordered one ended", "RFC 4737, 4.5"),
        M::number("reordering.free_run_mean", Number, |m| m.reordering.map(|r| r.free_run_mean)).unit("packets")
            .is("mean length of these", "RFC 4737, 4.5"),
        M::number("ledger.lateness_ns.mean", Time, |m| m.ledger.lateness_ns.map(|w| w.mean))
            .csv("ledger_lateness_mean_ns")
            .is("mean of sent − planned", "ours"),
        M::number("ledger.network_ns.mean", Time, |m| m.ledger.network_ns.map(|w| w.mean)).csv("ledger_network_mean_ns")
            .is("mean of arrived − sent", "ours"),
        M::number("ledger.stack_ns.mean", Time, |m| m.ledger.stack_ns.map(|w| w.mean)).csv("ledger_stack_mean_ns")
            .is("mean of read − arrived, where the kernel stamped the arrival", "ours"),
        M::time("ledger.stack_ns.p50", |m| m.ledger.stack_ns.map(|w| w.p50))
            .line_when(Hosts, "Receive stack, median", |m| m.ledger.stack_ns.is_some())
            .is("median of read − arrived", "ours"),
        M::time("ledger.stack_ns.p99", |m| m.ledger.stack_ns.map(|w| w.p99)).csv("ledger_stack_p99_ns")
            .line_when(Hosts, "Receive stack, 99th perc.", |m| m.ledger.stack_ns.is_some())
            .is("percentile 99 of it", "ours"),
        M::packets("ledger.loss.socket", |m| m.ledger.loss.socket).csv("ledger_loss_socket")
            .line_when(Packets, "Lost at the socket", lost_somewhere)
            .is("dropped by the kernel at the receiver's socket while the flow ran, see below", "ours"),
        M::packets("ledger.loss.log", |m| m.ledger.loss.log).csv("ledger_loss_log")
            .line_when(Packets, "Arrived, not in the log", |m| m.ledger.loss.log > Some(0))
            .is("arrived, but not in the log: not lost", "ours"),
        M::packets("ledger.loss.network", |m| m.ledger.loss.network).csv("ledger_loss_network")
            .line_when(Packets, "Lost in the network", lost_somewhere)
            .is("`lost` − `ledger.loss.socket` − `account.lost.too_late`, see below", "ours"),
        M::time("ledger.departure_ns.p50", |m| m.ledger.departure_ns.map(|w| w.p50)).csv("ledger_departure_p50_ns")
            .line_when(Hosts, "Send stack, median", |m| m.ledger.departure_ns.is_some())
            .is("median of left the sender's network stack − handed to the kernel (`--tx-stamps`)", "ours"),
        M::time("ledger.departure_ns.p99", |m| m.ledger.departure_ns.map(|w| w.p99)).csv("ledger_departure_p99_ns")
            .line_when(Hosts, "Send stack, 99th perc.", |m| m.ledger.departure_ns.is_some())
            .is("percentile 99 of it", "ours"),
        M::packets("ledger.departure_ns.count", |m| m.ledger.departure_ns.map(|w| w.count)).csv("departure_stamps")
            .line_when(Hosts, "Send stack, stamps", |m| m.ledger.departure_ns.is_some())
            .is("packets with such a stamp", "ours"),
        M::packets("excess_packets", |m| whole(m.excess_packets)).csv("excess_packets")
            .line_when(Packets, "Arrived beyond those sent", |m| m.excess_packets > 0)
            .is("different packets that arrived beyond those sent, see below; above 0 `lost` is unknown", "ours"),
        M::new("congestion_control", Word, Get::Word(|m| m.congestion_control.as_deref())).csv("congestion_control")
            .line_when(Hosts, "Congestion control", |m| m.congestion_control.is_some())
            .is("congestion control that the sender's kernel used on TCP, by its name there", "Linux, tcp(7)"),
        M::packets("account.planned", |m| m.account.planned).gate("planned").csv("planned")
            .counter("itg_flow_planned_packets_total", "Packets of the plan; once the flow has ended.")
            .line_when(Packets, "Packets planned", |m| m.account.planned.is_some() && m.account.planned != m.account.sent)
            .sum(|m| &mut m.account.planned).is("packets of the plan, by its description", "ours"),
        M::packets("account.refused", |m| m.account.refused).gate("refused").csv("refused")
            .counter("itg_flow_refused_packets_total", "Packets that the sender's kernel refused; once the flow has ended.")
            .line_when(Packets, "Refused by the kernel", |m| m.account.refused > Some(0))
            .sum(|m| &mut m.account.refused).is("packets that the sender's kernel refused, by its error in `refused_by`", "ours"),
        M::packets("account.not_reached", |m| m.account.not_reached).gate("not_reached").csv("not_reached")
            .counter("itg_flow_not_reached_packets_total", "Packets behind the early end of a flow; once it has ended.")
            .line_when(Packets, "Not reached by the flow", |m| m.account.not_reached > Some(0))
            .sum(|m| &mut m.account.not_reached).is("packets behind the early end of the flow, see `end`", "ours"),
        M::packets("account.arrived", |m| m.account.arrived).gate("arrived").csv("arrived").sum(|m| &mut m.account.arrived)
            .is("different packets that arrived", "ours"),
        M::packets("", |m| m.account.unsent()).gate("unsent").is("`planned` − `sent`", "ours"),
        M::number("", Share, |m| m.account.unsent_share()).gate("unsent_share").is("`unsent` / `planned`", "ours"),
        M::packets("account.sent", |m| m.account.sent).is("as `sent_packets`", "ours"),
        M::packets("account.left_out", |m| m.account.left_out).gate("left_out").is("as `skipped_packets`", "ours"),
        M::packets("account.lost.unknown", |m| m.account.lost.unknown)
            .is("lost packets of which nobody knows where", "ours"),
        M::packets("unstamped_packets", |m| m.unstamped_packets).csv("unstamped_packets").sum(|m| &mut m.unstamped_packets)
            .line_when(Delays, "Arrivals not stamped", |m| m.unstamped_packets > Some(0))
            .is("arrivals without the kernel's time stamp: their delays end when the program read them, as on TCP", "ours"),
        M::packets("account.logged", |m| m.account.logged).is("packets that arrived and are in the log", "ours"),
        M::packets("account.lost.checksum", |m| m.account.lost.checksum).gate("checksum_drops").csv("checksum_drops")
            .line_when(Packets, "Dropped, wrong checksum", |m| m.account.lost.checksum > Some(0))
            .sum(|m| &mut m.account.lost.checksum)
            .is("part of `lost` that the kernel dropped at the receiver's socket because the checksum was wrong", "ours"),
        M::packets("account.lost.sender_host", |m| m.account.lost.sender_host).gate("sender_host")
            .sum(|m| &mut m.account.lost.sender_host)
            .is("part of `lost` that the sender's host dropped below its sockets; known where it dropped none at all", "ours"),
        M::packets("account.lost.too_late", |m| m.account.lost.too_late).gate("too_late").csv("too_late")
            .line_when(Packets, "Arrived too late", |m| m.account.lost.too_late > Some(0))
            .sum(|m| &mut m.account.lost.too_late)
            .is("part of `lost` that the receiver saw arrive after it had counted the flow (`--drain`)", "ours"),
        M::packets("account.lost.socket", |m| m.account.lost.socket).sum(|m| &mut m.account.lost.socket)
            .is("part of `lost` that the receiver's full socket dropped", "ours"),
        M::packets("account.lost.network", |m| m.account.lost.network).sum(|m| &mut m.account.lost.network)
            .is("part of `lost` that is left for the network", "ours"),
        M::packets("account.lost.rebound", |m| m.account.lost.rebound).gate("rebound").csv("rebound")
            .line_when(Packets, "Came another way", |m| m.account.lost.rebound > Some(0))
            .sum(|m| &mut m.account.lost.rebound)
            .is("part of `lost` that came from another port of the sender's address: a NAT forgot the flow", "ours"),
        M::packets("account.lost.receiver_gone", |m| m.account.lost.receiver_gone).gate("receiver_gone").csv("receiver_gone")
            .line_when(Packets, "Lost with a connection", |m| m.account.lost.receiver_gone > Some(0))
            .sum(|m| &mut m.account.lost.receiver_gone)
            .is("part of `lost` whose connection was over before its receiver had read them", "ours"),
        M::packets("account.lost_there", |m| m.account.lost_there).gate("lost_there").csv("lost_there")
            .line_when(Packets, "Lost on the way there", |m| m.account.lost_back > Some(0))
            .sum(|m| &mut m.account.lost_there)
            .is("part of `lost` that did not reach the receiver: all of a one-way flow", "RFC 2681, ours"),
        M::packets("account.lost_back", |m| m.account.lost_back).gate("lost_back").csv("lost_back")
            .line_when(Packets, "Lost on the way back", |m| m.account.lost_back > Some(0))
            .sum(|m| &mut m.account.lost_back)
            .is("part of `lost` that the receiver got, and whose answer did not come back", "RFC 2681, ours"),
        M::packets("lost_at_end", |m| m.lost_at_end).gate("lost_at_end").csv("lost_at_end").sum(|m| &mut m.lost_at_end)
            .line_when(Packets, "Lost at the very end", |m| m.lost_at_end > Some(0))
            .is("part of `lost` behind the last packet of a flow that arrived", "RFC 3357, ours"),
        M::packets("account.corrupted", |m| m.account.corrupted).gate("corrupted").csv("corrupted")
            .line_when(Packets, "Corrupted payloads", |m| m.account.corrupted > Some(0)).sum(|m| &mut m.account.corrupted)
            .counter("itg_flow_corrupted_packets_total", "Packets with another payload than their flow's; once it has ended.")
            .is("arrivals with another payload than their flow's (`itg-recv --check-payload`)", "ours"),
        M::new("limited_by", Word, Get::Word(|m| m.limited_by.as_deref())).csv("limited_by")
            .line_when(Packets, "Rate limited by", |m| m.limited_by.is_some())
            .is("`pacing_rate` where a flow as fast as possible had 0.9 to 1.1 of the rate that its sender holds it to", "ours"),
        M::packets("account.not_logged", |m| m.account.not_logged).gate("not_logged").is("as `ledger.loss.log`", "ours"),
        M::number("bitrate_over_plan_bps", BitRate, |m| m.bitrate_over_plan_bps).gate("bitrate_over_plan")
            .csv("bitrate_over_plan_bps").line_when(Packets, "Bitrate over the plan", is_cut_short)
            .is("8 · bytes / the flow's planned time: it falls where packets are missing at its end", "ours"),
    ]
};

/// True if the packets of a flow end long before its planned time, so that its two rates differ.
fn is_cut_short(m: &Metrics) -> bool {
    let rates = m.bitrate_bps.zip(m.bitrate_over_plan_bps);
    rates.is_some_and(|(rate, planned)| planned < 0.99 * rate)
}

/// Returns true where packets were lost at a socket, or nobody knows where.
fn lost_somewhere(m: &Metrics) -> bool {
    let split = &m.ledger.loss;
    split.socket > Some(0) || (lost(m) && split.network.is_none())
}
