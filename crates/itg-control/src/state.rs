//! The experiment as a replicated state machine: what each member makes of the same commands in the same
//! order. No clock, no randomness, no messages; one word for each flow.

use std::collections::{BTreeMap, BTreeSet};

use itg_core::rate::{FACTORS_PPM, MOST_CHANGES, RateChange};
use itg_core::streams::fnv1a;
use itg_group::{Member, View};
use serde::{Deserialize, Serialize};

use crate::command::{Command, Failover, Orphan, Route, Rules};
use crate::layer::fence_wait;

/// Phase of an experiment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Phase {
    /// Nothing is loaded.
    #[default]
    Empty,
    /// Members get the description.
    Loaded,
    /// All have it, and wait for the start.
    Armed,
    /// Flows are sent.
    Running,
    /// Logs are closed and handed over.
    Draining,
    /// It is over.
    Ended,
}

/// Stage of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Stage {
    /// Its owner may not send yet.
    Waiting,
    /// Its owner sends it.
    Running,
    /// Its owner is to stop, because another one follows.
    Handing,
    /// It was stopped.
    Stopped,
    /// It was sent to its end.
    Finished,
}

impl Stage {
    const ALL: [Self; 5] =
        [Self::Waiting, Self::Running, Self::Handing, Self::Stopped, Self::Finished];
}

/// A flow in one word: bits 0–2 its stage, 8–31 its owner's slot plus 1 (0: none), 32–47 the fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Word(u64);

impl Word {
    const fn new(stage: Stage, owner: Option<u32>, fence: u16) -> Self {
        let owner = match owner {
            Some(slot) => slot as u64 + 1,
            None => 0,
        };
        Self(stage as u64 | (owner & 0xff_ffff) << 8 | (fence as u64) << 32)
    }

    /// Stage of the flow.
    #[must_use]
    pub const fn stage(self) -> Stage {
        // Words come from `new` alone; a snapshot is checked when it is read.
        Stage::ALL[(self.0 & 7) as usize % Stage::ALL.len()]
    }

    /// Slot of its owner.
    #[must_use]
    pub const fn owner(self) -> Option<u32> {
        ((self.0 >> 8 & 0xff_ffff) as u32).checked_sub(1)
    }

    /// Number of changes of the owner: of two owners the one with the higher fence is the right one.
    #[must_use]
    pub const fn fence(self) -> u16 {
        (self.0 >> 32 & 0xffff) as u16
    }
}

/// Effect of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing: it came too late, too early, or from a member that may not.
    Void(&'static str),
    /// Something that concerns no flow.
    Report,
    /// It concerns these flows.
    Flows(Vec<u32>),
    /// It concerns all flows.
    All,
}

/// The replicated experiment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replica {
    phase: Phase,
    graph: u64,
    rules: Rules,
    t0_unix_ns: u64,
    words: Vec<Word>,
    routes: Vec<Route>,
    /// Incarnations of the members, by slot.
    members: BTreeMap<u32, u64>,
    /// Members that have the description and can do their part.
    holders: BTreeSet<u32>,
    /// Members that cannot, with their reasons.
    refusals: BTreeMap<u32, String>,
    /// New owners of flows that are being handed over.
    heirs: BTreeMap<u32, u32>,
    /// Number of the packet behind the last one, by flow, as the last owner told at a release or an end.
    next: BTreeMap<u32, u64>,
    /// Reasons for which flows were given up.
    given_up: BTreeMap<u32, String>,
    /// Changes of rates; times count from the start of the experiment.
    rates: BTreeMap<u32, Vec<RateChange>>,
    /// The latest time of the run at which a lease was asked for: none that the log has granted so far lasts
    /// longer than a lease from there.
    reached_ns: u64,
    /// Remarks.
    marks: Vec<String>,
    /// The console has been a member.
    console_seen: bool,
    /// Hash of everything that has changed, in its order.
    history: u64,
}

/// Reason of a void change of rate that was ordered when its instant was too near: another try may do.
pub const TOO_LATE: &str = "it was ordered too late for that instant: try again";
/// Clocks of two hosts disagree by less than this: 100 ms.
const CLOCKS_APART: u64 = 100_000_000;
/// Remarks that are kept.
const MOST_MARKS: usize = 4096;

impl Replica {
    /// Phase of the experiment.
    #[must_use]
    pub const fn phase(&self) -> Phase {
        self.phase
    }

    /// Hash of the description.
    #[must_use]
    pub const fn graph(&self) -> u64 {
        self.graph
    }

    /// Rules of the experiment.
    #[must_use]
    pub const fn rules(&self) -> Rules {
        self.rules
    }

    /// Instant from which planned times count: Unix time in nanoseconds, by the clock of the
    /// process that started the experiment.
    #[must_use]
    pub const fn t0_unix_ns(&self) -> u64 {
        self.t0_unix_ns
    }

    /// The flows, flow *k* + 1 at place *k*.
    #[must_use]
    pub fn words(&self) -> &[Word] {
        &self.words
    }

    /// Reasons for which flows were given up, by their numbers.
    #[must_use]
    pub const fn given_up(&self) -> &BTreeMap<u32, String> {
        &self.given_up
    }

    /// The word of a flow.
    #[must_use]
    pub fn word(&self, flow: u32) -> Option<Word> {
        self.words.get(place(flow)?).copied()
    }

    /// The way of a flow.
    #[must_use]
    pub fn route(&self, flow: u32) -> Option<Route> {
        self.routes.get(place(flow)?).copied()
    }

    /// The number of the packet behind the last one, of a flow that was handed over or has ended.
    #[must_use]
    pub fn next(&self, flow: u32) -> Option<u64> {
        self.next.get(&flow).copied()
    }

    /// Changes of the rate of a flow, in their order; times count from the start of the experiment.
    #[must_use]
    pub fn rates(&self, flow: u32) -> &[RateChange] {
        self.rates.get(&flow).map_or(&[], Vec::as_slice)
    }

    /// Incarnations of the members, by slot.
    #[must_use]
    pub const fn members(&self) -> &BTreeMap<u32, u64> {
        &self.members
    }

    /// Slots of the members that can do their part.
    #[must_use]
    pub const fn holders(&self) -> &BTreeSet<u32> {
        &self.holders
    }

    /// Reasons of the members that cannot do their part, by slot.
    #[must_use]
    pub const fn refusals(&self) -> &BTreeMap<u32, String> {
        &self.refusals
    }

    /// The remarks.
    #[must_use]
    pub fn marks(&self) -> &[String] {
        &self.marks
    }

    /// Time of the run, in nanoseconds from its start, at which every lease that has been granted so far is over by
    /// the clock of its owner: nothing that is due later was sent, unless it was sent without a lease.
    #[must_use]
    pub const fn sent_before_ns(&self) -> u64 {
        self.reached_ns.saturating_add(fence_wait(self.rules.lease_ns))
    }

    /// Longest time that the run has lasted, as members have told it.
    #[must_use]
    pub(crate) const fn reached_ns(&self) -> u64 {
        self.reached_ns
    }

    /// Returns true if every flow has come to an end.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.words.iter().all(|word| word.stage() >= Stage::Stopped)
    }

    /// A number that is the same where the same changes have been made in the same order.
    #[must_use]
    pub const fn history(&self) -> u64 {
        self.history
    }

    /// Carries out the next command of the log; `by` has cast it.
    pub fn apply(&mut self, by: Member, command: &Command) -> Change {
        let change = self.carry_out(by, command);
        self.remember(&change);
        change
    }

    /// A new view is in force: flows of members that have left get other owners, and a higher fence.
    pub fn view(&mut self, view: &View) -> Change {
        let change = self.follow(view);
        self.remember(&change);
        change
    }

    /// Adds to the history what has changed, in time proportional to it.
    fn remember(&mut self, change: &Change) {
        let mut bytes = self.history.to_le_bytes().to_vec();
        bytes.extend([self.phase as u8]);
        match change {
            Change::Void(_) => bytes.push(0),
            Change::Report => bytes.push(1),
            Change::Flows(flows) => {
                for flow in flows {
                    bytes.extend(flow.to_le_bytes());
                    bytes.extend(self.word(*flow).map_or(0, |word| word.0).to_le_bytes());
                    if let Some(last) = self.rates(*flow).last() {
                        bytes.extend(last.at_ns.to_le_bytes());
                        bytes.extend(last.ppm.to_le_bytes());
                    }
                }
            }
            Change::All => {
                bytes.extend(self.words.iter().flat_map(|word| word.0.to_le_bytes()));
            }
        }
        self.history = fnv1a(&bytes);
    }

    fn carry_out(&mut self, by: Member, command: &Command) -> Change {
        let slot = by.slot.0;
        // Commands of an earlier incarnation, or from before an exclusion, do not count any more.
        if self.members.get(&slot) != Some(&by.incarnation) {
            return Change::Void("from somebody who is not in");
        }
        match command {
            Command::Load { .. } if self.phase != Phase::Empty => {
                Change::Void("an experiment is loaded already")
            }
            Command::Load { graph, routes, rules } => {
                (self.graph, self.rules) = (*graph, *rules);
                self.load(routes);
                Change::Report
            }
            Command::Holds { graph } if *graph == self.graph && self.phase != Phase::Empty => {
                self.holders.insert(slot);
                self.refusals.remove(&slot);
                if self.phase >= Phase::Armed { self.settle_owners() } else { Change::Report }
            }
            Command::Refuses { graph, why } if *graph == self.graph => {
                self.holders.remove(&slot);
                self.refusals.insert(slot, why.clone());
                Change::Report
            }
            Command::Holds { .. } | Command::Refuses { .. } => {
                Change::Void("it is about another experiment")
            }
            Command::Arm if self.phase == Phase::Loaded => self.arm(),
            Command::Arm => Change::Void("nothing is loaded, or it is armed already"),
            Command::Start { t0_unix_ns } if self.phase == Phase::Armed => {
                self.start(*t0_unix_ns);
                Change::All
            }
            Command::Start { .. } => Change::Void("the experiment is not armed, or runs already"),
            Command::Stop { flow } => self.stop(*flow),
            Command::Reassign { flow, to } => self.reassign(*flow, *to),
            Command::Released { flow, fence, next } => {
                let change = self.release(*flow, *fence, slot);
                self.went_on(change, *flow, *next)
            }
            Command::Finished { flow, fence, next } => {
                let change = self.end(*flow, *fence, slot, Stage::Finished);
                self.went_on(change, *flow, *next)
            }
            // Another one follows, who may be able to send it.
            Command::GiveUp { flow, fence, .. }
                if self.own(*flow, *fence, slot, Stage::Handing).is_some() =>
            {
                self.release(*flow, *fence, slot)
            }
            Command::GiveUp { flow, fence, why } => {
                let change = self.end(*flow, *fence, slot, Stage::Stopped);
                if matches!(change, Change::Flows(_)) {
                    self.given_up.insert(*flow, why.clone());
                }
                change
            }
            Command::SetRate { flow, at_ns, ppm } => self.set_rate(*flow, *at_ns, *ppm),
            Command::Mark { label } => {
                if self.marks.len() >= MOST_MARKS {
                    return Change::Void("there are as many remarks as are kept");
                }
                self.marks.push(label.clone());
                Change::Report
            }
            Command::Renew { run_ns, .. } => {
                self.reached_ns = self.reached_ns.max(*run_ns);
                Change::Report
            }
            Command::Drain if (Phase::Loaded..Phase::Draining).contains(&self.phase) => {
                self.close(Phase::Draining)
            }
            Command::Drain => Change::Void("nothing runs"),
            Command::End if self.phase == Phase::Empty || self.phase == Phase::Ended => {
                Change::Void("there is nothing to end")
            }
            Command::End => self.close(Phase::Ended),
        }
    }

    /// The flows of the experiment, each at the node that it starts from.
    fn load(&mut self, routes: &[Route]) {
        self.phase = Phase::Loaded;
        let first = |route: &Route| Word::new(Stage::Waiting, Some(route.from), 0);
        self.words = routes.iter().map(first).collect();
        self.routes = routes.to_vec();
        let console = self.rules.console;
        self.console_seen = console.is_some_and(|console| self.members.contains_key(&console));
    }

    /// Owners are settled when every node has the description.
    fn arm(&mut self) -> Change {
        let console = self.rules.console;
        let mut nodes = self.members.keys().filter(|slot| Some(**slot) != console);
        if nodes.any(|slot| !self.holders.contains(slot)) {
            return Change::Void("a node lacks the description");
        }
        self.phase = Phase::Armed;
        self.settle_owners();
        Change::All
    }

    /// All flows that wait run.
    fn start(&mut self, t0_unix_ns: u64) {
        (self.phase, self.t0_unix_ns) = (Phase::Running, t0_unix_ns);
        for word in self.words.iter_mut().filter(|word| word.stage() == Stage::Waiting) {
            *word = Word::new(Stage::Running, word.owner(), word.fence());
        }
    }

    /// All flows stop.
    fn close(&mut self, phase: Phase) -> Change {
        self.stop(None);
        self.phase = phase;
        Change::All
    }

    /// Notes the next packet of a flow that its owner has left, if it has.
    fn went_on(&mut self, change: Change, flow: u32, next: u64) -> Change {
        if matches!(change, Change::Flows(_)) {
            self.next.insert(flow, next);
        }
        change
    }

    fn follow(&mut self, view: &View) -> Change {
        let slots: BTreeMap<u32, u64> =
            view.slots().filter_map(|slot| Some((slot.0, view.at(slot)?.incarnation))).collect();
        let before = std::mem::replace(&mut self.members, slots);
        let left: BTreeSet<u32> = before
            .iter()
            .filter(|(slot, incarnation)| match self.members.get(slot) {
                Some(now) => now != *incarnation,
                None => true,
            })
            .map(|(slot, _)| *slot)
            .collect();
        self.holders.retain(|slot| self.members.contains_key(slot) && !left.contains(slot));
        self.refusals.retain(|slot, _| self.members.contains_key(slot));
        let console = self.rules.console;
        self.console_seen |= console.is_some_and(|slot| self.members.contains_key(&slot));
        if self.phase == Phase::Empty || left.is_empty() {
            return Change::Report;
        }
        if self.phase < Phase::Draining
            && self.rules.orphan == Orphan::Stop
            && self.console_seen
            && console.is_some_and(|slot| left.contains(&slot))
        {
            return self.stop(None);
        }
        let mut moved = Vec::new();
        for flow in 1..=self.flows() {
            let Some(word) = self.word(flow) else { continue };
            if word.stage() >= Stage::Stopped {
                continue;
            }
            if self.heirs.get(&flow).is_some_and(|heir| left.contains(heir)) {
                self.heirs.remove(&flow);
            }
            if word.owner().is_some_and(|owner| left.contains(&owner)) {
                let stage =
                    if word.stage() == Stage::Handing { Stage::Running } else { word.stage() };
                // The next owner follows.
                let heir = self.heirs.remove(&flow);
                self.set(flow, Word::new(stage, heir, word.fence().wrapping_add(1)));
                moved.push(flow);
            }
        }
        if let Change::Flows(more) = self.settle_owners() {
            moved.extend(more);
            moved.sort_unstable();
            moved.dedup();
        }
        Change::Flows(moved)
    }

    fn flows(&self) -> u32 {
        u32::try_from(self.words.len()).unwrap_or(u32::MAX)
    }

    fn set(&mut self, flow: u32, word: Word) {
        if let Some(place) = place(flow).and_then(|at| self.words.get_mut(at)) {
            *place = word;
        }
    }

    /// The word of a flow, if this is its owner under this fence at this stage.
    fn own(&self, flow: u32, fence: u16, slot: u32, stage: Stage) -> Option<Word> {
        let word = self.word(flow)?;
        let own = (word.owner(), word.fence(), word.stage()) == (Some(slot), fence, stage);
        own.then_some(word)
    }

    /// The old owner of a flow sends it no more: the new one may.
    fn release(&mut self, flow: u32, fence: u16, slot: u32) -> Change {
        let Some(word) = self.own(flow, fence, slot, Stage::Handing) else {
            return Change::Void("the flow is not being handed over by this owner");
        };
        let heir = self.heirs.remove(&flow);
        self.set(flow, Word::new(Stage::Running, heir, word.fence().wrapping_add(1)));
        self.settle_owners();
        Change::Flows(vec![flow])
    }

    /// The owner of a flow sends it no more, nor does another one.
    fn end(&mut self, flow: u32, fence: u16, slot: u32, stage: Stage) -> Change {
        let own = self
            .own(flow, fence, slot, Stage::Running)
            .or_else(|| self.own(flow, fence, slot, Stage::Handing));
        let Some(word) = own else {
            return Change::Void("the flow is not sent by this owner");
        };
        self.heirs.remove(&flow);
        self.set(flow, Word::new(stage, word.owner(), word.fence()));
        Change::Flows(vec![flow])
    }

    fn stop(&mut self, flow: Option<u32>) -> Change {
        let range = flow.map_or_else(|| 1..=self.flows(), |flow| flow..=flow);
        let mut stopped = Vec::new();
        for flow in range {
            if let Some(word) = self.word(flow).filter(|word| word.stage() < Stage::Stopped) {
                self.heirs.remove(&flow);
                self.set(flow, Word::new(Stage::Stopped, word.owner(), word.fence()));
                stopped.push(flow);
            }
        }
        if stopped.is_empty() {
            Change::Void("no such flow goes on")
        } else {
            Change::Flows(stopped)
        }
    }

    /// Changes the rate of a flow, or of all flows. Void where one of them has an earlier change to
    /// come yet, and where a member that has not heard of the change may hold a lease at that
    /// instant: its packets would come twice when another one takes over.
    fn set_rate(&mut self, flow: Option<u32>, at_ns: u64, ppm: u32) -> Change {
        if self.phase != Phase::Running {
            return Change::Void("nothing runs");
        }
        if !FACTORS_PPM.contains(&ppm) {
            return Change::Void("a rate can be changed to 0.001 to 1000 times what was asked for");
        }
        if at_ns < self.sent_before_ns().saturating_add(CLOCKS_APART) {
            return Change::Void(TOO_LATE);
        }
        let range = flow.map_or_else(|| 1..=self.flows(), |flow| flow..=flow);
        let goes_on = |flow: &u32| self.word(*flow).is_some_and(|w| w.stage() < Stage::Stopped);
        let flows: Vec<u32> = range.filter(goes_on).collect();
        if flows.is_empty() {
            return Change::Void("no such flow goes on");
        }
        let able = |flow: &u32| {
            let changes = self.rates(*flow);
            changes.len() < MOST_CHANGES && changes.last().is_none_or(|last| last.at_ns < at_ns)
        };
        if !flows.iter().all(able) {
            return Change::Void(match flow {
                Some(_) => "its last change is yet to come, or it has had too many",
                None => {
                    "the last change of one of them is yet to come, or one has had too many: none is changed"
                }
            });
        }
        for flow in &flows {
            self.rates.entry(*flow).or_default().push(RateChange { at_ns, ppm });
        }
        Change::Flows(flows)
    }

    fn reassign(&mut self, flow: u32, to: u32) -> Change {
        let Some(word) = self.word(flow) else { return Change::Void("there is no such flow") };
        if !self.holders.contains(&to) || self.rules.console == Some(to) {
            return Change::Void("that node cannot send it");
        }
        if word.owner() == Some(to) {
            return Change::Void("that node sends it already");
        }
        match word.stage() {
            Stage::Waiting => {
                self.set(flow, Word::new(Stage::Waiting, Some(to), word.fence().wrapping_add(1)));
            }
            Stage::Running | Stage::Handing if word.owner().is_some() => {
                self.heirs.insert(flow, to);
                self.set(flow, Word::new(Stage::Handing, word.owner(), word.fence()));
            }
            _ => return Change::Void("the flow does not go on"),
        }
        Change::Flows(vec![flow])
    }

    /// Gives owners to flows that have none, or whose owner is not there.
    fn settle_owners(&mut self) -> Change {
        let mut load: BTreeMap<u32, usize> = self.holders.iter().map(|slot| (*slot, 0)).collect();
        if let Some(console) = self.rules.console {
            load.remove(&console);
        }
        let mut lost = Vec::new();
        for (word, flow) in self.words.iter().zip(1..) {
            if word.stage() >= Stage::Stopped {
                continue;
            }
            match word.owner().and_then(|owner| load.get_mut(&owner)) {
                Some(count) => *count += 1,
                // An owner that is in gets the description yet.
                None if word.owner().is_some_and(|owner| self.members.contains_key(&owner)) => {}
                None => lost.push(flow),
            }
        }
        let mut moved = Vec::new();
        for flow in lost {
            let (Some(word), Some(route)) = (self.word(flow), self.route(flow)) else { continue };
            let home = load.contains_key(&route.from).then_some(route.from);
            let other = || {
                let free = load.iter().map(|(slot, count)| (*slot == route.to, *count, *slot));
                free.min().map(|(_, _, slot)| slot)
            };
            let owner = match self.rules.failover {
                Failover::Wait => home,
                Failover::Move => home.or_else(other),
            };
            // A flow that no member can send had no owner before either, or gets a fence with the next.
            let fence =
                if word.owner().is_some() { word.fence().wrapping_add(1) } else { word.fence() };
            if owner == word.owner() {
                continue;
            }
            if let Some(owner) = owner {
                *load.entry(owner).or_insert(0) += 1;
            }
            self.set(flow, Word::new(word.stage(), owner, fence));
            moved.push(flow);
        }
        Change::Flows(moved)
    }
}

/// Index of a flow in the tables; `None` for number 0.
fn place(flow: u32) -> Option<usize> {
    usize::try_from(flow.checked_sub(1)?).ok()
}
