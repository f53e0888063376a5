//! Nodes that are missing while a run goes on, for the console: since when, what it waits for, when it gives up. A pure
//! function of what it sees at each look; each second something is told as long as something is wrong.

use std::collections::{BTreeMap, BTreeSet};

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;
/// Time between two lines for people that say the same.
const SAME_NS: u64 = 5 * SECOND;
/// A run in which nothing can be agreed is given up after this time: agents have left it by then.
pub(crate) const GIVE_UP_NS: u64 = 90 * SECOND;
/// Flows that are named.
const MOST_FLOWS: usize = 8;

/// Step of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nodes get the description, until then.
    Loading(u64),
    /// Flows are sent.
    Running {
        /// Too few members are reached to agree on anything.
        too_few: bool,
        /// Flows that go on, and whose sender is missing.
        flows: Vec<u32>,
        /// Other nodes send them on.
        fails_over: bool,
    },
    /// Logs are closed and fetched, until then; behind that those of which some has come.
    Ending(u64),
}

/// Lack of nodes, as it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lack {
    /// Slots of the nodes, and since when they have been missing (CLOCK_MONOTONIC).
    pub(crate) nodes: Vec<(u32, u64)>,
    /// Event that the console waits for, in words.
    pub(crate) waits_for: String,
    /// Instant at which it gives up; `None` if it does not.
    pub(crate) gives_up_ns: Option<u64>,
}

/// Message that is due now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Say {
    /// Nothing.
    Nothing,
    /// An event, and also a line for people if that is set.
    Lack(Lack, bool),
    /// Nothing is missing any more.
    Whole,
}

/// Nodes that are missing.
#[derive(Debug, Default)]
pub(crate) struct Missing {
    since: BTreeMap<u32, u64>,
    /// Since when nothing can be agreed.
    too_few_ns: Option<u64>,
    /// The last event: when, which nodes, and what was waited for.
    told: Option<(u64, BTreeSet<u32>, String)>,
    /// The last line: when, which nodes, and what was waited for.
    said: Option<(u64, BTreeSet<u32>, String)>,
}

impl Missing {
    /// Looks at which of these nodes are there.
    pub(crate) fn look(
        &mut self,
        now_ns: u64,
        nodes: &BTreeSet<u32>,
        there: &BTreeSet<u32>,
        step: &Step,
    ) -> Say {
        self.since.retain(|slot, _| nodes.contains(slot) && !there.contains(slot));
        for slot in nodes.difference(there) {
            self.since.entry(*slot).or_insert(now_ns);
        }
        let too_few = matches!(step, Step::Running { too_few: true, .. });
        self.too_few_ns = too_few.then(|| self.too_few_ns.unwrap_or(now_ns));
        if self.since.is_empty() && !too_few {
            self.told = None;
            return if self.said.take().is_some() { Say::Whole } else { Say::Nothing };
        }
        let slots: BTreeSet<u32> = self.since.keys().copied().collect();
        let waits_for = waits_for(step, now_ns);
        let due = |last: &Option<(u64, BTreeSet<u32>, String)>, same_ns: u64, least_ns: u64| {
            last.as_ref().is_none_or(|(at_ns, before, words)| {
                let passed = now_ns.saturating_sub(*at_ns);
                let changed = (before, words) != (&slots, &waits_for);
                passed >= same_ns || (changed && passed >= least_ns)
            })
        };
        // No more lines for people than one a second, whatever comes and goes.
        let (tells, says) = (due(&self.told, SECOND, 0), due(&self.said, SAME_NS, SECOND));
        if !tells && !says {
            return Say::Nothing;
        }
        self.told = Some((now_ns, slots.clone(), waits_for.clone()));
        if says {
            self.said = Some((now_ns, slots, waits_for.clone()));
        }
        let gives_up_ns = match step {
            Step::Ending(until) if now_ns > *until => None,
            Step::Loading(until) | Step::Ending(until) => Some(*until),
            Step::Running { .. } => self.too_few_ns.map(|since| since.saturating_add(GIVE_UP_NS)),
        };
        let nodes = self.since.iter().map(|(slot, since)| (*slot, *since)).collect();
        Say::Lack(Lack { nodes, waits_for, gives_up_ns }, says)
    }

    /// Returns true if nothing could be agreed for so long that the run is given up.
    pub(crate) fn gives_up(&self, now_ns: u64) -> bool {
        self.too_few_ns.is_some_and(|since| now_ns.saturating_sub(since) > GIVE_UP_NS)
    }
}

/// Numbers of flows in words: of many the first ones.
pub(crate) fn named(flows: &[u32]) -> String {
    let mut names: Vec<String> = flows.iter().take(MOST_FLOWS).map(u32::to_string).collect();
    if flows.len() > MOST_FLOWS {
        names.push(format!("and {} more", flows.len() - MOST_FLOWS));
    }
    names.join(" ")
}

/// Event that a run waits for, in words.
fn waits_for(step: &Step, now_ns: u64) -> String {
    match step {
        Step::Ending(until) if now_ns > *until => "the rest of their logs".to_owned(),
        Step::Loading(_) => "them to take the description and make ready".to_owned(),
        Step::Ending(_) => "their logs".to_owned(),
        Step::Running { too_few: true, .. } => {
            "enough nodes to agree: senders are silent when their leases are over".to_owned()
        }
        Step::Running { flows, .. } if flows.is_empty() => {
            "their return; the flows of the others go on".to_owned()
        }
        Step::Running { flows, fails_over, .. } => {
            let names = named(flows);
            match fails_over {
                true => format!("their return, or others to send flows {names} on"),
                false => format!("their return: flows {names} wait for it"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(slots: &[u32]) -> BTreeSet<u32> {
        slots.iter().copied().collect()
    }

    fn running(too_few: bool, flows: &[u32]) -> Step {
        Step::Running { too_few, flows: flows.to_vec(), fails_over: true }
    }

    #[test]
    fn each_second_is_told_and_lines_are_few() {
        let (mut missing, nodes) = (Missing::default(), set(&[0, 1, 2]));
        let (mut events, mut lines) = (0, Vec::new());
        // Ten looks a second; node 1 is missing from 2 s to 20 s, node 2 from 9 s on for 0.3 s.
        for tick in 0..300_u64 {
            let now = tick * SECOND / 10;
            let mut there = nodes.clone();
            if (20..200).contains(&tick) {
                there.remove(&1);
            }
            if (90..93).contains(&tick) {
                there.remove(&2);
            }
            match missing.look(now, &nodes, &there, &running(false, &[])) {
                Say::Nothing => {}
                Say::Lack(lack, line) => {
                    events += 1;
                    assert_eq!((lack.nodes[0], lack.gives_up_ns), ((1, 2 * SECOND), None));
                    lines.extend(line.then_some(tick));
                }
                Say::Whole => lines.push(tick),
            }
        }
        assert!((18..=21).contains(&events), "{events} in 18 s");
        assert_eq!(lines, [20, 70, 90, 100, 150, 200]);
    }

    #[test]
    fn nodes_that_come_and_go_flood_nobody() {
        let (mut missing, nodes) = (Missing::default(), set(&[0, 1]));
        let mut lines = 0;
        for tick in 0..300_u64 {
            let there = if tick % 2 == 0 { set(&[0]) } else { set(&[1]) };
            let say = missing.look(tick * SECOND / 10, &nodes, &there, &running(false, &[]));
            lines += u32::from(matches!(say, Say::Lack(_, true)));
        }
        assert!((25..=31).contains(&lines), "{lines} in 30 s");
    }

    #[test]
    fn a_run_in_which_nothing_can_be_agreed_is_given_up_in_the_end() {
        let (mut missing, nodes) = (Missing::default(), set(&[0, 1]));
        let few = running(true, &[1]);
        let Say::Lack(lack, true) = missing.look(SECOND, &nodes, &set(&[]), &few) else {
            panic!("two are missing");
        };
        assert_eq!(lack.gives_up_ns, Some(SECOND + GIVE_UP_NS));
        assert_eq!(lack.nodes, [(0, SECOND), (1, SECOND)]);
        assert!(
            !missing.gives_up(SECOND + GIVE_UP_NS) && missing.gives_up(SECOND + GIVE_UP_NS + 1)
        );
        // Everybody is connected, and yet nothing can be agreed: that is told, too.
        assert!(matches!(missing.look(5 * SECOND, &nodes, &nodes, &few), Say::Lack(..)));
        assert_eq!(missing.look(6 * SECOND, &nodes, &nodes, &running(false, &[])), Say::Whole);
        assert!(!missing.gives_up(SECOND + 2 * GIVE_UP_NS), "it can be agreed again");
        assert_eq!(missing.look(7 * SECOND, &nodes, &nodes, &running(false, &[])), Say::Nothing);
    }

    #[test]
    fn what_is_waited_for_is_said() {
        for (step, want) in [
            (Step::Loading(5), "them to take the description and make ready"),
            (Step::Ending(5), "their logs"),
            (running(false, &[1, 6]), "their return, or others to send flows 1 6 on"),
            (
                Step::Running { too_few: false, flows: (1..=10).collect(), fails_over: false },
                "their return: flows 1 2 3 4 5 6 7 8 and 2 more wait for it",
            ),
        ] {
            assert_eq!(waits_for(&step, 0), want);
            let said = Missing::default().look(0, &set(&[3]), &set(&[]), &step);
            let Say::Lack(lack, true) = said else { panic!("{said:?}") };
            assert_eq!(waits_for(&Step::Ending(5), 6), "the rest of their logs");
            let ends = matches!(step, Step::Loading(_) | Step::Ending(_));
            assert_eq!(lack.gives_up_ns, ends.then_some(5), "{step:?}");
        }
    }
}
