//! Measurement of the rate that an engine reaches over an Ethernet link: one that is made for the trial,
//! between two network namespaces that end with the threads that run in them. Nothing of this host is
//! touched.

use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use itg_core::flow::FlowSpec;
use nix::sched::{CloneFlags, unshare};
use socket2::{Domain, Protocol, Socket, Type};

use super::netlink::Netlink;
use super::{Frames, PacketEngine};
use crate::clock;
use crate::mmsg::{BATCH, Outgoing, RecvBatch};
use crate::socket::{enlarge, open_sender};
use crate::wire::{Sockets, Wire};

/// Both ends of the link, each in its namespace.
const DEVICE: &str = "itg0";
const HERE: Ipv4Addr = Ipv4Addr::new(10, 254, 77, 1);
const THERE: Ipv4Addr = Ipv4Addr::new(10, 254, 77, 2);
/// Between looks at what has arrived: 100 µs.
const NAP_NS: u64 = 100_000;

/// Packets of `size` bytes a second that arrive over a link of virtual Ethernet when `engine` sends as fast
/// as it can for `span_ns`: both ends on this host, without logs.
///
/// # Errors
/// Reason why it cannot be measured: it needs root, or the engine is not to be had.
///
/// # Panics
/// When no thread can be started.
pub fn rate_over_a_link(engine: PacketEngine, size: usize, span_ns: u64) -> Result<f64, String> {
    let (namespace, theirs) = mpsc::channel();
    let (linked, is_linked) = mpsc::channel();
    let (address, bound) = mpsc::channel();
    let over = &AtomicBool::new(false);
    let arrived = thread::scope(|scope| {
        let named = |name: &str| thread::Builder::new().name(name.to_owned());
        let receiving = named("itg-receive").spawn_scoped(scope, move || {
            namespace.send(enter()?).map_err(gone)?;
            is_linked.recv().map_err(gone)?;
            link_up(THERE)?;
            let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
            enlarge(&socket, true);
            socket.bind(&SocketAddr::new(THERE.into(), 0).into())?;
            address.send(socket.local_addr()?.as_socket()).map_err(gone)?;
            Ok::<u64, io::Error>(count(&socket, over))
        });
        let sending = named("itg-send").spawn_scoped(scope, move || {
            let sent = (|| {
                let said = |error: io::Error| error.to_string();
                enter().map_err(said)?;
                let theirs: File = theirs.recv().map_err(|_| String::new())?;
                let netlink = Netlink::open().map_err(said)?;
                netlink.join(DEVICE, theirs.as_raw_fd()).map_err(said)?;
                link_up(HERE).map_err(said)?;
                linked.send(()).map_err(|_| String::new())?;
                let to = bound.recv().ok().flatten().ok_or_else(String::new)?;
                flood(engine, to, size, span_ns)
            })();
            over.store(true, Ordering::Release);
            sent
        });
        let (sending, receiving) = (sending.expect("a thread"), receiving.expect("a thread"));
        let sent = sending.join().expect("the sender of a trial does not panic");
        let arrived = receiving.join().expect("the receiver of a trial does not panic");
        match (sent, arrived) {
            // The other side has ended, and says why.
            (Err(why), Err(error)) if why.is_empty() => Err(error.to_string()),
            (Err(why), _) => Err(why),
            (Ok(_), Err(error)) => Err(error.to_string()),
            (Ok(took_ns), Ok(arrived)) => Ok(arrived as f64 * 1e9 / took_ns as f64),
        }
    });
    arrived.map_err(|why| format!("a link between two network namespaces, engine {engine}: {why}"))
}

fn gone<E>(_: E) -> io::Error {
    io::Error::other("the other end is gone")
}

/// Moves the calling thread into a network namespace of its own, and opens that.
fn enter() -> io::Result<File> {
    unshare(CloneFlags::CLONE_NEWNET)?;
    File::open("/proc/thread-self/ns/net")
}

fn link_up(ip: Ipv4Addr) -> io::Result<()> {
    let device = nix::net::if_::if_nametoindex(DEVICE)?;
    Netlink::open()?.configure(device, IpAddr::V4(ip), 24)
}

/// Datagrams that arrive until it is over.
fn count(socket: &Socket, over: &AtomicBool) -> u64 {
    let mut batch = RecvBatch::new(BATCH, 64);
    let mut arrived = 0;
    loop {
        let last = over.load(Ordering::Acquire);
        let got = batch.recv(socket.as_fd()).unwrap_or(0);
        arrived += got as u64;
        if got < batch.capacity() {
            if last {
                return arrived;
            }
            clock::sleep_until(clock::monotonic_ns() + NAP_NS);
        }
    }
}

/// Sends as fast as can be; how long it took, in nanoseconds.
fn flood(engine: PacketEngine, to: SocketAddr, size: usize, span_ns: u64) -> Result<u64, String> {
    let spec = FlowSpec::new(1);
    let mut data = open_sender(&spec, to).map_err(|error| error.to_string())?;
    let mut wire: Box<dyn Wire> = match engine {
        PacketEngine::Socket => Box::new(Sockets),
        PacketEngine::Xdp => {
            let mut frames = Frames::new().map_err(|error| error.to_string())?;
            frames.attach(&spec, &mut data).map_err(|error| error.to_string())?;
            Box::new(frames)
        }
    };
    let content = vec![0x5A; size];
    let packets = [Outgoing::new(&content, &[]); BATCH];
    let start_ns = clock::monotonic_ns();
    loop {
        let took_ns = clock::monotonic_ns() - start_ns;
        if took_ns >= span_ns {
            return Ok(took_ns);
        }
        match wire.send(&data, &packets) {
            Ok(_) => {}
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::EINTR)
                ) || error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_engine_sends_over_a_link_or_says_why_not() {
        for engine in PacketEngine::ALL {
            // A kernel that is busy with other namespaces lets nothing through a new link for a while.
            let spans = [50_000_000, 500_000_000, 5_000_000_000];
            let mut tries = spans.into_iter().map(|span_ns| rate_over_a_link(engine, 512, span_ns));
            // A batch at least: how fast is the machine's business.
            let reached = tries.find(|rate| !rate.as_ref().is_ok_and(|pps| *pps <= 1_000.0));
            match reached.unwrap_or_else(|| panic!("{engine}: hardly a packet in 5 s")) {
                Ok(_) => {}
                Err(why) => {
                    assert!(!nix::unistd::geteuid().is_root(), "{why}");
                    assert!(why.contains("not permitted"), "{why}");
                }
            }
        }
    }
}
