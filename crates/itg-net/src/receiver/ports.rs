//! The data sockets of a receiver, shared by the flows that ask for the same protocol and address.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use itg_core::flow::{FlowSpec, Proto};
use itg_record::FlowInfo;

use super::{Opened, Shared, lock};
use crate::host;
use crate::live::FlowLive;
use crate::rx::{ClassicRx, Command, Port, RxFlow, RxHandle};
use crate::socket::{self, ReceiverWishes, SocketError};

/// Data sockets at the same time.
const MAX_SOCKETS: usize = 1024;
/// Data sockets by protocol and the address that was asked for.
#[derive(Debug, Default)]
pub(super) struct Sockets {
    open: BTreeMap<Asked, DataPort>,
    next_id: usize,
}

impl Sockets {
    /// The socket for this: asked for in the same words, or under the port that the system chose for it.
    fn find(&mut self, asked: Asked) -> Option<&mut DataPort> {
        let mut known = asked;
        if !self.open.contains_key(&asked) {
            let chosen = Asked { at: SocketAddr::new(asked.at.ip(), 0), ..asked };
            if asked.at.port() != 0
                && self.open.get(&chosen).is_some_and(|data| data.port == asked.at.port())
            {
                known = chosen;
            }
        }
        self.open.get_mut(&known)
    }

    /// Why flows of another kind leave no room at that port.
    fn others(&self, asked: Asked) -> Option<String> {
        let Asked { proto, at, classic, joined } = asked;
        let there = self.open.values().map(|data| (data.asked, data.port)).find(|(other, port)| {
            let (one, two) = (other.at.ip(), at.ip());
            let meet = one == two
                || one.is_ipv4() == two.is_ipv4() && (one.is_unspecified() || two.is_unspecified());
            other.proto == proto && *port == at.port() && at.port() != 0 && meet
        });
        let (there, _) = there?;
        if there.classic != classic {
            let (there, these) =
                if classic { ("ITG's own", "D-ITG's") } else { ("D-ITG's", "ITG's own") };
            return Some(format!(
                "flows in {there} protocol use that port, and their packets cannot be told from those in \
                 {these}: give one of the two another port (--dest-port of itg-send, -rp of ITGSend)"
            ));
        }
        if there.joined != joined {
            let (there, these) =
                if joined { ("one by one", "in bursts") } else { ("in bursts", "one by one") };
            return Some(format!(
                "flows whose packets leave {there} use that port; give those whose packets leave \
                 {these} another --dest-port"
            ));
        }
        None
    }
}

/// Which socket a flow uses.
#[derive(Clone, Copy, Debug)]
pub(super) enum Taken {
    /// One that others may use.
    Shared(Asked),
    /// Its own, under this number.
    Own(usize),
}

impl Taken {
    /// Whether its packets are spread over the receiving threads.
    pub(super) fn spreads(&self) -> bool {
        matches!(self, Self::Shared(asked) if asked.spreads())
    }
}

/// What flows that share a socket have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Asked {
    pub(super) proto: Proto,
    pub(super) at: SocketAddr,
    /// Whether its packets are D-ITG's.
    pub(super) classic: bool,
    /// Whether its packets leave in bursts: the kernel may hand them over joined and with one stamp.
    pub(super) joined: bool,
}

impl Asked {
    /// Whether its packets are spread over the receiving threads: those of D-ITG do not begin with a number
    /// that says where they belong.
    pub(super) fn spreads(&self) -> bool {
        self.proto == Proto::Udp && !self.classic
    }
}

/// A flow whose packets the receiving threads shall look for.
pub(super) struct Sought<'a> {
    pub(super) slot: usize,
    /// Whether it belongs to one of several threads.
    pub(super) spread: bool,
    pub(super) spec: &'a FlowSpec,
    /// Where its sender is.
    pub(super) peer: IpAddr,
    pub(super) log: Option<usize>,
    pub(super) introduction: Option<Box<FlowInfo>>,
    /// The socket where its packets arrive.
    pub(super) socket: usize,
    pub(super) receive_buffer: Option<u64>,
    pub(super) classic: Option<ClassicRx>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct DataPort {
    /// Under what it is known.
    pub(super) asked: Asked,
    pub(super) id: usize,
    pub(super) port: u16,
    flows: usize,
    /// Bytes of kernel memory that it may hold, where datagrams wait in it.
    pub(super) receive_buffer: Option<u64>,
}

impl Shared {
    /// The receiving thread that a flow belongs to.
    pub(super) fn thread_of(&self, opened: &Opened) -> &RxHandle {
        self.rx.of(opened.socket.spreads(), opened.slot)
    }

    /// Has a thread look for the packets of a flow; the handle that they carry, and its counters.
    pub(super) fn look_for(&self, sought: Sought<'_>) -> (u32, Arc<FlowLive>) {
        // The slot in the low half, noise in the high one: strays and strangers do not match.
        let noise = (host::random_u64() & 0xFFFF_0000) as u32;
        let handle = noise | u32::try_from(sought.slot).expect("below 65 536");
        let live = Arc::new(FlowLive::default());
        self.rx.of(sought.spread, sought.slot).ask(Command::Flow(Box::new(RxFlow {
            slot: sought.slot,
            handle,
            flow: sought.spec.id,
            proto: sought.spec.proto,
            meter: sought.spec.meter,
            peer: sought.peer,
            live: Arc::clone(&live),
            log: sought.log,
            introduction: sought.introduction,
            socket: Some(sought.socket),
            replies: None,
            receive_buffer: sought.receive_buffer,
            classic: sought.classic,
        })));
        (handle, live)
    }

    /// The data socket for a protocol and address, opened if need be.
    pub(super) fn data_port(&self, asked: Asked, tos: u8) -> Result<DataPort, SocketError> {
        let mut sockets = lock(&self.sockets);
        if let Some(data) = sockets.find(asked) {
            data.flows += 1;
            return Ok(*data);
        }
        let Asked { proto, at, classic, joined } = asked;
        if let Some(why) = sockets.others(asked) {
            return Err(SocketError::new(format!("receiving {proto} on {at}"), why));
        }
        if sockets.open.len() >= MAX_SOCKETS {
            return Err(SocketError::new(
                format!("receiving {proto} on {at}"),
                format!("{MAX_SOCKETS} data sockets are open already: let flows share ports"),
            ));
        }
        let threads = self.rx.reading(asked.spreads());
        let options = &self.options;
        let wishes = ReceiverWishes {
            buffer: options.receive_buffer,
            classic,
            interface: options.classic.interface.as_deref().filter(|_| classic),
            tos,
            shared: threads.len() > 1,
        };
        let first = socket::open_receiver(proto, at, wishes)?;
        let port = match proto {
            Proto::Icmp => 0,
            _ => {
                let bound = first.local_addr().ok().and_then(|address| address.as_socket());
                bound.map_or_else(|| at.port(), |address| address.port())
            }
        };
        let mut opened = vec![first];
        while opened.len() < threads.len() {
            let same = SocketAddr::new(at.ip(), port);
            opened.push(socket::open_receiver(proto, same, wishes)?);
        }
        if wishes.shared {
            socket::spread(&opened[0], opened.len()).map_err(|error| {
                SocketError::new(
                    format!("spreading the packets on {at} over threads"),
                    error.to_string(),
                )
            })?;
        }
        let datagrams = matches!(proto, Proto::Udp | Proto::Icmp);
        let granted = opened[0].recv_buffer_size().ok().and_then(|bytes| u64::try_from(bytes).ok());
        let receive_buffer = granted.filter(|_| datagrams);
        let id = sockets.next_id;
        sockets.next_id += 1;
        let place = Port { id, proto, v6: at.is_ipv6(), owner: None, classic, joined };
        for (thread, socket) in threads.iter().zip(opened) {
            if joined && let Err(error) = socket::join(&socket) {
                tracing::warn!(%error, "the kernel does not join packets of bursts: they arrive one by one");
            }
            if let Some(us) = options.busy_poll_us.filter(|_| datagrams)
                && let Err(error) = socket::busy_poll(&socket, us)
            {
                tracing::warn!(%error, us, "no busy polling");
            }
            thread.ask(match datagrams {
                true => Command::Datagrams(place, socket),
                false => Command::Listener(place, socket),
            });
        }
        let data = DataPort { asked, id, port, flows: 1, receive_buffer };
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
                            for thread in self.rx.reading(asked.spreads()) {
                                thread.ask(Command::CloseSocket { id });
                            }
                        }
                    }
                }
                Taken::Own(id) => self.rx.first().ask(Command::CloseSocket { id: *id }),
            }
        }
        lock(&self.slots).free.push(opened.slot);
    }
}
