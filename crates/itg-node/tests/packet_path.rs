//! The packet path allocates no memory: ten times the packets, the same number of allocations.
#![allow(missing_docs, unsafe_code, reason = "tests; a global allocator is unsafe")]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use common::{Edit, run};
use itg_core::flow::Proto;
use itg_socket::{PacketEngine, rate_over_a_link};

/// The counters are those of all tests of this program: one at a time.
static ALONE: Mutex<()> = Mutex::new(());
/// Allocations of the two threads of the data plane.
static SENDING: AtomicU64 = AtomicU64::new(0);
static RECEIVING: AtomicU64 = AtomicU64::new(0);

/// The system's allocator, counting by the name of the thread.
struct Counting;

fn count() {
    let mut name = [0u8; 16];
    // SAFETY: the kernel writes at most 16 bytes, the terminating zero among them.
    let result = unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    match &name {
        _ if result != 0 => {}
        name if name.starts_with(b"itg-send\0") => {
            SENDING.fetch_add(1, Ordering::Relaxed);
        }
        name if name.starts_with(b"itg-receive\0") => {
            RECEIVING.fetch_add(1, Ordering::Relaxed);
        }
        _ => {}
    }
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Sends so many packets and returns what the sending and the receiving thread allocated.
fn allocations(edit: Edit, packets: u64) -> (u64, u64) {
    let dir = tempfile::tempdir().expect("a directory");
    counted(|| drop(run(edit, packets, dir.path())))
}

/// Returns the numbers of allocations of the two threads during `work`.
fn counted(work: impl FnOnce()) -> (u64, u64) {
    let before = (SENDING.load(Ordering::Relaxed), RECEIVING.load(Ordering::Relaxed));
    work();
    let after = (SENDING.load(Ordering::Relaxed), RECEIVING.load(Ordering::Relaxed));
    (after.0 - before.0, after.1 - before.1)
}

#[test]
fn ten_times_the_packets_take_the_same_number_of_allocations() {
    let _alone = ALONE.lock();
    let kinds: [(&str, Edit); 3] = [
        ("udp", |_| {}),
        ("bursts", |spec| spec.burst = Some(16)),
        ("tcp", |spec| spec.proto = Proto::Tcp),
    ];
    for (name, edit) in kinds {
        // The first run opens what later ones find open.
        allocations(edit, 100);
        let (few, many) = (allocations(edit, 2_000), allocations(edit, 20_000));
        assert!(few.0 > 0 && few.1 > 0, "{name}: nothing was counted: {few:?}");
        let more = (many.0.saturating_sub(few.0), many.1.saturating_sub(few.1));
        assert!(
            more.0 <= 20 && more.1 <= 20,
            "{name}: 2000 packets took {few:?} allocations, 20 000 took {many:?}"
        );
    }
}

#[test]
fn packets_past_the_network_stack_take_no_allocations_either() {
    let _alone = ALONE.lock();
    if !nix::unistd::geteuid().is_root() {
        assert!(std::env::var_os("CI").is_none(), "CI must run this as root");
        println!("NOT TESTED: --engine xdp needs root");
        return;
    }
    // The rate tells that the longer time is many packets more.
    let mut rates = [0.0; 2];
    let [few, many] = [(500_000_000, 0), (2_000_000_000, 1)].map(|(span_ns, place)| {
        counted(|| {
            rates[place] = rate_over_a_link(PacketEngine::Xdp, 512, span_ns).expect("a link");
        })
    });
    assert!(rates[1] > 1_000.0, "{rates:?} packets a second");
    assert!(few.0 > 0 && few.1 > 0, "nothing was counted: {few:?}");
    let more = (many.0.saturating_sub(few.0), many.1.saturating_sub(few.1));
    assert!(more.0 <= 20 && more.1 <= 20, "{few:?} allocations in 0.5 s, {many:?} in 2 s");
}
