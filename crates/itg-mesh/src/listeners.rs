//! Listeners of a process: one socket for each kind of network, opened before it is known which of
//! them the run needs. Networks of one kind share the listener; each has connections of its own.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use itg_socket::socket::SocketError;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::kinds::Kind;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;
/// Receive buffer of the datagram socket, in bytes.
const DATAGRAM_BUFFER: usize = 4 << 20;

/// An address of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) kind: Kind,
    at: At,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum At {
    Ip(SocketAddr),
    /// A name in the abstract namespace of Unix sockets: it leaves no file behind.
    Name(String),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.at {
            At::Ip(at) => write!(f, "{} {at}", self.kind.name()),
            At::Name(name) => write!(f, "{} {name}", self.kind.name()),
        }
    }
}

impl Address {
    /// The address that [`fmt::Display`] wrote; an unspecified host is `host`, by which the process was
    /// reached.
    pub(crate) fn parse(text: &str, host: Option<IpAddr>) -> Option<Self> {
        let (kind, at) = text.split_once(' ')?;
        let ip = |kind| {
            let mut at: SocketAddr = at.parse().ok()?;
            if at.ip().is_unspecified() {
                at.set_ip(host?);
            }
            Some(Self { kind, at: At::Ip(at) })
        };
        match kind {
            "tcp" => ip(Kind::Tcp),
            "udp" => ip(Kind::Udp),
            "unix" if !at.is_empty() && at.len() < 100 => {
                Some(Self { kind: Kind::Unix, at: At::Name(at.to_owned()) })
            }
            _ => None,
        }
    }

    pub(crate) fn ip(&self) -> Option<SocketAddr> {
        match self.at {
            At::Ip(at) => Some(at),
            At::Name(_) => None,
        }
    }

    pub(crate) fn socket_address(&self) -> std::io::Result<SockAddr> {
        match &self.at {
            At::Ip(at) => Ok((*at).into()),
            At::Name(name) => SockAddr::unix(format!("\0{name}")),
        }
    }
}

/// The listeners of a process.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    pub(crate) tcp: Option<Socket>,
    pub(crate) unix: Option<Socket>,
    pub(crate) udp: Option<Socket>,
    pub(crate) addresses: Vec<Address>,
}

impl Listeners {
    /// Opens a listener of each of these kinds, on this interface and (if it is not 0) this port.
    ///
    /// # Errors
    /// The address or the port cannot be had.
    pub(crate) fn open(ip: IpAddr, port: u16, kinds: &[Kind]) -> Result<Self, SocketError> {
        let mut listeners = Self::default();
        for &kind in kinds {
            let at = SocketAddr::new(ip, port);
            let text = match kind {
                Kind::Unix => "a Unix socket".to_owned(),
                _ => format!("{} {at}", kind.name()),
            };
            let opened = match kind {
                Kind::Tcp => listener(at).map(|(socket, at)| (socket, At::Ip(at))),
                Kind::Udp => datagrams(at).map(|(socket, at)| (socket, At::Ip(at))),
                Kind::Unix => named().map(|(socket, name)| (socket, At::Name(name))),
            };
            let (socket, at) =
                opened.map_err(|error| SocketError::io(format!("listening on {text}"), &error))?;
            listeners.addresses.push(Address { kind, at });
            match kind {
                Kind::Tcp => listeners.tcp = Some(socket),
                Kind::Udp => listeners.udp = Some(socket),
                Kind::Unix => listeners.unix = Some(socket),
            }
        }
        Ok(listeners)
    }
}

/// A socket that takes TCP connections, without waiting for them, and its address.
pub(crate) fn listener(at: SocketAddr) -> std::io::Result<(Socket, SocketAddr)> {
    let socket = Socket::new(Domain::for_address(at), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&at.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    let at = own_address(&socket)?;
    Ok((socket, at))
}

fn datagrams(at: SocketAddr) -> std::io::Result<(Socket, SocketAddr)> {
    let socket = Socket::new(Domain::for_address(at), Type::DGRAM, None)?;
    // A smaller buffer than asked for is the kernel's limit, not a failure.
    if let Err(error) = socket.set_recv_buffer_size(DATAGRAM_BUFFER) {
        tracing::debug!(%error, "receive buffer of datagrams");
    }
    socket.bind(&at.into())?;
    let at = own_address(&socket)?;
    Ok((socket, at))
}

fn named() -> std::io::Result<(Socket, String)> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // Without a name the kernel picks one in the abstract namespace (unix(7), autobind).
    nix::sys::socket::bind(
        std::os::fd::AsRawFd::as_raw_fd(&socket),
        &nix::sys::socket::UnixAddr::new_unnamed(),
    )?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    let at = socket.local_addr()?;
    let name = at.as_abstract_namespace().and_then(|name| String::from_utf8(name.to_vec()).ok());
    let name = name.ok_or_else(|| std::io::Error::other("the kernel gave it no name"))?;
    Ok((socket, name))
}

/// The IP address and port of a socket of this host.
pub(crate) fn own_address(socket: &Socket) -> std::io::Result<SocketAddr> {
    socket.local_addr()?.as_socket().ok_or_else(|| std::io::Error::other("no IP address"))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        let host = Some(Ipv4Addr::new(10, 0, 0, 7).into());
        for (text, want) in [
            ("tcp 10.0.0.1:4000", Some("tcp 10.0.0.1:4000")),
            ("udp [2001:db8::1]:5", Some("udp [2001:db8::1]:5")),
            ("tcp 0.0.0.0:4000", Some("tcp 10.0.0.7:4000")),
            ("unix 000a1", Some("unix 000a1")),
            ("unix ", None),
            ("tcp 10.0.0.1", None),
            ("sctp 10.0.0.1:4", None),
            ("", None),
        ] {
            let got = Address::parse(text, host).map(|at| at.to_string());
            assert_eq!(got.as_deref(), want, "{text:?}");
        }
        assert_eq!(Address::parse("tcp 0.0.0.0:4000", None), None);
    }

    #[test]
    fn each_kind_has_its_door() {
        let listeners =
            Listeners::open(Ipv4Addr::LOCALHOST.into(), 0, &[Kind::Tcp, Kind::Unix, Kind::Udp])
                .unwrap();
        let kinds: Vec<_> = listeners.addresses.iter().map(|at| at.kind).collect();
        assert_eq!(kinds, [Kind::Tcp, Kind::Unix, Kind::Udp]);
        for address in &listeners.addresses {
            assert_eq!(Address::parse(&address.to_string(), None).as_ref(), Some(address));
            let kind = if address.kind == Kind::Udp { Type::DGRAM } else { Type::STREAM };
            let at = address.socket_address().unwrap();
            Socket::new(at.domain(), kind, None).unwrap().connect(&at).unwrap();
        }
        let taken = listeners.addresses[0].ip().unwrap();
        let error = Listeners::open(taken.ip(), taken.port(), &[Kind::Tcp]).expect_err("taken");
        assert!(error.to_string().contains("another program uses it"), "{error}");
    }
}
