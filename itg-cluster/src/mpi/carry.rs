//! A rank's log on its way to the log rank: two buffers, of which one is filled while the other is sent.
//!
//! The sending thread fills a buffer and gives it away when it is full. The thread that talks to MPI sends
//! it (`MPI_Isend`) and gives it back when `MPI_Test` says that it is sent. Only when both are full, the
//! one being sent still, does the sending thread wait; the log counts that as a stall.

use std::sync::mpsc::{Receiver, TryRecvError};

use itg_mpi::{Done, InFlight, Job, tag};
use itg_net::{HandedBlock, LogLimits, OnFull};

/// Two buffers for a producer, and no more.
pub(super) fn two_buffers() -> LogLimits {
    LogLimits { on_full: OnFull::Wait, pool_bytes: 0, ..LogLimits::default() }
}

/// Carries the blocks of this rank, one at a time and in their order.
pub(super) struct Carrier {
    blocks: Option<Receiver<HandedBlock>>,
    in_flight: Option<InFlight<HandedBlock>>,
    end: Option<InFlight<[u8; 16]>>,
    sent: Done,
}

impl Carrier {
    /// Of these blocks; nothing to do without.
    pub(super) const fn new(blocks: Option<Receiver<HandedBlock>>) -> Self {
        Self { blocks, in_flight: None, end: None, sent: Done { blocks: 0, records: 0 } }
    }

    /// Does what can be done now; whether that was anything.
    pub(super) fn step(&mut self, job: &Job) -> bool {
        self.end = self.end.take().and_then(|end| end.test().err());
        if let Some(sending) = self.in_flight.take() {
            match sending.test() {
                // Its buffer goes back to the producer here.
                Ok(block) => drop(block),
                Err(still) => {
                    self.in_flight = Some(still);
                    return false;
                }
            }
        }
        let Some(blocks) = &self.blocks else { return false };
        match blocks.try_recv() {
            Ok(block) => {
                self.sent.blocks += 1;
                self.sent.records += block.records();
                self.in_flight = Some(job.send(0, tag::BLOCK, block));
            }
            Err(TryRecvError::Empty) => return false,
            Err(TryRecvError::Disconnected) => {
                self.blocks = None;
                self.end = Some(job.send(0, tag::DONE, self.sent.to_bytes()));
            }
        }
        true
    }

    /// Whether all is sent.
    pub(super) const fn is_over(&self) -> bool {
        self.blocks.is_none() && self.in_flight.is_none() && self.end.is_none()
    }
}
