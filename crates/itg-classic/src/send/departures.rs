//! The packets of a flow: when each leaves and how large it is, drawn in D-ITG's order.
//!
//! Sizes and inter-departure times come from one generator: the size of the first packet, the first
//! ON period, then after each packet the size of the next one and the time before it, and when an
//! ON period is over the OFF period and the next ON period. Times are absolute, so that being late
//! moves nothing; D-ITG waits anew after every packet and loses what it overslept.

use super::distribution::Distribution;
use super::flow::{FlowArgs, SIZE_MAX, Source, Transport};
use super::spec::SpecError;
use crate::random::{Generator, Sampler};

/// One packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Nanoseconds after the start of the flow.
    pub due_ns: u64,
    /// Bytes.
    pub size: u32,
}

/// The packets of a flow up to its limits. Infinite when it has none.
#[derive(Clone, Debug)]
pub struct Departures {
    generator: Generator,
    idt: Sampler,
    size: Sampler,
    periods: Option<(Sampler, Sampler)>,
    min: u32,
    next: Departure,
    /// Rest of the ON period, in nanoseconds.
    on_ns: i64,
    limit_ns: Option<u64>,
    packets_left: Option<u64>,
    bytes_left: Option<u64>,
    /// Bytes in front of each packet that count towards the limit of bytes.
    counted_head: u32,
    taken: u64,
}

/// Draws of an infinite inter-departure time before it is taken for a day: Poisson numbers that are
/// 0 again and again.
const TRIES: u32 = 10_000;
const DAY_MS: f64 = 86_400_000.0;

impl Departures {
    /// Prepares the packets of `flow`, with the draws of `seed`.
    ///
    /// # Errors
    /// A seed outside (0, 1), or a file of values that was not loaded.
    pub fn new(flow: &FlowArgs, seed: f64) -> Result<Self, SpecError> {
        let distribution = |source: &Source| match source {
            Source::Law(distribution) => Ok(Sampler::new(distribution)),
            Source::File(name) => Err(SpecError::NotLoaded(name.clone())),
        };
        let sampler = |distribution: &Distribution| Sampler::new(distribution);
        let mut departures = Self {
            generator: Generator::new(seed)?,
            idt: distribution(&flow.idt)?,
            size: distribution(&flow.size)?,
            periods: flow.on_off.as_ref().map(|(on, off)| (sampler(on), sampler(off))),
            min: flow.size_min(),
            next: Departure { due_ns: 0, size: 0 },
            on_ns: 0,
            limit_ns: flow.limit_ms().map(|ms| u64::from(ms) * 1_000_000),
            packets_left: flow.packets.map(u64::from),
            bytes_left: flow.kibibytes.map(|k| u64::from(k) * 1024),
            counted_head: if matches!(flow.transport, Transport::Icmp { .. }) { 8 } else { 0 },
            taken: 0,
        };
        departures.next.size = departures.draw_size();
        departures.on_ns = departures.draw_on();
        Ok(departures)
    }

    /// Packets taken so far.
    #[must_use]
    pub const fn taken(&self) -> u64 {
        self.taken
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    fn draw_size(&mut self) -> u32 {
        (self.size.draw(&mut self.generator) as u32).clamp(self.min, SIZE_MAX)
    }

    fn draw_on(&mut self) -> i64 {
        match &mut self.periods {
            Some((on, _)) => nanoseconds(on.draw(&mut self.generator)),
            None => i64::MAX,
        }
    }

    fn draw_gap(&mut self) -> i64 {
        for _ in 0..TRIES {
            let gap = self.idt.draw(&mut self.generator);
            if gap.is_finite() {
                return nanoseconds(gap);
            }
        }
        nanoseconds(DAY_MS)
    }

    fn advance(&mut self) {
        self.next.size = self.draw_size();
        let gap = self.draw_gap().max(0);
        let mut wait = gap.unsigned_abs();
        self.on_ns = self.on_ns.saturating_sub(gap);
        if self.periods.is_some() && self.on_ns <= 0 {
            if let Some((_, off)) = &mut self.periods {
                let off = nanoseconds(off.draw(&mut self.generator)).max(0);
                wait = wait.saturating_add(off.unsigned_abs());
            }
            self.on_ns = self.draw_on();
        }
        self.next.due_ns = self.next.due_ns.saturating_add(wait);
    }
}

/// Milliseconds in whole nanoseconds.
#[allow(clippy::cast_possible_truncation, reason = "saturates")]
fn nanoseconds(ms: f64) -> i64 {
    (ms * 1e6).round() as i64
}

impl Iterator for Departures {
    type Item = Departure;

    fn next(&mut self) -> Option<Departure> {
        let packet = self.next;
        // The first packet leaves in any case: limits are looked at after the time that follows.
        let over = self.packets_left == Some(0)
            || self.bytes_left == Some(0)
            || self.limit_ns.is_some_and(|limit| packet.due_ns >= limit && packet.due_ns > 0);
        if over {
            return None;
        }
        self.packets_left = self.packets_left.map(|left| left - 1);
        let counted = u64::from(packet.size + self.counted_head);
        self.bytes_left = self.bytes_left.map(|left| left.saturating_sub(counted));
        self.taken += 1;
        self.advance();
        Some(packet)
    }
}
