//! Logs to files.

use itg_record::{Item, LogReader, Side};

use std::fs::File;

use itg_record::LogBuilder;

use super::file::Writer;
use super::*;

fn info() -> LogInfo {
    crate::host::log_info(
        Side::Sender,
        "test",
        "0",
        "00".to_owned(),
        Some(1),
        std::collections::BTreeMap::new(),
    )
}

fn fill(producer: &mut Producer, flow: u32, count: u64) {
    for seq in 0..count {
        producer.push(&Record::sent(flow, seq, 100, seq, seq), seq);
    }
}

fn records(bytes: &[u8]) -> Vec<Record> {
    let mut records = Vec::new();
    for item in LogReader::new(bytes) {
        match item {
            Item::Records { records: block, .. } => records.extend(block),
            Item::Damage(damage) => panic!("{damage:?}"),
            Item::Note { .. } => {}
        }
    }
    records
}

#[test]
fn what_several_producers_push_is_in_the_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("log");
    let log = Log::create(&LogTarget::File(path.clone()), info(), LogLimits::default())
        .expect("writable");
    let threads: Vec<_> = (1..4)
        .map(|flow| {
            let mut producer = log.producer();
            thread::spawn(move || fill(&mut producer, flow, 10_000))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    let outcome = log.close();
    assert_eq!((outcome.records, outcome.lost_records, outcome.error), (30_000, 0, None));
    let records = records(&std::fs::read(&path).expect("written"));
    for flow in 1..4 {
        let seqs: Vec<_> = records.iter().filter(|r| r.flow == flow).map(|r| r.seq).collect();
        assert_eq!(seqs, (0..10_000).collect::<Vec<_>>(), "flow {flow}");
    }
}

#[test]
fn a_small_pool_makes_the_producer_wait_and_loses_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("log");
    let limits = LogLimits { block_records: 2, pool_bytes: 1, ..LogLimits::default() };
    let log = Log::create(&LogTarget::File(path.clone()), info(), limits).expect("writable");
    let mut producer = log.producer();
    fill(&mut producer, 1, 5_000);
    drop(producer);
    assert_eq!(log.close().records, 5_000);
    assert_eq!(records(&std::fs::read(&path).expect("written")).len(), 5_000);
}

#[test]
fn a_full_disk_and_a_bad_path_are_named() {
    let error = Log::create(&LogTarget::File("/dev/full".into()), info(), LogLimits::default());
    let error = error.expect_err("always full").to_string();
    assert!(error.contains("log /dev/full: No space left"), "{error}");
    assert!(error.contains("free some space or log to another disk"), "{error}");
    let error =
        Log::create(&LogTarget::File("/nonexistent/log".into()), info(), LogLimits::default());
    let error = error.expect_err("no such directory").to_string();
    assert!(error.starts_with("log /nonexistent/log: No such file"), "{error}");
}

#[test]
fn records_after_a_failure_are_counted_as_lost() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("log");
    let (jobs, queue) = mpsc::sync_channel(16);
    // A file that was opened for reading only refuses every write.
    std::fs::write(&path, []).expect("writable");
    let shared = Arc::new(Shared::default());
    let writer = Writer {
        file: File::open(&path).expect("readable"),
        path,
        good_bytes: 0,
        builder: LogBuilder::new(0),
        records: 0,
        shared: Arc::clone(&shared),
        failed: false,
    };
    let thread = thread::spawn(move || writer.run(&queue));
    let log = Log { jobs, thread, shared, limits: LogLimits::default(), place: String::new() };
    let mut producer = log.producer();
    fill(&mut producer, 1, 2_500);
    drop(producer);
    let outcome = log.close();
    assert_eq!((outcome.records, outcome.lost_records), (0, 2_500));
    assert!(outcome.error.is_some_and(|why| why.contains("later records are counted as lost")));
}
