//! A network that is slower the more processes talk: the contention of the membership paper's Figure 7.
//!
//! A message is under way for `delay` while at most `free` processes talk, and for `slope` longer with each
//! further one; a process talks while a message from it or to it is under way. When the number changes, what
//! is left of each message is travelled at the new speed: all of them go equally fast, so that they arrive in
//! the order in which they left.
//!
//! Source: Varma et al., *Scalable, fault tolerant membership for MPI tasks on HPC systems*, ICS 2006,
//! where L(n) is measured; that speed follows the number of those that talk from instant to instant is ours.

use std::collections::VecDeque;

use itg_core::units::format_duration_ns;
use itg_process::{ConfigError, Contract, MS, Params, Slot, US};

use crate::model::{Effect, Model, Packet, Usage};

/// A whole way, in parts of which a fixed number make one; small enough that a delay of hours times it fits.
const WAY: u128 = 1 << 48;

/// A message under way.
#[derive(Clone, Copy, Debug)]
struct Going {
    packet: u64,
    src: Slot,
    to: Slot,
    /// Value of `gone` of the network at which it arrives.
    end: u128,
}

/// The network.
#[derive(Debug)]
pub(crate) struct Crowd {
    delay: u64,
    free: u32,
    slope: u64,
    /// Messages under way at each process, from it or to it.
    at: Vec<u32>,
    talking: u32,
    /// Distance that a message sent at the beginning would have gone by time `since`, in parts of
    /// [`WAY`].
    gone: u128,
    since: u64,
    going: VecDeque<Going>,
    /// The wake-up that counts: what was asked for before the speed changed does not.
    wake: u64,
    usage: Usage,
}

impl Crowd {
    pub(crate) fn new(params: &mut Params, hosts: u32) -> Result<Self, ConfigError> {
        let delay = params.time_ns("delay", MS)?;
        if delay == 0 {
            return Err(params.error_at("delay", "expected more than no time"));
        }
        let free = params.number("free", 12)?;
        Ok(Self {
            delay,
            free: u32::try_from(free).unwrap_or(u32::MAX),
            slope: params.time_ns("slope", 10 * US)?,
            at: vec![0; hosts as usize],
            talking: 0,
            gone: 0,
            since: 0,
            going: VecDeque::new(),
            wake: 0,
            usage: Usage::default(),
        })
    }

    /// Transit time of a message at present, in nanoseconds; fits 64 bits.
    fn way_ns(&self) -> u128 {
        let more = u128::from(self.talking.saturating_sub(self.free));
        let way = u128::from(self.delay) + u128::from(self.slope) * more;
        way.min(u64::MAX.into())
    }

    /// Goes on to this time at the present speed.
    fn go(&mut self, now: u64) {
        let time = u128::from(now.saturating_sub(self.since));
        if !self.going.is_empty() {
            self.gone += time * WAY / self.way_ns();
            self.usage.busy_ns += now.saturating_sub(self.since);
        }
        self.since = now;
    }

    fn begins(&mut self, slot: Slot) {
        if let Some(count) = self.at.get_mut(slot.index()) {
            self.talking += u32::from(*count == 0);
            *count += 1;
        }
    }

    fn ends(&mut self, slot: Slot) {
        if let Some(count) = self.at.get_mut(slot.index()) {
            *count -= 1;
            self.talking -= u32::from(*count == 0);
        }
    }

    /// Asks to be woken when the first one arrives, if nothing changes before.
    fn ask(&mut self, out: &mut Vec<Effect>) {
        self.wake += 1;
        if let Some(first) = self.going.front() {
            let left = first.end.saturating_sub(self.gone);
            let time = (left * self.way_ns()).div_ceil(WAY);
            let time = u64::try_from(time).unwrap_or(u64::MAX);
            out.push(Effect::Wake(self.wake, self.since.saturating_add(time)));
        }
    }
}

impl Model for Crowd {
    fn describe(&self) -> String {
        let (delay, slope) = (format_duration_ns(self.delay), format_duration_ns(self.slope));
        format!("crowd delay={delay} free={} slope={slope}", self.free)
    }

    fn contract(&self) -> Contract {
        Contract::STREAM
    }

    fn submit(&mut self, now: u64, packet: Packet, out: &mut Vec<Effect>) {
        self.go(now);
        for &to in packet.to.slots() {
            self.usage.packets += 1;
            self.usage.frames += 1;
            self.begins(packet.src);
            self.begins(to);
            let end = self.gone + WAY;
            self.going.push_back(Going { packet: packet.id, src: packet.src, to, end });
        }
        self.ask(out);
    }

    fn wake(&mut self, now: u64, token: u64, out: &mut Vec<Effect>) {
        if token != self.wake {
            return;
        }
        self.go(now);
        while let Some(first) = self.going.pop_front_if(|first| first.end <= self.gone) {
            out.push(Effect::Deliver(first.packet, first.to, now));
            self.ends(first.src);
            self.ends(first.to);
        }
        self.ask(out);
    }

    fn usage(&self) -> Usage {
        self.usage
    }
}
