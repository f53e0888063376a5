//! Logs to files.

use std::fs::File;
use std::path::Path;

use itg_record::{ClockPair, FlowEnd, FlowInfo, Item, LogReader, RECORD_LEN, SentPacket, Side};

use super::file::Writer;
use super::queue::Sink as _;
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
    let writer = Writer::create((&path, Start::Continued), info(), &shared, &LogLimits::default())
        .expect("writable");
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

/// A log whose disk takes nothing: a file that was opened for reading only refuses every write.
fn refusing(path: &Path) -> BlockFile<DiskFile> {
    BlockFile::new(DiskFile::new(File::open(path).expect("there"), path), 0, Fsync::Never)
}

fn writer_at(path: &Path, shared: &Arc<Shared>) -> Writer {
    let limits = LogLimits::default();
    Writer::create((path, Start::Continued), info(), shared, &limits).expect("writable")
}

#[test]
fn records_after_a_failure_are_counted_as_lost() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("log");
    let (jobs, queue) = mpsc::sync_channel(16);
    let shared = Arc::new(Shared::default());
    let mut writer = writer_at(&path, &shared);
    writer.part.file = refusing(&path);
    let thread = thread::spawn(move || writer.run(&queue));
    let log = Log { jobs, thread, shared, limits: LogLimits::default(), place: String::new() };
    let mut producer = log.producer();
    fill(&mut producer, 1, 2_500);
    drop(producer);
    let outcome = log.close();
    assert_eq!((outcome.records, outcome.lost_records), (0, 2_500));
    assert!(
        outcome.error.is_some_and(|why| why.contains("left out, and counted, until it takes more"))
    );
}

fn flow(index: u32) -> Note {
    Note::Flow(FlowInfo {
        index,
        flow: index,
        name: None,
        run: String::new(),
        seed: 1,
        spec: itg_core::flow::FlowSpec::new(index),
        src: String::new(),
        dst: String::new(),
        epoch_unix_ns: 0,
        sender_boot_id: String::new(),
        receiver_boot_id: String::new(),
        notices: Vec::new(),
        ditg: None,
        changes: Vec::new(),
    })
}

fn block(flow: u32, count: u64) -> BlockBuf {
    let mut block = BlockBuf::new(18);
    for seq in 0..count {
        block.push(&Record::sent(SentPacket { flow, seq, size: 1, planned_ns: seq, sent_ns: seq }));
    }
    block
}

/// Notes on flows, records and damages of a file, in order.
fn contents(path: &Path) -> Vec<String> {
    let bytes = std::fs::read(path).expect("there");
    let items = LogReader::new(&bytes);
    items
        .filter_map(|item| match item {
            Item::Note { note: Note::Flow(info), .. } => Some(format!("flow {}", info.index)),
            Item::Note { note: Note::FlowEnd(end), .. } => Some(format!("end of {}", end.index)),
            Item::Note { note: Note::End(end), .. } => {
                Some(format!("end, {} lost, continued: {}", end.lost_records, end.continued))
            }
            Item::Note { note: Note::Log(info), .. } => Some(match info.part {
                None => "log".to_owned(),
                Some(part) => format!("part {} with {:?}", part.number, part.flows),
            }),
            Item::Note { .. } => None,
            Item::Records { records, .. } => Some(format!("{} records", records.packed().len())),
            Item::Damage(damage) => Some(damage.reason),
        })
        .collect()
}

#[test]
fn a_log_goes_on_when_its_disk_has_space_again_and_counts_what_was_left_out() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("log");
    let (jobs, queue) = mpsc::sync_channel(16);
    let shared = Arc::new(Shared::default());
    let mut writer = writer_at(&path, &shared);
    let (give_back, _buffers) = mpsc::sync_channel(8);
    writer.note(&flow(1));
    writer.records(block(1, 3), give_back.clone());
    let good = std::mem::replace(&mut writer.part.file, refusing(&path));
    // Flows begin and end meanwhile, and records of theirs are lost.
    writer.records(block(1, 2), give_back.clone());
    writer.note(&flow(2));
    writer.records(block(2, 4), give_back.clone());
    writer.note(&Note::FlowEnd(FlowEnd::new(1, "over")));
    writer.part.file = good;
    writer.settle(1);
    writer.records(block(2, 5), give_back);
    drop(jobs);
    let outcome = writer.run(&queue);
    assert_eq!((outcome.records, outcome.lost_records), (8, 6));
    assert_eq!(
        contents(&path),
        [
            "log",
            "flow 1",
            "3 records",
            "flow 2",
            "end of 1",
            "5 records",
            "end, 6 lost, continued: false",
            "blocks 4 to 5 (2 blocks) of log 0 missing",
        ]
    );
}

#[test]
fn a_log_is_continued_behind_its_last_whole_block() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("log");
    let write = |count| {
        let log = Log::create(&LogTarget::File(path.clone()), info(), LogLimits::default());
        let log = log.expect("writable");
        let mut producer = log.producer();
        fill(&mut producer, 1, count);
        drop(producer);
        let busy = Log::create(&LogTarget::File(path.clone()), info(), LogLimits::default());
        let busy = busy.expect_err("it is being written");
        assert_eq!(busy.kind(), io::ErrorKind::ResourceBusy, "{busy}");
        assert_eq!(log.close().error, None);
    };
    write(5);
    let torn = std::fs::read(&path).expect("there");
    let mut file = File::options().append(true).open(&path).expect("there");
    io::Write::write_all(&mut file, &torn[..100]).expect("room");
    write(7);
    assert_eq!(records(&std::fs::read(&path).expect("there")).len(), 12);
    for other in [&b"something else"[..], &[0; 200], &torn[8..]] {
        std::fs::write(&path, other).expect("room");
        for target in [LogTarget::File(path.clone()), LogTarget::Replace(path.clone())] {
            let error = Log::create(&target, info(), LogLimits::default()).expect_err("no log");
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "{error}");
            assert!(error.to_string().contains("is no log of ITG"), "{error}");
        }
        assert_eq!(std::fs::read(&path).expect("there"), other);
    }
}

#[test]
fn a_log_is_replaced_when_the_first_flow_is_open_and_not_before() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("log");
    let create = || Log::create(&LogTarget::Replace(path.clone()), info(), LogLimits::default());
    for flows in [0, 1, 0] {
        let before = std::fs::read(&path).ok();
        let log = create().expect("writable");
        let mut producer = log.producer();
        assert_eq!(std::fs::read(&path).ok(), before);
        for index in 0..flows {
            producer.note(flow(index));
        }
        drop(producer);
        let outcome = log.close();
        assert_eq!((outcome.begun, outcome.error), (flows > 0, None));
        let after = std::fs::read(&path).ok();
        assert_eq!(after != before, flows > 0, "{flows} flows");
    }
    let files: Vec<_> = std::fs::read_dir(dir.path()).expect("there").collect();
    assert_eq!(files.len(), 1, "nothing is left beside it: {files:?}");
    // One without its end is left alone.
    let whole = std::fs::read(&path).expect("there");
    std::fs::write(&path, &whole[..whole.len() - 8]).expect("room");
    let error = create().expect_err("not complete").to_string();
    assert!(error.contains("without its end"), "{error}");
    // Another program makes the file meanwhile.
    std::fs::remove_file(&path).expect("there");
    let log = create().expect("writable");
    std::fs::write(&path, "mine").expect("room");
    let mut producer = log.producer();
    producer.note(flow(1));
    drop(producer);
    let outcome = log.close();
    let why = outcome.error.expect("two want the name");
    assert!(why.contains("has made a file of that name meanwhile"), "{why}");
    assert_eq!(std::fs::read(&path).expect("there"), b"mine");
    assert_eq!(contents(Path::new(&outcome.place))[..2], ["log", "flow 1"]);
}

#[test]
fn a_rotated_log_says_in_each_part_what_it_goes_on_with() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("log");
    let (jobs, queue) = mpsc::sync_channel(16);
    let shared = Arc::new(Shared::default());
    let mut writer = writer_at(&path, &shared);
    let (give_back, _buffers) = mpsc::sync_channel(8);
    writer.note(&flow(1));
    writer.note(&flow(2));
    writer.records(block(1, 3), give_back.clone());
    writer.note(&Note::FlowEnd(FlowEnd::new(2, "over")));
    // Its file is where it was.
    writer.reopen();
    assert_eq!(std::fs::read_dir(dir.path()).expect("there").count(), 1);
    let moved = dir.path().join("moved");
    std::fs::rename(&path, &moved).expect("moved");
    writer.reopen();
    writer.records(block(1, 4), give_back.clone());
    writer.rotation = Rotation { bytes: Some(1), every: None, keep: Some(1) };
    writer.records(block(1, 5), give_back.clone());
    // It has less than what it began with.
    let first = dir.path().join("log.1");
    assert!(!first.exists());
    for count in 11..=18 {
        writer.rotation.bytes = writer.rotation.bytes.filter(|_| !first.exists());
        writer.records(block(1, count), give_back.clone());
    }
    writer.rotation = Rotation::default();
    writer.records(block(1, 6), give_back);
    drop(jobs);
    let outcome = writer.run(&queue);
    assert_eq!((outcome.records, outcome.lost_records), (134, 0));
    let end = |more| format!("end, 0 lost, continued: {more}");
    assert_eq!(contents(&moved), ["log", "flow 1", "flow 2", "3 records", "end of 2", &end(true)]);
    let part = |number| format!("part {number} with [1]");
    let (first, last) = (contents(&first).join("; "), contents(&path).join("; "));
    let (middle, end) =
        (format!("{}; flow 1; 4 records; 5 records; 11 records", part(1)), end(true));
    assert!(first.starts_with(&middle) && first.ends_with(&end), "{first}");
    assert!(last.starts_with(&format!("{}; flow 1; ", part(2))), "{last}");
    assert!(last.ends_with("6 records; end, 0 lost, continued: false"), "{last}");
}
