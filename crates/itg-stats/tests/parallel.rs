//! Whatever the pieces and their order, the report is that of one pass over the records.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

mod common;

use common::{EPOCH, TestLog, end, spec};
use itg_record::{FlowEnd, Record, Side};
use itg_stats::exec::{Executor, Inline};
use itg_stats::{Analysis, Options, PacketLine};
use serde_json::Value;

/// Cuts the work for so many threads, and does the pieces from the last to the first.
struct Backwards(usize);

impl Executor for Backwards {
    fn threads(&self) -> usize {
        self.0
    }

    fn run(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        (0..tasks).rev().for_each(task);
    }
}

/// What happens to the packets of a flow.
#[derive(Clone, Copy)]
struct Fate {
    lost_in: u64,
    twice_in: u64,
    /// Packets by which duplicates come late.
    lag: usize,
    /// Every such packet comes so many places late.
    late_in: u64,
    places: usize,
}

fn logs(fates: &[Fate], packets: u64) -> [Vec<u8>; 2] {
    let mut sender = TestLog::new(Side::Sender, "a");
    let mut receiver = TestLog::new(Side::Receiver, "a");
    let mut arrivals: Vec<Vec<Record>> = Vec::new();
    let mut departures = Vec::new();
    let mut state = 7u64;
    for (index, fate) in (0u32..).zip(fates) {
        let spec = spec(index + 1, "constant(10us)", "constant(200)", packets);
        sender.flow(index, &spec, ["a", "a"]);
        receiver.flow(index, &spec, ["a", "a"]);
        let mut arrived: Vec<Record> = Vec::new();
        let mut sent = Vec::new();
        for k in 0..packets {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let noise = |shift: u64, span: u64| (state >> shift) % span;
            let at = EPOCH + k * 10_000 + noise(30, 900);
            sent.push(Record::sent(index, k, 200, k * 10_000, at));
            if fate.lost_in > 0 && noise(40, fate.lost_in) == 0 {
                continue;
            }
            let there = at + 50_000 + noise(20, 30_000);
            arrived.push(Record::received(index, k, 200, at, there, there + noise(35, 999), 64, 0));
        }
        let mut place = 0;
        while place + 1 + fate.places.max(fate.lag) < arrived.len() {
            let seq = arrived[place].seq;
            if fate.late_in > 0 && seq % fate.late_in == 3 {
                arrived[place..=place + fate.places].rotate_left(1);
                place += fate.places;
            } else if fate.twice_in > 0 && seq % fate.twice_in == 1 {
                arrived.insert(place + fate.lag, arrived[place]);
                place += fate.lag;
            }
            place += 1;
        }
        let told = FlowEnd {
            sent_packets: Some(packets),
            skipped_packets: Some(0),
            received_packets: Some(arrived.len() as u64 + 2),
            socket_drops: Some(1),
            ..end(index)
        };
        departures.push(sent);
        arrivals.push(arrived);
        sender.end_flow(FlowEnd { received_packets: None, socket_drops: None, ..told.clone() });
        receiver.end_flow(told);
    }
    // Flows by turns.
    for (log, flows) in [(&mut sender, departures), (&mut receiver, arrivals)] {
        let longest = flows.iter().map(Vec::len).max().unwrap();
        for k in 0..longest {
            log.records(flows.iter().filter_map(|flow| flow.get(k).copied()));
        }
    }
    [sender.finish(), receiver.finish()]
}

fn report(logs: &[&[u8]], executor: &dyn Executor) -> (Value, Vec<PacketLine>) {
    let options = Options { interval_ns: Some(100_000_000), ..Options::default() };
    let mut analysis = Analysis::new(options);
    for (log, name) in logs.iter().zip(["one", "two"]) {
        analysis.add_log_with(log, name, executor).unwrap();
    }
    let mut lines = Vec::new();
    let append = |mut some: Vec<PacketLine>| {
        lines.append(&mut some);
        Ok::<(), ()>(())
    };
    analysis.packets_in_order(executor, &|lines| lines, append).unwrap();
    (serde_json::to_value(analysis.finish_with(executor)).unwrap(), lines)
}

/// Equal but for the last bits of sums.
fn same(path: &str, a: &Value, b: &Value) {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            assert!(a.keys().eq(b.keys()), "{path}");
            a.iter().for_each(|(key, value)| same(&format!("{path}.{key}"), value, &b[key]));
        }
        (Value::Array(a), Value::Array(b)) => {
            assert_eq!(a.len(), b.len(), "{path}");
            a.iter().zip(b).enumerate().for_each(|(k, (a, b))| same(&format!("{path}[{k}]"), a, b));
        }
        (Value::Number(x), Value::Number(y)) if x.is_f64() && y.is_f64() => {
            let (x, y) = (x.as_f64().unwrap(), y.as_f64().unwrap());
            assert!((x - y).abs() <= 1e-9 * x.abs().max(1e-3), "{path}: {x} {y}");
        }
        _ => assert_eq!(a, b, "{path}"),
    }
}

#[test]
fn pieces_make_the_same_report() {
    let clean = Fate { lost_in: 0, twice_in: 0, lag: 0, late_in: 0, places: 0 };
    let lossy = Fate { lost_in: 50, twice_in: 97, lag: 3, late_in: 31, places: 4 };
    // No place in a block of 16 records is free of packets that come late.
    let torn = Fate { lost_in: 10, twice_in: 5, lag: 4, late_in: 7, places: 5 };
    let many = [lossy; 20];
    for (name, fates, packets) in [
        ("clean", &[clean][..], 70_000),
        ("lossy", &[lossy], 70_000),
        ("torn", &[torn], 70_000),
        ("mixed", &[clean, lossy, torn], 25_000),
        ("many flows", &many, 4_000),
    ] {
        let [sender, receiver] = logs(fates, packets);
        for logs in [&[&sender[..], &receiver][..], &[&receiver], &[&sender]] {
            let (want, lines) = report(logs, &Inline);
            for threads in [2, 5] {
                let (got, listed) = report(logs, &Backwards(threads));
                same(name, &got, &want);
                assert!(listed == lines, "{name}: packets");
            }
            assert!(lines.is_sorted_by_key(|line| (line.flow, line.seq)), "{name}");
            assert!(lines.len() as u64 >= packets * 4 / 5 * fates.len() as u64, "{name}");
        }
    }
}
