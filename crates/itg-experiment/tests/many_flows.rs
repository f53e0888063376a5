//! Memory of a file that has its flows one by one: so many bytes a flow at most, and the same for more flows.
#![allow(missing_docs, unsafe_code, reason = "tests; a global allocator is unsafe")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use itg_core::seed::RunSeed;
use itg_experiment::{Experiment, Plan, PlanInputs};

/// Bytes in use, and the most of them so far.
static USED: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
/// Allocations so far.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, which counts what is in use.
struct Counting;

impl Counting {
    fn take(bytes: usize) {
        COUNT.fetch_add(1, Ordering::Relaxed);
        let used = USED.fetch_add(bytes, Ordering::Relaxed) + bytes;
        PEAK.fetch_max(used, Ordering::Relaxed);
    }
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::take(layout.size());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        USED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A file of so many flows, each with settings of its own.
fn file(flows: usize) -> String {
    let mut text = "schema = 1\nname = 'many'\nduration = '1s'\n".to_owned();
    for flow in 0..flows {
        text += &format!(
            "\n[[flow]]\nname = 'flow {flow}'\nidt = 'constant({}ms)'\nsize = {}\n",
            100 + flow % 7,
            64 + flow % 1000
        );
    }
    text
}

/// The most bytes that were in use at a time while a file was read, planned and shown, and the allocations; both without
/// its text.
fn cost(flows: usize) -> (usize, usize) {
    let text = file(flows);
    let (before, calls) = (USED.load(Ordering::Relaxed), COUNT.load(Ordering::Relaxed));
    PEAK.store(before, Ordering::Relaxed);
    let experiment = Experiment::parse(&text, "many.toml").expect("an experiment");
    let mut none = |name: &str| Err(format!("no {name}"));
    let plan = Plan::resolve(&experiment, PlanInputs::new(RunSeed(1), &mut none)).expect("a plan");
    assert!(plan.render_rows(10).contains("more flows"), "of {flows}");
    (PEAK.load(Ordering::Relaxed) - before, COUNT.load(Ordering::Relaxed) - calls)
}

#[test]
fn flows_one_by_one_take_bounded_memory() {
    let (few, many) = (1_000, 8_000);
    let [(bytes_of_few, calls_of_few), (bytes, calls)] = [few, many].map(cost);
    for (flows, bytes) in [(few, bytes_of_few), (many, bytes)] {
        assert!(bytes < 2_900 * flows, "{} bytes a flow of {flows}", bytes / flows);
    }
    let grown = many / few;
    assert!(calls < calls_of_few * (grown + 1), "{calls_of_few} allocations, then {calls}");
}
