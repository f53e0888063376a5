//! Decision of an agent to end its part in a run that no console ends: a pure function of what it
//! sees each second.
//!
//! No member is connected: others would be called for ever, and would begin the run again. Or
//! others are, but neither the console nor a majority: what this agent wants ordered is not. An
//! agent that waits is of no use, and takes no other run. A run that has not begun is its console's: without that, others
//! are as good as nobody.
//!
//! A run that was taken up again after a restart may have ended meanwhile. As long as nothing shows that it goes on,
//! another console has it soon.

use std::time::Duration;

/// State of its run as an agent sees it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sight {
    /// It has been started.
    pub(crate) begun: bool,
    /// Its logs are closed.
    pub(crate) closed: bool,
    /// It sends flows.
    pub(crate) sending: bool,
    /// Flows come to it that go on although members are gone.
    pub(crate) receiving: bool,
    /// Connections to other members.
    pub(crate) lines: usize,
    /// The console is one of them.
    pub(crate) console: bool,
    /// Number of commands and views that the group has ordered, as far as it knows.
    pub(crate) ordered: u64,
}

/// Decision of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// It stays.
    Stay,
    /// It has something ordered that changes nothing, to see whether anything can be.
    Try,
    /// It leaves the run, and why.
    Leave(&'static str),
    /// The run is over, and need not be remembered any more.
    Forget,
}

/// Lengths of time, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// A run that is over is remembered for so long, so that all members hear of the end.
    pub(crate) linger_ns: u64,
    /// A run to which no member is connected, or not the one that is to begin it, and in which nothing is sent or comes,
    /// gives way to another one after this time.
    pub(crate) abandoned_ns: u64,
    /// … and is left after this time, whether or not another one comes; so is one in which nothing can be agreed.
    pub(crate) dead_ns: u64,
    /// A run that was taken up again gives way after this time if nothing shows that it goes on.
    pub(crate) resumed_ns: u64,
    /// An agent that has not looked for so long stood still, and begins anew.
    pub(crate) still_ns: u64,
}

impl Default for Limits {
    fn default() -> Self {
        const SECOND: u64 = 1_000_000_000;
        Self {
            linger_ns: 3 * SECOND,
            abandoned_ns: 10 * SECOND,
            dead_ns: 60 * SECOND,
            resumed_ns: 3 * SECOND / 2,
            still_ns: 10 * SECOND,
        }
    }
}

/// A run that was taken up again, of which nothing shows yet that it goes on.
#[derive(Clone, Copy, Debug)]
struct Resumed {
    since_ns: u64,
    /// Number of entries ordered when the process had come to its state.
    ordered: Option<u64>,
}

/// Since when a run has been of no use.
#[derive(Debug, Default)]
pub(crate) struct Idle {
    limits: Limits,
    last_ns: u64,
    /// Since when it has been over.
    closed_ns: Option<u64>,
    /// Instant since which no member that counts has been connected.
    alone_ns: Option<u64>,
    /// Since when nothing has been ordered without the console, and how much had been then.
    stuck: Option<(u64, u64)>,
    tried: bool,
    resumed: Option<Resumed>,
}

impl Idle {
    /// Waits this long before it leaves a run in which nothing can be agreed.
    pub(crate) fn leaving_after(time: Duration) -> Self {
        let dead_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self { limits: Limits { dead_ns, ..Limits::default() }, ..Self::default() }
    }

    /// The same for a run that is taken up again now.
    pub(crate) fn resumed_at(mut self, now_ns: u64) -> Self {
        self.resumed = Some(Resumed { since_ns: now_ns, ordered: None });
        self
    }

    /// Instant from which on the run gives way to another console, if it was taken up again and nothing has shown yet
    /// that it goes on.
    pub(crate) fn yields_at(&self) -> Option<u64> {
        self.resumed.map(|resumed| resumed.since_ns.saturating_add(self.limits.resumed_ns))
    }

    /// With other lengths of time.
    #[cfg(test)]
    fn with(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Returns true if another run may have this agent.
    pub(crate) fn gives_way(&self, now_ns: u64) -> bool {
        self.alone_ns.is_some_and(|since| now_ns.saturating_sub(since) > self.limits.abandoned_ns)
    }

    /// Decides what to do now.
    pub(crate) fn look(&mut self, now_ns: u64, sight: Sight) -> Decision {
        if now_ns.saturating_sub(self.last_ns) > self.limits.still_ns {
            (self.alone_ns, self.stuck) = (None, None);
        }
        self.last_ns = now_ns;
        self.look_after_restart(now_ns, sight);
        if sight.closed {
            let since = now_ns.saturating_sub(*self.closed_ns.get_or_insert(now_ns));
            // Others that were started again hear of the end as long as the console gathers the logs.
            let wanted = sight.console && since <= self.limits.dead_ns;
            let over = since > self.limits.linger_ns && !wanted;
            return if over { Decision::Forget } else { Decision::Stay };
        }
        let busy = sight.sending || sight.receiving;
        // Without a majority no member is excluded: what counts is which are connected.
        let alone = !busy && (sight.lines == 0 || !(sight.begun || sight.console));
        self.alone_ns = alone.then(|| self.alone_ns.unwrap_or(now_ns));
        if self.alone_ns.is_some_and(|since| now_ns - since > self.limits.dead_ns) {
            return Decision::Leave(if sight.lines == 0 {
                "nobody was connected to the run any more"
            } else {
                "the console was gone before the run began"
            });
        }
        if busy || sight.console {
            self.stuck = None;
            return Decision::Stay;
        }
        let (since, ordered) = *self.stuck.get_or_insert((now_ns, sight.ordered));
        if ordered != sight.ordered || since == now_ns {
            (self.stuck, self.tried) = (Some((now_ns, sight.ordered)), false);
            return Decision::Stay;
        }
        let stuck_ns = now_ns - since;
        if stuck_ns > self.limits.dead_ns {
            return Decision::Leave("neither the console nor a majority of the nodes was there");
        }
        if !alone && stuck_ns > self.limits.dead_ns / 2 && !std::mem::replace(&mut self.tried, true)
        {
            return Decision::Try;
        }
        Decision::Stay
    }

    /// Looks whether a run that was taken up again goes on.
    fn look_after_restart(&mut self, now_ns: u64, sight: Sight) {
        let Some(resumed) = &mut self.resumed else { return };
        let more = resumed.ordered.is_some_and(|before| sight.ordered > before);
        if sight.console || sight.sending || sight.receiving || more {
            self.resumed = None;
        } else if now_ns.saturating_sub(resumed.since_ns) >= self.limits.resumed_ns / 2 {
            resumed.ordered.get_or_insert(sight.ordered);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits =
        Limits { linger_ns: 3, abandoned_ns: 10, dead_ns: 60, resumed_ns: 4, still_ns: 10 };

    /// Looks at each instant of a range; what it does that is not to stay, and when.
    fn looked(
        idle: &mut Idle,
        times: std::ops::Range<u64>,
        sight: impl Fn(u64) -> Sight,
    ) -> Vec<(u64, Decision)> {
        let each = times.map(|now| (now, idle.look(now, sight(now))));
        each.filter(|(_, decision)| *decision != Decision::Stay).collect()
    }

    #[test]
    fn the_time_is_as_the_documentation_says() {
        let limits = Limits::default();
        let seconds = [limits.linger_ns, limits.abandoned_ns, limits.dead_ns, limits.still_ns];
        assert_eq!(seconds.map(|ns| ns / 1_000_000_000), [3, 10, 60, 10], "see docs/cluster.md");
        assert_eq!(limits.resumed_ns, 1_500_000_000, "see docs/cluster.md");
    }

    #[test]
    fn who_is_alone_gives_way_and_leaves_in_the_end() {
        let mut idle = Idle::with(LIMITS);
        assert_eq!(looked(&mut idle, 100..161, |_| Sight::default()), []);
        assert!(!idle.gives_way(110) && idle.gives_way(111));
        let why = Decision::Leave("nobody was connected to the run any more");
        assert_eq!(idle.look(161, Sight::default()), why);
    }

    #[test]
    fn who_is_of_use_stays() {
        let alone = Sight::default();
        for (what, used) in [
            ("it sends", Sight { sending: true, ..alone }),
            ("it receives", Sight { receiving: true, ..alone }),
            ("it receives from some", Sight { receiving: true, lines: 1, ..alone }),
            ("the console is there", Sight { lines: 1, console: true, ..alone }),
            ("the console of a run", Sight { begun: true, lines: 1, console: true, ..alone }),
        ] {
            let mut idle = Idle::with(LIMITS);
            assert_eq!(looked(&mut idle, 0..500, |_| used), [], "{what}");
            // Each time is a new beginning.
            let now_and_then = |now: u64| if now.is_multiple_of(50) { used } else { alone };
            assert_eq!(looked(&mut idle, 500..1000, now_and_then), [], "{what} now and then");
        }
    }

    #[test]
    fn who_only_receives_leaves_when_the_last_flow_is_over() {
        for lines in [0, 1] {
            let mut idle = Idle::with(LIMITS);
            let begun = true;
            let sight = |now: u64| Sight { begun, receiving: now < 300, lines, ..Sight::default() };
            assert_eq!(looked(&mut idle, 0..320, sight), [], "{lines}");
            assert!(idle.gives_way(320) == (lines == 0));
            let decisions = looked(&mut idle, 320..362, sight);
            assert!(matches!(decisions.last(), Some((361, Decision::Leave(_)))), "{decisions:?}");
        }
    }

    #[test]
    fn who_reaches_too_few_to_agree_tries_and_leaves() {
        let few = Sight { begun: true, lines: 1, ..Sight::default() };
        let mut idle = Idle::with(LIMITS);
        let why = Decision::Leave("neither the console nor a majority of the nodes was there");
        assert_eq!(looked(&mut idle, 100..162, |_| few), [(131, Decision::Try), (161, why)]);
        assert!(!idle.gives_way(161), "it may come to something yet");
        // What it tries is ordered: others are there, and wait with it.
        let mut idle = Idle::with(LIMITS);
        let ordered = |now: u64| Sight { ordered: now.saturating_sub(100) / 32, ..few };
        let tries = looked(&mut idle, 100..1000, ordered);
        assert!(
            tries.len() > 20 && tries.iter().all(|(_, what)| *what == Decision::Try),
            "{tries:?}"
        );
    }

    /// They agree on what they like: nobody is there who would start it.
    #[test]
    fn who_waits_for_a_start_without_the_console_gives_way_and_leaves() {
        let many = |now: u64| Sight { lines: 7, ordered: now, ..Sight::default() };
        let mut idle = Idle::with(LIMITS);
        let why = Decision::Leave("the console was gone before the run began");
        assert_eq!(looked(&mut idle, 100..162, many), [(161, why)]);
        assert!(!idle.gives_way(110) && idle.gives_way(111));
    }

    /// Of two that leave one is the first: the other one is no better off without it.
    #[test]
    fn who_is_left_alone_at_last_leaves_all_the_same() {
        let mut idle = Idle::with(LIMITS);
        let lines = |now| usize::from(now < 158);
        let few = |now: u64| Sight { begun: true, lines: lines(now), ..Sight::default() };
        let decisions = looked(&mut idle, 100..162, few);
        assert!(
            matches!(decisions[..], [(131, Decision::Try), (161, Decision::Leave(_))]),
            "{decisions:?}"
        );
    }

    /// Stopped for a minute: others are looked for first.
    #[test]
    fn who_stood_still_begins_anew() {
        for sight in [Sight::default(), Sight { lines: 1, ..Sight::default() }] {
            let mut idle = Idle::with(LIMITS);
            assert_eq!(looked(&mut idle, 0..30, |_| sight), []);
            assert_eq!(looked(&mut idle, 300..330, |_| sight), [], "{sight:?}");
            assert!(!looked(&mut idle, 330..362, |_| sight).is_empty(), "{sight:?}");
        }
    }

    #[test]
    fn a_run_that_is_over_is_remembered_for_a_while() {
        let mut idle = Idle::with(LIMITS);
        let over = Sight { closed: true, ..Sight::default() };
        assert_eq!(looked(&mut idle, 0..5, |_| over), [(4, Decision::Forget)]);
        // … and as long as the console is there, up to a limit.
        let gathers = Sight { console: true, lines: 1, ..over };
        let mut idle = Idle::with(LIMITS);
        assert_eq!(looked(&mut idle, 0..62, |_| gathers), [(61, Decision::Forget)]);
    }

    #[test]
    fn a_run_that_was_taken_up_again_yields_unless_it_goes_on() {
        let nothing = |_: u64| Sight { lines: 2, ordered: 3, ..Sight::default() };
        let mut idle = Idle::with(LIMITS).resumed_at(100);
        assert_eq!(looked(&mut idle, 100..130, nothing), []);
        assert_eq!(idle.yields_at(), Some(104), "others that came back as well show nothing");
        // What it delivers again is no sign either.
        let restored = |now: u64| Sight { ordered: (now - 100).min(1), ..Sight::default() };
        let mut idle = Idle::with(LIMITS).resumed_at(100);
        assert_eq!((looked(&mut idle, 100..130, restored), idle.yields_at()), (vec![], Some(104)));
        for (what, shown) in [
            ("the console", Sight { console: true, ..nothing(0) }),
            ("it sends", Sight { sending: true, ..nothing(0) }),
            ("it receives", Sight { receiving: true, ..nothing(0) }),
            ("something was ordered", Sight { ordered: 4, ..nothing(0) }),
        ] {
            let sight = |now: u64| if now == 110 { shown } else { nothing(now) };
            let mut idle = Idle::with(LIMITS).resumed_at(100);
            assert_eq!(
                (looked(&mut idle, 100..115, sight), idle.yields_at()),
                (vec![], None),
                "{what}"
            );
        }
        assert_eq!(Idle::with(LIMITS).yields_at(), None);
    }
}
