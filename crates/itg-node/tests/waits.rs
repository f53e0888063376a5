//! The data plane waits for no other thread: ten times the packets, no more calls that wait for a thread or
//! wake one. And the report of a run on flows that it does not send.
#![allow(missing_docs, unsafe_code, reason = "tests; system calls without a safe wrapper")]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{Edit, flow, job, receiver, run, runtime};
use itg_core::flow::Proto;
use itg_engine::Lease;
use itg_node::{Orders, Start, send};
use itg_socket::clock;
use tokio::sync::{mpsc, watch};

/// Futex calls by the name of the thread that made them.
type Calls = BTreeMap<String, u64>;

/// Has the kernel stop the calling thread, and those that it starts, at each futex call until a watcher has
/// seen it (seccomp_unotify(2)). Returns the descriptor to watch with.
fn tell_futexes() -> i32 {
    let step = |code: u32, yes: u8, no: u8, k: u32| libc::sock_filter {
        code: u16::try_from(code).expect("16 bits"),
        jt: yes,
        jf: no,
        k,
    };
    // struct seccomp_data begins with the number of the call.
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            0,
            1,
            u32::try_from(libc::SYS_futex).expect("small"),
        ),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_USER_NOTIF),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let len = u16::try_from(steps.len()).expect("small");
    let program = libc::sock_fprog { len, filter: steps.as_mut_ptr() };
    // SAFETY: both calls concern this thread only; the pointers lead to values that outlive them.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_SET_MODE_FILTER;
        let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
        let fd = libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program);
        i32::try_from(fd).expect("a descriptor")
    }
}

/// Lets the calls go on as they come, and counts them until it is over.
fn watch_futexes(listener: &OwnedFd, is_over: impl Fn() -> bool) -> Calls {
    let mut calls = Calls::new();
    let mut names: BTreeMap<u32, String> = BTreeMap::new();
    loop {
        let mut ready = libc::pollfd { fd: listener.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd that outlives the call.
        let got = unsafe { libc::poll(&raw mut ready, 1, 10) };
        if got != 1 || ready.revents & libc::POLLIN == 0 {
            if is_over() {
                return calls;
            }
            continue;
        }
        // SAFETY: both structs are plain integers, zero as the kernel wants the first one, and outlive the
        // calls.
        unsafe {
            let mut call: libc::seccomp_notif = std::mem::zeroed();
            let fd = listener.as_raw_fd();
            if libc::ioctl(fd, libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut call) != 0 {
                continue;
            }
            let name = names.entry(call.pid).or_insert_with(|| {
                let comm = fs::read_to_string(format!("/proc/self/task/{}/comm", call.pid));
                comm.unwrap_or_default().trim().to_owned()
            });
            *calls.entry(name.clone()).or_default() += 1;
            let mut answer: libc::seccomp_notif_resp = std::mem::zeroed();
            answer.id = call.id;
            answer.flags = u32::try_from(libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE).expect("1");
            // A call that a signal has interrupted needs no answer.
            libc::ioctl(fd, libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut answer);
        }
    }
}

/// Futex calls of a run with so many packets.
fn futexes(edit: Edit, packets: u64) -> Calls {
    // The watcher and the watched share no lock: a thread that waits for the other would never be let go.
    let listener = &AtomicI32::new(-1);
    let dir = tempfile::tempdir().expect("a directory");
    thread::scope(|scope| {
        let running = scope.spawn(|| {
            listener.store(tell_futexes(), Ordering::Release);
            run(edit, packets, dir.path())
        });
        let since = Instant::now();
        while listener.load(Ordering::Acquire) < 0 {
            assert!(since.elapsed() < Duration::from_secs(60), "no filter");
            thread::yield_now();
        }
        // SAFETY: the descriptor was made for us and has no other owner.
        let listener = unsafe { OwnedFd::from_raw_fd(listener.load(Ordering::Acquire)) };
        // Until the thread has ended: its calls would not be answered later.
        let calls = watch_futexes(&listener, || running.is_finished());
        let outcome = running.join().expect("the run does not panic");
        assert!(outcome.failures.is_empty(), "{outcome:?}");
        calls
    })
}

#[test]
fn ten_times_the_packets_take_no_more_futex_calls() {
    const FEW: u64 = 2_000;
    const MANY: u64 = 20_000;
    let kinds: [(&str, Edit); 3] = [
        ("udp", |_| {}),
        ("bursts", |spec| spec.burst = Some(16)),
        ("tcp", |spec| spec.proto = Proto::Tcp),
    ];
    for (name, edit) in kinds {
        let (few, many) = (futexes(edit, FEW), futexes(edit, MANY));
        // What the threads beside the data plane do shows that calls are counted.
        assert!(many.values().sum::<u64>() > 10, "{name}: nothing was counted: {many:?}");
        for thread in ["itg-send", "itg-receive"] {
            let [few, many] = [&few, &many].map(|calls| calls.get(thread).copied().unwrap_or(0));
            // A block of 1024 records that is handed over may wake the thread that writes it, and one that
            // comes back may be waited for.
            let blocks = (MANY - FEW) / 1024;
            assert!(
                many <= few + 40 + 4 * blocks,
                "{name}: {thread} made {few} futex calls for {FEW} packets and {many} for {MANY}"
            );
        }
    }
}

/// Flows that are not sent are reported to the orders' giver at once, while others are sent for long.
#[test]
fn flows_that_are_not_sent_are_told_of_while_others_run() {
    runtime().block_on(async {
        let receiver = receiver(None);
        let here = receiver.addresses().next().expect("one");
        let (stop, stopped) = watch::channel(None);
        let (_never, unstopped) = watch::channel(None);
        let serving = tokio::spawn(receiver.serve(unstopped));
        // A port that was free a moment ago.
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").and_then(|at| at.local_addr());
        let nobody = nobody.expect("loopback");
        let (_stops, stops) = mpsc::unbounded_channel();
        let (_rates, rates) = mpsc::unbounded_channel();
        let (ends, mut ended) = mpsc::unbounded_channel();
        let orders =
            Orders { resume_ns: None, lease: Arc::new(Lease::until(u64::MAX)), stops, rates, ends };
        let long = |id, to| flow(id, to, |spec| spec.stop.duration_ns = Some(600_000_000_000));
        let flows = vec![long(1, here), long(2, nobody), long(3, here)];
        let start = Start::At(clock::unix_ns() + 200_000_000);
        let job = job(flows, None).start(start).orders(orders);
        let watching = async {
            let told = tokio::time::timeout(Duration::from_secs(60), ended.recv()).await;
            let told = told.expect("told before the others end, in ten minutes").expect("told");
            assert_eq!((told.flow, told.packets, told.next_seq), (2, 0, 0), "{told:?}");
            assert!(told.reason.to_string().contains("efused"), "why it is not sent: {told:?}");
            // Packets of the others have time to leave.
            tokio::time::sleep(Duration::from_secs(3)).await;
            assert!(ended.try_recv().is_err(), "the others run");
            stop.send(Some("enough".to_owned())).expect("they listen");
        };
        let (outcome, ()) = tokio::join!(send(job, stopped), watching);
        let outcome = outcome.expect("sent");
        let mut rest = Vec::new();
        while let Ok(totals) = ended.try_recv() {
            rest.push((totals.flow, totals.packets > 0));
        }
        rest.sort_unstable();
        assert_eq!(rest, [(1, true), (3, true)], "each flow once");
        assert_eq!(outcome.failures.len(), 1, "{outcome:?}");
        drop(serving.await);
    });
}
