//! Notices for a reader of the figures: on each flow, and on all of them.

use std::fmt::Write as _;

use itg_core::rate::{AS_ASKED_PPM, RateChange};
use itg_core::units::{format_bytes, format_duration_ns};
use itg_record::Side;

use super::objects::Object;
use super::owners::Owners;
use crate::fidelity::{STALL_GAPS, Stall};
use crate::logs::side_name;
use crate::report::{ClockReport, FlowReport};
use crate::stats::Facts;

/// Notices for a reader of a flow's figures.
pub(super) fn of_flow(
    object: &Object<'_>,
    facts: &Facts<'_>,
    clock: Option<&ClockReport>,
) -> Vec<String> {
    let Object { owners, stats, notices, .. } = object;
    let mut notices = notices.clone();
    notices.extend(owners.notice());
    let mut note = |count: u64, text: &str| {
        if count > 0 {
            notices.push(format!("{count} {text}"));
        }
    };
    if stats.side() == Side::Receiver {
        note(
            facts.unlogged.unwrap_or(0),
            "packets arrived but are not in the log: they do not count as lost",
        );
    } else {
        note(owners.unwritten(), "records could not be written to the log");
    }
    if stats.counts_arrivals() {
        note(
            owners.told(|end| end.socket_drops).unwrap_or(0),
            if facts.shared_drops {
                "packets were dropped by the kernel at the socket, of this flow or of others that came to it meanwhile"
            } else {
                "packets were dropped by the kernel at the socket: they are part of the loss"
            },
        );
        note(
            owners.told(|end| end.foreign_packets).unwrap_or(0),
            "foreign packets came to the flow's port and were left out: of no flow, from elsewhere than its sender, or with a time \
             that no clock shows",
        );
        // Those of a byte stream never have one.
        let stream = object.info.is_some_and(|info| info.spec.proto.properties().is_stream);
        note(
            if stream { 0 } else { stats.user_stamps() },
            "arrivals have no kernel time stamp: the time of reading is used",
        );
        let smallest = stats.delay().distribution().moments().min();
        let words = format!(
            "delays are below 0, the smallest {}: the clocks of sender and receiver disagree",
            signed_duration(smallest)
        );
        note(stats.delay().negative(), &words);
        for (count, words) in host_errors(owners, stats.side()) {
            note(count, &words);
        }
    } else {
        let beyond = owners.beyond_log(|end| end.sent_packets);
        note(beyond.unwrap_or(0), "packets were sent but are not in the log");
    }
    let steps = clock.filter(|clock| !clock.shared).map_or(0, |clock| clock.steps.len() as u64);
    note(steps, "times a host's clock was set: delays of packets near that are uncertain");
    note(
        stats.corrected(facts),
        "packets left after the sender's clock was set: lateness and inter-departure times are as it would have shown them \
         otherwise",
    );
    if stats.plan_was_cut() {
        let count = stats.plan_packets();
        note(
            count,
            "packets at the start are all whose plan was computed again: lateness and fidelity \
             are theirs, the sender's log knows more",
        );
    }
    note(
        stats.undated(),
        "records have times beyond the year 2116, which no clock shows: their times are left out",
    );
    note(stats.foreign(), "records are of a kind that this side does not write: they are left out");
    note(stats.replanned(), "packets were planned for another time than the seed gives");
    note(
        stats.resized(),
        "packets did not arrive with the size that the seed gives: they were cut or joined on the way",
    );
    notices
}

/// Errors at all UDP sockets of the receiving host while a flow ran, with their words.
fn host_errors(owners: &Owners<'_>, side: Side) -> [(u64, String); 2] {
    let size = owners.smallest(|end| end.receive_buffer);
    let size = size.map_or_else(String::new, |bytes| format!(" ({})", format_bytes(bytes)));
    let full = format!(
        "datagrams found a full receive buffer in the receiving host while the flow ran, at this flow's socket{size} or \
         another's; a larger one holds longer bursts (--receive-buffer, net.core.rmem_max)"
    );
    let damaged = "datagrams with a wrong checksum came to the receiving host while the flow ran, for this flow's socket or \
                   another's: where its losses were is not known";
    let errors = owners.told(|end| end.buffer_errors).filter(|_| side == Side::Receiver);
    let untold = owners.told(|end| end.checksum_errors.filter(|_| end.checksum_drops.is_none()));
    [(errors.unwrap_or(0), full), (untold.unwrap_or(0), damaged.to_owned())]
}

/// Notice that the rate was changed while the flow ran.
pub(super) fn changed(changes: &[RateChange]) -> Option<String> {
    let list: Vec<String> = changes
        .iter()
        .map(|change| {
            let factor = f64::from(change.ppm) / f64::from(AS_ASKED_PPM);
            format!("x {factor} from {} on", format_duration_ns(change.at_ns))
        })
        .collect();
    (!list.is_empty()).then(|| {
        format!(
            "the rate was changed while the flow ran ({}): the plan has the changes; gaps are not compared with \
             their distribution",
            list.join(", ")
        )
    })
}

/// Notice that a log ends before a flow does.
pub(super) fn unended(name: &str, side: Side) -> String {
    let what = match side {
        Side::Receiver => {
            "packets that arrived behind its last record are not known from it, nor is the loss behind it"
        }
        Side::Sender => "packets sent behind its last record are not known from it",
    };
    format!("{name} breaks off before the flow ends: {what}")
}

/// Notice that a log goes on from an earlier file, which is not given.
pub(super) fn headless(name: &str) -> String {
    format!(
        "{name} goes on from an earlier file of this log, which has the first packets of the flow and is not given: give \
         all of its files, or what is missing in it counts for nothing"
    )
}

/// A duration with its sign.
fn signed_duration(ns: i64) -> String {
    let sign = if ns < 0 { "-" } else { "" };
    format!("{sign}{}", format_duration_ns(ns.unsigned_abs()))
}

/// A flow that stands out, and by how much.
#[derive(Debug)]
struct Worst<T> {
    flow: u32,
    value: T,
    /// Number of flows of this kind.
    flows: u64,
}

/// Counts a flow among those of its kind, and keeps the one with the largest `key`.
fn take<T, K: PartialOrd>(worst: &mut Option<Worst<T>>, flow: u32, value: T, key: fn(&T) -> K) {
    let flows = worst.as_ref().map_or(0, |worst| worst.flows) + 1;
    match worst {
        Some(worst) if key(&worst.value) >= key(&value) => worst.flows = flows,
        _ => *worst = Some(Worst { flow, value, flows }),
    }
}

/// Remarks that belong to every total, gathered from the flows that it counts.
#[derive(Debug, Default)]
pub(super) struct Remarks {
    errors: Vec<String>,
    stall: Option<Worst<Stall>>,
    negative: Option<Worst<i64>>,
}

impl Remarks {
    /// Takes a flow at the side that counts, and tells its own reader too.
    pub(super) fn add(
        &mut self,
        report: &mut FlowReport,
        object: &Object<'_>,
        peer: Option<&Object<'_>>,
        facts: &Facts<'_>,
    ) {
        let flow = report.flow;
        if let Some(error) = excess(report, facts) {
            self.errors.push(format!("flow {flow}: {error}"));
            report.notices.push(error);
        }
        for side in [Some(object), peer].into_iter().flatten() {
            let Some((counted, logged)) = side.contradiction() else { continue };
            let error = format!(
                "the {}'s log has {logged} packets, and its own account {counted}: the loss is not known",
                side_name(side.stats.side())
            );
            self.errors.push(format!("flow {flow}: {error}"));
            report.notices.push(error);
        }
        let owners = object.owners.len().max(peer.map_or(0, |peer| peer.owners.len()));
        let untold = report.metrics.sent_packets.is_none() && report.metrics.lost.is_none();
        let whole = facts.unlogged.is_none_or(|count| count == 0) && !facts.lacks_records;
        if untold && whole && object.stats.counts_arrivals() {
            let missing = object.stats.missing_numbers().lost;
            let owners = if owners > 1 { "each owner of this flow" } else { "its sender" };
            report.notices.push(format!(
                "how much {owners} sent is not known, and so is the loss: up to the last arrival {missing} packets are \
                 missing"
            ));
        }
        if let Some(lost @ 1..) = report.metrics.lost.filter(|_| facts.resends) {
            report.notices.push(format!(
                "{lost} packets were in a buffer of either host, or on their way, when the connection ended: its transport \
                 sends again what the network loses"
            ));
        }
        for stall in object.stats.stalls(facts) {
            report.notices.push(sentence(&stall));
            take(&mut self.stall, flow, stall, |stall| stall.length_ns);
        }
        if let Some(delay) = report.metrics.delay_ns.filter(|delay| delay.min < 0) {
            take(&mut self.negative, flow, delay.min, |min| std::cmp::Reverse(*min));
        }
    }

    /// Adds the notices on all flows; returns the errors.
    pub(super) fn finish(self, notices: &mut Vec<String>) -> Vec<String> {
        if let Some(Worst { flow, value, flows }) = self.negative {
            notices.push(format!(
                "delays are below 0 in {}, the smallest {} (flow {flow}): the clocks of sender and receiver disagree",
                count(flows),
                signed_duration(value)
            ));
        }
        if let Some(Worst { flow, value, flows }) = self.stall {
            notices.push(format!(
                "no packet left for {STALL_GAPS} mean inter-departure times or longer in {}: the longest time is {} (flow {flow})",
                count(flows),
                duration(value.length_ns)
            ));
        }
        self.errors
    }
}

/// Flows in words.
fn count(flows: u64) -> String {
    if flows == 1 { "1 flow".to_owned() } else { format!("{flows} flows") }
}

/// More arrived than was sent.
fn excess(report: &FlowReport, facts: &Facts<'_>) -> Option<String> {
    let metrics = &report.metrics;
    let excess = metrics.excess_packets;
    if excess == 0 {
        return None;
    }
    let sent = metrics.sent_packets?;
    let arrivals = match (report.side, report.meter) {
        ("sender", Some("rtt")) | ("receiver", _) => metrics.packets,
        _ => facts.received_packets.unwrap_or(0),
    };
    let again = metrics.duplicated.unwrap_or(0);
    let arrived = arrivals.saturating_sub(again);
    Some(if arrived > sent {
        format!(
            "more packets arrived than were sent: {sent} sent, {arrived} different ones arrived, {excess} too many; the \
             loss is not known"
        )
    } else {
        format!(
            "{excess} packets arrived that none of the logs of its senders has ({sent} sent, {arrived} different ones \
             arrived): the loss is not known"
        )
    })
}

/// A duration of three digits.
fn duration(ns: u64) -> String {
    let mut unit = 1;
    while ns / unit >= 1_000 {
        unit *= 10;
    }
    format_duration_ns(ns / unit * unit)
}

/// A stall in words.
fn sentence(stall: &Stall) -> String {
    let Stall { behind, length_ns, mean_gap_ns, left_out } = *stall;
    let (length, mean) = (duration(length_ns), duration(mean_gap_ns));
    let gaps = length_ns as f64 / mean_gap_ns as f64;
    let mut text = if left_out == 0 {
        format!("the sender stood still for {length} behind packet {behind}")
    } else {
        format!("the sender's log has no packet for {length} behind packet {behind}")
    };
    // Writing to a String cannot fail.
    let _written = write!(text, ": {gaps:.0} mean inter-departure times of {mean}");
    if left_out > 0 {
        let _written = write!(text, ", {left_out} packets of the plan are not there");
    }
    text
}
