//! View of the console on a run, as events ([`itg_run::events`]): from what the group tells, the
//! state that it looks at, and the figures that come up the tree.

use std::collections::{BTreeMap, BTreeSet};

use itg_control::{ControlDelivery, Phase, Replica, Stage};
use itg_engine::clock_pair;
use itg_run::events::{Events, FlowState, MissingNode, NodeState, What};
use itg_run::figures::Figures;
use itg_run::live::{self, Live};
use itg_socket::clock;
use tokio::sync::watch;

use crate::command_report;
use crate::failure_report::cause;
use crate::member::Member;
use crate::missing::{Lack, Missing, Say, Step};

/// The watch over a run.
pub(crate) struct Watch {
    events: Events,
    live: Option<Live>,
    /// Names by slot, the console last.
    names: Vec<String>,
    ready: BTreeSet<u32>,
    members: BTreeSet<u32>,
    flows: BTreeMap<u32, (FlowState, Option<u32>)>,
    /// A view after which not every flow has been seen in order: its number, and when it came.
    unstable: Option<(u64, u64)>,
    figures: Option<watch::Receiver<Figures>>,
    missing: Missing,
}

impl Watch {
    /// The watch over a run that begins now with these nodes.
    pub(crate) fn new(events: Events, live: Option<Live>, nodes: &[&str]) -> Self {
        let console = ["console"];
        let names = nodes.iter().chain(&console).map(|name| (*name).to_owned()).collect();
        Self {
            events,
            live,
            names,
            ready: BTreeSet::new(),
            members: BTreeSet::new(),
            flows: BTreeMap::new(),
            unstable: None,
            figures: None,
            missing: Missing::default(),
        }
    }

    fn name(&self, slot: u32) -> String {
        self.names.get(slot as usize).map_or_else(|| format!("slot {slot}"), Clone::clone)
    }

    fn names(&self, slots: impl IntoIterator<Item = u32>) -> Vec<String> {
        slots.into_iter().map(|slot| self.name(slot)).collect()
    }

    /// Returns true if the terminal is taken, or takes nothing: words have no place on it then.
    pub(crate) fn shows(&self) -> bool {
        self.live.as_ref().is_some_and(Live::is_shown) || live::is_stuck()
    }

    /// Something else worth a word.
    pub(crate) fn word(&self, text: &str) {
        self.events.tell(What::Word { text: text.to_owned() });
    }

    /// The group of the run is formed; these are not in it, with the reason.
    pub(crate) fn formed(&mut self, member: &Member, absent: &BTreeMap<u32, String>) {
        self.figures = Some(member.figures.clone());
        self.members = (0..).take(self.names.len()).collect();
        for slot in self.members.clone() {
            let (node, why) = (self.name(slot), absent.get(&slot).cloned());
            let state = if why.is_some() { NodeState::Absent } else { NodeState::Joined };
            if slot as usize + 1 < self.names.len() {
                self.events.tell(What::Node { node, state, why });
            }
        }
    }

    /// Handles an event of the group.
    pub(crate) fn told(&mut self, tell: &ControlDelivery, member: &Member) {
        match tell {
            ControlDelivery::View { number, slots } => self.view(*number, slots, member),
            ControlDelivery::Applied { position, by, command, void } => {
                let action = command_report::parts(command, |slot| self.name(slot));
                let command = command_report::describe(&action);
                let (position, by, void) = (*position, self.name(*by), void.clone());
                self.events.tell(What::Command { position, by, command, action, void });
            }
            _ => {}
        }
    }

    fn view(&mut self, number: u64, slots: &[u32], member: &Member) {
        let now: BTreeSet<u32> = slots.iter().copied().collect();
        let before = std::mem::replace(&mut self.members, now.clone());
        let left: BTreeSet<u32> = before.difference(&now).copied().collect();
        let came: BTreeSet<u32> = now.difference(&before).copied().collect();
        let at_ns = clock::monotonic_ns();
        let sign = member.failure_report(&left);
        let cause =
            cause(&left, &came, sign.map(|(_, slot, sign)| (slot, sign)), |slot| self.name(slot));
        let agreed_after_ns = sign.map(|(seen_ns, ..)| at_ns.saturating_sub(seen_ns));
        let (members, gone) = (self.names(now.iter().copied()), self.names(left.iter().copied()));
        let returned = self.names(came.iter().copied());
        let (left_names, came_names) = (gone.clone(), returned.clone());
        let view = What::View {
            number,
            members,
            left: gone,
            came: returned,
            cause: cause.clone(),
            agreed_after_ns,
        };
        self.events.tell(view);
        for slot in left {
            self.ready.remove(&slot);
        }
        let left = (left_names, NodeState::Left, Some(cause));
        for (nodes, state, why) in [left, (came_names, NodeState::Joined, None)] {
            for node in nodes.into_iter().filter(|node| Some(node) != self.names.last()) {
                self.events.tell(What::Node { node, state, why: why.clone() });
            }
        }
        self.unstable = Some((number, at_ns));
    }

    /// The state, as this member knows it: what is new about nodes and flows.
    pub(crate) fn look(&mut self, replica: &Replica) {
        for slot in replica.holders().iter().copied().filter(|slot| self.members.contains(slot)) {
            if self.ready.insert(slot) {
                let node = self.name(slot);
                self.events.tell(What::Node { node, state: NodeState::Ready, why: None });
            }
        }
        let mut in_order = true;
        for (word, flow) in replica.words().iter().zip(1_u32..) {
            let state = match word.stage() {
                Stage::Waiting => FlowState::Waiting,
                Stage::Running => FlowState::Running,
                Stage::Handing => FlowState::Handing,
                Stage::Stopped => FlowState::Stopped,
                Stage::Finished => FlowState::Finished,
            };
            let owner = word.owner();
            let there = owner.is_some_and(|owner| self.members.contains(&owner));
            in_order &= matches!(state, FlowState::Stopped | FlowState::Finished)
                || (there && state == FlowState::Running);
            let before = self.flows.insert(flow, (state, owner));
            if before != Some((state, owner)) {
                let before =
                    before.and_then(|(_, before)| before).filter(|before| Some(*before) != owner);
                self.events.tell(What::Flow {
                    flow,
                    state,
                    owner: owner.map(|slot| self.name(slot)),
                    before: before.map(|slot| self.name(slot)),
                });
            }
        }
        if let Some((view, since_ns)) = self.unstable
            && in_order
            && replica.phase() >= Phase::Running
        {
            let after_ns = clock::monotonic_ns().saturating_sub(since_ns);
            self.events.tell(What::Stable { view, after_ns });
            self.unstable = None;
        }
        let figures =
            self.figures.as_mut().filter(|figures| figures.has_changed().unwrap_or(false));
        if let Some(figures) = figures {
            let sum = figures.borrow_and_update().clone();
            self.events.statistics(&sum);
        }
    }

    /// Looks which of these nodes are there, and tells of the others each second; returns a line for people when it is
    /// time for one.
    pub(crate) fn miss(
        &mut self,
        nodes: &BTreeSet<u32>,
        there: &BTreeSet<u32>,
        step: &Step,
    ) -> Option<String> {
        let now = clock_pair::reading();
        let (lack, line) = match self.missing.look(now.monotonic_ns, nodes, there, step) {
            Say::Nothing => return None,
            Say::Whole => {
                let text = "nobody is missing any more".to_owned();
                self.word(&text);
                return Some(text);
            }
            Say::Lack(lack, line) => (lack, line),
        };
        let text = line.then(|| self.describe_lack(&lack, step, now.monotonic_ns));
        let boot_ns = now.unix_ns.saturating_sub(now.monotonic_ns);
        let nodes = lack.nodes.iter().map(|(slot, since)| MissingNode {
            node: self.name(*slot),
            since_unix_ns: boot_ns.saturating_add(*since),
        });
        self.events.tell(What::Missing {
            nodes: nodes.collect(),
            waits_for: lack.waits_for,
            gives_up_unix_ns: lack.gives_up_ns.map(|at| boot_ns.saturating_add(at)),
        });
        text
    }

    /// Returns true if nothing could be agreed for so long that the run is given up.
    pub(crate) fn gives_up(&self) -> bool {
        self.missing.gives_up(clock::monotonic_ns())
    }

    /// A lack of nodes in words.
    fn describe_lack(&self, lack: &Lack, step: &Step, now_ns: u64) -> String {
        let seconds = |ns: u64| ns / 1_000_000_000;
        // Nodes that are reached may be slow.
        let what = if matches!(step, Step::Loading(_)) { "not ready" } else { "missing" };
        let names: Vec<String> = lack
            .nodes
            .iter()
            .map(|(slot, since)| {
                format!("{} for {} s", self.name(*slot), seconds(now_ns.saturating_sub(*since)))
            })
            .collect();
        let names = if names.is_empty() { "agreement".to_owned() } else { names.join(", ") };
        let end = lack.gives_up_ns.map_or_else(
            || "no time limit".to_owned(),
            |at| format!("gives up in {} s", seconds(at.saturating_sub(now_ns))),
        );
        format!("{what}: {names}; waits for {}; {end}", lack.waits_for)
    }

    /// All flows have ended: the terminal is given back.
    pub(crate) fn close(&mut self) {
        self.live = None;
    }
}
