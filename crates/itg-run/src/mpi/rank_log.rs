//! A rank's log on its way to the log rank: one buffer is filled while others are sent.
//!
//! The sending thread fills a buffer and gives it away when it is full. The thread that talks to MPI sends
//! it (`MPI_Isend`) and gives it back when `MPI_Test` says that it is sent. Two buffers are enough while the log
//! rank keeps up; on processors that ranks share it gets its turn every few milliseconds only, so that further
//! ones are taken, as a producer of the log server does. Only when their memory is used up does the sending
//! thread wait; the log counts that as a stall.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, TryRecvError};

use itg_engine::HandedBlock;
use itg_mpi::{Done, InFlight, Job, tag};

/// Blocks that are being sent at a time.
const IN_FLIGHT: usize = 8;

/// Carries the blocks of this rank in their order: MPI lets none overtake another.
pub(super) struct Carrier {
    blocks: Option<Receiver<HandedBlock>>,
    in_flight: VecDeque<InFlight<HandedBlock>>,
    end: Option<InFlight<[u8; 16]>>,
    sent: Done,
    /// True if no more blocks come than those that wait.
    closed: bool,
}

impl Carrier {
    /// Of these blocks; nothing to do without.
    pub(super) const fn new(blocks: Option<Receiver<HandedBlock>>) -> Self {
        let sent = Done { blocks: 0, records: 0 };
        Self { blocks, in_flight: VecDeque::new(), end: None, sent, closed: false }
    }

    /// The log has ended: what waits is all that comes, although its producer may still be there.
    pub(super) const fn close(&mut self) {
        self.closed = true;
    }

    /// Does what can be done now; whether that was anything.
    pub(super) fn step(&mut self, job: &Job) -> bool {
        self.end = self.end.take().and_then(|end| end.test().err());
        let mut done = false;
        while let Some(sending) = self.in_flight.pop_front() {
            match sending.test() {
                // Its buffer goes back to the producer here.
                Ok(block) => drop(block),
                Err(still) => {
                    self.in_flight.push_front(still);
                    break;
                }
            }
            done = true;
        }
        if self.in_flight.len() >= IN_FLIGHT {
            return done;
        }
        let Some(blocks) = &self.blocks else { return done };
        match blocks.try_recv() {
            Ok(block) => {
                self.sent.blocks += 1;
                self.sent.records += block.records();
                self.in_flight.push_back(job.send(0, tag::BLOCK, block));
            }
            Err(TryRecvError::Empty) if !self.closed => return done,
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => {
                self.blocks = None;
                self.end = Some(job.send(0, tag::DONE, self.sent.to_bytes()));
            }
        }
        true
    }

    /// Returns true if all is sent.
    pub(super) fn is_over(&self) -> bool {
        self.blocks.is_none() && self.in_flight.is_empty() && self.end.is_none()
    }
}
