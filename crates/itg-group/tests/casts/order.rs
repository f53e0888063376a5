//! The oracles of ordered broadcasts and of deliveries in views ([`itg_group::check`]) as a checker of the
//! simulator.

use itg_group::check::{self, Deliveries};
use itg_sim::{Checker, Observation, ObservedEvent};

#[derive(Debug, Default)]
pub struct Order {
    order: check::Order,
    deliveries: Deliveries,
    healed: bool,
}

impl Order {
    /// See [`check::Order::of`].
    pub fn of(members: u32, fixed: bool) -> Self {
        Self { order: check::Order::of(members, fixed), ..Self::default() }
    }
}

impl Checker for Order {
    fn name(&self) -> &'static str {
        "order"
    }

    fn see(&mut self, seen: &Observation<'_>) -> Result<(), String> {
        match seen.what {
            ObservedEvent::Started(incarnation) => {
                self.deliveries.started(seen.slot);
                self.order.started(seen.slot, incarnation);
            }
            ObservedEvent::Crashed => self.order.gone(seen.slot),
            ObservedEvent::Healed => self.healed = true,
            ObservedEvent::Event(event) => {
                self.deliveries.see(seen.slot, event)?;
                return self.order.see(seen.slot, event);
            }
            ObservedEvent::Arrived(_) | ObservedEvent::Message(_) | ObservedEvent::Stopped(_) => {}
        }
        Ok(())
    }

    fn converged(&self) -> bool {
        self.order.missing().is_none()
    }

    fn finish(&mut self) -> Result<(), String> {
        match self.order.missing() {
            Some(missing) if self.healed => Err(missing),
            _ => Ok(()),
        }
    }
}
