//! Logs of D-ITG as logs of ITG: the figures of the report against those of ITGDec, and the way back.

use std::fs;
use std::path::PathBuf;

use itg_classic::log::{LogRecord, Packet, RECORD_LEN, is_log, records, to_itg};
use itg_stats::{Analysis, Options, PacketLine};
use proptest::prelude::*;

fn golden(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/dec").join(name);
    fs::read(&path).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn report(logs: &[&str]) -> (itg_stats::report::Report, Vec<PacketLine<'static>>) {
    // Packets borrow from the analysis, and that from the logs: they stay until the test is over.
    let logs: Vec<_> = logs.iter().map(|name| (name.to_string(), to_itg(&golden(name)))).collect();
    let logs = Vec::leak(logs);
    let analysis = Box::leak(Box::new(Analysis::new(Options::default())));
    for (name, bytes) in logs {
        analysis.add_log(bytes, name).expect("a log of ITG");
    }
    assert!(analysis.damage().is_empty() && analysis.not_closed().is_empty());
    (analysis.finish(), analysis.packets())
}

/// A figure of ITGDec's summary, in the total block.
fn figure(summary: &str, label: &str) -> f64 {
    let total = summary.split("TOTAL RESULTS").nth(1).expect("a total");
    let line = total.lines().find(|line| line.starts_with(label)).expect("a line");
    let value = line.split('=').nth(1).expect("a value").split_whitespace().next();
    value.expect("a value").parse().expect("a number")
}

#[test]
fn figures_are_those_of_itgdec() {
    for name in [
        "udp-owdm-recv",
        "udp-owdm-send",
        "udp-rttm-send",
        "tcp-owdm-recv",
        "multi3-recv",
        "udp6-owdm-recv",
        "udp-bursty-recv",
        "icmp-owdm-recv",
        "telnet-recv",
        "edge-late-flow",
        "itglog-tcp-recv",
    ] {
        let (report, _) = report(&[&format!("{name}.log")]);
        let summary = String::from_utf8(golden(&format!("{name}.summary.txt"))).expect("text");
        let total = &report.total.metrics;
        for (got, label) in [(total.packets, "Total packets"), (total.bytes, "Bytes received")] {
            assert!((got as f64 - figure(&summary, label)).abs() < 0.5, "{name}: {label}");
        }
        let seconds = total.duration_ns as f64 / 1e9;
        assert!((seconds - figure(&summary, "Total time")).abs() < 2e-6, "{name}: {seconds} s");
        // A sender's log has no delays.
        if !name.ends_with("owdm-send") {
            let delay = total.delay_ns.expect("delays");
            for (got, label) in [
                (delay.min as f64, "Minimum delay"),
                (delay.max as f64, "Maximum delay"),
                (delay.mean, "Average delay"),
                (delay.stddev, "Delay standard deviation"),
            ] {
                assert!((got / 1e9 - figure(&summary, label)).abs() < 2e-6, "{name}: {label}");
            }
        }
        assert_eq!(total.fidelity.verdict.name(), "unknown", "{name}: there is no plan");
    }
}

#[test]
fn both_sides_join() {
    let (report, packets) = report(&["udp-lossy-send.log", "udp-lossy-recv.log"]);
    assert_eq!(report.flows.len(), 2);
    let receiver = report.flows.iter().find(|flow| flow.side == "receiver").expect("both sides");
    assert_eq!(receiver.metrics.packets, 231);
    // What D-ITG cannot see: duplicates, and the loss behind them.
    assert!(receiver.metrics.duplicated.is_some_and(|count| count > 0));
    let lost = packets.iter().filter(|packet| packet.arrived_ns.is_none()).count() as u64;
    assert_eq!(receiver.metrics.lost, Some(lost));
    assert!(packets.iter().all(|packet| packet.planned_ns.is_none()));
}

#[test]
fn midnight_comes_out_right() {
    let (report, _) = report(&["edge-midnight.log"]);
    let total = &report.total.metrics;
    assert!(total.duration_ns < 2_000_000_000, "{} ns", total.duration_ns);
    let delay = total.delay_ns.expect("delays");
    assert!(delay.min >= 0 && delay.max < 1_000_000_000, "{delay:?}");
}

#[test]
fn flows_that_share_a_number_are_told_apart() {
    let (report, _) = report(&["edge-same-id-two-ports.log"]);
    let packets: Vec<_> =
        report.flows.iter().map(|flow| (flow.flow, flow.metrics.packets)).collect();
    assert_eq!(packets, [(1, 4), (1, 4)]);
}

#[test]
fn packets_without_numbers_are_not_duplicates() {
    let (report, _) = report(&["udp-nometa-recv.log"]);
    let flow = &report.flows[0];
    assert_eq!(flow.metrics.packets, 60);
    assert!(flow.metrics.duplicated.is_none_or(|count| count == 0));
    assert!(flow.notices.iter().any(|notice| notice.contains("no numbers")), "{:?}", flow.notices);
}

#[test]
fn bad_records_are_left_out_with_a_notice() {
    let (report, _) = report(&["edge-badrecords.log"]);
    assert_eq!(report.total.metrics.packets, 3);
    assert!(report.flows[0].notices.iter().any(|notice| notice.contains("3 records")));
}

#[test]
fn logs_come_back_as_packets() {
    for name in
        ["udp-owdm-recv.log", "udp-owdm-send.log", "udp6-owdm-recv.log", "tcp-owdm-recv.log"]
    {
        let (report, packets) = report(&[name]);
        let flow = &report.flows[0];
        let back: Vec<LogRecord> = packets
            .iter()
            .filter_map(|line| {
                Packet {
                    flow: line.flow,
                    seq: line.seq,
                    size: line.size_bytes,
                    src: &flow.src,
                    dst: &flow.dst,
                    sent_ns: line.sent_ns,
                    arrived_ns: line.arrived_ns,
                }
                .record()
            })
            .collect();
        let log = golden(name);
        let want: Vec<LogRecord> = records(&log).collect();
        assert_eq!(back.len(), want.len(), "{name}");
        for (back, want) in back.iter().zip(&want) {
            let close = |a: f64, b: f64| (a - b).abs() < 1e-6;
            assert!(close(back.rx.seconds(), want.rx.seconds()), "{name}: {back:?} {want:?}");
            assert!(close(back.tx.seconds(), want.tx.seconds()), "{name}: {back:?} {want:?}");
            assert_eq!(LogRecord { tx: want.tx, rx: want.rx, ..*back }, *want, "{name}");
        }
    }
}

#[test]
fn logs_are_recognised() {
    for entry in fs::read_dir(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/dec"))
        .expect("readable")
    {
        let name = entry.expect("readable").file_name().into_string().expect("ASCII");
        let bytes = golden(&name);
        let is_one = name.ends_with(".log") && !bytes.is_empty() || name.ends_with(".split.dat");
        assert_eq!(is_log(&bytes), is_one, "{name}");
    }
    assert!(!is_log(&to_itg(&golden("multi3-recv.log"))), "a log of ITG is none");
    assert!(!is_log(&[0; 10 * RECORD_LEN]) && !is_log(b""));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_convert(bytes in proptest::collection::vec(any::<u8>(), 0..1000), good: bool) {
        let mut bytes = bytes;
        if good {
            for record in bytes.as_chunks_mut::<RECORD_LEN>().0 {
                for at in (16..32).filter(|at| at % 4 != 0) {
                    record[at] = 0;
                }
                for at in [16, 20, 24, 28] {
                    record[at] %= 25;
                }
                record[128..136].copy_from_slice(&1.5_f64.to_le_bytes());
                record[136..144].copy_from_slice(&2.5_f64.to_le_bytes());
            }
        }
        prop_assert!(!is_log(&bytes) || bytes.len() >= RECORD_LEN);
        let log = to_itg(&bytes);
        let mut analysis = Analysis::new(Options::default());
        prop_assert!(analysis.add_log(&log, "x").is_ok());
        prop_assert!(analysis.damage().is_empty());
        let report = analysis.finish();
        let kept = records(&bytes).filter(LogRecord::is_good).count() as u64;
        prop_assert_eq!(report.total.metrics.packets, kept);
    }
}
