//! Members and views.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use itg_core::streams::fnv1a;
use itg_process::Slot;
use serde::{Deserialize, Serialize};

use crate::radix::{Arity, Tree};
use crate::roster::{Changes, Roster};

/// An incarnation of a process: strictly larger numbers at each start on its slot, from 1.
///
/// The slot stands for the name of the host: the runtime's address map is the replicated map of names.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Member {
    /// Its address.
    pub slot: Slot,
    /// Number of the incarnation in its slot.
    pub incarnation: u64,
}

impl Member {
    /// The member that a process is which starts on a slot for the `start`th time, from 1. Between
    /// two starts there is room for 65 535 incarnations that begin with an exclusion.
    #[must_use]
    pub const fn born(slot: Slot, start: u64) -> Self {
        Self { slot, incarnation: (start.saturating_sub(1) << 16) + 1 }
    }

    /// This incarnation of this slot.
    #[must_use]
    pub const fn new(slot: Slot, incarnation: u64) -> Self {
        Self { slot, incarnation }
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.slot, self.incarnation)
    }
}

/// Name of a message: the member that cast it, and its number there, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id {
    /// Member that cast it.
    pub origin: Member,
    /// Its number among the messages of that incarnation.
    pub seq: u64,
}

impl Id {
    /// Before all others.
    pub const FIRST: Self = Self { origin: Member::new(Slot(0), 0), seq: 0 };
}

/// Positions of members in the tree of a view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Shape {
    /// At their slots; the children of failed members go to the next member above.
    #[default]
    Contract,
    /// At their ranks among the members: no member has more children than the arity.
    Rerank,
    /// A planted fault (15): below the home grandparent when the home parent has failed, whichever
    /// members are left.
    #[cfg(debug_assertions)]
    Grandparent,
}

/// Rule by which the next root is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RootPolicy {
    /// The member that entered first; among equals the lowest slot. One that comes back displaces
    /// none.
    #[default]
    Oldest,
    /// The lowest slot, as in the paper.
    Lowest,
}

/// Rules that all views of a group share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// Arity of the tree.
    pub arity: Arity,
    /// Most members of the core; groups of up to 7 are all core.
    pub core: u8,
    /// Rule by which the next root is found.
    pub root_policy: RootPolicy,
}

impl Default for Rules {
    fn default() -> Self {
        Self { arity: Arity::FOUR, core: 5, root_policy: RootPolicy::Oldest }
    }
}

/// Groups of up to this many members are all core.
const ALL_CORE: u32 = 7;

/// An entry of the ordered log: what follows view `base`. Void when the view is another one by then.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ViewChange {
    /// Number of the view that it changes.
    pub base: u64,
    /// Members that leave and that come.
    pub changes: Changes,
    /// A new shape of the tree, if it changes.
    pub shape: Option<Shape>,
}

/// The members of the group, agreed. A clone is one pointer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View(Arc<Content>);

#[derive(Debug, PartialEq, Eq)]
struct Content {
    lineage: u64,
    no: u64,
    roster: Roster,
    root: Member,
    shape: Shape,
    rules: Rules,
    core: Box<[Member]>,
    digest: u64,
}

/// Parts of a view that travel; the rest follows from them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewParts {
    /// Groups that were formed apart never mix.
    pub lineage: u64,
    /// Number, from 1.
    pub no: u64,
    /// Its members.
    pub roster: Roster,
    /// Slot of its root.
    pub root: Slot,
    /// Shape of the tree.
    pub shape: Shape,
    /// Rules that all views of the group share.
    pub rules: Rules,
}

/// Parts that make no view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ViewError {
    /// Runs overlap, are empty, or beyond the last slot.
    #[error("the members of a view are out of order")]
    Roster,
    /// The root is not a member.
    #[error("the root {0} of a view is not a member")]
    Root(Slot),
}

impl TryFrom<ViewParts> for View {
    type Error = ViewError;

    fn try_from(parts: ViewParts) -> Result<Self, ViewError> {
        if !parts.roster.is_sound() {
            return Err(ViewError::Roster);
        }
        let ViewParts { lineage, no, roster, root, shape, rules } = parts;
        let root = roster.at(root).ok_or(ViewError::Root(root))?;
        let core = core(&roster, rules);
        Ok(Content { lineage, no, roster, root, shape, rules, core, digest: 0 }.sealed())
    }
}

impl View {
    /// The default view of `n` processes, which every process computes without a message: slots 0
    /// to `n` in their first incarnations, root 0.
    ///
    /// # Panics
    /// If `n` is 0.
    #[must_use]
    pub fn first(n: u32, rules: Rules) -> Self {
        let (roster, root) = (Roster::first(n), Slot(0));
        Self::try_from(ViewParts { lineage: 1, no: 1, roster, root, shape: Shape::Contract, rules })
            .expect("process 0 is a member")
    }

    /// The view that follows; `None` when no member would be left.
    ///
    /// The root is `root` if that is a member then, else the present one if it stays, else the first in
    /// succession; under [`RootPolicy::Lowest`] it is the lowest slot.
    #[must_use]
    pub fn next(&self, change: &ViewChange, root: Option<Member>) -> Option<Self> {
        self.at_no(self.0.no + 1, &change.changes, change.shape, root)
    }

    /// As [`View::next`], with a number of its own above the present one.
    #[must_use]
    pub fn at_no(
        &self,
        no: u64,
        changes: &Changes,
        shape: Option<Shape>,
        root: Option<Member>,
    ) -> Option<Self> {
        let roster = self.0.roster.with(changes, no);
        let stays = |member: &Member| roster.contains(*member);
        let root = match self.0.rules.root_policy {
            RootPolicy::Oldest => [root, Some(self.0.root)].into_iter().flatten().find(stays),
            RootPolicy::Lowest => None,
        };
        let root = root.or_else(|| succession(&roster, self.0.rules.root_policy).next())?;
        let (rules, core) = (self.0.rules, core(&roster, self.0.rules));
        let shape = shape.unwrap_or(self.0.shape);
        let lineage = self.0.lineage;
        Some(Content { lineage, no, roster, root, shape, rules, core, digest: 0 }.sealed())
    }

    /// Groups that were formed apart have different lineages.
    #[must_use]
    pub fn lineage(&self) -> u64 {
        self.0.lineage
    }

    /// Its number, from 1.
    #[must_use]
    pub fn no(&self) -> u64 {
        self.0.no
    }

    /// Its members.
    #[must_use]
    pub fn roster(&self) -> &Roster {
        &self.0.roster
    }

    /// Returns true if exactly this incarnation is in the view.
    #[must_use]
    pub fn contains(&self, member: Member) -> bool {
        self.0.roster.contains(member)
    }

    /// The member on a slot.
    #[must_use]
    pub fn at(&self, slot: Slot) -> Option<Member> {
        self.0.roster.at(slot)
    }

    /// Number of members.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.0.roster.len()
    }

    /// Never: a view has members.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.roster.is_empty()
    }

    /// All slots that are in, ascending.
    pub fn slots(&self) -> impl Iterator<Item = Slot> {
        self.0.roster.members().map(|member| member.slot)
    }

    /// Root of the tree, and address for requests. Safety never depends on it.
    #[must_use]
    pub fn root(&self) -> Member {
        self.0.root
    }

    /// Shape of the tree.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.0.shape
    }

    /// Rules that all views of the group share.
    #[must_use]
    pub fn rules(&self) -> Rules {
        self.0.rules
    }

    /// Members whose majority decides, in the order of succession.
    #[must_use]
    pub fn core(&self) -> &[Member] {
        &self.0.core
    }

    /// Members of the core that make a majority.
    #[must_use]
    pub fn majority(&self) -> usize {
        self.0.core.len() / 2 + 1
    }

    /// Hash of all other fields: two views of one number differ only when their digests do.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.0.digest
    }

    /// Its tree.
    #[must_use]
    pub fn tree(&self) -> Tree<'_> {
        Tree::new(&self.0.roster, self.0.root.slot, self.0.rules.arity, self.0.shape)
    }

    /// All members in the order in which they lead.
    pub fn succession(&self) -> impl Iterator<Item = Member> {
        succession(&self.0.roster, self.0.rules.root_policy)
    }

    /// The first in succession that is not among these.
    #[must_use]
    pub fn successor(&self, without: &BTreeSet<Member>) -> Option<Member> {
        self.succession().find(|member| !without.contains(member))
    }

    /// Its parts that travel.
    #[must_use]
    pub fn parts(&self) -> ViewParts {
        ViewParts {
            lineage: self.0.lineage,
            no: self.0.no,
            roster: self.0.roster.clone(),
            root: self.0.root.slot,
            shape: self.0.shape,
            rules: self.0.rules,
        }
    }
}

impl Content {
    fn sealed(mut self) -> View {
        self.digest = self.hash();
        View(Arc::new(self))
    }

    /// FNV-1a over all other fields in fixed width.
    fn hash(&self) -> u64 {
        let policy = u8::from(self.rules.root_policy == RootPolicy::Lowest);
        let shape = u8::from(self.shape == Shape::Rerank);
        let mut bytes = Vec::with_capacity(64 + 24 * self.roster.runs().len());
        for word in [self.lineage, self.no, self.root.slot.0.into(), self.root.incarnation] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(self.rules.arity.get().to_le_bytes());
        bytes.extend([self.rules.core, policy, shape]);
        for run in self.roster.runs() {
            bytes.extend(run.span.first.to_le_bytes());
            bytes.extend(run.span.len.to_le_bytes());
            bytes.extend(run.span.incarnation.to_le_bytes());
            bytes.extend(run.entered.to_le_bytes());
        }
        fnv1a(&bytes)
    }
}

/// All members in the order in which they lead.
fn succession(roster: &Roster, policy: RootPolicy) -> impl Iterator<Item = Member> + use<> {
    let mut runs = roster.runs().to_vec();
    if policy == RootPolicy::Oldest {
        runs.sort_by_key(|run| (run.entered, run.span.first));
    }
    runs.into_iter().flat_map(|run| run.span.members())
}

fn core(roster: &Roster, rules: Rules) -> Box<[Member]> {
    let n = roster.len();
    let most = if n <= ALL_CORE { n } else { u32::from(rules.core.max(1)) };
    succession(roster, rules.root_policy).take(most as usize).collect()
}
