//! Facts about this host that matter to a traffic generator: found out by trying, not by asking for version
//! numbers.

use std::fs;
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd;

use serde::Serialize;
use socket2::Socket;

use crate::{clock, host, mmsg, socket, sys};

/// Facts about this host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HostFacts {
    /// Its name.
    pub host: String,
    /// Kernel.
    pub os: String,
    /// Boot id: measurements of another boot may not hold.
    pub boot_id: String,
    /// Processors that this process may use.
    pub processors: usize,
    /// Frequency governor of the first processor; `None` where there is none, as in most virtual machines.
    pub governor: Option<String>,
    /// Clock source of the kernel.
    pub clock_source: Option<String>,
    /// True if the kernel takes its clock for synchronised.
    pub clock_synchronised: Option<bool>,
    /// Largest error that the kernel admits to, in nanoseconds.
    pub clock_max_error_ns: Option<u64>,
    /// Share of each period that real-time threads may run, in microseconds of a second; −1: no limit.
    pub realtime_runtime_us: Option<i64>,
    /// Receive buffer of a data socket as the kernel granted it, in bytes (it counts its own overhead too).
    pub receive_buffer_bytes: Option<usize>,
    /// Send buffer likewise.
    pub send_buffer_bytes: Option<usize>,
    /// True if arrivals carry kernel stamps.
    pub receive_stamps: bool,
    /// True if departures can be stamped by the kernel.
    pub transmit_stamps: bool,
    /// True if one UDP send can be cut into many datagrams by the kernel (GSO).
    pub udp_segmentation: bool,
    /// True if datagrams that arrive together can be read as one (GRO).
    pub udp_coalescing: bool,
}

impl HostFacts {
    /// Looks and tries. Opens sockets on the loopback interface and closes them again.
    #[must_use]
    pub fn gather() -> Self {
        let clock = sys::clock_quality();
        let probed = Probed::new().inspect_err(|error| {
            tracing::warn!(%error, "no UDP socket on the loopback interface");
        });
        let probed = probed.ok();
        let offers = |kind: fn(&Probed) -> bool| probed.as_ref().is_some_and(kind);
        let buffer = |kind: fn(&Socket) -> io::Result<usize>| {
            probed.as_ref().and_then(|probed| kind(&probed.receiver).ok())
        };
        Self {
            host: host::name(),
            os: host::os(),
            boot_id: host::boot_id(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            governor: word("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            clock_source: word("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            clock_synchronised: clock.map(|clock| clock.synchronised),
            clock_max_error_ns: clock.map(|clock| clock.max_error_ns),
            realtime_runtime_us: word("/proc/sys/kernel/sched_rt_runtime_us")
                .and_then(|text| text.parse().ok()),
            receive_buffer_bytes: buffer(Socket::recv_buffer_size),
            send_buffer_bytes: buffer(Socket::send_buffer_size),
            receive_stamps: offers(Probed::receives_stamps),
            transmit_stamps: offers(|p| {
                let flags = libc::SOF_TIMESTAMPING_TX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE;
                p.takes(libc::SOL_SOCKET, libc::SO_TIMESTAMPING, flags.cast_signed())
            }),
            udp_segmentation: offers(Probed::cuts_segments),
            udp_coalescing: offers(|p| p.takes(libc::SOL_UDP, libc::UDP_GRO, 1)),
        }
    }
}

/// Time that the hypervisor gave to others, and all time, since boot, in ticks of all processors.
#[must_use]
pub fn steal_ticks() -> Option<(u64, u64)> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    steal_of(text.lines().next()?)
}

/// The line `cpu user nice system idle iowait irq softirq steal guest guest_nice` of /proc/stat; guest
/// time is part of user time.
fn steal_of(line: &str) -> Option<(u64, u64)> {
    let words = line.strip_prefix("cpu ")?.split_whitespace().take(8);
    let ticks: Vec<u64> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
    Some((*ticks.get(7)?, ticks.iter().sum()))
}

/// Mean cost of a call, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Costs {
    /// Reading the clock.
    pub clock_ns: f64,
    /// A system call that does nothing.
    pub system_call_ns: f64,
}

impl Costs {
    /// Measures for some milliseconds.
    #[must_use]
    pub fn measure() -> Self {
        Self {
            clock_ns: mean_ns(100_000, || {
                std::hint::black_box(clock::monotonic_ns());
            }),
            system_call_ns: mean_ns(50_000, || {
                std::hint::black_box(nix::unistd::getppid());
            }),
        }
    }
}

/// The least mean of five rounds: what disturbs only adds.
fn mean_ns(calls: u32, call: impl Fn()) -> f64 {
    let round = || {
        let start_ns = clock::monotonic_ns();
        (0..calls).for_each(|_| call());
        (clock::monotonic_ns() - start_ns) as f64 / f64::from(calls)
    };
    (0..5).map(|_| round()).fold(f64::INFINITY, f64::min)
}

fn word(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// Two connected sockets to try things on.
struct Probed {
    sender: UdpSocket,
    receiver: Socket,
}

impl Probed {
    fn new() -> io::Result<Self> {
        let receiver = UdpSocket::bind("127.0.0.1:0")?;
        let sender = UdpSocket::bind("127.0.0.1:0")?;
        sender.connect(receiver.local_addr()?)?;
        receiver.set_nonblocking(true)?;
        let receiver = Socket::from(receiver);
        socket::enlarge(&receiver, true);
        socket::enlarge(&receiver, false);
        Ok(Self { sender, receiver })
    }

    fn takes(&self, level: i32, option: i32, value: i32) -> bool {
        sys::set_int(&self.receiver, level, option, value).is_ok()
    }

    fn receives_stamps(&self) -> bool {
        socket::ask_for_stamps(&self.receiver).is_ok()
            && self.sender.send(b"stamp").is_ok()
            && self.arrivals().is_some_and(|batch| batch.get(0).arrived_ns.is_some())
    }

    /// Returns true if one send of four times 100 bytes arrives as four datagrams.
    fn cuts_segments(&self) -> bool {
        let arrivals = || {
            sys::set_int(&self.sender, libc::SOL_UDP, libc::UDP_SEGMENT, 100).ok()?;
            self.sender.send(&[0; 400]).ok()?;
            let mut batch = mmsg::RecvBatch::new(8, 8);
            batch.recv(self.receiver.as_fd()).ok()
        };
        let found = arrivals() == Some(4);
        sys::set_int(&self.sender, libc::SOL_UDP, libc::UDP_SEGMENT, 0).unwrap_or_default();
        found
    }

    fn arrivals(&self) -> Option<mmsg::RecvBatch> {
        let mut batch = mmsg::RecvBatch::new(8, 8);
        (batch.recv(self.receiver.as_fd()).ok()? > 0).then_some(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_is_described() {
        let facts = HostFacts::gather();
        assert!(facts.processors > 0);
        assert!(facts.receive_stamps, "every Linux stamps datagrams: {facts:?}");
        assert!(facts.receive_buffer_bytes > Some(1_000), "{facts:?}");
        let costs = Costs::measure();
        assert!(costs.clock_ns > 0.0 && costs.system_call_ns > 0.0, "{costs:?}");
    }

    #[test]
    fn steal_time() {
        for (line, want) in [
            ("cpu  10 20 30 40 50 60 70 80 90 100", Some((80, 360))),
            ("cpu  1 2 3 4 5 6 7", None),
            ("cpu0 1 2 3 4 5 6 7 8", None),
            ("cpu  1 2 3 x 5 6 7 8", None),
        ] {
            assert_eq!(steal_of(line), want, "{line}");
        }
    }
}
