//! The data sockets of a receiver, shared by the flows that ask for the same protocol and address.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use itg_core::flow::Proto;

use super::{Opened, Shared, lock};
use crate::rx::{Command, Port};
use crate::socket::{self, ReceiverWishes, SocketError};

/// Data sockets at the same time.
const MAX_SOCKETS: usize = 1024;
/// Data sockets by protocol and the address that was asked for.
#[derive(Debug, Default)]
pub(super) struct Sockets {
    open: BTreeMap<Asked, DataPort>,
    next_id: usize,
}

/// Which socket a flow uses.
#[derive(Clone, Copy, Debug)]
pub(super) enum Taken {
    /// One that others may use.
    Shared(Asked),
    /// Its own, under this number.
    Own(usize),
}

/// Which data socket a flow asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Asked {
    pub(super) proto: Proto,
    pub(super) at: SocketAddr,
    /// Whether its packets are D-ITG's.
    pub(super) classic: bool,
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
    pub(super) fn data_port(&self, asked: Asked, tos: u8) -> Result<DataPort, SocketError> {
        let mut sockets = lock(&self.sockets);
        if let Some(data) = sockets.open.get_mut(&asked) {
            data.flows += 1;
            return Ok(*data);
        }
        let Asked { proto, at, classic } = asked;
        if sockets.open.len() >= MAX_SOCKETS {
            return Err(SocketError::new(
                format!("receiving {proto} on {at}"),
                format!("{MAX_SOCKETS} data sockets are open already: let flows share ports"),
            ));
        }
        let wishes = ReceiverWishes {
            buffer: self.options.receive_buffer,
            classic,
            interface: self.options.classic.interface.as_deref().filter(|_| classic),
            tos,
        };
        let socket = socket::open_receiver(proto, at, wishes)?;
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
        let place = Port { id, proto, v6: at.is_ipv6(), owner: None, classic };
        self.rx.ask(match proto {
            Proto::Udp | Proto::Icmp => Command::Datagrams(place, socket),
            Proto::Tcp | Proto::Sctp | Proto::Dccp => Command::Listener(place, socket),
        });
        let data = DataPort { id, port, flows: 1, receive_buffer };
        sockets.open.insert(asked, data);
        Ok(data)
    }

    /// A number for a socket that no other flow shares.
    pub(super) fn own_port(&self) -> usize {
        let mut sockets = lock(&self.sockets);
        sockets.next_id += 1;
        sockets.next_id - 1
    }

    /// Takes a flow off its socket, which is closed when nobody uses it, and frees its slot.
    pub(super) fn give_back(&self, opened: &Opened) {
        {
            let mut sockets = lock(&self.sockets);
            match &opened.socket {
                Taken::Shared(asked) => {
                    if let Some(data) = sockets.open.get_mut(asked) {
                        data.flows -= 1;
                        if data.flows == 0 {
                            let id = data.id;
                            sockets.open.remove(asked);
                            self.rx.ask(Command::CloseSocket { id });
                        }
                    }
                }
                Taken::Own(id) => self.rx.ask(Command::CloseSocket { id: *id }),
            }
        }
        lock(&self.slots).free.push(opened.slot);
    }
}
