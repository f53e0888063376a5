//! The data sockets of a receiver, shared by the flows that ask for the same protocol and address.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use itg_core::flow::{FlowSpec, Proto};
use itg_core::header::PacketKey;
use itg_core::payload_check::PayloadCheck;
use itg_engine::live::FlowLive;
use itg_engine::rx::{ClassicRx, Command, Origin, PacketFormat, Port, RxFlow, RxHandle};
use itg_record::FlowInfo;
use itg_socket::UdpErrors;
use itg_socket::host;
use itg_socket::reply::ReplyMarks;
use itg_socket::socket::{self, ReceiverWishes, SocketError};

use super::served::MOST_MEASURED;
use super::shared::Shared;
use crate::lock::lock;

/// Data sockets at the same time.
const MAX_SOCKETS: usize = 1024;
/// Data sockets by protocol and the address that was asked for.
#[derive(Debug, Default)]
pub(super) struct Sockets {
    open: BTreeMap<Asked, DataPort>,
    /// Sockets without flows that the receiving threads have not closed yet.
    closing: Vec<(DataPort, Arc<Closing>)>,
    next_id: usize,
}

/// Longest wait for a port that the receiving threads are closing: they do it within microseconds.
const CLOSING_PATIENCE: Duration = Duration::from_secs(5);

/// A data socket that is being closed.
#[derive(Debug)]
struct Closing {
    /// Receiving threads that still have it.
    threads: Mutex<usize>,
    closed: Condvar,
}

impl Closing {
    fn done(&self) {
        *lock(&self.threads) -= 1;
        self.closed.notify_all();
    }

    fn is_over(&self) -> bool {
        *lock(&self.threads) == 0
    }

    fn wait(&self) {
        let threads = lock(&self.threads);
        let waited = self.closed.wait_timeout_while(threads, CLOSING_PATIENCE, |left| *left > 0);
        if waited.is_ok_and(|(_, over)| over.timed_out()) {
            tracing::warn!("the receiving thread is behind: a data socket is not closed yet");
        }
    }
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

    /// Returns a socket that has that port and is still being closed.
    fn closing(&mut self, asked: Asked) -> Option<Arc<Closing>> {
        self.closing.retain(|(_, closing)| !closing.is_over());
        let found = self.closing.iter().find(|(data, _)| data.meets(asked));
        found.map(|(_, closing)| Arc::clone(closing))
    }

    /// Returns the reason if flows of another kind leave no room at that port.
    fn others(&self, asked: Asked) -> Option<String> {
        let Asked { format, joined, .. } = asked;
        let there = self.open.values().find(|data| data.meets(asked))?.asked;
        if there.format != format {
            let (there, these) = match format {
                PacketFormat::Classic => ("ITG's own", "D-ITG's"),
                PacketFormat::Itg => ("D-ITG's", "ITG's own"),
            };
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

/// Socket that a flow uses.
#[derive(Clone, Copy, Debug)]
pub(super) enum Taken {
    /// One that others may use.
    Shared(Asked),
    /// Its own, under this number.
    Own(usize),
}

impl Taken {
    /// Returns true if its packets are spread over the receiving threads.
    pub(super) fn spreads(&self) -> bool {
        matches!(self, Self::Shared(asked) if asked.spreads())
    }
}

/// Properties that flows which share a socket have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Asked {
    pub(super) proto: Proto,
    pub(super) at: SocketAddr,
    /// Protocol of its packets.
    pub(super) format: PacketFormat,
    /// True if its packets leave in bursts: the kernel may hand them over joined and with one stamp.
    pub(super) joined: bool,
}

impl Asked {
    /// Returns true if its packets are spread over the receiving threads: those of D-ITG do not begin with a
    /// number that says where they belong.
    pub(super) fn spreads(&self) -> bool {
        self.proto == Proto::Udp && self.format == PacketFormat::Itg
    }
}

/// Resources that a flow of this session uses.
pub(super) struct Opened {
    pub(super) slot: usize,
    pub(super) socket: Taken,
    pub(super) live: Arc<FlowLive>,
    /// Datagrams that had found a full buffer in this host before.
    pub(super) udp_errors: Option<UdpErrors>,
}

/// A flow whose packets the receiving threads shall look for.
pub(super) struct Sought<'a> {
    pub(super) slot: usize,
    /// True if it belongs to one of several threads.
    pub(super) spread: bool,
    pub(super) spec: &'a FlowSpec,
    /// Addresses that its packets may come from.
    pub(super) origin: Origin,
    pub(super) log: Option<usize>,
    pub(super) introduction: Option<Box<FlowInfo>>,
    /// The socket where its packets arrive.
    pub(super) socket: usize,
    pub(super) receive_buffer: Option<u64>,
    /// True if its arrivals are measured while it runs.
    pub(super) measured: bool,
    pub(super) classic: Option<ClassicRx>,
    /// Key with which its packets prove where they come from.
    pub(super) key: Option<PacketKey>,
    /// Compares the payloads of its packets.
    pub(super) check: Option<PayloadCheck>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct DataPort {
    /// Request under which it is known.
    pub(super) asked: Asked,
    pub(super) id: usize,
    pub(super) port: u16,
    flows: usize,
    /// Bytes of kernel memory that it may hold, where datagrams wait in it.
    pub(super) receive_buffer: Option<u64>,
}

impl DataPort {
    /// Returns true if a socket for `asked` finds the port taken by this one.
    fn meets(&self, asked: Asked) -> bool {
        let (one, two) = (self.asked.at.ip(), asked.at.ip());
        let meet = one == two
            || one.is_ipv4() == two.is_ipv4() && (one.is_unspecified() || two.is_unspecified());
        self.asked.proto == asked.proto && self.port == asked.at.port() && self.port != 0 && meet
    }
}

impl Shared {
    /// The receiving thread that a flow belongs to.
    pub(super) fn thread_of(&self, opened: &Opened) -> &RxHandle {
        self.rx.of(opened.socket.spreads(), opened.slot)
    }

    /// Has a thread look for the packets of a flow; the handle that they carry, and its counters.
    pub(super) fn look_for(&self, sought: Sought<'_>) -> (u32, Arc<FlowLive>) {
        // The slot in the low half, noise in the high one: foreign packets do not match.
        let noise = (host::random_u64() & 0xFFFF_0000) as u32;
        let handle = noise | u32::try_from(sought.slot).expect("below 65 536");
        let live = Arc::new(FlowLive::default());
        lock(&self.running).begin(sought.slot, &live);
        self.rx.of(sought.spread, sought.slot).ask(Command::Flow(Box::new(RxFlow {
            slot: sought.slot,
            handle,
            flow: sought.spec.id,
            proto: sought.spec.proto,
            meter: sought.spec.meter,
            drain_ns: sought.spec.handling.drain_ns,
            origin: sought.origin,
            live: Arc::clone(&live),
            log: sought.log,
            introduction: sought.introduction,
            socket: Some(sought.socket),
            replies: None,
            receive_buffer: sought.receive_buffer,
            // Replies to D-ITG's packets have the mark of the socket.
            marks: sought.classic.is_none().then_some(ReplyMarks {
                tos: sought.spec.socket.tos.unwrap_or(0),
                ttl: sought.spec.socket.ttl,
            }),
            measuring: (sought.measured && sought.slot < MOST_MEASURED).then(Box::default),
            classic: sought.classic,
            key: sought.key,
            check: sought.check,
        })));
        (handle, live)
    }

    /// Returns true if flows of another kind use that port.
    pub(super) fn has_other_flows(&self, asked: Asked) -> bool {
        let mut sockets = lock(&self.sockets);
        sockets.find(asked).is_none() && sockets.others(asked).is_some()
    }

    /// The data socket for a protocol and address, opened if need be. Waits for one at that port that is
    /// being closed.
    pub(super) fn data_port(&self, asked: Asked, tos: u8) -> Result<DataPort, SocketError> {
        let closing = lock(&self.sockets).closing(asked);
        if let Some(closing) = closing {
            // The receiving thread may want the table of sockets first: it is not locked meanwhile.
            tokio::task::block_in_place(|| closing.wait());
        }
        let mut sockets = lock(&self.sockets);
        if let Some(data) = sockets.find(asked) {
            data.flows += 1;
            return Ok(*data);
        }
        let Asked { proto, at, format, joined } = asked;
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
        let classic = format == PacketFormat::Classic;
        let wishes = ReceiverWishes {
            buffer: options.receive_buffer,
            classic,
            interface: options.classic.interface.as_deref().filter(|_| classic),
            tos,
            shared: threads.len() > 1,
        };
        let first = socket::open_receiver(proto, at, wishes)?;
        let port = match proto.properties().has_ports {
            false => 0,
            true => {
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
        let datagrams = !proto.properties().is_connected;
        let granted = opened[0].recv_buffer_size().ok().and_then(|bytes| u64::try_from(bytes).ok());
        let receive_buffer = granted.filter(|_| datagrams);
        let id = sockets.next_id;
        sockets.next_id += 1;
        let place = Port { format, joined, ..Port::new(id, proto, at.is_ipv6()) };
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

    /// The reason why a flow of UDP or TCP that asks for no port of its own could not be received now. Nothing stays
    /// open: the usual data port is opened at the address that a sender came to, and closed behind its last flow.
    pub(super) fn data_port_trouble(&self, at: IpAddr) -> Option<SocketError> {
        let port = SocketAddr::new(at, self.options.data_port);
        let open = |proto| socket::open_receiver(proto, port, ReceiverWishes::default());
        [Proto::Udp, Proto::Tcp].into_iter().find_map(|proto| open(proto).err())
    }

    /// A number for a socket that no other flow shares.
    pub(super) fn own_port(&self) -> usize {
        let mut sockets = lock(&self.sockets);
        sockets.next_id += 1;
        sockets.next_id - 1
    }

    /// Takes a flow off its socket, which is closed after its last flow, and frees its slot.
    pub(super) fn give_back(&self, opened: &Opened) {
        {
            let mut sockets = lock(&self.sockets);
            match &opened.socket {
                Taken::Shared(asked) => {
                    if let Some(data) = sockets.open.get_mut(asked) {
                        data.flows -= 1;
                        if data.flows == 0 {
                            let data = *data;
                            sockets.open.remove(asked);
                            let threads = self.rx.reading(asked.spreads());
                            let closing = Arc::new(Closing {
                                threads: Mutex::new(threads.len()),
                                closed: Condvar::new(),
                            });
                            for thread in threads {
                                let closing = Arc::clone(&closing);
                                let done = Box::new(move || closing.done());
                                thread.ask(Command::CloseSocket { id: data.id, done });
                            }
                            sockets.closing.retain(|(_, closing)| !closing.is_over());
                            sockets.closing.push((data, closing));
                        }
                    }
                }
                Taken::Own(id) => {
                    let done = Box::new(|| ());
                    self.rx.first().ask(Command::CloseSocket { id: *id, done });
                }
            }
        }
        lock(&self.running).end(opened.slot);
        lock(&self.slots).give_back(opened.slot);
    }
}
