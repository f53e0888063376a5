//! Checkers: oracles that see all processes, while the simulation runs.

use itg_process::{Event, Message, Slot, StopReason, Trace};

/// One fact that a checker sees.
#[derive(Clone, Debug)]
pub struct Observation<'a> {
    /// Time in nanoseconds of virtual time.
    pub at: u64,
    /// The process.
    pub slot: Slot,
    /// Name of the layer that says it; empty for facts of other kinds.
    pub layer: &'a str,
    /// The fact.
    pub what: ObservedEvent<'a>,
}

/// Facts that can be seen.
#[derive(Clone, Debug)]
pub enum ObservedEvent<'a> {
    /// A layer says something.
    Event(&'a Event),
    /// A message reaches the lowest layer of the process.
    Arrived(&'a Message),
    /// A message at the lower edge of the process, when its registry traces messages.
    Message(&'a Trace),
    /// The process is started, as this incarnation.
    Started(u64),
    /// It is gone.
    Crashed,
    /// It has stopped.
    Stopped(StopReason),
    /// The faults are over: from now on the system must converge. Seen once, for process 0.
    Healed,
}

/// A property that must hold.
pub trait Checker: Send {
    /// Its name.
    fn name(&self) -> &'static str;

    /// Sees something.
    ///
    /// # Errors
    /// The reason for which the property does not hold any more.
    fn see(&mut self, seen: &Observation<'_>) -> Result<(), String>;

    /// Returns true once all that must happen after the faults has happened.
    fn converged(&self) -> bool {
        true
    }

    /// The run is over.
    ///
    /// # Errors
    /// The reason for which the property does not hold.
    fn finish(&mut self) -> Result<(), String> {
        Ok(())
    }
}

impl Checker for Box<dyn Checker> {
    fn name(&self) -> &'static str {
        (**self).name()
    }

    fn see(&mut self, seen: &Observation<'_>) -> Result<(), String> {
        (**self).see(seen)
    }

    fn converged(&self) -> bool {
        (**self).converged()
    }

    fn finish(&mut self) -> Result<(), String> {
        (**self).finish()
    }
}

/// A property that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{checker}: {text} (at {at} ns, process {slot})")]
pub struct Violation {
    /// The checker.
    pub checker: &'static str,
    /// Description of the violation.
    pub text: String,
    /// Time in nanoseconds of virtual time.
    pub at: u64,
    /// The process that was seen last.
    pub slot: Slot,
}
