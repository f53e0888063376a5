//! Deliveries against casts and views.
//!
//! | property | what |
//! |---|---|
//! | V2 | what is delivered was cast before |
//! | V3 | nothing is delivered twice by one incarnation |
//! | V4 | a message is delivered in one view, wherever it is delivered |

use std::collections::BTreeMap;

use itg_process::{Event, Slot};

/// What one incarnation has delivered, and its view.
#[derive(Clone, Debug)]
struct Seen {
    view: u64,
    /// By origin, one bit for each number.
    delivered: BTreeMap<u64, Vec<u64>>,
}

impl Default for Seen {
    fn default() -> Self {
        Self { view: 1, delivered: BTreeMap::new() }
    }
}

/// The oracle of deliveries: it sees the events `cast`, `deliver`, `view` and `install` of broadcasts that
/// trace.
#[derive(Clone, Debug, Default)]
pub struct Deliveries {
    /// By origin: the number that comes next.
    cast: BTreeMap<u64, u64>,
    /// By origin and number: the view of its deliveries, 0 before the first one.
    views: BTreeMap<u64, Vec<u64>>,
    processes: BTreeMap<Slot, Seen>,
}

impl Deliveries {
    /// A process has started: another incarnation.
    pub fn started(&mut self, slot: Slot) {
        self.processes.insert(slot, Seen::default());
    }

    /// A process says something.
    ///
    /// # Errors
    /// The property that does not hold.
    pub fn see(&mut self, slot: Slot, event: &Event) -> Result<(), String> {
        let [a, b, _] = event.values;
        match event.name {
            "cast" => {
                let next = self.cast.entry(a).or_default();
                *next = (*next).max(b + 1);
            }
            "view" => self.processes.entry(slot).or_default().view = a,
            "install" => self.processes.entry(slot).or_default().view = b,
            "deliver" => {
                if self.cast.get(&a).is_none_or(|next| b >= *next) {
                    return Err(format!("V2: {slot} delivers {b} of {a:x}, which nobody has cast"));
                }
                let at = usize::try_from(b).map_err(|_| "V2: no number")?;
                let seen = self.processes.entry(slot).or_default();
                let bits = seen.delivered.entry(a).or_default();
                bits.resize(bits.len().max(at / 64 + 1), 0);
                if bits[at / 64] >> (at % 64) & 1 == 1 {
                    return Err(format!("V3: {slot} delivers {b} of {a:x} twice"));
                }
                bits[at / 64] |= 1 << (at % 64);
                let views = self.views.entry(a).or_default();
                views.resize(views.len().max(at + 1), 0);
                let (here, view) = (seen.view, &mut views[at]);
                if *view == 0 {
                    *view = here;
                }
                if *view != here {
                    return Err(format!(
                        "V4: {slot} delivers {b} of {a:x} in view {here}, others in view {view}"
                    ));
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
        let event = |name, values| Event { level: Level::Info, name, values };
        let cast = (0, event("cast", [7, 0, 0]));
        let deliver = |slot| (slot, event("deliver", [7, 0, 0]));
        let view = |slot| (slot, event("view", [2, 0, 0]));
        for (events, want) in [
            (vec![cast, deliver(0), deliver(1)], None),
            (vec![cast, view(0), deliver(0), view(1), deliver(1)], None),
            (vec![deliver(0), cast], Some("V2")),
            (vec![cast, deliver(0), deliver(0)], Some("V3")),
            (vec![cast, deliver(0), view(1), deliver(1)], Some("V4")),
            (vec![cast, deliver(0), (1, event("install", [1, 3, 0])), deliver(1)], Some("V4")),
        ] {
            let mut oracle = Deliveries::default();
            let found = events.iter().find_map(|(slot, e)| oracle.see(Slot(*slot), e).err());
            assert_eq!(found.as_deref().map(|text| &text[..2]), want, "{events:?}");
        }
    }
}
