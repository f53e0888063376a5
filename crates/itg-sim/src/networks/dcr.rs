//! CSMA-DCR: a bus whose collisions are resolved by a tree search over static indices, so that every
//! access has a bound.
//!
//! *Free access*: a host with a frame transmits when the bus is idle. Two or more that begin within one
//! slot time collide, and an *epoch* begins: all hosts search a balanced `m`-ary tree over `q = mᵈ ≥ n`
//! leaves, depth first, leftmost first; each host owns one leaf. A probe of an interval lets the
//! participants inside transmit: none costs an idle slot, one sends its frame, more collide for a slot and
//! the interval is split. Participants are the hosts that collided (blocked access) or, with `open`,
//! every host that has a frame when its interval is probed.
//! After Le Lann's family of protocols (Hermant, Le Lann, ICDCS 1998).

use std::collections::{BTreeSet, VecDeque};

use itg_core::units::{BitRate, format_duration_ns};
use itg_process::{ConfigError, Contract, Params, Slot};

use crate::model::{Drop, Effect, Model, Packet, Usage, fragments, transmission_ns};

/// Largest payload of a frame, in bytes.
const MTU: u64 = 1500;
/// Bytes that a frame costs besides its payload.
const FRAME_COST: u64 = 38;

/// One step of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// No host in this interval: an idle slot.
    Idle(u32, u32),
    /// One host in it: it sends.
    Transmit(u32),
    /// Several in it: a collision slot, and the interval is split.
    Collision(u32, u32),
}

/// The search of an epoch; the collision that began it has probed the root.
#[derive(Clone, Debug)]
pub struct Search {
    arity: u32,
    /// Intervals that are still to be probed, the next one last.
    stack: Vec<(u32, u32)>,
}

impl Search {
    /// The search over `leaves`, which is a power of `arity`, after the root has collided.
    #[must_use]
    pub fn new(arity: u32, leaves: u32) -> Self {
        let mut search = Self { arity, stack: Vec::new() };
        search.split(0, leaves);
        search
    }

    fn split(&mut self, from: u32, to: u32) {
        let step = (to - from) / self.arity;
        let parts = (0..self.arity).rev().map(|k| (from + k * step, from + (k + 1) * step));
        self.stack.extend(parts);
    }

    /// Probes the next interval among these hosts; `None` when the epoch is over.
    pub fn probe(&mut self, hosts: &BTreeSet<u32>) -> Option<Probe> {
        let (from, to) = self.stack.pop()?;
        let mut inside = hosts.range(from..to);
        Some(match (inside.next(), inside.next()) {
            (None, _) => Probe::Idle(from, to),
            (Some(host), None) => Probe::Transmit(*host),
            (Some(_), Some(_)) => {
                self.split(from, to);
                Probe::Collision(from, to)
            }
        })
    }
}

/// The largest number of slots, idle and collided, that the search for `k` of `leaves` hosts takes, the
/// collision that began it included: ξ(k, t).
#[must_use]
pub fn worst_overhead(arity: u32, leaves: u32, k: u32) -> u64 {
    table(arity, leaves).get(k as usize).copied().unwrap_or(0)
}

/// ξ(k, leaves) for all k.
fn table(arity: u32, leaves: u32) -> Vec<u64> {
    if leaves == 1 {
        return vec![1, 0];
    }
    let part = table(arity, leaves / arity);
    // The worst way to share k hosts among the parts, part after part.
    let mut best = vec![Some(0)];
    for _ in 0..arity {
        let mut next = vec![None; best.len() + part.len() - 1];
        for (k, sum) in best.iter().enumerate() {
            for (own, cost) in part.iter().enumerate() {
                if let Some(sum) = sum {
                    let all: u64 = sum + cost;
                    next[k + own] = Some(next[k + own].map_or(all, |old: u64| old.max(all)));
                }
            }
        }
        best = next;
    }
    let cost = |(k, worst): (usize, &Option<u64>)| match k {
        0 => 1,
        1 => 0,
        _ => 1 + worst.unwrap_or(0),
    };
    best.iter().enumerate().map(cost).collect()
}

#[derive(Clone, Debug)]
struct Frame {
    packet: u64,
    to: Vec<Slot>,
    time: u64,
    last: bool,
}

#[derive(Clone, Debug)]
enum State {
    Idle,
    /// A host has begun to transmit; every other that does so before the slot is over collides.
    Contending(BTreeSet<u32>),
    /// A frame is on the bus; in an epoch, with the rest of the search.
    Sending(u32, Option<(Search, BTreeSet<u32>)>),
    /// A slot is lost within an epoch.
    Slot(Search, BTreeSet<u32>),
}

/// The bus.
#[derive(Debug)]
pub(crate) struct Dcr {
    rate: u64,
    slot: u64,
    arity: u32,
    leaves: u32,
    queue: u64,
    open: bool,
    queues: Vec<VecDeque<Frame>>,
    state: State,
    usage: Usage,
}

impl Dcr {
    pub(crate) fn new(params: &mut Params, hosts: u32) -> Result<Self, ConfigError> {
        let rate = params.bit_rate("rate", 10_000_000)?;
        // 512 bit times; 4096 from a gigabit on, where carriers are extended.
        let bytes = if rate >= 1_000_000_000 { 512 } else { 64 };
        let slot = params.time_ns("slot", transmission_ns(bytes, rate))?;
        let arity = params.number("arity", 2)?;
        let arity = u32::try_from(arity).ok().filter(|arity| (2..=64).contains(arity));
        let arity = arity.ok_or_else(|| params.error_at("arity", "expected 2 to 64"))?;
        let mut leaves = arity;
        while leaves < hosts {
            leaves = leaves.saturating_mul(arity);
        }
        Ok(Self {
            rate,
            slot,
            arity,
            leaves,
            queue: params.number("queue", 1000)?,
            open: params.flag("open", false)?,
            queues: (0..hosts).map(|_| VecDeque::new()).collect(),
            state: State::Idle,
            usage: Usage::default(),
        })
    }

    fn waiting(&self) -> BTreeSet<u32> {
        let with = self.queues.iter().enumerate().filter(|(_, queue)| !queue.is_empty());
        with.filter_map(|(host, _)| u32::try_from(host).ok()).collect()
    }

    /// The bus is idle: all hosts that have a frame begin.
    fn free(&mut self, now: u64, out: &mut Vec<Effect>) {
        let hosts = self.waiting();
        if hosts.is_empty() {
            self.state = State::Idle;
            return;
        }
        self.state = State::Contending(hosts);
        out.push(Effect::Wake(0, now + self.slot));
    }

    /// A host has the bus since `began`.
    fn send(
        &mut self,
        began: u64,
        host: u32,
        epoch: Option<(Search, BTreeSet<u32>)>,
        out: &mut Vec<Effect>,
    ) {
        if let Some(frame) = self.queues[host as usize].front() {
            self.usage.frames += 1;
            self.usage.busy_ns += frame.time;
            out.push(Effect::Wake(0, began + frame.time));
        }
        self.state = State::Sending(host, epoch);
    }

    fn search(
        &mut self,
        now: u64,
        mut search: Search,
        mut hosts: BTreeSet<u32>,
        out: &mut Vec<Effect>,
    ) {
        if self.open {
            hosts = self.waiting();
        }
        match search.probe(&hosts) {
            None => self.free(now, out),
            Some(Probe::Transmit(host)) => {
                hosts.remove(&host);
                self.send(now, host, Some((search, hosts)), out);
            }
            Some(Probe::Idle(..) | Probe::Collision(..)) => {
                self.usage.overhead_ns += self.slot;
                self.state = State::Slot(search, hosts);
                out.push(Effect::Wake(0, now + self.slot));
            }
        }
    }
}

impl Model for Dcr {
    fn describe(&self) -> String {
        format!(
            "dcr rate={} slot={} arity={} leaves={} access={} queue={}",
            BitRate(self.rate),
            format_duration_ns(self.slot),
            self.arity,
            self.leaves,
            if self.open { "open" } else { "blocked" },
            self.queue
        )
    }

    fn contract(&self) -> Contract {
        Contract { reliable: false, multicast: true, ..Contract::STREAM }
    }

    fn submit(&mut self, now: u64, packet: Packet, out: &mut Vec<Effect>) {
        let to = packet.to.slots();
        self.usage.packets += to.len() as u64;
        let queue = &mut self.queues[packet.src.index()];
        let count = packet.bytes.div_ceil(MTU).max(1);
        if queue.len() as u64 + count > self.queue {
            self.usage.dropped += to.len() as u64;
            out.extend(to.iter().map(|&to| Effect::Drop(packet.id, to, Drop::Queue)));
            return;
        }
        for (k, payload) in (1..).zip(fragments(packet.bytes, MTU)) {
            // A frame lasts at least a slot, so that every collision is seen.
            let time = transmission_ns(payload + FRAME_COST, self.rate).max(self.slot);
            queue.push_back(Frame { packet: packet.id, to: to.to_vec(), time, last: k == count });
        }
        match &mut self.state {
            State::Idle => self.free(now, out),
            State::Contending(hosts) => {
                hosts.insert(packet.src.0);
            }
            State::Sending(..) | State::Slot(..) => {}
        }
    }

    fn wake(&mut self, now: u64, _token: u64, out: &mut Vec<Effect>) {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Idle => {}
            State::Contending(hosts) => match (hosts.len(), hosts.first().copied()) {
                (1, Some(host)) => self.send(now - self.slot, host, None, out),
                _ => {
                    self.usage.overhead_ns += self.slot;
                    let search = Search::new(self.arity, self.leaves);
                    self.search(now, search, hosts, out);
                }
            },
            State::Slot(search, hosts) => self.search(now, search, hosts, out),
            State::Sending(host, epoch) => {
                if let Some(frame) = self.queues[host as usize].pop_front()
                    && frame.last
                {
                    let deliver = |to: &Slot| Effect::Deliver(frame.packet, *to, now);
                    out.extend(frame.to.iter().map(deliver));
                }
                match epoch {
                    Some((search, hosts)) => self.search(now, search, hosts, out),
                    None => self.free(now, out),
                }
            }
        }
    }

    fn usage(&self) -> Usage {
        self.usage
    }
}
