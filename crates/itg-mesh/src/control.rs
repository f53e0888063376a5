//! Connections of the bootstrap: one thread reads each and passes on what comes.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;

use itg_process::bootstrap::{Boot, MOST_BYTES};
use itg_socket::clock;
use socket2::Socket;

use crate::frame_reader::{FrameReader, prepare};
use crate::shared::now;

/// Default port of the bootstrap, on which a slave or a master listens.
pub const PROCESS_PORT: u16 = 9010;

/// Event on a connection of the bootstrap.
#[derive(Debug)]
pub(crate) enum BootstrapEvent {
    /// A connection stands.
    Came(u32, Arc<Socket>),
    Said(u32, Boot),
    Gone(u32, String),
}

/// Reads a connection until it ends or the bootstrap is over.
pub(crate) fn listen_to(
    peer: u32,
    socket: Socket,
    over: &AtomicBool,
    heard: &Sender<BootstrapEvent>,
) {
    if let Err(error) = prepare(&socket, true) {
        heard.send(BootstrapEvent::Gone(peer, error.to_string())).unwrap_or_default();
        return;
    }
    let socket = Arc::new(socket);
    heard.send(BootstrapEvent::Came(peer, Arc::clone(&socket))).unwrap_or_default();
    let mut reader = FrameReader::new(MOST_BYTES);
    // The state machines have the deadlines.
    let why = loop {
        match reader.hear(&socket, u64::MAX, over) {
            Ok(message) => {
                if heard.send(BootstrapEvent::Said(peer, message)).is_err() {
                    return;
                }
            }
            Err(why) => break why,
        }
    };
    if !over.load(Ordering::Relaxed) {
        heard.send(BootstrapEvent::Gone(peer, why)).unwrap_or_default();
    }
}

/// Longest time to wait for the next event before deadlines and listeners are looked at again.
pub(crate) fn pause(deadline: itg_process::Time) -> std::time::Duration {
    clock::ns(deadline.since(now()).clamp(1_000_000, 20_000_000))
}

/// The address of this host by which it reaches another one.
pub(crate) fn interface_towards(other: SocketAddr) -> std::io::Result<IpAddr> {
    let any: IpAddr = match other {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    // Connecting a datagram socket asks the routing table and sends nothing.
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(other)?;
    Ok(socket.local_addr()?.ip())
}
