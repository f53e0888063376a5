//! Packets whose time the kernel keeps: `SO_TXTIME`, where the queueing discipline of the way out is `fq`
//! (CLOCK_MONOTONIC) or `etf` (CLOCK_TAI).
//!
//! Every kernel since 4.19 takes the socket option and the time of each packet, and all queueing disciplines but
//! these two send at once. So what is asked for is tried: two packets without contents to the discard port
//! of the receiver's host, to be held for different times, whose transmit stamps tell when they left.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

use itg_core::flow::{FlowSpec, Meter, Proto};
use itg_core::units::format_duration_ns;
use nix::sched::{CloneFlags, unshare};
use socket2::{Domain, Protocol, Socket, Type};

use crate::errqueue::{self, ErrorQueue, ErrorReport};
use crate::mmsg::{self, Outgoing};
use crate::socket::{DataSocket, SocketError};
use crate::way::{TimedBy, TxClock};
use crate::xdp::netlink::Netlink;
use crate::{clock, sys};

/// Packets are handed over at most so long before they are due: 1 ms.
pub const AHEAD_NS: u64 = 1_000_000;
/// The sending thread is to be awake so long before a packet is due: 0.5 ms.
pub const WAKE_AHEAD_NS: u64 = 500_000;
/// One of so many packets is stamped where nothing else is asked for: without stamps it is not known when
/// packets left.
pub const STAMP_EVERY: u32 = 16;

/// `fq` as it should be: as it comes it has room for 100 packets of a socket and 10 000 of all.
const FQ: &str = "fq flow_limit 10000 limit 100000";
/// Discard port of the receiver's host (RFC 863), on which no program is expected to listen.
const DISCARD: u16 = 9;
/// Times for which the packets of the probe ask to be held: 10 ms and 35 ms.
const HOLD_NS: [u64; 2] = [10_000_000, 35_000_000];
/// A packet was held as asked for if it left at most so long before its time, 0.1 ms, or behind, 8 ms: two
/// that were delayed alike by something else cannot both fit.
const EARLY_NS: i64 = 100_000;
const LATE_NS: i64 = 8_000_000;
/// A queueing discipline that lets packets go so long before their time does not keep it: 5 ms, less than what tells
/// the probe's packets apart.
const MOST_EARLY_NS: u64 = 5_000_000;
/// Number of times that the probe is tried on a host too busy to tell.
const ROUNDS: usize = 3;
/// Longest wait for the stamp of the first packet, which may have to ask for an Ethernet address: 1 s.
const FIRST_NS: u64 = 1_000_000_000;
/// Between two looks for stamps: 1 ms.
const LOOK_NS: u64 = 1_000_000;

/// Reason why the kernel does not keep the times of a flow's packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Unkept {
    why: String,
    /// True if departures are not stamped at all: the device cannot be tried, for any receiver.
    unstamped: bool,
}

impl From<String> for Unkept {
    fn from(why: String) -> Self {
        Self { why, unstamped: false }
    }
}

/// Checks that a flow can be sent so at all.
///
/// # Errors
/// Reason why not, and what to do.
pub fn serves(spec: &FlowSpec) -> Result<(), SocketError> {
    let why = match spec.proto {
        Proto::Udp if spec.burst.is_some() => {
            "each packet has its own time, which packets of a burst do not".to_owned()
        }
        Proto::Udp if spec.max_burst.is_some() => {
            "packets are handed over together ahead of their time, so that max-burst means nothing"
                .to_owned()
        }
        Proto::Udp if spec.meter == Meter::Rtt => {
            "departures of round trips are not stamped, so nobody would know when they left"
                .to_owned()
        }
        Proto::Udp => return Ok(()),
        proto => format!("it sends UDP only, not {proto}"),
    };
    let what = format!("flow {}: --pacing txtime", spec.id);
    Err(SocketError::new(what, format!("{why}: choose another level")))
}

/// Has a socket pass on times of packets by this clock, tell which of them could not be kept, and refuse those that the
/// queueing discipline has no room for: without the last option they would count as sent.
fn switch_on(socket: &Socket, clock: TxClock) -> io::Result<()> {
    // struct sock_txtime: clock, flags.
    let words = [clock.number().cast_unsigned(), libc::SOF_TXTIME_REPORT_ERRORS];
    sys::set_bytes(socket, libc::SOL_SOCKET, libc::SO_TXTIME, &words)?;
    let (level, option) = match socket.domain()? {
        Domain::IPV6 => (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
        _ => (libc::IPPROTO_IP, libc::IP_RECVERR),
    };
    sys::set_int(socket, level, option, 1)
}

/// Results of the probes of the ways out of this host.
#[derive(Debug, Default)]
pub struct Ways(Vec<(u32, IpAddr, Result<TimedBy, Unkept>)>);

impl Ways {
    /// Gives the times of a flow's packets to the kernel. Probes each way once: for some 50 ms where times are kept,
    /// up to half a second where packets vanish or the host is busy, and each device without stamps for a second.
    ///
    /// # Errors
    /// Reason why times are not kept there, and what to do.
    pub fn attach(&mut self, spec: &FlowSpec, data: &DataSocket) -> Result<TimedBy, SocketError> {
        serves(spec)?;
        let fail =
            |why: String| SocketError::new(format!("flow {}: --pacing txtime", spec.id), why);
        let named = spec.socket.interface.as_deref();
        let device = way_out(data, named).map_err(fail)?;
        let host = data.remote.ip();
        let known = self.0.iter().find(|(at, to, kept)| {
            *at == device && (*to == host || kept.as_ref().is_err_and(|unkept| unkept.unstamped))
        });
        let kept = match known {
            Some((_, _, kept)) => kept.clone(),
            None => {
                let kept = find(data, named, device);
                self.0.push((device, host, kept.clone()));
                kept
            }
        };
        let kept = kept.map_err(|unkept| fail(unkept.why))?;
        switch_on(&data.socket, kept.clock).map_err(|error| fail(error.to_string()))?;
        Ok(kept)
    }
}

/// The device through which a flow's packets leave.
fn way_out(data: &DataSocket, named: Option<&str>) -> Result<u32, String> {
    let scope = match data.remote {
        SocketAddr::V6(v6) if v6.scope_id() != 0 => Some(v6.scope_id()),
        _ => None,
    };
    let device = match named {
        Some(name) => {
            Some(nix::net::if_::if_nametoindex(name).map_err(|e| format!("{name}: {e}"))?)
        }
        None => scope,
    };
    let netlink = Netlink::open().map_err(|error| format!("asking for the route: {error}"))?;
    netlink.way_out(data.local.ip(), data.remote.ip(), device)
}

/// Finds the keeper of times on the way out; the reason when there is none.
fn find(data: &DataSocket, named: Option<&str>, device: u32) -> Result<TimedBy, Unkept> {
    let name = nix::net::if_::if_indextoname(device)
        .map_or_else(|_| format!("device {device}"), |name| name.to_string_lossy().into_owned());
    let found = Netlink::open().and_then(|netlink| netlink.discipline(device));
    let early_ns =
        found.as_ref().map_or(0, |found| found.as_ref().map_or(0, |found| found.early_ns));
    let discipline = match found {
        Ok(Some(found)) => format!("the queueing discipline `{}` of {name}", found.kind),
        Ok(None) => format!("{name}, which has no queueing discipline,"),
        Err(error) => {
            format!("the queueing discipline of {name} (which cannot be asked for: {error})")
        }
    };
    let mut tried = Vec::new();
    for clock in TxClock::ALL {
        match probe(data, named, clock, early_ns) {
            Ok(()) => return Ok(TimedBy { clock, by: format!("{discipline} by {clock}") }),
            Err(Unkept { why, unstamped: true }) => {
                let why = format!("{discipline} cannot be tried: {why}; take another level");
                return Err(Unkept { why, unstamped: true });
            }
            Err(Unkept { why, .. }) => tried.push(format!("{why} ({clock})")),
        }
    }
    let mend = match kernel_has("fq") {
        Some(false) if kernel_has("etf") == Some(true) => {
            "this kernel has no `fq`, but `etf`, which `tc` can set up for devices that have it"
                .to_owned()
        }
        Some(false) => {
            "this kernel has neither `fq` nor `etf` (CONFIG_NET_SCH_FQ, CONFIG_NET_SCH_ETF): \
                        take another level"
                .to_owned()
        }
        Some(true) => format!("as root, `tc qdisc replace dev {name} root {FQ}` mends it"),
        None => format!(
            "as root, `tc qdisc replace dev {name} root {FQ}` mends it, if this kernel has `fq` \
             (CONFIG_NET_SCH_FQ)"
        ),
    };
    let tried = tried.join("; ");
    Err(format!("{discipline} does not keep the times of packets: {tried}; {mend}").into())
}

/// Returns true if this kernel has a queueing discipline: found out on the loopback device of a network
/// namespace that is made for it, by root; `None` where that fails. It may load a module.
fn kernel_has(kind: &'static str) -> Option<bool> {
    let tried = std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).ok()?;
        let device = nix::net::if_::if_nametoindex("lo").ok()?;
        let made = Netlink::open().ok()?.set_discipline(device, kind);
        // One that is there may still miss its parameters.
        Some(made.map_or_else(|error| error.raw_os_error() != Some(libc::ENOENT), |()| true))
    });
    tried.join().ok().flatten()
}

/// A socket to the discard port of the receiver's host, on the same way out.
fn discard(data: &DataSocket, named: Option<&str>) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(data.remote), Type::DGRAM, Some(Protocol::UDP))?;
    socket.bind_device(named.map(str::as_bytes))?;
    let (mut from, mut to) = (data.local, data.remote);
    from.set_port(0);
    socket.bind(&from.into())?;
    to.set_port(DISCARD);
    socket.connect(&to.into())?;
    Ok(socket)
}

/// Tries whether packets that leave as those of this flow do are held until their time, or until so long before it as
/// the queueing discipline was told.
fn probe(
    data: &DataSocket,
    named: Option<&str>,
    clock: TxClock,
    early_ns: u64,
) -> Result<(), Unkept> {
    // Without a time of its own: finds the way, and shows that departures are stamped at all. `etf` says
    // that it has none.
    if departure(data, named, clock, 0, FIRST_NS)?.is_none() {
        let why = "departures are not stamped there, so nobody knows when packets leave".to_owned();
        return Err(Unkept { why, unstamped: true });
    }
    let mut found = Err(String::new());
    for _ in 0..ROUNDS {
        found = HOLD_NS.into_iter().try_for_each(|hold_ns| {
            let due_ns = clock::monotonic_ns() + hold_ns;
            let due_unix_ns = clock::unix_ns() + hold_ns;
            let at_ns = due_ns.wrapping_add(clock.offset_ns());
            let wait_ns = hold_ns + 2 * LATE_NS.unsigned_abs();
            match departure(data, named, clock, at_ns, wait_ns)? {
                Some(ErrorReport::Left { unix_ns, .. }) => {
                    judge(hold_ns, due_unix_ns, unix_ns, early_ns)
                }
                Some(ErrorReport::Missed | ErrorReport::Invalid) => {
                    Err("a packet was dropped for its time".to_owned())
                }
                None => Err("a packet vanished".to_owned()),
            }
        });
        if found.is_ok() {
            break;
        }
    }
    Ok(found?)
}

/// Checks that a packet was held as asked for.
fn judge(hold_ns: u64, due_unix_ns: u64, left_unix_ns: u64, early_ns: u64) -> Result<(), String> {
    let late_ns = left_unix_ns.wrapping_sub(due_unix_ns).cast_signed();
    let asked = format_duration_ns(hold_ns);
    if late_ns.saturating_add_unsigned(early_ns.min(MOST_EARLY_NS)) < -EARLY_NS {
        let early = format_duration_ns(late_ns.unsigned_abs() / 1_000 * 1_000);
        Err(format!("a packet to be held for {asked} left {early} early"))
    } else if late_ns > LATE_NS {
        let late = format_duration_ns(late_ns.unsigned_abs() / 1_000 * 1_000);
        Err(format!("a packet to be held for {asked} left {late} late"))
    } else {
        Ok(())
    }
}

/// Sends a packet without contents and awaits what the kernel says of it, `wait_ns` at most. It has a socket of its
/// own, so that what is said late of another one is not taken for it.
fn departure(
    data: &DataSocket,
    named: Option<&str>,
    clock: TxClock,
    at_ns: u64,
    wait_ns: u64,
) -> Result<Option<ErrorReport>, String> {
    let socket = discard(data, named).map_err(|error| format!("no socket to try it: {error}"))?;
    switch_on(&socket, clock).map_err(|error| match error.raw_os_error() {
        Some(libc::EPERM) => "only root may choose that clock".to_owned(),
        _ => format!("SO_TXTIME: {error}"),
    })?;
    errqueue::ask_for_departures(&socket).map_err(|error| format!("transmit stamps: {error}"))?;
    let mut packet = Outgoing::new(&[], &[]);
    packet.order.at_ns = at_ns;
    packet.order.stamp = true;
    let until_ns = clock::monotonic_ns() + wait_ns;
    match mmsg::send(socket.as_fd(), &[packet]) {
        // `etf` refuses a packet without a time; it would stamp one that has one.
        Err(error) if at_ns == 0 && error.raw_os_error() == Some(libc::ENOBUFS) => {
            return Ok(Some(ErrorReport::Invalid));
        }
        sent => sent.map_err(|error| format!("a packet with a time was refused: {error}"))?,
    };
    let mut queue = ErrorQueue::new();
    let mut heard = None;
    loop {
        queue.read(socket.as_fd(), |said| heard = Some(said));
        if heard.is_some() || clock::monotonic_ns() >= until_ns {
            return Ok(heard);
        }
        clock::sleep_until(clock::monotonic_ns() + LOOK_NS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::open_sender;
    use crate::way::ETF_AHEAD_NS;

    #[test]
    fn what_it_does_not_send_is_refused_in_words() {
        type Edit = fn(&mut FlowSpec);
        let rows: [(Edit, Option<&str>); 5] = [
            (|_| {}, None),
            (|spec| spec.burst = Some(8), Some("of a burst")),
            (|spec| spec.max_burst = Some(8), Some("max-burst")),
            (|spec| spec.meter = Meter::Rtt, Some("round trips")),
            (|spec| spec.proto = Proto::Tcp, Some("UDP only, not tcp")),
        ];
        for (edit, want) in rows {
            let mut spec = FlowSpec::new(3);
            edit(&mut spec);
            let said = serves(&spec).map_err(|error| error.to_string());
            match want {
                None => assert_eq!(said, Ok(())),
                Some(want) => {
                    let said = said.expect_err(want);
                    let head = said.starts_with("flow 3: --pacing txtime: ");
                    assert!(head && said.contains(want), "{said}");
                }
            }
        }
    }

    #[test]
    fn only_a_packet_that_left_at_its_time_was_held() {
        let due = 1_000_000_000_000;
        for (left, want) in [
            (due, None),
            (due - 90_000, None),
            (due + 7_900_000, None),
            (due - 9_990_000, Some("a packet to be held for 10ms left 9.99ms early")),
            (due + 25_000_000, Some("a packet to be held for 10ms left 25ms late")),
        ] {
            assert_eq!(judge(10_000_000, due, left, 0).err().as_deref(), want);
        }
        // `etf` lets packets go by its `delta` before their time.
        assert_eq!(judge(10_000_000, due, due - 390_000, 300_000), Ok(()));
        judge(10_000_000, due, due - 410_000, 300_000).expect_err("more than that");
        // A queue that delays everything alike satisfies one of the probe's packets at most.
        for delay in (0..60_000_000).step_by(100_000) {
            let held =
                HOLD_NS.map(|hold| judge(hold, due, due - hold + delay, MOST_EARLY_NS).is_ok());
            assert!(held != [true; 2], "{delay} ns");
        }
    }

    #[test]
    fn etf_is_given_packets_in_time() {
        let (due, least) = (1_000_000_000, ETF_AHEAD_NS);
        for (clock, now, want) in [
            (TxClock::Monotonic, due - 700_000, 700_000),
            (TxClock::Monotonic, due - 10, 10),
            (TxClock::Monotonic, due + 10, 0),
            (TxClock::Tai, due - 700_000, 700_000),
            (TxClock::Tai, due - 10, least),
            (TxClock::Tai, due + 10, least),
        ] {
            let kept = TimedBy { clock, by: String::new() };
            assert_eq!(kept.ahead_ns(due, now), want, "{clock}, {now}");
        }
    }

    #[test]
    fn a_socket_refuses_what_the_queue_has_no_room_for() {
        use nix::sys::socket::{getsockopt, sockopt};
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let to = std::net::UdpSocket::bind(address).expect("loopback");
            let target = to.local_addr().expect("bound");
            let data = open_sender(&FlowSpec::new(1), target).expect("loopback");
            let refuses = || {
                if target.is_ipv4() {
                    getsockopt(&data.socket, sockopt::Ipv4RecvErr)
                } else {
                    getsockopt(&data.socket, sockopt::Ipv6RecvErr)
                }
            };
            assert_eq!(refuses(), Ok(false), "{address}");
            switch_on(&data.socket, TxClock::Monotonic).expect("every Linux since 4.19");
            assert_eq!(refuses(), Ok(true), "{address}");
        }
    }

    #[test]
    fn a_device_without_stamps_is_tried_once_for_all_hosts() {
        let to = std::net::UdpSocket::bind("127.0.0.1:0").expect("loopback");
        let spec = FlowSpec::new(2);
        let data = open_sender(&spec, to.local_addr().expect("bound")).expect("loopback");
        let device = way_out(&data, None).expect("lo");
        let elsewhere = "127.0.0.9".parse().expect("an address");
        for (at, unstamped, want) in
            [(device, true, true), (device, false, false), (device + 1, true, false)]
        {
            let known = Unkept { why: "known already".to_owned(), unstamped };
            let mut ways = Ways(vec![(at, elsewhere, Err(known))]);
            let error = ways.attach(&spec, &data).expect_err("lo holds nothing").to_string();
            assert_eq!(error.contains("known already"), want, "{error}");
            assert_eq!(ways.0.len(), if want { 1 } else { 2 });
        }
    }

    #[test]
    fn a_socket_takes_times_and_sends_in_order() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let to = std::net::UdpSocket::bind(address).expect("loopback");
            let target = to.local_addr().expect("bound");
            let data = open_sender(&FlowSpec::new(1), target).expect("loopback");
            switch_on(&data.socket, TxClock::Monotonic).expect("every Linux since 4.19");
            errqueue::ask_for_departures(&data.socket).expect("every Linux");
            let bodies: Vec<_> = (0..40u8).map(|i| [i; 4]).collect();
            let now = clock::monotonic_ns();
            let packets: Vec<_> = (now..)
                .step_by(1_000)
                .zip(&bodies)
                .map(|(at_ns, body)| {
                    let mut packet = Outgoing::new(b"head", body);
                    packet.order.at_ns = at_ns;
                    packet.order.stamp = true;
                    packet
                })
                .collect();
            assert_eq!(mmsg::send(data.socket.as_fd(), &packets).expect("sent"), 40, "{address}");
            to.set_read_timeout(Some(std::time::Duration::from_secs(5))).expect("a socket");
            for body in &bodies {
                let mut bytes = [0; 16];
                assert_eq!(to.recv(&mut bytes).expect("arrived"), 8);
                assert_eq!(&bytes[4..8], body, "{address}");
            }
            let mut stamps = 0;
            ErrorQueue::new().read(data.socket.as_fd(), |said| {
                assert!(matches!(said, ErrorReport::Left { .. }), "{said:?}");
                stamps += 1;
            });
            assert_eq!(stamps, 40, "{address}: a time and a stamp for the same packet");
        }
    }

    /// The loopback device has no queue that could keep times, for any user and any kernel.
    #[test]
    fn a_way_out_that_keeps_no_times_is_named_with_what_mends_it() {
        let to = std::net::UdpSocket::bind("127.0.0.1:0").expect("loopback");
        let spec = FlowSpec::new(2);
        let data = open_sender(&spec, to.local_addr().expect("bound")).expect("loopback");
        let error = Ways::default().attach(&spec, &data).expect_err("lo holds nothing").to_string();
        assert!(error.starts_with("flow 2: --pacing txtime: "), "{error}");
        assert!(
            error.contains("`noqueue` of lo") && error.contains("early (CLOCK_MONOTONIC)"),
            "{error}"
        );
        let root = nix::unistd::geteuid().is_root();
        match kernel_has("fq") {
            Some(false) => assert!(root && error.contains("this kernel has "), "{error}"),
            known => {
                assert_eq!(known.is_some(), root, "{error}");
                let mend = format!("`tc qdisc replace dev lo root {FQ}` mends it");
                assert!(error.contains(&mend), "{error}");
            }
        }
        assert_eq!(kernel_has("pfifo"), root.then_some(true), "every kernel has it");
        assert_eq!(kernel_has("no_such"), root.then_some(false));
    }
}
