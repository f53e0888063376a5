//! Faults as they are carried out.

use itg_process::{Injected, Slot, Time};

use super::World;
use crate::check::ObservedEvent;
use crate::faults::Fault;

impl World {
    /// Returns true if the fault finds its target: an injection into a layer that the process lacks
    /// does not.
    fn takes(&self, fault: &Fault) -> bool {
        let has = |slot: &Slot, layer: &str| {
            self.process(*slot).is_some_and(|process| process.layers().any(|name| name == layer))
        };
        match fault {
            Fault::Inject(slot, layer, _) => has(slot, layer),
            Fault::Suspect(slot, _) => {
                self.process(*slot).is_some_and(|process| process.detectors().next().is_some())
            }
            _ => true,
        }
    }

    pub(super) fn carry_out_fault(&mut self, fault: Fault) {
        self.counts.faults += u64::from(self.takes(&fault));
        self.hash.word(self.now ^ 0x4641_554c_5400);
        match fault {
            Fault::Crash(slot) => {
                let Some(host) = self.hosts.get(slot.index()) else { return };
                // A process that has stopped by itself does not crash any more.
                if host.process.is_some() {
                    self.hosts[slot.index()].crashed = true;
                    self.lose_unsynced(slot.index());
                    self.gone(slot.index());
                    self.see(slot, &ObservedEvent::Crashed);
                }
            }
            Fault::Recover(slot) => {
                let Some(host) = self.hosts.get(slot.index()) else { return };
                self.recover(slot, host.tickets.0 + 1);
            }
            Fault::RecoverAs(slot, incarnation) => self.recover(slot, incarnation),
            Fault::OldTicket(slot) => {
                if let Some(host) = self.hosts.get_mut(slot.index()) {
                    host.tickets.0 = host.tickets.1;
                }
            }
            Fault::Pause(slot, ns) => {
                if let Some(host) = self.hosts.get_mut(slot.index()) {
                    host.free_at = host.free_at.max(self.now.saturating_add(ns));
                }
            }
            Fault::Slow(slot, cost) => {
                if let Some(host) = self.hosts.get_mut(slot.index()) {
                    host.cost = cost;
                }
            }
            Fault::Clock(slot, ppm, jump) => {
                if let Some(host) = self.hosts.get_mut(slot.index()) {
                    host.clock.set(self.now, ppm, jump);
                    host.wake_at = None;
                    self.after(slot.index());
                }
            }
            Fault::Refuse(slot, ns) => {
                if let Some(host) = self.hosts.get_mut(slot.index()) {
                    host.refuses_until = self.now.saturating_add(ns);
                }
            }
            Fault::Disk(slot, fault) => self.disk_fault(slot, fault),
            Fault::Partition(groups) => self.weather.partition(groups),
            Fault::Cut(from, to) => self.weather.cut(from, to),
            Fault::Mend(from, to) => self.weather.mend(from, to),
            Fault::Reset(a, b) => self.weather.reset(a, b, self.now),
            Fault::Links(net, faults) => self.weather.set_links(net, faults),
            Fault::Lossy(slot, parts) => self.weather.set_lossy(slot, parts),
            Fault::Inject(slot, layer, what) => self.inject(slot, layer, what),
            Fault::Suspect(slot, suspect) => {
                let detectors = self.process(slot).map(|process| process.detectors());
                let detectors: Vec<_> =
                    detectors.into_iter().flatten().map(str::to_owned).collect();
                for detector in detectors {
                    self.inject(slot, &detector, Injected::Suspect(suspect));
                }
            }
        }
    }

    fn inject(&mut self, slot: Slot, layer: &str, what: Injected) {
        let at = slot.index();
        let Some(host) = self.hosts.get_mut(at) else { return };
        let local = Time(host.clock.at(self.now));
        if let Some(process) = &mut host.process {
            process.control(local, layer, Box::new(what));
            self.after(at);
        }
    }
}

pub(super) const fn is_recovery(fault: &Fault) -> bool {
    matches!(fault, Fault::Recover(_) | Fault::RecoverAs(..))
}
