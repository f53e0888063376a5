//! End of a producer's connection, and end of the log: the outcome for its blocks.

use std::fmt;

use crate::difference::number;
use crate::logs::message::LogMessage;
use crate::logs::name::fnv1a;

use super::{Count, LogFate, LogProducer, ProducerOutput, State};

impl LogProducer {
    /// The connection is of no use any more: tries again after a while.
    pub(super) fn retreat(&mut self, now_ns: u64, trouble: String) {
        self.trouble = Some(trouble);
        self.away_since.get_or_insert(now_ns);
        self.state = State::Away;
        self.held.iter_mut().take(self.sent).for_each(|block| block.was_sent = true);
        self.sent = 0;
        self.used = 0;
        self.credit = 0;
        self.until = Some(now_ns.saturating_add(self.back_off()));
        self.attempts = self.attempts.saturating_add(1);
    }

    /// Doubles from attempt to attempt, and differs by up to a quarter from producer to producer, so
    /// that not all of them come back at once.
    pub(super) fn back_off(&self) -> u64 {
        let t = self.config.timeouts;
        let wait = t.retry_min_ns.saturating_mul(1 << self.attempts.min(20)).min(t.retry_max_ns);
        let own = fnv1a(&[&self.config.who.key[..], &self.attempts.to_le_bytes()].concat());
        wait - wait / 4 + own % (wait / 4).max(1)
    }

    /// The server does not keep to the protocol. From the beginning: it is no log server.
    pub(super) fn distrust(&mut self, now_ns: u64, reason: String, out: &mut Vec<ProducerOutput>) {
        out.push(ProducerOutput::Disconnect);
        if self.known { self.retreat(now_ns, reason) } else { self.banish(reason, out) }
    }

    /// The server will never take the log. From the beginning, or without a spool, this is a failure.
    pub(super) fn banish(&mut self, reason: String, out: &mut Vec<ProducerOutput>) {
        if self.closing.is_some() {
            self.trouble = Some(reason);
            return self.finish(out);
        }
        if !self.known || self.config.patience_ns.is_none() {
            return self.fail(reason, out);
        }
        self.banished = true;
        self.retreat(0, reason);
        self.away_since = Some(0);
        self.until = None;
        self.spool_all(out);
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

    pub(super) fn known_fate(&self) -> LogFate {
        LogFate {
            blocks: self.produced.blocks + self.dropped.blocks,
            records: self.produced.records + self.dropped.records,
            dropped_blocks: self.dropped.blocks,
            dropped_records: self.dropped.records,
            ..LogFate::default()
        }
    }

    /// Outcome without the server's account, as far as it is known.
    pub(super) fn unconfirmed(&mut self) -> LogFate {
        let (mut spooled, mut waiting) = (Count::default(), self.unread);
        for block in &self.held {
            let count = if block.in_spool { &mut spooled } else { &mut waiting };
            count.add(block.records);
        }
        let (stored, mut unknown) = if self.is_udp() {
            (Count::default(), self.gone)
        } else {
            (self.gone, Count::default())
        };
        unknown.blocks += waiting.blocks;
        unknown.records += waiting.records;
        LogFate {
            stored_blocks: stored.blocks,
            stored_records: stored.records,
            missing_blocks: self.lost.blocks,
            missing_records: self.lost.records,
            spooled_blocks: spooled.blocks,
            spooled_records: spooled.records,
            unconfirmed_blocks: unknown.blocks,
            unconfirmed_records: unknown.records,
            trouble: self.trouble.take(),
            ..self.known_fate()
        }
    }

    /// The end without the server's last word.
    pub(super) fn finish(&mut self, out: &mut Vec<ProducerOutput>) {
        if self.config.patience_ns.is_some() {
            self.sent = 0;
            self.spool_all(out);
        }
        let fate = self.unconfirmed();
        self.state = State::Over;
        out.push(ProducerOutput::Finished(fate));
    }

    pub(super) fn fail(&mut self, reason: String, out: &mut Vec<ProducerOutput>) {
        let fate = self.unconfirmed();
        self.state = State::Over;
        out.push(ProducerOutput::Failed { reason, fate });
    }
}

/// One line of words, in records.
impl fmt::Display for LogFate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} stored", self.stored_records, number(self.records, "record"))?;
        for (n, what) in [
            (self.missing_records, "missing"),
            (self.dropped_records, "dropped for want of room"),
            (self.spooled_records, "in the spool"),
            (self.unconfirmed_records, "not confirmed by the log server"),
        ] {
            if n > 0 {
                write!(f, ", {n} {what}")?;
            }
        }
        if self.conflicting_blocks > 0 {
            let blocks = number(self.conflicting_blocks, "block");
            write!(f, " ({blocks} not stored: others have written under the same number before)")?;
        }
        Ok(())
    }
}
