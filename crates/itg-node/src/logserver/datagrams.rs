//! Blocks that come by UDP: one socket, one thread; a datagram belongs to the session whose producer has
//! shown the token of its registration from the same address.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};
use std::thread;

use itg_session::logs::{self, LogMessage, ServerInput};
use itg_socket::mmsg::RecvBatch;
use itg_socket::socket::{enlarge, plain};
use nix::poll::{PollFd, PollFlags, PollTimeout};
use socket2::{Domain, Protocol, Socket, Type};

use super::shared::{SessionInput, Shared};
use crate::lock::lock;

/// Datagrams in a batch; each may be as large as UDP allows.
const BATCH: usize = 32;
const LARGEST: usize = 65_536;
/// Longest time between two checks of whether the server has ended, in milliseconds.
const LOOK_MS: u8 = 100;
/// First bytes of every block.
const MAGIC: &[u8] = b"XPC1";

/// Opens the socket and starts the thread, which ends with the server.
pub(super) fn start(at: SocketAddr, shared: &Arc<Shared>) -> io::Result<()> {
    let socket = Socket::new(Domain::for_address(at), Type::DGRAM, Some(Protocol::UDP))?;
    if at.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    enlarge(&socket, true);
    socket.bind(&at.into())?;
    socket.set_nonblocking(true)?;
    let shared = Arc::downgrade(shared);
    thread::Builder::new().name("itg-log-udp".to_owned()).spawn(move || run(&socket, &shared))?;
    Ok(())
}

fn run(socket: &Socket, shared: &Weak<Shared>) {
    let mut batch = RecvBatch::new(BATCH, LARGEST);
    loop {
        let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
        if let Err(error) = nix::poll::poll(&mut fds, PollTimeout::from(LOOK_MS)) {
            tracing::debug!(%error, "waiting for datagrams");
        }
        let Some(shared) = shared.upgrade() else { return };
        while let Ok(count) = batch.recv(socket.as_fd()) {
            for i in 0..count {
                let datagram = batch.get(i);
                if let Some(from) = datagram.source.map(plain) {
                    deliver(&shared, from, datagram.bytes);
                }
            }
        }
    }
}

fn deliver(shared: &Shared, from: SocketAddr, bytes: &[u8]) {
    if bytes.starts_with(MAGIC) {
        // Blocks from unknown addresses are dropped here.
        let session = lock(&shared.addresses).get(&from).copied();
        if let Some(session) = session {
            shared.tell_datagram(session, bytes);
        }
    } else if let Ok(LogMessage::Bind { log_id, token, .. }) = logs::decode(bytes) {
        let session = lock(&shared.tokens).get(&token).copied();
        if let Some(session) = session {
            shared.tell(session, SessionInput::Bind(ServerInput::Bind { log_id, token }, from));
        }
    }
}
