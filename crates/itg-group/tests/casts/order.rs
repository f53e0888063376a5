//! TO1–TO5 while a run goes on: an oracle that sees every process.
//!
//! The first process that delivers at a position fixes what stands there; all others must deliver the
//! same. So the order is one and acyclic (TO3), and of two sequences one is a prefix of the other (TO5).
//! TO4: nothing stands at two positions, nobody delivers a position twice, and what is delivered was
//! cast. V2 to V4 (`itg_group::check::Deliveries`) hold at every delivery. TO1 and TO2 hold when in the end every process that lives and is in has delivered everything.

use std::collections::{BTreeMap, BTreeSet};

use itg_group::check::Deliveries;
use itg_sim::{Checker, Observation, Seen};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Origin and number.
    Message(u64, u64),
    /// Number and digest of a view.
    View(u64, u64),
}

/// Where a process stands.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    incarnation: u64,
    next: u64,
    /// Alive and in.
    counts: bool,
}

#[derive(Debug, Default)]
pub struct Order {
    order: Vec<At>,
    messages: BTreeSet<(u64, u64)>,
    cast: BTreeSet<(u64, u64)>,
    places: BTreeMap<u32, Place>,
    /// State of the user at positions.
    states: BTreeMap<u64, u64>,
    /// Instances decided by slot, and position and author of each.
    decided: BTreeMap<u32, u64>,
    values: BTreeMap<u64, (u64, u64)>,
    deliveries: Deliveries,
    members: u32,
    fixed: bool,
    healed: bool,
}

impl Order {
    /// Of a group whose first view has so many processes (0 stands for all). In a `fixed` group all
    /// stay: what is collected must have been delivered by everybody.
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
        match self.order.get(usize::try_from(position).expect("small")) {
            Some(found) if *found == at => Ok(()),
            Some(found) => Err(format!(
                "TO3: process {slot} delivers {at:?} at {position}, another one {found:?}"
            )),
            None => {
                if position != self.order.len() as u64 {
                    return Err(format!("TO5: a gap before position {position}"));
                }
                if let At::Message(origin, seq) = at {
                    if !self.messages.insert((origin, seq)) {
                        return Err(format!("TO4: {at:?} is delivered twice"));
                    }
                    if !self.cast.contains(&(origin, seq)) {
                        return Err(format!("TO4: {at:?} was never cast"));
                    }
                }
                self.order.push(at);
                Ok(())
            }
        }
    }

    fn missing(&self) -> Option<String> {
        let all = self.order.len() as u64;
        for (slot, place) in &self.places {
            if place.counts && place.next < all {
                return Some(format!("TO1: process {slot} has delivered {} of {all}", place.next));
            }
        }
        let lives = |origin: u64| {
            let slot = u32::try_from(origin >> 32).expect("a slot");
            let incarnation = origin & 0xffff_ffff;
            self.places.get(&slot).is_some_and(|p| p.counts && p.incarnation == incarnation)
        };
        let lost = self.cast.difference(&self.messages).find(|(origin, _)| lives(*origin));
        lost.map(|lost| format!("TO2: {lost:?} was cast and is not delivered"))
    }
}

impl Checker for Order {
    fn name(&self) -> &'static str {
        "order"
    }

    fn see(&mut self, seen: &Observation<'_>) -> Result<(), String> {
        let slot = seen.slot.0;
        match seen.what {
            Seen::Started(_) => self.deliveries.started(seen.slot),
            Seen::Event(event) => self.deliveries.see(seen.slot, event)?,
            _ => {}
        }
        match seen.what {
            Seen::Started(incarnation) => {
                let first = incarnation == 1 && (self.members == 0 || slot < self.members);
                let place = Place { incarnation, next: 0, counts: first };
                self.places.insert(slot, place);
                self.decided.insert(slot, 0);
            }
            Seen::Crashed => self.places.entry(slot).or_default().counts = false,
            Seen::Healed => self.healed = true,
            Seen::Event(event) => match (event.name, event.values) {
                ("cast", [origin, seq, _]) => {
                    self.cast.insert((origin, seq));
                }
                ("deliver", [origin, seq, position]) => {
                    return self.delivered(slot, position, At::Message(origin, seq));
                }
                ("view", [no, digest, position]) => {
                    return self.delivered(slot, position, At::View(no, digest));
                }
                ("install", [position, _, k]) => {
                    if position > self.order.len() as u64 {
                        return Err(format!(
                            "TO4: a snapshot of position {position} of the future"
                        ));
                    }
                    let place = self.places.entry(slot).or_default();
                    place.next = position;
                    place.counts = true;
                    self.decided.insert(slot, k);
                }
                ("excluded", _) => self.places.entry(slot).or_default().counts = false,
                ("state", [position, hash, _]) => {
                    let known = *self.states.entry(position).or_insert(hash);
                    if known != hash {
                        return Err(format!("state of process {slot} at {position}: another one"));
                    }
                }
                ("decided", [k, position, author]) => {
                    self.decided.insert(slot, k + 1);
                    let known = *self.values.entry(k).or_insert((position, author));
                    if known != (position, author) {
                        return Err(format!("consensus: instance {k} is decided differently"));
                    }
                }
                ("collect", [k, 0, _]) if self.fixed => {
                    if let Some((late, at)) = self.decided.iter().find(|(_, at)| **at <= k) {
                        return Err(format!(
                            "instance {k} is collected, process {late} is at {at}"
                        ));
                    }
                }
                ("lost payload", _) => return Err("a decided message that nobody holds".to_owned()),
                _ => {}
            },
            Seen::Arrived(_) | Seen::Stopped(_) => {}
        }
        Ok(())
    }

    fn converged(&self) -> bool {
        self.missing().is_none()
    }

    fn finish(&mut self) -> Result<(), String> {
        match self.missing() {
            Some(missing) if self.healed => Err(missing),
            _ => Ok(()),
        }
    }
}
