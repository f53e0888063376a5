//! Logs to files.

use itg_record::{ClockPair, FlowEnd, Item, LogReader, RECORD_LEN, SentPacket, Side};

use std::fs::File;

use itg_record::LogBuilder;
use itg_session::logs::keep::BlockFile;

use super::file::Writer;
use super::*;

fn info() -> LogInfo {
    log_info(Side::Sender, "test", "0", "00".to_owned(), Some(1), BTreeMap::new())
}

fn fill(producer: &mut Producer, flow: u32, count: u64) {
    for seq in 0..count {
        producer.push(
            &Record::sent(SentPacket { flow, seq, size: 100, planned_ns: seq, sent_ns: seq }),
            seq,
        );
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

/// The writer is not woken by the first packet of a flow; its description is in the log before its
/// records.
#[test]
fn a_note_that_goes_with_a_block_waits_for_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("log");
    let limits = LogLimits { block_records: 8, ..LogLimits::default() };
    let log = Log::create(&LogTarget::File(path.clone()), info(), limits).expect("writable");
    let ages = |count: u64| {
        Note::Clock(ClockPair {
            monotonic_ns: count,
            unix_ns: 0,
            max_error_ns: None,
            synchronised: None,
        })
    };
    let mut producer = log.producer();
    fill(&mut producer, 1, 3);
    producer.note_with_block(ages(5));
    fill(&mut producer, 2, 2);
    let written = || {
        log.settle().recv_timeout(Duration::from_secs(60)).expect("settled");
        let bytes = std::fs::read(&path).expect("written");
        let items = LogReader::new(&bytes).filter_map(|item| match item {
            Item::Records { records, .. } => Some(format!("{} records", records.count())),
            Item::Note { note: Note::Clock(pair), .. } if pair.unix_ns == 0 => {
                Some(format!("note {}", pair.monotonic_ns))
            }
            _ => None,
        });
        items.collect::<Vec<_>>()
    };
    assert_eq!(written(), Vec::<String>::new());
    producer.flush();
    assert_eq!(written(), ["note 5", "5 records"]);
    // They do not grow without end where no records come.
    (0..MOST_WITH_BLOCK as u64 + 1).for_each(|count| producer.note_with_block(ages(count)));
    assert_eq!(written().len(), 2 + MOST_WITH_BLOCK);
    drop(producer);
    assert_eq!(written().len(), 3 + MOST_WITH_BLOCK);
    drop(log.close());
}

/// Notes without records are in the log as soon as records would be, and no sooner.
#[test]
fn a_note_in_time_waits_for_the_age_of_a_block() {
    let (log, queue) = log_without_writer(LogLimits::default());
    let told = || queue.try_iter().filter(|job| matches!(job, Job::Note(_))).count();
    let note = || Note::Clock(crate::clock_pair::clock_pair());
    let mut producer = log.producer();
    let second = 1_000_000_000;
    producer.note_in_time(note(), 5 * second);
    producer.note_in_time(note(), 6 * second - 1);
    producer.tick(6 * second - 1);
    assert_eq!(told(), 0);
    producer.tick(6 * second);
    assert_eq!(told(), 2);
    producer.note_in_time(note(), 9 * second);
    assert_eq!(told(), 0, "the age of the notes before is not that of this one");
    producer.note_in_time(note(), 10 * second);
    assert_eq!(told(), 2);
    producer.note_in_time(note(), 11 * second);
    drop(producer);
    assert_eq!(told(), 1);
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

/// A log whose writer is in the hands of the test.
fn log_without_writer(limits: LogLimits) -> (Log, Receiver<Job>) {
    let (jobs, queue) = mpsc::sync_channel(16);
    let shared = Arc::new(Shared::default());
    let ours = Arc::clone(&shared);
    let thread = thread::spawn(move || ours.outcome(String::new(), 0));
    (Log { jobs, thread, shared, limits, place: String::new() }, queue)
}

#[test]
fn l_5_drop_leaves_out_blocks_and_counts_them_and_grow_takes_memory() {
    let block = 2 * RECORD_LEN;
    // Policy, memory, blocks that come, records left out: 10 blocks are pushed, none is written.
    for (on_full, pool_bytes, blocks, left_out) in [
        (OnFull::Drop, 0, 1, 18),
        (OnFull::Drop, 5 * block, 4, 12),
        (OnFull::Grow, 20 * block, 10, 0),
    ] {
        let limits = LogLimits { block_records: 2, on_full, pool_bytes, ..LogLimits::default() };
        let (log, queue) = log_without_writer(limits);
        let mut producer = log.producer();
        fill(&mut producer, 1, 20);
        // Room again: the gap is told before the next block.
        let waiting: Vec<Job> = queue.try_iter().collect();
        for job in &waiting {
            let Job::Records(_, give_back) = job else { panic!("only records so far") };
            give(BlockBuf::new(2), give_back);
        }
        fill(&mut producer, 1, 2);
        drop(producer);
        let told: Vec<u32> = queue
            .try_iter()
            .map(|job| match job {
                Job::LeftOut(records) => records,
                Job::Records(..) => 0,
                _ => panic!("another job"),
            })
            .collect();
        let outcome = log.shared.outcome(String::new(), 0);
        let want = if left_out > 0 { vec![left_out, 0] } else { vec![0] };
        assert_eq!((waiting.len(), told), (blocks, want), "{on_full:?} {pool_bytes}");
        assert_eq!(outcome.left_out_records, u64::from(left_out), "{on_full:?} {pool_bytes}");
        assert_eq!((outcome.lost_records, outcome.stalls), (u64::from(left_out), 0));
    }
}

#[test]
fn l_5_wait_waits_and_says_how_long() {
    let limits = LogLimits {
        on_full: OnFull::Wait,
        pool_bytes: 0,
        block_records: 2,
        ..LogLimits::default()
    };
    let (log, queue) = log_without_writer(limits);
    let mut producer = log.producer();
    let writer = thread::spawn(move || {
        let mut blocks = 0;
        while blocks < 10 {
            if let Ok(Job::Records(block, give_back)) = queue.recv() {
                // Longer for the first one than the producer needs for the others that it has.
                let pause = if blocks == 0 { 300_000_000 } else { 1_000_000 };
                clock::sleep_until(clock::monotonic_ns() + pause);
                blocks += 1;
                give(block, &give_back);
            }
        }
    });
    fill(&mut producer, 1, 20);
    drop(producer);
    writer.join().expect("no panic");
    let outcome = log.shared.outcome(String::new(), 0);
    assert_eq!(outcome.lost_records, 0);
    assert!((1..10).contains(&outcome.stalls) && outcome.stalled_ns > 0, "{outcome}");
    assert!(outcome.to_string().contains("packets waited for it"), "{outcome}");
}

/// Notes of thousands of flows fill the queue of the writer.
#[test]
fn l_5_a_block_waits_behind_notes_or_is_left_out_as_asked() {
    for on_full in [OnFull::Grow, OnFull::Wait, OnFull::Drop] {
        let limits = LogLimits { on_full, block_records: 2, ..LogLimits::default() };
        let (log, queue) = log_without_writer(limits);
        let (mut notes, mut packets) = (log.producer(), log.producer());
        for index in 0..16 {
            notes.note(Note::FlowEnd(FlowEnd::new(index, "end".to_owned())));
        }
        let writer = thread::spawn(move || {
            clock::sleep_until(clock::monotonic_ns() + 100_000_000);
            queue.iter().filter(|job| matches!(job, Job::Records(..))).count()
        });
        // Again and again, for blocks that were refused are used again.
        for _ in 0..3 {
            fill(&mut packets, 1, 2);
        }
        if on_full == OnFull::Drop {
            clock::sleep_until(clock::monotonic_ns() + 300_000_000);
        }
        fill(&mut packets, 1, 2);
        drop((notes, packets));
        let Log { jobs, shared, .. } = log;
        drop(jobs);
        let blocks = writer.join().expect("no panic");
        let outcome = shared.outcome(String::new(), 0);
        let want = if on_full == OnFull::Drop { (1, 6, 6, None) } else { (4, 0, 0, None) };
        let got = (blocks, outcome.lost_records, outcome.left_out_records, outcome.error.as_ref());
        assert_eq!(got, want, "{on_full:?}");
        assert_eq!(outcome.stalls > 0, on_full != OnFull::Drop, "{on_full:?} {outcome}");
    }
}

#[test]
fn l_5_what_was_left_out_of_a_file_is_a_gap_with_a_reason() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("log");
    let (jobs, queue) = mpsc::sync_channel(16);
    let shared = Arc::new(Shared::default());
    let writer =
        Writer::create((&path, None), info(), &shared, (None, Fsync::Never)).expect("writable");
    let limits = LogLimits {
        on_full: OnFull::Drop,
        pool_bytes: 0,
        block_records: 2,
        ..LogLimits::default()
    };
    let (place, ours) = (String::new(), Arc::clone(&shared));
    let log = Log {
        jobs,
        thread: thread::spawn(move || ours.outcome(String::new(), 0)),
        shared,
        limits,
        place,
    };
    let mut producer = log.producer();
    fill(&mut producer, 1, 6);
    drop(producer);
    log.jobs.send(Job::Close).expect("room");
    // Only now the writer begins: one block waits for it, two were left out.
    let outcome = writer.run(&queue);
    assert_eq!((outcome.records, outcome.lost_records, outcome.left_out_records), (2, 4, 4));
    let why = outcome.error.expect("an incomplete log");
    assert!(why.contains("4 records were left out for want of room"), "{why}");
    let bytes = std::fs::read(&path).expect("written");
    let damages: Vec<String> = LogReader::new(&bytes)
        .filter_map(|item| match item {
            Item::Damage(damage) => Some(damage.reason),
            _ => None,
        })
        .collect();
    // Before it: the log's description, the clock, the block, the clock again.
    assert_eq!(damages, ["block 4 of log 0 missing"]);
    drop(log.close());
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
        file: BlockFile::new(
            DiskFile::new(File::open(&path).expect("readable"), &path),
            0,
            Fsync::Never,
        ),
        path,
        builder: LogBuilder::new(0),
        records: 0,
        shared: Arc::clone(&shared),
        failed: false,
        full: false,
        room: None,
        throttle: None,
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
