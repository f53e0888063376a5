//! All metrics of one flow at one side, in one pass over its records.
//!
//! Memory is bounded by the histograms and by the holes in the sequence numbers, not by the
//! packets. What is counted depends on the side: packets sent at the sender, packets arrived at the
//! receiver; at the sender of a round-trip flow the replies, as in D-ITG's logs of such flows.

mod account;
mod rows;

use std::sync::{Arc, LazyLock};

use itg_clocks::{ClockModel, Dated, SenderClock};
use itg_core::flow::Meter;
use itg_core::units::MAX_TIME_NS;
use itg_record::{Kind, Record, Side, flag};

use crate::delay::{DelayStats, SampleDistribution, signed_difference};
use crate::fidelity::{Asked, Departed, Departures, Distributions, Stall};
use crate::figures::{Ledger, LossModel, LossSplit, Reordering, Way};
use crate::marks::Marks;
use crate::metric::Metrics;
use crate::plan::Plan;
use crate::plot::trace::{Trace, TraceSetup};
use crate::sequence::{Arrival, SeqTracker};
use crate::series::{Grid, Series, Window};
pub use crate::volume::{LossBasis, Volume};

pub use account::Account;

/// Packets at the start of a sender's log whose planned time and size are compared with what the seed
/// gives. Whether the log follows the plan shows at once or not at all, and drawing each packet again
/// takes longer than everything else.
pub const PLAN_CHECKED: u64 = 1 << 16;

/// Packets whose plan is computed again at a receiver when nothing else is asked for: drawing one takes
/// longer than all of its metrics.
pub const PLAN_PACKETS: u64 = 1 << 20;

/// Arrivals behind the packets whose plan is computed again that are waited for stragglers.
const STRAGGLING: u64 = 1 << 16;

/// Description of a flow before its first record.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Side of the log.
    pub side: Side,
    /// Kind of delay that the flow measures.
    pub meter: Meter,
    /// Instant on the sender's clock that planned times count from, in Unix nanoseconds.
    pub epoch_unix_ns: Option<u64>,
    /// The plan, where it can be computed again.
    pub plan: Option<Box<Plan>>,
    /// The distributions of the flow, where they are known.
    pub distributions: Option<Distributions>,
    /// Windows of the series, when one is wanted.
    pub grid: Option<Grid>,
    /// Metrics to add up.
    pub lane: Lane,
    /// At a receiver whose clock is not the sender's: how far it is ahead.
    pub clock: Option<Arc<ClockModel>>,
    /// The sender's clock, where it was set.
    pub sender_clock: Option<SenderClock>,
    /// Packets, by sequence number, whose plan is computed again from what arrived.
    pub plan_packets: u64,
    /// Settings of the data kept for plots, when some are wanted.
    pub trace: Option<TraceSetup>,
    /// At a sender: how late 99 % of its packets may be as it declared, in nanoseconds.
    pub declared_p99_ns: Option<u64>,
}

/// Metrics that a pass over the records adds up. At a receiver, computing the plan again costs more
/// than everything else, and it has to go from the first packet to the last; so it can be a pass of
/// its own beside the others ([`FlowStats::adopt_departures`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lane {
    /// All of them.
    #[default]
    All,
    /// All but departures computed again from arrivals: those of the sender's log are known, or
    /// another pass computes them.
    Arrivals,
    /// Nothing but departures computed again from arrivals.
    Plan,
}

impl Setup {
    /// A flow of which nothing is known but the side of its log.
    #[must_use]
    pub const fn unknown(side: Side) -> Self {
        let (meter, lane) = (Meter::Owd, Lane::All);
        Self {
            side,
            meter,
            epoch_unix_ns: None,
            plan: None,
            distributions: None,
            grid: None,
            lane,
            clock: None,
            sender_clock: None,
            plan_packets: PLAN_PACKETS,
            trace: None,
            declared_p99_ns: None,
        }
    }
}

/// Delay of a packet that arrived, in nanoseconds: arrived − sent, less what the receiver's clock was ahead when it
/// was sent. The one place where it is computed. `None` for a packet too short to carry its time of sending,
/// whose record says 0, and where a time is one that no clock shows.
#[inline]
pub(crate) fn delay_of(
    record: &Record,
    clock: Option<&ClockModel>,
    near: &mut usize,
) -> Option<i64> {
    (record.a != 0 && record.has_good_times()).then(|| {
        let delay = signed_difference(record.b, record.a);
        clock.map_or(delay, |clock| delay.saturating_sub(clock.offset_near(record.a, near)))
    })
}

/// Counts from the other side and from the end of the flow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts<'a> {
    /// Packets the sender counted.
    pub sent_packets: Option<u64>,
    /// Packets that all its senders left out.
    pub skipped_packets: Option<u64>,
    /// The same, of those that have told it.
    pub skipped_told: Option<u64>,
    /// Packets that the sender's kernel refused.
    pub refused_packets: Option<u64>,
    /// Packets the receiver counted.
    pub received_packets: Option<u64>,
    /// Different packets among them.
    pub received_unique: Option<u64>,
    /// Packets the kernel dropped at the receiver's socket.
    pub socket_drops: Option<u64>,
    /// Packets that it dropped there because their checksum was wrong.
    pub checksum_drops: Option<u64>,
    /// True if some of these may have been packets of other flows.
    pub shared_drops: bool,
    /// Packets of all traffic that the sender's host dropped below its sockets.
    pub host_drops: Option<u64>,
    /// Different packets that arrived after the receiver had counted the flow, as far as it saw them.
    pub too_late: Option<u64>,
    /// Different packets that came from another port of the sender's address, and were left out.
    pub rebound: Option<u64>,
    /// Packets that arrived, but are not in the receiver's log.
    pub unlogged: Option<u64>,
    /// True if the log that has the arrivals breaks off before the flow ends.
    pub breaks_off: bool,
    /// True if it lacks records that could not be written or read.
    pub lacks_records: bool,
    /// True if the sender's log lacks records, or breaks off.
    pub sender_lacks: bool,
    /// True if it lacks records that could not be written or read.
    pub sender_lacks_records: bool,
    /// True if the log of an owner that sent some of the flow is not given, as far as that is known.
    pub sender_absent: bool,
    /// True if a log has more packets than the account in it.
    pub contradicted: bool,
    /// Packets that were due while the sender's socket, or the queue of its device, took no more.
    pub waited_packets: Option<u64>,
    /// True if the flow is a stream.
    pub stream: bool,
    /// True if its transport sends again what the network loses.
    pub resends: bool,
    /// True if D-ITG wrote the log: what is missing among its numbers is all that it can tell of losses.
    pub by_numbers: bool,
    /// Uncertainty of the time from a packet's stamp to its departure by the kernel's stamps, in nanoseconds.
    pub departure_spread_ns: Option<f64>,
    /// The same flow at its other side.
    pub peer: Option<&'a FlowStats>,
}

impl Facts<'_> {
    /// Packets that had their turn and were not sent, as far as that is told.
    pub(crate) fn unsent(&self) -> u64 {
        self.skipped_packets.unwrap_or(0).saturating_add(self.refused_packets.unwrap_or(0))
    }
}

/// The metrics of one flow at one side.
#[derive(Clone, Debug)]
pub struct FlowStats {
    setup: Setup,
    sent: Volume,
    sent_seqs: SeqTracker,
    arrived: Volume,
    arrived_seqs: SeqTracker,
    /// Time of the first arrival whose delay is known.
    first_delay: Option<u64>,
    delay: DelayStats,
    /// Read − arrived, where the kernel said when.
    stack: SampleDistribution,
    duplicate_bytes: u64,
    marks: Marks,
    /// None before the first one: most logs of receivers tell of none.
    departures: Option<Box<Departures>>,
    user_stamps: u64,
    foreign: u64,
    /// Records with a time that no clock shows.
    undated: u64,
    replanned: u64,
    resized: u64,
    /// Departures whose times are corrected because the sender's clock was set.
    corrected: u64,
    /// Arrivals of packets with numbers behind those whose plan is computed again.
    behind_plan: u64,
    series: Option<Series>,
    /// Place in the clock model that was used last.
    near: usize,
    trace: Option<Trace>,
}

impl FlowStats {
    /// A flow without records.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        Self {
            series: setup.grid.map(Series::new),
            trace: setup.trace.map(Trace::new),
            setup,
            sent: Volume::default(),
            sent_seqs: SeqTracker::new(),
            arrived: Volume::default(),
            arrived_seqs: SeqTracker::new(),
            first_delay: None,
            delay: DelayStats::default(),
            stack: SampleDistribution::default(),
            duplicate_bytes: 0,
            marks: Marks::default(),
            departures: None,
            user_stamps: 0,
            foreign: 0,
            undated: 0,
            replanned: 0,
            resized: 0,
            corrected: 0,
            behind_plan: 0,
            near: 0,
        }
    }

    /// Takes the next record in the order of the log.
    #[inline]
    pub fn add(&mut self, record: &Record) {
        match (self.setup.side, record.kind) {
            (Side::Sender, Kind::Sent) => self.depart(record),
            (Side::Sender, Kind::Echoed) | (Side::Receiver, Kind::Received) => self.arrive(record),
            _ => self.foreign += 1,
        }
    }

    /// Takes a later part of the same flow at the same side, when all sequence numbers in it are
    /// larger than those here; then everything comes out as in one pass. Otherwise says false and
    /// leaves all as it was: the records have to be added one by one. Series must be on the same grid.
    #[must_use]
    pub fn append(&mut self, mut later: Self) -> bool {
        let clean = self.sent_seqs.is_below(&later.sent_seqs)
            && self.arrived_seqs.is_below(&later.arrived_seqs);
        if !clean {
            return false;
        }
        if let (Some(series), Some(other)) = (&mut self.series, &mut later.series) {
            if let (Some(unix_ns), Some(step)) =
                (later.first_delay, self.delay.step_to(&later.delay))
            {
                other.correct(unix_ns, |window| {
                    window.variation_sum += u128::from(step);
                    window.variations += 1;
                });
            }
            series.merge(other);
        }
        Trace::append(&mut self.trace, later.trace.take(), later.first_delay, || {
            self.delay.step_to(&later.delay)
        });
        self.sent.merge(&later.sent);
        self.arrived.merge(&later.arrived);
        let appended = self.sent_seqs.append(&later.sent_seqs)
            && self.arrived_seqs.append(&later.arrived_seqs);
        debug_assert!(appended, "compared above");
        self.first_delay = self.first_delay.or(later.first_delay);
        self.delay.append(&later.delay);
        self.stack.merge(&later.stack);
        self.duplicate_bytes += later.duplicate_bytes;
        self.marks.append(&later.marks);
        if let Some(later) = &later.departures {
            self.departures.get_or_insert_default().append(later);
        }
        self.user_stamps += later.user_stamps;
        self.foreign += later.foreign;
        self.undated += later.undated;
        self.replanned += later.replanned;
        self.resized += later.resized;
        self.corrected += later.corrected;
        self.behind_plan += later.behind_plan;
        true
    }

    /// Takes the departures that a pass over [`Lane::Plan`] has computed.
    pub fn adopt_departures(&mut self, plan: Self) {
        self.departures = plan.departures;
        self.replanned = plan.replanned;
        self.resized = plan.resized;
        self.corrected = plan.corrected;
        self.behind_plan = plan.behind_plan;
        Trace::append(&mut self.trace, plan.trace, None, || None);
    }

    #[inline]
    fn depart(&mut self, record: &Record) {
        self.sent.add(record.size, record.b);
        let dated = record.has_good_times();
        self.undated += u64::from(!dated);
        let arrival = self.sent_seqs.insert(record.seq);
        if arrival == Arrival::Duplicate {
            return;
        }
        if dated && record.flags & flag::UNPLANNED == 0 {
            let packet = Departed { seq: record.seq, planned_ns: record.a, sent_ns: record.b };
            let packet = self.as_planned(packet);
            let departures = self.departures.get_or_insert_default();
            departures.add(packet, self.setup.epoch_unix_ns);
            departures.count(record.size);
            if record.seq < PLAN_CHECKED {
                self.compare_with_plan(record);
            }
        }
        if self.has_windows() && !self.counts_arrivals() {
            self.window(record, None, None);
        }
    }

    /// At the sender: whether the plan in the log is the one that the seed gives.
    fn compare_with_plan(&mut self, record: &Record) {
        let plan = self.setup.plan.as_mut();
        let Some(planned) = plan.and_then(|plan| plan.at(record.seq)) else { return };
        self.departures.get_or_insert_default().add_size(record.size, planned.size);
        if let Some(trace) = &mut self.trace {
            trace.add_size(record.size, planned.size);
        }
        self.replanned += u64::from(planned.due_ns != record.a);
    }

    #[inline]
    fn arrive(&mut self, record: &Record) {
        let planned = self.setup.lane != Lane::Arrivals && self.is_in_plan(record.seq);
        if self.setup.lane == Lane::Plan && !planned {
            return;
        }
        let arrival = self.arrived_seqs.insert(record.seq);
        if self.setup.lane != Lane::Plan {
            self.arrived.add(record.size, record.b);
            self.marks.add(record);
            self.user_stamps += u64::from(record.flags & flag::USER_STAMP != 0);
            self.undated += u64::from(!record.has_good_times());
            if record.flags & (flag::USER_STAMP | flag::DELTA_SATURATED) == 0 {
                self.stack.add(i64::from(record.delta));
            }
            if arrival == Arrival::Duplicate {
                self.duplicate_bytes += u64::from(record.size);
            }
            let delay = delay_of(record, self.setup.clock.as_deref(), &mut self.near);
            if self.first_delay.is_none() && delay.is_some() {
                self.first_delay = Some(record.b);
            }
            let variation = delay.and_then(|delay| self.delay.add(delay));
            if self.has_windows() {
                self.window(record, delay, variation);
            }
        }
        if planned
            && record.kind == Kind::Received
            && arrival != Arrival::Duplicate
            && let Some(packet) = self.replanned_departure(record)
        {
            let departures = self.departures.get_or_insert_default();
            departures.add(packet, self.setup.epoch_unix_ns);
        }
    }

    /// Returns true if the plan of the arrival with this number is computed again.
    fn is_in_plan(&mut self, seq: u64) -> bool {
        self.behind_plan += u64::from(seq >= self.setup.plan_packets);
        seq < self.setup.plan_packets && !self.plan_is_done()
    }

    /// Returns true if so many packets with numbers behind the plan have arrived that no more of it
    /// is waited for.
    #[must_use]
    pub const fn plan_is_done(&self) -> bool {
        self.behind_plan >= STRAGGLING
    }

    /// Forgets the plan behind the last record: with it what is kept for packets out of order.
    pub(crate) fn end_plan(&mut self) {
        self.setup.plan = None;
    }

    /// At the receiver: when the packet should have left, by the plan, and when it says it did. `None` where it does
    /// not say, or nothing is known of the plan.
    fn replanned_departure(&mut self, record: &Record) -> Option<Departed> {
        let plan = self.setup.plan.as_mut();
        let planned = plan.and_then(|plan| plan.at(record.seq))?;
        self.resized += u64::from(record.size != planned.size);
        let departures = self.departures.get_or_insert_default();
        departures.count(record.size);
        departures.add_size(record.size, planned.size);
        if let Some(trace) = &mut self.trace {
            trace.add_size(record.size, planned.size);
        }
        let (planned_ns, sent_ns) = (planned.due_ns, record.a);
        let dated = record.a != 0 && record.has_good_times();
        dated.then(|| self.as_planned(Departed { seq: record.seq, planned_ns, sent_ns }))
    }

    /// The same packet by the clock that its flow's start was told by.
    fn as_planned(&mut self, packet: Departed) -> Departed {
        let both = self.setup.sender_clock.as_ref().zip(self.setup.epoch_unix_ns);
        let Some((clock, epoch)) = both else { return packet };
        let due_ns = epoch.saturating_add(packet.planned_ns);
        let sent_ns = clock.correct(Dated { due_ns, sent_ns: packet.sent_ns });
        self.corrected += u64::from(sent_ns != packet.sent_ns);
        Departed { sent_ns, ..packet }
    }

    fn window(&mut self, record: &Record, delay: Option<i64>, variation: Option<u64>) {
        if record.b > MAX_TIME_NS {
            return;
        }
        let packet = Window {
            packets: 1,
            bytes: u64::from(record.size),
            delay_sum: delay.map_or(0, i128::from),
            delays: u64::from(delay.is_some()),
            variation_sum: variation.map_or(0, u128::from),
            variations: u64::from(variation.is_some()),
            lost: 0,
            seq_max: Some(record.seq),
        };
        if let Some(series) = &mut self.series {
            series.add(record.b, &packet);
        }
        if let Some(trace) = &mut self.trace {
            trace.add(record.b, delay, &packet);
        }
    }

    const fn has_windows(&self) -> bool {
        self.series.is_some() || self.trace.is_some()
    }

    /// Data kept for plots, when it was requested.
    #[must_use]
    pub const fn trace(&self) -> Option<&Trace> {
        self.trace.as_ref()
    }

    /// Returns true if this flow counts arrivals here; false if departures.
    #[must_use]
    pub fn counts_arrivals(&self) -> bool {
        self.setup.side == Side::Receiver
            || self.setup.meter == Meter::Rtt
            || self.arrived.packets > 0
    }

    /// Side of the log.
    #[must_use]
    pub const fn side(&self) -> Side {
        self.setup.side
    }

    /// Packets and bytes that are counted here.
    #[must_use]
    pub fn volume(&self) -> &Volume {
        if self.counts_arrivals() { &self.arrived } else { &self.sent }
    }

    /// Packets that were sent, by the log.
    pub(crate) const fn sent(&self) -> &Volume {
        &self.sent
    }

    /// Delays in order of arrival.
    #[must_use]
    pub const fn delay(&self) -> &DelayStats {
        &self.delay
    }

    /// Times between arrival and reading.
    #[must_use]
    pub const fn stack(&self) -> &SampleDistribution {
        &self.stack
    }

    /// Planned against actual departures: those of the sender's log, else those computed from the
    /// packets that arrived.
    #[must_use]
    pub fn departures<'a>(&'a self, facts: &Facts<'a>) -> &'a Departures {
        static NONE: LazyLock<Departures> = LazyLock::new(Departures::default);
        let logged = self.sender(facts).and_then(|sender| sender.departures.as_deref());
        let logged = logged.filter(|departures| !departures.is_empty());
        logged.or(self.departures.as_deref()).unwrap_or(&NONE)
    }

    /// Returns true if the plan was computed again for the first packets of the flow only.
    #[must_use]
    pub fn plan_was_cut(&self) -> bool {
        let reached = self.arrived_seqs.max().is_some_and(|max| max >= self.setup.plan_packets);
        self.setup.side == Side::Receiver && self.has_departures() && reached
    }

    /// Packets, by sequence number, whose plan is computed again from what arrived.
    #[must_use]
    pub const fn plan_packets(&self) -> u64 {
        self.setup.plan_packets
    }

    /// Returns true if planned and actual departures are known from the log of this side.
    #[must_use]
    pub fn has_departures(&self) -> bool {
        self.departures.as_ref().is_some_and(|departures| !departures.is_empty())
    }

    /// Numbers of the packets that arrived.
    #[must_use]
    pub const fn arrived_seqs(&self) -> &SeqTracker {
        &self.arrived_seqs
    }

    /// Numbers of the packets that were sent, at the sender.
    #[must_use]
    pub const fn sent_seqs(&self) -> &SeqTracker {
        &self.sent_seqs
    }

    /// Arrivals that have no time stamp of the kernel but the time at which the program read them.
    #[must_use]
    pub const fn user_stamps(&self) -> u64 {
        self.user_stamps
    }

    /// Records of a kind that the side of the log does not write.
    #[must_use]
    pub const fn foreign(&self) -> u64 {
        self.foreign
    }

    /// Records with a time that no clock shows: they count as packets, and their times are left out.
    #[must_use]
    pub const fn undated(&self) -> u64 {
        self.undated
    }

    /// Packets whose planned time in the log is not the one that the seed gives.
    #[must_use]
    pub const fn replanned(&self) -> u64 {
        self.replanned
    }

    /// At the receiver: packets whose size is not the one that the seed gives, of those whose plan was computed again.
    #[must_use]
    pub const fn resized(&self) -> u64 {
        self.resized
    }

    /// Packets that left after the sender's clock was set, whose times of sending are corrected for the comparison with
    /// their plan.
    #[must_use]
    pub fn corrected(&self, facts: &Facts<'_>) -> u64 {
        let logged = self.sender(facts).filter(|sender| sender.has_departures());
        logged.unwrap_or(self).corrected
    }

    /// The course over time, when it was asked for.
    #[must_use]
    pub const fn series(&self) -> Option<&Series> {
        self.series.as_ref()
    }

    /// Returns true if the flow is measured in round trips here.
    #[must_use]
    pub fn is_round_trip(&self) -> bool {
        self.setup.side == Side::Sender && self.counts_arrivals()
    }

    /// Times for which the sender stood still: the longest without, and the longest with packets left out, if they are
    /// long enough to be told of.
    #[must_use]
    pub fn stalls(&self, facts: &Facts<'_>) -> Vec<Stall> {
        let of_log = !facts.sender_absent && self.sender(facts).is_some_and(Self::has_departures);
        // What a receiver did not see may have been sent, and so may what one of several senders does not have.
        self.departures(facts).stalls().filter(|stall| of_log || stall.left_out == 0).collect()
    }

    /// The same flow at its sender: this one, or the one that the facts name.
    fn sender<'a>(&'a self, facts: &Facts<'a>) -> Option<&'a Self> {
        if self.setup.side == Side::Sender { Some(self) } else { facts.peer }
    }

    /// Packets of the plan before the last one in the sender's log that are not in it, where it lacks no records but
    /// those of its end.
    fn left_out(&self, facts: &Facts<'_>) -> Option<u64> {
        let lacks = facts.sender_lacks_records || facts.sender_absent;
        let sent = &self.sender(facts).filter(|_| !lacks)?.sent_seqs;
        let planned = sent.max()?.checked_add(1)?;
        planned.checked_sub(sent.unique())
    }

    fn loss_split(&self, lost: Option<u64>, facts: &Facts<'_>) -> LossSplit {
        // What is dropped on the way there has no reply; the log of the receiver is not that of the replies.
        let here = self.setup.side == Side::Receiver || self.setup.meter == Meter::Owd;
        let (drops, log) = (facts.socket_drops, facts.unlogged.filter(|_| here));
        // Drops of several flows are told with each of them.
        let own = !(facts.shared_drops && drops.max(facts.checksum_drops) > Some(0));
        let split = LossSplit {
            skipped: facts.skipped_packets,
            socket: drops.filter(|_| own),
            checksum: facts.checksum_drops.filter(|_| own),
            log,
            too_late: facts.too_late,
            rebound: facts.rebound,
            receiver_gone: facts.received_unique.map(|_| 0),
            sender_host: facts.host_drops,
            network: None,
        };
        if facts.resends { split.of_connection(lost) } else { split.of(lost.filter(|_| own)) }
    }

    /// Bytes of packets that had arrived before.
    #[must_use]
    pub const fn duplicate_bytes(&self) -> u64 {
        self.duplicate_bytes
    }

    /// Marks of the packets that arrived.
    pub(crate) const fn marks(&self) -> &Marks {
        &self.marks
    }

    /// All metrics of this flow.
    #[must_use]
    pub fn summary(&self, facts: &Facts<'_>) -> Metrics {
        let mut metrics = Metrics::of_volume(self.volume());
        let account = self.account(facts);
        metrics.sent_packets = account.sent_packets;
        metrics.skipped_packets = facts.skipped_packets;
        metrics.excess_packets = account.excess_packets;
        if let Some((loss, basis)) = account.loss {
            metrics.lost = Some(loss.lost);
            metrics.lost_basis = Some(basis);
            metrics.lost_at_end = loss.at_end.filter(|_| basis != LossBasis::SequenceNumbers);
            if basis != LossBasis::ReceiverCount {
                metrics.set_bursts(loss);
                metrics.loss_model = LossModel::of(&loss);
            }
        }
        if self.counts_arrivals() {
            metrics.duplicated = Some(self.arrived_seqs.duplicated());
            let reordered = self.arrived_seqs.reordered();
            metrics.reordered = Some(reordered);
            let disorder = self.arrived_seqs.disorder_figures();
            metrics.reordering = Some(Reordering::of(reordered, disorder));
            let new = self.arrived.bytes - self.duplicate_bytes;
            metrics.goodput_bps = self.arrived.bit_rate_of(new);
        } else {
            let told = facts.received_packets.zip(facts.received_unique);
            metrics.duplicated = told.and_then(|(all, unique)| all.checked_sub(unique));
        }
        metrics.unstamped_packets = self.counts_arrivals().then_some(self.user_stamps);
        metrics.set_delay(&self.delay);
        let departures = self.departures(facts);
        metrics.set_lateness(departures.lateness());
        metrics.ledger = Ledger {
            lateness_ns: Way::of(departures.lateness()),
            departure_ns: None,
            network_ns: Way::of(self.delay.distribution()),
            stack_ns: Way::of(&self.stack),
            loss: self.loss_split(metrics.lost, facts),
        };
        // Of a flow that had several owners not all may have told what they sent: then of those that are judged.
        let judged =
            || Some(departures.lateness().moments().count()).filter(|packets| *packets > 0);
        let skipped = facts.skipped_told.or_else(|| self.left_out(facts)).unwrap_or(0) as f64;
        let asked = metrics.sent_packets.or_else(judged).map(|sent| sent as f64 + skipped);
        let share = asked.filter(|asked| *asked > 0.0).map_or(0.0, |asked| skipped / asked);
        metrics.fidelity = departures.judge(&Asked {
            skipped_share: share,
            distributions: self.setup.distributions.as_ref(),
            late_p99_ns: self.sender(facts).and_then(|sender| sender.setup.declared_p99_ns),
            waited_packets: facts.waited_packets,
            stream: facts.stream,
            departure_spread_ns: facts.departure_spread_ns,
            replanned_packets: self.sender(facts).map_or(0, |sender| {
                // Without a start the plan is not ITG's own.
                sender.setup.epoch_unix_ns.map_or(0, |_| sender.replanned)
            }),
        });
        metrics
    }
}
