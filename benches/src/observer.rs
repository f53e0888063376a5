//! Observation by the kernel, independent of the programs: counters of a namespace, and the stamps
//! of packets as they leave.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use itg_socket::mmsg::{BATCH, RecvBatch};
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{setsockopt, sockopt};
use nix::unistd::{SysconfVar, sysconf};
use socket2::{Domain, Protocol, SockFilter, Socket, Type};
use std::os::fd::AsFd as _;

use crate::programs::Location;

/// Time between two looks at the counters.
const EVERY: Duration = Duration::from_millis(20);
/// Time between two looks at an empty capture. The kernel stamps packets as they leave, and its buffer holds those of a
/// second: a reader that wakes rarely takes no processor from those that it looks at.
const READ_EVERY: Duration = Duration::from_millis(10);
/// Receive buffer of the capture in bytes.
const BUFFER: usize = 64 << 20;
/// Bytes of a packet that are kept: those of its headers, and of ours behind them.
const KEPT: usize = 96;

/// Counters of one namespace.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Datagrams that programs have read.
    pub(crate) read: u64,
    /// Datagrams that found a full socket buffer; joined ones count once.
    pub(crate) dropped: u64,
    /// IP packets that arrived, each part of a joined one for itself.
    pub(crate) arrived: u64,
    /// Bytes of those packets.
    pub(crate) octets: u64,
    /// Frames that its devices have received, whoever takes them.
    pub(crate) frames: u64,
}

impl Counts {
    /// Of the calling thread's namespace.
    fn now() -> Result<Self> {
        let udp = fs::read_to_string("/proc/thread-self/net/snmp")?;
        let ip = fs::read_to_string("/proc/thread-self/net/netstat")?;
        Ok(Self {
            read: field(&udp, "Udp:", "InDatagrams"),
            dropped: field(&udp, "Udp:", "RcvbufErrors"),
            arrived: field(&ip, "IpExt:", "InNoECTPkts"),
            octets: field(&ip, "IpExt:", "InOctets"),
            frames: frames(&fs::read_to_string("/proc/thread-self/net/dev")?),
        })
    }
}

/// A number from one of the kernel's tables: a line of names, then a line of values.
fn field(text: &str, table: &str, name: &str) -> u64 {
    let mut lines = text.lines().filter(|line| line.starts_with(table));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else { return 0 };
    let found = names.split_whitespace().zip(values.split_whitespace()).find(|(n, _)| *n == name);
    found.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}

/// Processor time in seconds that the host of a virtual machine has taken from it since it began.
pub(crate) fn stolen() -> Result<f64> {
    let stat = fs::read_to_string("/proc/stat")?;
    let ticks_a_second = sysconf(SysconfVar::CLK_TCK)?.context("ticks a second")?;
    Ok(stolen_ticks(&stat).context("/proc/stat")? / ticks_a_second as f64)
}

/// Of the first line of `/proc/stat` (`man 5 proc_stat`): its eighth number.
fn stolen_ticks(stat: &str) -> Option<f64> {
    stat.lines().next()?.split_whitespace().nth(8)?.parse().ok()
}

/// Frames that all devices of the kernel's table have received.
fn frames(devices: &str) -> u64 {
    let received = |line: &str| {
        // Bytes stand before it.
        line.split_once(':')?.1.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    devices.lines().filter_map(received).sum()
}

/// Counters over the time of a run.
#[derive(Clone, Debug)]
pub(crate) struct CounterSeries(Vec<(Instant, Counts)>);

impl CounterSeries {
    /// Growth of a counter a second: between the moments at which it had a sixth and nine tenths of
    /// its growth, so that neither the start nor the end of the programs counts.
    pub(crate) fn rate(&self, of: impl Fn(&Counts) -> u64) -> f64 {
        let total = self.total(&of) as f64;
        let first = self.0.first().map_or(0, |(_, counts)| of(counts)) as f64;
        let reached = |share: f64| {
            self.0.iter().find(|(_, counts)| of(counts) as f64 >= first + share * total)
        };
        let (Some(from), Some(to)) = (reached(1.0 / 6.0), reached(0.9)) else { return 0.0 };
        let seconds = to.0.duration_since(from.0).as_secs_f64();
        if seconds > 0.0 { (of(&to.1) - of(&from.1)) as f64 / seconds } else { 0.0 }
    }

    /// Growth of a counter.
    pub(crate) fn total(&self, of: impl Fn(&Counts) -> u64) -> u64 {
        let end = |counts: Option<&(Instant, Counts)>| counts.map_or(0, |(_, counts)| of(counts));
        end(self.0.last()).saturating_sub(end(self.0.first()))
    }

    /// Share of the datagrams that found a full socket buffer; of joined ones at most that.
    pub(crate) fn lost(&self, of_joined: u64) -> f64 {
        let dropped = (self.total(|counts| counts.dropped) * of_joined) as f64;
        let arrived = if of_joined > 1 {
            self.total(|counts| counts.arrived) as f64
        } else {
            self.total(|counts| counts.read) as f64 + dropped
        };
        if arrived > 0.0 { (dropped / arrived).min(1.0) } else { 1.0 }
    }
}

/// A thread in a namespace that looks on until it is told to stop.
pub(crate) struct Observer<T> {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Result<T>>,
}

impl<T: Send + 'static> Observer<T> {
    fn start(
        place: &Location,
        work: impl FnOnce(&AtomicBool, &dyn Fn()) -> Result<T> + Send + 'static,
    ) -> Result<Self> {
        let namespace = match place {
            Location::Here => None,
            Location::Namespace(name) => {
                Some(File::open(format!("/run/netns/{name}")).context("the namespace")?)
            }
        };
        let over = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&over);
        let (ready, awaited) = std::sync::mpsc::sync_channel(1);
        let thread = thread::spawn(move || {
            if let Some(namespace) = namespace {
                setns(namespace, CloneFlags::CLONE_NEWNET).context("entering the namespace")?;
            }
            work(&told, &|| ready.try_send(()).unwrap_or_default())
        });
        // A thread that fails before says so when it is stopped.
        awaited.recv_timeout(Duration::from_secs(5)).unwrap_or_default();
        Ok(Self { over, thread })
    }

    /// Ends the observer and returns what it recorded.
    pub(crate) fn stop(self) -> Result<T> {
        self.over.store(true, Ordering::Release);
        self.thread.join().map_err(|_| anyhow::anyhow!("the observer stopped on a bug"))?
    }
}

/// Looks at the counters of a namespace.
pub(crate) fn counters(place: &Location) -> Result<Observer<CounterSeries>> {
    Observer::start(place, |over, ready| {
        let mut course = Vec::new();
        loop {
            let last = over.load(Ordering::Acquire);
            course.push((Instant::now(), Counts::now()?));
            ready();
            if last {
                return Ok(CounterSeries(course));
            }
            thread::sleep(EVERY);
        }
    })
}

fn capture() -> std::io::Result<Socket> {
    let all = u16::try_from(libc::ETH_P_ALL).map_err(std::io::Error::other)?.to_be();
    Socket::new(Domain::PACKET, Type::DGRAM, Some(Protocol::from(i32::from(all))))
}

/// Fails if this user may not capture packets as they leave.
pub(crate) fn may_capture() -> std::io::Result<()> {
    capture().map(drop)
}

/// Takes the kernel's stamp of every UDP packet that leaves a namespace for a port, in nanoseconds.
pub(crate) fn departures(place: &Location, port: u16) -> Result<Observer<Vec<u64>>> {
    departures_of(place, port, |_, stamp_ns| Some(stamp_ns))
}

/// Takes what is read from the payload and the kernel's stamp of every UDP packet that leaves a namespace for a
/// port.
pub(crate) fn departures_of<T: Send + 'static>(
    place: &Location,
    port: u16,
    read: fn(&[u8], u64) -> Option<T>,
) -> Result<Observer<Vec<T>>> {
    Observer::start(place, move |over, ready| {
        let socket = capture().context("capturing packets (AF_PACKET)")?;
        socket.set_nonblocking(true)?;
        socket.attach_filter(&departing(port))?;
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
        setsockopt(&socket, sockopt::RcvBufForce, &BUFFER)?;
        let mut batch = RecvBatch::new(BATCH, KEPT);
        let mut seen = Vec::with_capacity(1 << 20);
        // What came before the filter was in place is anybody's.
        while batch.recv(socket.as_fd()).is_ok() {}
        ready();
        loop {
            let last = over.load(Ordering::Acquire);
            match batch.recv(socket.as_fd()) {
                Ok(count) => seen.extend((0..count).filter_map(|i| {
                    let packet = batch.get(i);
                    read(payload(packet.bytes)?, packet.arrived_ns?)
                })),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if last {
                        return Ok(seen);
                    }
                    thread::sleep(READ_EVERY);
                }
                Err(error) => return Err(error.into()),
            }
        }
    })
}

/// The payload of a UDP packet, from its IPv4 header on.
fn payload(packet: &[u8]) -> Option<&[u8]> {
    let words = usize::from(packet.first()? & 0xf);
    packet.get(4 * words + 8..)
}

/// Lets IPv4 packets of UDP pass that leave for a port (Linux' socket filters, `man 7 packet` and
/// Documentation/networking/filter.rst).
fn departing(port: u16) -> [SockFilter; 9] {
    /// Offset of what the kernel knows beside the bytes, and of the packet's direction there.
    const ASIDE: u32 = 0xFFFF_F000;
    const DIRECTION: u32 = 4;
    const OUTGOING: u32 = 4;
    const LOAD_WORD: u16 = 0x20;
    const LOAD_BYTE: u16 = 0x30;
    const LOAD_HALF_BEHIND: u16 = 0x48;
    const HEADER_LEN: u16 = 0xB1;
    const JUMP_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    [
        SockFilter::new(LOAD_WORD, 0, 0, ASIDE + DIRECTION),
        SockFilter::new(JUMP_EQUAL, 0, 6, OUTGOING),
        SockFilter::new(LOAD_BYTE, 0, 0, 9),
        SockFilter::new(JUMP_EQUAL, 0, 4, libc::IPPROTO_UDP.unsigned_abs()),
        SockFilter::new(HEADER_LEN, 0, 0, 0),
        SockFilter::new(LOAD_HALF_BEHIND, 0, 0, 2),
        SockFilter::new(JUMP_EQUAL, 0, 1, u32::from(port)),
        SockFilter::new(RETURN, 0, 0, 128),
        SockFilter::new(RETURN, 0, 0, 0),
    ]
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn tables_of_the_kernel_are_read_by_name() {
        let text = "Udp: InDatagrams RcvbufErrors\nUdp: 5 7\nUdpLite: InDatagrams\nUdpLite: 9\n";
        assert_eq!(field(text, "Udp:", "RcvbufErrors"), 7);
        assert_eq!(field(text, "UdpLite:", "InDatagrams"), 9);
        assert_eq!(field(text, "Udp:", "Nonsense"), 0);
    }

    #[test]
    fn stolen_time_is_that_of_all_processors() {
        let stat = "cpu  5 0 4 90 1 0 2 73 6 0\ncpu0 5 0 4 90 1 0 2 40 6 0\n";
        assert_eq!(stolen_ticks(stat), Some(73.0));
        assert_eq!(stolen_ticks("cpu 1 2"), None);
    }

    #[test]
    fn frames_of_all_devices_count() {
        let text = "Inter-| Receive\n face |bytes packets errs\n    lo: 70 2 0\n link0:9000 40 1\n";
        assert_eq!(frames(text), 42);
    }

    #[test]
    fn rates_are_of_the_middle_of_a_run() {
        let begin = Instant::now();
        // Nothing for a second, 100 a second for two, then slower.
        let course = (0..400u64).map(|i| {
            let read = if i < 100 {
                0
            } else if i < 300 {
                i - 100
            } else {
                200
            };
            (
                begin + Duration::from_millis(10 * i),
                Counts { read, dropped: 1, ..Counts::default() },
            )
        });
        let course = CounterSeries(course.collect());
        assert!((course.rate(|counts| counts.read) - 100.0).abs() < 2.0);
        assert_eq!(course.total(|counts| counts.read), 200);
        assert!(course.lost(1) < 1e-9);
    }

    #[test]
    fn only_departures_to_the_port_are_stamped() {
        if !nix::unistd::geteuid().is_root() {
            assert!(std::env::var_os("CI").is_none(), "CI must run this as root");
            itg_cli::say("NOT TESTED: capturing packets needs root");
            return;
        }
        let to = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        let other = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        let port = to.local_addr().expect("bound").port();
        let observer = departures(&Location::Here, port).expect("captures");
        let from = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        for _ in 0..5 {
            from.send_to(&[1; 40], to.local_addr().expect("bound")).expect("sent");
            from.send_to(&[1; 40], other.local_addr().expect("bound")).expect("sent");
        }
        let stamps = observer.stop().expect("captured");
        assert_eq!(stamps.len(), 5, "{stamps:?}");
        assert!(stamps.is_sorted());
    }
}
