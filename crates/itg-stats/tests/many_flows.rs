//! Memory of a report over many flows: what is held at most grows with the flows, and by a few kilobytes for each.
#![allow(unsafe_code, reason = "a global allocator is unsafe")]
#![allow(clippy::print_stdout, reason = "what was measured")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use itg_record::{FlowEnd, ReceivedPacket, Record, SentPacket, Side};
use itg_stats::{Analysis, Options};
use itg_testkit::logs::{EPOCH, Setup, TestLog, end, spec};

std::thread_local! {
    /// Bytes that this thread holds, and the most that it has held.
    static HELD: Cell<(i64, i64)> = const { Cell::new((0, 0)) };
}

/// The system's allocator, which counts what is held.
struct Counting;

fn hold(bytes: usize, sign: i64) {
    let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
    let count = |held: &Cell<(i64, i64)>| {
        let now = held.get().0 + sign * bytes;
        held.set((now, held.get().1.max(now)));
    };
    // A thread that ends gives back behind its counter.
    HELD.try_with(count).unwrap_or(());
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        hold(layout.size(), 1);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        hold(layout.size(), -1);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        hold(size, 1);
        hold(layout.size(), -1);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Packets of each flow.
const PACKETS: u64 = 5;

/// The logs of both sides of so many flows, which send in turns.
fn logs(flows: u32) -> [Vec<u8>; 2] {
    let made = |side| TestLog::of(Setup { block_records: 4096, ..Setup::new(side, "b") });
    let [mut sender, mut receiver] = [Side::Sender, Side::Receiver].map(made);
    for index in 0..flows {
        let spec = spec(index + 1, "constant(1s)", "constant(200)", PACKETS);
        [&mut sender, &mut receiver].into_iter().for_each(|log| log.flow(index, &spec, ["b", "b"]));
    }
    for seq in 0..PACKETS {
        for flow in 0..flows {
            let planned_ns = seq * 1_000_000_000;
            let sent_ns = EPOCH + planned_ns + 1_000 + u64::from(flow) * 7919 % 3_001;
            let sent = SentPacket { flow, seq, size: 200, planned_ns, sent_ns };
            sender.records([Record::sent(sent)]);
            let arrived_ns = sent_ns + 20_000 + u64::from(flow) * 13 % 40_009;
            let read_ns = arrived_ns + 900;
            let (size, ttl, tos) = (200, 64, 0);
            let received =
                ReceivedPacket { flow, seq, size, sent_ns, arrived_ns, read_ns, ttl, tos };
            receiver.records([Record::received(received)]);
        }
    }
    let some = Some(PACKETS);
    [sender, receiver].map(|mut log| {
        for index in 0..flows {
            log.end_flow(FlowEnd {
                sent_packets: some,
                skipped_packets: Some(0),
                received_packets: some,
                received_unique: some,
                ..end(index)
            });
        }
        log.finish()
    })
}

/// Bytes held at most while the report of so many flows is made, for each of them.
fn bytes_a_flow(flows: u32) -> i64 {
    let logs = logs(flows);
    let before = HELD.get().0;
    HELD.set((before, before));
    let mut analysis = Analysis::new(Options::default());
    for (log, name) in logs.iter().zip(["send.itg", "recv.itg"]) {
        analysis.add_log(log, name).expect("a good log");
    }
    let report = analysis.finish();
    assert_eq!(report.flows.len(), 2 * flows as usize);
    assert_eq!(report.total.metrics.packets, u64::from(flows) * PACKETS);
    (HELD.get().1 - before) / i64::from(flows)
}

/// `ITG_LOGS=DIR` writes the logs of 100 000 flows there, to be decoded by the program.
#[test]
fn a_report_takes_eleven_kilobytes_a_flow() {
    if let Some(dir) = std::env::var_os("ITG_LOGS") {
        for (log, name) in logs(100_000).iter().zip(["send.itg", "recv.itg"]) {
            std::fs::write(std::path::Path::new(&dir).join(name), log).expect("written");
        }
    }
    let [few, many] = [2_000, 8_000].map(bytes_a_flow);
    println!("{few} bytes a flow of 2000, {many} of 8000");
    assert!(many <= 11_000, "{many} bytes a flow");
    assert!(many <= few, "{few} bytes a flow of 2000, {many} of 8000");
}
