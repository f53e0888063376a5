//! Schedule of a flow: due time and size of each packet; pure, endless but for the flow's limits.
//!
//! Packet 0 is due at the start; packet *k* is due `IDT_k` after packet *k − 1*, on the schedule's
//! axis, whatever the sender's clock did meanwhile. With ON/OFF periods the inter-departure times
//! run on a clock that stands still while the flow is OFF: the first packet of a burst follows the
//! last one of the burst before after the rest of its inter-departure time plus the whole pause.
//!
//! In burst mode packets are due *N* at a time, when the first of them would be by itself; which packets a
//! flow has, and their sizes, does not change.
//!
//! If the rate of a flow was changed while it ran, all of this happens on a clock that runs faster
//! or slower from then on (see [`crate::rate`]).
//!
//! Inter-departure time, size and period *k* are random access (see [`crate::seed`]); due times are
//! their running sum. [`Checkpoint`]s make that sum cheap to reach: with one each
//! [`CHECKPOINT_EVERY`] packets, any packet is found by summing at most that many inter-departure
//! times (some milliseconds), see [`Checkpoints`].

use crate::distribution::Resolved;
use crate::flow::{Flow, Stop};
use crate::rate::{RateChange, Rates};
use crate::seed::{Purpose, Stream};

/// Packets between two checkpoints.
pub const CHECKPOINT_EVERY: u64 = 1 << 16;

/// One packet of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Sequence number, from 0.
    pub seq: u64,
    /// Instant at which it is due, in nanoseconds from the flow's start.
    pub due_ns: u64,
    /// Size in bytes.
    pub size: u32,
}

/// Packets that share a time and a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Together {
    /// The first of them.
    pub first: Departure,
    /// Number of the packets.
    pub count: usize,
}

impl Together {
    /// The packets, one by one.
    pub fn packets(self) -> impl Iterator<Item = Departure> {
        (self.first.seq..).take(self.count).map(move |seq| Departure { seq, ..self.first })
    }
}

/// State of a schedule: enough to go on from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Sequence number of the next packet.
    pub seq: u64,
    /// Sum of the inter-departure times up to the next packet, in nanoseconds of ON time.
    pub active_ns: u64,
    /// Bytes of all packets before it.
    pub bytes: u64,
    /// Number of the ON period in force.
    pub burst: u64,
    /// ON time at which that period ends, in nanoseconds.
    pub on_end_ns: u64,
    /// Sum of the pauses so far, in nanoseconds.
    pub paused_ns: u64,
    /// In burst mode: when the burst in force is due, in nanoseconds from the flow's start.
    pub together_ns: u64,
}

/// The departures of one flow, in order; ends when the first limit of the flow is reached.
#[derive(Clone, Debug)]
pub struct Schedule {
    idt: Resolved,
    idt_stream: Stream,
    size: Resolved,
    size_stream: Stream,
    periods: Option<Periods>,
    rates: Rates,
    stop: Stop,
    /// Packets that are due together; 1 but in burst mode.
    burst: u64,
    /// Number of the first packet of the burst behind the one in force.
    burst_end: u64,
    at: Checkpoint,
    next: Option<Departure>,
}

#[derive(Clone, Debug)]
struct Periods {
    on: Resolved,
    on_stream: Stream,
    off: Resolved,
    off_stream: Stream,
}

impl Schedule {
    /// The schedule of a flow from its first packet.
    #[must_use]
    pub fn new(flow: &Flow) -> Self {
        let (seed, id) = (flow.seed(), flow.spec().id);
        let stream = |purpose| seed.stream(id, purpose);
        let mut on_end_ns = 0;
        let periods = flow.on_off().map(|(on, off)| {
            let mut on_stream = stream(Purpose::On);
            on_end_ns = on.sample(&mut on_stream, 0);
            Periods {
                on: on.clone(),
                on_stream,
                off: off.clone(),
                off_stream: stream(Purpose::Off),
            }
        });
        let start = Checkpoint {
            seq: 0,
            active_ns: 0,
            bytes: 0,
            burst: 0,
            on_end_ns,
            paused_ns: 0,
            together_ns: 0,
        };
        let mut schedule = Self {
            idt: flow.idt().clone(),
            idt_stream: stream(Purpose::Idt),
            size: flow.size().clone(),
            size_stream: stream(Purpose::Size),
            periods,
            rates: Rates::new(&flow.spec().changes),
            stop: flow.spec().stop,
            burst: u64::from(flow.spec().burst.unwrap_or(1)),
            burst_end: 0,
            at: start,
            next: None,
        };
        schedule.restore(start);
        schedule
    }

    /// The next departure, without taking it.
    #[must_use]
    pub const fn peek(&self) -> Option<Departure> {
        self.next
    }

    /// State of the schedule, before the departure that [`Schedule::peek`] shows.
    #[must_use]
    pub const fn checkpoint(&self) -> Checkpoint {
        self.at
    }

    /// Goes on from a checkpoint of the same flow.
    pub fn restore(&mut self, at: Checkpoint) {
        self.at = at;
        self.burst_end = at.seq.next_multiple_of(self.burst);
        self.next = self.look();
    }

    /// Follows other changes of the rate from now on; packets that have been taken are not taken again.
    pub fn change_rates(&mut self, changes: &[RateChange]) {
        self.rates = Rates::new(changes);
        self.burst_end = self.at.seq.next_multiple_of(self.burst);
        self.next = self.look();
    }

    /// Due time of the packet that follows a checkpoint, without burst mode, in nanoseconds from
    /// the flow's start.
    fn due_at(&self, at: Checkpoint) -> u64 {
        self.rates.due_at(at.active_ns.saturating_add(at.paused_ns))
    }

    /// Returns true if no departure is left, and only the flow's length in time is the cause.
    #[must_use]
    pub fn ends_by_time(&self) -> bool {
        self.next.is_none()
            && self.stop.packets.is_none_or(|limit| self.at.seq < limit)
            && self.stop.duration_ns.is_some_and(|end_ns| self.due_at(self.at) >= end_ns)
    }

    /// Takes the next departure.
    #[inline]
    pub fn advance(&mut self) -> Option<Departure> {
        let taken = self.next?;
        self.at.seq += 1;
        self.at.bytes += u64::from(taken.size);
        let gap = self.idt.sample(&mut self.idt_stream, taken.seq);
        self.at.active_ns = self.at.active_ns.saturating_add(gap);
        self.next = self.look();
        Some(taken)
    }

    /// Takes what is left of the burst in force, all at once, if that is at most `most` packets: to be
    /// had where inter-departure times and sizes are constant and no limit is near. `None` leaves
    /// it to [`Schedule::advance`].
    pub fn advance_burst(&mut self, most: usize) -> Option<Together> {
        let first = self.next?;
        let count = self.burst_end - first.seq;
        let together = Together { first, count: usize::try_from(count).ok()? };
        let (gap, size) = (self.idt.steady()?, self.size.steady()?);
        let (stop, at) = (self.stop, &mut self.at);
        let (length, bytes) = (count.checked_mul(gap)?, count.checked_mul(size)?);
        let active_ns = at.active_ns.checked_add(length)?;
        let far = |limit: Option<u64>, value: u64| limit.is_none_or(|limit| value < limit);
        let whole = self.periods.is_none()
            && self.rates.none()
            && together.count <= most
            && far(stop.packets, first.seq.checked_add(count)?)
            && far(stop.duration_ns, active_ns)
            && far(stop.bytes, at.bytes.checked_add(bytes)?);
        if !whole {
            return None;
        }
        at.seq += count;
        at.bytes += bytes;
        at.active_ns = active_ns;
        self.next = self.look();
        Some(together)
    }

    /// The packet that `at` stands before, or `None` when a limit ends the flow.
    #[inline]
    fn look(&mut self) -> Option<Departure> {
        let at = &mut self.at;
        if self.stop.packets.is_some_and(|limit| at.seq >= limit) {
            return None;
        }
        let horizon = self.stop.duration_ns.unwrap_or(u64::MAX);
        if let Some(p) = &mut self.periods {
            while at.active_ns >= at.on_end_ns {
                if self.rates.due_at(at.on_end_ns.saturating_add(at.paused_ns)) >= horizon {
                    return None;
                }
                let off = p.off.sample(&mut p.off_stream, at.burst);
                at.paused_ns = at.paused_ns.saturating_add(off);
                at.burst += 1;
                let on = p.on.sample(&mut p.on_stream, at.burst);
                at.on_end_ns = at.on_end_ns.saturating_add(on);
            }
        }
        let due_ns = self.rates.due_at(at.active_ns.saturating_add(at.paused_ns));
        if due_ns >= horizon {
            return None;
        }
        let size = self.size.sample(&mut self.size_stream, at.seq);
        if self.stop.bytes.is_some_and(|limit| at.bytes.saturating_add(size) > limit) {
            return None;
        }
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        if at.seq == self.burst_end {
            at.together_ns = due_ns;
            self.burst_end += self.burst;
        }
        let due_ns = if self.burst > 1 { at.together_ns } else { due_ns };
        Some(Departure { seq: at.seq, due_ns, size })
    }
}

impl Iterator for Schedule {
    type Item = Departure;

    fn next(&mut self) -> Option<Departure> {
        self.advance()
    }
}

/// A schedule with its checkpoints: any packet in the time of [`CHECKPOINT_EVERY`] inter-departure
/// times, once the stretch before it has been walked one time.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    walker: Schedule,
    marks: Vec<Checkpoint>,
}

impl Checkpoints {
    /// Checkpoints of a flow; none is computed yet but the start.
    #[must_use]
    pub fn new(flow: &Flow) -> Self {
        let walker = flow.schedule();
        Self { marks: vec![walker.checkpoint()], walker }
    }

    /// The schedule from packet `seq` on; `None` when the flow ends before it.
    #[must_use]
    pub fn from(&mut self, seq: u64) -> Option<Schedule> {
        // Walks on to that packet, leaving marks.
        while self.walker.checkpoint().seq < seq && self.walker.advance().is_some() {
            let at = self.walker.checkpoint();
            if at.seq.is_multiple_of(CHECKPOINT_EVERY) {
                self.marks.push(at);
            }
        }
        let mark =
            self.marks[usize::try_from(seq / CHECKPOINT_EVERY).ok()?.min(self.marks.len() - 1)];
        let mut schedule = self.walker.clone();
        schedule.restore(mark);
        while schedule.checkpoint().seq < seq {
            schedule.advance()?;
        }
        schedule.peek().map(|_| schedule)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::distribution::Distribution;
    use crate::flow::{FlowSpec, OnOff};
    use crate::seed::RunSeed;

    fn flow(seed: u64, edit: impl FnOnce(&mut FlowSpec)) -> Flow {
        let mut spec = FlowSpec::new(1);
        spec.idt = Distribution::Exp { mean: 1e6 };
        spec.size = Distribution::Uniform { lo: 20.0, hi: 1000.0 };
        edit(&mut spec);
        Flow::resolve(spec, RunSeed(seed)).expect("a flow that can be run")
    }

    fn bursts(spec: &mut FlowSpec) {
        let (on, off) =
            (Distribution::Exp { mean: 5e6 }, Distribution::Uniform { lo: 1e6, hi: 9e6 });
        spec.on_off = Some(OnOff { on, off });
    }

    #[test]
    fn the_first_packet_is_due_at_once_and_gaps_add_up() {
        let flow = flow(1, |_| {});
        let mut gaps = flow.seed().stream(1, Purpose::Idt);
        let mut due = 0;
        for (k, packet) in (0u64..).zip(flow.schedule().take(1000)) {
            assert_eq!((packet.seq, packet.due_ns), (k, due));
            due += flow.idt().sample(&mut gaps, k);
        }
    }

    proptest! {
        /// The dumb twin: walks ON and OFF periods one by one on the wall clock.
        #[test]
        fn bursts_agree_with_a_walk_over_the_periods(seed: u64) {
            let flow = flow(seed, bursts);
            let (on, off) = flow.on_off().expect("bursts");
            let mut streams = [Purpose::Idt, Purpose::On, Purpose::Off]
                .map(|purpose| flow.seed().stream(1, purpose));
            let [idt_stream, on_stream, off_stream] = &mut streams;
            let (mut wall, mut left, mut period) = (0, on.sample(on_stream, 0), 0);
            for (k, packet) in (0u64..).zip(flow.schedule().take(500)) {
                prop_assert_eq!(packet.due_ns, wall, "packet {} with seed {}", k, seed);
                let mut gap = flow.idt().sample(idt_stream, k);
                while gap >= left {
                    gap -= left;
                    wall += left + off.sample(off_stream, period);
                    period += 1;
                    left = on.sample(on_stream, period);
                }
                left -= gap;
                wall += gap;
            }
        }

        #[test]
        fn who_ends_by_time_goes_on_at_another_rate(seed: u64, packets in 1u64..40, bursts: bool) {
            let flow = flow(seed, |spec| {
                if bursts {
                    self::bursts(spec);
                }
                spec.stop.packets = Some(packets);
                spec.stop.duration_ns = Some(20_000_000);
            });
            let mut schedule = flow.schedule();
            let sent = schedule.by_ref().count() as u64;
            prop_assert_eq!(schedule.ends_by_time(), sent < packets);
            schedule.change_rates(&[RateChange { at_ns: 0, ppm: 1_000_000_000 }]);
            prop_assert_eq!(schedule.by_ref().count() as u64, packets - sent);
            prop_assert!(!schedule.ends_by_time());
        }

        #[test]
        fn the_most_restrictive_limit_wins(
            seed: u64, packets in 1u64..300, bytes in 1u64..200_000, duration_ns in 1u64..300_000_000,
        ) {
            let all: Vec<_> = flow(seed, bursts).schedule().take(2000).collect();
            let limited = flow(seed, |spec| {
                bursts(spec);
                spec.stop = Stop {
                    packets: Some(packets), bytes: Some(bytes), duration_ns: Some(duration_ns),
                };
            });
            let mut total = 0;
            let want: Vec<_> = all.into_iter().take_while(|packet| {
                total += u64::from(packet.size);
                packet.seq < packets && total <= bytes && packet.due_ns < duration_ns
            }).collect();
            prop_assert_eq!(limited.schedule().collect::<Vec<_>>(), want);
        }

        #[test]
        fn any_checkpoint_goes_on_as_the_schedule_did(seed: u64, at in 0usize..800) {
            let flow = flow(seed, bursts);
            let mut schedule = flow.schedule();
            schedule.nth(at);
            let mut other = flow.schedule();
            other.restore(schedule.checkpoint());
            prop_assert_eq!(schedule.take(100).collect::<Vec<_>>(), other.take(100).collect::<Vec<_>>());
        }
    }

    proptest! {
        #[test]
        fn a_burst_is_due_with_its_first_packet(
            seed: u64, burst in 2u32..=64, duration_ns in 1u64..300_000_000, at in 0usize..400,
        ) {
            let limit = |spec: &mut FlowSpec| spec.stop.duration_ns = Some(duration_ns);
            let alone: Vec<_> = flow(seed, limit).schedule().take(1000).collect();
            let together = flow(seed, |spec| {
                limit(spec);
                spec.burst = Some(burst);
            });
            let want: Vec<_> = alone
                .chunks(usize::try_from(burst).expect("small"))
                .flat_map(|group| group.iter().map(|p| Departure { due_ns: group[0].due_ns, ..*p }))
                .collect();
            prop_assert_eq!(together.schedule().take(1000).collect::<Vec<_>>(), want);
            let mut schedule = together.schedule();
            schedule.nth(at);
            let mut other = together.schedule();
            other.restore(schedule.checkpoint());
            prop_assert_eq!(schedule.take(200).collect::<Vec<_>>(), other.take(200).collect::<Vec<_>>());
        }
    }

    proptest! {
        /// A sender that learns of a change when it comes sends the same packets as one that knew
        /// of it from the start, and so does a sender that takes over.
        #[test]
        fn a_change_is_the_same_however_it_is_learned(
            seed: u64, at_ns in 1u64..400_000_000, gap in 1u64..200_000_000,
            ppm in 100_000u32..10_000_000, then in 100_000u32..10_000_000, pauses: bool,
        ) {
            let plain = flow(seed, |spec| {
                spec.stop.duration_ns = Some(900_000_000);
                if pauses {
                    bursts(spec);
                }
            });
            let all = vec![RateChange { at_ns, ppm }, RateChange { at_ns: at_ns + gap, ppm: then }];
            let want: Vec<_> = plain.with_changes(all.clone()).expect("good").schedule().collect();
            let mut schedule = plain.schedule();
            let mut got = Vec::new();
            for known in [&all[..1], &all[..]] {
                let change = known.last().expect("one at least");
                while schedule.peek().is_some_and(|next| next.due_ns < change.at_ns) {
                    got.extend(schedule.advance());
                }
                schedule.change_rates(known);
            }
            got.extend(schedule);
            prop_assert_eq!(&got, &want);
            // The same packets as without changes, as far as both go, and at another time.
            for (planned, changed) in plain.schedule().zip(&want) {
                prop_assert_eq!((planned.seq, planned.size), (changed.seq, changed.size));
                prop_assert!(planned.due_ns >= at_ns || planned.due_ns == changed.due_ns);
            }
        }
    }

    #[test]
    fn packets_are_found_by_number() {
        let flow = flow(3, |spec| {
            bursts(spec);
            spec.stop.packets = Some(3 * CHECKPOINT_EVERY);
            spec.changes = vec![RateChange { at_ns: 30_000_000_000, ppm: 300_000 }];
        });
        let all: Vec<_> = flow.schedule().collect();
        let mut checkpoints = Checkpoints::new(&flow);
        for seq in [0, 1, 2 * CHECKPOINT_EVERY + 5, CHECKPOINT_EVERY, CHECKPOINT_EVERY - 1, 77] {
            let want = all[usize::try_from(seq).expect("small")];
            let found = checkpoints.from(seq).expect("within the flow").peek();
            assert_eq!(found, Some(want), "packet {seq}");
        }
        assert!(checkpoints.from(3 * CHECKPOINT_EVERY).is_none(), "past the end");
    }
}
