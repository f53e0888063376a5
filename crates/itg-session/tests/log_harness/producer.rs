//! A producer's driver: makes blocks, keeps buffers and a spool, talks to the network.

use super::*;
use itg_session::logs::{LogProducerConfig, ProducerOutput, ProducerTimeouts, Registration, Role};

impl World<'_> {
    pub(super) fn add_producer(&mut self, number: usize) {
        let plan = &self.plan.producers[number];
        let mut key = [0; 16];
        key[..8].copy_from_slice(&(number as u64 + 1).to_le_bytes());
        let config = LogProducerConfig {
            who: Registration {
                key,
                run: plan.run.clone(),
                host: "a".to_owned(),
                program: "itg-send".to_owned(),
                role: Role::Sender,
                flows: 1,
                record_schema: 7,
                transport: plan.transport,
                block_records: 40,
                block_bytes: BLOCK_BYTES,
                clock_offset_ns: None,
                uncertainty_ns: None,
                next_block: 0,
            },
            max_unacked: plan.max_unacked,
            memory_blocks: plan.memory_blocks,
            patience_ns: plan.patience_ns,
            timeouts: ProducerTimeouts {
                leave_ns: self.plan.leave_ns,
                ..ProducerTimeouts::default()
            },
        };
        self.producers.push(Producer {
            machine: LogProducer::new(config, plan.start_ns),
            connection: None,
            log_id: 0,
            buffers: BTreeMap::new(),
            spool: BTreeMap::new(),
            produced: Vec::new(),
            dropped: BTreeSet::new(),
            left: plan.blocks,
            waiting: false,
            closed: false,
            key,
            end: None,
        });
        self.at(plan.start_ns, Event::Produce(number));
        self.at(plan.stop_ns, Event::Stop(number));
    }

    pub(super) fn produce(&mut self, number: usize) {
        let plan = &self.plan.producers[number];
        let producer = &mut self.producers[number];
        if producer.closed || producer.end.is_some() {
            return;
        }
        if producer.left == 0 {
            return self.close(number);
        }
        let room = match plan.on_full {
            OnFull::Grow => plan.memory_blocks as usize * 3,
            OnFull::Wait | OnFull::Drop => plan.memory_blocks as usize,
        };
        let block_no = producer.machine.next_block();
        let records = 1 + (block_no * 7 + number as u32) % 40;
        if producer.buffers.len() < room {
            producer.left -= 1;
            producer.produced.push(records);
            producer.buffers.insert(block_no, records);
            let bytes = 64 + 40 * records;
            self.tell_producer(number, ProducerInput::BlockReady { block_no, records, bytes });
        } else if plan.on_full == OnFull::Drop {
            producer.left -= 1;
            producer.produced.push(records);
            producer.dropped.insert(block_no);
            self.trace.seen.insert("a block was dropped");
            self.tell_producer(number, ProducerInput::Dropped { block_no, records });
        } else {
            producer.waiting = true;
            self.trace.seen.insert("a producer waited for a buffer");
            return;
        }
        self.at(self.now + plan.interval_ns, Event::Produce(number));
    }

    pub(super) fn close(&mut self, number: usize) {
        if !std::mem::replace(&mut self.producers[number].closed, true) {
            self.tell_producer(number, ProducerInput::Close { per_flow: vec![(1, 2)] });
        }
    }

    pub(super) fn tell_producer(&mut self, number: usize, input: ProducerInput) {
        self.note(&input, "to producer", number as u64);
        if matches!(input, ProducerInput::Lost(_)) {
            self.producers[number].connection = None;
        }
        let was_over = self.producers[number].machine.is_over();
        let mut outputs = Vec::new();
        self.producers[number].machine.handle(self.now, input, &mut outputs);
        if was_over && !outputs.is_empty() {
            self.broken(format!("producer {number} says {outputs:?} after its end"));
        }
        for output in outputs {
            self.note(&output, "   producer", number as u64);
            self.drive_producer(number, output);
        }
        let producer = &self.producers[number];
        let (held, counted) = (producer.buffers.len(), producer.machine.in_memory());
        if producer.machine.is_registered() && producer.connection.is_none() {
            self.broken(format!("producer {number} is registered without a connection"));
        } else if held != counted && !producer.machine.is_over() && self.bug.is_none() {
            self.broken(format!("producer {number} has {held} buffers and counts {counted}"));
        }
        let plan = &self.plan.producers[number];
        let room = match plan.on_full {
            OnFull::Grow => plan.memory_blocks as usize * 3,
            OnFull::Wait | OnFull::Drop => plan.memory_blocks as usize,
        };
        if self.producers[number].waiting && held < room {
            self.producers[number].waiting = false;
            self.at(self.now, Event::Produce(number));
        }
    }

    fn drive_producer(&mut self, number: usize, output: ProducerOutput) {
        use ProducerOutput as O;
        match output {
            O::Connect => self.connect(number),
            O::Disconnect => {
                if let Some(id) = self.producers[number].connection.take() {
                    self.cut(id, false, true);
                }
            }
            O::Send(message) => {
                let bytes = encode(&message).expect("fits");
                match self.producers[number].connection {
                    Some(id) => self.transmit(id, Frame::Message(bytes), true),
                    None => self.broken(format!("producer {number} speaks without connection")),
                }
            }
            O::Prove { text } => {
                let knows = self.plan.producers[number].knows_secret;
                let proof = keyed_hash(if knows { "secret" } else { "wrong" }, &text);
                let id = self.producers[number].connection;
                self.at(self.now, Event::Producer(number, id, ProducerInput::Proof(proof)));
            }
            O::Registered { log_id, .. } => self.producers[number].log_id = log_id,
            O::SendBind(message) => {
                let bytes = encode(&message).expect("fits");
                self.send_datagram(number, Frame::Message(bytes));
            }
            O::SendBlock { block_no } => match self.producers[number].buffers.get(&block_no) {
                Some(&records) => self.send_block(number, block_no, records),
                None => self.broken(format!("block {block_no} is sent and has no buffer")),
            },
            O::Unspool { block_no } => self.unspool(number, block_no),
            O::Release { up_to } => self.release(number, up_to),
            O::Spool { block_no } => match self.producers[number].buffers.remove(&block_no) {
                Some(records) => {
                    self.producers[number].spool.insert(block_no, records);
                }
                None => self.broken(format!("block {block_no} is spooled and has no buffer")),
            },
            O::Finished(fate) => self.end_producer(number, fate, None),
            O::Failed { reason, fate } => self.end_producer(number, fate, Some(reason)),
        }
    }

    fn end_producer(&mut self, number: usize, fate: LogFate, failed: Option<String>) {
        if self.producers[number].end.is_some() {
            self.broken(format!("producer {number} ends twice"));
        }
        if self.producers[number].connection.is_some() {
            self.broken(format!("producer {number} ends and leaves its connection open"));
        }
        self.producers[number].end = Some((self.now, fate, failed));
    }

    fn connect(&mut self, number: usize) {
        let id = self.connections.len() as u64;
        let (alive, now) = (self.is_up(), self.now);
        let connection = Connection { producer: number, alive, to_server: now, to_producer: now };
        self.connections.push(connection);
        if self.producers[number].connection.replace(id).is_some() {
            self.broken(format!("producer {number} connects and is connected"));
        }
        let time = self.arrival(id, true);
        if !alive {
            let lost = ProducerInput::Lost("connection refused".to_owned());
            return self.at(time, Event::Producer(number, Some(id), lost));
        }
        self.at(time, Event::Accept(id));
        self.connections[id as usize].to_producer = time;
        let time = self.arrival(id, false);
        self.at(time, Event::Producer(number, Some(id), ProducerInput::Connected));
    }

    fn unspool(&mut self, number: usize, block_no: u32) {
        match self.producers[number].spool.get(&block_no).copied() {
            Some(records) if self.rng.random_bool(self.plan.spool_fails) => {
                self.producers[number].spool.remove(&block_no);
                self.producers[number].dropped.insert(block_no);
                self.trace.seen.insert("a spool could not be read");
                let dropped = ProducerInput::Dropped { block_no, records };
                self.at(self.now, Event::Producer(number, None, dropped));
            }
            Some(records) => {
                self.trace.seen.insert("a block came out of the spool");
                self.send_block(number, block_no, records);
            }
            // Its reading failed, which the machine has not been told yet.
            None if self.producers[number].dropped.contains(&block_no) => {}
            None => self.broken(format!("block {block_no} is not in the spool")),
        }
    }

    fn send_block(&mut self, number: usize, block_no: u32, records: u32) {
        let log_id = self.producers[number].log_id;
        let block = Block { log_id, block_no, records, intact: true };
        if self.plan.producers[number].transport == Transport::Udp {
            self.send_datagram(number, Frame::Block(block));
            let delay = self.rng.random_range(0..=MS);
            let sent = ProducerInput::BlockSent { block_no };
            return self.at(self.now + delay, Event::Producer(number, None, sent));
        }
        match self.producers[number].connection {
            Some(id) => {
                let intact = !self.rng.random_bool(self.plan.damage);
                self.transmit(id, Frame::Block(Block { intact, ..block }), true);
            }
            None => self.broken(format!("producer {number} sends a block without connection")),
        }
        if self.bug == Some(Bug::ReleaseEarly) {
            self.producers[number].buffers.remove(&block_no);
        }
    }

    fn send_datagram(&mut self, number: usize, frame: Frame) {
        let copies = 1 + usize::from(self.rng.random_bool(self.plan.twice));
        for _ in 0..copies {
            if self.rng.random_bool(self.plan.loss) {
                self.trace.seen.insert("a datagram was lost");
                continue;
            }
            let mut frame = frame.clone();
            if let Frame::Block(block) = &mut frame {
                block.intact = !self.rng.random_bool(self.plan.damage);
            }
            // Datagrams overtake each other.
            let delay = self.rng.random_range(0..=self.plan.delay_ns);
            self.at(self.now + delay, Event::Datagram(number, frame));
        }
    }

    fn release(&mut self, number: usize, up_to: u32) {
        let producer = &self.producers[number];
        let buffers = producer.buffers.range(..up_to);
        let held: Vec<u32> =
            buffers.chain(producer.spool.range(..up_to)).map(|(&block_no, _)| block_no).collect();
        for block_no in held {
            let producer = &mut self.producers[number];
            producer.buffers.remove(&block_no);
            producer.spool.remove(&block_no);
            // The promise: on TCP, what is released is stored.
            if self.plan.producers[number].transport == Transport::Tcp
                && !self.is_on_disk(number, block_no)
            {
                self.broken(format!("block {block_no} of {number} is released and not stored"));
            }
        }
    }
}
