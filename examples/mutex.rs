//! A whole program of layers of one's own: mutual exclusion (Ricart, Agrawala 1981) above a failure detector that
//! counts heartbeats, and a checker that lets no two processes be inside.
//!
//! `main` hands layers and checkers over by name, and the program has `simulate` (faults, seeds, traces), `process`
//! (TCP, Unix sockets, UDP), `check` and `diff`. [`mutex.toml`](mutex.toml) is its configuration.
//!
//! A process asks all others, with the time of a logical clock, and enters when each has answered or is suspected.
//! Whoever is inside, or has asked earlier, answers later. So it is safe as long as no process is suspected that runs:
//! `mutex simulate mutex.toml --faults --seeds 50` finds seeds of which that is not true.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use itg_process::{
    Build, ConfigError, Ctx, Dest, Injected, Layer, Level, MS, Message, Registry, RuntimeEvent,
    SECOND, Slot, StopReason, Time, TimerId, layer_events,
};
use itg_run::Parts;
use itg_sim::{Checker, Observation, ObservedEvent};

/// Types of messages: below 1000, those of applications.
const HEARTBEAT: u32 = 1;
const REQUEST: u32 = 2;
const REPLY: u32 = 3;
const DONE: u32 = 4;

/// Call of the detector to the layer `mutex`.
struct Suspicion {
    slot: Slot,
    suspected: bool,
}

/// The failure detector: whoever is silent for too long is suspected, until it is heard again.
struct Heartbeat {
    period: u64,
    timeout: u64,
    heard: BTreeMap<Slot, Time>,
    suspected: BTreeSet<Slot>,
}

impl Heartbeat {
    fn suspect(&mut self, slot: Slot, cx: &mut Ctx<'_>) {
        if self.suspected.insert(slot) {
            cx.call("mutex", Box::new(Suspicion { slot, suspected: true }));
        }
    }
}

impl Layer for Heartbeat {
    fn on_start(&mut self, cx: &mut Ctx<'_>) {
        let others = cx.view().iter().filter(|slot| **slot != cx.me());
        self.heard = others.map(|slot| (*slot, cx.now())).collect();
        cx.set_timer_after(0);
    }

    fn timer(&mut self, _id: TimerId, cx: &mut Ctx<'_>) {
        cx.down(Message::new(Dest::AllButMe, HEARTBEAT, Vec::new()));
        let silent = |heard: &Time| cx.now().since(*heard) > self.timeout;
        let silent: Vec<_> =
            self.heard.iter().filter(|(_, heard)| silent(heard)).map(|(slot, _)| *slot).collect();
        silent.into_iter().for_each(|slot| self.suspect(slot, cx));
        cx.set_timer_after(self.period);
    }

    fn deliver(&mut self, message: Message, cx: &mut Ctx<'_>) {
        self.heard.insert(message.src, cx.now());
        if self.suspected.remove(&message.src) {
            cx.call("mutex", Box::new(Suspicion { slot: message.src, suspected: false }));
        }
        if message.ty != HEARTBEAT {
            cx.up(message);
        }
    }

    /// A simulation makes it suspect a process that runs.
    fn control(&mut self, what: &dyn Any, cx: &mut Ctx<'_>) {
        if let Some(Injected::Suspect(slot)) = what.downcast_ref() {
            cx.sometimes(RuntimeEvent::SuspicionTaken);
            self.suspect(*slot, cx);
        }
    }

    fn takes_suspicions(&self) -> bool {
        true
    }
}

layer_events! {
    enum MutexEvent {
        Asks { clock: u64 } = "asks",
        Enters { clock: u64 } = "enters",
        Leaves { turn: u64 } = "leaves",
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Elsewhere, until the timer.
    Outside,
    /// It has asked with this time.
    Asking(u64),
    Inside,
}

/// The algorithm.
struct Mutex {
    turns: u64,
    hold: u64,
    again: u64,
    turn: u64,
    clock: u64,
    state: State,
    /// Those whose answer is missing.
    missing: BTreeSet<Slot>,
    suspected: BTreeSet<Slot>,
    /// Those that get their answer later, and the time of their request.
    deferred: BTreeMap<Slot, u64>,
    /// Those that have had all their turns.
    done: BTreeSet<Slot>,
}

impl Mutex {
    fn send(to: impl Into<Dest>, ty: u32, number: u64, cx: &mut Ctx<'_>) {
        cx.down(Message::of(to, ty, &number));
    }

    /// Asks all whose answer is missing, also once more: requests and answers may be lost.
    fn ask(&self, clock: u64, cx: &mut Ctx<'_>) {
        let missing: Vec<_> = self.missing.iter().copied().collect();
        Self::send(Dest::Many(missing.into()), REQUEST, clock, cx);
        cx.set_timer_after(self.again);
    }

    fn enter_if_all_have_answered(&mut self, cx: &mut Ctx<'_>) {
        if let State::Asking(clock) = self.state
            && self.missing.is_empty()
        {
            self.state = State::Inside;
            cx.log(Level::Info, MutexEvent::Enters { clock });
            cx.set_timer_after(self.hold);
        }
    }

    fn leave(&mut self, cx: &mut Ctx<'_>) {
        self.turn += 1;
        self.state = State::Outside;
        cx.log(Level::Info, MutexEvent::Leaves { turn: self.turn });
        for (slot, clock) in std::mem::take(&mut self.deferred) {
            Self::send(slot, REPLY, clock, cx);
        }
        if self.turn < self.turns {
            cx.set_timer_after(self.hold);
        } else {
            Self::send(Slot(0), DONE, 0, cx);
        }
    }

    /// Process 0 stops all once those that run have had their turns.
    fn stop_if_all_are_done(&self, cx: &mut Ctx<'_>) {
        let over = |slot: &Slot| self.done.contains(slot) || self.suspected.contains(slot);
        if self.done.contains(&cx.me()) && cx.view().iter().all(over) {
            cx.shutdown(StopReason::Finished);
        }
    }
}

impl Layer for Mutex {
    fn on_start(&mut self, cx: &mut Ctx<'_>) {
        // One that is back does not know what it has asked: it answers, and asks no more.
        if cx.incarnation() == 1 {
            cx.set_timer_after(self.hold);
        }
    }

    fn timer(&mut self, _id: TimerId, cx: &mut Ctx<'_>) {
        match self.state {
            State::Outside if self.turn < self.turns => {
                self.clock += 1;
                self.state = State::Asking(self.clock);
                let others = cx.view().iter().copied().filter(|slot| *slot != cx.me());
                self.missing = others.filter(|slot| !self.suspected.contains(slot)).collect();
                cx.log(Level::Info, MutexEvent::Asks { clock: self.clock });
                self.ask(self.clock, cx);
                self.enter_if_all_have_answered(cx);
            }
            State::Asking(clock) => self.ask(clock, cx),
            State::Inside => self.leave(cx),
            State::Outside => {}
        }
    }

    fn deliver(&mut self, message: Message, cx: &mut Ctx<'_>) {
        let Some(number) = message.content() else { return };
        let from = message.src;
        match message.ty {
            REQUEST => {
                self.clock = self.clock.max(number);
                let first = match self.state {
                    State::Outside => false,
                    State::Asking(own) => (own, cx.me()) < (number, from),
                    State::Inside => true,
                };
                if first {
                    self.deferred.insert(from, number);
                } else {
                    Self::send(from, REPLY, number, cx);
                }
            }
            REPLY if self.state == State::Asking(number) => {
                self.missing.remove(&from);
                self.enter_if_all_have_answered(cx);
            }
            DONE => {
                self.done.insert(from);
                self.stop_if_all_are_done(cx);
            }
            _ => {}
        }
    }

    fn control(&mut self, what: &dyn Any, cx: &mut Ctx<'_>) {
        match what.downcast_ref() {
            Some(Suspicion { slot, suspected: true }) => {
                self.suspected.insert(*slot);
                self.missing.remove(slot);
                self.enter_if_all_have_answered(cx);
                self.stop_if_all_are_done(cx);
            }
            Some(Suspicion { slot, suspected: false }) => {
                self.suspected.remove(slot);
            }
            None => {}
        }
    }
}

/// The promise: no two processes are inside, and whoever asks and does not crash enters.
#[derive(Default)]
struct Exclusion {
    inside: Option<Slot>,
    asking: BTreeSet<Slot>,
}

impl Checker for Exclusion {
    fn name(&self) -> &'static str {
        "exclusion"
    }

    fn see(&mut self, seen: &Observation<'_>) -> Result<(), String> {
        let slot = seen.slot;
        match &seen.what {
            ObservedEvent::Event(event) => match event.decode() {
                Some(MutexEvent::Asks { .. }) => {
                    self.asking.insert(slot);
                }
                Some(MutexEvent::Enters { .. }) => {
                    self.asking.remove(&slot);
                    if let Some(other) = self.inside.replace(slot) {
                        return Err(format!("process {slot} enters while {other} is inside"));
                    }
                }
                Some(MutexEvent::Leaves { .. }) => self.inside = None,
                None => {}
            },
            ObservedEvent::Crashed | ObservedEvent::Stopped(_) => {
                self.asking.remove(&slot);
                self.inside = self.inside.filter(|inside| *inside != slot);
            }
            _ => {}
        }
        Ok(())
    }

    fn converged(&self) -> bool {
        self.asking.is_empty()
    }

    fn finish(&mut self) -> Result<(), String> {
        match self.asking.first() {
            Some(slot) => Err(format!("process {slot} asks and never enters")),
            None => Ok(()),
        }
    }
}

fn heartbeat(build: &mut Build<'_>) -> Result<Box<dyn Layer>, ConfigError> {
    let period = build.params.time_ns("period", 20 * MS)?;
    let timeout = build.params.time_ns("timeout", SECOND)?;
    let (heard, suspected) = (BTreeMap::new(), BTreeSet::new());
    Ok(Box::new(Heartbeat { period, timeout, heard, suspected }))
}

fn mutex(build: &mut Build<'_>) -> Result<Box<dyn Layer>, ConfigError> {
    Ok(Box::new(Mutex {
        turns: build.params.number("turns", 5)?,
        hold: build.params.time_ns("hold", MS)?,
        again: build.params.time_ns("again", 200 * MS)?,
        turn: 0,
        clock: 0,
        state: State::Outside,
        missing: BTreeSet::new(),
        suspected: BTreeSet::new(),
        deferred: BTreeMap::new(),
        done: BTreeSet::new(),
    }))
}

fn layers() -> Registry {
    Registry::new().with("heartbeat", heartbeat).with("mutex", mutex)
}

fn parts() -> Parts {
    Parts::new("mutex", layers()).with_checker("exclusion", |_| Ok(Box::new(Exclusion::default())))
}

fn main() -> ExitCode {
    itg_run::program::main(&parts())
}

/// The same layers and the same checker in one address space, with queues for a network.
#[cfg(test)]
mod tests {
    use super::*;
    use itg_core::seed::RunSeed;
    use itg_process::{Config, Contract, INBOX, Inproc, Network};

    #[test]
    fn all_have_their_turns_in_one_address_space() {
        let config = Config::parse(include_str!("mutex.toml"), "mutex.toml").expect("well written");
        let network = Network { name: "main".into(), contract: Contract::INPROC };
        let processes = layers().processes(&config, RunSeed(1), &[network].into());
        let mut world = Inproc::start(processes.expect("known layers"), INBOX, Time::ZERO);
        world.run_until(Time(10 * SECOND));
        assert!(world.stopped(), "process 0 stops all");
        let mut checker = Exclusion::default();
        let mut turns = 0;
        for (slot, event) in world.take_events() {
            turns += u64::from(matches!(event.decode(), Some(MutexEvent::Leaves { .. })));
            let what = ObservedEvent::Event(&event);
            let seen = Observation { at: 0, slot, layer: "mutex", what };
            assert_eq!(checker.see(&seen), Ok(()));
        }
        assert_eq!((checker.finish(), turns), (Ok(()), 20));
    }
}
