//! Limits of a log, and what a producer does where they are reached.

use std::time::Duration;

use itg_record::RECORD_LEN;
use itg_session::logs::keep::Fsync;

use super::rotation::Rotation;

/// Records of a block that fits an Ethernet frame as one datagram: (1500 − 28 − 64) / 40.
pub(super) const UDP_RECORDS: usize = 35;
/// Blocks on their way from all producers to the writer.
pub(super) const QUEUE: usize = 16_384;
/// Blocks of one producer, so that small ones do not fill the queue before the memory: 4096.
const MOST_BLOCKS: usize = QUEUE / 4;

/// Behaviour of a producer whose block is full while there is no empty one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFull {
    /// It waits until the writer gives one back: nothing is lost, packets may be late.
    Wait,
    /// It takes further memory, up to [`LogLimits::pool_bytes`], then it waits.
    #[default]
    Grow,
    /// It leaves out the records of the block in hand, and counts them: packets are never late for it.
    Drop,
}

/// Limits of a log: size of its blocks, and memory for them.
#[derive(Clone, Copy, Debug)]
pub struct LogLimits {
    /// Records that a producer hands over at once, and of a block in a file or on TCP.
    pub block_records: usize,
    /// Records in a block on UDP, where a block is one datagram.
    pub datagram_records: usize,
    /// A block that is older is written though not full.
    pub flush_age: Duration,
    /// Behaviour of a producer without an empty block.
    pub on_full: OnFull,
    /// Memory for the blocks of one producer, in bytes; two blocks at least. With
    /// [`OnFull::Grow`] it is taken when it is needed, else from the beginning.
    pub pool_bytes: usize,
    /// For measurements: a log file takes no more bytes a second than this. Servers have a limit of
    /// their own.
    pub throttle_bytes_per_s: Option<u64>,
    /// Syncing of a log file. Servers have a setting of their own.
    pub fsync: Fsync,
    /// Rotation of a log file that is continued ([`LogTarget::File`](super::LogTarget::File)).
    pub rotation: Rotation,
}

impl Default for LogLimits {
    /// Blocks of 1024 records (UDP: 35, which fit an Ethernet frame), written after one second at the
    /// latest; growing to 64 MiB a producer.
    fn default() -> Self {
        Self {
            block_records: 1024,
            datagram_records: UDP_RECORDS,
            flush_age: Duration::from_secs(1),
            on_full: OnFull::Grow,
            pool_bytes: 64 << 20,
            throttle_bytes_per_s: None,
            fsync: Fsync::Never,
            rotation: Rotation::default(),
        }
    }
}

impl LogLimits {
    /// Blocks of one producer, the one that is being filled included: at least 2.
    pub(super) fn most_blocks(&self) -> usize {
        (self.pool_bytes / (self.block_records * RECORD_LEN)).clamp(2, MOST_BLOCKS)
    }
}
