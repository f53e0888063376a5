//! Properties that must hold of views: oracles that see the events of all processes.
//!
//! A membership says which view it makes, change by change ([`MembershipEvent::ViewMade`], `ViewGone`,
//! `ViewNew`), and every process which one it installs (`Installed`). The oracle builds the views again from the changes
//! and holds their digests against the installed ones, so it needs nothing of the processes but their
//! events, which come from a simulation or from the traces of real processes.
//!
//! | property | what |
//! |---|---|
//! | V1 | a process that installs a view is in it |
//! | V5 | views of one number are one |
//! | V6 | a view that follows another one was voted for by a majority of its core (mode C, with `trace` in `log`) |
//! | V7 | the numbers that an incarnation installs increase |
//! | V8 | acknowledgements come from children, and the tree of each view spans its members |
//! | V9 | a view has one root |
//! | V10 | a dead incarnation installs nothing after the view that removed it |
//! | V11 | a member that is not faulty is removed only if `h` of its observers are (once told which hosts are) |
//! | V12 | in the end the processes that are alive have one view, and it is of exactly these |
//! | V13 | no more views than the failures need (once told how many) |
//!
//! V2, V3 and V4 are those of [`Deliveries`]; whether answers to clients are those of one object is for
//! [`linearize`] to say; what detectors are worth is told by [`Quality`].

mod deliveries;
mod linear;
mod order;
mod quality;

pub use deliveries::Deliveries;
pub use linear::{Call, Sequential, linearize};
pub use order::Order;
pub use quality::{Quality, Times};

use std::collections::{BTreeMap, BTreeSet};

use itg_members::observers::{marks, observers};
use itg_members::{Changes, Member, View};
use itg_process::{Event, Slot};

use crate::cast::CastEvent;
use crate::membership::MembershipEvent;

/// Rounds whose votes are remembered.
const MOST_VOTES: usize = 4096;

/// A view under construction: the changes that its maker names.
#[derive(Debug, Default)]
struct Making {
    no: u64,
    base: u64,
    root: u32,
    removed: Vec<Member>,
    added: Vec<Member>,
}

/// State of one process as its events tell it.
#[derive(Clone, Copy, Debug, Default)]
struct ProcessState {
    incarnation: u64,
    installed: Option<u64>,
    excluded: bool,
    up: bool,
    /// View of the state that its journal gave it when it came back; 0 without one, `None` if it has not come back.
    restored: Option<u64>,
}

/// View that is known by members alone that came back with it, and crashed before they could say how it is made.
#[derive(Debug)]
struct Unannounced {
    digest: u64,
    by: Vec<Member>,
}

/// The oracle of views.
#[derive(Debug)]
pub struct Views {
    views: BTreeMap<u64, View>,
    /// By their numbers; each leaves when another member makes the view.
    unannounced: BTreeMap<u64, Unannounced>,
    making: BTreeMap<Slot, Making>,
    processes: BTreeMap<Slot, ProcessState>,
    /// Views up to which trees are checked member by member.
    most_in_tree: u32,
    changes: u64,
    /// Most view changes that may come.
    allowed: Option<u64>,
    /// Hosts that may be removed, and observers beside parent and children.
    faulty: Option<(BTreeSet<Slot>, u32)>,
    /// Voters for each instance, round and digest of the value.
    votes: BTreeMap<(u64, u32, u64), BTreeSet<Slot>>,
}

impl Views {
    /// Processes that begin with this view.
    #[must_use]
    pub fn new(first: View) -> Self {
        Self {
            views: BTreeMap::from([(first.no(), first)]),
            unannounced: BTreeMap::new(),
            making: BTreeMap::new(),
            processes: BTreeMap::new(),
            most_in_tree: 2048,
            changes: 0,
            allowed: None,
            faulty: None,
            votes: BTreeMap::new(),
        }
    }

    /// V13: from now on so many more view changes are enough.
    pub const fn allow(&mut self, changes: u64) {
        self.allowed = Some(self.changes + changes);
    }

    /// V11: these hosts are faulty and no other is, with `k` observers beside parent and children.
    pub fn only_faulty(&mut self, hosts: impl IntoIterator<Item = Slot>, k: u32) {
        self.faulty = Some((hosts.into_iter().collect(), k));
    }

    /// A process has started for the `start`th time, from 1.
    pub fn started(&mut self, slot: Slot, start: u64) {
        let incarnation = Member::born(slot, start).incarnation;
        let seen = ProcessState { incarnation, up: true, ..ProcessState::default() };
        self.processes.insert(slot, seen);
    }

    /// A process is gone.
    pub fn gone(&mut self, slot: Slot) {
        if let Some(seen) = self.processes.get_mut(&slot) {
            seen.up = false;
        }
    }

    /// Views that have been made, the first one included.
    pub fn views(&self) -> impl Iterator<Item = &View> {
        self.views.values()
    }

    /// View changes so far.
    #[must_use]
    pub const fn changes(&self) -> u64 {
        self.changes
    }

    /// The view that this process has installed last.
    #[must_use]
    pub fn of(&self, slot: Slot) -> Option<&View> {
        self.processes.get(&slot)?.installed.and_then(|no| self.views.get(&no))
    }

    /// A process says something.
    ///
    /// # Errors
    /// The property that does not hold.
    pub fn see(&mut self, slot: Slot, event: &Event) -> Result<(), String> {
        match event.decode() {
            // The member that its journal makes of it; its incarnation counts on from the first one.
            Some(CastEvent::Back { member, .. }) => {
                let incarnation = member & 0xffff_ffff;
                let restored = Some(0);
                let seen =
                    ProcessState { incarnation, up: true, restored, ..ProcessState::default() };
                self.processes.insert(slot, seen);
            }
            // The first one after it came back is that of its journal.
            Some(CastEvent::Install { view, .. }) => {
                if let Some(seen) = self.processes.get_mut(&slot)
                    && seen.installed.is_none()
                    && seen.restored.is_some()
                {
                    seen.restored = Some(view);
                }
            }
            Some(CastEvent::Adopted { instance, round, digest }) => {
                self.votes.entry((instance, round, digest)).or_default().insert(slot);
                while self.votes.len() > MOST_VOTES {
                    self.votes.pop_first();
                }
            }
            Some(CastEvent::Majority { instance, round, digest }) => {
                return self.decided(slot, instance, round, digest);
            }
            _ => {}
        }
        match event.decode() {
            Some(MembershipEvent::ViewMade { no, base, root: Slot(root) }) => {
                self.making.insert(slot, Making { no, base, root, ..Making::default() });
            }
            Some(MembershipEvent::ViewGone { slot: gone, incarnation, .. }) => {
                let member = Member::new(gone, incarnation);
                self.making.entry(slot).or_default().removed.push(member);
            }
            Some(MembershipEvent::ViewNew { slot: new, incarnation, .. }) => {
                let member = Member::new(new, incarnation);
                self.making.entry(slot).or_default().added.push(member);
            }
            Some(MembershipEvent::Installed { no, digest, incarnation }) => {
                if let Some(making) = self.making.remove(&slot) {
                    self.made(slot, &making, digest)?;
                }
                return self.installed(slot, no, digest, incarnation);
            }
            // Of the membership, or of the log below it, which names a member. A log that is back tells once more that
            // names before this one were excluded.
            Some(MembershipEvent::Excluded { incarnation, .. }) => {
                let same =
                    |seen: &&mut ProcessState| (seen.incarnation ^ incarnation) & 0xffff_ffff == 0;
                if let Some(seen) = self.processes.get_mut(&slot).filter(same) {
                    seen.excluded = true;
                }
            }
            Some(MembershipEvent::DigestsDiffer { no, ours, theirs }) => {
                return Err(format!(
                    "V5: view {no} is {ours:016x} at {slot} and {theirs:016x} at a child"
                ));
            }
            Some(MembershipEvent::NotAChild { no, from }) => {
                return Err(format!(
                    "V8: {slot} got the acknowledgement of view {no} from {from}, which is not its child"
                ));
            }
            _ => {}
        }
        Ok(())
    }

    /// V6: a coordinator says that a value is decided; the members that have voted for it are
    /// counted.
    fn decided(&self, slot: Slot, k: u64, round: u32, digest: u64) -> Result<(), String> {
        let first = self.views.values().next();
        let Some(view) = self.of(slot).or(first) else { return Ok(()) };
        let votes = self.votes.get(&(k, round, digest));
        let of_core = |member: &&Member| votes.is_some_and(|votes| votes.contains(&member.slot));
        let count = view.core().iter().filter(of_core).count();
        if count < view.majority() {
            let (no, all) = (view.no(), view.core().len());
            return Err(format!("V6: {count} of the {all} of the core of view {no} decide {k}"));
        }
        Ok(())
    }

    /// V11: returns an error if a removal has no reason.
    fn justified(&self, base: &View, removed: &[Member]) -> Result<(), String> {
        let Some((faulty, k)) = &self.faulty else { return Ok(()) };
        for member in removed.iter().filter(|member| !faulty.contains(&member.slot)) {
            let (h, _) = marks(base, *member, *k);
            let observers = observers(base, member.slot, *k);
            let bad = observers.intersection(faulty).count();
            if bad < h {
                return Err(format!(
                    "V11: {member} is removed, which is not faulty; nor are {h} of its {} observers, \
                     but {bad}",
                    observers.len()
                ));
            }
        }
        Ok(())
    }

    /// A view has been made: it is built again.
    fn made(&mut self, slot: Slot, making: &Making, digest: u64) -> Result<(), String> {
        let Making { no, base, root, removed, added } = making;
        let Some(base) = self.views.get(base) else {
            return Err(format!("V6: view {no} follows view {base}, which nobody has made"));
        };
        let changes = Changes::new(removed.iter().copied(), added.iter().copied());
        let member = |slot: Slot| {
            let new = added.iter().filter(|member| member.slot == slot).max();
            new.copied().or_else(|| base.at(slot))
        };
        let root = member(Slot(*root));
        let shapes = [None, Some(itg_members::Shape::Rerank)];
        let made = shapes
            .into_iter()
            .filter_map(|shape| base.at_no(*no, &changes, shape, root))
            .find(|view| view.digest() == digest);
        let Some(view) = made else {
            return Err(format!(
                "V5: view {no} of {slot} is not what its changes make of view {}",
                base.no()
            ));
        };
        if let Some(other) = self.views.get(no) {
            if other.root() != view.root() {
                let (a, b) = (other.root(), view.root());
                return Err(format!("V9: view {no} has two roots, {a} and {b}"));
            }
            if other.digest() != digest {
                return Err(format!("V5: two views have number {no}"));
            }
            return Ok(());
        }
        if view.len() <= self.most_in_tree {
            spans(&view).map_err(|text| format!("V8: tree of view {no}: {text}"))?;
        }
        self.justified(base, removed)?;
        if let Some(Unannounced { digest: theirs, by }) = self.unannounced.remove(no) {
            if theirs != digest {
                return Err(format!("V5: two views have number {no}"));
            }
            if let Some(odd) = by.iter().find(|member| !view.contains(**member)) {
                return Err(format!("V1: {odd} installs view {no} and is not in it"));
            }
        }
        self.changes += 1;
        self.views.insert(*no, view);
        match self.allowed {
            Some(allowed) if self.changes > allowed => {
                Err(format!("V13: view {no} is change {}, {allowed} were enough", self.changes))
            }
            _ => Ok(()),
        }
    }

    fn installed(
        &mut self,
        slot: Slot,
        no: u64,
        digest: u64,
        incarnation: u64,
    ) -> Result<(), String> {
        let me = Member::new(slot, incarnation);
        let restored = self.processes.get(&slot).and_then(|seen| seen.restored);
        let known = match self.views.get(&no) {
            Some(view) if !view.contains(me) => {
                return Err(format!("V1: {me} installs view {no} and is not in it"));
            }
            Some(view) => view.digest(),
            None if restored == Some(no) => {
                let new = || Unannounced { digest, by: Vec::new() };
                let view = self.unannounced.entry(no).or_insert_with(new);
                view.by.push(me);
                view.digest
            }
            None => return Err(format!("V6: {slot} installs view {no}, which nobody has made")),
        };
        if known != digest {
            return Err(format!("V5: view {no} at {slot} is not that of the others"));
        }
        let seen = self
            .processes
            .entry(slot)
            .or_insert_with(|| ProcessState { up: true, ..ProcessState::default() });
        if incarnation < seen.incarnation {
            return Err(format!(
                "V10: {me} installs view {no} after its next incarnation has begun"
            ));
        }
        if incarnation > seen.incarnation {
            *seen = ProcessState { incarnation, up: true, ..ProcessState::default() };
        }
        if seen.installed.is_some_and(|last| no <= last) {
            let last = seen.installed.unwrap_or(0);
            return Err(format!("V7: {me} installs view {no} after view {last}"));
        }
        seen.installed = Some(no);
        Ok(())
    }

    /// V12: checks that all that are up and not excluded have one view, which is of exactly them.
    ///
    /// # Errors
    /// The member that differs.
    pub fn agreed(&self) -> Result<&View, String> {
        let live: BTreeSet<_> = self.live().collect();
        let mut found: Option<&View> = None;
        for member in &live {
            let Some(view) = self.of(member.slot) else {
                return Err(format!("V12: {member} has no view"));
            };
            let other = *found.get_or_insert(view);
            if other.no() != view.no() {
                let (a, b) = (other.no(), view.no());
                return Err(format!("V12: {member} has view {b}, others have view {a}"));
            }
        }
        let view = found.ok_or("V12: nobody is left")?;
        let members: BTreeSet<_> = view.roster().members().collect();
        if let Some(odd) = members.symmetric_difference(&live).next() {
            let no = view.no();
            let is = if live.contains(odd) { "lives and is not in" } else { "is dead and in" };
            return Err(format!("V12: {odd} {is} view {no}"));
        }
        Ok(view)
    }

    /// Returns true if nothing can be decided any more: of the core of the last view no majority is
    /// left that remembers it.
    #[must_use]
    pub fn majority_is_gone(&self) -> bool {
        let Some(view) = self.views.values().next_back() else { return true };
        let remembers = |member: &&Member| {
            let seen = self.processes.get(&member.slot);
            seen.is_some_and(|seen| seen.up && seen.incarnation == member.incarnation)
        };
        view.core().iter().filter(remembers).count() < view.majority()
    }

    /// Members that run and have not been excluded, as far as they have said.
    pub fn live(&self) -> impl Iterator<Item = Member> {
        let up = self.processes.iter().filter(|(_, seen)| seen.up && !seen.excluded);
        up.map(|(slot, seen)| Member::new(*slot, seen.incarnation))
    }
}

/// Checks that the tree of a view spans its members, parents and children agree, and there is one
/// root.
fn spans(view: &View) -> Result<(), String> {
    let tree = view.tree();
    let mut reached = BTreeSet::from([view.root().slot]);
    let mut next = vec![view.root().slot];
    while let Some(slot) = next.pop() {
        for child in tree.children(slot) {
            if tree.parent(child) != Some(slot) {
                return Err(format!("{child} is a child of {slot}, which is not its parent"));
            }
            if !reached.insert(child) {
                return Err(format!("{child} is reached twice"));
            }
            next.push(child);
        }
    }
    if reached.len() == view.len() as usize {
        return Ok(());
    }
    Err(format!("{} of {} members are reached", reached.len(), view.len()))
}
