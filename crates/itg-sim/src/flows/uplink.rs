//! Cost of a log server in a simulation: blocks of records that travel over the same network as the
//! traffic, on one TCP connection for each program that logs.
//!
//! A block leaves when it is full, and when no flow is open any more; it waits in memory until TCP takes
//! it. Logs of the host that runs the log server do not travel.

use itg_record::RECORD_LEN;

use super::tcp::{Connection, Window};

/// Records of a full block, as real runs have them unless told otherwise.
const BLOCK: u32 = 1024;
/// Bytes of a block besides its records: headers of the block and of the message that carries it.
const BLOCK_HEADERS: u32 = 96;

/// The way of a program's log to the server.
#[derive(Debug)]
pub(super) struct Uplink {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) tcp: Connection,
    /// Records of the block that is being filled.
    filled: u32,
    blocks: u64,
}

/// Counters of log transfers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogTransfer {
    /// Blocks sent to the log server.
    pub blocks: u64,
    /// Blocks that are there.
    pub stored: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Most bytes of one program that waited to be acknowledged.
    pub waiting_most: u64,
}

impl Uplink {
    pub(super) fn new(from: u32, to: u32, window: Window) -> Self {
        Self { from, to, tcp: Connection::new(window), filled: 0, blocks: 0 }
    }

    /// A record is logged; returns true if a block has become full and is written.
    pub(super) fn record(&mut self, now: u64, done: &mut LogTransfer) -> bool {
        self.filled += 1;
        self.filled == BLOCK && self.close(now, done)
    }

    /// Writes the block that is being filled, if there is one.
    pub(super) fn close(&mut self, now: u64, done: &mut LogTransfer) -> bool {
        if self.filled == 0 {
            return false;
        }
        let size = self.filled * u32::try_from(RECORD_LEN).unwrap_or(u32::MAX) + BLOCK_HEADERS;
        self.tcp.write(self.blocks, size, now);
        self.blocks += 1;
        self.filled = 0;
        done.blocks += 1;
        done.bytes += u64::from(size);
        done.waiting_most = done.waiting_most.max(self.tcp.waiting());
        true
    }
}
