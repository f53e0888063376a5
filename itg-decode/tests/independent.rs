//! Every figure against an independent program: `tests/python/check_report.py` computes them from the
//! list of packets, on logs with loss, duplicates, reordering, sequence numbers beyond 32 bits, clocks
//! that disagree and a span of more than a day.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use assert_cmd::cargo::cargo_bin;
use itg_record::{ReceivedPacket, Record, SentPacket, Side};
use itg_testkit::logs::{EPOCH, TestLog, spec};
use tempfile::TempDir;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/python/check_report.py");

/// A flow to come.
#[derive(Clone, Copy)]
struct FlowFigures {
    packets: u64,
    first_seq: u64,
    gap_ns: u64,
    /// Packets of a hundred that are lost (in runs), come twice, or are reordered.
    lost: u64,
    twice: u64,
    late: u64,
    /// The receiver's clock less the sender's.
    offset_ns: i64,
}

fn write(dir: &Path, courses: &[FlowFigures]) {
    let mut sender = TestLog::new(Side::Sender, "a");
    let mut receiver = TestLog::new(Side::Receiver, "b");
    for (index, course) in (0u32..).zip(courses) {
        let spec = spec(index + 1, "constant(1ms)", "constant(300)", course.packets);
        sender.flow(index, &spec, ["a", "b"]);
        receiver.flow(index, &spec, ["a", "b"]);
        let mut state = 11u64 + u64::from(index);
        let mut noise = |span: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % span
        };
        let (mut arrivals, mut dead) = (Vec::new(), 0);
        for k in 0..course.packets {
            let (seq, planned) = (course.first_seq + k, k * course.gap_ns);
            let sent = EPOCH + planned + noise(40_000);
            let size = 100 + u32::try_from(noise(1_300)).unwrap();
            sender.records([Record::sent(SentPacket {
                flow: index,
                seq,
                size,
                planned_ns: planned,
                sent_ns: sent,
            })]);
            if dead == 0 && noise(100) < course.lost {
                dead = 1 + noise(4);
            }
            if dead > 0 {
                dead -= 1;
                continue;
            }
            let late = if noise(100) < course.late { course.gap_ns * (2 + noise(5)) } else { 0 };
            let copies = 1 + u64::from(noise(100) < course.twice);
            for copy in 0..copies {
                let there = sent + 200_000 + noise(900_000) + late + copy * course.gap_ns * 3;
                let there = there.checked_add_signed(course.offset_ns).unwrap();
                arrivals.push((there, seq, size, sent, there + 2_000 + noise(30_000)));
            }
        }
        arrivals.sort_unstable();
        arrivals.dedup_by_key(|arrival| arrival.0);
        receiver.records(arrivals.into_iter().map(|(there, seq, size, sent, read)| {
            Record::received(ReceivedPacket {
                flow: index,
                seq,
                size,
                sent_ns: sent,
                arrived_ns: there,
                read_ns: read,
                ttl: 64,
                tos: 0,
            })
        }));
    }
    fs::write(dir.join("send.itg"), sender.finish()).unwrap();
    fs::write(dir.join("recv.itg"), receiver.finish()).unwrap();
}

fn decode(dir: &Path, args: &[&str], out: &str) {
    let done = Command::new(cargo_bin("itg-decode"))
        .args(args)
        .args(["-q", "--output", out])
        .current_dir(dir)
        .status()
        .unwrap();
    assert!(done.success(), "{args:?}");
}

#[test]
fn figures_are_those_of_an_independent_program() {
    let python = Command::new("python3").arg("--version").output();
    if !python.is_ok_and(|done| done.status.success()) {
        assert!(
            std::env::var_os("CI").is_none(),
            "under CI this test must run, and it needs python3"
        );
        // Past the capture of the test harness, so that it shows though the test passes.
        let words = "\nLEFT OUT: the figures are not compared with the independent program: install python3\n";
        std::io::stderr().write_all(words.as_bytes()).unwrap();
        return;
    }
    let ms = 1_000_000;
    let calm = FlowFigures {
        packets: 900,
        first_seq: 0,
        gap_ns: ms,
        lost: 0,
        twice: 0,
        late: 0,
        offset_ns: 0,
    };
    let rough = FlowFigures { packets: 9_000, lost: 3, twice: 4, late: 6, ..calm };
    let day = FlowFigures { gap_ns: 30_000 * ms, offset_ns: -86_400_000_000_000, ..rough };
    let wrap = FlowFigures { first_seq: (1 << 32) - 700, packets: 1_500, ..rough };
    for (name, courses, logs) in [
        ("calm", &[calm][..], &["send.itg", "recv.itg"][..]),
        ("rough", &[rough, calm], &["send.itg", "recv.itg"]),
        ("the receiver alone", &[rough], &["recv.itg"]),
        ("more than a day", &[FlowFigures { packets: 3_000, ..day }], &["send.itg", "recv.itg"]),
        ("beyond 32 bits", &[wrap], &["send.itg", "recv.itg"]),
    ] {
        let dir = TempDir::new().unwrap();
        write(dir.path(), courses);
        decode(dir.path(), &[logs, &["--format", "json"]].concat(), "report.json");
        decode(dir.path(), &[logs, &["--packets", "--format", "csv"]].concat(), "packets.csv");
        let check = Command::new("python3")
            .args([SCRIPT, "report.json", "packets.csv"])
            .current_dir(dir.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&check.stdout);
        assert!(check.status.success(), "{name}: {said}{}", String::from_utf8_lossy(&check.stderr));
        assert!(
            File::open(dir.path().join("packets.csv")).unwrap().metadata().unwrap().len() > 999
        );
    }
}
