//! The report is that of one pass over the records, with any pieces in any order.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

use std::sync::atomic::{AtomicUsize, Ordering};

use itg_record::{FlowEnd, ReceivedPacket, Record, SentPacket, Side, flag};
use itg_stats::exec::{Executor, Inline};
use itg_stats::plan::Plan;
use itg_stats::stats::{Facts, Lane, PLAN_CHECKED, Setup};
use itg_stats::{Analysis, FlowStats, Options, PacketLine};
use itg_testkit::logs::{EPOCH, SEED, TestLog, end, spec};
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

/// Loss, duplication and reordering of the packets of a flow.
#[derive(Clone, Copy)]
struct PacketOutcome {
    lost_in: u64,
    twice_in: u64,
    /// Packets by which duplicates come late.
    lag: usize,
    /// Every such packet comes so many places late.
    late_in: u64,
    places: usize,
}

fn logs(fates: &[PacketOutcome], packets: u64) -> [Vec<u8>; 2] {
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
            sent.push(Record::sent(SentPacket {
                flow: index,
                seq: k,
                size: 200,
                planned_ns: k * 10_000,
                sent_ns: at,
            }));
            if fate.lost_in > 0 && noise(40, fate.lost_in) == 0 {
                continue;
            }
            let there = at + 50_000 + noise(20, 30_000);
            arrived.push(Record::received(ReceivedPacket {
                flow: index,
                seq: k,
                size: 200,
                sent_ns: at,
                arrived_ns: there,
                read_ns: there + noise(35, 999),
                ttl: 64,
                tos: 0,
            }));
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

/// Flow, number, size, times and run of a packet.
type Listed = (u32, u64, u32, [Option<u64>; 4], String);

fn listed(line: &PacketLine<'_>) -> Listed {
    let times = [line.planned_ns, line.sent_ns, line.arrived_ns, line.read_ns];
    (line.flow, line.seq, line.size_bytes, times, line.run.to_owned())
}

fn report(logs: &[&[u8]], executor: &dyn Executor) -> (Value, Vec<Listed>) {
    let options = Options { interval_ns: Some(100_000_000), ..Options::default() };
    let mut analysis = Analysis::new(options);
    for (log, name) in logs.iter().zip(["one", "two"]) {
        analysis.add_log_with(log, name, executor).unwrap();
    }
    let mut lines = Vec::new();
    let append = |mut some: Vec<Listed>| {
        lines.append(&mut some);
        Ok::<(), ()>(())
    };
    let make = |some: &[PacketLine<'_>]| some.iter().map(listed).collect::<Vec<_>>();
    analysis.packets_in_order(executor, &make, append).unwrap();
    let collected = analysis.collect_packets(executor, &make).concat();
    assert!(collected == lines, "packets are collected in another way than they are listed");
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
    let clean = PacketOutcome { lost_in: 0, twice_in: 0, lag: 0, late_in: 0, places: 0 };
    let lossy = PacketOutcome { lost_in: 50, twice_in: 97, lag: 3, late_in: 31, places: 4 };
    // No place in a block of 16 records is free of packets that come late.
    let torn = PacketOutcome { lost_in: 10, twice_in: 5, lag: 4, late_in: 7, places: 5 };
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
            assert!(lines.is_sorted_by_key(|line| (line.0, line.1)), "{name}");
            assert!(lines.len() as u64 >= packets * 4 / 5 * fates.len() as u64, "{name}");
        }
    }
}

/// Records of one flow from number `first` on: some left out, some late, some twice, some without a stamp.
fn rough(side: Side, first: u64) -> Vec<Record> {
    let (mut list, mut state) = (Vec::new(), 5u64);
    for k in 0..6_000u64 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let noise = |shift: u64, span: u64| (state >> shift) % span;
        // The second half is calm.
        let rough = k < 3_000;
        let (seq, planned) = (first + k, k * 1_000_000);
        let sent = EPOCH + planned + noise(33, 90_000);
        let delay = if noise(20, 900) == 3 { 400_000_000 } else { 50_000 + noise(40, 700_000) };
        let mut record = match side {
            Side::Sender => Record::sent(SentPacket {
                flow: 0,
                seq,
                size: 512,
                planned_ns: planned,
                sent_ns: sent,
            }),
            Side::Receiver => {
                let there = sent + delay;
                Record::received(ReceivedPacket {
                    flow: 0,
                    seq,
                    size: 512,
                    sent_ns: sent,
                    arrived_ns: there,
                    read_ns: there + noise(12, 9_000),
                    ttl: 64,
                    tos: 0,
                })
            }
        };
        match noise(50, 40) {
            1 if rough => continue,
            2 if rough && side == Side::Receiver => record.a = 0,
            3 if rough => list.push(record),
            4 if rough => record.flags |= flag::USER_STAMP,
            5 if rough && k > 50 => record.seq -= 30,
            _ => {}
        }
        list.push(record);
    }
    list
}

#[test]
fn records_taken_together_are_the_same_as_one_by_one() {
    for (side, first, lane) in [
        (Side::Receiver, 0, Lane::Arrivals),
        (Side::Receiver, 0, Lane::Plan),
        (Side::Receiver, 0, Lane::All),
        (Side::Sender, 0, Lane::Arrivals),
        (Side::Sender, PLAN_CHECKED - 3_000, Lane::Arrivals),
        (Side::Sender, PLAN_CHECKED + 1_000_000, Lane::Arrivals),
    ] {
        let setup = || Setup {
            epoch_unix_ns: Some(EPOCH),
            plan: Plan::new(&spec(1, "exp(10us)", "uniform(500,512)", 100_000), SEED)
                .ok()
                .map(Box::new),
            lane,
            ..Setup::unknown(side)
        };
        let (mut singly, mut together) = (FlowStats::new(setup()), FlowStats::new(setup()));
        let records = rough(side, first);
        records.iter().for_each(|record| singly.add(record));
        // In runs of all lengths.
        let (mut rest, mut len) = (&records[..], 1);
        while !rest.is_empty() {
            let (now, later) = rest.split_at(len.min(rest.len()));
            let rows: Vec<_> = now.iter().map(Record::raw).collect();
            together.add_rows(&rows);
            (rest, len) = (later, len % 300 + 7);
        }
        let figures = |stats: &FlowStats| {
            let mut metrics = stats.summary(&Facts::default());
            let filter = metrics.jitter_ns.as_mut().and_then(|jitter| jitter.rfc3550.take());
            let others = (stats.user_stamps(), stats.resized(), stats.replanned());
            (metrics, filter.unwrap_or(0.0), others)
        };
        let ((a, a_filter, a_others), (b, b_filter, b_others)) =
            (figures(&singly), figures(&together));
        assert_eq!((&a, a_others), (&b, b_others), "{side:?} from {first}");
        assert!((a_filter - b_filter).abs() <= 1e-9 * a_filter, "{a_filter} {b_filter}");
        assert_eq!(singly.has_departures(), (side, lane) != (Side::Receiver, Lane::Arrivals));
        if lane == Lane::Plan {
            continue;
        }
        let reordered = a.reordered.unwrap_or(1);
        assert!(a.packets > 5_000 && reordered > 0, "{side:?} from {first}: {a:?}");
    }
}

#[test]
fn a_large_flow_among_many_is_listed_in_windows() {
    const LARGE: u64 = 300_000;
    let mut log = TestLog::new(Side::Sender, "a");
    let packets = |index: u32| if index == 3 { LARGE } else { 10 };
    for index in 0..70 {
        log.flow(
            index,
            &spec(index + 1, "constant(1us)", "constant(64)", packets(index)),
            ["a", "a"],
        );
    }
    let sent = |index, k| {
        Record::sent(SentPacket {
            flow: index,
            seq: k,
            size: 64,
            planned_ns: k * 1_000,
            sent_ns: EPOCH + k * 1_000,
        })
    };
    log.records((0..10).flat_map(|k| (0..70).map(move |index| sent(index, k))));
    log.records((10..LARGE).map(|k| sent(3, k)));
    let bytes = log.finish();
    let mut analysis = Analysis::new(Options::default());
    analysis.add_log(&bytes, "one").unwrap();
    let (mut most, mut seen) = (0, Vec::new());
    let each = |some: Vec<PacketLine<'_>>| {
        most = most.max(some.len());
        seen.extend(some.iter().map(|line| (line.flow, line.seq)));
        Ok::<(), ()>(())
    };
    analysis.packets_in_order(&Backwards(2), &<[PacketLine<'_>]>::to_vec, each).unwrap();
    let want = (0..70).flat_map(|index| (0..packets(index)).map(move |k| (index + 1, k)));
    assert!(want.eq(seen), "some packets are missing, twice, or out of order");
    assert!(most < 150_000, "{most} packets at once");
}

/// Counts the bytes that are passed.
#[derive(Default)]
struct Counting(AtomicUsize);

impl Executor for Counting {
    fn threads(&self) -> usize {
        1
    }

    fn run(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        Inline.run(tasks, task);
    }

    fn passed(&self, bytes: &[u8]) {
        self.0.fetch_add(bytes.len(), Ordering::Relaxed);
    }
}

/// A sender's log of eight flows that take turns, with these numbers of each.
fn in_turns(numbers: impl Iterator<Item = u64> + Clone, packets: u64) -> Vec<u8> {
    let mut log = TestLog::new(Side::Sender, "a");
    for index in 0..8 {
        log.flow(index, &spec(index + 1, "constant(1us)", "constant(64)", packets), ["a", "a"]);
    }
    let sent = |index, seq: u64| {
        let planned_ns = seq * 1_000;
        let sent_ns = EPOCH + planned_ns;
        Record::sent(SentPacket { flow: index, seq, size: 64, planned_ns, sent_ns })
    };
    log.records(numbers.flat_map(|seq| (0..8).map(move |index| sent(index, seq))));
    log.finish()
}

fn numbers(some: &[PacketLine<'_>]) -> Vec<(u32, u64)> {
    assert!(!some.is_empty());
    some.iter().map(|line| (line.flow, line.seq)).collect()
}

#[test]
fn blocks_of_flows_that_take_turns_are_gone_through_once_when_all_is_kept() {
    const EACH: u64 = 40_000;
    // In pairs that change places, so that numbers are out of order across the ends of blocks.
    let bytes = in_turns((0..EACH).map(|k| k ^ 1), EACH);
    let mut analysis = Analysis::new(Options::default());
    analysis.add_log(&bytes, "one").unwrap();
    let passed = Counting::default();
    let seen = analysis.collect_packets(&passed, &numbers).concat();
    let want = (1..=8).flat_map(|flow| (0..EACH).map(move |k| (flow, k)));
    assert!(want.eq(seen), "some packets are missing, twice, or out of order");
    let passes = passed.0.into_inner() as f64 / bytes.len() as f64;
    // Stock is taken in another pass; a block that two windows share comes twice.
    assert!(passes < 2.5, "{passes} passes");
}

/// The blocks of one log are where windows are cut: what stands in another one alone must not become one window.
#[test]
fn numbers_that_stand_in_another_log_are_no_window_of_their_own() {
    const EACH: u64 = 40_000;
    let logs = [in_turns(0..EACH / 2, EACH), in_turns(EACH / 2..EACH, EACH)];
    let mut analysis = Analysis::new(Options::default());
    for (log, name) in logs.iter().zip(["one", "two"]) {
        analysis.add_log(log, name).unwrap();
    }
    let pieces = analysis.collect_packets(&Inline, &numbers);
    let most = pieces.iter().map(Vec::len).max();
    assert!(most < Some(15_000), "{most:?} packets at once");
    let want = (1..=8).flat_map(|flow| (0..EACH).map(move |k| (flow, k)));
    assert!(want.eq(pieces.concat()), "some packets are missing, twice, or out of order");
}
