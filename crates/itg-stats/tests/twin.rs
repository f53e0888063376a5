//! Every figure of the report against a slow calculation straight from its definition, over random
//! runs with loss, duplicates, reordering, negative delays and spans of more than a day.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::float_cmp,
    clippy::unwrap_used,
    missing_docs,
    reason = "plain arithmetic is the point"
)]

use std::collections::{BTreeMap, BTreeSet};

use itg_record::{FlowEnd, ReceivedPacket, Record, SentPacket, Side};
use itg_stats::report::Report;
use itg_stats::{Analysis, Options};
use itg_testkit::logs::{EPOCH, TestLog, end, plan, spec};
use proptest::prelude::*;

/// Outcome of one packet.
#[derive(Clone, Copy, Debug)]
struct PacketOutcome {
    late_ns: u64,
    delay_ns: i64,
    lost: bool,
    twice: bool,
    skipped: bool,
}

fn fate() -> impl Strategy<Value = PacketOutcome> {
    (0u64..300_000, -2_000_000i64..40_000_000, 0u8..5, 0u8..8, 0u8..40).prop_map(
        |(late_ns, delay_ns, lost, twice, skipped)| PacketOutcome {
            late_ns,
            delay_ns,
            lost: lost == 0,
            twice: twice == 0,
            skipped: skipped == 0,
        },
    )
}

#[derive(Clone, Debug)]
struct Run {
    idt: &'static str,
    fates: Vec<PacketOutcome>,
    clock_offset_ns: i64,
}

fn run() -> impl Strategy<Value = Run> {
    let idt = prop_oneof![
        Just("constant(1ms)"),
        Just("exp(5ms)"),
        Just("constant(20min)"),
        Just("constant(0)"),
    ];
    let offset = prop_oneof![Just(0), -100_000_000_000_000i64..100_000_000_000_000];
    (idt, prop::collection::vec(fate(), 1..120), offset)
        .prop_map(|(idt, fates, clock_offset_ns)| Run { idt, fates, clock_offset_ns })
}

impl Run {
    fn records(&self) -> (Vec<Record>, Vec<Record>) {
        let spec = spec(1, self.idt, "uniform(20,1400)", self.fates.len() as u64);
        let (mut sent, mut arrived) = (Vec::new(), Vec::new());
        let mut clock = 0;
        for (departure, fate) in plan(&spec).into_iter().zip(&self.fates) {
            if fate.skipped {
                continue;
            }
            clock = (EPOCH + departure.due_ns + fate.late_ns).max(clock + 1);
            let (seq, size) = (departure.seq, departure.size);
            sent.push(Record::sent(SentPacket {
                flow: 0,
                seq,
                size,
                planned_ns: departure.due_ns,
                sent_ns: clock,
            }));
            if !fate.lost {
                let there = clock.checked_add_signed(fate.delay_ns + self.clock_offset_ns).unwrap();
                for copy in 0..=u64::from(fate.twice) {
                    let there = there + copy * 1_500_000;
                    arrived.push(Record::received(ReceivedPacket {
                        flow: 0,
                        seq,
                        size,
                        sent_ns: clock,
                        arrived_ns: there,
                        read_ns: there + 9,
                        ttl: 64,
                        tos: 0,
                    }));
                }
            }
        }
        arrived.sort_by_key(|record| record.b);
        (sent, arrived)
    }

    fn logs(&self, counts: bool) -> [Vec<u8>; 2] {
        let spec = spec(1, self.idt, "uniform(20,1400)", self.fates.len() as u64);
        let (sent, arrived) = self.records();
        let skipped = self.fates.iter().filter(|fate| fate.skipped).count() as u64;
        let told = FlowEnd {
            sent_packets: Some(sent.len() as u64),
            skipped_packets: Some(skipped),
            ..end(0)
        };
        [(Side::Sender, sent), (Side::Receiver, arrived)].map(|(side, records)| {
            let mut log = TestLog::new(side, "a");
            log.flow(0, &spec, ["a", "b"]);
            log.records(records);
            if counts {
                log.end_flow(told.clone());
            }
            log.finish()
        })
    }
}

fn report(logs: &[&[u8]], interval_ns: Option<u64>) -> Report {
    let mut analysis = Analysis::new(Options { interval_ns, ..Options::default() });
    for (log, name) in logs.iter().zip(["one", "two"]) {
        analysis.add_log(log, name).unwrap();
    }
    analysis.finish()
}

fn close(got: f64, want: f64) -> bool {
    (got - want).abs() <= 1e-9 * want.abs().max(1.0)
}

fn quantile(values: &[i64], share: f64) -> i64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted[((share * sorted.len() as f64 - 1e-9).ceil() as usize).max(1) - 1]
}

/// Lost packets and bursts among the numbers that were sent, by walking them.
fn walk(sent: impl Iterator<Item = u64>, arrived: &BTreeSet<u64>) -> (u64, u64) {
    let (mut lost, mut bursts, mut inside) = (0, 0, false);
    for seq in sent {
        let missing = !arrived.contains(&seq);
        lost += u64::from(missing);
        bursts += u64::from(missing && !inside);
        inside = missing;
    }
    (lost, bursts)
}

fn delays(arrived: &[Record]) -> Vec<i64> {
    arrived.iter().map(|record| record.b as i64 - record.a as i64).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn volume_delay_and_order(run in run()) {
        let (_, arrived) = run.records();
        let [_, receiver] = run.logs(false);
        let report = report(&[&receiver], None);
        let got = &report.flows[0].metrics;
        let times: Vec<u64> = arrived.iter().map(|record| record.b).collect();
        let span = times.iter().max().unwrap_or(&0) - times.iter().min().unwrap_or(&0);
        let bytes: u64 = arrived.iter().map(|record| u64::from(record.size)).sum();
        prop_assert_eq!((got.packets, got.bytes), (arrived.len() as u64, bytes));
        prop_assert_eq!(got.duration_ns, span);
        let n = arrived.len() as f64;
        for (rate, of) in [(got.bitrate_bps, 8.0 * bytes as f64), (got.packet_rate_pps, n)] {
            match rate {
                None => prop_assert!(arrived.len() == 1 || span == 0, "{}", n),
                Some(rate) if arrived.is_empty() => prop_assert!(close(rate, 0.0)),
                Some(rate) => prop_assert!(close(rate, of * (n - 1.0) / n / (span as f64 / 1e9))),
            }
        }

        let firsts: Vec<usize> = (0..arrived.len())
            .filter(|&i| arrived[..i].iter().all(|r| r.seq != arrived[i].seq))
            .collect();
        let reordered = firsts
            .iter()
            .filter(|&&i| arrived[..i].iter().any(|r| r.seq > arrived[i].seq))
            .count();
        prop_assert_eq!(got.duplicated, Some((arrived.len() - firsts.len()) as u64));
        prop_assert_eq!(got.reordered, Some(reordered as u64));

        let delays = delays(&arrived);
        if let Some(delay) = got.delay_ns {
            let n = delays.len() as f64;
            let origin = delays[0];
            let mean = delays.iter().map(|d| (d - origin) as f64).sum::<f64>() / n;
            let square = delays.iter().map(|d| ((d - origin) as f64 - mean).powi(2)).sum::<f64>() / n;
            prop_assert!(close(delay.mean, mean + origin as f64));
            prop_assert!((delay.stddev - square.sqrt()).abs() < 1e-6 * square.sqrt().max(1.0));
            prop_assert_eq!((Some(delay.min), Some(delay.max)), (delays.iter().min().copied(), delays.iter().max().copied()));
            for (got, share) in [(delay.p50, 0.5), (delay.p90, 0.9), (delay.p99, 0.99), (delay.p999, 0.999)] {
                prop_assert_eq!(got, quantile(&delays, share));
            }
            let steps: Vec<i64> = delays.windows(2).map(|d| (d[1] - d[0]).abs()).collect();
            let jitter = got.jitter_ns.unwrap();
            let mean = steps.iter().map(|&s| s as f64).sum::<f64>() / steps.len().max(1) as f64;
            prop_assert!(close(jitter.mean, mean));
            let filter = steps.iter().fold(0.0, |j, &s| j + (s as f64 - j) / 16.0);
            prop_assert!(close(jitter.rfc3550.unwrap(), filter));
            prop_assert_eq!(jitter.p99, if steps.is_empty() { 0 } else { quantile(&steps, 0.99) });
            prop_assert_eq!(got.negative_delays, delays.iter().filter(|&&d| d < 0).count() as u64);
        } else {
            prop_assert!(delays.is_empty());
        }
    }

    #[test]
    fn losses_by_every_means(run in run()) {
        let (sent, arrived) = run.records();
        let seen: BTreeSet<u64> = arrived.iter().map(|record| record.seq).collect();
        let told = |logs: &[&[u8]]| {
            let report = report(logs, None);
            let flow = report.flows.iter().find(|flow| flow.side == "receiver").unwrap().clone();
            (flow.metrics.lost.unwrap(), flow.metrics.loss_bursts.unwrap(), report)
        };
        // Both logs: exactly the packets that were sent.
        let [sender, receiver] = run.logs(true);
        let (lost, bursts) = walk(sent.iter().map(|record| record.seq), &seen);
        let (got_lost, got_bursts, joined) = told(&[&sender, &receiver]);
        prop_assert_eq!((got_lost, got_bursts), (lost, bursts));
        let unmatched = joined.total.unmatched.unwrap();
        prop_assert_eq!((unmatched.flows, unmatched.packets), (0, 0));
        // The receiver's log with the sender's counts.
        let (got_lost, got_bursts, _) = told(&[&receiver]);
        prop_assert_eq!(got_lost, sent.len() as u64 - seen.len() as u64);
        let (_, bursts) = walk(0..run.fates.len() as u64, &seen);
        prop_assert_eq!(got_bursts, bursts.min(got_lost));
        // The receiver's log alone: what is missing below the largest number is told, and the loss is not known.
        let [_, receiver] = run.logs(false);
        let alone = report(&[&receiver], None).flows[0].clone();
        let (missing, _) = walk(0..seen.last().map_or(0, |last| last + 1), &seen);
        prop_assert_eq!((alone.metrics.lost, alone.metrics.loss_bursts), (None, None));
        let told = format!("up to the last arrival {missing} packets are missing");
        prop_assert!(alone.notices.iter().any(|notice| notice.ends_with(&told)), "{:?}", alone.notices);
    }

    #[test]
    fn lateness_and_gaps(run in run()) {
        let (sent, arrived) = run.records();
        let [sender, receiver] = run.logs(false);
        let late = |records: &mut dyn Iterator<Item = (u64, u64)>| -> Vec<i64> {
            records.map(|(planned, sent)| sent as i64 - (EPOCH + planned) as i64).collect()
        };
        let check = |report: &Report, late: &[i64]| {
            let got = report.flows[0].metrics.lateness_ns;
            let want = (!late.is_empty()).then(|| {
                (quantile(late, 0.5), quantile(late, 0.99), *late.iter().max().unwrap())
            });
            (got.map(|l| (l.p50, l.p99, l.max)), want)
        };
        let from_sender = report(&[&sender], None);
        let (got, want) = check(&from_sender, &late(&mut sent.iter().map(|r| (r.a, r.b))));
        prop_assert_eq!(got, want);
        // The receiver computes the plan again: the same, over the packets that arrived.
        let planned = |seq: u64| sent.iter().find(|record| record.seq == seq).unwrap().a;
        let mut seen = BTreeSet::new();
        let firsts: Vec<_> = arrived.iter().filter(|r| seen.insert(r.seq)).collect();
        let from_receiver = report(&[&receiver], None);
        let (got, want) =
            check(&from_receiver, &late(&mut firsts.iter().map(|r| (planned(r.seq), r.a))));
        prop_assert_eq!(got, want);
        // The distance of inter-departure times, from its definition.
        let pairs: Vec<(i64, i64)> = sent
            .windows(2)
            .filter(|pair| pair[1].seq == pair[0].seq + 1)
            .map(|pair| ((pair[1].a - pair[0].a) as i64, (pair[1].b - pair[0].b) as i64))
            .collect();
        let fidelity = &from_sender.flows[0].metrics.fidelity;
        let ends = sent.first().zip(sent.last());
        let span = ends.map_or((0, 1), |(first, last)| (last.a - first.a, last.seq - first.seq));
        if pairs.is_empty() || span.0 == 0 {
            prop_assert_eq!(fidelity.idt_ks, None);
        } else {
            let below = |x: i64, of: fn(&(i64, i64)) -> i64| {
                pairs.iter().filter(|pair| of(pair) <= x).count() as f64 / pairs.len() as f64
            };
            // Within 5 % of the mean planned inter-departure time.
            #[allow(clippy::cast_possible_truncation, reason = "small")]
            let near = (0.05 * (span.0 as f64 / span.1 as f64)) as i64;
            let planned: fn(&(i64, i64)) -> i64 = |pair| pair.0;
            let sent: fn(&(i64, i64)) -> i64 = |pair| pair.1;
            let worst = pairs.iter().flat_map(|pair| [pair.0, pair.1]).fold(0.0f64, |worst, x| {
                worst
                    .max(below(x, planned) - below(x + near, sent))
                    .max(below(x, sent) - below(x + near, planned))
            });
            prop_assert!(close(fidelity.idt_ks.unwrap(), worst));
            prop_assert_eq!(fidelity.size_ks, Some(0.0));
        }
    }

    #[test]
    fn windows_hold_what_they_should(run in run(), interval_ms in 1u64..40) {
        let interval = interval_ms * 1_000_000 * if run.idt == "constant(20min)" { 100_000 } else { 1 };
        let (sent, arrived) = run.records();
        let logs = run.logs(true);
        let Some(start) = arrived.iter().map(|record| record.b).min() else { return Ok(()) };
        let last = (arrived.iter().map(|record| record.b).max().unwrap() - start) / interval;
        let got = report(&[&logs[1]], Some(interval)).intervals.unwrap();
        prop_assert_eq!((got.start_unix_ns, got.flows.len()), (start, 1));
        prop_assert_eq!(&got.flows[0].windows, &got.total);
        prop_assert_eq!(got.total.len() as u64, last + 1);
        let delays = delays(&arrived);
        for (row, number) in got.total.iter().zip(0..) {
            let from = start + number * interval;
            let inside: Vec<usize> = (0..arrived.len())
                .filter(|&i| from <= arrived[i].b && arrived[i].b < from + interval)
                .collect();
            let mean = |values: Vec<i64>| {
                let sum = values.iter().map(|&v| v as f64).sum::<f64>();
                (!values.is_empty()).then(|| sum / values.len() as f64)
            };
            let bytes: u64 = inside.iter().map(|&i| u64::from(arrived[i].size)).sum();
            prop_assert_eq!((row.start_ns, row.packets, row.bytes), (number * interval, inside.len() as u64, bytes));
            prop_assert!(close(row.bitrate_bps, 8e9 * bytes as f64 / interval as f64));
            prop_assert_eq!(row.partial, number == last);
            let delay = mean(inside.iter().map(|&i| delays[i]).collect());
            prop_assert!(close(row.delay_mean_ns.unwrap_or(0.5), delay.unwrap_or(0.5)));
            let steps = inside.iter().filter(|&&i| i > 0);
            let jitter = mean(steps.map(|&i| (delays[i] - delays[i - 1]).abs()).collect());
            prop_assert!(close(row.jitter_mean_ns.unwrap_or(0.5), jitter.unwrap_or(0.5)));
        }
        // Losses need both logs: a packet is found missing when one with a larger number comes.
        let whole = report(&[&logs[0], &logs[1]], Some(interval));
        let course = whole.intervals.unwrap();
        let end = arrived.len() - 1;
        let mut want = BTreeMap::<u64, u64>::new();
        for lost in sent.iter().filter(|sent| arrived.iter().all(|there| there.seq != sent.seq)) {
            let next = arrived.iter().position(|there| there.seq > lost.seq).unwrap_or(end);
            *want.entry((arrived[next].b - course.start_unix_ns) / interval).or_default() += 1;
        }
        prop_assert_eq!(want.values().sum::<u64>(), whole.total.metrics.lost.unwrap());
        for row in &course.total {
            prop_assert_eq!(row.lost, Some(want.remove(&(row.start_ns / interval)).unwrap_or(0)));
        }
        prop_assert!(want.is_empty());
        // Without accounts of the ends nobody knows what was sent.
        let [_, alone] = run.logs(false);
        let alone = report(&[&alone], Some(interval)).intervals.unwrap();
        prop_assert!(alone.lost_why.is_some() && alone.total.iter().all(|row| row.lost.is_none()));
    }

    #[test]
    fn merged_parts_are_the_whole(run in run(), cut in 0usize..120) {
        use itg_core::flow::Meter;
        use itg_stats::plan::Plan;
        use itg_stats::series::Grid;
        use itg_stats::stats::{Facts, FlowStats, Lane, Setup};

        let spec = spec(1, run.idt, "uniform(20,1400)", run.fates.len() as u64);
        let (sent, arrived) = run.records();
        for (side, records) in [(Side::Sender, sent), (Side::Receiver, arrived)] {
            let stats = |records: &[Record]| {
                let mut stats = FlowStats::new(Setup {
                    side,
                    meter: Meter::Owd,
                    epoch_unix_ns: Some(EPOCH),
                    plan: Plan::new(&spec, itg_testkit::logs::SEED).ok().map(Box::new),
                    grid: Some(Grid { start_unix_ns: EPOCH / 2, interval_ns: 5_000_000 }),
                    distributions: None,
                    lane: Lane::All,
                    clock: None,
                    sender_clock: None,
                    plan_packets: u64::MAX,
                    trace: None,
                    declared_p99_ns: None,
                });
                records.iter().for_each(|record| stats.add(record));
                stats
            };
            let cut = cut.min(records.len());
            let mut parts = stats(&records[..cut]);
            let seqs = |records: &[Record]| records.iter().map(|record| record.seq).collect::<Vec<_>>();
            let above = seqs(&records[..cut]).iter().max() < seqs(&records[cut..]).iter().min();
            let clean = above || cut == records.len();
            prop_assert_eq!(parts.append(stats(&records[cut..])), clean);
            if !clean {
                continue;
            }
            let whole = stats(&records);
            let (got, want) = (parts.summary(&Facts::default()), whole.summary(&Facts::default()));
            prop_assert_eq!((got.packets, got.bytes, got.duration_ns), (want.packets, want.bytes, want.duration_ns));
            prop_assert_eq!((got.lost, got.loss_bursts, got.duplicated), (want.lost, want.loss_bursts, want.duplicated));
            prop_assert_eq!(got.delay_ns.map(|d| (d.min, d.p50, d.p999, d.max)), want.delay_ns.map(|d| (d.min, d.p50, d.p999, d.max)));
            if let (Some(got), Some(want)) = (got.jitter_ns, want.jitter_ns) {
                prop_assert!(close(got.mean, want.mean) && got.p99 == want.p99);
                prop_assert!(close(got.rfc3550.unwrap(), want.rfc3550.unwrap()));
            }
            if side == Side::Sender {
                prop_assert_eq!(got.lateness_ns, want.lateness_ns);
                prop_assert_eq!(got.fidelity, want.fidelity);
            }
            let windows = |stats: &FlowStats| {
                let windows = stats.series().unwrap().windows();
                windows.into_iter().collect::<Vec<_>>()
            };
            prop_assert_eq!(windows(&parts), windows(&whole));
        }
    }
}
