//! Registration of a producer: its request is checked, its experiment opened, its log found.

use std::collections::VecDeque;

use crate::difference::number;
use crate::logs::book::LogBook;
use crate::logs::message::{LOG_MAGIC, LOG_VERSION, LogMessage, MAX_NAME, Registration};
use crate::logs::name::file_stem;

use super::{LogServerSession, Producer, ServerOutput, State, is_udp};

/// Header of a block and of a record in it, in bytes.
const BLOCK_HEADER: u64 = 64;
const RECORD: u64 = 40;

impl LogServerSession {
    pub(super) fn on_register(
        &mut self,
        now_ns: u64,
        who: Registration,
        book: &mut LogBook,
        out: &mut Vec<ServerOutput>,
    ) {
        if let Err(wrong) = self.check(&who, book) {
            return self.refuse(wrong, false, book, out);
        }
        let run = file_stem(&who.run);
        if let Err((reason, again)) = book.room_for(&run) {
            return self.refuse(reason, again, book, out);
        }
        out.push(ServerOutput::Open { run });
        self.candidate = Some(who);
        self.enter(State::Opening, now_ns, self.config.timeouts.open_ns);
    }

    /// Checks a registration, whatever the state of the server; the error is the reason of the
    /// refusal.
    pub(super) fn check(&self, who: &Registration, book: &LogBook) -> Result<(), String> {
        let texts = [("experiment", &who.run), ("host", &who.host), ("program", &who.program)];
        for (what, text) in texts {
            if text.len() > MAX_NAME {
                let len = text.len();
                return Err(format!(
                    "the name of the {what} has {len} bytes, more than {MAX_NAME}"
                ));
            }
        }
        let (theirs, ours) = (who.record_schema, self.config.record_schema);
        if theirs != ours {
            return Err(format!(
                "the producer's records are laid out in another way (schema {theirs:#018x}, this log \
                 server knows {ours:#018x}): use the same release of ITG on both sides"
            ));
        }
        let full = BLOCK_HEADER + RECORD * u64::from(who.block_records);
        let (bytes, most) = (who.block_bytes, book.limits().block_bytes);
        if who.block_records == 0 || u64::from(bytes) < full {
            let records = number(u64::from(who.block_records), "record");
            return Err(format!("blocks of at most {bytes} bytes cannot hold {records} each"));
        }
        if bytes > most {
            let text = "the producer announces blocks of up to";
            return Err(format!(
                "{text} {bytes} bytes, this log server takes {most}: use smaller ones"
            ));
        }
        if is_udp(who) && self.config.data_port == 0 {
            return Err("this log server takes no datagrams: use tcp://".to_owned());
        }
        Ok(())
    }

    pub(super) fn on_opened(
        &mut self,
        now_ns: u64,
        book: &mut LogBook,
        out: &mut Vec<ServerOutput>,
    ) {
        let Some(who) = self.candidate.take() else { return };
        let (run, udp) = (file_stem(&who.run), is_udp(&who));
        if let Err((reason, again)) = book.room_for(&run) {
            return self.refuse(reason, again, book, out);
        }
        if !book.knows(&run) {
            // Forgotten between the driver's look and its answer.
            self.candidate = Some(who);
            return out.push(ServerOutput::Open { run });
        }
        let mut woken = Vec::new();
        let enrolled = match book.enrol(self.config.id, &run, &who, !udp, &mut woken) {
            Ok(enrolled) => enrolled,
            Err((reason, again)) => return self.refuse(reason, again, book, out),
        };
        self.wake(woken, out);
        let log_id = enrolled.log_id;
        if let Some(previous) = enrolled.previous {
            out.push(ServerOutput::Wake(previous));
        }
        if enrolled.is_new {
            out.push(ServerOutput::Enrol { run: run.clone(), log_id, who: who.clone() });
        }
        // What is stored from there on comes again: it may be another's.
        let stored_to = who.next_block;
        let credit = book.credit.granted(self.config.id);
        out.push(ServerOutput::Send(LogMessage::Registered {
            magic: LOG_MAGIC,
            version: LOG_VERSION,
            log_id,
            data_port: if udp { self.config.data_port } else { 0 },
            token: if udp { self.config.token } else { 0 },
            credit,
            stored_to,
        }));
        self.producer = Some(Producer {
            run,
            log_id,
            who,
            waiting: VecDeque::new(),
            received: 0,
            highest: None,
            said: (stored_to, credit),
            stored_to,
            ack_at: None,
            leave: None,
            damaged: 0,
            refused: 0,
        });
        self.heard_ns = now_ns;
        self.state = State::Running;
        self.until = None;
    }
}
