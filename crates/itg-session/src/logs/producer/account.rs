//! Account of a producer's blocks: how many there were, and what has become of them.

use super::window::Window;
use super::{LogFate, SpooledLog};
use crate::logs::message::LogMessage;

/// Blocks and the records in them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Count {
    pub(super) blocks: u64,
    pub(super) records: u64,
}

impl Count {
    pub(super) const fn add(&mut self, records: u32) {
        self.blocks += 1;
        self.records += records as u64;
    }
}

/// Account of a log.
#[derive(Debug)]
pub(super) struct Account {
    /// The next new block.
    pub(super) next_no: u32,
    pub(super) produced: Count,
    pub(super) dropped: Count,
    /// Released: acknowledged (TCP) or sent (UDP).
    pub(super) gone: Count,
    /// Released unsent (UDP without spool, while the server was away).
    pub(super) lost: Count,
    /// Sent, not acknowledged, and gone from the spool.
    pub(super) unread: Count,
}

impl Account {
    /// Account of a log of which an earlier process left these blocks in its spool.
    pub(super) fn of_spool(log: &SpooledLog) -> Self {
        let held_records: u64 = log.spool.iter().map(|block| u64::from(block.records)).sum();
        let produced = u64::from(log.blocks).saturating_sub(log.dropped_blocks);
        Self {
            next_no: log.blocks,
            produced: Count { blocks: produced, records: log.records },
            dropped: Count { blocks: log.dropped_blocks, records: log.dropped_records },
            gone: Count {
                blocks: produced.saturating_sub(log.spool.len() as u64),
                records: log.records.saturating_sub(held_records),
            },
            lost: Count::default(),
            unread: Count::default(),
        }
    }

    /// A block uses up its number.
    pub(super) fn count_new(&mut self, block_no: u32) {
        assert_eq!(block_no, self.next_no, "blocks are numbered one after the other");
        self.next_no = block_no.checked_add(1).expect("a log has fewer than 2^32 blocks");
    }

    /// A block that was produced is dropped after all.
    pub(super) fn drop_produced(&mut self, records: u32) {
        self.produced.blocks -= 1;
        self.produced.records -= u64::from(records);
        self.dropped.add(records);
    }

    /// The server's account, made to add up with our own.
    pub(super) fn confirmed(&self, left: LogMessage) -> LogFate {
        let LogMessage::Left {
            blocks,
            records,
            missing,
            missing_left_out,
            conflicting_blocks,
            conflicting_records,
        } = left
        else {
            return self.known_fate();
        };
        let stored_blocks = blocks.min(self.produced.blocks).saturating_sub(conflicting_blocks);
        let stored_records = records.min(self.produced.records).saturating_sub(conflicting_records);
        LogFate {
            conflicting_blocks,
            stored_blocks,
            stored_records,
            missing_blocks: self.produced.blocks - stored_blocks,
            missing_records: self.produced.records - stored_records,
            missing,
            missing_left_out,
            confirmed: true,
            ..self.known_fate()
        }
    }

    fn known_fate(&self) -> LogFate {
        LogFate {
            blocks: self.produced.blocks + self.dropped.blocks,
            records: self.produced.records + self.dropped.records,
            dropped_blocks: self.dropped.blocks,
            dropped_records: self.dropped.records,
            ..LogFate::default()
        }
    }

    /// Outcome without the server's account, as far as it is known. Over UDP nothing is acknowledged.
    pub(super) fn unconfirmed(&self, window: &Window, udp: bool) -> LogFate {
        let (mut spooled, mut waiting) = (Count::default(), self.unread);
        for block in window.blocks() {
            let count = if block.in_spool { &mut spooled } else { &mut waiting };
            count.add(block.records);
        }
        let (stored, unknown) =
            if udp { (Count::default(), self.gone) } else { (self.gone, Count::default()) };
        LogFate {
            stored_blocks: stored.blocks,
            stored_records: stored.records,
            missing_blocks: self.lost.blocks,
            missing_records: self.lost.records,
            spooled_blocks: spooled.blocks,
            spooled_records: spooled.records,
            unconfirmed_blocks: unknown.blocks + waiting.blocks,
            unconfirmed_records: unknown.records + waiting.records,
            ..self.known_fate()
        }
    }
}
