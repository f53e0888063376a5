//! The packet path asks nobody for memory: ten times the packets, the same number of allocations.
#![allow(missing_docs, unsafe_code, reason = "tests; a global allocator is unsafe")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use itg_core::flow::{Flow, FlowSpec, Proto};
use itg_core::law::Law;
use itg_core::payload::Content;
use itg_core::seed::RunSeed;
use itg_net::{
    ClassicReceiving, FlowLive, LogLimits, LogTarget, OnFull, Receiver, ReceiverOptions, SendFlow,
    SendJob, send,
};
use tokio::sync::watch;

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

fn limits() -> LogLimits {
    // All blocks from the beginning: growing would be an allocation of its own.
    LogLimits { on_full: OnFull::Wait, pool_bytes: 4 << 20, ..LogLimits::default() }
}

/// What makes a flow another one than usual.
type Edit = fn(&mut FlowSpec);

/// Sends so many packets and returns what the sending and the receiving thread allocated.
fn allocations(edit: Edit, packets: u64) -> (u64, u64) {
    let dir = tempfile::tempdir().expect("a directory");
    let log = |name: &str| Some(LogTarget::File(dir.path().join(name)));
    let before = (SENDING.load(Ordering::Relaxed), RECEIVING.load(Ordering::Relaxed));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let receiver = Receiver::bind(ReceiverOptions {
            listen: "127.0.0.1:0".parse().expect("an address"),
            data_port: 0,
            receive_buffer: None,
            shards: 1,
            busy_poll_us: None,
            log: log("recv.itg"),
            log_limits: limits(),
            log_dir: None,
            allow_log_servers: false,
            secret: None,
            once: true,
            classic: ClassicReceiving::default(),
            program: "test".to_owned(),
            version: "0".to_owned(),
            settings: BTreeMap::new(),
        })
        .expect("loopback");
        let address = receiver.addresses().next().expect("one");
        let (_stop, stopped) = watch::channel(None);
        let serving = tokio::spawn(receiver.serve(stopped.clone()));
        let mut spec = FlowSpec::new(1);
        spec.idt = Law::Exp { mean: 20_000.0 };
        spec.stop.packets = Some(packets);
        edit(&mut spec);
        let job = SendJob {
            start_unix_ns: None,
            run: "0".repeat(32),
            seed: 1,
            flows: vec![SendFlow {
                flow: Flow::resolve(spec, RunSeed(1)).expect("a flow that can be run"),
                receiver: address,
                content: Arc::new(Content::random(RunSeed(1))),
                live: Arc::new(FlowLive::default()),
            }],
            pacing: None,
            log: log("send.itg"),
            log_limits: limits(),
            recv_log: None,
            program: "test".to_owned(),
            version: "0".to_owned(),
            settings: BTreeMap::new(),
            orders: None,
        };
        let outcome = send(job, stopped).await.expect("sent");
        let counts = outcome.flows[0].counts.as_ref().expect("counted");
        assert_eq!(counts.packets, packets, "{outcome:?}");
        assert_eq!(serving.await.expect("served").packets, packets);
    });
    let after = (SENDING.load(Ordering::Relaxed), RECEIVING.load(Ordering::Relaxed));
    (after.0 - before.0, after.1 - before.1)
}

#[test]
fn ten_times_the_packets_take_the_same_number_of_allocations() {
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
