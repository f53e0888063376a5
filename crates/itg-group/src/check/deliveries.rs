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
