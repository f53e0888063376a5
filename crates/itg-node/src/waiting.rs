//! A data socket to which the receiver comes first, through a NAT for instance: D-ITG's passive mode, and flows
//! whose receiver has asked for them.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use itg_core::flow::FlowSpec;
use itg_socket::socket::{DataSocket, SocketError, plain};
use itg_socket::sys;
use socket2::{Protocol, Socket, Type};

/// Time between two checks of whether it is to be given up.
const LOOK: Duration = Duration::from_millis(200);
/// Time for a look when there is none left.
const LEAST_LOOK: Duration = Duration::from_millis(1);
/// Bytes of an opening datagram that are read.
const OPENING_MAX: usize = 64;

/// A data socket without a peer.
#[derive(Debug)]
pub(crate) struct Waiting {
    socket: Socket,
    tcp: bool,
    what: String,
}

/// The peer that is waited for.
pub(crate) struct Awaited<'a> {
    /// The address that it must have; any when `None`.
    pub(crate) only: Option<IpAddr>,
    /// The bytes of its first datagram; any when `None`.
    pub(crate) opening: Option<&'a [u8]>,
    /// Instant by which it must have come; what has come by then is taken even later.
    pub(crate) until: Instant,
    /// Tells when nobody waits any more.
    pub(crate) give_up: &'a dyn Fn() -> bool,
    /// Advice where somebody else came.
    pub(crate) advice: &'a str,
}

/// Opens the data socket of a flow at this address.
pub(crate) fn open(spec: &FlowSpec, at: SocketAddr) -> Result<Waiting, SocketError> {
    let what = format!("flow {}: waiting for its receiver on {at}", spec.id);
    let fail = |error: io::Error| SocketError::new(what.clone(), error.to_string());
    let tcp = spec.proto.properties().is_stream;
    let (kind, protocol) =
        if tcp { (Type::STREAM, Protocol::TCP) } else { (Type::DGRAM, Protocol::UDP) };
    let (socket, at) = itg_socket::open_at(at, kind, protocol).map_err(fail)?;
    if at.is_ipv6() {
        socket.set_only_v6(false).map_err(fail)?;
    }
    if let Some(name) = &spec.socket.interface {
        socket.bind_device(Some(name.as_bytes())).map_err(fail)?;
    }
    socket.set_reuse_address(tcp).map_err(fail)?;
    socket.bind(&at.into()).map_err(fail)?;
    if tcp {
        socket.listen(1).map_err(fail)?;
    }
    Ok(Waiting { socket, tcp, what })
}

impl Waiting {
    /// The port at which it waits.
    pub(crate) fn port(&self) -> io::Result<u16> {
        let address = self.socket.local_addr()?.as_socket();
        address.map(|address| address.port()).ok_or_else(|| ErrorKind::AddrNotAvailable.into())
    }

    /// Waits for the receiver: connections and datagrams of others are passed over.
    pub(crate) fn meet(self, awaited: &Awaited<'_>) -> Result<DataSocket, SocketError> {
        let fail = |error: io::Error| SocketError::new(self.what.clone(), error.to_string());
        let mut stranger = None;
        let (socket, peer) = loop {
            let left = awaited.until.saturating_duration_since(Instant::now());
            self.socket.set_read_timeout(Some(left.clamp(LEAST_LOOK, LOOK))).map_err(fail)?;
            let came = if self.tcp {
                self.socket.accept().map(|(socket, peer)| (socket, peer.as_socket(), true))
            } else {
                self.first_datagram(awaited.opening)
            };
            match came {
                Ok((socket, peer, right)) => {
                    let ip = peer.map(|peer| plain(peer).ip());
                    if right && (awaited.only.is_none() || awaited.only == ip) {
                        break (socket, peer);
                    }
                    stranger = ip;
                }
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return Err(fail(error)),
            }
            if (awaited.give_up)() || left.is_zero() {
                let why = stranger.map_or_else(
                    || "it does not come".to_owned(),
                    |stranger| format!("it does not come, {stranger} did: {}", awaited.advice),
                );
                return Err(SocketError::new(self.what, why));
            }
        };
        let peer = peer.ok_or_else(|| fail(ErrorKind::AddrNotAvailable.into()))?;
        if !self.tcp {
            socket.connect(&peer.into()).map_err(fail)?;
        }
        let remote = plain(peer);
        let local = socket.local_addr().map_err(fail)?.as_socket().map_or(remote, plain);
        socket.set_nonblocking(true).map_err(fail)?;
        let socket = Arc::new(socket);
        Ok(DataSocket { socket, local, remote, raw_v4: false, path: None, kept: None })
    }

    /// The next datagram's source, and whether its bytes are these.
    fn first_datagram(
        &self,
        opening: Option<&[u8]>,
    ) -> io::Result<(Socket, Option<SocketAddr>, bool)> {
        let mut bytes = BytesMut::with_capacity(OPENING_MAX);
        let from = sys::receive_from(&self.socket, &mut bytes)?;
        let right = opening.is_none_or(|opening| bytes == opening);
        Ok((self.socket.try_clone()?, from, right))
    }
}
