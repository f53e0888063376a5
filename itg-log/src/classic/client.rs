//! One client: its signalling connection, its data port, its records.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use itg_classic::log::RECORD_LEN;
use itg_classic::send::LogProto;
use itg_classic::wire::{LogServerInput, LogServerOutput, LogServerSession, to_file};
use itg_node::ConnectionSlot;
use itg_socket::{plain, socket_drops};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::files::{Hold, StoreError};
use super::{Account, Shared, Telling, stopping};

/// Time that a client may take to ask, and to take an answer.
const ASK: Duration = Duration::from_secs(10);
/// After a client has stopped: time for which its data channel must be silent (what TCP has lost
/// comes again), and time for which records are taken at most.
const QUIET_UDP: Duration = Duration::from_millis(300);
const QUIET_TCP: Duration = Duration::from_secs(2);
const DRAIN: Duration = Duration::from_secs(10);
/// Time that records wait for a full disk, and time between attempts.
const FULL: Duration = Duration::from_secs(60);
const RETRY: Duration = Duration::from_millis(300);
/// Time between attempts to open a log whose last records are being taken.
const AGAIN: Duration = Duration::from_millis(10);
/// Data ports, as D-ITG's.
const PORTS: std::ops::RangeInclusive<u16> = 9003..=10_002;
/// Bytes of one read, more than a datagram can have.
const PIECE: usize = 1 << 16;

/// Data channel of a client.
enum Data {
    Udp {
        socket: UdpSocket,
        /// The client's address, once a datagram has come.
        from: Option<SocketAddr>,
    },
    Listening(TcpListener),
    Stream(TcpStream),
    Over,
}

/// Something came on the data channel.
enum Came {
    /// So many bytes of records.
    Bytes(usize),
    /// A connection, or a foreign packet; nothing to store.
    Nothing,
    /// No more will come.
    End,
}

impl Data {
    /// Opens a free port of the address at which the client has found us.
    fn open(proto: LogProto, at: SocketAddr) -> io::Result<(Self, u16)> {
        let (low, count) = (*PORTS.start(), PORTS.end() - PORTS.start() + 1);
        let first = u16::try_from(itg_socket::host::random_u64() % u64::from(count)).unwrap_or(0);
        let mut last = io::Error::from(io::ErrorKind::AddrInUse);
        for step in 0..count {
            let port = low + (first + step) % count;
            let address = SocketAddr::new(at.ip(), port);
            match Self::bind(proto, with_scope(address, at)) {
                Ok(data) => return Ok((data, port)),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    fn bind(proto: LogProto, address: SocketAddr) -> io::Result<Self> {
        if proto == LogProto::Tcp {
            return Ok(Self::Listening(TcpListener::from_std(itg_socket::listen(address)?)?));
        }
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        itg_socket::enlarge(&socket, true);
        socket.bind(&address.into())?;
        socket.set_nonblocking(true)?;
        Ok(Self::Udp { socket: UdpSocket::from_std(socket.into())?, from: None })
    }

    /// Waits for something from this peer.
    async fn next(
        &mut self,
        peer: SocketAddr,
        piece: &mut [u8],
        strangers: &mut u64,
    ) -> io::Result<Came> {
        match self {
            Self::Udp { socket, from } => {
                let (len, source) = socket.recv_from(piece).await?;
                let source = plain(source);
                if source.ip() != peer.ip() || from.is_some_and(|from| from != source) {
                    *strangers += 1;
                    return Ok(Came::Nothing);
                }
                *from = Some(source);
                Ok(Came::Bytes(len))
            }
            Self::Listening(listener) => {
                let (stream, source) = listener.accept().await?;
                if plain(source).ip() == peer.ip() {
                    *self = Self::Stream(stream);
                } else {
                    *strangers += 1;
                }
                Ok(Came::Nothing)
            }
            Self::Stream(stream) => match stream.read(piece).await? {
                0 => Ok(Came::End),
                len => Ok(Came::Bytes(len)),
            },
            Self::Over => std::future::pending().await,
        }
    }

    fn dropped(&self) -> u64 {
        match self {
            Self::Udp { socket, .. } => socket_drops(socket).map_or(0, u64::from),
            _ => 0,
        }
    }
}

/// A link-local address needs the interface of the signalling connection.
fn with_scope(address: SocketAddr, at: SocketAddr) -> SocketAddr {
    match (address, at) {
        (SocketAddr::V6(mut address), SocketAddr::V6(at)) => {
            address.set_scope_id(at.scope_id());
            address.into()
        }
        _ => address,
    }
}

/// A client whose log is open.
struct Log {
    hold: Hold,
    data: Data,
    account: Account,
    /// The part of a record that came last.
    rest: Vec<u8>,
    /// The disk was full for too long: it is tried, not waited for.
    gave_up: bool,
}

impl Log {
    /// Stores what came: a datagram is records of its own, a stream goes on.
    async fn take(&mut self, bytes: &[u8], stop: &watch::Receiver<Option<String>>) {
        self.account.blocks += 1;
        self.rest.extend_from_slice(bytes);
        let records = to_file(&mut self.rest);
        if matches!(self.data, Data::Udp { .. }) {
            self.torn();
        }
        if records.is_empty() {
            return;
        }
        let count = (records.len() / RECORD_LEN) as u64;
        match self.store(&records, stop).await {
            Ok(()) => self.account.records += count,
            Err(why) => {
                if self.account.trouble.is_none() {
                    tracing::error!("{}: {why}", self.hold.name);
                }
                self.account.trouble = Some(why);
                self.account.lost += count;
            }
        }
    }

    fn torn(&mut self) {
        self.account.torn_bytes += self.rest.len() as u64;
        self.rest.clear();
    }

    async fn store(
        &mut self,
        records: &[u8],
        stop: &watch::Receiver<Option<String>>,
    ) -> Result<(), String> {
        let until = Instant::now() + FULL;
        let mut told = false;
        loop {
            match tokio::task::block_in_place(|| self.hold.store(records)) {
                Ok(()) => {
                    self.gave_up = false;
                    return Ok(());
                }
                Err(StoreError::Never(why)) => return Err(why),
                Err(StoreError::Full(error)) => {
                    let stopping = stop.borrow().is_some();
                    if self.gave_up || stopping || Instant::now() >= until {
                        self.gave_up = true;
                        return Err(error.to_string());
                    }
                    if !told {
                        tracing::error!(
                            "{}: {error}; records wait for {} s: free some space",
                            self.hold.name,
                            FULL.as_secs()
                        );
                        told = true;
                    }
                    sleep(RETRY).await;
                }
            }
        }
    }

    /// Waits for records, or for the end of the data channel, and stores them.
    async fn next(&mut self, piece: &mut [u8]) -> Option<usize> {
        let peer = self.account.peer;
        match self.data.next(peer, piece, &mut self.account.strangers).await {
            Ok(Came::Bytes(len)) => return Some(len),
            Ok(Came::Nothing) => {}
            Ok(Came::End) => self.data = Data::Over,
            Err(error) => {
                self.account.trouble = Some(format!("the data channel failed: {error}"));
                // An error on a UDP socket is one of an earlier datagram.
                if !matches!(self.data, Data::Udp { .. }) {
                    self.data = Data::Over;
                }
            }
        }
        None
    }

    /// Takes what is still on its way.
    async fn drain(&mut self, piece: &mut [u8], stop: &watch::Receiver<Option<String>>) {
        self.hold.stopped();
        let until = Instant::now() + DRAIN;
        let quiet = if self.account.proto == LogProto::Udp { QUIET_UDP } else { QUIET_TCP };
        while !matches!(self.data, Data::Over) && Instant::now() < until {
            match timeout(quiet, self.next(piece)).await {
                Ok(Some(len)) => self.take(&piece[..len], stop).await,
                Ok(None) => {}
                Err(_) => break,
            }
        }
        if Instant::now() >= until {
            self.account.trouble = Some("cut off: the client sends on after its end".to_owned());
        }
        self.account.dropped = self.data.dropped();
        self.torn();
    }
}

/// Serves a client to its end.
pub(super) async fn serve(
    stream: TcpStream,
    (peer, place): (SocketAddr, ConnectionSlot),
    shared: Arc<Shared>,
    stop: watch::Receiver<Option<String>>,
) {
    if let Err(error) = talk(stream, (peer, &place), &shared, stop).await {
        shared.tell(Telling::Refused { peer, reason: format!("{error:#}") });
    }
}

async fn talk(
    mut stream: TcpStream,
    (peer, place): (SocketAddr, &ConnectionSlot),
    shared: &Shared,
    stop: watch::Receiver<Option<String>>,
) -> Result<()> {
    // A client that has gone without a word is noticed.
    let alive = TcpKeepalive::new().with_time(ASK).with_interval(ASK).with_retries(6);
    SockRef::from(&stream).set_tcp_keepalive(&alive)?;
    let mut session = LogServerSession::default();
    let mut log: Option<Log> = None;
    let mut piece = vec![0; PIECE];
    let mut said = [0; 256];
    let mut out = Vec::new();
    let mut stopped = stop.clone();
    let opened_by = Instant::now() + ASK;
    session.handle(LogServerInput::Connected, &mut out);
    loop {
        while !out.is_empty() {
            for output in std::mem::take(&mut out) {
                match output {
                    LogServerOutput::Send(bytes) => {
                        // A client that does not take an answer says nothing more either.
                        let sent = timeout(ASK, stream.write_all(&bytes)).await;
                        if !matches!(sent, Ok(Ok(()))) {
                            session.handle(LogServerInput::Lost, &mut out);
                        }
                    }
                    LogServerOutput::Open(request) => {
                        let at = plain(stream.local_addr()?);
                        let opened = open(shared, &request.path, request.proto, at, peer).await;
                        let port = opened.as_ref().ok().map(|(_, port)| *port);
                        session.handle(LogServerInput::Opened(port), &mut out);
                        log = Some(opened?.0);
                        place.settle();
                    }
                    LogServerOutput::Drain => {
                        if let Some(log) = &mut log {
                            log.drain(&mut piece, &stop).await;
                        }
                        session.handle(LogServerInput::Drained, &mut out);
                    }
                    LogServerOutput::Close => {
                        if let Some(Log { account, .. }) = log {
                            shared.tell(Telling::Ended(account));
                            return Ok(());
                        }
                        anyhow::bail!("it did not ask for a log");
                    }
                }
            }
        }
        tokio::select! {
            heard = stream.read(&mut said) => match heard {
                Ok(len @ 1..) => session.handle(LogServerInput::Bytes(&said[..len]), &mut out),
                Ok(0) | Err(_) => session.handle(LogServerInput::Lost, &mut out),
            },
            came = next(&mut log, &mut piece), if log.is_some() => {
                if let (Some(log), Some(len)) = (&mut log, came) {
                    log.take(&piece[..len], &stop).await;
                }
            }
            () = tokio::time::sleep_until(opened_by), if log.is_none() => {
                session.handle(LogServerInput::Lost, &mut out);
            }
            () = place.lost() => anyhow::bail!("it gives way to a newer connection"),
            () = stopping(&mut stopped) => {
                session.handle(LogServerInput::Lost, &mut out);
            }
        }
    }
}

async fn next(log: &mut Option<Log>, piece: &mut [u8]) -> Option<usize> {
    match log {
        Some(log) => log.next(piece).await,
        None => std::future::pending().await,
    }
}

/// Opens the log and its data port.
async fn open(
    shared: &Shared,
    path: &[u8],
    proto: LogProto,
    at: SocketAddr,
    peer: SocketAddr,
) -> Result<(Log, u16)> {
    let until = Instant::now() + 2 * DRAIN;
    let hold = loop {
        let hold = tokio::task::block_in_place(|| shared.files.open(path));
        match hold.map_err(anyhow::Error::msg)? {
            Some(hold) => break hold,
            None if Instant::now() < until => sleep(AGAIN).await,
            None => anyhow::bail!("a client that has stopped still has the log"),
        }
    };
    let (data, port) = Data::open(proto, at).context("no data port")?;
    if let Some(notice) = &hold.notice {
        tracing::warn!("{notice}");
    }
    let name = hold.name.clone();
    shared.tell(Telling::Opened { peer, name: name.clone(), proto, port });
    let account = Account {
        peer,
        name,
        proto,
        records: 0,
        blocks: 0,
        lost: 0,
        torn_bytes: 0,
        dropped: 0,
        strangers: 0,
        trouble: None,
    };
    Ok((Log { hold, data, account, rest: Vec::new(), gave_up: false }, port))
}
