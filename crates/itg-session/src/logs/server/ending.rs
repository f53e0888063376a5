//! End of a session: with the producer's leave, with the server's shutdown, or with a refusal.

use crate::logs::book::LogBook;
use crate::logs::message::{LEFT_RANGES, LogMessage, MAX_REASON};
use crate::logs::name::cut;

use super::{LogAccount, LogServerSession, ServerOutput, State};

impl LogServerSession {
    /// Instant until which late datagrams are awaited.
    pub(super) fn linger_at(&self) -> Option<u64> {
        self.producer.as_ref()?.leave.as_ref()?.linger_until
    }

    /// Says `Left` when nothing more is on its way.
    pub(super) fn leave_if_settled(
        &mut self,
        now_ns: u64,
        book: &mut LogBook,
        out: &mut Vec<ServerOutput>,
    ) {
        let Some(producer) = self.producer.as_mut().filter(|_| self.state == State::Leaving) else {
            return;
        };
        let Some(leave) = &mut producer.leave else { return };
        leave.linger_until.take_if(|until| *until <= now_ns);
        let (run, log_id) = (producer.run.as_str(), producer.log_id);
        let Some(log) = book.log(run, log_id) else { return };
        let all = log.blocks >= u64::from(leave.blocks);
        if log.pending > 0 || (leave.linger_until.is_some() && !all) {
            return;
        }
        let (missing, left_out) = book.missing(run, log_id, leave.blocks, LEFT_RANGES);
        let Some(leave) = producer.leave.take() else { return };
        let listed: u64 = missing.iter().map(|&(first, last)| u64::from(last - first) + 1).sum();
        out.push(ServerOutput::Account(Box::new(LogAccount {
            run: producer.run.clone(),
            log_id,
            who: producer.who.clone(),
            blocks: leave.blocks,
            records: leave.records,
            dropped_blocks: leave.dropped_blocks,
            dropped_records: leave.dropped_records,
            per_flow: leave.per_flow,
            flows_left_out: leave.flows_left_out,
            stored_blocks: log.blocks,
            stored_records: log.records,
            missing_blocks: listed + left_out,
            missing: missing.clone(),
            damaged_blocks: producer.damaged,
            refused_blocks: producer.refused,
            conflicting_blocks: log.conflicting_blocks,
        })));
        out.push(ServerOutput::Send(LogMessage::Left {
            blocks: log.blocks,
            records: log.records,
            missing,
            missing_left_out: left_out,
            conflicting_blocks: log.conflicting_blocks,
            conflicting_records: log.conflicting_records,
        }));
        self.state = State::Left;
        self.until = None;
        self.end_if_drained(book, out);
    }

    pub(super) fn on_shutdown(
        &mut self,
        now_ns: u64,
        reason: String,
        book: &mut LogBook,
        out: &mut Vec<ServerOutput>,
    ) {
        if self.shutdown.is_none() {
            book.credit.stop(self.config.id);
            let until = now_ns.saturating_add(self.config.timeouts.drain_ns);
            self.shutdown = Some((reason, until));
        }
        self.end_if_drained(book, out);
    }

    /// Ends the session when the server is being shut down and everything is stored that has come.
    pub(super) fn end_if_drained(&mut self, book: &mut LogBook, out: &mut Vec<ServerOutput>) {
        let Some((reason, _)) = &self.shutdown else { return };
        let text = format!("the log server is being shut down: {reason}");
        match self.state {
            State::Over | State::Leaving => {}
            State::Left => self.end(text, book, out),
            _ if self.unsettled == 0 => self.refuse(text, true, book, out),
            _ => {}
        }
    }

    /// Ends the connection and says why.
    pub(super) fn refuse(
        &mut self,
        reason: String,
        again: bool,
        book: &mut LogBook,
        out: &mut Vec<ServerOutput>,
    ) {
        let reason = cut(reason, MAX_REASON);
        out.push(ServerOutput::Send(LogMessage::Refused { reason: reason.clone(), again }));
        self.end(reason, book, out);
    }

    pub(super) fn end(&mut self, reason: String, book: &mut LogBook, out: &mut Vec<ServerOutput>) {
        self.state = State::Over;
        self.until = None;
        self.candidate = None;
        book.credit.stop(self.config.id);
        out.push(ServerOutput::Disconnect { reason });
        self.vacate_if_settled(book, out);
    }

    /// Gives the seat back when no memory is used any more.
    pub(super) fn vacate_if_settled(&mut self, book: &mut LogBook, out: &mut Vec<ServerOutput>) {
        if self.unsettled > 0 {
            return;
        }
        let Some(producer) = self.producer.take() else { return };
        let mut woken = Vec::new();
        if book.vacate(self.config.id, &producer.run, producer.log_id, &mut woken) {
            out.push(ServerOutput::Idle { run: producer.run });
        }
        self.wake(woken, out);
    }
}
