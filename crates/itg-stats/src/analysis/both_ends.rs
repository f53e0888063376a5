//! Facts on a flow from both of its ends.

use itg_record::Side;

use super::objects::Object;
use super::owners::{self, Lack, Owners};
use crate::departures::Departed;
use crate::stats::Facts;

/// Counts of a flow from both of its ends.
pub(super) fn facts<'o>(object: &'o Object, peer: Option<&'o Object>) -> Facts<'o> {
    let other = peer.map(|peer| &peer.owners);
    let of = |side: Side| {
        let both = [Some(object), peer].into_iter().flatten();
        both.into_iter().find(|object| object.stats.side() == side).map(|object| &object.owners)
    };
    let (sender, receiver) = (of(Side::Sender), of(Side::Receiver));
    // The log that has the arrivals.
    let arrivals = if object.stats.is_round_trip() { sender } else { receiver };
    let lack = arrivals.map_or(Lack::Nothing, Owners::lack);
    Facts {
        sent_packets: owners::sent_packets(sender, receiver),
        skipped_packets: owners::either(&object.owners, other, |end| end.skipped_packets),
        received_packets: owners::received(sender, receiver, |end| end.received_packets),
        received_unique: owners::received(sender, receiver, |end| end.received_unique),
        socket_drops: owners::of_all(&object.owners, other, |end| end.socket_drops),
        shared_drops: [Some(object), peer].into_iter().flatten().any(|o| o.shares_drops),
        unlogged: owners::unlogged(sender, receiver),
        breaks_off: lack == Lack::Tail,
        lacks_records: lack == Lack::Some,
        sender_lacks: sender.is_some_and(|sender| sender.lack() != Lack::Nothing),
        sender_lacks_records: sender.is_some_and(|sender| sender.lack() == Lack::Some),
        contradicted: [Some(object), peer]
            .into_iter()
            .flatten()
            .any(|o| o.contradiction().is_some()),
        waited_packets: owners::either(&object.owners, other, |end| end.waited_packets),
        stream: object.info.as_ref().is_some_and(|info| info.spec.proto.properties().is_stream),
        departure_spread_ns: departed(object, peer).and_then(|departed| departed.spread_ns()),
        peer: peer.map(|peer| &peer.stats),
    }
}

/// Departures of a flow from its sender, from the log of either side.
pub(super) fn departed(object: &Object, peer: Option<&Object>) -> Option<Departed> {
    let both = [Some(object), peer].into_iter().flatten();
    both.into_iter().find_map(|object| Departed::of(&object.departures, object.held))
}
