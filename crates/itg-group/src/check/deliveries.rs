//! Deliveries against casts and views.
//!
//! | property | what |
//! |---|---|
//! | V2 | what is delivered was cast before |
//! | V3 | nothing is delivered twice by one incarnation |
//! | V4 | a message is delivered in one view, wherever it is delivered |

use std::collections::BTreeMap;

use itg_process::{Event, Slot};

use crate::cast::CastEvent;

/// Deliveries of one incarnation, and its view.
#[derive(Clone, Debug)]
struct Delivered {
    view: u64,
    /// By origin, one bit for each number.
    delivered: BTreeMap<u64, Vec<u64>>,
}

impl Default for Delivered {
    fn default() -> Self {
        Self { view: 1, delivered: BTreeMap::new() }
    }
}

/// The oracle of deliveries: it sees casts, deliveries, views and snapshots of broadcasts that trace.
#[derive(Clone, Debug, Default)]
pub struct Deliveries {
    /// By origin: the number that comes next.
    cast: BTreeMap<u64, u64>,
    /// By origin and number: the view of its deliveries, 0 before the first one.
    views: BTreeMap<u64, Vec<u64>>,
    processes: BTreeMap<Slot, Delivered>,
}

impl Deliveries {
    /// A process has started: another incarnation.
    pub fn started(&mut self, slot: Slot) {
        self.processes.insert(slot, Delivered::default());
    }

    /// A process says something.
    ///
    /// # Errors
    /// The property that does not hold.
    pub fn see(&mut self, slot: Slot, event: &Event) -> Result<(), String> {
        match event.decode() {
            Some(CastEvent::Cast { origin, seq }) => {
                let next = self.cast.entry(origin).or_default();
                *next = (*next).max(seq + 1);
            }
            Some(CastEvent::View { no: view, .. } | CastEvent::Install { view, .. }) => {
                self.processes.entry(slot).or_default().view = view;
            }
            Some(CastEvent::Deliver { origin, seq, .. }) => {
                let what = || format!("{slot} delivers {seq} of {origin:x}");
                if self.cast.get(&origin).is_none_or(|next| seq >= *next) {
                    return Err(format!("V2: {}, which nobody has cast", what()));
                }
                let at = usize::try_from(seq).map_err(|_| "V2: no number")?;
                let seen = self.processes.entry(slot).or_default();
                let bits = seen.delivered.entry(origin).or_default();
                bits.resize(bits.len().max(at / 64 + 1), 0);
                if bits[at / 64] >> (at % 64) & 1 == 1 {
                    return Err(format!("V3: {} twice", what()));
                }
                bits[at / 64] |= 1 << (at % 64);
                let views = self.views.entry(origin).or_default();
                views.resize(views.len().max(at + 1), 0);
                let (here, view) = (seen.view, &mut views[at]);
                if *view == 0 {
                    *view = here;
                }
                if *view != here {
                    return Err(format!("V4: {} in view {here}, others in view {view}", what()));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use itg_process::Level;

    #[test]
    fn each_property_can_fail() {
        let event = |event: CastEvent| Event::new(Level::Info, event);
        let (origin, seq, position) = (7, 0, 0);
        let cast = (0, event(CastEvent::Cast { origin, seq }));
        let deliver = |slot| (slot, event(CastEvent::Deliver { origin, seq, position }));
        let view = |slot| (slot, event(CastEvent::View { no: 2, digest: 0, position }));
        let install = (1, event(CastEvent::Install { position: 1, view: 3, instance: 0 }));
        for (events, want) in [
            (vec![cast, deliver(0), deliver(1)], None),
            (vec![cast, view(0), deliver(0), view(1), deliver(1)], None),
            (vec![deliver(0), cast], Some("V2")),
            (vec![cast, deliver(0), deliver(0)], Some("V3")),
            (vec![cast, deliver(0), view(1), deliver(1)], Some("V4")),
            (vec![cast, deliver(0), install, deliver(1)], Some("V4")),
        ] {
            let mut oracle = Deliveries::default();
            let found = events.iter().find_map(|(slot, e)| oracle.see(Slot(*slot), e).err());
            assert_eq!(found.as_deref().map(|text| &text[..2]), want, "{events:?}");
        }
    }
}
