//! Facts on a flow from both of its ends.

use std::collections::BTreeMap;

use itg_core::flow::Flow;
use itg_core::seed::RunSeed;
use itg_record::Side;

use super::objects::Object;
use super::owners::{self, Lack, Owners};
use crate::departures::Departed;
use crate::packet_account::{Told, planned};
use crate::plan::STEPS_EACH;
use crate::stats::Facts;

/// Counts of a flow from both of its ends.
pub(super) fn facts<'o>(object: &'o Object<'_>, peer: Option<&'o Object<'_>>) -> Facts<'o> {
    let other = peer.map(|peer| &peer.owners);
    let of = |side: Side| {
        let both = [Some(object), peer].into_iter().flatten();
        both.into_iter().find(|object| object.stats.side() == side).map(|object| &object.owners)
    };
    let (sender, receiver) = (of(Side::Sender), of(Side::Receiver));
    // The log that has the arrivals.
    let arrivals = if object.stats.is_round_trip() { sender } else { receiver };
    let lack = arrivals.map_or(Lack::Nothing, Owners::lack);
    let transport = object.info.map(|info| info.spec.proto.properties());
    Facts {
        sent_packets: owners::sent(sender, receiver, |end| end.sent_packets),
        skipped_packets: owners::sent(sender, receiver, |end| end.skipped_packets),
        skipped_told: owners::either(&object.owners, other, |end| end.skipped_packets),
        refused_packets: owners::sent(sender, receiver, |end| end.refused_packets),
        received_packets: owners::received(sender, receiver, |end| end.received_packets),
        received_unique: owners::received(sender, receiver, |end| end.received_unique),
        socket_drops: owners::of_all(&object.owners, other, |end| end.socket_drops),
        checksum_drops: owners::of_all(&object.owners, other, |end| end.checksum_drops),
        shared_drops: [Some(object), peer].into_iter().flatten().any(|o| o.shares_drops),
        host_drops: sender.and_then(|owners| owners.sum(|end| end.host_drops)),
        too_late: receiver.and_then(|owners| owners.told(|end| end.too_late)),
        rebound: owners::received(sender, receiver, |end| end.rebound),
        unlogged: owners::unlogged(sender, receiver),
        breaks_off: lack == Lack::Tail,
        lacks_records: lack == Lack::Some,
        sender_lacks: sender.is_some_and(|sender| sender.lack() != Lack::Nothing),
        sender_lacks_records: sender.is_some_and(|sender| sender.lack() == Lack::Some),
        sender_absent: owners::sender_absent(sender, receiver),
        contradicted: [Some(object), peer]
            .into_iter()
            .flatten()
            .any(|o| o.contradiction().is_some()),
        waited_packets: owners::either(&object.owners, other, |end| end.waited_packets),
        stream: transport.is_some_and(|transport| transport.is_stream),
        resends: transport.is_some_and(|transport| transport.resends),
        by_numbers: object.info.is_some_and(|info| info.ditg.is_some()),
        departure_spread_ns: departed(object, peer).and_then(|departed| departed.spread_ns()),
        peer: peer.map(|peer| &*peer.stats),
    }
}

/// Departures of a flow from its sender, from the log of either side.
pub(super) fn departed(object: &Object<'_>, peer: Option<&Object<'_>>) -> Option<Departed> {
    let both = [Some(object), peer].into_iter().flatten();
    both.into_iter().find_map(|object| Departed::of(&object.departures, object.held))
}

/// Packets of any plan that are walked over to count them, however few of them a log has.
const FREE_WALK: u64 = 1 << 16;

/// The rest of a flow's account, from the logs of both sides.
pub(super) fn told(object: &Object<'_>, peer: Option<&Object<'_>>, facts: &Facts<'_>) -> Told {
    let both = || [Some(object), peer].into_iter().flatten();
    let of = |side: Side| both().find(|object| object.stats.side() == side);
    let (sender_log, receiver_log) = (of(Side::Sender), of(Side::Receiver));
    let sender = sender_log.unwrap_or(object);
    let other = peer.map(|peer| &peer.owners);
    let stats = if object.stats.counts_arrivals() { Some(object) } else { receiver_log };
    // The log of the receiver is not that of the replies.
    let one_way = !object.stats.is_round_trip();
    let whole = !(one_way && facts.unlogged > Some(0) || facts.breaks_off || facts.lacks_records);
    let logged = stats.filter(|_| whole).map(|object| object.stats.arrived_seqs().unique());
    let counted = facts.received_unique.filter(|_| one_way);
    let corrupted = owners::of_all(&object.owners, other, |end| end.corrupted_packets);
    let info = both().find_map(|object| object.info).filter(|info| info.ditg.is_none());
    let (planned, no_plan) = match info {
        None => (None, "no log of ITG describes the flow"),
        Some(info) => {
            let parts = [facts.sent_packets, facts.skipped_packets, facts.refused_packets];
            let whole = (sender.owners.len() == 1 && sender.owners.ended_whole())
                .then(|| parts.into_iter().try_fold(0_u64, |sum, part| sum.checked_add(part?)));
            // Walking over a plan costs in proportion to what the logs hold.
            let most = STEPS_EACH.saturating_mul(object.stats.volume().packets);
            match Flow::resolve(info.spec.clone(), RunSeed(info.seed)) {
                Ok(flow) => planned(&flow, whole.flatten(), FREE_WALK.saturating_add(most)),
                Err(_) => (None, "the description lacks the values of a distribution"),
            }
        }
    };
    let reason = sender.owners.reason();
    Told {
        planned,
        planned_ns: info.and_then(|info| info.spec.stop.duration_ns),
        refused: facts.refused_packets,
        refused_by: sender.owners.refused_by(),
        arrived: counted.or(logged),
        corrupted: corrupted.filter(|_| one_way),
        round_trip: !one_way,
        there: facts.received_unique,
        interrupted: sender.owners.interrupted(),
        end: reason.filter(|_| facts.sent_packets.is_some()),
        no_plan,
        logged: both().map(|object| object.stats.packets_seen()).max().unwrap_or(0),
        why: why_not([sender_log, receiver_log, stats], facts),
    }
}

/// Reasons why parts of a flow's account are not known, by the logs of its sender, its receiver, and of its arrivals.
fn why_not(
    [sender, receiver, arrivals]: [Option<&Object<'_>>; 3],
    facts: &Facts<'_>,
) -> BTreeMap<&'static str, &'static str> {
    let lacks = |log: Option<&Object<'_>>| log.and_then(|log| log.owners.lack().words());
    let older = facts.received_packets.map(|_| "the account is of an older version");
    let place = facts
        .shared_drops
        .then_some("flows came to one socket: whose packets it dropped is not known");
    let logged = match arrivals {
        Some(log) if log.stats.is_round_trip() => {
            Some("nobody counts the replies that are not in a log")
        }
        _ if receiver.is_none() => Some("the receiver's log has it"),
        _ => lacks(receiver),
    };
    [
        ("sent", lacks(sender)),
        ("arrived", lacks(arrivals).or(older)),
        ("lost.socket", place),
        ("lost.network", place),
        ("logged", logged),
        ("not_logged", logged),
    ]
    .into_iter()
    .filter_map(|(part, why)| Some((part, why?)))
    .collect()
}
