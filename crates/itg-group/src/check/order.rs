//! TO1–TO5 while a run goes on: an oracle that sees every process.
//!
//! The first process that delivers at a position fixes what stands there; all others must deliver
//! the same. So the order is one and acyclic (TO3), and of two sequences one is a prefix of the
//! other (TO5). TO4: nothing stands at two positions, no process delivers a position twice, and
//! what is delivered was cast. TO1 and TO2 hold when in the end every process that is alive and in
//! the view has delivered everything.

use std::collections::{BTreeMap, BTreeSet};

use itg_process::{Event, Slot};

use crate::cast::{CastEvent, ReplicaEvent};
use crate::membership::MembershipEvent;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Origin and number.
    Message(u64, u64),
    /// Number and digest of a view.
    View(u64, u64),
}

/// Progress of a process.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    incarnation: u64,
    next: u64,
    /// True while it is alive and in the view.
    counts: bool,
    /// It is back with its journal, and has delivered nothing yet.
    back: bool,
}

/// The oracle of ordered broadcasts.
#[derive(Debug, Default)]
pub struct Order {
    /// Nothing where a crash came between the write of a snapshot and the word of what is in it.
    order: Vec<Option<At>>,
    messages: BTreeSet<(u64, u64)>,
    cast: BTreeSet<(u64, u64)>,
    places: BTreeMap<u32, Progress>,
    /// State of the user at positions.
    states: BTreeMap<u64, u64>,
    /// Instances decided by slot, and position and author of each.
    decided: BTreeMap<u32, u64>,
    values: BTreeMap<u64, (u64, u64)>,
    members: u32,
    fixed: bool,
}

impl Order {
    /// Of a group whose first view has so many processes (0 stands for all). In a `fixed` group all
    /// stay: what is collected must have been delivered by all.
    #[must_use]
    pub fn of(members: u32, fixed: bool) -> Self {
        Self { members, fixed, ..Self::default() }
    }

    fn delivered(&mut self, slot: u32, position: u64, at: At) -> Result<(), String> {
        let place = self.places.entry(slot).or_default();
        if position != place.next {
            return Err(format!(
                "TO4: process {slot} delivers position {position}, not {}",
                place.next
            ));
        }
        place.next += 1;
        place.back = false;
        let index = usize::try_from(position).map_err(|_| "TO5: no position")?;
        match self.order.get(index) {
            Some(Some(found)) if *found == at => Ok(()),
            Some(Some(found)) => Err(format!(
                "TO3: process {slot} delivers {at:?} at {position}, another one {found:?}"
            )),
            unknown => {
                if unknown.is_none() {
                    if index != self.order.len() {
                        return Err(format!("TO5: a gap before position {position}"));
                    }
                    self.order.push(None);
                }
                if let At::Message(origin, seq) = at {
                    if !self.messages.insert((origin, seq)) {
                        return Err(format!("TO4: {at:?} is delivered twice"));
                    }
                    if !self.cast.contains(&(origin, seq)) {
                        return Err(format!("TO4: {at:?} was never cast"));
                    }
                }
                self.order[index] = Some(at);
                Ok(())
            }
        }
    }

    /// First message that a process lacks that is alive and in: TO1 or TO2, should nothing come any
    /// more.
    #[must_use]
    pub fn missing(&self) -> Option<String> {
        let all = self.order.len() as u64;
        for (slot, place) in &self.places {
            if place.counts && place.next < all {
                return Some(format!("TO1: process {slot} has delivered {} of {all}", place.next));
            }
        }
        let lives = |origin: u64| {
            let incarnation = origin & 0xffff_ffff;
            let place = u32::try_from(origin >> 32).ok().and_then(|slot| self.places.get(&slot));
            place.is_some_and(|p| p.counts && p.incarnation == incarnation)
        };
        let unknown = self.order.iter().filter(|at| at.is_none()).count();
        let lost = self.cast.difference(&self.messages).filter(|(origin, _)| lives(*origin));
        let mut lost = lost.skip(unknown);
        lost.next().map(|lost| format!("TO2: {lost:?} was cast and is not delivered"))
    }

    /// A process has started, as this incarnation.
    pub fn started(&mut self, Slot(slot): Slot, incarnation: u64) {
        let first = incarnation == 1 && (self.members == 0 || slot < self.members);
        self.places.insert(slot, Progress { incarnation, next: 0, counts: first, back: false });
        self.decided.insert(slot, 0);
    }

    /// A process is gone.
    pub fn gone(&mut self, Slot(slot): Slot) {
        self.places.entry(slot).or_default().counts = false;
    }

    /// A process says something.
    ///
    /// # Errors
    /// The property that does not hold.
    pub fn see(&mut self, slot: Slot, event: &Event) -> Result<(), String> {
        if let Some(event) = event.decode() {
            return self.broadcast(slot.0, event);
        }
        if let Some(
            MembershipEvent::BornAgain { incarnation, .. }
            | MembershipEvent::Welcomed { incarnation, .. },
        ) = event.decode()
        {
            // A member of a membership: its incarnation is not that of its process.
            self.places.entry(slot.0).or_default().incarnation = incarnation & 0xffff_ffff;
        }
        if let Some(ReplicaEvent::State { position, digest }) = event.decode() {
            let known = *self.states.entry(position).or_insert(digest);
            if known != digest {
                return Err(format!("state of process {slot} at {position}: another one"));
            }
        }
        Ok(())
    }

    fn broadcast(&mut self, slot: u32, event: CastEvent) -> Result<(), String> {
        match event {
            CastEvent::Back { member, counts } => {
                // It delivers everything again, from the beginning or from a snapshot.
                let incarnation = member & 0xffff_ffff;
                self.places.insert(slot, Progress { incarnation, next: 0, counts, back: true });
            }
            CastEvent::Cast { origin, seq } => {
                self.cast.insert((origin, seq));
            }
            CastEvent::Deliver { origin, seq, position } => {
                return self.delivered(slot, position, At::Message(origin, seq));
            }
            CastEvent::View { no, digest, position } => {
                return self.delivered(slot, position, At::View(no, digest));
            }
            CastEvent::Install { position, instance, .. } => {
                let place = self.places.entry(slot).or_default();
                let end = usize::try_from(position).map_err(|_| "TO5: no position")?;
                if end > self.order.len() {
                    if !place.back {
                        return Err(format!(
                            "TO4: a snapshot of position {position} of the future"
                        ));
                    }
                    self.order.resize(end, None);
                }
                place.back = false;
                place.next = position;
                place.counts = true;
                self.decided.insert(slot, instance);
            }
            // Of the log, or of a membership above it.
            CastEvent::Excluded { .. } => self.places.entry(slot).or_default().counts = false,
            CastEvent::Decided { instance: k, position, author } => {
                self.decided.insert(slot, k + 1);
                let known = *self.values.entry(k).or_insert((position, author));
                if known != (position, author) {
                    return Err(format!("consensus: instance {k} is decided differently"));
                }
            }
            CastEvent::Collect { first: k, too_many: false, .. } if self.fixed => {
                if let Some((late, at)) = self.decided.iter().find(|(_, at)| **at <= k) {
                    return Err(format!("instance {k} is collected, process {late} is at {at}"));
                }
            }
            CastEvent::LostPayload { .. } => {
                return Err("a decided message that nobody holds".to_owned());
            }
            _ => {}
        }
        Ok(())
    }
}
