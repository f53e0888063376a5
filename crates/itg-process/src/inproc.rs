//! Processes of one address space, with queues between them: the in-process network.
//!
//! Each process has one bounded inbox for each of its networks; a message to a full inbox is refused
//! to its sender. Time is an argument: a thread drives this with a clock, a test with a number.

use std::collections::VecDeque;

use crate::event::Event;
use crate::message::{Dest, Message, Slot, Time};
use crate::output::{StopReason, Trace};
use crate::process::Process;
use crate::transport::{Outgoing, Report, Transport};

/// Messages that one inbox holds.
pub const INBOX: usize = 4096;

/// Processes and the queues between them.
#[derive(Debug)]
pub struct Inproc {
    processes: Vec<Process>,
    queues: Queues,
}

impl Inproc {
    /// Starts these processes, which have the slots 0, 1, …
    #[must_use]
    pub fn start(processes: Vec<Process>, limit: usize, now: Time) -> Self {
        let inboxes = processes.iter().map(|_| VecDeque::new()).collect();
        let (events, traces) = (Vec::new(), Vec::new());
        let queues = Queues { slot: Slot(0), inboxes, limit, events, traces };
        let mut world = Self { processes, queues };
        for at in 0..world.processes.len() {
            world.processes[at].start(now);
            world.carry_out(at, now);
        }
        world
    }

    /// Delivers every message and fires every timer that is due; returns when nothing is left to do
    /// at this time.
    pub fn run(&mut self, now: Time) {
        loop {
            let mut idle = true;
            for at in 0..self.processes.len() {
                // What is in the inbox now; what that causes waits for the next round.
                for _ in 0..self.queues.inboxes[at].len() {
                    if let Some(message) = self.queues.inboxes[at].pop_front() {
                        idle = false;
                        self.processes[at].deliver(now, message);
                        self.carry_out(at, now);
                    }
                }
                if self.processes[at].next_wake().is_some_and(|due| due <= now) {
                    idle = false;
                    self.processes[at].wake(now);
                    self.carry_out(at, now);
                }
            }
            if idle {
                return;
            }
        }
    }

    /// Time at which the next timer is due.
    #[must_use]
    pub fn next_wake(&self) -> Option<Time> {
        self.processes.iter().filter_map(Process::next_wake).min()
    }

    /// Runs until all processes have stopped, no timer is left or this time has come: for tests and
    /// dry runs, time jumps from timer to timer.
    pub fn run_until(&mut self, until: Time) -> Time {
        let mut now = Time::ZERO;
        loop {
            self.run(now);
            match self.next_wake() {
                Some(next) if next <= until && !self.stopped() => now = now.max(next),
                _ => return now,
            }
        }
    }

    /// A process.
    ///
    /// # Panics
    /// If there is none of this slot.
    pub fn process(&mut self, slot: Slot) -> &mut Process {
        &mut self.processes[slot.index()]
    }

    /// Lets the application of a process do something from outside.
    ///
    /// # Panics
    /// If there is none of this slot.
    pub fn with<R>(&mut self, slot: Slot, now: Time, act: impl FnOnce(&mut Process) -> R) -> R {
        let done = act(&mut self.processes[slot.index()]);
        self.carry_out(slot.index(), now);
        done
    }

    /// Returns true if all processes have stopped.
    #[must_use]
    pub fn stopped(&self) -> bool {
        self.processes.iter().all(|process| process.stopped().is_some())
    }

    /// Reason of the stop of each process; `None` while it runs.
    pub fn reasons(&self) -> impl Iterator<Item = Option<StopReason>> {
        self.processes.iter().map(Process::stopped)
    }

    /// Events of the layers since the last call.
    pub fn take_events(&mut self) -> Vec<(Slot, Event)> {
        std::mem::take(&mut self.queues.events)
    }

    /// Lines of the message trace since the last call.
    pub fn take_traces(&mut self) -> Vec<Trace> {
        std::mem::take(&mut self.queues.traces)
    }

    fn carry_out(&mut self, at: usize, now: Time) {
        self.queues.slot = self.processes[at].slot();
        self.processes[at].carry_out(now, &mut self.queues);
    }
}

/// All inboxes, as one process reaches them, and what the processes report.
#[derive(Debug)]
struct Queues {
    /// The process that is driven.
    slot: Slot,
    inboxes: Vec<VecDeque<Message>>,
    limit: usize,
    events: Vec<(Slot, Event)>,
    traces: Vec<Trace>,
}

impl Transport for Queues {
    fn send(&mut self, _now: Time, message: &Outgoing, to: Slot) -> bool {
        let inbox = self.inboxes.get_mut(to.index()).filter(|inbox| inbox.len() < self.limit);
        let copy = || Message { dst: Dest::One(to), ..message.message.clone() };
        inbox.map(|inbox| inbox.push_back(copy())).is_some()
    }

    fn report(&mut self, report: Report) {
        match report {
            Report::Started { .. } => {}
            Report::Event { event, .. } => self.events.push((self.slot, event)),
            Report::Trace(trace) => self.traces.push(trace),
            Report::Stopped(_) => self.inboxes[self.slot.index()].clear(),
        }
    }
}
