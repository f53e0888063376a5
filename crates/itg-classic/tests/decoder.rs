//! The decoder against outputs of the real ITGDec, byte for byte. Outputs of `X.log` are named
//! `X.KIND`; what made them is in `golden/README.md`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::rc::Rc;

use itg_classic::dec::{DecError, Options, Outputs, decode};
use itg_classic::log::{LogRecord, RECORD_LEN, records};
use proptest::prelude::*;

type Shared = Rc<RefCell<Vec<u8>>>;

/// A file in memory.
struct Sink(Shared);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Everything that a decoder writes.
#[derive(Default)]
struct Memory {
    stdout: Vec<u8>,
    files: BTreeMap<String, Shared>,
    notices: Vec<String>,
}

impl Outputs for Memory {
    fn stdout(&mut self) -> &mut dyn Write {
        &mut self.stdout
    }

    fn create(&mut self, name: &str) -> io::Result<Box<dyn Write>> {
        let file = Shared::default();
        self.files.insert(name.to_owned(), Rc::clone(&file));
        Ok(Box::new(Sink(file)))
    }

    fn notice(&mut self, text: &str) {
        self.notices.push(text.to_owned());
    }
}

impl Memory {
    fn file(&self, name: &str) -> Vec<u8> {
        self.files.get(name).unwrap_or_else(|| panic!("no file {name}")).borrow().clone()
    }
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/dec")
}

fn golden(name: &str) -> Vec<u8> {
    fs::read(folder().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn run(log: &[u8], args: &str) -> Result<Memory, DecError> {
    let args: Vec<String> = format!("x {args}").split_whitespace().map(str::to_owned).collect();
    let options = Options::parse(&args).expect("good arguments");
    let sender = options.combine.as_ref().map(|(name, _)| golden(name));
    let mut memory = Memory::default();
    decode(&options, log, sender.as_deref(), &mut memory)?;
    Ok(memory)
}

fn same(got: &[u8], want: &[u8], what: &str) {
    if got == want {
        return;
    }
    let lines = |bytes: &[u8]| {
        String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let (got, want) = (lines(got), lines(want));
    for (number, (got, want)) in got.iter().zip(&want).enumerate() {
        assert_eq!(got, want, "{what}, line {}", number + 1);
    }
    panic!("{what}: {} lines, not {}", got.len(), want.len());
}

/// Without the two lines of the version.
fn unversioned(text: &[u8]) -> &[u8] {
    let mut ends = text.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(at, _)| at + 1);
    &text[ends.nth(1).expect("two lines")..]
}

/// Every golden output of every golden log.
#[test]
fn logs_decode_as_the_real_program_decodes_them() {
    let mut compared = 0;
    for entry in fs::read_dir(folder()).expect("readable") {
        let name = entry.expect("readable").file_name().into_string().expect("ASCII");
        let Some((stem, kind)) = name.split_once('.') else { continue };
        if !folder().join(format!("{stem}.log")).exists() {
            continue;
        }
        let log = golden(&format!("{stem}.log"));
        let want = golden(&name);
        let window = kind.trim_start_matches(char::is_alphabetic).trim_end_matches(".dat");
        let option = match kind.trim_end_matches(".dat").trim_end_matches(char::is_numeric) {
            "summary.txt" => {
                let got = run(&log, "").expect("decodes");
                same(&got.stdout, unversioned(&want), &name);
                compared += 1;
                continue;
            }
            "txt" => "l",
            "octave.txt" => "o",
            "delay" => "d",
            "jitter" => "j",
            "bitrate" => "b",
            "packetloss" => "p",
            "combined" => "c",
            _ => continue,
        };
        let window = if "lo".contains(option) { "" } else { window };
        let got = run(&log, &format!("-{option} {window} out")).expect("decodes");
        assert!(got.stdout.is_empty() || got.stdout == b"Empty log file\n", "{name}");
        same(&got.file("out"), &want, &name);
        compared += 1;
    }
    assert!(compared >= 150, "only {compared} files compared");
}

#[test]
fn other_options_do_what_the_real_program_does() {
    let lossy = golden("udp-lossy-recv.log");
    let multi = golden("multi3-recv.log");
    for (log, args, want) in [
        (&multi, "-f 1", "multi3-recv.f1.summary.txt"),
        (&multi, "-f 2", "multi3-recv.f2.summary.txt"),
        (&multi, "-f t", "multi3-recv.ft.summary.txt"),
        (&lossy, "-P", "udp-lossy-recv.P.txt"),
        (&lossy, "-I", "udp-lossy-recv.I.txt"),
    ] {
        let got = run(log, args).expect("decodes");
        same(&got.stdout, unversioned(&golden(want)), args);
    }
    let each = run(&lossy, "-x lossy").expect("decodes");
    for what in ["delay", "jitter"] {
        let want = golden(&format!("udp-lossy-recv.each{what}.dat"));
        same(&each.file(&format!("each{what}_lossy.dat")), &want, what);
    }
    for stem in ["udp-lossy-recv", "udp6-owdm-recv"] {
        let got = run(&golden(&format!("{stem}.txt")), "-t").expect("decodes");
        same(&got.stdout, unversioned(&golden(&format!("{stem}.from-text.summary.txt"))), stem);
    }
}

#[test]
fn logs_are_split_and_combined() {
    let split = run(&golden("multi3-recv.log"), "-s split").expect("decodes");
    assert_eq!(split.files.len(), 3);
    for name in split.files.keys() {
        assert_eq!(split.file(name), golden(&format!("multi3-recv.{name}")), "{name}");
    }
    let args = "-r udp-seqonly-send.log out";
    let combined = run(&golden("udp-seqonly-recv.log"), args).expect("decodes");
    let want = golden("udp-seqonly.reconstructed.log");
    assert_eq!(combined.file("out"), want);
    let args = format!("{args} -v");
    let shown = run(&golden("udp-seqonly-recv.log"), &args).expect("decodes");
    same(&shown.stdout, unversioned(&golden("udp-seqonly.reconstructed.summary.txt")), &args);
    // Packets without numbers are in no sender's log.
    let failed = run(&golden("udp-nometa-recv.log"), "-r udp-nometa-send.log");
    assert!(matches!(failed, Err(DecError::NoSenderRecord { flow: 1, seq: 0 })));
}

/// Decoding and encoding again gives the same bytes.
#[test]
fn logs_come_back() {
    let mut compared = 0;
    for entry in fs::read_dir(folder()).expect("readable") {
        let name = entry.expect("readable").file_name().into_string().expect("ASCII");
        if !name.ends_with(".log") {
            continue;
        }
        let log = golden(&name);
        let back: Vec<u8> = records(&log).flat_map(|record| record.emit()).collect();
        assert_eq!(back.len(), log.len() / RECORD_LEN * RECORD_LEN);
        for (got, want) in back.chunks(RECORD_LEN).zip(log.chunks(RECORD_LEN)) {
            // All but what follows the NULs of the addresses.
            let (got, want): (&[u8; RECORD_LEN], &[u8; RECORD_LEN]) =
                (got.try_into().expect("as long"), want.try_into().expect("as long"));
            assert_eq!(LogRecord::parse(got), LogRecord::parse(want));
            assert_eq!((&got[..36], &got[128..]), (&want[..36], &want[128..]), "{name}");
        }
        compared += 1;
    }
    assert!(compared >= 40, "only {compared} logs");
}

#[test]
fn midnight_and_shared_columns_are_pointed_out() {
    let midnight = run(&golden("edge-midnight.log"), "").expect("decodes");
    assert!(midnight.notices.iter().any(|text| text.contains("midnight")));
    let rows = run(&golden("edge-midnight.log"), "-b 500 out").expect("decodes").file("out");
    assert_eq!(rows.iter().filter(|&&b| b == b'\n').count(), 172_801);
    let shared = run(&golden("edge-same-id-two-ports.log"), "-b 500").expect("decodes");
    assert!(shared.notices.iter().any(|text| text.contains("ports alone")));
}

#[test]
fn d1_and_d5_a_thousand_flows_and_a_long_suffix() {
    let record = LogRecord::parse(golden("edge-single.log").first_chunk().expect("a record"));
    let log: Vec<u8> = (1..=1100).flat_map(|flow| LogRecord { flow, ..record }.emit()).collect();
    let windows = run(&log, "-d 500 out").expect("decodes").file("out");
    let columns = windows.split(|&b| b == b'\n').next().map(|line| line.split(|&b| b == b' '));
    // Time, the flows, their sum.
    assert_eq!(columns.map(Iterator::count), Some(1102));
    let suffix = "a-suffix-of-more-than-nine-characters";
    let split = run(&log, &format!("-s {suffix}")).expect("decodes");
    assert_eq!(split.files.len(), 1100);
    assert!(split.files.keys().all(|name| name.ends_with(&format!(".{suffix}.dat"))));
}

#[test]
fn a_table_without_end_is_refused() {
    let refused = run(&golden("edge-midnight.log"), "-d 0.000001");
    assert!(matches!(refused, Err(DecError::TooManyWindows { .. })));
}

#[test]
fn names_from_a_log_stay_in_the_folder() {
    let mut record = records(&golden("edge-single.log")).next().expect("a record");
    record.src = itg_classic::log::Address::new(b"../../etc");
    let split = run(&record.emit(), "-s").expect("decodes");
    let names: Vec<_> = split.files.keys().map(String::as_str).collect();
    assert_eq!(names, ["1-.._.._etc-192.0.2.2.log.dat"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any bytes decode, with any product.
    #[test]
    fn any_bytes_decode(
        bytes in proptest::collection::vec(any::<u8>(), 0..1500),
        small in any::<bool>(),
    ) {
        let mut bytes = bytes;
        if small {
            // Times that count: hours, minutes and seconds in range.
            for record in bytes.as_chunks_mut::<RECORD_LEN>().0 {
                for at in [17, 18, 19, 21, 22, 23, 25, 26, 27, 29, 30, 31] {
                    record[at] = 0;
                }
                for at in [16, 20, 24, 28] {
                    record[at] %= 25;
                }
                record[128..136].copy_from_slice(&1.5_f64.to_le_bytes());
                record[136..144].copy_from_slice(&2.5_f64.to_le_bytes());
            }
        }
        for args in ["", "-l a -o b -P -I -x -v", "-s", "-d 60000 -j 50000 -b 70000 -p 90000", "-c 60000",
            "-f 1000 -v", "-f t -c 60000", "-t"] {
            prop_assert!(run(&bytes, args).is_ok(), "{}", args);
        }
    }
}
