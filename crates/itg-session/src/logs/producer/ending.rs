//! End of a producer's connection, and end of the log: the outcome for its blocks.

use std::fmt;

use crate::difference::number;
use crate::logs::name::fnv1a;

use super::{LogFate, LogProducer, ProducerOutput, Standing, State};

impl LogProducer {
    /// The connection is of no use any more: tries again after a while.
    pub(super) fn retreat(&mut self, now_ns: u64, trouble: String) {
        self.absence.trouble = Some(trouble);
        self.absence.since.get_or_insert(now_ns);
        self.state = State::Away;
        self.window.recall();
        self.until = Some(now_ns.saturating_add(self.back_off()));
        self.absence.attempts = self.absence.attempts.saturating_add(1);
    }

    /// Doubles from attempt to attempt, and differs by up to a quarter from producer to producer, so
    /// that not all of them come back at once.
    pub(super) fn back_off(&self) -> u64 {
        let t = self.config.timeouts;
        let attempts = self.absence.attempts;
        let wait = t.retry_min_ns.saturating_mul(1 << attempts.min(20)).min(t.retry_max_ns);
        let own = fnv1a(&[&self.config.who.key[..], &attempts.to_le_bytes()].concat());
        wait - wait / 4 + own % (wait / 4).max(1)
    }

    /// The server does not keep to the protocol. From the beginning: it is no log server.
    pub(super) fn distrust(&mut self, now_ns: u64, reason: String, out: &mut Vec<ProducerOutput>) {
        out.push(ProducerOutput::Disconnect);
        match self.standing {
            Standing::New { .. } => self.banish(reason, out),
            _ => self.retreat(now_ns, reason),
        }
    }

    /// The server will never take the log. From the beginning, or without a spool, this is a failure.
    pub(super) fn banish(&mut self, reason: String, out: &mut Vec<ProducerOutput>) {
        if self.closing.is_some() {
            self.absence.trouble = Some(reason);
            return self.finish(out);
        }
        let new = matches!(self.standing, Standing::New { .. });
        if new || self.config.patience_ns.is_none() {
            return self.fail(reason, out);
        }
        self.standing = Standing::Banished;
        self.retreat(0, reason);
        self.absence.since = Some(0);
        self.until = None;
        self.spool_all(out);
    }

    /// Outcome without the server's account.
    fn outcome(&mut self) -> LogFate {
        let known = self.account.unconfirmed(&self.window, self.is_udp());
        LogFate { trouble: self.absence.trouble.take(), ..known }
    }

    /// The end without the server's last word.
    pub(super) fn finish(&mut self, out: &mut Vec<ProducerOutput>) {
        if self.config.patience_ns.is_some() {
            self.window.recall();
            self.spool_all(out);
        }
        let fate = self.outcome();
        self.state = State::Over;
        out.push(ProducerOutput::Finished(fate));
    }

    pub(super) fn fail(&mut self, reason: String, out: &mut Vec<ProducerOutput>) {
        let fate = self.outcome();
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
