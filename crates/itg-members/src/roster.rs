//! Sets of members as runs of slots, and changes of them.
//!
//! Neighbouring slots mostly share one history: the same incarnation, entered in the same view. A
//! roster keeps such runs, so that the view of 100 000 processes that have all started once is one run
//! of 24 bytes, and each irregularity costs two more. Lookups are binary searches.

use std::ops::Range;

use itg_process::Slot;
use serde::{Deserialize, Serialize};

use crate::member::Member;

/// Slots are below this: 2²⁰.
pub const MAX_SLOTS: u32 = 1 << 20;

/// Neighbouring slots whose members have one incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Span {
    /// The first slot.
    pub first: u32,
    /// Number of slots, at least 1.
    pub len: u32,
    /// The incarnation of each.
    pub incarnation: u64,
}

impl Span {
    /// The slot behind the last one.
    #[must_use]
    pub const fn end(self) -> u32 {
        self.first.saturating_add(self.len)
    }

    /// Its members.
    pub fn members(self) -> impl Iterator<Item = Member> {
        (self.first..self.end()).map(move |slot| Member::new(Slot(slot), self.incarnation))
    }

    const fn is_sound(self) -> bool {
        self.len > 0 && self.end() <= MAX_SLOTS && self.incarnation > 0
    }
}

/// Members that entered in one view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Run {
    /// The members.
    pub span: Span,
    /// Number of the view in which they entered.
    pub entered: u64,
}

/// Something that stands on a span and can be cut.
trait Piece: Copy {
    fn span(&self) -> Span;
    fn part(self, slots: Range<u32>) -> Self;
}

impl Piece for Span {
    fn span(&self) -> Span {
        *self
    }
    fn part(self, slots: Range<u32>) -> Self {
        Self { first: slots.start, len: slots.end - slots.start, ..self }
    }
}

impl Piece for Run {
    fn span(&self) -> Span {
        self.span
    }
    fn part(self, slots: Range<u32>) -> Self {
        Self { span: self.span.part(slots), ..self }
    }
}

/// The parts of `from` without the slots where a span of `by` stands and `drops` says so, given
/// both incarnations. Both are sorted and disjoint.
fn subtract<P: Piece, B: Piece>(from: &[P], by: &[B], drops: impl Fn(u64, u64) -> bool) -> Vec<P> {
    let mut left = Vec::with_capacity(from.len() + by.len());
    let mut next = 0;
    for piece in from {
        let whole = piece.span();
        let mut at = whole.first;
        while by.get(next).is_some_and(|other| other.span().end() <= at) {
            next += 1;
        }
        for other in &by[next..] {
            let other = other.span();
            if other.first >= whole.end() {
                break;
            }
            let cut = other.first.max(at)..other.end().min(whole.end());
            if !drops(whole.incarnation, other.incarnation) {
                continue;
            }
            if at < cut.start {
                left.push(piece.part(at..cut.start));
            }
            at = cut.end;
        }
        if at < whole.end() {
            left.push(piece.part(at..whole.end()));
        }
    }
    left
}

/// Members as spans: sorted, neighbours of one incarnation joined. Of several members of one slot the
/// last incarnation counts.
fn spans(members: impl IntoIterator<Item = Member>) -> Vec<Span> {
    let mut members: Vec<_> = members.into_iter().collect();
    members.sort_unstable();
    let mut spans: Vec<Span> = Vec::new();
    for (i, member) in members.iter().enumerate() {
        if members.get(i + 1).is_some_and(|next| next.slot == member.slot) {
            continue;
        }
        let one = Span { first: member.slot.0, len: 1, incarnation: member.incarnation };
        match spans.last_mut() {
            Some(last) if last.end() == one.first && last.incarnation == one.incarnation => {
                last.len += 1;
            }
            _ => spans.push(one),
        }
    }
    spans
}

/// Returns true if spans are sound, sorted and disjoint.
fn in_order(spans: impl Iterator<Item = Span>) -> bool {
    let mut end = 0;
    for span in spans {
        if !span.is_sound() || span.first < end {
            return false;
        }
        end = span.end();
    }
    true
}

/// Members that leave and that come in one view change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Changes {
    removed: Vec<Span>,
    added: Vec<Span>,
}

impl Changes {
    /// These leave, those come. A slot may do both: its old incarnation leaves and a new one comes.
    #[must_use]
    pub fn new(
        removed: impl IntoIterator<Item = Member>,
        added: impl IntoIterator<Item = Member>,
    ) -> Self {
        Self { removed: spans(removed), added: spans(added) }
    }

    /// Only these leave.
    #[must_use]
    pub fn removal(removed: impl IntoIterator<Item = Member>) -> Self {
        Self::new(removed, [])
    }

    /// Only those come.
    #[must_use]
    pub fn addition(added: impl IntoIterator<Item = Member>) -> Self {
        Self::new([], added)
    }

    /// Returns true if nothing changes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.added.is_empty()
    }

    /// Those that leave.
    pub fn removed(&self) -> impl Iterator<Item = Member> {
        self.removed.iter().flat_map(|span| span.members())
    }

    /// Those that come.
    pub fn added(&self) -> impl Iterator<Item = Member> {
        self.added.iter().flat_map(|span| span.members())
    }

    /// Returns true if spans that came from outside are sound, sorted and disjoint.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        in_order(self.removed.iter().copied()) && in_order(self.added.iter().copied())
    }

    /// These changes and others.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self::new(self.removed().chain(other.removed()), self.added().chain(other.added()))
    }
}

/// A set of members, at most one for each slot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Roster {
    runs: Vec<Run>,
}

impl Roster {
    /// The members of a default view: slots 0 to `n`, first incarnation, entered in view 1.
    #[must_use]
    pub fn first(n: u32) -> Self {
        let span = Span { first: 0, len: n.min(MAX_SLOTS), incarnation: 1 };
        Self { runs: if n == 0 { Vec::new() } else { vec![Run { span, entered: 1 }] } }
    }

    /// The same after changes that make view `no`.
    ///
    /// Removals of members that are not in and additions of members that have been overtaken by a
    /// later incarnation, or are in, change nothing.
    #[must_use]
    pub fn with(&self, changes: &Changes, no: u64) -> Self {
        let left = subtract(&self.runs, &changes.removed, |mine, gone| mine == gone);
        let fresh = subtract(&changes.added, &left, |new, mine| new <= mine);
        let mut runs = subtract(&left, &fresh, |mine, new| mine < new);
        runs.extend(fresh.into_iter().map(|span| Run { span, entered: no }));
        runs.sort_unstable();
        let mut joined: Vec<Run> = Vec::with_capacity(runs.len());
        for run in runs {
            match joined.last_mut() {
                Some(last)
                    if last.span.end() == run.span.first
                        && last.span.incarnation == run.span.incarnation
                        && last.entered == run.entered =>
                {
                    last.span.len += run.span.len;
                }
                _ => joined.push(run),
            }
        }
        Self { runs: joined }
    }

    /// Changes that make the other roster of this one.
    #[must_use]
    pub fn changes_to(&self, other: &Self) -> Changes {
        let spans = |roster: &Self| roster.runs.iter().map(|run| run.span).collect::<Vec<_>>();
        let (old, new) = (spans(self), spans(other));
        let same = |a: u64, b: u64| a == b;
        Changes { removed: subtract(&old, &new, same), added: subtract(&new, &old, same) }
    }

    /// Members that entered before view `no`.
    #[must_use]
    pub fn before(&self, no: u64) -> Self {
        Self { runs: self.runs.iter().copied().filter(|run| run.entered < no).collect() }
    }

    /// Returns true if runs that came from outside are sound, sorted and disjoint.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        in_order(self.runs.iter().map(|run| run.span))
    }

    /// Its runs, in ascending order.
    #[must_use]
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    fn run_of(&self, slot: Slot) -> Option<&Run> {
        let behind = self.runs.partition_point(|run| run.span.first <= slot.0);
        self.runs[..behind].last().filter(|run| slot.0 < run.span.end())
    }

    /// The member on this slot.
    #[must_use]
    pub fn at(&self, slot: Slot) -> Option<Member> {
        self.run_of(slot).map(|run| Member::new(slot, run.span.incarnation))
    }

    /// Number of the view in which the member on this slot entered.
    #[must_use]
    pub fn entered(&self, slot: Slot) -> Option<u64> {
        self.run_of(slot).map(|run| run.entered)
    }

    /// Returns true if exactly this incarnation is in.
    #[must_use]
    pub fn contains(&self, member: Member) -> bool {
        self.at(member.slot) == Some(member)
    }

    /// Returns true if some slot of a range is in.
    #[must_use]
    pub fn any_in(&self, slots: Range<u32>) -> bool {
        let at = self.runs.partition_point(|run| run.span.end() <= slots.start);
        self.runs.get(at).is_some_and(|run| run.span.first < slots.end)
    }

    /// Number of members.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.runs.iter().map(|run| run.span.len).sum()
    }

    /// Returns true if there are no members.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The slot behind the last member.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.runs.last().map_or(0, |run| run.span.end())
    }

    /// All members by slot.
    pub fn members(&self) -> impl Iterator<Item = Member> {
        self.runs.iter().flat_map(|run| run.span.members())
    }

    /// Number of members with smaller slots.
    #[must_use]
    pub fn rank(&self, slot: Slot) -> u32 {
        let below = |run: &Run| run.span.end().min(slot.0).saturating_sub(run.span.first);
        self.runs.iter().take_while(|run| run.span.first < slot.0).map(below).sum()
    }

    /// The member that has this rank.
    #[must_use]
    pub fn of_rank(&self, rank: u32) -> Option<Slot> {
        let mut left = rank;
        for run in &self.runs {
            if left < run.span.len {
                return Some(Slot(run.span.first + left));
            }
            left -= run.span.len;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_sound_is_seen() {
        let span = |first, len, incarnation| Span { first, len, incarnation };
        for (spans, want) in [
            (vec![span(0, 2, 1), span(2, 1, 1)], true),
            (vec![span(0, 2, 1), span(1, 1, 1)], false),
            (vec![span(3, 1, 1), span(1, 1, 1)], false),
            (vec![span(3, 0, 1)], false),
            (vec![span(3, 1, 0)], false),
            (vec![span(MAX_SLOTS, 1, 1)], false),
            (vec![span(u32::MAX, u32::MAX, 1)], false),
        ] {
            let changes = Changes { removed: spans.clone(), added: Vec::new() };
            assert_eq!(changes.is_sound(), want, "{spans:?}");
        }
    }
}
