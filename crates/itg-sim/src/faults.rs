//! Faults that can be put in, and those in force at present.
//!
//! | code | fault | here |
//! |---|---|---|
//! | F1 | crash-stop | [`Fault::Crash`] |
//! | F2, F3 | crash and recovery, state lost, after or before detection | [`Fault::Crash`], [`Fault::Recover`], [`Fault::RecoverAs`]; the ticket on its disk is an old one: [`Fault::OldTicket`] |
//! | F4 | pause | [`Fault::Pause`] |
//! | F5 | slow process | [`Fault::Slow`] |
//! | F6 | partition | [`Fault::Partition`] |
//! | F7 | one-way or single-link cut | [`Fault::Cut`] |
//! | F8 | flip-flop link | [`Fault::Cut`] and [`Fault::Mend`] in turn |
//! | F9 | loss | [`LinkFaults::loss`], everywhere or at one host |
//! | F10 | delay spikes | [`LinkFaults::spike`] |
//! | F11 | reordering, duplication | [`LinkFaults::reorder`], [`LinkFaults::duplicate`] |
//! | F12 | connection reset, what is on its way is lost | [`Fault::Reset`] |
//! | F13 | damage | [`LinkFaults::damage`]: frames have checksums, so it is a counted loss |
//! | F14 | clock drift, offset, jump | [`Fault::Clock`]; jumps of a monotonic clock go forward |
//! | F15 | bandwidth limit | [`LinkFaults::rate`], with a queue of 64 kB for each pair |
//! | F16 | wrong suspicion | [`Fault::Suspect`], or [`Fault::Inject`] [`Injected::Suspect`] |
//! | F17 | disk: full, slow, lost; torn writes come with every crash | [`Fault::Disk`], [`crate::Disks`] |
//! | F18 | join storm, flapping joiner | [`Fault::Crash`], [`Fault::Recover`] |
//! | F21 | bootstrap | the machines of `itg_process::bootstrap` under loss and silence |
//! | F22 | exhaustion: refusals | [`Fault::Refuse`] |

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use chacha20::ChaCha8Rng;
use itg_core::streams::{below, happens};
use itg_process::{Injected, MS, Slot};

use crate::model::{Drop, transmission_ns};

/// Bytes that wait before a link whose bandwidth a fault limits.
const QUEUE: u64 = 65_536;

/// A fault, or the end of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The process is gone, with its state.
    Crash(Slot),
    /// It is started again, without its state, as the incarnation after that of its ticket, which is written
    /// to its disk before it starts.
    Recover(Slot),
    /// Its disk has the ticket before the last one: a write that did not last, or an old copy.
    OldTicket(Slot),
    /// The same, as an incarnation that may have run before: no record of that was kept.
    RecoverAs(Slot, u64),
    /// It does nothing for this many nanoseconds.
    Pause(Slot, u64),
    /// Each of its calls takes this many nanoseconds; 0 ends it.
    Slow(Slot, u64),
    /// Hosts of different groups cannot reach each other; group numbers by slot.
    Partition(Vec<u8>),
    /// Nothing gets from the first host to the second.
    Cut(Slot, Slot),
    /// It does again.
    Mend(Slot, Slot),
    /// Packets on their way between the two are lost.
    Reset(Slot, Slot),
    /// The links of this network behave like this from now on.
    Links(u8, LinkFaults),
    /// Links from and to this host lose so many packets in a million.
    Lossy(Slot, u32),
    /// The clock of this host goes so many millionths too fast (or too slow), and jumps ahead by so
    /// many nanoseconds.
    Clock(Slot, i32, u64),
    /// Networks refuse what this host sends, for this many nanoseconds.
    Refuse(Slot, u64),
    /// Something is wrong with the disk of this host.
    Disk(Slot, DiskFault),
    /// The detectors of the first process suspect the second one: all layers that say that they take suspicions.
    Suspect(Slot, Slot),
    /// This layer of this process is told something.
    Inject(Slot, &'static str, Injected),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |ns: u64| ns / 1_000_000;
        match self {
            Self::Crash(slot) => write!(f, "process {slot} crashes"),
            Self::Recover(slot) => write!(f, "process {slot} returns"),
            Self::OldTicket(slot) => write!(f, "process {slot} has its last ticket but one"),
            Self::RecoverAs(slot, incarnation) => {
                write!(f, "process {slot} returns as incarnation {incarnation}")
            }
            Self::Pause(slot, ns) => write!(f, "process {slot} pauses for {} ms", ms(*ns)),
            Self::Slow(slot, 0) => write!(f, "process {slot} is quick again"),
            Self::Slow(slot, ns) => write!(f, "each call of process {slot} takes {} us", ns / 1000),
            Self::Partition(groups) => write!(f, "partition: groups {groups:?} by process"),
            Self::Cut(from, to) => write!(f, "nothing gets from process {from} to {to}"),
            Self::Mend(from, to) => write!(f, "process {from} reaches {to} again"),
            Self::Reset(from, to) => {
                write!(f, "what is on its way between processes {from} and {to} is lost")
            }
            Self::Links(network, links) => write!(f, "links of network {network}: {links:?}"),
            Self::Lossy(slot, millionths) => {
                write!(f, "links of process {slot} lose {millionths} packets in a million")
            }
            Self::Clock(slot, ppm, ns) => write!(
                f,
                "the clock of process {slot} is {ppm} ppm fast, and jumps ahead by {} ms",
                ms(*ns)
            ),
            Self::Refuse(slot, ns) => {
                write!(f, "networks refuse what process {slot} sends for {} ms", ms(*ns))
            }
            Self::Disk(slot, fault) => write!(f, "the disk of process {slot}: {fault:?}"),
            Self::Suspect(slot, other) => write!(f, "process {slot} suspects {other}"),
            Self::Inject(slot, layer, _) => {
                write!(f, "layer {layer} of process {slot} is told something")
            }
        }
    }
}

/// Fault of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskFault {
    /// It takes nothing for this many nanoseconds.
    Full(u64),
    /// Each write takes this many nanoseconds more; 0 ends it.
    Slow(u64),
    /// Loses all that is on it.
    Lost,
}

/// Faults of links: probabilities in parts of a million.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkFaults {
    /// Lost.
    pub loss: u32,
    /// Delivered once more, up to `late_ns` later.
    pub duplicate: u32,
    /// Delivered up to `late_ns` later than others.
    pub reorder: u32,
    /// Damaged, and dropped by the receiver.
    pub damage: u32,
    /// Delayed by up to `spike_ns`.
    pub spike: u32,
    /// The most that reordering and duplication delay, in nanoseconds.
    pub late_ns: u64,
    /// The most that a spike delays, in nanoseconds.
    pub spike_ns: u64,
    /// Bandwidth of each pair in bit/s; 0 is no limit.
    pub rate: u64,
}

/// A packet on its way to one receiver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hop {
    pub(crate) net: usize,
    pub(crate) from: Slot,
    pub(crate) to: Slot,
    pub(crate) bytes: u64,
}

/// Outcome of a packet.
pub(crate) enum PacketOutcome {
    Arrives(u64),
    Twice(u64, u64),
    Lost(Drop),
}

/// Faults in force at present.
#[derive(Debug, Default)]
pub(crate) struct Weather {
    links: Vec<(LinkFaults, ChaCha8Rng)>,
    lossy: BTreeMap<Slot, u32>,
    groups: Vec<u8>,
    cuts: BTreeSet<(Slot, Slot)>,
    /// Time of the last reset of the connections of a pair, lower slot first.
    resets: BTreeMap<(Slot, Slot), u64>,
    free_at: BTreeMap<(usize, Slot, Slot), u64>,
}

impl Weather {
    pub(crate) fn new(rngs: impl Iterator<Item = ChaCha8Rng>) -> Self {
        let links = rngs.map(|rng| (LinkFaults::default(), rng)).collect();
        Self { links, ..Self::default() }
    }

    pub(crate) fn set_links(&mut self, net: u8, faults: LinkFaults) {
        if let Some((links, _)) = self.links.get_mut(usize::from(net)) {
            *links = faults;
        }
    }

    pub(crate) fn set_lossy(&mut self, host: Slot, parts: u32) {
        if parts == 0 {
            self.lossy.remove(&host);
        } else {
            self.lossy.insert(host, parts);
        }
    }

    pub(crate) fn partition(&mut self, groups: Vec<u8>) {
        self.groups = groups;
    }

    pub(crate) fn cut(&mut self, from: Slot, to: Slot) {
        self.cuts.insert((from, to));
    }

    pub(crate) fn mend(&mut self, from: Slot, to: Slot) {
        self.cuts.remove(&(from, to));
    }

    pub(crate) fn reset(&mut self, a: Slot, b: Slot, now: u64) {
        self.resets.insert((a.min(b), a.max(b)), now);
    }

    /// Fair weather: nothing is cut, lost, delayed or damaged any more.
    pub(crate) fn clear(&mut self) {
        for (links, _) in &mut self.links {
            *links = LinkFaults::default();
        }
        self.lossy.clear();
        self.groups.clear();
        self.cuts.clear();
    }

    fn apart(&self, from: Slot, to: Slot) -> bool {
        let group = |slot: Slot| self.groups.get(slot.index()).copied().unwrap_or(0);
        (!self.groups.is_empty() && group(from) != group(to))
            || (!self.cuts.is_empty() && self.cuts.contains(&(from, to)))
    }

    /// Draws the outcome of a packet that its network would deliver at `at`.
    pub(crate) fn fate(&mut self, now: u64, hop: Hop, at: u64) -> PacketOutcome {
        let Hop { net, from, to, bytes } = hop;
        if self.apart(from, to) {
            return PacketOutcome::Lost(Drop::Cut);
        }
        let Some((faults, rng)) = self.links.get_mut(net) else {
            return PacketOutcome::Arrives(at);
        };
        if !self.lossy.is_empty() {
            for host in [from, to] {
                if happens(rng, self.lossy.get(&host).copied().unwrap_or(0)) {
                    return PacketOutcome::Lost(Drop::Loss);
                }
            }
        }
        if *faults == LinkFaults::default() {
            return PacketOutcome::Arrives(at);
        }
        if happens(rng, faults.loss) {
            return PacketOutcome::Lost(Drop::Loss);
        }
        if happens(rng, faults.damage) {
            return PacketOutcome::Lost(Drop::Damage);
        }
        let mut at = at;
        if faults.rate > 0 {
            let free = self.free_at.entry((net, from, to)).or_insert(0);
            let start = (*free).max(now);
            if start - now > transmission_ns(QUEUE, faults.rate) {
                return PacketOutcome::Lost(Drop::Queue);
            }
            *free = start + transmission_ns(bytes, faults.rate);
            at += *free - now;
        }
        if happens(rng, faults.spike) {
            at += below(rng, faults.spike_ns + 1);
        }
        if happens(rng, faults.reorder) {
            at += below(rng, faults.late_ns + 1);
        }
        if happens(rng, faults.duplicate) {
            let again = at + below(rng, faults.late_ns + MS);
            return PacketOutcome::Twice(at, again);
        }
        PacketOutcome::Arrives(at)
    }

    /// Reason for which a packet that was sent at `sent` does not arrive now; `None` if it does.
    pub(crate) fn stops(&self, from: Slot, to: Slot, sent: u64) -> Option<Drop> {
        if self.apart(from, to) {
            return Some(Drop::Cut);
        }
        if self.resets.is_empty() {
            return None;
        }
        let reset = self.resets.get(&(from.min(to), from.max(to)));
        reset.is_some_and(|reset| sent < *reset).then_some(Drop::Reset)
    }
}
