//! Joining logs into a report: what each side knows, what is said about it, and what damage does.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

use itg_core::flow::{Meter, Proto};
use itg_record::{
    DepartureSample, DepartureTotals, Departures, FlowEnd, Note, ReceivedPacket, Record,
    SentPacket, Side, flag,
};
use itg_stats::fidelity::Verdict;
use itg_stats::report::{BasisKind, DelayBasis, FlowReport, Metrics, Report};
use itg_stats::stats::LossBasis;
use itg_stats::{Analysis, Options};
use itg_testkit::logs::{
    EPOCH, Setup, TestLog, blocks, compacted, end, interleave, plan, run_of_two_flows, spec,
};

fn report(logs: &[&[u8]]) -> Report {
    let mut analysis = Analysis::new(Options::default());
    for (log, name) in logs.iter().zip(["one", "two", "three"]) {
        analysis.add_log(log, name).unwrap();
    }
    analysis.finish()
}

fn flow<'a>(report: &'a Report, number: u32, side: &str) -> &'a FlowReport {
    report.flows.iter().find(|flow| flow.flow == number && flow.side == side).unwrap()
}

#[test]
fn both_sides_make_two_entries_and_count_once() {
    let [sender, receiver] = run_of_two_flows();
    for logs in [[&sender[..], &receiver], [&receiver, &sender]] {
        let report = report(&logs);
        let order: Vec<_> = report.flows.iter().map(|flow| (flow.flow, flow.side)).collect();
        assert_eq!(order, [(1, "receiver"), (1, "sender"), (2, "receiver"), (2, "sender")]);
        let total = &report.total;
        assert_eq!((total.flows, total.metrics.sent_packets), (2, Some(160)));
        assert_eq!(total.metrics.lost, Some(10));
        assert_eq!(total.metrics.packets, 150 + total.metrics.duplicated.unwrap());
        assert_eq!(total.metrics.fidelity.verdict, Verdict::Pass);
        assert_eq!(total.unmatched.unwrap().flows + total.unmatched.unwrap().packets, 0);
        let at_receiver = &flow(&report, 1, "receiver").metrics;
        let at_sender = &flow(&report, 1, "sender").metrics;
        assert_eq!(at_receiver.lost_basis, Some(LossBasis::SenderLog));
        assert_eq!(at_receiver.lateness_ns, at_sender.lateness_ns);
        assert_eq!(at_receiver.fidelity, at_sender.fidelity);
        assert_eq!((at_sender.packets, at_sender.delay_ns), (70, None));
        assert_eq!((at_sender.lost, at_sender.loss_bursts), (Some(10), Some(10)));
        assert_eq!(at_sender.duplicated, None);
    }
    // Alone, the sender has only the receiver's count, in which duplicates hide losses.
    let alone = report(&[&sender]);
    let at_sender = &flow(&alone, 1, "sender").metrics;
    assert_eq!(at_sender.lost_basis, Some(LossBasis::ReceiverCount));
    assert_eq!((at_sender.lost, at_sender.loss_bursts), (Some(4), None));
}

#[test]
fn the_receiver_alone_knows_the_plan_from_the_seed() {
    let [sender, receiver] = run_of_two_flows();
    let (alone, both) = (report(&[&receiver]), report(&[&sender, &receiver]));
    let (got, want) = (flow(&alone, 2, "receiver"), flow(&both, 2, "receiver"));
    assert_eq!(got.metrics.lateness_ns, want.metrics.lateness_ns);
    assert_eq!(got.metrics.fidelity, want.metrics.fidelity);
    assert_eq!(got.metrics.lost_basis, Some(LossBasis::SenderCount));
    assert_eq!(alone.total.unmatched, None);
}

#[test]
fn leftovers_of_the_join_are_counted() {
    let flows =
        [spec(1, "constant(1ms)", "constant(64)", 9), spec(2, "constant(1ms)", "constant(64)", 9)];
    let sent = |k: u64| {
        Record::sent(SentPacket {
            flow: 0,
            seq: k,
            size: 64,
            planned_ns: k * 1_000_000,
            sent_ns: EPOCH + k * 1_000_000,
        })
    };
    let received = |index, k: u64| {
        let at = EPOCH + k * 1_000_000;
        Record::received(ReceivedPacket {
            flow: index,
            seq: k,
            size: 64,
            sent_ns: at,
            arrived_ns: at + 10,
            read_ns: at + 20,
            ttl: 64,
            tos: 0,
        })
    };
    let mut sender = TestLog::new(Side::Sender, "a");
    sender.flow(0, &flows[0], ["a", "b"]);
    sender.records((0..5).map(sent));
    let mut receiver = TestLog::new(Side::Receiver, "b");
    receiver.flow(0, &flows[0], ["a", "b"]);
    receiver.flow(1, &flows[1], ["a", "b"]);
    receiver.records((2..8).map(|k| received(0, k)));
    receiver.records((0..3).map(|k| received(1, k)));
    let report = report(&[&sender.finish(), &receiver.finish()]);
    let unmatched = report.total.unmatched.unwrap();
    assert_eq!((unmatched.flows, unmatched.packets), (1, 3));
    let joined = flow(&report, 1, "receiver");
    assert_eq!(joined.metrics.lost, None, "nobody told how many were sent");
    assert!(joined.notices.last().unwrap().ends_with("2 packets are missing"), "{joined:?}");
    assert_eq!(report.total.metrics.sent_packets, None, "flow 2 does not know what was sent");
}

#[test]
fn packets_of_a_flow_whose_sender_logged_none_are_all_unmatched() {
    let [_, receiver] = run_of_two_flows();
    let arrived = report(&[&receiver]).total.metrics.packets;
    let mut sender = TestLog::new(Side::Sender, "a");
    for (index, number) in (0..).zip(1..=2) {
        sender.flow(index, &spec(number, "constant(1ms)", "constant(64)", 80), ["a", "b"]);
    }
    let report = report(&[&sender.killed(), &receiver]);
    let unmatched = report.total.unmatched.unwrap();
    let duplicated = report.total.metrics.duplicated.unwrap();
    assert_eq!((unmatched.flows, unmatched.packets), (0, arrived - duplicated));
}

#[test]
fn the_share_left_out_is_not_of_nothing_where_not_all_owners_told_what_they_sent() {
    let flow = spec(1, "constant(1ms)", "constant(64)", 1000);
    let mut receiver = TestLog::new(Side::Receiver, "b");
    receiver.flow(0, &flow, ["a", "b"]);
    receiver.records(plan(&flow).into_iter().skip(10).map(|due| {
        let at = EPOCH + due.due_ns;
        Record::received(ReceivedPacket {
            flow: 0,
            seq: due.seq,
            size: due.size,
            sent_ns: at,
            arrived_ns: at + 10,
            read_ns: at + 20,
            ttl: 64,
            tos: 0,
        })
    }));
    receiver.end_flow(FlowEnd { sent_packets: None, skipped_packets: Some(10), ..end(0) });
    let report = report(&[&receiver.finish()]);
    let fidelity = &report.flows[0].metrics.fidelity;
    assert_eq!(fidelity.verdict, Verdict::Pass, "{:?}", fidelity.reasons);
}

#[test]
fn delay_is_absolute_only_on_one_clock() {
    let at = EPOCH + 5;
    for (boot_ids, side, meter, want) in [
        (["a", "a"], Side::Receiver, Meter::Owd, Some(DelayBasis::ONE_CLOCK)),
        (["a", "b"], Side::Receiver, Meter::Owd, Some(DelayBasis::TWO_CLOCKS)),
        (["", ""], Side::Receiver, Meter::Owd, Some(DelayBasis::TWO_CLOCKS)),
        (["a", "b"], Side::Sender, Meter::Rtt, Some(DelayBasis::ONE_CLOCK)),
        (["a", "a"], Side::Sender, Meter::Owd, None),
    ] {
        let mut spec = spec(1, "constant(1ms)", "constant(64)", 3);
        spec.meter = meter;
        let mut log = TestLog::new(side, "x");
        log.flow(0, &spec, boot_ids);
        log.records([match (side, meter) {
            (Side::Receiver, _) => Record::received(ReceivedPacket {
                flow: 0,
                seq: 0,
                size: 64,
                sent_ns: EPOCH,
                arrived_ns: at,
                read_ns: at,
                ttl: 64,
                tos: 0,
            }),
            (_, Meter::Rtt) => Record::echoed(ReceivedPacket {
                flow: 0,
                seq: 0,
                size: 64,
                sent_ns: EPOCH,
                arrived_ns: at,
                read_ns: at,
                ttl: 64,
                tos: 0,
            }),
            (..) => Record::sent(SentPacket {
                flow: 0,
                seq: 0,
                size: 64,
                planned_ns: 0,
                sent_ns: EPOCH,
            }),
        }]);
        let report = report(&[&log.finish()]);
        let got = report.flows[0].metrics.delay_basis;
        assert_eq!(got, want, "{boot_ids:?} {side:?} {meter:?}");
        assert_eq!(report.total.metrics.delay_basis, want);
        assert!(got.is_none_or(|b| (b.kind == BasisKind::Absolute) == b.uncertainty_ns.is_some()));
    }
}

#[test]
fn short_packets_have_no_delay_but_everything_else() {
    let mut log = TestLog::new(Side::Receiver, "b");
    log.flow(0, &spec(1, "constant(1ms)", "constant(14)", 10), ["a", "b"]);
    let at = |k: u64| EPOCH + k * 1_000_000;
    log.records((0..10).map(|k| {
        Record::received(ReceivedPacket {
            flow: 0,
            seq: k,
            size: 14,
            sent_ns: 0,
            arrived_ns: at(k),
            read_ns: at(k),
            ttl: 64,
            tos: 0,
        })
    }));
    log.end_flow(FlowEnd { sent_packets: Some(12), ..end(0) });
    let report = report(&[&log.finish()]);
    let got = &report.flows[0].metrics;
    assert_eq!((got.packets, got.bytes, got.lost), (10, 140, Some(2)));
    assert_eq!(
        (got.delay_ns, got.delay_basis, got.jitter_ns, got.lateness_ns),
        (None, None, None, None)
    );
    assert_eq!(got.fidelity.verdict, Verdict::Unknown);
    assert_eq!((got.loss_bursts, got.loss_burst_mean), (Some(1), Some(2.0)));
}

#[test]
fn what_a_reader_should_know_is_said() {
    let mut log = TestLog::new(Side::Receiver, "b");
    log.flow(0, &spec(1, "constant(1ms)", "constant(64)", 10), ["a", "b"]);
    let mut records: Vec<_> = (0..6)
        .map(|k| {
            Record::received(ReceivedPacket {
                flow: 0,
                seq: k,
                size: 64,
                sent_ns: EPOCH + 90,
                arrived_ns: EPOCH + k,
                read_ns: EPOCH + k,
                ttl: 64,
                tos: 0,
            })
        })
        .collect();
    records[2].flags |= flag::USER_STAMP;
    log.records(records);
    log.records([Record::sent(SentPacket {
        flow: 0,
        seq: 9,
        size: 64,
        planned_ns: 0,
        sent_ns: 0,
    })]);
    log.records([Record::received(ReceivedPacket {
        flow: 8,
        seq: 0,
        size: 64,
        sent_ns: EPOCH,
        arrived_ns: EPOCH,
        read_ns: EPOCH,
        ttl: 64,
        tos: 0,
    })]);
    log.end_flow(FlowEnd { received_packets: Some(9), socket_drops: Some(2), ..end(0) });
    let report = report(&[&log.finish()]);
    assert_eq!(
        report.flows[0].notices,
        [
            "3 packets arrived but are not in the log: they do not count as lost",
            "2 packets were dropped by the kernel at the socket: they are part of the loss",
            "1 arrivals have no kernel time stamp: the time of reading is used",
            "6 delays are below 0, the smallest -90ns: the clocks of sender and receiver disagree",
            "1 records are of a kind that this side does not write: they are left out",
        ]
    );
    let lost = &report.flows[1];
    assert_eq!((lost.flow, lost.proto, lost.metrics.packets), (8, None, 1));
    assert_eq!(
        lost.notices,
        [
            "one: the description of the flow with index 8 is lost: it is shown under that number",
            "how much its sender sent is not known, and so is the loss: up to the last arrival 0 packets are missing",
        ]
    );
}

#[test]
fn a_sender_off_its_plan_fails_and_a_wrong_plan_is_noticed() {
    let spec = spec(1, "exp(10ms)", "uniform(60,600)", 200);
    let log = |record: &dyn Fn(u64, u64, u32) -> Record| {
        let mut log = TestLog::new(Side::Sender, "a");
        log.flow(0, &spec, ["a", "b"]);
        log.records(plan(&spec).iter().map(|d| record(d.seq, d.due_ns, d.size)));
        log.end_flow(FlowEnd { sent_packets: Some(200), skipped_packets: Some(0), ..end(0) });
        report(&[&log.finish()]).flows.remove(0)
    };
    let good = log(&|k, due, size| {
        Record::sent(SentPacket {
            flow: 0,
            seq: k,
            size,
            planned_ns: due,
            sent_ns: EPOCH + due + 3_000,
        })
    });
    assert_eq!((good.metrics.fidelity.verdict, good.notices.len()), (Verdict::Pass, 0));
    let slow = log(&|k, due, size| {
        Record::sent(SentPacket {
            flow: 0,
            seq: k,
            size,
            planned_ns: due,
            sent_ns: EPOCH + due * 3,
        })
    });
    assert_eq!(slow.metrics.fidelity.verdict, Verdict::Fail);
    let fixed = log(&|k, due, _| {
        Record::sent(SentPacket {
            flow: 0,
            seq: k,
            size: 300,
            planned_ns: due,
            sent_ns: EPOCH + due,
        })
    });
    assert_eq!(fixed.metrics.fidelity.verdict, Verdict::Fail);
    assert!(fixed.metrics.fidelity.reasons[0].starts_with("sizes differ from the plan by 0."));
    let other = log(&|k, due, size| {
        Record::sent(SentPacket {
            flow: 0,
            seq: k,
            size,
            planned_ns: due + 1,
            sent_ns: EPOCH + due,
        })
    });
    assert_eq!(other.notices, ["200 packets were planned for another time than the seed gives"]);
}

#[test]
fn hostile_records_neither_panic_nor_blow_up() {
    let mut log = TestLog::new(Side::Receiver, "b");
    log.flow(0, &spec(1, "constant(1ms)", "constant(64)", 10), ["a", "b"]);
    for k in [0, 1, u64::MAX, 1 << 40, u64::MAX - 1, 77] {
        for time in [0, 1, u64::MAX, EPOCH, !EPOCH, !(1 << 60)] {
            log.records([Record::received(ReceivedPacket {
                flow: 0,
                seq: k,
                size: u32::MAX,
                sent_ns: time,
                arrived_ns: !time,
                read_ns: u64::MAX,
                ttl: 255,
                tos: 255,
            })]);
        }
    }
    let bytes = log.finish();
    let mut analysis = Analysis::new(Options { interval_ns: Some(1), ..Options::default() });
    analysis.add_log(&bytes, "hostile").unwrap();
    let report = analysis.finish();
    let windows = &report.intervals.as_ref().unwrap().total;
    assert!(windows.len() <= 36, "{} windows", windows.len());
    let windows = report.notices.iter().any(|notice| notice.starts_with("windows of 1ns over "));
    assert!(windows, "{:?}", report.notices);
    assert!(!report.to_json().contains("NaN"));
    assert!(!itg_stats::text::render(&report).is_empty());
    assert_eq!(analysis.packets().len(), 36);
}

#[test]
fn times_that_were_made_up_stay_out_of_the_total() {
    let good = [0u64, 1, 2].map(|k| (EPOCH + k * 1_000_000, EPOCH + k * 1_000_000 + 5_000));
    let rows = [
        (
            "sent after 2116",
            (u64::MAX - 7, EPOCH + 5_000),
            "3 records have times beyond the year 2116",
        ),
        ("arrived after 2116", (EPOCH, u64::MAX / 2), "3 records have times beyond the year 2116"),
        (
            "years ago",
            (EPOCH / 2, EPOCH + 5_000),
            "the total leaves out delays and lateness of flow 2",
        ),
        ("far from the others", (9, 9 + 5_000), "the total's time leaves out flow 2"),
    ];
    for (name, (sent, arrived), words) in rows {
        let mut log = TestLog::new(Side::Receiver, "b");
        for (index, flow) in [(0, 1), (1, 2)] {
            log.flow(index, &spec(flow, "constant(1ms)", "constant(64)", 3), ["b", "b"]);
        }
        let records = |index: u32, times: [(u64, u64); 3]| {
            (0..).zip(times).map(move |(seq, (sent, arrived))| {
                Record::received(ReceivedPacket {
                    flow: index,
                    seq,
                    size: 64,
                    sent_ns: sent,
                    arrived_ns: arrived,
                    read_ns: arrived,
                    ttl: 64,
                    tos: 0,
                })
            })
        };
        log.records(records(0, good));
        log.records(records(1, [(sent, arrived); 3]));
        let bytes = log.finish();
        let mut analysis = Analysis::new(Options::default());
        analysis.add_log(&bytes, "log").unwrap();
        let report = analysis.finish();
        let total = &report.total.metrics;
        assert_eq!(total.packets, 6, "{name}");
        assert_eq!(total.duration_ns, 2_000_000, "{name}");
        let delay = total.delay_ns.unwrap();
        assert_eq!((delay.min, delay.max), (5_000, 5_000), "{name}");
        let flows = report.flows.iter().flat_map(|flow| &flow.notices);
        let told = flows.chain(&report.notices).any(|notice| notice.starts_with(words));
        assert!(told, "{name}: {:?} {:?}", report.notices, report.flows[1].notices);
    }
}

/// Two runs of a round-trip flow at one more sender and receiver, with logs of their own.
fn another_run() -> [Vec<u8>; 2] {
    let mut spec = spec(1, "constant(2ms)", "constant(80)", 40);
    spec.meter = Meter::Rtt;
    let mut sender = TestLog::with_id(8, Side::Sender, "boot-c");
    let mut receiver = TestLog::with_id(9, Side::Receiver, "boot-d");
    for (index, id) in [(0, 7), (1, 2)] {
        spec.id = id;
        sender.flow(index, &spec, ["boot-c", "boot-d"]);
        receiver.flow(index, &spec, ["boot-c", "boot-d"]);
        let at = |k: u64| EPOCH + k * 2_000_000 + u64::from(id);
        for k in 0..40 {
            sender.records([Record::sent(SentPacket {
                flow: index,
                seq: k,
                size: 80,
                planned_ns: k * 2_000_000,
                sent_ns: at(k),
            })]);
            receiver.records([Record::received(ReceivedPacket {
                flow: index,
                seq: k,
                size: 80,
                sent_ns: at(k),
                arrived_ns: at(k) + 9,
                read_ns: at(k) + 12,
                ttl: 64,
                tos: 0,
            })]);
            if k % 3 > 0 {
                let (back, read) = (at(k) + 20_000 + k, at(k) + 21_000);
                sender.records([Record::echoed(ReceivedPacket {
                    flow: index,
                    seq: k,
                    size: 80,
                    sent_ns: at(k),
                    arrived_ns: back,
                    read_ns: read,
                    ttl: 64,
                    tos: 0,
                })]);
            }
        }
        let counted = FlowEnd { sent_packets: Some(40), received_packets: Some(40), ..end(index) };
        sender.end_flow(counted.clone());
        receiver.end_flow(counted);
    }
    sender.clock();
    [sender.finish(), receiver.finish()]
}

/// Everything in a report but the names of the files.
fn nameless(report: &Report) -> String {
    let mut json = serde_json::to_value(report).unwrap();
    for log in json["manifest"]["logs"].as_array_mut().unwrap() {
        log.as_object_mut().unwrap().remove("name");
    }
    json.to_string()
}

#[test]
fn many_logs_in_one_file_are_as_if_given_one_by_one() {
    let ([s1, r1], [s2, r2]) = (run_of_two_flows(), another_run());
    let options = Options { interval_ns: Some(50_000_000), ..Options::default() };
    let decode = |files: &[&[u8]]| {
        let mut analysis = Analysis::new(options.clone());
        for (file, name) in files.iter().zip(["one", "two", "three", "four"]) {
            analysis.add_log(file, name).unwrap();
        }
        let report = analysis.finish();
        assert_eq!((report.damage.len(), analysis.not_closed().len()), (0, 0));
        (nameless(&report), format!("{:?}", analysis.packets()))
    };
    for logs in [[&s1[..], &r1, &s2, &r2], [&r2, &r1, &s2, &s1]] {
        let want = decode(&logs);
        assert!(want.1.matches("PacketLine").count() > 200 && want.0.contains("boot-d"));
        let in_turns = interleave(&logs);
        let halves = [interleave(&logs[..2]), interleave(&logs[2..])];
        let behind = logs.concat();
        let small = logs.map(compacted);
        for (name, files) in [
            ("block by block", vec![&in_turns[..]]),
            ("in two files", vec![&halves[0], &halves[1]]),
            ("one behind the other", vec![&behind]),
            ("compacted", vec![&small[0], &small[1], &small[2], &small[3]]),
            ("some compacted", vec![logs[0], &small[1], logs[2], &small[3]]),
            ("compacted, in one file", vec![&compacted(&in_turns)]),
            ("put together after compaction", vec![&interleave(&small.each_ref().map(|s| &s[..]))]),
        ] {
            assert!(decode(&files) == want, "{name}");
        }
    }
    let small = compacted(&r1);
    assert!(small.len() < r1.len() && blocks(&small).len() == blocks(&r1).len());
}

#[test]
fn a_log_without_an_end_is_no_damage() {
    let [sender, receiver] = run_of_two_flows();
    let both = interleave(&[&sender, &receiver]);
    // Where the file ends, how many bytes of a block are too many there, and which logs go on.
    let end_of = |count: usize| blocks(&both)[..count].iter().map(|b| b.len()).sum::<usize>();
    let count = blocks(&both).len();
    let rows = [(count - 5, 0, vec![1, 2]), (count - 5, 99, vec![1, 2]), (count - 1, 0, vec![2])];
    for (whole, more, open) in rows {
        let len = end_of(whole) + more;
        let mut analysis = Analysis::new(Options::default());
        analysis.add_log(&both[..len], "live").unwrap();
        assert_eq!(analysis.damage(), []);
        let words: Vec<_> = analysis.not_closed().iter().map(ToString::to_string).collect();
        assert_eq!(words.len(), open.len() + usize::from(more > 0), "{words:?}");
        if more > 0 {
            let want =
                format!("live: {more} bytes at byte {} left out: unfinished block: ", len - more);
            assert!(words[0].starts_with(&want), "{words:?}");
        }
        for log in open {
            let want = format!(": log {log} is not closed: it has no end note after block ");
            assert!(words.iter().any(|word| word.contains(&want)), "{words:?}");
        }
        let report = analysis.finish();
        assert!(words.iter().all(|word| report.notices.contains(word)));
        assert!(!report.notices.iter().any(|notice| notice.contains("damaged")));
        let complete = |at: usize| report.manifest["logs"][at]["complete"] == true;
        assert_eq!((complete(0), complete(1)), (whole == count - 1, false));
    }
}

#[test]
fn every_cut_of_a_log_is_decoded_or_refused() {
    let [_, receiver] = run_of_two_flows();
    for log in [&receiver, &compacted(&receiver)] {
        for len in (0..log.len()).step_by(97) {
            let mut analysis = Analysis::new(Options::default());
            match analysis.add_log(&log[..len], "cut") {
                Ok(()) => {
                    let report = analysis.finish();
                    assert_eq!(report.damage, [], "cut at {len}");
                    assert!(!analysis.not_closed().is_empty(), "cut at {len}");
                }
                Err(error) => {
                    let text = error.to_string();
                    let want =
                        if len == 0 { "cut: the file is empty" } else { "cut: not a log of ITG" };
                    assert!(text.starts_with(want), "cut at {len}: {text}");
                }
            }
        }
    }
}

/// The two logs of a flow whose times the kernel keeps, with or without stamps of its departures.
fn held(stamped: bool) -> [Vec<u8>; 2] {
    let settings = [("pacing", "txtime"), ("pacing_txtime", "yes")];
    let mut sender =
        TestLog::of(Setup { settings: &settings, ..Setup::new(Side::Sender, "boot-a") });
    let mut receiver = TestLog::new(Side::Receiver, "boot-a");
    let spec = spec(1, "constant(10ms)", "constant(100)", 40);
    sender.flow(3, &spec, ["boot-a", "boot-a"]);
    receiver.flow(1, &spec, ["boot-a", "boot-a"]);
    let mut samples = Vec::new();
    for d in plan(&spec) {
        let (due, ahead) = (EPOCH + d.due_ns, 700_000);
        sender.records([Record::held(
            SentPacket { flow: 3, seq: d.seq, size: d.size, planned_ns: d.due_ns, sent_ns: due },
            ahead,
        )]);
        let there = due + 60_000;
        receiver.records([Record::received(ReceivedPacket {
            flow: 1,
            seq: d.seq,
            size: d.size,
            sent_ns: due,
            arrived_ns: there,
            read_ns: there,
            ttl: 64,
            tos: 0,
        })]);
        if d.seq % 4 == 0 {
            let late = 20_000 + d.seq.cast_signed();
            let left_after = ahead.cast_signed() + late;
            samples.push(DepartureSample::from((d.seq, d.due_ns, due - ahead, left_after)));
        }
    }
    if stamped {
        let totals = DepartureTotals { asked: 12, missing: 2, missed: 3, invalid: 0 };
        let (index, every, held) = (3, 4, true);
        let note = |samples: &[DepartureSample], totals| {
            Note::Departures(Departures { index, every, held, samples: samples.to_vec(), totals })
        };
        sender.note(&note(&samples[..6], None));
        sender.note(&note(&samples[6..], None));
        sender.note(&note(&[], Some(totals)));
    }
    sender.end_flow(FlowEnd { sent_packets: Some(40), ..end(3) });
    receiver.end_flow(FlowEnd { received_packets: Some(40), ..end(1) });
    [sender.finish(), receiver.finish()]
}

#[test]
fn lateness_of_packets_whose_times_the_kernel_kept_is_that_of_their_stamps() {
    let [sender, receiver] = held(true);
    for logs in [&[&sender[..]][..], &[&sender, &receiver], &[&receiver, &sender]] {
        let report = report(logs);
        for metrics in
            report.flows.iter().map(|flow| flow.metrics.as_ref()).chain([&report.total.metrics])
        {
            let late = metrics.lateness_ns.unwrap();
            assert_eq!((late.p50, late.max), (20_016, 20_036));
            let way = metrics.ledger.departure_ns.unwrap();
            assert_eq!((way.count, way.min, way.max), (10, 720_000, 720_036));
            assert_eq!(metrics.ledger.lateness_ns.unwrap().count, 10);
            assert_eq!(metrics.fidelity.verdict, Verdict::Warn, "three were dropped");
        }
        for flow in &report.flows {
            let departures = flow.departures.as_ref().unwrap();
            assert_eq!((departures.asked, departures.missing), (Some(12), Some(2)));
            let notices = flow.notices.join("\n");
            assert!(notices.contains("lateness is that of 10 packets"), "{notices}");
            assert!(
                notices.contains("3 packets were dropped by a queueing discipline"),
                "{notices}"
            );
        }
    }
    let [sender, _] = held(false);
    let report = report(&[&sender]);
    assert_eq!(report.flows[0].metrics.lateness_ns, None, "nobody knows when they left");
    assert_eq!(report.total.metrics.lateness_ns, None);
    assert!(report.flows[0].notices[0].contains("lateness is not known"));
    assert_eq!(report.total.metrics.fidelity.verdict, Verdict::Unresolved);
    let reasons = &report.flows[0].metrics.fidelity.reasons;
    assert!(reasons.iter().any(|reason| reason.starts_with("no stamp says")), "{reasons:?}");
}

#[test]
fn the_promise_of_a_host_is_held_against_its_run() {
    // 100 packets a second, 5 us late.
    let log_with = |settings: &[(&str, &str)], skipped| {
        let mut log = TestLog::of(Setup { settings, ..Setup::new(Side::Sender, "boot-a") });
        let spec = spec(1, "constant(10ms)", "constant(100)", 101);
        log.flow(1, &spec, ["boot-a", "boot-a"]);
        let at = |due: u64| EPOCH + due + 5_000;
        log.records(plan(&spec).iter().map(|d| {
            Record::sent(SentPacket {
                flow: 1,
                seq: d.seq,
                size: 100,
                planned_ns: d.due_ns,
                sent_ns: at(d.due_ns),
            })
        }));
        log.end_flow(FlowEnd { skipped_packets: Some(skipped), ..end(1) });
        log.finish()
    };
    let log = |settings: &[(&str, &str)]| log_with(settings, 0);
    let pacing = ("pacing", "hybrid");
    for (settings, want) in [
        (&[pacing][..], None),
        (&[pacing, ("promise", "100:5000"), ("promise_pacing", "hybrid")], Some(Some(true))),
        (&[pacing, ("promise", "100:4999"), ("promise_pacing", "hybrid")], Some(Some(false))),
        (&[pacing, ("promise", "100:5000"), ("promise_pacing", "spin")], Some(None)),
        (&[pacing, ("promise", "10:5000"), ("promise_pacing", "hybrid")], Some(None)),
        // An entry of another form is no promise, whatever wrote it into the log.
        (&[pacing, ("promise", "5000"), ("promise_pacing", "hybrid")], None),
    ] {
        let report = report(&[&log(settings)]);
        let got: Vec<_> = report.promises.iter().map(|promise| promise.kept).collect();
        assert_eq!(got, want.into_iter().collect::<Vec<_>>(), "{settings:?}");
        let text = itg_stats::text::render(&report);
        assert_eq!(text.contains("Promise: one: "), want.is_some(), "{text}");
    }
    let settings = [pacing, ("promise", "100:5000"), ("promise_pacing", "hybrid")];
    let report = report(&[&log_with(&settings, 2)]);
    assert_eq!(report.promises[0].kept, Some(false), "more than 1 % were left out");
    let log = log(&settings);
    let some = Options { flows: [1].into(), ..Options::default() };
    let filtered = Options { filter: Some("flow == 1".parse().unwrap()), ..Options::default() };
    for options in [some, filtered] {
        let mut analysis = Analysis::new(options);
        analysis.add_log(&log, "one").unwrap();
        let promise = &analysis.finish().promises[0];
        assert_eq!((promise.kept, promise.rate_pps.round()), (None, 100.0));
        assert_eq!(promise.why_not.as_deref(), Some("only some flows were decoded"));
    }
}

#[test]
fn names_of_flows_are_told_by_the_senders_log_to_both_sides() {
    let flows = [("call", 1), ("bulk", 2)]
        .map(|(name, id)| (name, spec(id, "constant(1ms)", "constant(64)", 3)));
    let mut sender = TestLog::new(Side::Sender, "a");
    let mut receiver = TestLog::new(Side::Receiver, "b");
    for (index, (name, spec)) in (0..).zip(&flows) {
        sender.named_flow(index, spec, ["a", "b"], Some(name));
        receiver.flow(index, spec, ["a", "b"]);
    }
    let (sender, receiver) = (sender.finish(), receiver.finish());
    let names = |logs: &[&[u8]], filter: Option<&str>| {
        let filter = filter.map(|text| text.parse().expect("a filter"));
        let mut analysis = Analysis::new(Options { filter, ..Options::default() });
        for (place, log) in logs.iter().enumerate() {
            analysis.add_log(log, &place.to_string()).expect("a log");
        }
        let flows = analysis.finish().flows;
        flows.into_iter().map(|flow| format!("{} {}", flow.side, flow.title())).collect::<Vec<_>>()
    };
    // In whatever order they come.
    for logs in [[&*receiver, &*sender], [&*sender, &*receiver]] {
        let all = [
            "receiver flow 1 (call)",
            "sender flow 1 (call)",
            "receiver flow 2 (bulk)",
            "sender flow 2 (bulk)",
        ];
        assert_eq!(names(&logs, None), all);
        assert_eq!(names(&logs, Some("name == bulk")), all[2..]);
    }
    assert_eq!(names(&[&receiver], None), ["receiver flow 1", "receiver flow 2"]);
}

/// No kernel stamps the packets of a stream.
#[test]
fn delays_of_a_stream_have_no_bound() {
    let mut log = TestLog::new(Side::Receiver, "a");
    for (index, proto) in [(0, Proto::Udp), (1, Proto::Tcp)] {
        let spec = spec(index + 1, "constant(1ms)", "constant(64)", 10).proto(proto);
        log.flow(index, &spec, ["a", "a"]);
        log.records((0..10).map(|seq| {
            let sent_ns = EPOCH + 1_000_000 * seq;
            let (arrived_ns, read_ns) = (sent_ns + 10_000, sent_ns + 10_000);
            let (flow, size, ttl, tos) = (index, 64, 64, 0);
            let packet = ReceivedPacket { flow, seq, size, sent_ns, arrived_ns, read_ns, ttl, tos };
            Record::received(packet)
        }));
    }
    let report = report(&[&log.finish()]);
    let of = |metrics: &Metrics| metrics.delay_basis.expect("delays");
    let [udp, tcp, total] =
        [&report.flows[0].metrics, &report.flows[1].metrics, &report.total.metrics].map(of);
    assert_eq!((udp, tcp), (DelayBasis::ONE_CLOCK, DelayBasis::ONE_CLOCK.by_reading()));
    assert_eq!((total.kind, total.uncertainty_ns), (BasisKind::Absolute, None));
    let text = itg_stats::summary::render(&report);
    assert!(text.contains("delays end when the receiving program reads"), "{text}");
}
