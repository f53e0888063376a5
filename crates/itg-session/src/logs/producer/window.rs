//! Blocks that a producer's driver keeps: those that wait, those on their way, those in the spool.

use std::collections::VecDeque;

use super::SpooledBlock;

/// A block that the driver keeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnstoredBlock {
    pub(super) block_no: u32,
    pub(super) records: u32,
    pub(super) in_spool: bool,
    /// It was sent on an earlier connection: the server may have it.
    pub(super) was_sent: bool,
}

/// Blocks that are not acknowledged (TCP) or not sent (UDP).
#[derive(Debug)]
pub(super) struct Window {
    /// In ascending order.
    held: VecDeque<UnstoredBlock>,
    /// Number of held blocks given to the driver on this connection: the first ones.
    sent: usize,
    /// Number of held blocks that are in memory.
    in_memory: usize,
    /// Blocks given to the driver on this connection, and how many of them the server takes.
    used: u32,
    credit: u32,
    /// One more than the highest block that was ever sent.
    ever_sent: u32,
}

impl Window {
    /// Blocks that an earlier process left in its spool, of a log of which it may have sent those below
    /// `ever_sent`.
    pub(super) fn of_spool(spool: &[SpooledBlock], ever_sent: u32) -> Self {
        let in_spool = |block: &SpooledBlock| UnstoredBlock {
            block_no: block.block_no,
            records: block.records,
            in_spool: true,
            was_sent: true,
        };
        let held = spool.iter().map(in_spool).collect();
        Self { held, sent: 0, in_memory: 0, used: 0, credit: 0, ever_sent }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    pub(super) fn blocks(&self) -> impl Iterator<Item = &UnstoredBlock> {
        self.held.iter()
    }

    /// Number of the blocks in memory.
    pub(super) const fn in_memory(&self) -> usize {
        self.in_memory
    }

    pub(super) const fn ever_sent(&self) -> u32 {
        self.ever_sent
    }

    pub(super) fn first(&self) -> Option<&UnstoredBlock> {
        self.held.front()
    }

    /// The first block that is not on its way.
    pub(super) fn first_unsent(&self) -> Option<&UnstoredBlock> {
        self.held.get(self.sent)
    }

    /// Returns true if a block has been given to the driver on this connection.
    pub(super) fn is_on_its_way(&self, block_no: u32) -> bool {
        self.held.iter().take(self.sent).any(|block| block.block_no == block_no)
    }

    /// Adds a new block, in memory.
    pub(super) fn push(&mut self, block_no: u32, records: u32) {
        self.held.push_back(UnstoredBlock { block_no, records, in_spool: false, was_sent: false });
        self.in_memory += 1;
    }

    /// The server takes so many blocks on this connection, if not more already.
    pub(super) fn grant(&mut self, credit: u32) {
        self.credit = self.credit.max(credit);
    }

    /// The next block to send, while no more than `most` are on their way and, where there is credit, some of
    /// it is left.
    pub(super) fn send_next(&mut self, most: usize, by_credit: bool) -> Option<UnstoredBlock> {
        let has_credit = !by_credit || self.used < self.credit;
        let block = *self.first_unsent().filter(|_| has_credit && self.sent < most)?;
        self.sent += 1;
        self.used = self.used.saturating_add(1);
        self.ever_sent = self.ever_sent.max(block.block_no + 1);
        Some(block)
    }

    /// Takes out the first block, if its number is below this one.
    pub(super) fn pop_below(&mut self, end: u32) -> Option<UnstoredBlock> {
        let block = self.held.pop_front_if(|block| block.block_no < end)?;
        self.sent = self.sent.saturating_sub(1);
        self.in_memory -= usize::from(!block.in_spool);
        Some(block)
    }

    /// Nothing is on its way any more: the connection is gone.
    pub(super) fn recall(&mut self) {
        self.held.iter_mut().take(self.sent).for_each(|block| block.was_sent = true);
        (self.sent, self.used, self.credit) = (0, 0, 0);
    }

    /// Moves the blocks in memory that are not on their way to the spool; their numbers.
    pub(super) fn spool_unsent(&mut self) -> impl Iterator<Item = u32> + '_ {
        let waiting = self.held.iter_mut().skip(self.sent).filter(|block| !block.in_spool);
        let in_memory = &mut self.in_memory;
        waiting.map(|block| {
            block.in_spool = true;
            *in_memory -= 1;
            block.block_no
        })
    }

    /// Takes out a block that cannot be read from the spool.
    pub(super) fn remove_spooled(&mut self, block_no: u32) -> Option<UnstoredBlock> {
        let broken = |block: &UnstoredBlock| block.block_no == block_no && block.in_spool;
        let place = self.held.iter().position(broken)?;
        if place < self.sent {
            // It was counted against the credit and does not reach the server.
            self.sent -= 1;
            self.used = self.used.saturating_sub(1);
        }
        self.held.remove(place)
    }
}
