//! Ways out of this host and into it beside its network stack: UDP datagrams as Ethernet frames that the
//! program writes itself and hands to the device (AF_XDP in copy mode), and those that it takes from there
//! before the network stack sees them ([`FrameInput`]).
//!
//! Sending: each flow keeps its socket: it reserves the source port, takes replies and what ICMP says, and tells
//! what the kernel would send (time to live, traffic class, path MTU). Route and Ethernet addresses are
//! asked for once, when the flow is opened. What is bypassed: this host's firewall rules, its queueing
//! disciplines and its counters of UDP.

mod bpf;
mod datagram;
mod filter;
pub(crate) mod frame;
mod input;
pub mod netlink;
mod raw;
mod ring;
mod trial;
mod umem;

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};

use itg_core::flow::{FlowSpec, Proto};
use socket2::{Domain, Socket, Type};

pub use self::filter::{XdpMode, XdpModeError};
use self::frame::{Ends, FrameHead};
pub use self::input::{
    Arrived, BrokenFrame, FrameDatagram, FrameInput, FrameInputOptions, FrameQueue, device_of,
};
use self::netlink::Netlink;
pub use self::raw::{EthernetPath, RawSender};
use self::ring::XdpSocket;
pub use self::trial::rate_over_a_link;
use crate::mmsg::Outgoing;
use crate::socket::{DataSocket, SocketError};
use crate::sys;
use crate::way::FramePath;
use crate::wire::Wire;

/// Batches after which a flow's socket is asked for errors that came in.
const LOOK_EVERY: u32 = 64;

/// Way in which packets leave this host, or come into it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PacketEngine {
    /// Through each flow's socket and the kernel's network stack.
    #[default]
    Socket,
    /// UDP as frames of the program's own, through AF_XDP.
    Xdp,
}

/// A text that names no engine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no engine `{0}`: expected socket or xdp")]
pub struct PacketEngineError(String);

impl PacketEngine {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Socket, Self::Xdp];

    /// As on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Socket => "socket",
            Self::Xdp => "xdp",
        }
    }

    /// Checks that it can send a flow at all.
    ///
    /// # Errors
    /// Reason why not, and what to do.
    pub fn serves(self, spec: &FlowSpec) -> Result<(), SocketError> {
        let why = match (self, spec.proto) {
            (Self::Socket, _) => return Ok(()),
            (Self::Xdp, Proto::Udp) if spec.burst.is_none() => return Ok(()),
            (Self::Xdp, Proto::Udp) => "it sends each packet by itself, not in bursts".to_owned(),
            (Self::Xdp, proto) => format!("it sends UDP only, not {proto}"),
        };
        let id = spec.id;
        let why = format!("{why}: choose --engine socket");
        Err(SocketError::new(format!("flow {id}: engine {self}"), why))
    }

    /// Checks that this host and this user have it.
    ///
    /// # Errors
    /// Reason why not, and what to do.
    pub fn available(self) -> Result<(), SocketError> {
        match self {
            Self::Socket => Ok(()),
            Self::Xdp => match Socket::new(Domain::from(libc::AF_XDP), Type::RAW, None) {
                Ok(_) => Ok(()),
                Err(error) => Err(SocketError::new(format!("engine {self}"), explain(&error))),
            },
        }
    }
}

impl fmt::Display for PacketEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for PacketEngine {
    type Err = PacketEngineError;

    fn from_str(text: &str) -> Result<Self, PacketEngineError> {
        let found = Self::ALL.into_iter().find(|engine| engine.name() == text);
        found.ok_or_else(|| PacketEngineError(text.to_owned()))
    }
}

/// Describes an error of AF_XDP, with what to do.
fn explain(error: &io::Error) -> String {
    let hint = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => "this needs root or CAP_NET_RAW",
        Some(libc::EAFNOSUPPORT) => "this kernel has no AF_XDP (CONFIG_XDP_SOCKETS)",
        Some(libc::EBUSY) => "another program uses all transmit queues of the device in this way",
        Some(libc::ENOBUFS | libc::ENOMEM) => "8 MiB of memory must be lockable (ulimit -l)",
        _ => "this device or kernel does not let frames in",
    };
    format!("{error}: {hint}; --engine socket works everywhere")
}

/// The devices of a sender's flows.
#[derive(Debug)]
pub struct Frames {
    netlink: Netlink,
    /// With the kernel's numbers of the devices.
    devices: Vec<(u32, XdpSocket)>,
}

impl Frames {
    /// Without devices yet.
    ///
    /// # Errors
    /// The kernel does not answer questions about routes.
    pub fn new() -> io::Result<Self> {
        Ok(Self { netlink: Netlink::open()?, devices: Vec::new() })
    }

    /// Finds the way of a flow, and opens its device. May wait for the neighbour, three seconds.
    ///
    /// # Errors
    /// The system's, in words where the caller shows them.
    pub fn attach(&mut self, spec: &FlowSpec, data: &mut DataSocket) -> Result<(), SocketError> {
        PacketEngine::Xdp.serves(spec)?;
        let what = format!("flow {}: engine {}", spec.id, PacketEngine::Xdp);
        data.path =
            Some(Box::new(self.find(spec, data).map_err(|why| SocketError::new(what, why))?));
        Ok(())
    }

    fn find(&mut self, spec: &FlowSpec, data: &DataSocket) -> Result<FramePath, String> {
        let (from, to) = (data.local, data.remote);
        let scope = match to {
            std::net::SocketAddr::V6(v6) if v6.scope_id() != 0 => Some(v6.scope_id()),
            _ => None,
        };
        let named = match &spec.socket.interface {
            Some(name) => Some(
                nix::net::if_::if_nametoindex(name.as_str())
                    .map_err(|_| format!("there is no interface `{name}`"))?,
            ),
            None => scope,
        };
        let route = self.netlink.route(from.ip(), to.ip(), named)?;
        let link = self.netlink.link(route.device)?;
        if !link.up {
            return Err(format!("{} is down", link.name));
        }
        let to_mac = self
            .netlink
            .neighbour(route.device, route.next_hop)
            .map_err(|why| format!("{}: {why}", link.name))?;
        let (ttl, tos, mtu) = sys::ip_settings(&data.socket, to.is_ipv6())
            .map_err(|error| format!("asking the socket what it would send: {error}"))?;
        let ends = Ends { from_mac: link.mac, to_mac, from, to, ttl, tos };
        let head = FrameHead::new(&ends).ok_or("addresses of two IP versions")?;
        let most = FrameHead::most(mtu.min(link.mtu)).min(XdpSocket::most());
        let known = self.devices.iter().position(|(device, _)| *device == route.device);
        let device = match known {
            Some(place) => place,
            None => {
                let socket = XdpSocket::open(route.device)
                    .map_err(|error| format!("{}: {}", link.name, explain(&error)))?;
                self.devices.push((route.device, socket));
                self.devices.len() - 1
            }
        };
        Ok(FramePath { device, head, most, sends: AtomicU32::new(0) })
    }
}

impl Wire for Frames {
    fn send(&mut self, flow: &DataSocket, packets: &[Outgoing<'_>]) -> io::Result<usize> {
        // Flows without a path are not given to this engine.
        let Some(path) = &flow.path else { return Err(io::ErrorKind::NotConnected.into()) };
        let sends = path.sends.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        if sends.is_multiple_of(LOOK_EVERY)
            && let Some(error) = flow.socket.take_error()?
        {
            return Err(error);
        }
        let fits = |packet: &&Outgoing<'_>| path.head.frame_len(packet) <= path.most;
        let count = packets.iter().take_while(fits).count();
        if count == 0 {
            return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
        }
        self.devices[path.device].1.send(&path.head, &packets[..count])
    }

    fn watched<'a>(&'a self, flow: &'a DataSocket) -> BorrowedFd<'a> {
        use std::os::fd::AsFd as _;
        match &flow.path {
            Some(path) => self.devices[path.device].1.watched(),
            None => flow.socket.as_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_have_names() {
        for engine in PacketEngine::ALL {
            assert_eq!(engine.to_string().parse(), Ok(engine));
        }
        let error = "dpdk".parse::<PacketEngine>().expect_err("not built").to_string();
        assert_eq!(error, "no engine `dpdk`: expected socket or xdp");
    }

    #[test]
    fn what_it_does_not_send_is_refused_in_words() {
        let mut spec = FlowSpec::new(4);
        assert!(PacketEngine::Xdp.serves(&spec).is_ok());
        spec.burst = Some(8);
        let error = PacketEngine::Xdp.serves(&spec).expect_err("bursts").to_string();
        assert!(error.contains("flow 4: engine xdp: ") && error.contains("bursts"), "{error}");
        spec.burst = None;
        spec.proto = Proto::Tcp;
        let error = PacketEngine::Xdp.serves(&spec).expect_err("tcp").to_string();
        assert!(error.contains("UDP only") && error.contains("--engine socket"), "{error}");
        assert!(PacketEngine::Socket.serves(&spec).is_ok());
    }
}
