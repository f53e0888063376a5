//! The log server's driver: connections, one disk with a queue, and what survives a kill.

use super::*;
use itg_session::logs::{LogServerConfig, LogServerTimeouts, RestoredLog, ServerOutput, file_stem};

impl World<'_> {
    pub(super) fn accept(&mut self, connection: u64) {
        if !self.connections[connection as usize].alive || !self.is_up() {
            return;
        }
        let config = LogServerConfig {
            id: connection,
            nonce: self.plan.secret.then_some([connection as u8; 32]),
            token: connection ^ 0x5555,
            data_port: 9003,
            record_schema: 7,
            timeouts: LogServerTimeouts::default(),
        };
        self.sessions.insert(connection, LogServerSession::new(config, self.now));
    }

    pub(super) fn arrive(&mut self, connection: u64, frame: Frame) {
        match frame {
            Frame::Message(bytes) => {
                let message = decode(&bytes).expect("what was encoded can be decoded");
                self.tell_session(connection, ServerInput::Message(message));
            }
            Frame::Block(block) => self.give_block(connection, block),
        }
    }

    pub(super) fn arrive_datagram(&mut self, number: usize, frame: Frame) {
        match frame {
            Frame::Message(bytes) => {
                let Ok(LogMessage::Bind { log_id, token, .. }) = decode(&bytes) else { return };
                let id = token ^ 0x5555;
                for output in self.hand_over(id, ServerInput::Bind { log_id, token }) {
                    if output == ServerOutput::Authorise {
                        self.authorised.insert(number, id);
                    }
                    self.drive_server(id, output, None);
                }
            }
            Frame::Block(block) => {
                if let Some(&id) = self.authorised.get(&number) {
                    self.give_block(id, block);
                }
            }
        }
    }

    fn give_block(&mut self, id: SessionId, block: Block) {
        if !self.sessions.contains_key(&id) {
            return;
        }
        let Block { log_id, block_no, records, intact } = block;
        let bytes = 64 + 40 * records;
        let input = ServerInput::Block { log_id, block_no, records, bytes, checksum: 0, intact };
        let outputs = self.hand_over(id, input);
        let verdict = |output: &&ServerOutput| {
            matches!(
                output,
                ServerOutput::Store { .. }
                    | ServerOutput::Duplicate { .. }
                    | ServerOutput::Discard { .. }
            )
        };
        if outputs.iter().filter(verdict).count() != 1 {
            self.broken(format!("not exactly one verdict on a block: {outputs:?}"));
        }
        for output in outputs {
            self.drive_server(id, output, Some(block));
        }
    }

    pub(super) fn tell_session(&mut self, id: SessionId, input: ServerInput) {
        for output in self.hand_over(id, input) {
            self.drive_server(id, output, None);
        }
    }

    fn hand_over(&mut self, id: SessionId, input: ServerInput) -> Vec<ServerOutput> {
        let mut outputs = Vec::new();
        if !self.sessions.contains_key(&id) {
            return outputs;
        }
        self.note(&input, "to session", id);
        let Some(session) = self.sessions.get_mut(&id) else { return outputs };
        session.handle(self.now, input, &mut self.book, &mut outputs);
        if session.is_over() && session.unsettled() == 0 {
            self.sessions.remove(&id);
        }
        for output in &outputs {
            self.note(output, "   session", id);
        }
        let (used, most) = (self.book.outstanding_bytes(), self.plan.limits.budget_bytes);
        if used > most {
            self.broken(format!("{used} bytes of a budget of {most}"));
        }
        let queued = self.writes.len() as u64 * u64::from(BLOCK_BYTES);
        if queued > used && self.bug.is_none() {
            self.broken(format!("{queued} bytes wait for the disk, {used} are accounted for"));
        }
        outputs
    }

    fn drive_server(&mut self, id: SessionId, output: ServerOutput, block: Option<Block>) {
        use ServerOutput as O;
        match output {
            O::Send(mut message) => {
                match (&mut message, self.bug) {
                    (LogMessage::Ack { credit, .. }, Some(Bug::LoseCredit)) => *credit = 0,
                    (LogMessage::Left { records, blocks, missing, .. }, Some(Bug::HideGaps)) => {
                        (*records, *blocks) = (u64::MAX, u64::MAX);
                        missing.clear();
                    }
                    (LogMessage::Left { missing, .. }, _) if !missing.is_empty() => {
                        self.trace.seen.insert("missing blocks were reported");
                    }
                    _ => {}
                }
                let bytes = encode(&message).expect("fits");
                self.transmit(id, Frame::Message(bytes), false);
            }
            O::Check { text, proof } => {
                let right = proof == keyed_hash("secret", &text);
                self.at(self.now, Event::Session(self.life, id, ServerInput::Checked(right)));
            }
            O::Open { run } => {
                let forgets = self.bug == Some(Bug::ForgetFiles);
                let logs = if forgets { Vec::new() } else { self.disk.restore(&run) };
                self.book.restore(&run, logs);
                let delay = self.rng.random_range(0..=self.plan.disk_ns);
                let opened = Event::Session(self.life, id, ServerInput::Opened(Ok(())));
                self.at(self.now + delay, opened);
            }
            O::Enrol { run, log_id, who } => self.disk.index.push((run, who.key, log_id)),
            O::Authorise => {}
            O::Store { log_id, block_no } => {
                let records = block.expect("for a block").records;
                self.queue_write(id, log_id, block_no, records);
                if self.bug == Some(Bug::AckBeforeStore) {
                    let stored = ServerInput::Stored { block_no };
                    self.at(self.now, Event::Session(self.life, id, stored));
                }
            }
            O::Duplicate { block_no, .. } => {
                self.trace.seen.insert("a block came twice");
                if self.bug == Some(Bug::ForgetDedupe) {
                    let block = block.expect("for a block");
                    self.queue_write(id, block.log_id, block_no, block.records);
                }
            }
            O::Discard { reason, .. } => {
                self.trace.seen.insert(reason);
            }
            O::Wake(other) => {
                if self.bug != Some(Bug::SwallowWake) {
                    self.at(self.now, Event::Session(self.life, other, ServerInput::Woken));
                }
            }
            O::Account(account) => self.trace.accounts.push(*account),
            O::Idle { run } => {
                if self.rng.random_bool(0.5) {
                    self.book.forget(&run);
                }
            }
            O::Disconnect { reason } => {
                if reason.contains("connected again") {
                    self.trace.seen.insert("a log was taken over");
                }
                self.cut(id, true, false);
            }
        }
    }

    fn queue_write(&mut self, session: SessionId, log_id: u32, block_no: u32, records: u32) {
        let producer = self.connections[session as usize].producer;
        let run = file_stem(&self.plan.producers[producer].run);
        self.writes.push_back(Write { session, run, log_id, block_no, records });
        self.write();
    }

    /// Begins to write, unless it is writing or the disk is full.
    fn write(&mut self) {
        if !self.writing && !self.disk_full && !self.writes.is_empty() {
            self.writing = true;
            let delay = self.rng.random_range(0..=self.plan.disk_ns);
            self.at(self.now + delay, Event::Written(self.life));
        }
    }

    pub(super) fn written(&mut self, life: u64) {
        if life != self.life {
            return;
        }
        self.writing = false;
        if self.disk_full {
            return;
        }
        for _ in 0..self.plan.disk_batch {
            let Some(write) = self.writes.pop_front() else { break };
            let (session, block_no) = (write.session, write.block_no);
            let answer = if self.rng.random_bool(self.plan.store_fails) {
                self.trace.seen.insert("a write failed");
                let reason = "input/output error".to_owned();
                ServerInput::StoreFailed { block_no, reason }
            } else {
                self.put_on_disk(write);
                ServerInput::Stored { block_no }
            };
            self.tell_session(session, answer);
        }
        self.write();
    }

    fn put_on_disk(&mut self, write: Write) {
        let Write { run, log_id, block_no, records, .. } = write;
        if !self.disk.index.iter().any(|(of, _, id)| *of == run && *id == log_id) {
            self.broken(format!("block {block_no} of log {log_id}, which is not in the index"));
        }
        self.disk.order.push(log_id);
        if self.disk.blocks.insert((run, log_id, block_no), records).is_some() {
            self.broken(format!("block {block_no} of log {log_id} is stored twice"));
        }
    }

    pub(super) fn is_on_disk(&self, number: usize, block_no: u32) -> bool {
        let run = file_stem(&self.plan.producers[number].run);
        let key = self.producers[number].key;
        let mut ids = self.disk.index.iter().filter(|(of, by, _)| *of == run && *by == key);
        ids.any(|(_, _, id)| self.disk.blocks.contains_key(&(run.clone(), *id, block_no)))
    }

    pub(super) fn set_full(&mut self, full: bool) {
        self.disk_full = full;
        self.trace.seen.insert("the disk was full");
        if !self.is_up() {
            return;
        }
        if full {
            self.book.disk_full();
        } else {
            for id in self.book.disk_free() {
                self.at(self.now, Event::Session(self.life, id, ServerInput::Woken));
            }
            self.write();
        }
    }

    /// The server dies, at once or after it has been asked to end.
    pub(super) fn kill(&mut self, mut outage: Outage) {
        if std::mem::take(&mut outage.orderly) {
            self.trace.seen.insert("the server was shut down");
            for id in self.sessions.keys().copied().collect::<Vec<_>>() {
                self.tell_session(id, ServerInput::Shutdown("terminated".to_owned()));
            }
            return self.at(self.now + 11 * SECOND, Event::Kill(outage));
        }
        self.trace.seen.insert("the server was killed");
        for _ in 0..outage.written {
            if let Some(write) = self.writes.pop_front() {
                self.trace.seen.insert("written and not acknowledged");
                self.put_on_disk(write);
            }
        }
        for id in 0..self.connections.len() as u64 {
            self.cut(id, outage.noticed, false);
        }
        self.life += 1;
        self.writes.clear();
        self.writing = false;
        self.sessions.clear();
        self.authorised.clear();
        self.at(self.now + outage.lasts, Event::Start);
    }

    pub(super) fn start(&mut self) {
        self.life += 1;
        self.book = LogBook::new(self.plan.limits);
        if self.disk_full {
            self.book.disk_full();
        }
    }
}

impl Disk {
    /// Logs that a restarted server reads from its files.
    fn restore(&self, run: &str) -> Vec<RestoredLog> {
        let of_run = self.index.iter().filter(|(of, ..)| of == run);
        of_run
            .map(|&(_, key, log_id)| {
                let (from, to) = ((run.to_owned(), log_id, 0), (run.to_owned(), log_id, u32::MAX));
                let blocks = self.blocks.range(from..=to);
                let blocks = blocks.map(|((_, _, no), &records)| (*no, records, 0)).collect();
                let earlier = (Vec::new(), 0);
                RestoredLog { key, log_id, blocks, bytes: 0, earlier }
            })
            .collect()
    }
}
