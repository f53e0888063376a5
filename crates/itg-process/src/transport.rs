//! The one driver of processes, and what a world implements to be driven: its transport.
//!
//! A world calls [`Process::start`], [`Process::deliver`] and the like when something happens, and then
//! [`Process::carry_out`], which hands all that the process asks for to the world's [`Transport`]. How a
//! world waits (a thread for each connection, a task, a loop over MPI, a heap of virtual events) is its own.

use std::cell::OnceCell;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::event::Event;
use crate::frame::{self, HEADER_LEN};
use crate::journal::{LayerWrite, Stored};
use crate::message::{Dest, Message, Slot, Time, To};
use crate::output::{Output, StopReason, Trace};
use crate::process::Process;

/// Report of a process on itself while it runs.
#[derive(Clone, Debug)]
pub enum Report {
    /// The process starts, as this incarnation.
    Started {
        /// Its address.
        process: Slot,
        /// Incarnation of the process in its slot.
        incarnation: u64,
    },
    /// A layer says something, for traces and checkers.
    Event {
        /// Time on the process's clock.
        at: Time,
        /// Name of the layer.
        layer: Arc<str>,
        /// The event.
        event: Event,
    },
    /// A line of the message trace.
    Trace(Trace),
    /// The process has stopped; its last messages have been handed over.
    Stopped(StopReason),
}

/// A message on its way out, and its frame, which is made once however many processes get it.
#[derive(Debug)]
pub struct Outgoing {
    /// The message; a multicast names all its receivers.
    pub message: Message,
    incarnation: u64,
    view: u64,
    head: OnceCell<[u8; HEADER_LEN]>,
    frame: OnceCell<Bytes>,
}

impl Outgoing {
    /// Header of its frame.
    #[must_use]
    pub fn head(&self) -> &[u8; HEADER_LEN] {
        self.head.get_or_init(|| frame::head(&self.message, self.incarnation, self.view))
    }

    /// Its frame in one piece.
    #[must_use]
    pub fn frame(&self) -> Bytes {
        let encoded = || {
            let mut bytes = BytesMut::new();
            frame::encode(&self.message, self.incarnation, self.view, &mut bytes);
            bytes.freeze()
        };
        self.frame.get_or_init(encoded).clone()
    }
}

/// Carrier of the messages of a process, and receiver of its reports.
///
/// Promises of the networks behind it are their [`crate::Contract`]. A message that is not taken is
/// refused: the layers are told, once for each process that it was for, which the refusal names.
pub trait Transport {
    /// Takes a message for one process; `false` refuses it.
    fn send(&mut self, now: Time, message: &Outgoing, to: Slot) -> bool;

    /// Takes a message for several processes and returns those for which it is refused. By default it is
    /// sent to one after the other.
    fn multicast(&mut self, now: Time, message: &Outgoing, to: &To) -> Vec<Slot> {
        to.slots().iter().copied().filter(|slot| !self.send(now, message, *slot)).collect()
    }

    /// Writes what waits; called when the process asks for nothing more. Returns messages that were taken
    /// before and cannot leave: they are refused.
    fn flush(&mut self, _now: Time) -> Vec<Message> {
        Vec::new()
    }

    /// Makes writes to journals durable, all of a step in one call. With [`Stored::Later`] the rest stays
    /// with the process, until the world calls [`Process::carry_out`] again once they are. By default
    /// nothing is kept.
    fn persist(&mut self, _now: Time, _writes: Vec<LayerWrite>) -> Stored {
        Stored::Durable
    }

    /// Takes a report of the process on itself.
    fn report(&mut self, report: Report);
}

impl Process {
    /// Hands everything that the process asks for to its transport, in order, until it asks for nothing.
    /// Writes to journals come first, and the rest when they are durable.
    pub fn carry_out(&mut self, now: Time, transport: &mut impl Transport) {
        loop {
            loop {
                let writes = self.take_writes();
                if !writes.is_empty() && transport.persist(now, writes) == Stored::Later {
                    return;
                }
                let Some(output) = self.poll() else { break };
                match output {
                    Output::Send { message, to } => {
                        let (incarnation, view) = (self.incarnation(), self.view_number());
                        let (head, frame) = (OnceCell::new(), OnceCell::new());
                        let outgoing = Outgoing { message, incarnation, view, head, frame };
                        for slot in transport.multicast(now, &outgoing, &to) {
                            let copy = outgoing.message.clone();
                            self.refuse(now, Message { dst: Dest::One(slot), ..copy });
                        }
                    }
                    Output::Started => {
                        let (process, incarnation) = (self.slot(), self.incarnation());
                        transport.report(Report::Started { process, incarnation });
                    }
                    Output::Event(layer, event) => {
                        transport.report(Report::Event { at: now, layer, event });
                    }
                    Output::Trace(trace) => transport.report(Report::Trace(trace)),
                    Output::Stopped(why) => transport.report(Report::Stopped(why)),
                }
            }
            let unsent = transport.flush(now);
            if unsent.is_empty() {
                return;
            }
            unsent.into_iter().for_each(|message| self.refuse(now, message));
        }
    }
}
