//! Home positions, and the tree of a view.
//!
//! Each slot has a home position in a complete tree of arity `a`, for ever. The tree of a view is a
//! function of the view: a member's parent is its nearest home ancestor that is in, or the root when
//! there is none. It needs no state and no messages, and two members that have the same view have the
//! same tree. Costs: `parent` O(log n · log r), `children` as many times more as dead positions have to
//! be passed, where r is the number of runs of the roster.
//!
//! Repeating the four-step deletion of the paper (children of a failed member go to its parent), in
//! any order, yields this function; a property test holds both against each other. With the shape
//! [`Shape::Rerank`] positions are ranks among the members instead of slots: no member has more
//! than `a` children, but most members move when a low rank leaves.
//!
//! Source: Varma et al., *Scalable, fault tolerant membership for MPI tasks on HPC systems*, ICS 2006;
//! home positions, reranking and acting roots other than the lowest slot are ours.

use std::fmt;

use itg_process::Slot;
use serde::{Deserialize, Serialize};

use crate::member::Shape;
use crate::roster::{MAX_SLOTS, Roster};

/// Number of children of a home position: a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Arity {
    bits: u8,
}

/// A number that is no arity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("arity {0}: expected 2, 4, 8 or 16")]
pub struct ArityError(pub u32);

impl TryFrom<u32> for Arity {
    type Error = ArityError;

    fn try_from(a: u32) -> Result<Self, ArityError> {
        match a {
            2 => Ok(Self { bits: 1 }),
            4 => Ok(Self::FOUR),
            8 => Ok(Self { bits: 3 }),
            16 => Ok(Self { bits: 4 }),
            _ => Err(ArityError(a)),
        }
    }
}

impl From<Arity> for u32 {
    fn from(arity: Arity) -> Self {
        arity.get()
    }
}

impl fmt::Display for Arity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

impl Arity {
    /// The default.
    pub const FOUR: Self = Self { bits: 2 };

    /// The number.
    #[must_use]
    pub const fn get(self) -> u32 {
        1 << self.bits
    }

    /// Home parent of a position; none of position 0.
    #[must_use]
    pub const fn parent(self, position: u32) -> Option<u32> {
        match position.checked_sub(1) {
            Some(before) => Some(before >> self.bits),
            None => None,
        }
    }

    /// The first home child of a position.
    #[must_use]
    pub const fn first_child(self, position: u32) -> u32 {
        (position << self.bits) + 1
    }

    /// First position of a level that has one of 32 bits.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "a position")]
    pub const fn level_start(self, level: u32) -> u32 {
        (((1_u64 << (self.bits as u32 * level)) - 1) / (self.get() as u64 - 1)) as u32
    }

    /// Level of a position; the root is on level 0.
    #[must_use]
    pub const fn level(self, position: u32) -> u32 {
        // Position i is on level l when (a^l - 1)/(a - 1) <= i, so when a^l <= (a - 1) i + 1.
        let scaled = (self.get() as u64 - 1) * position as u64 + 1;
        scaled.ilog2() / self.bits as u32
    }

    /// Place of a position within its level.
    #[must_use]
    pub const fn index(self, position: u32) -> u32 {
        position - self.level_start(self.level(position))
    }

    /// The child to take at each level on the way from the root.
    #[must_use]
    pub fn path(self, position: u32) -> Vec<u32> {
        let (level, index) = (self.level(position), self.index(position));
        let bits = u32::from(self.bits);
        (0..level).rev().map(|at| (index >> (at * bits)) & (self.get() - 1)).collect()
    }

    /// Number of levels of the complete tree of `n` positions.
    #[must_use]
    pub const fn height(self, n: u32) -> u32 {
        if n == 0 { 0 } else { self.level(n - 1) + 1 }
    }
}

/// The tree of a view.
#[derive(Clone, Copy, Debug)]
pub struct Tree<'a> {
    roster: &'a Roster,
    root: Slot,
    arity: Arity,
    shape: Shape,
}

impl<'a> Tree<'a> {
    /// The tree of these members under this root, which is one of them.
    #[must_use]
    pub const fn new(roster: &'a Roster, root: Slot, arity: Arity, shape: Shape) -> Self {
        Self { roster, root, arity, shape }
    }

    /// The member above this one; none above the root and above those that are not in.
    #[must_use]
    pub fn parent(&self, slot: Slot) -> Option<Slot> {
        if slot == self.root || self.roster.at(slot).is_none() {
            return None;
        }
        match self.shape {
            Shape::Contract => {
                let mut at = slot.0;
                while let Some(above) = self.arity.parent(at) {
                    if self.roster.at(Slot(above)).is_some() {
                        return Some(Slot(above));
                    }
                    at = above;
                }
                Some(self.root)
            }
            Shape::Rerank => self.arity.parent(self.position(slot)).and_then(|p| self.placed(p)),
            #[cfg(debug_assertions)]
            Shape::Grandparent => {
                let lives = |position: &u32| self.roster.at(Slot(*position)).is_some();
                let home = self.arity.parent(slot.0);
                let above = home.filter(lives).or_else(|| self.arity.parent(home?));
                above.map(Slot).or(Some(self.root))
            }
        }
    }

    /// The members below this one, in ascending order of their positions.
    #[must_use]
    pub fn children(&self, slot: Slot) -> Vec<Slot> {
        let mut found = Vec::new();
        if self.roster.at(slot).is_none() {
            return found;
        }
        match self.shape {
            Shape::Contract => {
                self.below(slot.0, &mut found);
                if slot == self.root {
                    // Those without a home ancestor that is in.
                    self.descend(0, &mut found);
                }
                // The root is no member's child.
                found.retain(|child| *child != self.root);
                found.sort_unstable();
            }
            #[cfg(debug_assertions)]
            Shape::Grandparent => {
                let slots = self.roster.members().map(|member| member.slot);
                found.extend(slots.filter(|child| self.parent(*child) == Some(slot)));
            }
            Shape::Rerank => {
                let first = self.arity.first_child(self.position(slot));
                found.extend((first..first + self.arity.get()).map_while(|p| self.placed(p)));
            }
        }
        found
    }

    /// Number of levels.
    #[must_use]
    pub fn height(&self) -> u32 {
        let mut level = vec![self.root];
        let mut height = 0;
        while !level.is_empty() {
            height += 1;
            level = level.into_iter().flat_map(|slot| self.children(slot)).collect();
        }
        height
    }

    /// Largest number of children.
    #[must_use]
    pub fn fan_out(&self) -> usize {
        self.roster.members().map(|member| self.children(member.slot).len()).max().unwrap_or(0)
    }

    /// The highest members of the home subtree of a position.
    fn descend(&self, position: u32, found: &mut Vec<Slot>) {
        if self.roster.at(Slot(position)).is_some() {
            found.push(Slot(position));
        } else if self.any_below(position) {
            self.below(position, found);
        }
    }

    fn below(&self, position: u32, found: &mut Vec<Slot>) {
        let first = self.arity.first_child(position);
        for child in first..first + self.arity.get() {
            if child < self.roster.capacity() {
                self.descend(child, found);
            }
        }
    }

    /// Returns true if a member stands in the home subtree of a position.
    fn any_below(&self, position: u32) -> bool {
        let (mut first, mut width) = (self.arity.first_child(position), self.arity.get());
        while first < self.roster.capacity() {
            if self.roster.any_in(first..first + width) {
                return true;
            }
            first = self.arity.first_child(first);
            width *= self.arity.get();
        }
        false
    }

    /// Position among the members: the root first, then the others by slot.
    fn position(&self, slot: Slot) -> u32 {
        let rank = self.roster.rank(slot);
        match slot.cmp(&self.root) {
            std::cmp::Ordering::Less => rank + 1,
            std::cmp::Ordering::Equal => 0,
            std::cmp::Ordering::Greater => rank,
        }
    }

    fn placed(&self, position: u32) -> Option<Slot> {
        let root = self.roster.rank(self.root);
        match position {
            0 => Some(self.root),
            p if p <= root => self.roster.of_rank(p - 1),
            p => self.roster.of_rank(p),
        }
    }
}

// Positions below the last home child of the last slot fit into 32 bits.
const _: () = assert!(MAX_SLOTS as u64 * 16 * 16 < u32::MAX as u64);
