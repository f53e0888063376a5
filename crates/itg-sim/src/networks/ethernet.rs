//! Simplified Ethernet: one shared bus, or a switch.
//!
//! A packet of *b* bytes becomes max(1, ⌈b / mtu⌉) frames; the payload of a frame is padded to 46
//! bytes and costs 38 more: preamble 8, header 14, check sequence 4, gap 12 (IEEE 802.3). The bus serves
//! one frame at a time; collisions are not modelled (as in Neko). The switch stores and forwards: one
//! full-duplex link for each host, one output queue for each port.

use std::collections::VecDeque;

use itg_core::units::{BitRate, format_duration_ns};
use itg_process::{ConfigError, Contract, Params, Slot, US};

use crate::model::{Drop, Effect, Model, Packet, Usage, fragments, transmission_ns};

/// Bytes that a frame costs besides its payload.
const FRAME_COST: u64 = 38;
/// Smallest payload of a frame, in bytes.
const MIN_PAYLOAD: u64 = 46;
/// Frames that a queue holds unless the configuration says otherwise.
const QUEUE: u64 = 1000;

/// Bytes on the medium of a frame with this payload.
const fn frame_bytes(payload: u64) -> u64 {
    if payload < MIN_PAYLOAD { MIN_PAYLOAD + FRAME_COST } else { payload + FRAME_COST }
}

#[derive(Clone, Debug)]
struct Frame {
    packet: u64,
    to: Vec<Slot>,
    time: u64,
    /// True if it is the last one of its packet.
    last: bool,
}

/// One shared bus.
#[derive(Debug)]
pub(crate) struct Bus {
    rate: u64,
    mtu: u64,
    prop: u64,
    queue: u64,
    hw_multicast: bool,
    round_robin: bool,
    queues: Vec<VecDeque<Frame>>,
    /// Hosts in the order in which their frames were submitted.
    order: VecDeque<usize>,
    /// The host whose frame is on the bus.
    sending: Option<usize>,
    turn: usize,
    usage: Usage,
}

impl Bus {
    pub(crate) fn new(params: &mut Params, hosts: u32) -> Result<Self, ConfigError> {
        let (rate, mtu, prop, queue) = common(params)?;
        let round_robin = match params.text("arbitration")?.as_deref() {
            None | Some("fifo") => false,
            Some("round_robin") => true,
            Some(other) => {
                let text = format!("`{other}`: expected `fifo` or `round_robin`");
                return Err(params.error_at("arbitration", text));
            }
        };
        Ok(Self {
            rate,
            mtu,
            prop,
            queue,
            hw_multicast: params.flag("hw_multicast", true)?,
            round_robin,
            queues: (0..hosts).map(|_| VecDeque::new()).collect(),
            order: VecDeque::new(),
            sending: None,
            turn: 0,
            usage: Usage::default(),
        })
    }

    /// Puts the next frame on the bus.
    fn serve(&mut self, now: u64, out: &mut Vec<Effect>) {
        let n = self.queues.len();
        let next = if self.round_robin {
            (0..n).map(|k| (self.turn + k) % n).find(|host| !self.queues[*host].is_empty())
        } else {
            self.order.pop_front()
        };
        self.sending = next;
        let Some(host) = next else { return };
        self.turn = (host + 1) % n;
        if let Some(frame) = self.queues[host].front() {
            self.usage.busy_ns += frame.time;
            self.usage.frames += 1;
            out.push(Effect::Wake(0, now + frame.time));
        }
    }
}

/// Rate, largest payload, propagation, frames that a queue holds.
fn common(params: &mut Params) -> Result<(u64, u64, u64, u64), ConfigError> {
    let rate = params.bit_rate("rate", 100_000_000)?;
    let mtu = params.number("mtu", 1500)?;
    if mtu == 0 {
        return Err(params.error_at("mtu", "expected 1 or more bytes"));
    }
    let queue = params.number("queue", QUEUE)?;
    if queue == 0 {
        return Err(params.error_at("queue", "expected 1 or more frames"));
    }
    Ok((rate, mtu, params.time_ns("prop", 5 * US)?, queue))
}

impl Model for Bus {
    fn describe(&self) -> String {
        let arbitration = if self.round_robin { "round_robin" } else { "fifo" };
        format!(
            "ethernet rate={} mtu={} prop={} queue={} arbitration={arbitration} hw_multicast={}",
            BitRate(self.rate),
            self.mtu,
            format_duration_ns(self.prop),
            self.queue,
            self.hw_multicast
        )
    }

    fn contract(&self) -> Contract {
        Contract { reliable: false, multicast: self.hw_multicast, ..Contract::STREAM }
    }

    fn submit(&mut self, now: u64, packet: Packet, out: &mut Vec<Effect>) {
        let host = packet.src.index();
        let to = packet.to.slots();
        self.usage.packets += to.len() as u64;
        let groups: Vec<&[Slot]> =
            if self.hw_multicast { vec![to] } else { to.chunks(1).collect() };
        for group in groups {
            let frames = fragments(packet.bytes, self.mtu);
            let count = packet.bytes.div_ceil(self.mtu).max(1);
            if self.queues[host].len() as u64 + count > self.queue {
                self.usage.dropped += group.len() as u64;
                out.extend(group.iter().map(|&to| Effect::Drop(packet.id, to, Drop::Queue)));
                continue;
            }
            for (k, payload) in (1..).zip(frames) {
                let time = transmission_ns(frame_bytes(payload), self.rate);
                let frame = Frame { packet: packet.id, to: group.to_vec(), time, last: k == count };
                self.queues[host].push_back(frame);
                if !self.round_robin {
                    self.order.push_back(host);
                }
            }
        }
        if self.sending.is_none() {
            self.serve(now, out);
        }
    }

    fn wake(&mut self, now: u64, _token: u64, out: &mut Vec<Effect>) {
        let Some(host) = self.sending else { return };
        if let Some(frame) = self.queues[host].pop_front()
            && frame.last
        {
            let arrival = now + self.prop;
            let deliver = |to: &Slot| Effect::Deliver(frame.packet, *to, arrival);
            out.extend(frame.to.iter().map(deliver));
        }
        self.serve(now, out);
    }

    fn usage(&self) -> Usage {
        self.usage
    }
}

/// A link that serves one frame at a time: when it is free, and when its frames leave it.
#[derive(Debug, Default)]
struct Link {
    free_at: u64,
    leaving: VecDeque<u64>,
    busy_ns: u64,
}

impl Link {
    /// Time at which the last bit of a frame has left, or `None` when the queue is full.
    fn send(&mut self, now: u64, time: u64, queue: u64) -> Option<u64> {
        while self.leaving.front().is_some_and(|at| *at <= now) {
            self.leaving.pop_front();
        }
        if self.leaving.len() as u64 >= queue {
            return None;
        }
        self.free_at = self.free_at.max(now) + time;
        self.leaving.push_back(self.free_at);
        self.busy_ns += time;
        Some(self.free_at)
    }
}

/// A packet on its way through the switch to one port.
#[derive(Clone, Copy, Debug)]
struct Passage {
    packet: u64,
    to: Slot,
    time: u64,
    last: bool,
}

/// A switch.
#[derive(Debug)]
pub(crate) struct Switch {
    rate: u64,
    mtu: u64,
    prop: u64,
    queue: u64,
    up: Vec<Link>,
    down: Vec<Link>,
    passages: Vec<Passage>,
    free: Vec<usize>,
    /// Packets of which a port has dropped a frame.
    broken: std::collections::BTreeSet<(u64, Slot)>,
    usage: Usage,
}

impl Switch {
    pub(crate) fn new(params: &mut Params, hosts: u32) -> Result<Self, ConfigError> {
        let (rate, mtu, prop, queue) = common(params)?;
        let lines = || (0..hosts).map(|_| Link::default()).collect();
        Ok(Self {
            rate,
            mtu,
            prop,
            queue,
            up: lines(),
            down: lines(),
            passages: Vec::new(),
            free: Vec::new(),
            broken: std::collections::BTreeSet::new(),
            usage: Usage::default(),
        })
    }

    fn remember(&mut self, passage: Passage) -> u64 {
        let at = match self.free.pop() {
            Some(at) => {
                self.passages[at] = passage;
                at
            }
            None => {
                self.passages.push(passage);
                self.passages.len() - 1
            }
        };
        at as u64
    }

    fn forget(&mut self, packet: u64, to: Slot, out: &mut Vec<Effect>) {
        self.usage.dropped += 1;
        out.push(Effect::Drop(packet, to, Drop::Queue));
    }
}

impl Model for Switch {
    fn describe(&self) -> String {
        format!(
            "switch rate={} mtu={} prop={} queue={}",
            BitRate(self.rate),
            self.mtu,
            format_duration_ns(self.prop),
            self.queue
        )
    }

    fn contract(&self) -> Contract {
        Contract { reliable: false, multicast: true, ..Contract::STREAM }
    }

    fn submit(&mut self, now: u64, packet: Packet, out: &mut Vec<Effect>) {
        let to = packet.to.slots();
        self.usage.packets += to.len() as u64;
        let count = packet.bytes.div_ceil(self.mtu).max(1);
        let line = &mut self.up[packet.src.index()];
        while line.leaving.front().is_some_and(|at| *at <= now) {
            line.leaving.pop_front();
        }
        if line.leaving.len() as u64 + count > self.queue {
            for &to in to {
                self.forget(packet.id, to, out);
            }
            return;
        }
        for (k, payload) in (1..).zip(fragments(packet.bytes, self.mtu)) {
            let time = transmission_ns(frame_bytes(payload), self.rate);
            let line = &mut self.up[packet.src.index()];
            let Some(sent) = line.send(now, time, u64::MAX) else { continue };
            self.usage.frames += 1;
            self.usage.busy_ns = self.usage.busy_ns.max(self.up[packet.src.index()].busy_ns);
            for &to in to {
                let token =
                    self.remember(Passage { packet: packet.id, to, time, last: k == count });
                out.push(Effect::Wake(token, sent + self.prop));
            }
        }
    }

    fn wake(&mut self, now: u64, token: u64, out: &mut Vec<Effect>) {
        let at = usize::try_from(token).unwrap_or(usize::MAX);
        let Some(&Passage { packet, to, time, last }) = self.passages.get(at) else { return };
        self.free.push(at);
        let line = &mut self.down[to.index()];
        let sent = line.send(now, time, self.queue);
        self.usage.busy_ns = self.usage.busy_ns.max(line.busy_ns);
        let broken = match sent {
            None => {
                if !last {
                    self.broken.insert((packet, to));
                }
                true
            }
            Some(_) => last && !self.broken.is_empty() && self.broken.remove(&(packet, to)),
        };
        match sent {
            Some(sent) if last && !broken => {
                out.push(Effect::Deliver(packet, to, sent + self.prop));
            }
            _ if last => {
                self.broken.remove(&(packet, to));
                self.forget(packet, to, out);
            }
            _ => {}
        }
    }

    fn usage(&self) -> Usage {
        self.usage
    }
}
