//! Writes the two logs of a run that never was, to look at reports with:
//! `sample_logs DIR FLOWS PACKETS [SEED]`. Delays queue up, packets are lost in bursts, doubled and
//! overtaken; every ninth flow has a late sender; every seventh loses nothing.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a tool for developers"
)]

use std::fs;

use itg_core::flow::{Flow, FlowSpec, Stop};
use itg_core::law::{Law, Unit};
use itg_core::seed::RunSeed;
use itg_record::{
    BlockBuf, ClockPair, FlowEnd, FlowInfo, LOG_SCHEMA, LogBuilder, LogInfo, Note, Record, Side,
};

const EPOCH: u64 = 1_800_000_000_000_000_000;

struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn exp(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let (folder, flows): (&str, u32) = (&args[1], args[2].parse().unwrap());
    let packets: u64 = args[3].parse().unwrap();
    let seed: u64 = args.get(4).map_or(42, |seed| seed.parse().unwrap());
    fs::create_dir_all(folder).unwrap();
    let mut random = Random(seed);
    let mut specs = Vec::new();
    let (mut sent, mut arrived) = (Vec::new(), Vec::new());
    let mut ends = Vec::new();
    for id in 1..=flows {
        let spec = FlowSpec {
            idt: Law::parse(["exp(1ms)", "1ms", "pareto(2.5,600us)"][id as usize % 3], Unit::Time)
                .unwrap(),
            size: Law::parse(["uniform(100,1400)", "512"][id as usize % 2], Unit::Size).unwrap(),
            stop: Stop { packets: Some(packets), ..Stop::default() },
            profile: (id % 4 == 0).then(|| "voip-g711<&>".to_owned()),
            ..FlowSpec::new(id)
        };
        let flow = Flow::resolve(spec.clone(), RunSeed(seed)).unwrap();
        let late = id % 9 == 5;
        let (mut queue, mut bad, mut got) = (0.0f64, false, 0);
        let base = 2.0e6 + 3e5 * f64::from(id % 17);
        for departure in flow.schedule() {
            let stall = if late && departure.seq % 400 < 40 {
                (40 - departure.seq % 400) * 300_000
            } else {
                0
            };
            let out = EPOCH + departure.due_ns + stall + random.exp(3e3) as u64;
            sent.push(Record::sent(id, departure.seq, departure.size, departure.due_ns, out));
            let load = 0.5 + 0.45 * (departure.due_ns as f64 / 3e9 + f64::from(id)).sin();
            queue = (queue * 0.98 + random.exp(4e4 * load) - 2e4).max(0.0);
            bad = random.unit() < if bad { 0.7 } else { 0.001 * load };
            if (bad && id % 7 != 0) || (departure.seq % 9973 == 700) {
                continue;
            }
            let mut delay = base + queue * 6.0 + random.exp(3e4);
            if random.unit() < 0.0005 {
                delay += 4e6;
            }
            let take = |at: u64| {
                Record::received(id, departure.seq, departure.size, out, at, at + 9_000, 60, 0)
            };
            arrived.push(take(out + delay as u64));
            got += 1;
            if random.unit() < 0.0003 {
                arrived.push(take(out + delay as u64 + 50_000));
                got += 1;
            }
        }
        ends.push(got);
        specs.push(spec);
    }
    sent.sort_by_key(|record| record.b);
    arrived.sort_by_key(|record| record.b);
    for (side, records, name) in
        [(Side::Sender, sent, "sender"), (Side::Receiver, arrived, "receiver")]
    {
        let mut builder = LogBuilder::new(1);
        let is_sender = side == Side::Sender;
        let mut bytes = builder.note(&Note::Log(LogInfo {
            schema: LOG_SCHEMA,
            side,
            program: format!("itg-{}", if is_sender { "send" } else { "recv" }),
            version: "0.1.0".to_owned(),
            host: if is_sender { "alpha" } else { "beta" }.to_owned(),
            os: "Linux 6.18".to_owned(),
            boot_id: "4e0d7f6a".to_owned(),
            pid: 7,
            started_unix_ns: EPOCH - 1_000_000,
            run: if is_sender { "c0ffee" } else { "" }.to_owned(),
            seed: is_sender.then_some(seed),
            settings: [
                ("log".to_owned(), format!("{name}.itg")),
                ("plan".to_owned(), "91ab".to_owned()),
            ]
            .into(),
            block_records: 1024,
        }));
        for spec in &specs {
            bytes.extend(builder.note(&Note::Flow(FlowInfo {
                changes: Vec::new(),
                index: spec.id,
                flow: spec.id,
                run: "c0ffee".to_owned(),
                seed,
                spec: spec.clone(),
                src: format!("10.0.0.1:{}", 40_000 + spec.id),
                dst: "10.0.0.2:8999".to_owned(),
                epoch_unix_ns: EPOCH,
                sender_boot_id: "4e0d7f6a".to_owned(),
                receiver_boot_id: "4e0d7f6a".to_owned(),
                notices: vec![],
            })));
        }
        bytes.extend(builder.note(&Note::Clock(ClockPair {
            unix_ns: EPOCH,
            monotonic_ns: 5_000,
            max_error_ns: Some(16_000),
            synchronised: Some(true),
        })));
        let mut block = BlockBuf::new(1024);
        for record in &records {
            if block.is_full() {
                bytes.extend(builder.seal(&mut block));
                block.clear();
            }
            block.push(record);
        }
        bytes.extend(builder.seal(&mut block));
        for (spec, got) in specs.iter().zip(&ends) {
            bytes.extend(builder.note(&Note::FlowEnd(FlowEnd {
                index: spec.id,
                sent_packets: Some(packets),
                sent_bytes: None,
                skipped_packets: Some(0),
                received_packets: (!is_sender).then_some(*got),
                received_bytes: None,
                log_lost_records: 0,
                socket_drops: None,
                buffer_errors: None,
                receive_buffer: None,
                reason: "all packets sent".to_owned(),
            })));
        }
        bytes.extend(builder.end(0));
        fs::write(format!("{folder}/{name}.itg"), bytes).unwrap();
    }
}
