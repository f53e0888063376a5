//! A sender's clock that was set while it sent: its times as it would have shown them otherwise.
//!
//! CLOCK_REALTIME runs at the rate of CLOCK_MONOTONIC, however it is disciplined: what lies between them changes when
//! the clock is set, and only then. Logs have pairs of readings of a sender, once a second and in each probe; where two
//! in a row agree to 10 µs on another difference than those before, the clock was set between the two. A sender dates
//! packets by a difference that is up to a second old, so that about a step either difference may hold for a packet: it
//! is the one by which the packet is nearer to its plan. A sender that was late by as much as its clock was set, just
//! then, is not known from one that was not.

use std::sync::Arc;

use itg_core::units::MAX_TIME_NS;

use crate::probe::JUMP_NS;

/// Time for which a sender goes on with a difference that it has read: 1 s.
const LIFETIME_NS: i128 = 1_000_000_000;
/// Room for readings that were interrupted: 20 ms.
const SLACK_NS: i128 = 20_000_000;
/// More steps than this are not those of a clock.
const MOST_STEPS: usize = 128;

/// Both clocks of a host at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reading {
    /// `CLOCK_MONOTONIC`, in nanoseconds.
    pub monotonic_ns: u64,
    /// Unix time in nanoseconds (`CLOCK_REALTIME`).
    pub unix_ns: u64,
}

/// Packet that a sender has dated, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dated {
    /// Instant at which it was due, in Unix time of the sender as it was when its flow was opened.
    pub due_ns: u64,
    /// Unix time of the sender when it left.
    pub sent_ns: u64,
}

impl Reading {
    const fn apart_ns(self) -> i128 {
        self.unix_ns as i128 - self.monotonic_ns as i128
    }
}

/// A time in which the clock was not set. All in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    /// Instants by the monotonic clock between which packets may be dated by it.
    from_ns: i128,
    until_ns: i128,
    /// Unix time − monotonic time.
    apart_ns: i128,
}

impl Stretch {
    /// Instant by the monotonic clock at which the clock showed this time.
    fn monotonic_ns(&self, unix_ns: u64) -> i128 {
        i128::from(unix_ns) - self.apart_ns
    }
}

/// A sender's clock that was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetClock(Vec<Stretch>);

impl SetClock {
    /// From readings in any order; `None` if the clock was not set, or more often than clocks are.
    #[must_use]
    pub fn of(mut readings: Vec<Reading>) -> Option<Self> {
        readings.sort_unstable();
        readings.dedup();
        let near = |a: &Reading, b: &Reading| a.apart_ns().abs_diff(b.apart_ns()) <= JUMP_NS.into();
        let mut groups: Vec<Vec<Reading>> = Vec::new();
        for (at, reading) in readings.iter().enumerate() {
            let Some(last) = groups.last_mut() else {
                groups.push(vec![*reading]);
                continue;
            };
            let before = last.last().is_some_and(|before| near(before, reading));
            let behind = readings.get(at + 1).is_none_or(|behind| near(behind, reading));
            if before {
                last.push(*reading);
            } else if behind {
                groups.push(vec![*reading]);
            }
            // One that agrees with neither was interrupted between the two clocks.
        }
        if groups.len() < 2 || groups.len() > MOST_STEPS {
            return None;
        }
        let edges = |group: &[Reading]| {
            let at = |reading: Option<&Reading>| reading.map_or(0, |r| i128::from(r.monotonic_ns));
            (at(group.first()), at(group.last()))
        };
        let mut stretches = Vec::with_capacity(groups.len());
        for (at, group) in groups.iter_mut().enumerate() {
            stretches.push(Stretch { from_ns: i128::MIN, until_ns: i128::MAX, apart_ns: 0 });
            group.sort_unstable_by_key(|reading| reading.apart_ns());
            stretches[at].apart_ns = group[group.len() / 2].apart_ns();
            group.sort_unstable();
        }
        for (at, pair) in groups.windows(2).enumerate() {
            stretches[at].until_ns = edges(&pair[1]).0 + LIFETIME_NS + SLACK_NS;
            stretches[at + 1].from_ns = edges(&pair[0]).1 - SLACK_NS;
        }
        Some(Self(stretches))
    }

    /// Place of the stretch of an instant, by the monotonic clock.
    fn place(&self, monotonic_ns: u64) -> usize {
        let began = |stretch: &Stretch| stretch.from_ns + SLACK_NS < i128::from(monotonic_ns);
        self.0.iter().skip(1).take_while(|stretch| began(stretch)).count()
    }
}

/// The clock of the sender of a flow, as it was when the flow was opened.
#[derive(Clone, Debug)]
pub struct SenderClock {
    set: Arc<SetClock>,
    /// Unix time − monotonic time at the opening, in nanoseconds.
    apart_ns: i128,
}

impl SenderClock {
    /// The clock for a flow that was opened at this instant of the monotonic clock, or soon after; `None` stands for
    /// before the first step.
    #[must_use]
    pub fn new(set: &Arc<SetClock>, opened_ns: Option<u64>) -> Self {
        let place = opened_ns.map_or(0, |opened_ns| set.place(opened_ns));
        Self { set: Arc::clone(set), apart_ns: set.0[place].apart_ns }
    }

    /// Time at which a packet left, in Unix nanoseconds, by the clock as it was when the flow was opened.
    #[must_use]
    pub fn correct(&self, packet: Dated) -> u64 {
        let stretch = &self.set.0[self.place(packet)];
        let corrected = stretch.monotonic_ns(packet.sent_ns) + self.apart_ns;
        u64::try_from(corrected).unwrap_or(0).min(MAX_TIME_NS)
    }

    /// Returns true if a packet left so near to a step that it may be dated by the clock before or behind it.
    #[must_use]
    pub fn is_near_step(&self, packet: Dated) -> bool {
        let place = self.place(packet);
        let at = self.set.0[place].monotonic_ns(packet.sent_ns);
        let before = place.checked_sub(1).and_then(|place| self.set.0.get(place));
        let behind = self.set.0.get(place + 1);
        before.is_some_and(|before| at <= before.until_ns)
            || behind.is_some_and(|behind| at >= behind.from_ns)
    }

    /// Place of the stretch by which a packet is dated.
    fn place(&self, packet: Dated) -> usize {
        let rank = |stretch: &Stretch| {
            let at = stretch.monotonic_ns(packet.sent_ns);
            let may_be = (stretch.from_ns..=stretch.until_ns).contains(&at);
            (!may_be, (at + self.apart_ns - i128::from(packet.due_ns)).unsigned_abs())
        };
        let all = self.set.0.iter().enumerate();
        all.min_by_key(|(_, stretch)| rank(stretch)).map_or(0, |(place, _)| place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn readings(apart_ns: &[u64]) -> Vec<Reading> {
        let reading = |(second, apart_ns): (u64, &u64)| {
            let monotonic_ns = second * SECOND;
            Reading { monotonic_ns, unix_ns: monotonic_ns + apart_ns }
        };
        (1..).zip(apart_ns).map(reading).collect()
    }

    #[test]
    fn a_step_lies_between_readings_that_agree_on_both_sides() {
        const MS: u64 = 1_000_000;
        for (apart_ns, steps) in [
            (vec![MS; 5], 0),
            (vec![MS, MS + 9_000, MS + 3_000], 0),
            (vec![MS, MS, 9 * MS, MS, MS], 0),
            (vec![MS, MS, 9 * MS, 9 * MS, MS, MS], 2),
            (vec![MS, MS, 9 * MS], 1),
            (vec![MS, 9 * MS, 9 * MS], 1),
            (vec![], 0),
        ] {
            let found = SetClock::of(readings(&apart_ns)).map_or(0, |clock| clock.0.len() - 1);
            assert_eq!(found, steps, "{apart_ns:?}");
        }
        let hopping: Vec<_> = (0..600).map(|at| at / 2 % 2 * MS).collect();
        assert_eq!(SetClock::of(readings(&hopping)), None);
    }

    #[test]
    fn packets_are_dated_by_what_brings_them_nearer_to_their_plan() {
        let ms = |ms: u64| ms * 1_000_000;
        let looks = readings(&[0, 0, 0, ms(500), ms(500), ms(500)]);
        let set = Arc::new(SetClock::of(looks).expect("set"));
        let clock = SenderClock::new(&set, Some(0));
        // Between the third and the fourth second, and a second behind that.
        for (at_ms, by_ms, near) in [
            (2_900, 0, false),
            (3_100, 0, true),
            (3_500, 500, true),
            (4_900, 500, true),
            (5_100, 500, false),
            (6_000, 500, false),
        ] {
            let packet = Dated { due_ns: ms(at_ms), sent_ns: ms(at_ms + by_ms) + 1_000 };
            assert_eq!(clock.correct(packet), ms(at_ms) + 1_000, "{at_ms}");
            assert_eq!(clock.is_near_step(packet), near, "{at_ms}");
        }
    }

    #[test]
    fn what_no_clock_shows_is_no_panic() {
        let far = [0, u64::MAX].map(|unix_ns| Reading { monotonic_ns: u64::MAX / 2, unix_ns });
        let clock = Arc::new(SetClock::of(far.to_vec()).expect("set"));
        for opened_ns in [None, Some(0), Some(u64::MAX)] {
            let clock = SenderClock::new(&clock, opened_ns);
            for ns in [0, 1, u64::MAX] {
                let packet = Dated { due_ns: ns, sent_ns: ns };
                assert!(clock.correct(packet) <= MAX_TIME_NS);
                std::hint::black_box(clock.is_near_step(packet));
            }
        }
    }
}
