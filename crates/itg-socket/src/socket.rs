//! Opening the sockets of flows: options in one place, every refusal with what was asked and what can be done.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::Duration;

use itg_core::flow::{FlowSpec, Meter, Proto, SocketOptions};
use itg_core::units::BitRate;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::connecting::not_connected;
use crate::sys;
use crate::way::{FramePath, TimedBy};

/// Receive buffer asked for unless told otherwise, in bytes: room for some 40 000 small packets, or for 5 ms of joined
/// ones at 50 Gbit/s, while their reader waits for a processor.
pub const RECEIVE_BUFFER: usize = 32 << 20;
/// Send buffer asked for.
const SEND_BUFFER: usize = 2 << 20;
/// DCCP's socket type and its service code option (linux/dccp.h).
const SOCK_DCCP: i32 = 6;
const SOL_DCCP: i32 = 269;
const DCCP_SOCKOPT_SERVICE: i32 = 2;
/// Options for the ICMP types that a raw socket lets pass (linux/icmp.h, RFC 3542 for version 6).
const SOL_RAW: i32 = 255;
const ICMP_FILTER: i32 = 1;
const ICMPV6_FILTER: i32 = 1;

/// ICMP message types that ITG sends and looks for.
pub mod icmp_type {
    /// Echo request of ICMP.
    pub const ECHO_V4: u8 = 8;
    /// Echo reply of ICMP.
    pub const ECHO_REPLY_V4: u8 = 0;
    /// Echo request of ICMPv6.
    pub const ECHO_V6: u8 = 128;
    /// Echo reply of ICMPv6.
    pub const ECHO_REPLY_V6: u8 = 129;
}

/// Advice for when each flow's socket is one file too many.
const TOO_MANY_FILES: &str = ": each flow has a socket of its own; raise the limit on open files (ulimit -Hn), let flows share sockets (--sockets), or send fewer";
/// Advice for when no source port is left, which connecting says by EAGAIN.
const NO_PORT: &str =
    ": no source port is free; let flows share sockets (--sockets), or send fewer";

/// A socket that cannot be had, in words for the user.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {why}")]
pub struct SocketError {
    /// Attempted operation.
    pub what: String,
    /// Reason of the refusal, and what to do.
    pub why: String,
}

impl SocketError {
    /// A refusal in words.
    pub fn new(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self { what: what.into(), why: why.into() }
    }

    /// A refusal by the system, with what can be done about it.
    pub fn io(what: String, error: &io::Error) -> Self {
        let hint = match error.raw_os_error() {
            Some(libc::EADDRINUSE) => ": another program uses it; choose another port",
            Some(libc::EADDRNOTAVAIL) => ": no interface of this host has that address",
            Some(libc::EACCES | libc::EPERM) => ": this needs root or a capability",
            Some(libc::ENODEV) => ": there is no such interface",
            Some(libc::EMFILE) => TOO_MANY_FILES,
            Some(libc::EAGAIN) => NO_PORT,
            _ => "",
        };
        Self { what, why: format!("{error}{hint}") }
    }
}

/// Finds the address of `HOST`, `HOST:PORT`, `[V6]:PORT` or `V6%ZONE`; `port` serves where none is
/// given. Waits for the system's resolver.
///
/// # Errors
/// A name that does not resolve, or a text that is no address.
pub fn resolve(text: &str, port: u16) -> Result<SocketAddr, SocketError> {
    let fail = |why: String| SocketError::new(format!("address `{text}`"), why);
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, tail) = rest
                .split_once(']')
                .ok_or_else(|| fail("`[` without `]`: write [2001:db8::1]:9000".to_owned()))?;
            match tail.strip_prefix(':') {
                Some(digits) => (host, parse_port(text, digits)?),
                None if tail.is_empty() => (host, port),
                None => return Err(fail("text after `]`: write [2001:db8::1]:9000".to_owned())),
            }
        }
        None => match text.split_once(':') {
            Some((host, digits)) if !digits.contains(':') => (host, parse_port(text, digits)?),
            _ => (text, port),
        },
    };
    if let Some((ip, zone)) = host.split_once('%') {
        let ip: Ipv6Addr =
            ip.parse().map_err(|_| fail("only IPv6 addresses have a zone".to_owned()))?;
        let scope = zone.parse().ok().map_or_else(
            || {
                nix::net::if_::if_nametoindex(zone)
                    .map_err(|_| fail(format!("there is no interface `{zone}`")))
            },
            Ok,
        )?;
        return Ok(SocketAddr::V6(SocketAddrV6::new(ip, port, 0, scope)));
    }
    if let Ok(ip) = host.parse::<IpAddr>() {
        if matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local()) {
            return Err(fail(format!(
                "a link-local address needs the interface of this host: write {ip}%eth0"
            )));
        }
        return Ok(SocketAddr::new(ip, port));
    }
    if host.is_empty() {
        return Err(fail("the host is missing".to_owned()));
    }
    let mut found = (host, port)
        .to_socket_addrs()
        .map_err(|error| fail(format!("{error}: check the name or use a number")))?;
    found.next().ok_or_else(|| fail("the name has no address".to_owned()))
}

fn parse_port(text: &str, digits: &str) -> Result<u16, SocketError> {
    digits.parse().map_err(|_| {
        SocketError::new(
            format!("address `{text}`"),
            format!("`{digits}` is not a port: expected 0 to 65535"),
        )
    })
}

/// A sender's data socket.
#[derive(Debug)]
pub struct DataSocket {
    /// The socket: the flow's own, unless flows share it.
    pub socket: Arc<Socket>,
    /// Its own address.
    pub local: SocketAddr,
    /// The receiver's address.
    pub remote: SocketAddr,
    /// True if the program writes ICMP's checksum (raw IPv4); otherwise the kernel does.
    pub raw_v4: bool,
    /// Way on which its packets leave when they do not go through the socket.
    pub path: Option<Box<FramePath>>,
    /// Keeper of the times of its packets, when it is not the sending thread.
    pub kept: Option<Box<TimedBy>>,
}

/// Opens, sets up and connects the data socket of a flow. Connecting TCP, SCTP or DCCP waits at
/// most five seconds.
///
/// # Errors
/// The system's, in words where the caller shows them.
pub fn open_sender(spec: &FlowSpec, target: SocketAddr) -> Result<DataSocket, SocketError> {
    let flow = spec.id;
    let proto = spec.proto;
    let options = &spec.socket;
    let what = |step: &str| format!("flow {flow}: {step}");
    let (socket, raw_v4) =
        new_socket(proto, target.ip()).map_err(|why| SocketError::new(what("socket"), why))?;
    let fail = |step: String| move |error: io::Error| SocketError::io(what(&step), &error);
    if let Some(name) = &options.interface {
        socket
            .bind_device(Some(name.as_bytes()))
            .map_err(fail(format!("binding to interface {name}")))?;
    }
    let v6 = target.is_ipv6();
    set_up(&socket, spec, v6)?;
    if options.source.is_some() || options.source_port.is_some() {
        let port = options.source_port.unwrap_or(0);
        let any =
            if v6 { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { IpAddr::V4(Ipv4Addr::UNSPECIFIED) };
        let mut source = match &options.source {
            Some(text) => resolve(text, port)?,
            None => SocketAddr::new(any, port),
        };
        source.set_port(port);
        if source.is_ipv6() != v6 {
            return Err(SocketError::new(
                what(&format!("source address {}", source.ip())),
                format!("is not of the same IP version as the destination {}", target.ip()),
            ));
        }
        if port != 0 && proto == Proto::Tcp {
            socket.set_reuse_address(true).map_err(fail("setting SO_REUSEADDR".to_owned()))?;
        }
        socket.bind(&source.into()).map_err(fail(format!("binding to {source}")))?;
    }
    let mut remote = target;
    if !proto.properties().has_ports {
        remote.set_port(0);
    }
    match proto.properties().is_connected {
        false => socket.connect(&remote.into()),
        true => socket.connect_timeout(&remote.into(), Duration::from_secs(5)),
    }
    .map_err(|error| not_connected(&what("connecting"), &error, proto, target))?;
    socket.set_nonblocking(true).map_err(fail("switching to non-blocking".to_owned()))?;
    let local = socket
        .local_addr()
        .and_then(|a| a.as_socket().ok_or_else(|| io::ErrorKind::AddrNotAvailable.into()))
        .map_err(fail("asking for the local address".to_owned()))?;
    Ok(DataSocket { socket: Arc::new(socket), local, remote, raw_v4, path: None, kept: None })
}

/// Returns true for flows that can leave through one socket with others: their packets alone tell them apart.
#[must_use]
pub fn can_share(spec: &FlowSpec) -> bool {
    spec.proto == Proto::Udp && spec.meter == Meter::Owd
}

/// Gives the data socket of a sender what its flow asks for: marks, buffers, options of TCP.
///
/// # Errors
/// The system's, in words where the caller shows them.
pub fn set_up(socket: &Socket, spec: &FlowSpec, v6: bool) -> Result<(), SocketError> {
    let (flow, proto, options) = (spec.id, spec.proto, &spec.socket);
    let what = |step: &str| format!("flow {flow}: {step}");
    let fail = |step: String| move |error: io::Error| SocketError::io(what(&step), &error);
    if let Some(ttl) = options.ttl {
        if v6 {
            socket.set_unicast_hops_v6(u32::from(ttl))
        } else {
            socket.set_ttl_v4(u32::from(ttl))
        }
        .map_err(fail(format!("setting the time to live to {ttl}")))?;
    }
    if let Some(tos) = options.tos {
        set_class(socket, v6, tos)
            .map_err(fail(format!("setting the traffic class to {tos:#04x}")))?;
    }
    if spec.shape.dont_fragment {
        let [level, option, whole] = if v6 {
            [libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO]
        } else {
            [libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO]
        };
        let done = sys::set_int(socket, level, option, whole);
        done.map_err(fail("letting no packet be cut".to_owned()))?;
    }
    if proto == Proto::Tcp {
        socket.set_tcp_nodelay(!options.nagle).map_err(fail("setting TCP_NODELAY".to_owned()))?;
        if let Some(name) = &options.congestion {
            socket.set_tcp_congestion(name.as_bytes()).map_err(|error| {
                SocketError::new(
                    what(&format!("congestion control `{name}`")),
                    format!("{error}: this kernel lets this user choose {}", congestion_controls()),
                )
            })?;
        }
        if let Some(mss) = spec.shape.mss {
            socket
                .set_tcp_mss(mss)
                .map_err(fail(format!("setting a largest segment of {mss} bytes")))?;
        }
        if let Some(bits) = options.pacing_rate {
            sys::set_u64(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, bits / 8)
                .map_err(fail(format!("setting a pacing rate of {}", BitRate(bits))))?;
        }
        return Ok(());
    }
    if proto == Proto::Sctp && !options.nagle {
        send_at_once(socket).map_err(fail("setting SCTP_NODELAY".to_owned()))?;
    }
    enlarge(socket, false);
    // Replies come in bursts where packets that were held up have left in one.
    if spec.meter == Meter::Rtt && !proto.properties().is_connected {
        enlarge(socket, true);
    }
    Ok(())
}

/// A flow as its receiver is asked for it. Packets that leave by an interface of their own, or are routed by
/// their class, may have another source address than the signalling: the receiver must know.
pub fn with_source(spec: &FlowSpec, receiver: SocketAddr) -> FlowSpec {
    let mut spec = spec.clone();
    let options = &spec.socket;
    if options.source.is_none() && (options.interface.is_some() || options.tos.is_some()) {
        let usual = local_towards(receiver, None, None);
        let own = local_towards(receiver, options.interface.as_deref(), options.tos);
        // What goes wrong there does so again when the flow's socket is opened.
        if let (Ok(usual), Ok(own)) = (usual, own)
            && usual != own
        {
            spec.socket.source = Some(own.to_string());
        }
    }
    spec
}

/// The address of this host from which packets go there.
fn local_towards(to: SocketAddr, interface: Option<&str>, tos: Option<u8>) -> io::Result<IpAddr> {
    let socket = towards(to, interface, tos, None)?;
    let local = socket.local_addr()?.as_socket();
    local.map(|local| local.ip()).ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
}

/// A socket whose packets would go there. Nothing is sent.
fn towards(
    to: SocketAddr,
    interface: Option<&str>,
    tos: Option<u8>,
    from: Option<SocketAddr>,
) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(to), Type::DGRAM, Some(Protocol::UDP))?;
    if let Some(name) = interface {
        socket.bind_device(Some(name.as_bytes()))?;
    }
    if let Some(tos) = tos {
        set_class(&socket, to.is_ipv6(), tos)?;
    }
    if let Some(from) = from {
        socket.bind(&from.into())?;
    }
    socket.connect(&to.into())?;
    Ok(socket)
}

/// Largest IP packet, in bytes, that goes whole from here to an address with these options, as far as the kernel knows:
/// that of the device, or of the route, or what a router has said.
///
/// # Errors
/// There is no way there, or the options cannot be met.
pub fn path_mtu(to: SocketAddr, options: &SocketOptions) -> io::Result<usize> {
    let from = options.source.as_deref().map(|source| resolve(source, 0)).transpose();
    let from = from.map_err(io::Error::other)?;
    let socket = towards(to, options.interface.as_deref(), options.tos, from)?;
    Ok(sys::ip_settings(&socket, to.is_ipv6())?.2)
}

/// The names of the congestion controls that may be chosen, in words.
fn congestion_controls() -> String {
    // Root may choose any that is loaded.
    let list = if nix::unistd::geteuid().is_root() { "available" } else { "allowed" };
    let path = format!("/proc/sys/net/ipv4/tcp_{list}_congestion_control");
    match std::fs::read_to_string(&path) {
        Ok(names) => names.split_whitespace().collect::<Vec<_>>().join(", "),
        Err(error) => format!("those of {path} ({error})"),
    }
}

/// The socket of a protocol, and whether it is a raw IPv4 one.
fn new_socket(proto: Proto, peer: IpAddr) -> Result<(Socket, bool), String> {
    let domain = if peer.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let plain = |kind, protocol| {
        Socket::new(domain, kind, Some(protocol)).map(|s| (s, false)).map_err(|error| {
            match error.raw_os_error() {
                Some(libc::EPROTONOSUPPORT | libc::ESOCKTNOSUPPORT | libc::EAFNOSUPPORT) => {
                    format!(
                        "the kernel of this host has no {proto}{}: use udp or tcp",
                        match proto {
                            Proto::Sctp => " (module sctp)",
                            Proto::Dccp => " (removed from Linux 6.16 on)",
                            _ => "",
                        }
                    )
                }
                Some(libc::EMFILE) => format!("{error}{TOO_MANY_FILES}"),
                _ => error.to_string(),
            }
        })
    };
    match proto {
        Proto::Udp => plain(Type::DGRAM, Protocol::UDP),
        Proto::Tcp => plain(Type::STREAM, Protocol::TCP),
        Proto::Sctp => plain(Type::STREAM, Protocol::from(libc::IPPROTO_SCTP)),
        Proto::Dccp => {
            let (socket, raw) = plain(Type::from(SOCK_DCCP), Protocol::from(libc::IPPROTO_DCCP))?;
            sys::set_int(&socket, SOL_DCCP, DCCP_SOCKOPT_SERVICE, 0).map_err(|e| e.to_string())?;
            Ok((socket, raw))
        }
        Proto::Icmp => {
            let protocol = if peer.is_ipv4() { Protocol::ICMPV4 } else { Protocol::ICMPV6 };
            match Socket::new(domain, Type::RAW, Some(protocol)) {
                Ok(socket) => {
                    let reply = if peer.is_ipv4() {
                        icmp_type::ECHO_REPLY_V4
                    } else {
                        icmp_type::ECHO_REPLY_V6
                    };
                    pass_only(&socket, peer.is_ipv6(), reply).map_err(|e| e.to_string())?;
                    Ok((socket, peer.is_ipv4()))
                }
                Err(_) => Socket::new(domain, Type::DGRAM, Some(protocol))
                    .map(|socket| (socket, false))
                    .map_err(|error| {
                        format!(
                            "{error}: ICMP needs root, CAP_NET_RAW, or a group within \
                             net.ipv4.ping_group_range"
                        )
                    }),
            }
        }
    }
}

pub(crate) fn set_class(socket: &Socket, v6: bool, tos: u8) -> io::Result<()> {
    if v6 { socket.set_tclass_v6(u32::from(tos)) } else { socket.set_tos_v4(u32::from(tos)) }
}

/// Lets a raw ICMP socket receive one type of message only.
fn pass_only(socket: &Socket, v6: bool, icmp_type: u8) -> io::Result<()> {
    if v6 {
        let mut blocked = [u32::MAX; 8];
        blocked[usize::from(icmp_type >> 5)] &= !(1 << (icmp_type & 31));
        sys::set_bytes(socket, libc::IPPROTO_ICMPV6, ICMPV6_FILTER, &blocked)
    } else {
        sys::set_bytes(socket, SOL_RAW, ICMP_FILTER, &[!(1u32 << icmp_type)])
    }
}

/// Lets a raw ICMP socket receive everything but one type of message.
fn pass_but(socket: &Socket, v6: bool, icmp_type: u8) -> io::Result<()> {
    if v6 {
        let mut blocked = [0; 8];
        blocked[usize::from(icmp_type >> 5)] |= 1 << (icmp_type & 31);
        sys::set_bytes(socket, libc::IPPROTO_ICMPV6, ICMPV6_FILTER, &blocked)
    } else {
        sys::set_bytes(socket, SOL_RAW, ICMP_FILTER, &[1u32 << icmp_type])
    }
}

/// Requested settings of a receiver's socket.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReceiverWishes<'a> {
    /// Receive buffer, in bytes.
    pub buffer: Option<usize>,
    /// True if packets of D-ITG arrive: its ICMP messages may be of any type but a reply's.
    pub classic: bool,
    /// Interface to bind to; a refusal is a warning.
    pub interface: Option<&'a str>,
    /// Traffic class of what is sent back.
    pub tos: u8,
    /// True if the port may be opened several times (see [`spread`]).
    pub shared: bool,
}

/// A receiver's socket for one protocol and port.
///
/// # Errors
/// The system's, in words where the caller shows them.
pub fn open_receiver(
    proto: Proto,
    at: SocketAddr,
    wishes: ReceiverWishes<'_>,
) -> Result<Socket, SocketError> {
    let what = format!("receiving {proto} on {at}");
    let fail = |error: io::Error| SocketError::io(what.clone(), &error);
    let domain = Domain::for_address(at);
    let socket = if proto == Proto::Icmp {
        let (protocol, echo, reply) = if at.is_ipv4() {
            (Protocol::ICMPV4, icmp_type::ECHO_V4, icmp_type::ECHO_REPLY_V4)
        } else {
            (Protocol::ICMPV6, icmp_type::ECHO_V6, icmp_type::ECHO_REPLY_V6)
        };
        let socket = Socket::new(domain, Type::RAW, Some(protocol)).map_err(|error| {
            SocketError::new(
                what.clone(),
                format!("{error}: a receiver of ICMP needs root or CAP_NET_RAW"),
            )
        })?;
        if wishes.classic {
            pass_but(&socket, at.is_ipv6(), reply).map_err(fail)?;
        } else {
            pass_only(&socket, at.is_ipv6(), echo).map_err(fail)?;
        }
        socket
    } else {
        new_socket(proto, at.ip()).map_err(|why| SocketError::new(what.clone(), why))?.0
    };
    // A raw ICMPv6 socket is of version 6 only anyway, and refuses the option.
    if at.is_ipv6() && proto != Proto::Icmp {
        socket.set_only_v6(true).map_err(fail)?;
    }
    if proto.properties().is_connected {
        socket.set_reuse_address(true).map_err(fail)?;
    } else {
        ask_for_buffer(&socket, true, wishes.buffer.unwrap_or(RECEIVE_BUFFER));
        // What is sent back to a burst is a burst.
        enlarge(&socket, false);
        ask_for_stamps(&socket).map_err(fail)?;
    }
    if let Some(name) = wishes.interface
        && let Err(error) = socket.bind_device(Some(name.as_bytes()))
    {
        tracing::warn!(%error, name, "data is not bound to the interface");
    }
    if wishes.tos != 0
        && let Err(error) = set_class(&socket, at.is_ipv6(), wishes.tos)
    {
        tracing::warn!(%error, "what is sent back has no traffic class");
    }
    if wishes.shared {
        socket.set_reuse_port(true).map_err(fail)?;
    }
    let mut bind_to = at;
    if !proto.properties().has_ports {
        bind_to.set_port(0);
    }
    socket.bind(&bind_to.into()).map_err(fail)?;
    if proto.properties().is_connected {
        socket.listen(1024).map_err(fail)?;
    }
    socket.set_nonblocking(true).map_err(fail)?;
    Ok(socket)
}

/// Local end of a socket towards a passive peer.
#[derive(Clone, Copy, Debug)]
pub struct Towards<'a> {
    /// Own address, when one was asked for.
    pub local: Option<IpAddr>,
    /// Own port.
    pub port: u16,
    /// Interface to bind to; a refusal is a warning.
    pub interface: Option<&'a str>,
    /// Traffic class of what is sent back.
    pub tos: u8,
    /// Largest segment that the sender is told.
    pub mss: Option<u32>,
}

/// A receiver's socket, connected to a sender that waits for it: at most five seconds for TCP.
///
/// # Errors
/// The system's, in words where the caller shows them.
pub fn open_towards(
    proto: Proto,
    remote: SocketAddr,
    from: &Towards<'_>,
) -> Result<Socket, SocketError> {
    let what = format!("receiving {proto} from {remote}");
    let fail = |error: io::Error| SocketError::io(what.clone(), &error);
    if !matches!(proto, Proto::Udp | Proto::Tcp) {
        return Err(SocketError::new(what, "only UDP and TCP have a passive mode"));
    }
    let (socket, _) =
        new_socket(proto, remote.ip()).map_err(|why| SocketError::new(what.clone(), why))?;
    if let Some(name) = from.interface
        && let Err(error) = socket.bind_device(Some(name.as_bytes()))
    {
        tracing::warn!(%error, name, "data is not bound to the interface");
    }
    if from.tos != 0
        && let Err(error) = set_class(&socket, remote.is_ipv6(), from.tos)
    {
        tracing::warn!(%error, "what is sent back has no traffic class");
    }
    socket.set_reuse_address(proto == Proto::Tcp).map_err(fail)?;
    if proto == Proto::Udp {
        ask_for_buffer(&socket, true, RECEIVE_BUFFER);
        ask_for_stamps(&socket).map_err(fail)?;
    }
    if let Some(mss) = from.mss {
        socket.set_tcp_mss(mss).map_err(fail)?;
    }
    let any: IpAddr = match remote {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let local = SocketAddr::new(from.local.unwrap_or(any), from.port);
    socket.bind(&local.into()).map_err(fail)?;
    match proto {
        Proto::Udp => socket.connect(&remote.into()),
        _ => socket.connect_timeout(&remote.into(), Duration::from_secs(5)),
    }
    .map_err(fail)?;
    socket.set_nonblocking(true).map_err(fail)?;
    Ok(socket)
}

/// Asks for the kernel's receive stamp, TTL and traffic class with each datagram.
///
/// # Errors
/// The system's, in words where the caller shows them.
pub fn ask_for_stamps(socket: &impl AsFd) -> io::Result<()> {
    sys::set_int(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
    let asks = [
        (libc::IPPROTO_IP, libc::IP_RECVTTL),
        (libc::IPPROTO_IP, libc::IP_RECVTOS),
        (libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT),
        (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS),
    ];
    // Each family answers its own two and refuses the others: both are optional.
    for (level, option) in asks {
        if let Err(error) = sys::set_int(socket, level, option, 1) {
            tracing::trace!(fd = socket.as_fd().as_raw_fd(), level, option, %error, "not told");
        }
    }
    Ok(())
}

/// Opens a socket for this address; for all addresses of IPv4 instead of `::` where the kernel has no IPv6. It is not bound
/// yet.
///
/// # Errors
/// The system's.
pub fn open_at(at: SocketAddr, kind: Type, protocol: Protocol) -> io::Result<(Socket, SocketAddr)> {
    let open = |at| Ok((Socket::new(Domain::for_address(at), kind, Some(protocol))?, at));
    open(at).or_else(|error: io::Error| {
        let all = at.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        if !all || error.raw_os_error() != Some(libc::EAFNOSUPPORT) {
            return Err(error);
        }
        open(SocketAddr::from((Ipv4Addr::UNSPECIFIED, at.port())))
    })
}

/// Opens a TCP port; on `::` it serves IPv4 too, and IPv4 alone where the kernel has no IPv6.
///
/// # Errors
/// The system's.
pub fn listen(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let (socket, address) = open_at(address, Type::STREAM, Protocol::TCP)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(1024)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Lets the kernel hand over datagrams of one flow joined, as it got them from its network stack
/// (UDP_GRO): those of a burst. They share a stamp.
///
/// # Errors
/// The system's, in words where the caller shows them.
pub fn join(socket: &impl AsFd) -> io::Result<()> {
    sys::set_int(socket, libc::SOL_UDP, libc::UDP_GRO, 1)
}

/// Lets the kernel look for packets at the network card for so many microseconds before it sleeps.
///
/// # Errors
/// The system's, in words where the caller shows them.
pub fn busy_poll(socket: &impl AsFd, us: u32) -> io::Result<()> {
    sys::set_int(
        socket,
        libc::SOL_SOCKET,
        libc::SO_BUSY_POLL,
        i32::try_from(us).unwrap_or(i32::MAX),
    )
}

/// Spreads the packets of a port that `count` sockets share over them, in the order in which they were
/// opened: after the first byte of the packet, the low byte of the number of its flow.
///
/// # Errors
/// The system's, in words where the caller shows them.
pub fn spread(socket: &Socket, count: usize) -> io::Result<()> {
    let count = u32::try_from(count).map_err(io::Error::other)?;
    // Classic BPF: A = byte 0 of the payload; A = A mod count; return A.
    let step = |code, k| libc::sock_filter { code, jt: 0, jf: 0, k };
    sys::choose_socket(socket, &mut [step(0x30, 0), step(0x94, count), step(0x16, 0)])
}

/// Has SCTP send each message when it is handed over, not with later ones (`SCTP_NODELAY`, RFC 6458).
///
/// # Errors
/// The system's.
pub fn send_at_once(socket: &impl AsFd) -> io::Result<()> {
    sys::set_int(socket, libc::IPPROTO_SCTP, libc::SCTP_NODELAY, 1)
}

/// Asks for a large buffer.
pub fn enlarge(socket: &Socket, receive: bool) {
    ask_for_buffer(socket, receive, if receive { RECEIVE_BUFFER } else { SEND_BUFFER });
}

/// Asks for a buffer of this many bytes; beyond the system's limit only root gets it.
fn ask_for_buffer(socket: &Socket, receive: bool, size: usize) {
    let force = if receive { libc::SO_RCVBUFFORCE } else { libc::SO_SNDBUFFORCE };
    let bytes = i32::try_from(size).unwrap_or(i32::MAX);
    if sys::set_int(socket, libc::SOL_SOCKET, force, bytes).is_ok() {
        return;
    }
    let granted = if receive {
        socket.set_recv_buffer_size(size).and_then(|()| socket.recv_buffer_size())
    } else {
        socket.set_send_buffer_size(size).and_then(|()| socket.send_buffer_size())
    };
    match granted {
        Ok(granted) => tracing::debug!(granted, asked = size, receive, "socket buffer"),
        Err(error) => tracing::debug!(%error, receive, "socket buffer stays as it is"),
    }
}

/// The address of a connected peer, without IPv4-in-IPv6 disguise.
pub fn peer_of(address: &SockAddr) -> Option<SocketAddr> {
    address.as_socket().map(plain)
}

/// An address without IPv4-in-IPv6 disguise.
#[must_use]
pub fn plain(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) => match v6.ip().to_ipv4_mapped() {
            Some(ip) => SocketAddr::new(IpAddr::V4(ip), v6.port()),
            None => address,
        },
        SocketAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::SockRef;

    use crate::{end_when_silent, without_probes};

    #[test]
    fn addresses() {
        for (text, want) in [
            ("127.0.0.1", Ok("127.0.0.1:9000")),
            ("127.0.0.1:80", Ok("127.0.0.1:80")),
            ("::1", Ok("[::1]:9000")),
            ("[::1]", Ok("[::1]:9000")),
            ("[::1]:80", Ok("[::1]:80")),
            ("fe80::1%lo", Ok("[fe80::1%1]:9000")),
            ("[fe80::1%lo]:80", Ok("[fe80::1%1]:80")),
            (
                "127.0.0.1:http",
                Err("address `127.0.0.1:http`: `http` is not a port: expected 0 to 65535"),
            ),
            ("[::1", Err("address `[::1`: `[` without `]`: write [2001:db8::1]:9000")),
            ("fe80::1%nope0", Err("address `fe80::1%nope0`: there is no interface `nope0`")),
            (":80", Err("address `:80`: the host is missing")),
            (
                "fe80::1",
                Err("address `fe80::1`: a link-local address needs the interface of this host: \
                     write fe80::1%eth0"),
            ),
        ] {
            let got = resolve(text, 9000).map(|a| a.to_string()).map_err(|e| e.to_string());
            assert_eq!(got, want.map(str::to_owned).map_err(str::to_owned), "input {text:?}");
        }
    }

    #[test]
    fn options_of_tcp_are_set_and_what_the_kernel_has_not_is_named() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback");
        let target = listener.local_addr().expect("bound");
        let mut spec = FlowSpec::new(3);
        spec.proto = Proto::Tcp;
        spec.socket.congestion = Some("reno".to_owned());
        spec.socket.pacing_rate = Some(8_000_000);
        let data = open_sender(&spec, target).expect("every kernel has reno");
        let name = data.socket.tcp_congestion().expect("a name");
        assert!(name.starts_with(b"reno"), "{name:?}");
        assert_eq!(
            sys::tcp_info(&data.socket).map(|info| info.max_pacing_rate_bps),
            Some(8_000_000)
        );
        spec.socket.congestion = Some("nosuch".to_owned());
        let error = open_sender(&spec, target).expect_err("no such control").to_string();
        let start = "flow 3: congestion control `nosuch`: ";
        assert!(error.starts_with(start) && error.contains("reno"), "{error}");
    }

    #[test]
    fn connections_notice_silence() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback");
        let near = std::net::TcpStream::connect(listener.local_addr().expect("bound")).expect("up");
        end_when_silent(&near, Duration::from_secs(4)).expect("Linux has both");
        let socket = SockRef::from(&near);
        assert_eq!(socket.tcp_user_timeout().expect("set"), Some(Duration::from_secs(4)));
        assert!(socket.keepalive().expect("set"));
        assert_eq!(socket.tcp_keepalive_time().expect("set"), Duration::from_secs(2));
        without_probes(&near).expect("Linux has it");
        assert!(!socket.keepalive().expect("set"));
        assert_eq!(socket.tcp_user_timeout().expect("set"), Some(Duration::from_secs(4)));
    }

    #[test]
    fn a_missing_protocol_is_named() {
        let mut spec = FlowSpec::new(3);
        spec.proto = Proto::Dccp;
        let target = "127.0.0.1:8999".parse().expect("an address");
        let error = open_sender(&spec, target).expect_err("no DCCP here, or nobody listens");
        assert!(error.to_string().starts_with("flow 3: "), "{error}");
    }
}
