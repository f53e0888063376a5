//! What must hold of views, whatever happens: oracles that see the events of all processes.
//!
//! A membership says which view it makes, change by change (`view made`, `view gone`, `view new`), and
//! every process which one it installs (`installed`). The oracle builds the views again from the changes
//! and holds their digests against the installed ones, so it needs nothing of the processes but their
//! events, which come from a simulation or from the traces of real processes.
//!
//! | property | what |
//! |---|---|
//! | V1 | who installs a view is in it |
//! | V5 | views of one number are one |
//! | V7 | the numbers that an incarnation installs increase |
//! | V8 | acknowledgements come from children, and the tree of each view spans its members |
//! | V9 | a view has one root |
//! | V10 | a dead incarnation installs nothing after the view that removed it |
//! | V12 | in the end the live have one view, and it is of the live |

use std::collections::{BTreeMap, BTreeSet};

use itg_process::{Event, Slot};

use crate::member::{Member, View};
use crate::roster::Changes;

/// A view under construction: the changes that its maker names.
#[derive(Debug, Default)]
struct Making {
    no: u64,
    base: u64,
    root: u32,
    removed: Vec<Member>,
    added: Vec<Member>,
}

/// What one process has done.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    incarnation: u64,
    installed: Option<u64>,
    excluded: bool,
    up: bool,
}

/// The oracle of views.
#[derive(Debug)]
pub struct Views {
    views: BTreeMap<u64, View>,
    making: BTreeMap<Slot, Making>,
    processes: BTreeMap<Slot, Seen>,
    /// Views up to which trees are checked member by member.
    most_in_tree: u32,
    changes: u64,
}

impl Views {
    /// Processes that begin with this view.
    #[must_use]
    pub fn new(first: View) -> Self {
        Self {
            views: BTreeMap::from([(first.no(), first)]),
            making: BTreeMap::new(),
            processes: BTreeMap::new(),
            most_in_tree: 2048,
            changes: 0,
        }
    }

    /// A process has started for the `start`th time, from 1.
    pub fn started(&mut self, slot: Slot, start: u64) {
        let incarnation = Member::born(slot, start).incarnation;
        let seen = Seen { incarnation, up: true, ..Seen::default() };
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
        let [a, b, c] = event.values;
        let slot_of = |value: u64| u32::try_from(value).map(Slot).map_err(|_| "V2: no slot");
        match event.name {
            "view made" => {
                let root = slot_of(c)?.0;
                self.making.insert(slot, Making { no: a, base: b, root, ..Making::default() });
            }
            "view gone" => {
                let member = Member::new(slot_of(b)?, c);
                self.making.entry(slot).or_default().removed.push(member);
            }
            "view new" => {
                let member = Member::new(slot_of(b)?, c);
                self.making.entry(slot).or_default().added.push(member);
            }
            "installed" => {
                if let Some(making) = self.making.remove(&slot) {
                    self.made(slot, &making, b)?;
                }
                return self.installed(slot, a, b, c);
            }
            "excluded" => {
                if let Some(seen) = self.processes.get_mut(&slot) {
                    seen.excluded = true;
                }
            }
            "digests differ" => {
                return Err(format!("V5: view {a} is {b:016x} at {slot} and {c:016x} at a child"));
            }
            "not a child" => {
                return Err(format!(
                    "V8: {slot} got the acknowledgement of view {a} from {b}, which is not its child"
                ));
            }
            _ => {}
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
        let shapes = [None, Some(crate::member::Shape::Rerank)];
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
        self.changes += 1;
        self.views.insert(*no, view);
        Ok(())
    }

    fn installed(&mut self, slot: Slot, no: u64, digest: u64, life: u64) -> Result<(), String> {
        let Some(view) = self.views.get(&no) else {
            return Err(format!("V6: {slot} installs view {no}, which nobody has made"));
        };
        if view.digest() != digest {
            return Err(format!("V5: view {no} at {slot} is not that of the others"));
        }
        let me = Member::new(slot, life);
        if !view.contains(me) {
            return Err(format!("V1: {me} installs view {no} and is not in it"));
        }
        let seen =
            self.processes.entry(slot).or_insert_with(|| Seen { up: true, ..Seen::default() });
        if life < seen.incarnation {
            return Err(format!("V10: {me} installs view {no} after its next life has begun"));
        }
        if life > seen.incarnation {
            *seen = Seen { incarnation: life, up: true, ..Seen::default() };
        }
        if seen.installed.is_some_and(|last| no <= last) {
            let last = seen.installed.unwrap_or(0);
            return Err(format!("V7: {me} installs view {no} after view {last}"));
        }
        seen.installed = Some(no);
        Ok(())
    }

    /// V12: whether all that are up and not excluded have one view, which is of exactly them.
    ///
    /// # Errors
    /// Who differs.
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

    /// Whether nothing can be decided any more: of the core of the last view no majority is left that
    /// remembers it.
    #[must_use]
    pub fn majority_is_gone(&self) -> bool {
        let Some(view) = self.views.values().next_back() else { return true };
        let remembers = |member: &&Member| {
            let seen = self.processes.get(&member.slot);
            seen.is_some_and(|seen| seen.up && seen.incarnation == member.incarnation)
        };
        view.core().iter().filter(remembers).count() < view.majority()
    }

    fn live(&self) -> impl Iterator<Item = Member> {
        let up = self.processes.iter().filter(|(_, seen)| seen.up && !seen.excluded);
        up.map(|(slot, seen)| Member::new(*slot, seen.incarnation))
    }
}

/// Whether the tree of a view spans its members, parents and children agree, and there is one root.
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
