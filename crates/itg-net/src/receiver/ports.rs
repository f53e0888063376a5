//! The data sockets of a receiver, shared by the flows that ask for the same protocol and address.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use itg_core::flow::Proto;

use super::{Opened, Shared, lock};
use crate::rx::Command;
use crate::socket::{self, SocketError};

/// Data sockets at the same time.
const MAX_SOCKETS: usize = 1024;
/// Data sockets by protocol and the address that was asked for.
#[derive(Debug, Default)]
pub(super) struct Sockets {
    open: BTreeMap<(Proto, SocketAddr), DataPort>,
    next_id: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct DataPort {
    pub(super) id: usize,
    pub(super) port: u16,
    flows: usize,
    /// Bytes of kernel memory that it may hold, where datagrams wait in it.
    pub(super) receive_buffer: Option<u64>,
}

impl Shared {
    /// The data socket for a protocol and address, opened if need be.
    pub(super) fn data_port(&self, asked: (Proto, SocketAddr)) -> Result<DataPort, SocketError> {
        let mut sockets = lock(&self.sockets);
        if let Some(data) = sockets.open.get_mut(&asked) {
            data.flows += 1;
            return Ok(*data);
        }
        let (proto, at) = asked;
        if sockets.open.len() >= MAX_SOCKETS {
            return Err(SocketError::new(
                format!("receiving {proto} on {at}"),
                format!("{MAX_SOCKETS} data sockets are open already: let flows share ports"),
            ));
        }
        let socket = socket::open_receiver(proto, at, self.options.receive_buffer)?;
        let port = match proto {
            Proto::Icmp => 0,
            _ => {
                let bound = socket.local_addr().ok().and_then(|address| address.as_socket());
                bound.map_or_else(|| at.port(), |address| address.port())
            }
        };
        let receive_buffer = match proto {
            Proto::Udp | Proto::Icmp => {
                socket.recv_buffer_size().ok().and_then(|bytes| u64::try_from(bytes).ok())
            }
            Proto::Tcp | Proto::Sctp | Proto::Dccp => None,
        };
        let id = sockets.next_id;
        sockets.next_id += 1;
        self.rx.ask(match proto {
            Proto::Udp | Proto::Icmp => {
                Command::Datagrams { id, socket, proto, v6: at.is_ipv6(), owner: None }
            }
            Proto::Tcp | Proto::Sctp | Proto::Dccp => Command::Listener { id, socket, proto },
        });
        let data = DataPort { id, port, flows: 1, receive_buffer };
        sockets.open.insert(asked, data);
        Ok(data)
    }

    /// Takes a flow off its socket, which is closed when nobody uses it, and frees its slot.
    pub(super) fn give_back(&self, opened: &Opened) {
        {
            let mut sockets = lock(&self.sockets);
            if let Some(data) = sockets.open.get_mut(&opened.socket) {
                data.flows -= 1;
                if data.flows == 0 {
                    let id = data.id;
                    sockets.open.remove(&opened.socket);
                    self.rx.ask(Command::CloseSocket { id });
                }
            }
        }
        lock(&self.slots).free.push(opened.slot);
    }
}
