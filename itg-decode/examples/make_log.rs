//! Writes the two logs of a run that never was, for measuring the decoder:
//! `make_log DIR RECORDS FLOWS IDT SIZE`, such as `make_log /tmp/logs 10000000 1 exp(10us) constant(512)`.
#![allow(clippy::unwrap_used, reason = "a tool for developers")]

use std::fs::File;
use std::io::{BufWriter, Write};

use itg_core::flow::{Flow, FlowSpec, Stop};
use itg_core::law::{Law, Unit};
use itg_core::schedule::Schedule;
use itg_core::seed::RunSeed;
use itg_record::{
    BlockBuf, FlowEnd, FlowInfo, LOG_SCHEMA, LogBuilder, LogInfo, Note, Record, Side,
};

const EPOCH: u64 = 1_800_000_000_000_000_000;

struct Log {
    out: BufWriter<File>,
    builder: LogBuilder,
    block: BlockBuf,
}

impl Log {
    fn new(path: String, side: Side) -> Self {
        let mut builder = LogBuilder::new(1);
        let mut out = BufWriter::new(File::create(path).unwrap());
        let info = LogInfo {
            schema: LOG_SCHEMA,
            side,
            program: "make_log".to_owned(),
            version: String::new(),
            host: String::new(),
            os: String::new(),
            boot_id: "b".to_owned(),
            pid: 1,
            started_unix_ns: EPOCH,
            run: "f00d".to_owned(),
            seed: Some(1),
            settings: [].into(),
            block_records: 4096,
        };
        out.write_all(&builder.note(&Note::Log(info))).unwrap();
        Self { out, builder, block: BlockBuf::new(4096) }
    }

    fn note(&mut self, note: &Note) {
        self.flush();
        self.out.write_all(&self.builder.note(note)).unwrap();
    }

    fn push(&mut self, record: &Record) {
        if self.block.is_full() {
            self.flush();
        }
        self.block.push(record);
    }

    fn flush(&mut self) {
        if !self.block.is_empty() {
            self.out.write_all(self.builder.seal(&mut self.block)).unwrap();
            self.block.clear();
        }
    }

    fn end(mut self) {
        self.flush();
        self.out.write_all(&self.builder.end(0)).unwrap();
        self.out.flush().unwrap();
    }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, dir, records, flows, idt, size] = &args[..] else {
        panic!("usage: make_log DIR RECORDS FLOWS IDT SIZE");
    };
    let (records, flows): (u64, u32) = (records.parse().unwrap(), flows.parse().unwrap());
    let each = records / u64::from(flows);
    let mut logs = [("send", Side::Sender), ("recv", Side::Receiver)]
        .map(|(name, side)| Log::new(format!("{dir}/{name}.itg"), side));
    let mut schedules: Vec<Schedule> = Vec::new();
    for index in 0..flows {
        let spec = FlowSpec {
            idt: Law::parse(idt, Unit::Time).unwrap(),
            size: Law::parse(size, Unit::Size).unwrap(),
            stop: Stop { packets: Some(each), ..Stop::default() },
            ..FlowSpec::new(index + 1)
        };
        schedules.push(Flow::resolve(spec.clone(), RunSeed(1)).unwrap().schedule());
        let info = FlowInfo {
            index,
            flow: index + 1,
            run: "f00d".to_owned(),
            seed: 1,
            spec,
            src: format!("10.0.0.1:{}", 20_000 + index),
            dst: "10.0.0.2:8999".to_owned(),
            epoch_unix_ns: EPOCH,
            sender_boot_id: "b".to_owned(),
            receiver_boot_id: "b".to_owned(),
            notices: vec![],
        };
        logs.iter_mut().for_each(|log| log.note(&Note::Flow(info.clone())));
    }
    let [sender, receiver] = &mut logs;
    let (mut state, mut last) = (1u64, 0);
    for k in 0..each {
        for (index, schedule) in (0..flows).zip(&mut schedules) {
            let d = schedule.advance().unwrap();
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let noise = |shift: u64, span: u64| (state >> shift) % span;
            let sent = EPOCH + d.due_ns + noise(33, 3_000);
            sender.push(&Record::sent(index, d.seq, d.size, d.due_ns, sent));
            if noise(40, 200) == 7 {
                continue;
            }
            // Queueing: mostly short, sometimes long, never out of order.
            let queue = 20_000 + noise(20, 50_000) * (1 + 40 * u64::from(noise(44, 50) == 0));
            last = (sent + queue).max(last + 400);
            let read = last + 1_000 + noise(12, 8_000);
            receiver.push(&Record::received(index, k, d.size, sent, last, read, 64, 0));
        }
    }
    for log in &mut logs {
        for index in 0..flows {
            log.note(&Note::FlowEnd(FlowEnd {
                index,
                sent_packets: Some(each),
                sent_bytes: None,
                skipped_packets: Some(0),
                received_packets: None,
                received_bytes: None,
                log_lost_records: 0,
                socket_drops: None,
                buffer_errors: None,
                receive_buffer: None,
                reason: "all packets sent".to_owned(),
            }));
        }
    }
    let [sender, receiver] = logs;
    sender.end();
    receiver.end();
}
