//! Blocks of a producer for which there is no room in memory.

use super::{LogProducer, ProducerOutput, State};

impl LogProducer {
    /// Instant at which the spool has to be used next, if nothing else happens.
    pub(super) fn spool_at(&self) -> Option<u64> {
        let (patience, away) = (self.config.patience_ns?, self.away_since?);
        let full = self.in_memory >= self.config.memory_blocks as usize;
        full.then(|| away.saturating_add(patience))
    }

    /// Memory is full: moves blocks to the spool, or gives them up, if it is time.
    pub(super) fn make_room(&mut self, now_ns: u64, out: &mut Vec<ProducerOutput>) {
        if self.banished {
            return self.spool_all(out);
        }
        let full = self.config.memory_blocks as usize;
        if self.in_memory < full {
            return;
        }
        if self.config.patience_ns.is_some() {
            // Also while the server is catching up with the spool.
            let behind = self.held.get(self.sent).is_some_and(|block| block.in_spool);
            if behind || self.spool_at().is_some_and(|at| at <= now_ns) {
                self.spool_all(out);
            }
        } else if self.is_udp() && self.known && self.state != State::Running {
            while self.in_memory >= full
                && let Some(block) = self.held.pop_front()
            {
                self.in_memory -= usize::from(!block.in_spool);
                self.lost.add(block.records);
                out.push(ProducerOutput::Release { up_to: block.block_no + 1 });
            }
        }
    }

    /// Moves everything that is not on its way to the spool.
    pub(super) fn spool_all(&mut self, out: &mut Vec<ProducerOutput>) {
        for block in self.held.iter_mut().skip(self.sent).filter(|block| !block.in_spool) {
            block.in_spool = true;
            self.in_memory -= 1;
            out.push(ProducerOutput::Spool { block_no: block.block_no });
        }
    }

    /// A block cannot be read from the spool: it is dropped after all, unless the server has it from
    /// an earlier connection, which only the server can tell.
    pub(super) fn on_spool_broken(
        &mut self,
        now_ns: u64,
        block_no: u32,
        out: &mut Vec<ProducerOutput>,
    ) {
        let Some(place) = self.held.iter().position(|b| b.block_no == block_no && b.in_spool)
        else {
            return;
        };
        let Some(block) = self.held.remove(place) else { return };
        if block.was_sent {
            self.unread.add(block.records);
        } else {
            self.produced.blocks -= 1;
            self.produced.records -= u64::from(block.records);
            self.dropped.add(block.records);
        }
        if place < self.sent {
            // It was counted against the credit and does not reach the server.
            self.sent -= 1;
            self.used = self.used.saturating_sub(1);
        }
        self.pump(now_ns, out);
    }
}
