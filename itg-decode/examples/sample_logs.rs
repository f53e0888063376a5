//! Writes the two logs of a run that never was, to look at reports with: `sample_logs DIR FLOWS
//! PACKETS [SEED]`. Delays queue up, packets are lost in bursts, duplicated and reordered; every
//! ninth flow has a late sender; every seventh loses nothing.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a tool for developers"
)]

use std::fs;

use itg_core::distribution::{Distribution, Unit};
use itg_core::flow::{Flow, FlowSpec, Stop};
use itg_core::seed::RunSeed;
use itg_record::{FlowEnd, ReceivedPacket, Record, SentPacket, Side};
use itg_testkit::logs::{EPOCH, Setup, TestLog, end};

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
            idt: Distribution::parse(
                ["exp(1ms)", "1ms", "pareto(2.5,600us)"][id as usize % 3],
                Unit::Time,
            )
            .unwrap(),
            size: Distribution::parse(["uniform(100,1400)", "512"][id as usize % 2], Unit::Size)
                .unwrap(),
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
            sent.push(Record::sent(SentPacket {
                flow: id,
                seq: departure.seq,
                size: departure.size,
                planned_ns: departure.due_ns,
                sent_ns: out,
            }));
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
                Record::received(ReceivedPacket {
                    flow: id,
                    seq: departure.seq,
                    size: departure.size,
                    sent_ns: out,
                    arrived_ns: at,
                    read_ns: at + 9_000,
                    ttl: 60,
                    tos: 0,
                })
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
        let is_sender = side == Side::Sender;
        let file = format!("{name}.itg");
        let mut log = TestLog::of(Setup {
            log_id: 1,
            seed,
            block_records: 1024,
            settings: &[("log", &file), ("plan", "91ab")],
            ..Setup::new(side, "4e0d7f6a")
        });
        for spec in &specs {
            log.flow(spec.id, spec, ["4e0d7f6a", "4e0d7f6a"]);
        }
        log.clock();
        log.records(records);
        for (spec, got) in specs.iter().zip(&ends) {
            log.end_flow(FlowEnd {
                sent_packets: Some(packets),
                skipped_packets: Some(0),
                received_packets: (!is_sender).then_some(*got),
                ..end(spec.id)
            });
        }
        fs::write(format!("{folder}/{file}"), log.finish()).unwrap();
    }
}
