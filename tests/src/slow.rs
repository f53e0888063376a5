//! Links that are slow, by a thread for each direction: this kernel need not have netem. Needs root.
#![allow(unsafe_code, reason = "a TAP device is made by an ioctl that no library here has")]

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::libc;

use crate::namespace::Namespace;

/// Longest frame.
const FRAME: usize = 2048;
/// Time between two looks whether a link has ended.
const LOOK: Duration = Duration::from_millis(2);

/// Rate and delay of a link, each way.
#[derive(Clone, Copy, Debug)]
pub struct Slow {
    /// Bits a second.
    pub rate: u64,
    /// Time on the way.
    pub delay: Duration,
    /// Time that a frame waits for the rate at most, else it is lost.
    pub queue: Duration,
}

/// Two TAP devices and the threads between them; they end when it is dropped.
#[derive(Debug)]
pub(crate) struct SlowLink {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl SlowLink {
    /// Joins two namespaces by devices of these names.
    pub(crate) fn join(a: (&Namespace, &str), b: (&Namespace, &str), slow: Slow) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let ends = [a, b].map(|(host, name)| host.within(|| tap(name)));
        let mut threads = Vec::new();
        for (from, to) in [(0, 1), (1, 0)] {
            let (to_writer, frames) = channel();
            let [mut reading, mut writing] =
                [from, to].map(|end: usize| ends[end].try_clone().expect("a descriptor"));
            let [stop_reading, stop_writing] = [Arc::clone(&stop), Arc::clone(&stop)];
            threads
                .push(thread::spawn(move || read(&mut reading, slow, &to_writer, &stop_reading)));
            threads.push(thread::spawn(move || write(&mut writing, &frames, &stop_writing)));
        }
        Self { stop, threads }
    }
}

impl Drop for SlowLink {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            drop(thread.join());
        }
    }
}

/// A TAP device in the namespace of this thread, as long as its file is open.
fn tap(name: &str) -> File {
    let mut open = OpenOptions::new();
    let open = open.read(true).write(true).custom_flags(libc::O_NONBLOCK);
    let file = open.open("/dev/net/tun").expect("root may make devices");
    // SAFETY: zeros are a valid ifreq: integers, and unions of integers and addresses.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = libc::c_char::try_from(from).expect("ASCII");
    }
    let flags = libc::IFF_TAP | libc::IFF_NO_PI;
    request.ifr_ifru.ifru_flags = libc::c_short::try_from(flags).expect("two bits");
    // SAFETY: the descriptor is open, and the kernel reads and writes a whole ifreq, which lives until it returns.
    let made = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    assert_eq!(made, 0, "TAP device {name}: {}", std::io::Error::last_os_error());
    file
}

/// Takes frames in, and says when each arrives at the other end.
fn read(from: &mut File, slow: Slow, to: &Sender<(Instant, Vec<u8>)>, stop: &AtomicBool) {
    let mut frame = [0; FRAME];
    let mut free = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        // Nothing is there, or the device is not up yet.
        let Ok(len) = from.read(&mut frame) else {
            thread::sleep(LOOK);
            continue;
        };
        let now = Instant::now();
        if free.saturating_duration_since(now) > slow.queue {
            continue;
        }
        let bits = 8 * u64::try_from(len).expect("short");
        free = free.max(now) + Duration::from_nanos(bits * 1_000_000_000 / slow.rate);
        if to.send((free + slow.delay, frame[..len].to_vec())).is_err() {
            return;
        }
    }
}

fn write(to: &mut File, frames: &Receiver<(Instant, Vec<u8>)>, stop: &AtomicBool) {
    while let Ok((due, frame)) = frames.recv() {
        while !stop.load(Ordering::Relaxed)
            && let left = due.saturating_duration_since(Instant::now())
            && !left.is_zero()
        {
            thread::sleep(left.min(Duration::from_millis(100)));
        }
        if stop.load(Ordering::Relaxed) {
            return;
        }
        // A device that is down loses it.
        drop(to.write(&frame));
    }
}
