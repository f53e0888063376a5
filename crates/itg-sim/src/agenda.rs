//! The one event heap of a simulation: time, then class, then order of creation.
//!
//! Times are whole nanoseconds. Events of one instant run in the order in which they were created,
//! but timers of processes after everything else: a message that arrives at the instant of a
//! time-out wins. Keys and events are kept apart, so that sifting moves 24 bytes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Order among events of one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Faults, networks, deliveries.
    World,
    /// Timers of processes.
    Timer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    at: u64,
    /// Class in the highest bit, then the number of the event.
    order: u64,
    place: u32,
}

/// Events that wait for their time.
#[derive(Debug)]
pub struct Agenda<E> {
    heap: BinaryHeap<Reverse<Key>>,
    events: Vec<Option<E>>,
    free: Vec<u32>,
    created: u64,
}

impl<E> Default for Agenda<E> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), events: Vec::new(), free: Vec::new(), created: 0 }
    }
}

impl<E> Agenda<E> {
    /// Enters an event.
    ///
    /// # Panics
    /// If 2³² events wait at once.
    pub fn push(&mut self, at: u64, class: Class, event: E) {
        let place = match self.free.pop() {
            Some(place) => {
                self.events[place as usize] = Some(event);
                place
            }
            None => {
                let place = u32::try_from(self.events.len()).expect("fewer than 2^32 events wait");
                self.events.push(Some(event));
                place
            }
        };
        let order = (class as u64) << 63 | self.created;
        self.created += 1;
        self.heap.push(Reverse(Key { at, order, place }));
    }

    /// Takes the next event and its time.
    pub fn pop(&mut self) -> Option<(u64, E)> {
        let Reverse(key) = self.heap.pop()?;
        self.free.push(key.place);
        self.events[key.place as usize].take().map(|event| (key.at, event))
    }

    /// Time of the next event, and the event.
    #[must_use]
    pub fn peek(&self) -> Option<(u64, &E)> {
        let Reverse(key) = self.heap.peek()?;
        self.events[key.place as usize].as_ref().map(|event| (key.at, event))
    }

    /// Number of events that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Returns true if no event waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Reference: a list that is sorted by time, class and order of entry.
        #[test]
        fn events_come_in_order(steps in prop::collection::vec((0u64..20, any::<bool>(), 0u8..3), 0..300)) {
            let (mut agenda, mut twin) = (Agenda::default(), Vec::new());
            for (number, (at, timer, pops)) in steps.into_iter().enumerate() {
                let class = if timer { Class::Timer } else { Class::World };
                agenda.push(at, class, number);
                twin.push((at, class, number));
                twin.sort_unstable();
                for _ in 0..pops {
                    let want = (!twin.is_empty()).then(|| twin.remove(0)).map(|t| (t.0, t.2));
                    prop_assert_eq!(agenda.peek().map(|(at, n)| (at, *n)), want);
                    prop_assert_eq!(agenda.pop(), want);
                }
                prop_assert_eq!(agenda.len(), twin.len());
            }
        }
    }
}
