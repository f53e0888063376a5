//! Origin of a flow's packets: addresses they may come from, and the first other source.
//!
//! A handle alone proves nothing: its noise is 16 bits, and packets of D-ITG have none. The first packet must come
//! from the host that agreed on the flow, or from the address that was agreed with it; all others from the
//! same address and port. The comparison costs no system call, no lock and no allocation.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use itg_core::flow::Proto;

use super::RxFlow;

/// Addresses from which packets of a flow may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The peer on the signalling channel, whose port is of no matter.
    pub peer: SocketAddr,
    /// Another address of that host, when both sides have agreed on one for data.
    pub data: Option<IpAddr>,
}

impl Origin {
    /// The peer alone.
    pub const fn peer(peer: SocketAddr) -> Self {
        Self { peer, data: None }
    }

    /// Returns true if packets may come from there: a host behind the same interface, where
    /// addresses are valid on one link only.
    fn includes(&self, from: SocketAddr) -> bool {
        let scope = |address: SocketAddr| match address {
            SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() => v6.scope_id(),
            _ => 0,
        };
        let (here, there) = (scope(from), scope(self.peer));
        (from.ip() == self.peer.ip() && here == there)
            || (self.data == Some(from.ip()) && (here == there || here == 0 || there == 0))
    }

    fn addresses(&self) -> impl Iterator<Item = IpAddr> + use<> {
        let peer = self.peer.ip();
        std::iter::once(peer).chain(self.data.filter(|data| *data != peer))
    }
}

/// Sources of a flow's packets, as far as known, and the first other source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origins {
    may: Origin,
    /// Learned from the first packet.
    source: Option<SocketAddr>,
    /// Source of the first packet that named the flow and was not its sender's.
    stranger: Option<SocketAddr>,
}

/// Verdict on the source of packets that name a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sender {
    /// The flow's sender.
    Known,
    /// The flow's sender, whose first packet this is.
    New,
    /// Its address, at another port than its first packet had.
    Rebound,
    /// Another source.
    Stranger,
}

impl Origins {
    pub(super) const fn new(may: Origin) -> Self {
        Self { may, source: None, stranger: None }
    }

    /// Judges the source of packets; `from` is `None` where the kernel lets only one peer through.
    pub(super) fn judge(&self, from: Option<SocketAddr>, allowed: &[IpAddr]) -> Sender {
        match (self.source, from) {
            (_, None) => Sender::Known,
            (Some(source), Some(from)) if source == from => Sender::Known,
            (None, Some(from)) if self.may.includes(from) || allowed.contains(&from.ip()) => {
                Sender::New
            }
            (Some(source), Some(from)) if source.ip() == from.ip() => Sender::Rebound,
            _ => Sender::Stranger,
        }
    }

    /// Remembers the source of packets that are not the sender's, unless one is known already.
    pub(super) fn remember(&mut self, from: Option<SocketAddr>) {
        self.stranger = self.stranger.or(from);
    }

    /// Source of the first packet that named this flow and was not its sender's, if one came.
    pub(super) const fn stranger(&self) -> Option<SocketAddr> {
        self.stranger
    }
}

/// Flows whose first packet has not come, by protocol and the addresses from where it may.
#[derive(Debug, Default)]
pub(super) struct Awaited(BTreeMap<(Proto, IpAddr), usize>);

impl Awaited {
    /// Awaits the first packet of a flow.
    pub(super) fn open(&mut self, rx: &RxFlow) {
        for address in rx.origin.addresses() {
            *self.0.entry((rx.proto, address)).or_default() += 1;
        }
    }

    /// The first packet of a flow has come from there, or will not come any more.
    pub(super) fn came(&mut self, rx: &RxFlow, origins: &mut Origins, from: Option<SocketAddr>) {
        if origins.source.is_some() {
            return;
        }
        origins.source = from;
        for address in rx.origin.addresses() {
            if let Some(count) = self.0.get_mut(&(rx.proto, address)) {
                *count -= 1;
            }
        }
    }

    /// Forgets addresses from which nothing is awaited.
    pub(super) fn tidy(&mut self) {
        self.0.retain(|_, count| *count > 0);
    }

    /// Returns true if a flow of this protocol awaits its first packet from there.
    pub(super) fn from(&self, proto: Proto, from: IpAddr) -> bool {
        self.0.get(&(proto, from)).is_some_and(|count| *count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn packets_are_held_against_the_addresses_agreed() {
        let v4 = Origin::peer(at("10.0.0.1:4000"));
        let other = Origin { data: Some(at("10.9.0.1:0").ip()), ..v4 };
        let local = Origin::peer(at("[fe80::1%3]:4000"));
        let global =
            Origin { data: Some(at("[fe80::7]:0").ip()), ..Origin::peer(at("[fd77::1]:1")) };
        for (origin, from, want) in [
            (v4, "10.0.0.1:5", true),
            (v4, "10.0.0.2:4000", false),
            (v4, "10.9.0.1:5", false),
            (other, "10.9.0.1:5", true),
            (other, "10.0.0.1:5", true),
            (other, "10.9.0.2:5", false),
            (local, "[fe80::1%3]:5", true),
            (local, "[fe80::1%4]:5", false),
            (local, "[fe80::2%3]:5", false),
            (global, "[fe80::7%2]:5", true),
            (global, "[fd77::1]:5", true),
            (global, "[fd77::2]:5", false),
        ] {
            let judged = Origins::new(origin).judge(Some(at(from)), &[]);
            assert_eq!(judged == Sender::New, want, "{from} for {origin:?}");
        }
        let allowed = [at("10.0.0.9:0").ip()];
        assert_eq!(Origins::new(v4).judge(Some(at("10.0.0.9:5")), &allowed), Sender::New);
    }

    #[test]
    fn behind_the_first_packet_the_port_counts_too() {
        let mut origins = Origins::new(Origin::peer(at("10.0.0.1:4000")));
        origins.source = Some(at("10.0.0.1:5"));
        let allowed = [at("10.0.0.9:0").ip()];
        for (from, want) in [
            ("10.0.0.1:5", Sender::Known),
            ("10.0.0.1:6", Sender::Rebound),
            ("10.0.0.9:5", Sender::Stranger),
        ] {
            assert_eq!(origins.judge(Some(at(from)), &allowed), want, "{from}");
        }
        assert_eq!(origins.judge(None, &allowed), Sender::Known);
    }
}
