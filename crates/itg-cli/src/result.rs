//! Result of a run, at its end: the report of the decoder without a log, from both sides' accounts and the receiver's
//! measures.
//!
//! Keys and definitions are those of `itg_stats::Report`; percentiles are those of a histogram, at most 0.8 % off.
//! Bursts of loss, lateness and the verdict on the traffic, which only logs tell, are unknown.

mod pool;
mod total;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use itg_clocks::{ClockModel, Probe, estimate};
use itg_core::end::{EndCause, EndReason, SCHEDULE_DONE};
use itg_core::flow::{Flow, Meter, Proto};
use itg_core::text::{from_peer, grouped, visible};
use itg_experiment::{Plan, PlannedFlow};
use itg_node::{FlowOutcome, PeerClock, SendOutcome, ServedFlow, ServedSession};
use itg_session::{Difference, FlowCounts, FlowMeasure, FlowTotals, SharedDrops, explain_replies};
use itg_stats::delay::Jitter;
use itg_stats::fidelity::Fidelity;
use itg_stats::figures::LossSplit;
use itg_stats::packet_account::{self, MOST_WALKED, Told};
use itg_stats::report::{
    ClockReport, DelayBasis, FlowReport, GroupReport, Metrics, REPORT_SCHEMA, Report, TotalReport,
};
use itg_stats::stats::{LossBasis, Volume};
use itg_stats::summary::{self, DIRECTION};
use serde_json::{Map, Value};

use self::pool::Pool;
use self::total::Total;
use crate::verbosity::WordArgs;

/// Instants at which the drift of two clocks over a flow is looked at.
const LOOKS: u64 = 32;
/// Remark on a flow that was not sent; a reason may follow.
const UNSENT: &str = "not sent";
/// Notice of a flow whose receiver told counts alone.
const UNMEASURED: &str = "the receiver does not measure this flow: it has more than it measures at a time, or is of an \
                          older release";
/// Lateness of which a reader is told, if it is as many inter-departure times as [`LATE_GAPS`], too: 20 ms.
const LATE_NS: u64 = 20_000_000;
const LATE_GAPS: f64 = 10.0;
/// Reason of the verdict of a side that has no log.
const NOT_JUDGED: &str = "not judged without the sender's log: add --log FILE to itg-send";

/// Parts of an account that no program knows without a log.
const IN_A_LOG: [&str; 3] = ["logged", "not_logged", "lost.too_late"];

/// The two ways of an exchange.
pub const WAYS: [&str; 2] = ["from here", "to here"];

/// Reason of the verdict on flows of the other side.
const NOT_TOLD: &str = "not judged: the sender that was asked keeps no log";

/// A flow as it ended.
struct Ended<'a> {
    flow: u32,
    name: String,
    proto: Proto,
    meter: Meter,
    profile: Option<String>,
    path: Option<(SocketAddr, SocketAddr)>,
    side: &'static str,
    /// The figures are those of the replies.
    round_trip: bool,
    /// Account of its receiver, for such a flow too.
    there: Option<&'a FlowCounts>,
    totals: Option<&'a FlowTotals>,
    /// Account that the figures are of: the receiver's, or that of the replies.
    counts: Option<&'a FlowCounts>,
    measure: Option<&'a FlowMeasure>,
    /// Clock of the receiver against the sender's.
    clock: Option<&'a Clock>,
    fidelity: Option<Fidelity>,
    notices: Vec<String>,
    end: Option<String>,
    /// Rate in bits a second that its sender holds it to.
    limit_bps: Option<u64>,
    /// Its plan, where this program knows it.
    plan: Option<&'a Flow>,
    /// Packets that the sender's kernel refused, by its error, where this program sent it.
    refused_by: BTreeMap<String, u64>,
    /// Packets of all traffic that this host dropped below its sockets, where this program sent it.
    host_drops: Option<u64>,
    /// Reason why no packet of it was sent, if it came to no sending.
    unsent: Option<EndReason>,
}

/// The receiver's clock against the sender's.
pub(crate) struct Clock {
    shared: bool,
    model: Option<ClockModel>,
}

impl Clock {
    pub(crate) fn of(compared: &PeerClock) -> Self {
        let probe = |stamps: &itg_session::ProbeStamps| Probe {
            sender_monotonic: stamps.sent.monotonic_ns,
            sent: stamps.sent.unix_ns,
            received: stamps.received_unix_ns,
            replied: stamps.replied.unix_ns,
            arrived: stamps.arrived_unix_ns,
            receiver_monotonic: stamps.replied.monotonic_ns,
        };
        let probes: Vec<_> = compared.probes.list().iter().map(probe).collect();
        Self::by(&probes, compared.shared)
    }

    /// By these probes; `same_boot` where both hosts have one boot id.
    fn by(probes: &[Probe], same_boot: bool) -> Self {
        let model = estimate(probes);
        // Hosts of one boot id may be virtual machines from one snapshot: the probes decide.
        let shared = same_boot && !model.as_ref().is_some_and(ClockModel::are_two);
        Self { shared, model: model.filter(|_| !shared) }
    }

    /// Returns true if both are one clock.
    pub(crate) const fn is_shared(&self) -> bool {
        self.shared
    }

    /// Offset to be taken off delays of a flow, and the report on the clocks with what the offset changed meanwhile
    /// in its bound.
    pub(crate) fn over(&self, measure: &FlowMeasure) -> (i64, Option<ClockReport>) {
        let Some(model) = &self.model else { return (0, None) };
        let at_sender =
            |unix_ns: u64| unix_ns.saturating_add_signed(model.offset_at(unix_ns).saturating_neg());
        let (from, until) = (at_sender(measure.first_unix_ns), at_sender(measure.last_unix_ns));
        let (from, until) = (from.min(until), until.max(from));
        let mut report = ClockReport::new(model, false, from, until);
        let step = (until - from) / LOOKS;
        let drift =
            (0..=LOOKS).map(|k| model.offset_at(from + k * step).abs_diff(report.offset_ns));
        report.bound_ns = report.bound_ns.saturating_add(drift.max().unwrap_or(0));
        (report.offset_ns, Some(report))
    }
}

/// The report of a run that was sent from here; verdicts from the report of the sender's log, where there is one.
#[must_use]
pub fn sent(plan: &Plan, run: &str, outcome: &SendOutcome, own_log: Option<&Report>) -> Report {
    let clocks: Vec<_> = outcome.clocks.iter().map(Clock::of).collect();
    let ended = ended_here(plan, outcome, own_log, &clocks);
    Report { notices: told(&outcome.shared_drops), ..report(&ended, run, Some(plan.seed.0)) }
}

fn told(drops: &[SharedDrops]) -> Vec<String> {
    drops.iter().map(ToString::to_string).collect()
}

/// The report of a run of which some flows were sent from here, and some by the other side, which was asked for them;
/// `why` is the reason why these were not sent.
#[must_use]
pub fn exchanged(
    plan: &Plan,
    run: &str,
    (outcome, own_log): (&SendOutcome, Option<&Report>),
    (asked, session, why): (&BTreeSet<u32>, &ServedSession, Option<&str>),
) -> Report {
    let clocks: Vec<_> = outcome.clocks.iter().map(Clock::of).collect();
    let mut ended = ended_here(plan, outcome, own_log, &clocks);
    let compared =
        PeerClock { receiver: None, shared: session.shared_clock, probes: session.clock.clone() };
    let clock = Clock::of(&compared);
    let planned = plan.flows.iter().filter(|planned| asked.contains(&planned.flow.spec().id));
    ended.extend(planned.map(|planned| {
        let spec = planned.flow.spec();
        let flow = session.flows.get(&spec.id);
        let (totals, counts) =
            (flow.and_then(|f| f.totals.as_ref()), flow.and_then(|f| f.counts.as_ref()));
        let notices = match (totals, counts, why) {
            (Some(totals), Some(counts), _) => differences(totals, counts),
            (_, _, Some(why)) if flow.is_none() => vec![format!("{UNSENT}: {why}")],
            _ => vec![unaccounted(flow)],
        };
        // The cause has come over the wire, as text.
        let end = totals.filter(|totals| totals.reason.to_string() != SCHEDULE_DONE);
        Ended {
            flow: spec.id,
            name: planned.name.clone(),
            proto: spec.proto,
            meter: spec.meter,
            profile: spec.profile.clone(),
            path: flow.map(|flow| (flow.from, flow.to)),
            side: "receiver",
            round_trip: false,
            there: counts,
            totals,
            counts,
            measure: flow.and_then(|flow| flow.measure.as_deref()),
            clock: Some(&clock),
            fidelity: Some(Fidelity { reasons: vec![NOT_TOLD.to_owned()], ..Fidelity::default() }),
            notices,
            end: end.map(|totals| totals.reason.to_string()),
            limit_bps: flow.and_then(|flow| flow.limit_bps),
            plan: Some(&planned.flow),
            refused_by: BTreeMap::new(),
            host_drops: None,
            unsent: why
                .filter(|_| flow.is_none())
                .map(|why| EndCause::SessionOver(why.to_owned()).into()),
        }
    }));
    ended.sort_by_key(|flow| flow.flow);
    let notices = [&outcome.shared_drops[..], &session.shared_drops].map(told).concat();
    let whole = Report { notices, ..report(&ended, run, Some(plan.seed.0)) };
    // Round trips go both ways.
    let (to_here, from_here): (Vec<_>, Vec<_>) = ended
        .into_iter()
        .filter(|flow| !flow.round_trip)
        .partition(|flow| asked.contains(&flow.flow));
    if to_here.is_empty() || whole.flows.len() == to_here.len() {
        return whole;
    }
    let groups = WAYS.iter().zip([from_here, to_here]).map(|(way, flows)| {
        let TotalReport { flows, metrics, .. } = report(&flows, run, None).total;
        let by = BTreeMap::from([(DIRECTION.to_owned(), (*way).to_owned())]);
        GroupReport { by, flows, metrics, notices: Vec::new() }
    });
    Report { groups: Some(groups.collect()), ..whole }
}

/// The flows that were sent from here.
fn ended_here<'a>(
    plan: &'a Plan,
    outcome: &'a SendOutcome,
    own_log: Option<&Report>,
    clocks: &'a [Clock],
) -> Vec<Ended<'a>> {
    let clock_of = |flow: &FlowOutcome| {
        let place = outcome.clocks.iter().position(|clock| clock.receiver == flow.receiver)?;
        clocks.get(place)
    };
    let own = own_log.into_iter().flat_map(|log| &log.flows).filter(|own| own.side == "sender");
    let own: BTreeMap<u32, &Fidelity> = own.map(|own| (own.flow, &own.metrics.fidelity)).collect();
    let planned: BTreeMap<u32, &PlannedFlow> =
        plan.flows.iter().map(|planned| (planned.flow.spec().id, planned)).collect();
    let elsewhere = outcome.log.as_ref().map(|log| {
        let place = &log.place;
        let reason = format!(
            "not judged here: the sender's log is {place}; itg-decode of it has the verdict"
        );
        Fidelity { reasons: vec![reason], ..Fidelity::default() }
    });
    let mut ended = Vec::new();
    for flow in &outcome.flows {
        let Some(planned) = planned.get(&flow.flow) else { continue };
        let spec = planned.flow.spec();
        let round_trip = spec.meter == Meter::Rtt && flow.replies.is_some();
        let (counts, measure) = if round_trip {
            (&flow.replies, &flow.reply_measure)
        } else {
            (&flow.counts, &flow.measure)
        };
        let end = flow.totals.as_ref().filter(|totals| !totals.reason.is_plain());
        ended.push(Ended {
            flow: flow.flow,
            name: planned.name.clone(),
            proto: spec.proto,
            meter: spec.meter,
            profile: spec.profile.clone(),
            path: flow.path,
            side: if round_trip || flow.counts.is_none() { "sender" } else { "receiver" },
            round_trip,
            there: flow.counts.as_ref(),
            totals: flow.totals.as_ref(),
            counts: counts.as_ref(),
            measure: measure.as_deref(),
            clock: clock_of(flow).filter(|_| !round_trip),
            fidelity: own
                .get(&flow.flow)
                .map(|&fidelity| fidelity.clone())
                .or_else(|| elsewhere.clone())
                .filter(|_| flow.totals.is_some()),
            notices: wrong(flow).into_iter().chain(stalled(&planned.flow, flow)).collect(),
            end: end.map(|totals| totals.reason.to_string()),
            limit_bps: spec.own_limit(),
            plan: Some(&planned.flow),
            refused_by: flow.refused_by.clone(),
            host_drops: flow.host_drops,
            unsent: unsent(flow, outcome),
        });
    }
    ended
}

/// The report of the flows of a sender that has left.
#[must_use]
pub fn received(session: &ServedSession) -> Report {
    let compared =
        PeerClock { receiver: None, shared: session.shared_clock, probes: session.clock.clone() };
    let clock = Clock::of(&compared);
    let notices = |flow: &ServedFlow| match (&flow.totals, &flow.counts) {
        (Some(totals), Some(counts)) => differences(totals, counts),
        _ => vec![unaccounted(Some(flow))],
    };
    let ended: Vec<_> = session
        .flows
        .iter()
        .map(|(&id, flow)| Ended {
            flow: id,
            name: id.to_string(),
            proto: flow.proto,
            meter: flow.meter,
            profile: None,
            path: Some((flow.from, flow.to)),
            side: "receiver",
            round_trip: false,
            there: flow.counts.as_ref(),
            totals: flow.totals.as_ref(),
            counts: flow.counts.as_ref(),
            measure: flow.measure.as_deref(),
            clock: Some(&clock),
            fidelity: None,
            notices: notices(flow),
            end: None,
            limit_bps: flow.limit_bps,
            plan: None,
            refused_by: BTreeMap::new(),
            host_drops: None,
            unsent: None,
        })
        .collect();
    Report { notices: told(&session.shared_drops), ..report(&ended, &session.run, None) }
}

/// Reason why nothing of a flow was sent from here, if its sending never began.
fn unsent(flow: &FlowOutcome, outcome: &SendOutcome) -> Option<EndReason> {
    if flow.totals.is_some() || flow.begun {
        return None;
    }
    let failed = outcome.failures.iter().find(|(at, _)| Some(*at) == flow.receiver);
    let cause = match (&flow.refused, failed) {
        (Some(reason), _) => EndCause::Refused(reason.clone()),
        (None, Some((_, error))) => EndCause::SessionOver(error.to_string()),
        (None, None) if outcome.interrupted.is_some() => EndCause::Interrupted,
        (None, None) => return None,
    };
    Some(cause.into())
}

/// Fault of a flow that came from elsewhere and that not both sides have counted.
fn unaccounted(flow: Option<&ServedFlow>) -> String {
    let cut_short = flow.and_then(|flow| flow.cut_short.as_deref());
    match (cut_short, flow.and_then(|flow| flow.counts.as_ref())) {
        (Some(reason), Some(_)) => format!(
            "cut short ({}): the figures are of what had arrived, the loss is not known",
            from_peer(reason)
        ),
        (None, Some(_)) => {
            "its sender left before it told what it had sent: the loss is not known".to_owned()
        }
        (Some(reason), None) => format!("cut short ({}) and not counted", from_peer(reason)),
        (None, None) => "its sender left before it was counted".to_owned(),
    }
}

/// Faults of a flow that was sent, a sentence each.
fn wrong(flow: &FlowOutcome) -> Vec<String> {
    if let Some(reason) = &flow.refused {
        return vec![format!("{UNSENT}: {reason}")];
    }
    let Some(totals) = &flow.totals else { return vec![UNSENT.to_owned()] };
    let mut notices = match &flow.counts {
        Some(counts) => differences(totals, counts),
        None => vec!["the receiver's count did not come".to_owned()],
    };
    if flow.counts.as_ref().is_some_and(|counts| counts.packets > 0) && flow.measure.is_none() {
        notices.push(UNMEASURED.to_owned());
    }
    if let Some(replies) = flow.replies.as_ref().filter(|replies| replies.unique < totals.packets) {
        notices.push(explain_replies(totals, replies));
    }
    notices
}

/// Lateness of the sender of datagrams that shows in what was measured of its flow: packets that were due meanwhile left
/// at once. Of a flow that its transport holds back, lateness tells of the path.
fn stalled(flow: &Flow, outcome: &FlowOutcome) -> Option<String> {
    let apart_ns = 1e9 / flow.mean_packet_rate();
    let late_ns = outcome.lateness_max_ns;
    let spec = flow.spec();
    let open = !spec.proto.properties().holds_back && apart_ns.is_finite() && apart_ns > 0.0;
    let large = late_ns >= LATE_NS && late_ns as f64 >= LATE_GAPS * apart_ns;
    (open && large).then(|| {
        format!(
            "the sender was up to {} ms late and then sent what was due at once: loss and delay are not the path's alone",
            summary::digits(late_ns as f64 / 1e6)
        )
    })
}

/// Differences of the two accounts of a flow, beyond what has a column or a remark.
fn differences(totals: &FlowTotals, counts: &FlowCounts) -> Vec<String> {
    let difference = Difference { duplicated: 0, ..Difference::between(totals, counts) };
    let mut notices = Vec::new();
    if !difference.is_none() {
        notices.push(difference.to_string());
    }
    for (count, what) in [
        (totals.failed, "packets were not taken by the sender's kernel"),
        (counts.foreign, "foreign packets were ignored by the receiver"),
        (counts.log_lost_records, "records are missing in the receiver's log"),
    ] {
        if count > 0 {
            notices.push(format!("{count} {what}"));
        }
    }
    notices
}

fn report(ended: &[Ended<'_>], run: &str, seed: Option<u64>) -> Report {
    let mut total = Total::default();
    let flows = ended.iter().map(|flow| flow_report(flow, run, seed, &mut total)).collect();
    let mut manifest = Map::new();
    manifest.insert("run".to_owned(), run.into());
    manifest.insert("seed".to_owned(), seed.map_or(Value::Null, Value::from));
    Report {
        schema: REPORT_SCHEMA,
        manifest,
        flows,
        groups: None,
        promises: Vec::new(),
        total: total.report(ended.len() as u64),
        intervals: None,
        plots: None,
        damage: Vec::new(),
        errors: Vec::new(),
        notices: Vec::new(),
    }
}

/// Figures of what both sides counted of a flow.
pub(crate) fn counted(totals: Option<&FlowTotals>, counts: Option<&FlowCounts>) -> Metrics {
    let mut metrics = Metrics {
        sent_packets: totals.map(|totals| totals.packets),
        skipped_packets: totals.map(|totals| totals.skipped),
        duplicated: counts.map(|counts| counts.packets.saturating_sub(counts.unique)),
        ..Metrics::default()
    };
    if let Some((totals, counts)) = totals.zip(counts) {
        metrics.excess_packets = counts.unique.saturating_sub(totals.packets);
        metrics.lost = totals.packets.checked_sub(counts.unique);
        metrics.lost_basis = metrics.lost.map(|_| LossBasis::SenderCount);
        // Where numbers were not sent, those that are missing are not all lost.
        let all_sent = totals.skipped == 0 && totals.failed == 0;
        let before = counts.more.missing.filter(|_| all_sent);
        metrics.lost_at_end = metrics.lost.zip(before).and_then(|(lost, n)| lost.checked_sub(n));
    } else if metrics.sent_packets == Some(0) {
        nothing_is_lost(&mut metrics);
    }
    metrics
}

/// Whatever the other side knows: of what was not sent, nothing is lost.
const fn nothing_is_lost(metrics: &mut Metrics) {
    metrics.lost = Some(0);
    metrics.lost_basis = Some(LossBasis::SenderCount);
}

/// Lost packets of a flow by the place of their loss.
fn places(ended: &Ended<'_>, lost: Option<u64>) -> LossSplit {
    let counts = ended.there;
    let split = LossSplit {
        socket: counts.and_then(|counts| counts.socket_drops),
        checksum: counts.and_then(|counts| counts.more.checksum_drops),
        rebound: counts.and_then(|counts| counts.more.rebound),
        receiver_gone: counts.map(|_| 0),
        sender_host: ended.host_drops,
        ..LossSplit::default()
    };
    if ended.proto.properties().resends { split.of_connection(lost) } else { split.of(lost) }
}

/// The rest of a flow's account, from both sides.
fn told_of(ended: &Ended<'_>) -> Told {
    let whole = ended.totals.filter(|totals| totals.reason.is_told_whole());
    let whole = whole
        .map(|totals| totals.packets.saturating_add(totals.skipped).saturating_add(totals.failed));
    let (planned, no_plan) = match ended.plan {
        Some(flow) => packet_account::planned(flow, whole, MOST_WALKED),
        None => (None, "its sender knows the plan"),
    };
    let end = ended.totals.map(|totals| &totals.reason).or(ended.unsent.as_ref());
    Told {
        planned,
        planned_ns: ended.plan.and_then(|flow| flow.spec().stop.duration_ns),
        refused: ended
            .totals
            .map(|totals| totals.failed)
            .or_else(|| ended.unsent.as_ref().map(|_| 0)),
        refused_by: ended.refused_by.clone(),
        arrived: ended.counts.map(|counts| counts.unique),
        corrupted: ended.counts.and_then(|counts| counts.more.corrupted),
        round_trip: ended.round_trip,
        there: ended.there.map(|counts| counts.unique),
        end: end.map(EndReason::to_string),
        interrupted: end.is_some_and(EndReason::is_interrupted),
        no_plan,
        logged: 0,
        why: IN_A_LOG.map(|part| (part, "the log of the receiver tells it")).into(),
    }
}

fn flow_report(ended: &Ended<'_>, run: &str, seed: Option<u64>, total: &mut Total) -> FlowReport {
    let (off_ns, clock) = match (ended.clock, ended.measure) {
        (Some(clock), Some(measure)) => clock.over(measure),
        _ => (0, None),
    };
    let volume = volume(ended);
    let mut metrics = counted(ended.totals, ended.counts);
    metrics.ledger.loss = places(ended, metrics.lost);
    if ended.unsent.is_some() {
        (metrics.sent_packets, metrics.skipped_packets) = (Some(0), Some(0));
        nothing_is_lost(&mut metrics);
    }
    metrics.set_volume(&volume);
    metrics.reordered = ended.counts.and(ended.measure).map(|measure| measure.reordered);
    if let Some(delays) = ended.measure.and_then(|measure| measure.delays.as_ref()) {
        let pool = Pool::of(delays, off_ns);
        metrics.delay_ns = pool.delay();
        metrics.negative_delays = pool.negative();
        metrics.jitter_ns = pool
            .jitter()
            .map(|jitter| Jitter { rfc3550: Some(delays.rfc3550_ns as f64), ..jitter });
        let one_clock = ended.round_trip || ended.clock.is_some_and(|clock| clock.shared);
        metrics.delay_basis = metrics.delay_ns.map(|delay| match &clock {
            _ if one_clock => DelayBasis::ONE_CLOCK,
            Some(clock) => DelayBasis::corrected(clock.bound_ns, delay.p50),
            None => DelayBasis::TWO_CLOCKS,
        });
        if ended.proto.properties().is_stream {
            metrics.delay_basis = metrics.delay_basis.map(DelayBasis::by_reading);
        }
        total.pool(pool, ended.round_trip, metrics.delay_basis);
    }
    let not_judged = || Fidelity { reasons: vec![NOT_JUDGED.to_owned()], ..Fidelity::default() };
    metrics.fidelity = match &ended.fidelity {
        Some(fidelity) => fidelity.clone(),
        // There is nothing to judge.
        None if is_nothing(&metrics) => Fidelity::default(),
        None => not_judged(),
    };
    metrics.set_limit(ended.limit_bps);
    metrics.settle(told_of(ended));
    let notices = ended.notices.iter().cloned().chain(metrics.account_notices()).collect();
    total.add(&volume, &metrics);
    let address = |at: Option<SocketAddr>| at.map_or_else(String::new, |at| at.to_string());
    FlowReport {
        marks: None,
        flow: ended.flow,
        name: ended.name.clone(),
        proto: Some(ended.proto.name()),
        src: address(ended.path.map(|path| path.0)),
        dst: address(ended.path.map(|path| path.1)),
        side: ended.side,
        run: run.to_owned(),
        seed,
        meter: Some(if ended.meter == Meter::Rtt { "rtt" } else { "owd" }),
        profile: ended.profile.clone(),
        metrics: Box::new(metrics),
        clock,
        host_buffer_errors: None,
        receive_buffer_bytes: None,
        foreign_packets: ended.counts.map(|counts| counts.foreign),
        tcp: None,
        departures: None,
        end: ended.end.clone(),
        notices,
    }
}

/// Returns true if no packet was sent, as far as is known here, and none arrived.
fn is_nothing(metrics: &Metrics) -> bool {
    metrics.packets == 0 && metrics.sent_packets.is_none_or(|sent| sent == 0)
}

/// Returns true if no packet of a run was sent.
#[must_use]
pub fn nothing_sent(report: &Report) -> bool {
    report.flows.iter().all(|flow| is_nothing(&flow.metrics))
}

/// The result as text: a table, with -v a row for each of any number of flows. Of a run that failed before its first
/// packet only that is said which `failures` have not said.
#[must_use]
pub fn result_text(report: &Report, failures: &[String], words: WordArgs) -> String {
    if failures.is_empty() || !nothing_sent(report) {
        return if words.verbose > 0 {
            summary::render_all(report)
        } else {
            summary::render(report)
        };
    }
    let untold = |notice: &&String| match notice.strip_prefix(UNSENT) {
        Some("") => false,
        Some(reason) => !failures.iter().any(|told| told.contains(reason.trim_start_matches(": "))),
        None => true,
    };
    let mut said = Vec::new();
    for flow in &report.flows {
        said.extend(flow.notices.iter().filter(untold).map(|notice| (flow.flow, notice.clone())));
    }
    grouped(&said).iter().map(|line| visible(line).into_owned() + "\n").collect()
}

/// Volume of what arrived, or of what was sent where that is not known.
fn volume(ended: &Ended<'_>) -> Volume {
    let (packets, bytes) = match (ended.counts, ended.totals) {
        (Some(counts), _) => (counts.packets, counts.bytes),
        (None, Some(totals)) => (totals.packets, totals.bytes),
        (None, None) => (0, 0),
    };
    let measure = ended.measure.filter(|measure| measure.last_unix_ns > 0);
    Volume {
        packets,
        bytes,
        first_unix_ns: measure.map(|measure| measure.first_unix_ns),
        last_unix_ns: measure.map(|measure| measure.last_unix_ns),
    }
}

#[cfg(test)]
mod tests {
    use itg_core::seed::RunSeed;
    use itg_experiment::{Experiment, PlanInputs};
    use itg_session::{EndCause, Measuring};
    use itg_stats::report::BasisKind;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn plan() -> Plan {
        let text = "schema = 1\nname = \"n\"\n[[flow]]\nname = \"call\"\npackets = 100\n";
        let experiment: Experiment = Experiment::parse(text, "test").expect("an experiment");
        let mut files = |name: &str| Err::<String, String>(format!("no file {name}"));
        Plan::resolve(&experiment, PlanInputs::new(RunSeed(1), &mut files)).expect("a plan")
    }

    /// 100 packets sent and 99 of them received, 10 ms apart, a millisecond and `ahead` later.
    fn outcome(ahead_ns: u64, shared: bool) -> SendOutcome {
        let mut measuring = Measuring::new();
        measuring.expect_around(ahead_ns.cast_signed());
        for k in 0..99 {
            let sent = 1_000 * SECOND + k * 10_000_000;
            measuring.arrived(1, Some(sent), sent + ahead_ns + 1_000_000);
        }
        let totals = FlowTotals {
            flow: 1,
            packets: 100,
            bytes: 51_200,
            skipped: 0,
            failed: 0,
            next_seq: 100,
            reason: EndCause::ScheduleDone.into(),
        };
        let counts = FlowCounts {
            flow: 1,
            packets: 99,
            bytes: 50_688,
            unique: 99,
            socket_drops: Some(0),
            foreign: 0,
            log_lost_records: 0,
            more: Default::default(),
        };
        let flow = FlowOutcome {
            flow: 1,
            receiver: None,
            path: None,
            begun: true,
            totals: Some(totals),
            counts: Some(counts),
            measure: Some(Box::new(measuring.finish(1, 0))),
            replies: None,
            reply_measure: None,
            refused: None,
            refused_by: BTreeMap::new(),
            host_drops: None,
            lateness_max_ns: 0,
        };
        let clock = PeerClock { shared, ..PeerClock::default() };
        SendOutcome { flows: vec![flow], clocks: vec![clock], ..SendOutcome::default() }
    }

    #[test]
    fn a_measured_flow_has_all_figures_but_the_verdict() {
        let report = sent(&plan(), "run", &outcome(0, true), None);
        let metrics = &report.flows[0].metrics;
        assert_eq!((metrics.packets, metrics.lost), (99, Some(1)));
        assert_eq!(
            metrics.delay_ns.map(|delay| (delay.p50, delay.max)),
            Some((1_000_000, 1_000_000))
        );
        assert_eq!(metrics.delay_basis, Some(DelayBasis::ONE_CLOCK));
        assert_eq!(metrics.duration_ns, 980_000_000);
        let text = summary::render(&report);
        let row = text.lines().nth(1).expect("a row");
        assert_eq!(
            row.split_whitespace().collect::<Vec<_>>(),
            ["1", "call", "udp", "99", "0.410", "100", "1.00", "1.00", "-", "1.00", "0", "unknown"]
        );
        assert!(text.contains("flow 1: 1 packet lost in the network or at the receiver"), "{text}");
    }

    #[test]
    fn what_is_not_known_has_a_reason_and_of_nothing_nothing_is_lost() {
        let mut outcome = outcome(0, true);
        outcome.flows[0].totals.as_mut().expect("totals").packets = 0;
        let counts = outcome.flows[0].counts.as_mut().expect("counts");
        (counts.packets, counts.unique, counts.bytes) = (0, 0, 0);
        let metrics = sent(&plan(), "run", &outcome, None).flows.remove(0).metrics;
        assert_eq!((metrics.lost, metrics.loss_share()), (Some(0), None));
        for part in ["logged", "not_logged"] {
            assert!(metrics.account.why[part].contains("log of the receiver"), "{part}");
        }
        outcome.flows[0].counts = None;
        let account = sent(&plan(), "run", &outcome, None).flows.remove(0).metrics.account;
        assert_eq!(account.why["arrived"], "the receiver told no account");
    }

    #[test]
    fn two_clocks_that_were_not_compared_give_relative_delays() {
        let report = sent(&plan(), "run", &outcome(3_600 * SECOND, false), None);
        let metrics = &report.flows[0].metrics;
        assert_eq!(metrics.delay_basis.map(|basis| basis.kind), Some(BasisKind::Relative));
        let spread = metrics.delay_ns.map(|delay| delay.max - delay.min);
        assert_eq!(spread, Some(0));
        assert!(summary::render(&report).contains("delays are relative"));
    }

    #[test]
    fn hosts_of_one_boot_id_share_a_clock_unless_probes_contradict_it() {
        let probe = |ahead_ns: u64, sent: u64| Probe {
            sender_monotonic: sent,
            sent,
            received: sent + ahead_ns + 100_000,
            replied: sent + ahead_ns + 110_000,
            arrived: sent + 210_000,
            receiver_monotonic: sent + 110_000,
        };
        for (ahead_ns, same_boot, shared) in
            [(0, true, true), (50_000_000, true, false), (0, false, false)]
        {
            let probes: Vec<_> = (1..=8).map(|k| probe(ahead_ns, k * SECOND / 4)).collect();
            let clock = Clock::by(&probes, same_boot);
            assert_eq!(clock.is_shared(), shared, "{ahead_ns} {same_boot}");
            assert_eq!(clock.model.is_some(), !shared, "{ahead_ns} {same_boot}");
        }
        assert!(Clock::by(&[], true).is_shared(), "nothing contradicts it");
    }

    #[test]
    fn what_a_receiver_of_before_does_not_tell_is_unknown() {
        let mut outcome = outcome(0, true);
        outcome.flows[0].measure = None;
        let text = summary::render(&sent(&plan(), "run", &outcome, None));
        let row: Vec<&str> = text.lines().nth(1).expect("a row").split_whitespace().collect();
        assert_eq!(
            row,
            ["1", "call", "udp", "99", "-", "-", "1.00", "-", "-", "-", "-", "unknown"]
        );
        assert!(text.contains("does not measure this flow"), "{text}");
    }
}
