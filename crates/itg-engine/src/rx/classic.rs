//! Packets of D-ITG: which flow they belong to, and what their header says in ITG's terms.
//!
//! A packet names its flow by the sender's number, which two senders may share; without a header it
//! names none. So flows are looked up by where the packet arrived, its number, and where it came from.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use itg_classic::send::HeaderKind;
use itg_classic::wire::{PacketHeader as ClassicHeader, StreamPacket, StreamPackets};
use itg_core::header::PacketHeader;

use super::origin::Sender;
use super::stream::StreamEvents;
use super::table::{Arrival, Decoded, Flow, Message, Table};
use super::{Port, RxFlow};
use crate::classic::unix_time;

/// The slots of D-ITG's flows by port and number, in the order in which the flows were opened.
#[derive(Debug, Default)]
pub(super) struct Places(BTreeMap<usize, BTreeMap<u32, Vec<usize>>>);

impl Places {
    pub(super) fn open(&mut self, rx: &RxFlow) {
        if let Some(classic) = &rx.classic {
            let port = self.0.entry(classic.port).or_default();
            port.entry(rx.flow).or_default().push(rx.slot);
        }
    }

    pub(super) fn close(&mut self, rx: &RxFlow) {
        let Some(classic) = &rx.classic else { return };
        let Some(port) = self.0.get_mut(&classic.port) else { return };
        if let Some(slots) = port.get_mut(&rx.flow) {
            slots.retain(|slot| *slot != rx.slot);
            if slots.is_empty() {
                port.remove(&rx.flow);
            }
        }
        if port.is_empty() {
            self.0.remove(&classic.port);
        }
    }

    fn numbered(&self, port: usize, flow: u32) -> &[usize] {
        self.0.get(&port).and_then(|port| port.get(&flow)).map_or(&[], Vec::as_slice)
    }

    fn all(&self, port: usize) -> impl Iterator<Item = usize> + '_ {
        self.0.get(&port).into_iter().flat_map(BTreeMap::values).flatten().copied()
    }
}

fn kind(flow: &Flow) -> HeaderKind {
    flow.rx.classic.as_ref().map_or(HeaderKind::Standard, |classic| classic.kind)
}

/// Header of a packet of a flow, in ITG's form; a packet without a number gets the next one.
fn told(flow: &Flow, header: Option<ClassicHeader>, read_ns: u64) -> PacketHeader {
    let handle = flow.rx.handle;
    let Some(header) = header else {
        return PacketHeader { handle, seq: flow.arrivals.packets(), sent_ns: None };
    };
    let sent_ns = match kind(flow) {
        HeaderKind::Standard => unix_time(header.seconds, header.micros, read_ns),
        HeaderKind::Short | HeaderKind::None => None,
    };
    PacketHeader { handle, seq: u64::from(header.seq.saturating_sub(1)), sent_ns }
}

impl Table {
    /// The packet that the rest of a message is.
    pub(super) fn classic_packet(
        &mut self,
        rest: &[u8],
        message: &Message<'_>,
        port: Port,
        read_ns: u64,
    ) -> Decoded {
        let flow = self.classic_flow(rest, port, message.from, read_ns);
        let size = u32::try_from(message.len).unwrap_or(u32::MAX);
        Decoded { flow, count: 1, size, taken: rest.len() }
    }

    /// The flow of a datagram of D-ITG, and its header in ITG's terms.
    fn classic_flow(
        &mut self,
        bytes: &[u8],
        port: Port,
        from: Option<SocketAddr>,
        read_ns: u64,
    ) -> Option<(usize, PacketHeader)> {
        let short = ClassicHeader::parse(HeaderKind::Short, bytes);
        let slot = match port.owner {
            Some(slot) => short.map(|_| slot),
            None => {
                let number = short.map_or(0, |header| header.flow);
                let numbered = short.map_or(&[][..], |_| self.classic.numbered(port.id, number));
                let numbered = numbered.iter().copied().filter(|slot| !self.is_bare(*slot));
                let bare = self.classic.all(port.id).filter(|slot| self.is_bare(*slot));
                self.pick(numbered.chain(bare), from)
            }
        }?;
        if !self.is_from(slot, from, 1) {
            return None;
        }
        let flow = self.flows.get_mut(slot)?.as_mut()?;
        let header = match kind(flow) {
            HeaderKind::None => None,
            kind => Some(ClassicHeader::parse(kind, bytes)?),
        };
        if header.is_some_and(|header| header.flow != flow.rx.flow) {
            return None;
        }
        Some((slot, told(flow, header, read_ns)))
    }

    /// Takes the packets in the next bytes of a stream.
    pub(super) fn classic_stream(
        &mut self,
        packets: &mut StreamPackets,
        mut bytes: &[u8],
        owner: &mut Option<(usize, u32)>,
        arrival: &Arrival,
        now_ns: u64,
    ) -> Result<StreamEvents, String> {
        let mut events = StreamEvents::default();
        while let Some(packet) = packets.next(&mut bytes).map_err(|error| error.to_string())? {
            let arrival = Arrival { size: packet.size, ..*arrival };
            match self.classic_in_stream(packet, owner, &arrival) {
                Some((slot, header)) => {
                    events.send_back |= self.arrived(slot, &header, &arrival, 1, now_ns);
                }
                None => events.stranger = true,
            }
        }
        Ok(events)
    }

    /// The flow of a packet in a stream, and its header in ITG's terms. A stream goes over to the flow
    /// that its packets name.
    fn classic_in_stream(
        &mut self,
        packet: StreamPacket,
        owner: &mut Option<(usize, u32)>,
        arrival: &Arrival,
    ) -> Option<(usize, PacketHeader)> {
        let (mut slot, handle) = (*owner)?;
        let flow = self.owned((slot, handle))?;
        if let Some(header) = packet.header
            && header.flow != flow.rx.flow
        {
            let port = flow.rx.classic.as_ref()?.port;
            let numbered = self.classic.numbered(port, header.flow).iter().copied();
            let other = self.pick(numbered, arrival.from)?;
            if let Some(flow) = self.owned((slot, handle)) {
                flow.connected = false;
            }
            slot = other;
        }
        if !self.is_from(slot, arrival.from, 1) {
            return None;
        }
        let flow = self.flows.get_mut(slot)?.as_mut()?;
        flow.connected = true;
        *owner = Some((slot, flow.rx.handle));
        Some((slot, told(flow, packet.header, arrival.read_ns)))
    }

    /// The flow for which a data connection was made: the first one that has none yet.
    pub(super) fn claim(
        &mut self,
        port: usize,
        from: Option<SocketAddr>,
    ) -> Option<((usize, u32), HeaderKind)> {
        let waits = |slot: &usize| {
            self.flows.get(*slot).and_then(Option::as_ref).is_some_and(|flow| !flow.connected)
        };
        let slot = self.pick(self.classic.all(port).filter(waits), from)?;
        if !self.is_from(slot, from, 1) {
            return None;
        }
        let flow = self.flows.get_mut(slot)?.as_mut()?;
        flow.connected = true;
        Some(((slot, flow.rx.handle), kind(flow)))
    }

    /// Of several flows the one whose packets come from there, or might; otherwise the first, whose packets
    /// they only say to be.
    fn pick(&self, slots: impl Iterator<Item = usize>, from: Option<SocketAddr>) -> Option<usize> {
        let (mut first, mut new) = (None, None);
        for slot in slots {
            let Some(flow) = self.flows.get(slot).and_then(Option::as_ref) else { continue };
            match flow.origins.judge(from, &self.allowed) {
                Sender::Known => return Some(slot),
                Sender::New => new = new.or(Some(slot)),
                Sender::Rebound | Sender::Stranger => first = first.or(Some(slot)),
            }
        }
        new.or(first)
    }

    fn is_bare(&self, slot: usize) -> bool {
        let flow = self.flows.get(slot).and_then(Option::as_ref);
        flow.is_some_and(|flow| kind(flow) == HeaderKind::None)
    }
}
