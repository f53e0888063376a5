//! Passive mode: a data socket to which the receiver comes first, through a NAT for instance.

use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use itg_core::flow::{FlowSpec, Proto};
use itg_socket::socket::{DataSocket, SocketError, peer_of, plain};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::sender::GiveUp;

/// Longest time in which the receiver must come, as with its answers: 100 s.
const PATIENCE: Duration = Duration::from_secs(100);
/// Time between two checks of whether it is to be given up.
const LOOK: Duration = Duration::from_millis(200);

/// A data socket without a peer.
#[derive(Debug)]
pub(super) struct Waiting {
    socket: Socket,
    tcp: bool,
    what: String,
}

/// Opens the data socket of a flow at `source`, or at all addresses.
pub(super) fn open(
    spec: &FlowSpec,
    source: Option<IpAddr>,
    port: u16,
) -> Result<Waiting, SocketError> {
    let at = SocketAddr::new(source.unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED)), port);
    let what = format!("flow {}: waiting for its receiver on {at}", spec.id);
    let fail = |error: io::Error| SocketError::new(what.clone(), error.to_string());
    let tcp = spec.proto == Proto::Tcp;
    let (kind, protocol) =
        if tcp { (Type::STREAM, Protocol::TCP) } else { (Type::DGRAM, Protocol::UDP) };
    let socket = Socket::new(Domain::for_address(at), kind, Some(protocol)).map_err(fail)?;
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
    socket.set_read_timeout(Some(LOOK)).map_err(fail)?;
    Ok(Waiting { socket, tcp, what })
}

impl Waiting {
    /// Waits for the receiver, at this address alone if there is one: connections and datagrams from
    /// elsewhere are passed over.
    pub(super) fn meet(
        self,
        only: Option<IpAddr>,
        give_up: &GiveUp,
    ) -> Result<DataSocket, SocketError> {
        let fail = |error: io::Error| SocketError::new(self.what.clone(), error.to_string());
        let deadline = Instant::now() + PATIENCE;
        let mut stranger = None;
        let (socket, peer) = loop {
            if give_up.is_asked() || Instant::now() >= deadline {
                let why = stranger.map_or_else(
                    || "it does not come".to_owned(),
                    |stranger| {
                        format!(
                            "it does not come, {stranger} did: data goes only where the signalling \
                             went, or start ITGSend with --allow-third-party"
                        )
                    },
                );
                return Err(SocketError::new(self.what, why));
            }
            let came = if self.tcp { self.socket.accept() } else { self.first_datagram() };
            match came {
                Ok((socket, peer)) => {
                    let ip = peer_of(&peer).map(|peer| peer.ip());
                    if only.is_none() || only == ip {
                        break (socket, peer);
                    }
                    stranger = ip;
                }
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return Err(fail(error)),
            }
        };
        if !self.tcp {
            socket.connect(&peer).map_err(fail)?;
        }
        let remote = peer_of(&peer).ok_or_else(|| fail(ErrorKind::AddrNotAvailable.into()))?;
        let local = socket.local_addr().map_err(fail)?.as_socket().map_or(remote, plain);
        socket.set_nonblocking(true).map_err(fail)?;
        Ok(DataSocket { socket, local, remote, raw_v4: false, path: None, kept: None })
    }

    fn first_datagram(&self) -> io::Result<(Socket, SockAddr)> {
        let (_, from) = self.socket.recv_from(&mut [MaybeUninit::uninit(); 64])?;
        Ok((self.socket.try_clone()?, from))
    }
}
