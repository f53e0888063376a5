//! Blocks of a producer for which there is no room in memory.

use super::{LogProducer, ProducerOutput, Standing, State};

impl LogProducer {
    /// Instant at which the spool has to be used next, if nothing else happens.
    pub(super) fn spool_at(&self) -> Option<u64> {
        let (patience, away) = (self.config.patience_ns?, self.absence.since?);
        let full = self.window.in_memory() >= self.config.memory_blocks as usize;
        full.then(|| away.saturating_add(patience))
    }

    /// Memory is full: moves blocks to the spool, or gives them up, if it is time.
    pub(super) fn make_room(&mut self, now_ns: u64, out: &mut Vec<ProducerOutput>) {
        if self.standing == Standing::Banished {
            return self.spool_all(out);
        }
        let full = self.config.memory_blocks as usize;
        if self.window.in_memory() < full {
            return;
        }
        if self.config.patience_ns.is_some() {
            // Also while the server is catching up with the spool.
            let behind = self.window.first_unsent().is_some_and(|block| block.in_spool);
            if behind || self.spool_at().is_some_and(|at| at <= now_ns) {
                self.spool_all(out);
            }
        } else if self.is_udp() && self.standing == Standing::Known && self.state != State::Running
        {
            while self.window.in_memory() >= full
                && let Some(block) = self.window.pop_below(u32::MAX)
            {
                self.account.lost.add(block.records);
                out.push(ProducerOutput::Release { up_to: block.block_no + 1 });
            }
        }
    }

    /// Moves everything that is not on its way to the spool.
    pub(super) fn spool_all(&mut self, out: &mut Vec<ProducerOutput>) {
        let numbers = self.window.spool_unsent();
        out.extend(numbers.map(|block_no| ProducerOutput::Spool { block_no }));
    }

    /// A block cannot be read from the spool: it is dropped after all, unless the server has it from
    /// an earlier connection, which only the server can tell.
    pub(super) fn on_spool_broken(
        &mut self,
        now_ns: u64,
        block_no: u32,
        out: &mut Vec<ProducerOutput>,
    ) {
        let Some(block) = self.window.remove_spooled(block_no) else { return };
        if block.was_sent {
            self.account.unread.add(block.records);
        } else {
            self.account.drop_produced(block.records);
        }
        self.pump(now_ns, out);
    }
}
