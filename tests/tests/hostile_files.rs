//! Files that hold the decoder up or end it: holes of gigabytes, pipes into which nobody writes, logs that
//! are shortened while they are read.
#![allow(missing_docs, reason = "tests")]

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use itg_core::flow::FlowSpec;
use itg_record::{
    BlockBuf, FlowInfo, LOG_SCHEMA, LogBuilder, LogInfo, Note, ReceivedPacket, Record, Side,
};
use itg_tests::{ClassicReceiver, Running, in_parallel, program, temp_dir};

/// Time in which a program says what it has to say, on a busy machine.
const SOON: Duration = Duration::from_secs(60);
/// Length of a file that is mostly a hole: 256 GiB, which no program reads in that time.
const LONG: u64 = 256 << 30;
const EPOCH: u64 = 1_800_000_000_000_000_000;

/// A receiver's log with so many packets of a flow.
fn log(count: u64) -> Vec<u8> {
    let mut builder = LogBuilder::new(1);
    let mut bytes = builder.note(&Note::Log(LogInfo {
        schema: LOG_SCHEMA,
        side: Side::Receiver,
        program: "itg-recv".to_owned(),
        version: "0.1.0".to_owned(),
        host: "beta".to_owned(),
        os: "Linux".to_owned(),
        boot_id: "b".to_owned(),
        pid: 7,
        started_unix_ns: EPOCH,
        run: String::new(),
        seed: None,
        settings: [].into(),
        block_records: 1000,
        part: None,
    }));
    bytes.extend(builder.note(&Note::Flow(FlowInfo {
        changes: Vec::new(),
        index: 0,
        flow: 1,
        name: None,
        run: "c0ffee".to_owned(),
        seed: 1,
        spec: FlowSpec::new(1),
        src: "10.0.0.1:40001".to_owned(),
        dst: "10.0.0.2:8999".to_owned(),
        epoch_unix_ns: EPOCH,
        sender_boot_id: "a".to_owned(),
        receiver_boot_id: "b".to_owned(),
        notices: vec![],
        ditg: None,
    })));
    let mut block = BlockBuf::new(1000);
    for seq in 0..count {
        let at = EPOCH + seq * 1_000_000;
        block.push(&Record::received(ReceivedPacket {
            flow: 0,
            seq,
            size: 512,
            sent_ns: at,
            arrived_ns: at + 5_000,
            read_ns: at + 6_000,
            ttl: 64,
            tos: 0,
        }));
        if block.is_full() || seq + 1 == count {
            bytes.extend(builder.seal(&mut block));
            block.clear();
        }
    }
    bytes.extend(builder.end(0));
    bytes
}

/// Makes a file longer by a hole, with these bytes behind it.
fn stretch(path: &Path, tail: &[u8]) {
    let mut file = File::options().write(true).open(path).expect("it is there");
    file.set_len(LONG).expect("a file system with holes");
    file.seek(SeekFrom::End(0)).expect("a file");
    file.write_all(tail).expect("writable");
}

fn run(name: &str, args: &[&Path], dir: &Path) -> Running {
    Running::start(Command::new(program(name)).args(args).current_dir(dir))
}

#[test]
fn holes_of_gigabytes_are_told_at_once() {
    let dir = temp_dir();
    let at = |name: &str| dir.path().join(name);
    let good = log(2_500);
    for (name, tail) in [("end.itg", &b""[..]), ("middle.itg", b"x"), ("log.itg", &good)] {
        fs::write(at(name), &good).expect("writable");
        stretch(&at(name), tail);
        let done = run("itg-decode", &[&at(name)], dir.path()).finish(SOON).exits(1);
        assert!(done.err.contains(" left out: "), "{name}: {done}");
        assert!(done.out.contains(" 2500 "), "{name}: {done}");
        // What stands behind the hole is read.
        assert_eq!(done.err.contains("once more"), name == "log.itg", "{name}: {done}");
        drop(run("itg-decode", &[&at(name), &at(name)], dir.path()).finish(SOON).exits(1));
    }
    let both = [Path::new("compare"), &at("end.itg"), &at("middle.itg")];
    drop(run("itg-decode", &both, dir.path()).finish(SOON).exits(1));
    let done = run("itg-log", &[Path::new("seal"), &at("end.itg")], dir.path());
    drop(done.finish(SOON).exits(2).says("were never written"));
    assert_eq!(fs::metadata(at("end.itg")).expect("still there").len(), LONG);

    let receiver = ClassicReceiver::start(&["--log-dir", "."]);
    drop(receiver.send(&["-z", "100", "-C", "1000", "-x", "log"]).exits(0));
    fs::copy(receiver.file("log"), at("d-itg")).expect("a log");
    drop(receiver.stop());
    stretch(&at("d-itg"), b"");
    for name in ["ITGDec", "itg-decode"] {
        let done = run(name, &[&at("d-itg")], dir.path()).finish(SOON).exits(1);
        assert!(done.out.contains("packets") && done.err.contains("never written"), "{done}");
    }
}

#[test]
fn pipes_and_devices_are_not_waited_for_without_a_word() {
    let dir = temp_dir();
    let at = |name: &str| dir.path().join(name);
    let made = Command::new("mkfifo").args([at("none.itg"), at("idle"), at("log")]).status();
    assert!(made.is_ok_and(|made| made.success()), "pipes");
    let none = at("none.itg");
    let rows = [
        ("a pipe", ("itg-decode", vec![none.as_path()], 1, "nobody writes")),
        ("a pipe to ITGDec", ("ITGDec", vec![&none], 1, "nobody writes")),
        ("a pipe to seal", ("itg-log", vec![Path::new("seal"), &none], 2, "no log of ITG")),
        (
            "a pipe to compare",
            ("itg-decode", vec![Path::new("compare"), dir.path(), &none], 1, "nobody writes"),
        ),
        ("a device", ("itg-decode", vec![Path::new("/dev/zero")], 1, "neither a file nor a pipe")),
        ("a folder", ("itg-decode", vec![dir.path()], 1, "directory")),
    ];
    in_parallel(&rows, |(name, args, code, words)| {
        drop(run(name, args, dir.path()).finish(SOON).exits(*code).says(words));
    });
    // Somebody has it open, and writes nothing.
    let idle = File::options().read(true).write(true).open(at("idle")).expect("a pipe");
    let waits = run("itg-decode", &[&at("idle")], dir.path());
    assert!(waits.line_with("waiting for whoever writes", SOON).contains("idle"));
    drop((waits, idle));
    // A log that comes through a pipe, a little late.
    let reads = run("itg-decode", &[&at("log")], dir.path());
    std::thread::sleep(Duration::from_millis(100));
    let mut pipe = File::options().write(true).open(at("log")).expect("a reader");
    pipe.write_all(&log(2_500)).expect("a reader");
    drop(pipe);
    let done = reads.finish(SOON).exits(0);
    assert!(done.out.contains(" 2500 "), "{done}");
}

#[test]
fn a_log_that_is_shortened_while_it_is_read_is_told() {
    let dir = temp_dir();
    let path = dir.path().join("log.itg");
    let bytes = log(1_000_000);
    for left in [0, 4096, 5_000, 1_000_000] {
        fs::write(&path, &bytes).expect("writable");
        let mut child = Command::new(program("itg-decode"))
            .args(["--packets", "--format", "csv", "--threads", "2"])
            .arg(&path)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut out = child.stdout.take().expect("piped");
        // It has begun to list, and cannot go on before its lines are read.
        out.read_exact(&mut [0; 1000]).expect("lines");
        let file = File::options().write(true).open(&path).expect("it is there");
        file.set_len(left).expect("writable");
        let began = Instant::now();
        std::io::copy(&mut out, &mut std::io::sink()).expect("lines");
        let done = child.wait_with_output().expect("a child");
        let err = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.signal(), None, "{left}: {err}");
        assert_eq!(done.status.code(), Some(1), "{left}: {err}");
        assert!(err.contains("it was shortened"), "{left}: {err}");
        assert!(began.elapsed() < 4 * SOON, "{left}: {:?}", began.elapsed());
    }
}
