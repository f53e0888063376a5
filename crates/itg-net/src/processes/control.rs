//! Connections of the bootstrap: one thread reads each and passes on what comes.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;

use itg_process::bootstrap::{Boot, MOST_BYTES};
use socket2::Socket;

use crate::clock;
use crate::processes::intake::{Intake, prepare};
use crate::processes::shared::now;

/// Where a slave listens unless told otherwise.
pub const PROCESS_PORT: u16 = 9010;

/// What happens on the connections of the bootstrap.
#[derive(Debug)]
pub(crate) enum Heard {
    /// A connection stands.
    Came(u32, Arc<Socket>),
    Said(u32, Boot),
    Gone(u32, String),
}

/// Reads a connection until it ends or the bootstrap is over.
pub(crate) fn listen_to(peer: u32, socket: Socket, over: &AtomicBool, heard: &Sender<Heard>) {
    if let Err(error) = prepare(&socket, true) {
        heard.send(Heard::Gone(peer, error.to_string())).unwrap_or_default();
        return;
    }
    let socket = Arc::new(socket);
    heard.send(Heard::Came(peer, Arc::clone(&socket))).unwrap_or_default();
    let mut intake = Intake::new(MOST_BYTES);
    // The state machines have the deadlines.
    let why = loop {
        match intake.hear(&socket, u64::MAX, over) {
            Ok(message) => {
                if heard.send(Heard::Said(peer, message)).is_err() {
                    return;
                }
            }
            Err(why) => break why,
        }
    };
    if !over.load(Ordering::Relaxed) {
        heard.send(Heard::Gone(peer, why)).unwrap_or_default();
    }
}

/// How long to wait for the next thing at most, before looking at deadlines and listeners again.
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
