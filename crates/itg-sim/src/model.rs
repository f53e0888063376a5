//! Interface of a simulated network: packets in, deliveries out, both in virtual time.

use itg_process::{Contract, Slot, To};

/// A packet that a host hands to a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Its number in the simulation.
    pub id: u64,
    /// The host that sends it.
    pub src: Slot,
    /// Receivers, without the sender.
    pub to: To,
    /// Its length in bytes, as the network below sees it.
    pub bytes: u64,
    /// True if it goes before others, on networks that know the difference (FDDI: synchronous).
    pub urgent: bool,
}

/// Reason for which a network did not deliver a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Drop {
    /// A queue was full.
    Queue,
    /// Lost on the way.
    Loss,
    /// Damaged on the way, and noticed by its checksum.
    Damage,
    /// The link is cut, or sender and receiver are in different partitions.
    Cut,
    /// The connection was reset while it was on its way.
    Reset,
    /// The receiver is down.
    Down,
}

/// Request of a network to the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Deliver the packet of this number to this host at this time.
    Deliver(u64, Slot, u64),
    /// Deliver it once more.
    Again(u64, Slot, u64),
    /// It does not arrive there.
    Drop(u64, Slot, Drop),
    /// Call [`Model::wake`] with this token at this time.
    Wake(u64, u64),
}

/// Work of a network so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Packets taken, for each receiver once.
    pub packets: u64,
    /// Transmissions on the medium: frames, or unicasts in a metric network.
    pub frames: u64,
    /// Nanoseconds during which the medium was busy (the busiest one, if there are several).
    pub busy_ns: u64,
    /// Packets dropped, for each receiver once.
    pub dropped: u64,
    /// Nanoseconds lost to collisions and idle slots.
    pub overhead_ns: u64,
}

/// A simulated network.
pub trait Model: Send + std::fmt::Debug {
    /// Its name and parameters, for reports.
    fn describe(&self) -> String;
    /// Its promises to the layers above.
    fn contract(&self) -> Contract;
    /// Takes a packet at time `now`.
    fn submit(&mut self, now: u64, packet: Packet, out: &mut Vec<Effect>);
    /// A time that it asked for has come.
    fn wake(&mut self, _now: u64, _token: u64, _out: &mut Vec<Effect>) {}
    /// Its work so far.
    fn usage(&self) -> Usage;
}

/// Nanoseconds that this many bytes take at this rate in bit/s, rounded up; 0 at rate 0, which stands
/// for no limit.
#[must_use]
pub fn transmission_ns(bytes: u64, rate: u64) -> u64 {
    if rate == 0 {
        return 0;
    }
    let bits = u128::from(bytes) * 8_000_000_000;
    u64::try_from(bits.div_ceil(u128::from(rate))).unwrap_or(u64::MAX)
}

/// Lengths of the frames' payloads that a packet of this length needs; an empty packet needs one.
pub(crate) fn fragments(bytes: u64, mtu: u64) -> impl Iterator<Item = u64> {
    let count = bytes.div_ceil(mtu).max(1);
    (0..count).map(move |k| if k + 1 < count { mtu } else { bytes - k * mtu })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transmissions_take_their_time() {
        for (bytes, rate, want) in [
            (1538, 10_000_000, 1_230_400),
            (1, 3, 2_666_666_667),
            (0, 10, 0),
            (1500, 0, 0),
            (u64::MAX, 1, u64::MAX),
        ] {
            assert_eq!(transmission_ns(bytes, rate), want, "{bytes} bytes at {rate}");
        }
        for (bytes, want) in
            [(0, vec![0]), (1, vec![1]), (1500, vec![1500]), (3001, vec![1500, 1500, 1])]
        {
            assert_eq!(fragments(bytes, 1500).collect::<Vec<_>>(), want);
        }
    }
}
