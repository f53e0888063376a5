//! The compensating timer: which packets of a flow must leave now.
//!
//! Deadlines are absolute: packet *k* is due at the flow's start plus the sum of the first *k* gaps.
//! Whatever is due is sent; being late never moves the schedule, so the mean rate is kept and
//! nothing drifts. The D-ITG paper (Emma, Pescapè, Ventre, FTDCS 2004, section 2) states the same
//! rule with a variable that holds the time elapsed since the last packet; the tests of this module
//! show that both forms send every packet at the same instant.

mod level;

pub use level::{Level, LevelError};

use crate::flow::{Flow, Late};
use crate::schedule::{Departure, Schedule};

/// With [`Late::Drop`], a packet that is late by more than this is left out: 1 ms.
pub const LATE_AFTER_NS: u64 = 1_000_000;

/// A schedule and the rules for packets that could not leave in time.
#[derive(Clone, Debug)]
pub struct Pacer {
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
            schedule,
            late: flow.spec().late,
            max_burst: flow.spec().max_burst,
            burst: 0,
            last_due_ns: 0,
            not_before_ns: 0,
            skipped: 0,
        }
    }

    /// When [`Pacer::take`] will next have a packet, in nanoseconds from the flow's start; `None`
    /// when the flow has ended.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        self.schedule.peek().map(|next| next.due_ns.max(self.not_before_ns))
    }

    /// When the next packet is due, whatever held it up, in nanoseconds from the flow's start; `None`
    /// when the flow has ended.
    #[must_use]
    pub fn due_ns(&self) -> Option<u64> {
        self.schedule.peek().map(|next| next.due_ns)
    }

    /// Sequence number after the last packet taken or skipped.
    #[must_use]
    pub const fn next_seq(&self) -> u64 {
        self.schedule.checkpoint().seq
    }

    /// Packets left out because they were late.
    #[must_use]
    pub const fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The next packet that must leave at `now_ns` (from the flow's start), or `None` when nothing
    /// more is due. Call it until it returns `None`.
    ///
    /// After `max_burst` packets back to back the next one keeps its own gap, counted from now.
    pub fn take(&mut self, now_ns: u64) -> Option<Departure> {
        loop {
            let next = self.schedule.peek()?;
            if next.due_ns.max(self.not_before_ns) > now_ns {
                self.burst = 0;
                return None;
            }
            if self.late == Late::Drop && now_ns - next.due_ns > LATE_AFTER_NS {
                self.schedule.advance();
                self.last_due_ns = next.due_ns;
                self.skipped += 1;
                continue;
            }
            if self.max_burst.is_some_and(|limit| self.burst >= limit) {
                self.not_before_ns = now_ns + (next.due_ns - self.last_due_ns).max(1);
                self.burst = 0;
                return None;
            }
            self.burst += 1;
            self.last_due_ns = next.due_ns;
            self.schedule.advance();
            return Some(next);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::flow::FlowSpec;
    use crate::law::Law;
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

        /// Awaits one gap on a clock that oversleeps; returns when the packet leaves.
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
        fn l_3_absolute_deadlines_and_the_papers_elapsed_time_send_at_the_same_instants(
            seed: u64, oversleep in prop::collection::vec(0u64..5_000_000, 1..40), work in 0u64..900_000,
        ) {
            let mut spec = FlowSpec::new(1);
            spec.idt = Law::Exp { mean: 1e6 };
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
}
