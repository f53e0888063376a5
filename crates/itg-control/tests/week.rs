//! A group that lives for a week of virtual time: what its processes hold, in memory and on disk, does not grow.
//!
//! `ITG_WEEK=1 cargo test --release -p itg-control --test week -- --nocapture --test-threads 1` runs seven days and
//! prints the curve; without it, as many crashes and commands come one soon after the other.
#![allow(unsafe_code, reason = "a global allocator is unsafe")]
#![allow(clippy::print_stdout, reason = "the curve")]

mod cluster;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use cluster::{NET, Setup};
use itg_control::{Command, ControlRequest};
use itg_core::seed::RunSeed;
use itg_core::streams::below;
use itg_process::{MS, Process, SECOND, Slot};
use itg_sim::{Disks, Fault, World};

std::thread_local! {
    /// Bytes that this thread has allocated and not given back.
    static HELD: Cell<i64> = const { Cell::new(0) };
}

/// The system's allocator, which counts what is held.
struct Counting;

fn hold(bytes: usize, sign: i64) {
    let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
    // A thread that ends gives back behind its counter.
    HELD.try_with(|held| held.set(held.get() + sign * bytes)).unwrap_or(());
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
        hold(layout.size(), -1);
        hold(size, 1);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const NODES: u32 = 4;
const FLOWS: u32 = 8;
/// Hours of a week, in each of which a node crashes and returns, and a flow is given to another node.
const HOURS: u64 = 168;

/// Length of an hour, and bytes of a journal after which a snapshot makes it shorter: in the short form fewer, so that
/// it becomes so often enough.
fn scale() -> (u64, u32) {
    let long = std::env::var_os("ITG_WEEK").is_some();
    if long { (3600 * SECOND, 4 << 20) } else { (12 * SECOND, 16 << 10) }
}

/// Bytes that are held at the end of an hour.
#[derive(Clone, Copy, Debug)]
struct Look {
    memory: u64,
    stored: u64,
    view: u64,
}

/// Runs the week; flows have ended after so many hours.
fn week(flows_end: u64, seed: u64) -> Vec<Look> {
    let mut setup = Setup::new(NODES, FLOWS);
    let hour;
    (hour, setup.journal_bytes) = scale();
    setup.gap = hour / 6;
    setup.packets = flows_end * 6;
    let held = HELD.get();
    let mut world = cluster::world(setup, NET, "3s", seed);
    world.set_disks(Disks { sync_ns: 2 * MS, ..Disks::default() });
    let mut rng = RunSeed(seed).named("week");
    let mut looks = Vec::new();
    for at in 0..HOURS {
        let begin = at * hour;
        let node = Slot(u32::try_from(below(&mut rng, u64::from(NODES) + 1)).expect("small"));
        let crash = begin + SECOND + below(&mut rng, SECOND);
        // Every second one is away for so long that it is excluded.
        let away = if at % 2 == 0 { 300 * MS } else { 4 * SECOND };
        world.fault_at(crash, Fault::Crash(node));
        world.fault_at(crash + away, Fault::Recover(node));
        world.run(crash + away + 3 * SECOND);
        let (flow, to) = (1 + below(&mut rng, u64::from(FLOWS)), below(&mut rng, NODES.into()));
        let [flow, to] = [flow, to].map(|value| u32::try_from(value).expect("small"));
        world.with(Slot(NODES), |process, now| {
            let command = Command::Reassign { flow, to };
            process.send(now, ControlRequest::Command(command).message());
        });
        world.run(begin + hour);
        looks.push(look(&world, held));
    }
    looks
}

fn look(world: &World, held: i64) -> Look {
    let all = (0..=NODES).map(Slot);
    Look {
        memory: u64::try_from(HELD.get() - held).unwrap_or(0),
        stored: all.clone().map(|slot| world.stored_bytes(slot)).sum(),
        view: all
            .filter_map(|slot| world.process(slot).map(Process::view_number))
            .max()
            .unwrap_or(0),
    }
}

/// Panics unless at the median hardly more is held in the last quarter of the week than in the second one.
#[track_caller]
fn flat(looks: &[Look], what: &str) {
    for (at, look) in looks.iter().enumerate().filter(|(at, _)| at % 12 == 11 || *at == 0) {
        let Look { memory, stored, view } = look;
        println!(
            "{what}: hour {:3}: {memory:8} bytes held, {stored:8} on disk, view {view}",
            at + 1
        );
    }
    let quarter = looks.len() / 4;
    for (name, of) in
        [("memory", (|look| look.memory) as fn(&Look) -> u64), ("disk", |look: &Look| look.stored)]
    {
        let median = |part: &[Look]| {
            let mut sizes: Vec<u64> = part.iter().map(of).collect();
            sizes.sort_unstable();
            sizes[sizes.len() / 2]
        };
        let (early, late) = (median(&looks[quarter..2 * quarter]), median(&looks[3 * quarter..]));
        println!("{what}: {name}: median of the second quarter {early}, of the last {late}");
        // Journals grow for hours before they are made shorter, so that it goes up and down.
        let more = if scale().0 > 60 * SECOND { early / 2 } else { early / 3 };
        assert!(late <= early + more, "{what}: {name} grows: {early}, then {late} bytes");
    }
    assert!(looks.last().is_some_and(|look| look.view > 40), "{what}: nodes left and came back");
}

/// Flows are sent until the week is nearly over.
#[test]
fn a_run_of_a_week_holds_no_more_at_its_end() {
    flat(&week(HOURS - 6, 1), "a run");
}

/// Flows have ended after half a day, and the group idles.
#[test]
fn a_group_that_idles_for_a_week_holds_no_more_at_its_end() {
    flat(&week(12, 2), "idle");
}
