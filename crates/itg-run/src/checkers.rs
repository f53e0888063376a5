//! The checkers that come with the programs: the oracles of group communication ([`itg_group::check`]) by name.
//!
//! What must happen in the end (TO1, TO2, V12) is judged in simulations only, once their faults are over; what must
//! never happen, always.

use itg_group::check::{self, Deliveries};
use itg_members::{Arity, RootPolicy, Rules, View};
use itg_process::ConfigError;
use itg_sim::{Checker, Observation, ObservedEvent};

use crate::parts::CheckerBuild;

/// The checker `order`, of ordered broadcasts: `members` of the first view (all), `fixed` (false).
pub(crate) fn order(build: &mut CheckerBuild<'_>) -> Result<Box<dyn Checker>, ConfigError> {
    let members = build.params.number("members", 0)?;
    let members = u32::try_from(members).unwrap_or(u32::MAX);
    let order = check::Order::of(members, build.params.flag("fixed", false)?);
    Ok(Box::new(Order { order, ..Order::default() }))
}

/// The checker `views`, of memberships: `members` of the first view (all), `arity`, `core` and `root` as they have them.
pub(crate) fn views(build: &mut CheckerBuild<'_>) -> Result<Box<dyn Checker>, ConfigError> {
    let usual = Rules::default();
    let params = &mut *build.params;
    let arity = params.number("arity", usual.arity.get().into())?;
    let arity = Arity::try_from(u32::try_from(arity).unwrap_or(u32::MAX))
        .map_err(|error| params.error_at("arity", error))?;
    let core = params.number("core", usual.core.into())?;
    let core = u8::try_from(core).unwrap_or(u8::MAX).max(1);
    let root_policy = match params.text("root")?.as_deref() {
        None | Some("oldest") => RootPolicy::Oldest,
        Some("lowest") => RootPolicy::Lowest,
        Some(other) => {
            let text = format!("`{other}`: expected oldest or lowest");
            return Err(params.error_at("root", text));
        }
    };
    let members = u32::try_from(params.number("members", build.n.into())?).unwrap_or(0);
    if members == 0 || members > build.n {
        let text = format_args!("{members}: expected 1 to {}", build.n);
        return Err(build.params.error_at("members", text));
    }
    let first = View::first(members, Rules { arity, core, root_policy });
    Ok(Box::new(Views { views: check::Views::new(first), healed: false }))
}

#[derive(Default)]
struct Order {
    order: check::Order,
    deliveries: Deliveries,
    healed: bool,
    events: u64,
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
            ObservedEvent::Crashed | ObservedEvent::Stopped(_) => self.order.gone(seen.slot),
            ObservedEvent::Healed => self.healed = true,
            ObservedEvent::Event(event) => {
                let of_casts = event.decode::<itg_group::cast::CastEvent>();
                self.events += u64::from(of_casts.is_some());
                self.deliveries.see(seen.slot, event)?;
                return self.order.see(seen.slot, event);
            }
            ObservedEvent::Arrived(_) | ObservedEvent::Message(_) => {}
        }
        Ok(())
    }

    fn converged(&self) -> bool {
        !self.healed || self.order.missing().is_none()
    }

    fn finish(&mut self) -> Result<(), String> {
        match self.order.missing() {
            _ if self.events == 0 => {
                Err("no layer says what it delivers: broadcasts do with `trace = true`".to_owned())
            }
            Some(missing) if self.healed => Err(missing),
            _ => Ok(()),
        }
    }
}

struct Views {
    views: check::Views,
    healed: bool,
}

impl Checker for Views {
    fn name(&self) -> &'static str {
        "views"
    }

    fn see(&mut self, seen: &Observation<'_>) -> Result<(), String> {
        match seen.what {
            ObservedEvent::Started(incarnation) => self.views.started(seen.slot, incarnation),
            ObservedEvent::Crashed | ObservedEvent::Stopped(_) => self.views.gone(seen.slot),
            ObservedEvent::Healed => self.healed = true,
            ObservedEvent::Event(event) => return self.views.see(seen.slot, event),
            ObservedEvent::Arrived(_) | ObservedEvent::Message(_) => {}
        }
        Ok(())
    }

    fn converged(&self) -> bool {
        !self.healed || self.views.agreed().is_ok()
    }

    fn finish(&mut self) -> Result<(), String> {
        let alive = self.views.live().next().is_some();
        let agreed = self.views.agreed().map(drop);
        if self.healed && alive { agreed } else { Ok(()) }
    }
}
