//! The compensating timer: which packets of a flow must leave now.
//!
//! Deadlines are absolute: packet *k* is due at the flow's start plus the sum of the first *k*
//! inter-departure times. Whatever is due is sent; being late never moves the schedule, so the mean
//! rate is kept and nothing drifts. The D-ITG paper (Emma, Pescapè, Ventre, FTDCS 2004, section 2)
//! states the same rule with a variable that holds the time elapsed since the last packet; the
//! tests of this module show that both forms send every packet at the same instant.

mod level;

pub use level::{Level, LevelError};

use crate::flow::{Flow, Late};
use crate::rate::RateChange;
use crate::schedule::{Checkpoint, Departure, Schedule, Together};

/// With [`Late::Drop`], a packet that is late by more than this is left out: 1 ms.
pub const LATE_AFTER_NS: u64 = 1_000_000;

/// Packets that are drawn from the schedule at once.
const AHEAD: usize = 8;

/// A schedule and the rules for packets that could not leave in time.
#[derive(Clone, Debug)]
pub struct Pacer {
    /// The next packets, drawn together: the memory of the distributions is then in the cache for
    /// all of them, which matters when thousands of flows take turns.
    ahead: [Departure; AHEAD],
    /// The first of them that has not left, and the place behind the last.
    first: usize,
    end: usize,
    /// State of the schedule before they were drawn.
    before: Checkpoint,
    schedule: Schedule,
    late: Late,
    max_burst: Option<u32>,
    burst: u32,
    last_due_ns: u64,
    not_before_ns: u64,
    skipped: u64,
}

impl Pacer {
    /// The pacer of a flow, before its first packet.
    #[must_use]
    pub fn new(flow: &Flow) -> Self {
        Self::from(flow, flow.schedule())
    }

    /// The pacer of a flow whose schedule stands at some later packet: for a sender that goes on where
    /// another one has left off.
    #[must_use]
    pub fn from(flow: &Flow, schedule: Schedule) -> Self {
        Self {
            ahead: [Departure { seq: 0, due_ns: 0, size: 0 }; AHEAD],
            first: 0,
            end: 0,
            before: schedule.checkpoint(),
            schedule,
            late: flow.spec().late,
            max_burst: flow.spec().max_burst,
            burst: 0,
            last_due_ns: 0,
            not_before_ns: 0,
            skipped: 0,
        }
    }

    /// Draws the next packets if none is drawn. To be called when a packet has been sent, so that none
    /// waits for a draw; packets are the same without it.
    pub fn look_ahead(&mut self) {
        if self.first < self.end {
            return;
        }
        (self.first, self.end, self.before) = (0, 0, self.schedule.checkpoint());
        while self.end < AHEAD
            && let Some(departure) = self.schedule.advance()
        {
            self.ahead[self.end] = departure;
            self.end += 1;
        }
    }

    /// The next packet; `None` when the flow has ended.
    #[inline]
    #[must_use]
    pub fn peek(&self) -> Option<Departure> {
        match self.ahead[..self.end].get(self.first) {
            None => self.schedule.peek(),
            drawn => drawn.copied(),
        }
    }

    #[inline]
    fn advance(&mut self) {
        if self.first < self.end {
            self.first += 1;
        } else {
            self.schedule.advance();
        }
    }

    /// Instant at which [`Pacer::take`] will next have a packet, in nanoseconds from the flow's
    /// start; `None` when the flow has ended.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        self.peek().map(|next| next.due_ns.max(self.not_before_ns))
    }

    /// Instant at which the next packet is due by the schedule, in nanoseconds from the flow's
    /// start; `None` when the flow has ended.
    #[must_use]
    pub fn due_ns(&self) -> Option<u64> {
        self.peek().map(|next| next.due_ns)
    }

    /// Sequence number after the last packet taken or skipped.
    #[must_use]
    pub fn next_seq(&self) -> u64 {
        self.peek().map_or_else(|| self.schedule.checkpoint().seq, |next| next.seq)
    }

    /// Follows other changes of the flow's rate from now on.
    pub fn change_rates(&mut self, changes: &[RateChange]) {
        if self.first < self.end {
            // What has been drawn and has not left is drawn again.
            self.schedule.restore(self.before);
            for _ in 0..self.first {
                self.schedule.advance();
            }
            (self.first, self.end) = (0, 0);
        }
        self.schedule.change_rates(changes);
        self.not_before_ns = 0;
    }

    /// Returns true if no packet is left, and only the flow's length in time is the cause: with
    /// another rate there may be more.
    #[must_use]
    pub fn ends_by_time(&self) -> bool {
        self.first == self.end && self.schedule.ends_by_time()
    }

    /// Packets left out because they were late.
    #[must_use]
    pub const fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Packets that must leave at `now_ns` together, at most `most`; `None` leaves it to [`Pacer::take`].
    /// They are those that it would give.
    pub fn take_burst(&mut self, now_ns: u64, most: usize) -> Option<Together> {
        let next = self.schedule.peek()?;
        let plain = self.first == self.end && self.late != Late::Drop && self.max_burst.is_none();
        if !plain || next.due_ns > now_ns {
            return None;
        }
        let together = self.schedule.advance_burst(most)?;
        self.last_due_ns = next.due_ns;
        Some(together)
    }

    /// The next packet that must leave at `now_ns` (from the flow's start), or `None` when nothing
    /// more is due. Call it until it returns `None`.
    ///
    /// After `max_burst` packets back to back the next one keeps its own inter-departure time,
    /// counted from now.
    #[inline]
    pub fn take(&mut self, now_ns: u64) -> Option<Departure> {
        self.take_ahead(now_ns, 0)
    }

    /// As [`Pacer::take`], for a sender that hands packets over up to `ahead_ns` before they are
    /// due: takes the next packet due by then. A packet is late if it is due before now.
    pub fn take_ahead(&mut self, now_ns: u64, ahead_ns: u64) -> Option<Departure> {
        loop {
            let next = self.peek()?;
            if next.due_ns.max(self.not_before_ns) > now_ns.saturating_add(ahead_ns) {
                self.burst = 0;
                return None;
            }
            let late_ns = now_ns.saturating_sub(next.due_ns);
            if self.late == Late::Drop && late_ns > LATE_AFTER_NS {
                self.advance();
                self.last_due_ns = next.due_ns;
                self.skipped += 1;
                continue;
            }
            if self.max_burst.is_some_and(|limit| self.burst >= limit) {
                self.not_before_ns = now_ns + next.due_ns.saturating_sub(self.last_due_ns).max(1);
                self.burst = 0;
                return None;
            }
            self.burst += 1;
            self.last_due_ns = next.due_ns;
            self.advance();
            return Some(next);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::distribution::Distribution;
    use crate::flow::FlowSpec;
    use crate::seed::RunSeed;

    /// The rule as the paper has it: `elapsed` is the time since the last packet was (to be) sent.
    struct ElapsedTime {
        elapsed_ns: u64,
        read_ns: u64,
    }

    impl ElapsedTime {
        fn update(&mut self, now_ns: u64) {
            self.elapsed_ns += now_ns - self.read_ns;
            self.read_ns = now_ns;
        }

        /// Awaits one inter-departure time on a clock that oversleeps; returns when the packet
        /// leaves.
        fn wait(&mut self, gap_ns: u64, clock: &mut impl FnMut(u64) -> u64) -> u64 {
            if self.elapsed_ns < gap_ns {
                let now = clock(self.read_ns + gap_ns - self.elapsed_ns);
                self.update(now);
            }
            self.elapsed_ns -= gap_ns;
            self.read_ns
        }
    }

    fn flow(edit: impl FnOnce(&mut FlowSpec)) -> Flow {
        let mut spec = FlowSpec::new(1);
        edit(&mut spec);
        Flow::resolve(spec, RunSeed(7)).expect("a flow that can be run")
    }

    proptest! {
        #[test]
        fn bursts_taken_together_are_those_taken_one_by_one(
            (packets, bytes) in (1u64..300, 20u64..20_000), duration_ns in 1u64..400_000,
            gap in prop::sample::select(vec![0.0, 0.5, 1000.0]), burst in 2u32..65, most in 1usize..70,
        ) {
            let mut spec = FlowSpec::new(1);
            (spec.idt, spec.size) = (Distribution::Constant(gap), Distribution::Constant(64.0));
            spec.burst = Some(burst);
            spec.stop.packets = Some(packets);
            spec.stop.bytes = Some(bytes.max(64));
            spec.stop.duration_ns = Some(duration_ns);
            let flow = Flow::resolve(spec, RunSeed(1)).expect("valid");
            let mut pacer = Pacer::new(&flow);
            let mut got = Vec::new();
            while let Some(now) = pacer.next_ns() {
                match pacer.take_burst(now, most) {
                    Some(together) => got.extend(together.packets()),
                    None => got.extend(pacer.take(now)),
                }
            }
            prop_assert_eq!(got, flow.schedule().collect::<Vec<_>>());
        }

        #[test]
        fn a_change_of_rate_is_for_all_packets_that_have_not_left(
            taken in 0usize..30, ppm in 1u32..5_000_000, ahead in proptest::bool::ANY,
        ) {
            let flow = flow(|spec| spec.idt = Distribution::Exp { mean: 1e6 });
            let (mut pacer, mut plain) = (Pacer::new(&flow), flow.schedule());
            for _ in 0..taken {
                prop_assert_eq!(pacer.take(u64::MAX), plain.advance());
                if ahead {
                    pacer.look_ahead();
                }
            }
            let change = RateChange { at_ns: pacer.next_ns().expect("endless") / 2, ppm };
            pacer.change_rates(&[change]);
            plain.change_rates(&[change]);
            for _ in 0..30 {
                prop_assert_eq!(pacer.take(u64::MAX), plain.advance());
            }
        }

        #[test]
        fn packets_are_those_of_the_schedule_however_many_are_drawn_ahead(
            seed: u64, packets in 1u64..40, looks in prop::collection::vec(proptest::bool::ANY, 40),
        ) {
            let mut spec = FlowSpec::new(1);
            spec.idt = Distribution::Exp { mean: 1e6 };
            spec.stop.packets = Some(packets);
            let flow = Flow::resolve(spec, RunSeed(seed)).expect("valid");
            let mut pacer = Pacer::new(&flow);
            for (want, look) in flow.schedule().zip(looks) {
                prop_assert_eq!(pacer.next_seq(), want.seq);
                prop_assert_eq!(pacer.due_ns(), Some(want.due_ns));
                prop_assert_eq!(pacer.take(u64::MAX), Some(want));
                if look {
                    pacer.look_ahead();
                }
            }
            prop_assert_eq!((pacer.next_seq(), pacer.next_ns()), (packets, None));
            prop_assert_eq!(pacer.take(u64::MAX), None);
        }
    }

    proptest! {
        #[test]
        fn l_3_absolute_deadlines_and_the_papers_elapsed_time_send_at_the_same_instants(
            seed: u64, oversleep in prop::collection::vec(0u64..5_000_000, 1..40), work in 0u64..900_000,
        ) {
            let mut spec = FlowSpec::new(1);
            spec.idt = Distribution::Exp { mean: 1e6 };
            spec.stop.packets = Some(300);
            let flow = Flow::resolve(spec, RunSeed(seed)).expect("valid");

            let mut sleeps = oversleep.iter().cycle();
            let mut now = 0;
            let mut pacer = Pacer::new(&flow);
            let mut absolute = Vec::new();
            while let Some(due) = pacer.next_ns() {
                if due > now {
                    now = due + sleeps.next().expect("endless");
                }
                pacer.take(now).expect("due");
                absolute.push(now);
                now += work;
            }

            let mut sleeps = oversleep.iter().cycle();
            let mut timer = ElapsedTime { elapsed_ns: 0, read_ns: 0 };
            let mut last_due = 0;
            let mut paper = Vec::new();
            for packet in flow.schedule() {
                let gap = packet.due_ns - last_due;
                last_due = packet.due_ns;
                let sent = timer.wait(gap, &mut |due| due + sleeps.next().expect("endless"));
                paper.push(sent);
                timer.update(sent + work);
            }
            prop_assert_eq!(absolute, paper);
        }
    }

    #[test]
    fn being_late_never_moves_the_schedule() {
        let flow = flow(|spec| spec.stop.packets = Some(10));
        let mut pacer = Pacer::new(&flow);
        let sent: Vec<_> = std::iter::from_fn(|| pacer.take(4_500_000)).map(|p| p.seq).collect();
        assert_eq!(sent, [0, 1, 2, 3, 4]);
        assert_eq!(pacer.next_ns(), Some(5_000_000));
    }

    #[test]
    fn late_packets_are_left_out_and_counted_when_asked() {
        let flow = flow(|spec| {
            spec.late = Late::Drop;
            spec.stop.packets = Some(10);
        });
        let mut pacer = Pacer::new(&flow);
        let sent: Vec<_> = std::iter::from_fn(|| pacer.take(4_500_000)).map(|p| p.seq).collect();
        assert_eq!(sent, [4], "0 to 3 are late by more than 1 ms");
        assert_eq!((pacer.skipped(), pacer.next_seq()), (4, 5));
    }

    #[test]
    fn packets_are_taken_ahead_of_their_time_and_are_late_only_behind_it() {
        let flow = flow(|spec| {
            spec.late = Late::Drop;
            spec.stop.packets = Some(10);
        });
        let mut pacer = Pacer::new(&flow);
        let mut taken = |now, ahead| -> Vec<_> {
            std::iter::from_fn(|| pacer.take_ahead(now, ahead)).map(|p| p.seq).collect()
        };
        assert_eq!(taken(0, 2_500_000), [0, 1, 2], "due at 0, 1 and 2 ms");
        assert_eq!(taken(4_000_000, 999_999), [3, 4], "3 is late by 1 ms, which is not too much");
        assert_eq!(taken(6_000_001, 2_000_000), [6, 7, 8], "5 is late by more");
        assert_eq!(pacer.skipped(), 1);
    }

    #[test]
    fn catch_up_bursts_are_limited() {
        let flow = flow(|spec| {
            spec.max_burst = Some(3);
            spec.stop.packets = Some(12);
        });
        let mut pacer = Pacer::new(&flow);
        let mut turns = Vec::new();
        let mut now = 9_500_000;
        while let Some(next) = pacer.next_ns() {
            now = now.max(next);
            let sent: Vec<_> = std::iter::from_fn(|| pacer.take(now)).map(|p| p.seq).collect();
            turns.push((now / 100_000, sent));
        }
        let want = [
            (95, vec![0, 1, 2]),
            (105, vec![3, 4, 5]),
            (115, vec![6, 7, 8]),
            (125, vec![9, 10, 11]),
        ];
        assert_eq!(turns, want);
    }

    #[test]
    fn packets_that_are_due_together_leave_in_one_burst() {
        let bursts = |spec: &mut FlowSpec| {
            spec.idt = Distribution::Constant(1e6);
            spec.size = Distribution::Constant(64.0);
            spec.burst = Some(4);
            spec.stop.packets = Some(10);
        };
        let (plain, ahead) = (|_: &mut Pacer| {}, Pacer::look_ahead);
        let (burst, ms) = (|first: u64, n: u64| (first..first + n).collect::<Vec<_>>(), 1_000_000);
        let kept = || flow(bursts);
        let with = |edit: fn(&mut FlowSpec)| {
            flow(|spec| {
                bursts(spec);
                edit(spec);
            })
        };
        for (what, flow, prepare, most, want) in [
            ("a whole one", kept(), plain as fn(&mut Pacer), 9, Some(burst(0, 4))),
            ("more than are asked for", kept(), plain, 3, None),
            ("no more than that", kept(), plain, 4, Some(burst(0, 4))),
            ("some drawn", kept(), ahead, 9, None),
            ("late ones left out", with(|spec| spec.late = Late::Drop), plain, 9, None),
        ] {
            let mut pacer = Pacer::new(&flow);
            prepare(&mut pacer);
            let numbers = |taken: Option<Together>| {
                taken.map(|taken| taken.packets().map(|p| p.seq).collect::<Vec<_>>())
            };
            assert_eq!(numbers(pacer.take_burst(0, most)), want, "{what}");
        }
        let mut pacer = Pacer::new(&kept());
        for (now_ns, want) in [(0, 4), (4 * ms - 1, 0), (4 * ms, 4), (4 * ms, 0), (99 * ms, 0)] {
            let taken = pacer.take_burst(now_ns, 9);
            assert_eq!(taken.map_or(0, |taken| taken.packets().count()), want, "{now_ns}");
        }
    }

    #[test]
    fn flows_that_end_by_their_time_may_go_on_with_another_rate() {
        let ends = |edit: fn(&mut FlowSpec), taken: usize, ahead: bool| {
            let mut pacer = Pacer::new(&flow(edit));
            if ahead {
                pacer.look_ahead();
            }
            assert_eq!((0..taken).filter_map(|_| pacer.take(u64::MAX)).count(), taken);
            pacer.ends_by_time()
        };
        let by_time = |spec: &mut FlowSpec| spec.stop.duration_ns = Some(3_000_000);
        let by_packets = |spec: &mut FlowSpec| spec.stop.packets = Some(3);
        for (what, got, want) in [
            ("before the end", ends(by_time, 2, false), false),
            ("the last one drawn", ends(by_time, 2, true), false),
            ("at the end", ends(by_time, 3, false), true),
            ("drawn and at the end", ends(by_time, 3, true), true),
            ("by packets", ends(by_packets, 3, true), false),
        ] {
            assert_eq!(got, want, "{what}");
        }
    }
}
