//! Logs in D-ITG's form: the last step of a log, which makes D-ITG's records of ITG's and writes them
//! to a file or sends them to a log server of D-ITG.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::thread::sleep;
use std::time::{Duration, Instant};

use itg_classic::log::{LogRecord, Packet, RECORD_LEN, UNNUMBERED, is_log};
use itg_classic::send::LogProto;
use itg_classic::wire::{LogClient, LogClientOutput, UDP_RECORDS_MAX};
use itg_core::flow::Meter;
use itg_record::{BlockBuf, FlowInfo, Kind, Note, Record};
use itg_session::logs::keep::{AppendError, BlockFile, Fsync, Storage as _};

use crate::log::place::{Beside, open_or_create, refused};
use crate::log::queue::{Job, LogOutcome, Shared, fail, give, left_out};
use crate::log::{
    DiskFile, LATER_LOST, LogQuota, LogRoom, MEANWHILE_LOST, create_named, open_locked,
    replace_named, write_hint,
};

/// Longest wait for a log server to answer, or to take a block.
const PATIENCE: Duration = Duration::from_secs(5);
/// Interval between attempts after a refused data connection: D-ITG's server listens only after it
/// has named the port.
const RETRY: Duration = Duration::from_millis(50);
/// Wait before the end of a log is announced: D-ITG's server drops what it has not read by then.
const SETTLE: Duration = Duration::from_millis(500);

/// Bytes that tell whether a file is a log of D-ITG.
const LOOKED_AT: usize = 16 * RECORD_LEN;

/// Destination of a log in D-ITG's form.
#[derive(Clone, Debug)]
pub enum ClassicPlace {
    /// A file on this host. An older log of D-ITG is replaced when the first flow is open.
    File(PathBuf),
    /// A file on this host whose name a peer has chosen: what is there already is left alone.
    Named {
        /// Path of the file.
        path: PathBuf,
        /// True if an older log of D-ITG may be replaced.
        replace: bool,
        /// Bound on its size.
        quota: LogQuota,
    },
    /// A log server of D-ITG.
    Server {
        /// Its signalling address.
        address: SocketAddr,
        /// Transport of the records.
        proto: LogProto,
        /// Name of the log there.
        path: String,
    },
}

/// A log in D-ITG's form.
#[derive(Clone, Debug)]
pub struct ClassicTarget {
    /// Destination of the log.
    pub place: ClassicPlace,
    /// Records written at a time (`-q`).
    pub buffer: u16,
}

impl ClassicTarget {
    /// Records that producers hand over at once.
    pub fn block_records(&self) -> usize {
        let most = match &self.place {
            ClassicPlace::Server { proto: LogProto::Udp, .. } => UDP_RECORDS_MAX,
            _ => usize::from(u16::MAX),
        };
        usize::from(self.buffer).clamp(1, most)
    }
}

impl fmt::Display for ClassicTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            ClassicPlace::File(path) | ClassicPlace::Named { path, .. } => path.display().fmt(f),
            ClassicPlace::Server { address, proto, path } => {
                let proto = if *proto == LogProto::Tcp { "TCP" } else { "UDP" };
                write!(f, "{path} at the log server {address} ({proto})")
            }
        }
    }
}

enum Sink {
    File { file: BlockFile<DiskFile>, room: Option<LogRoom> },
    Tcp { control: TcpStream, client: LogClient, data: TcpStream },
    Udp { control: TcpStream, client: LogClient, data: UdpSocket },
}

/// Values that all records of a flow have in common.
struct FlowRecord {
    like: LogRecord,
    numbered: bool,
    /// Bytes that the log leaves out of each packet.
    unlogged: u32,
    /// Of the packets of a round-trip flow only those that came back are logged.
    echoes: bool,
}

/// The writer of such a log.
pub(crate) struct Writer {
    sink: Sink,
    place: String,
    /// The path of a file that may be opened anew.
    path: Option<PathBuf>,
    /// The name that the file is to get.
    beside: Option<Beside>,
    flows: BTreeMap<u32, FlowRecord>,
    bytes: Vec<u8>,
    records: u64,
    shared: Arc<Shared>,
    failed: bool,
}

impl Writer {
    /// Creates the file, or registers with the server.
    ///
    /// # Errors
    /// The system's, in words where the caller shows them.
    pub(crate) fn create(target: &ClassicTarget, shared: &Arc<Shared>) -> io::Result<Self> {
        let (mut beside, mut place) = (None, None);
        let sink = match &target.place {
            ClassicPlace::File(path) => {
                let created = Beside::create(path, may_go);
                Sink::file(
                    path,
                    created.map(|(opened, how)| {
                        place = (!opened.is_special).then(|| path.clone());
                        beside = how;
                        (opened.file, None)
                    }),
                )?
            }
            ClassicPlace::Named { path, replace, quota } => {
                let created = quota.create(path, || match replace {
                    false => create_named(path),
                    true => replace_named(path, LOOKED_AT, is_log),
                });
                let on_disk = |(file, room)| (DiskFile::new(file, path), Some(room));
                Sink::file(path, created.map(on_disk))?
            }
            ClassicPlace::Server { address, proto, path } => register(*address, *proto, path)
                .map_err(|error| {
                    io::Error::new(error.kind(), format!("log server {address}: {error}"))
                })?,
        };
        Ok(Self {
            sink,
            place: target.to_string(),
            path: place,
            beside,
            flows: BTreeMap::new(),
            bytes: Vec::with_capacity(target.block_records() * RECORD_LEN),
            records: 0,
            shared: Arc::clone(shared),
            failed: false,
        })
    }

    /// Writes what comes through the queue until the log is closed.
    pub(crate) fn run(mut self, queue: &Receiver<Job>) -> LogOutcome {
        while let Ok(job) = queue.recv() {
            match job {
                Job::Records(block, give_back) => {
                    self.block(&block);
                    give(block, &give_back);
                }
                Job::Note(note) => self.note(*note),
                Job::Settle(answer) => self.shared.answer(&answer),
                Job::Reopen => self.reopen(),
                Job::LeftOut(_) | Job::Heard(_) => {}
                Job::Close => break,
            }
        }
        if let Err(error) = self.sink.end() {
            fail(&self.shared, format!("log {}: {error}", self.place));
        }
        if let Some(why) = left_out(&self.shared) {
            fail(&self.shared, format!("log {}: {why}", self.place));
        }
        let begun = self.beside.is_none();
        LogOutcome { begun, ..self.shared.outcome(self.place, self.records) }
    }

    fn note(&mut self, note: Note) {
        match note {
            Note::Flow(info) => {
                self.flows.insert(info.index, FlowRecord::new(&info));
                if let Some(Err((error, scratch))) = self.beside.take().map(Beside::take_name) {
                    fail(&self.shared, format!("log {}: {error}", self.place));
                    self.place = scratch.display().to_string();
                }
            }
            Note::FlowEnd(end) => {
                self.flows.remove(&end.index);
            }
            _ => {}
        }
    }

    fn block(&mut self, block: &BlockBuf) {
        self.bytes.clear();
        for record in block.iter() {
            if let Some(flow) = self.flows.get_mut(&record.flow)
                && let Some(line) = flow.line(&record)
            {
                self.bytes.extend_from_slice(&line);
            }
        }
        let count = (self.bytes.len() / RECORD_LEN) as u64;
        if count == 0 {
            return;
        }
        let written = !self.failed
            && match self.sink.write(&self.bytes) {
                Ok(()) => true,
                Err((why, later)) => {
                    // A disk may have space again later.
                    self.failed = later == LATER_LOST;
                    fail(&self.shared, format!("log {}: {why}, {later}", self.place));
                    false
                }
            };
        if written { self.records += count } else { self.shared.lose(count) }
    }

    /// Goes on in the file that has the log's name, if the one in use was moved away.
    fn reopen(&mut self) {
        let (Some(path), Sink::File { file, .. }) = (&self.path, &mut self.sink) else { return };
        if self.beside.is_some() || file.file().is_at(path) {
            return;
        }
        match continue_classic(path, || open_or_create(path)) {
            Ok(opened) => *file = opened,
            Err(error) => tracing::error!(
                "log {}: it was moved away and could not be opened anew, and goes on where it is: {error}",
                self.place
            ),
        }
    }
}

/// Decides whether a file may make room for a log.
fn may_go(bytes: &[u8]) -> Result<(), &'static str> {
    if is_log(&bytes[..bytes.len().min(LOOKED_AT)]) { Ok(()) } else { Err("it is no log of D-ITG") }
}

/// Goes on behind the whole records of a log of D-ITG, which `open` opens or makes.
///
/// # Errors
/// A file that is no such log, or that another program uses; the system's.
pub fn continue_classic(
    path: &Path,
    open: impl Fn() -> io::Result<File>,
) -> io::Result<BlockFile<DiskFile>> {
    let mut file = DiskFile::at_end(open_locked(path, open)?, path)?;
    let bytes = file.bytes()?;
    if bytes > 0 {
        file.view(may_go)?.map_err(refused)?;
    }
    let whole = bytes - bytes % RECORD_LEN as u64;
    file.cut(whole)?;
    Ok(BlockFile::new(file, whole, Fsync::Never))
}

impl FlowRecord {
    fn new(info: &FlowInfo) -> Self {
        let none = Packet {
            flow: info.flow,
            seq: 0,
            size: 0,
            src: &info.src,
            dst: &info.dst,
            sent_ns: Some(0),
            arrived_ns: None,
        };
        Self {
            like: none.record().expect("a time is given"),
            numbered: !info.notices.iter().any(|notice| notice == UNNUMBERED),
            unlogged: match info.spec.profile.as_deref() {
                Some("telnet") => 20,
                _ => 0,
            },
            echoes: info.spec.meter == Meter::Rtt,
        }
    }

    /// The record of D-ITG, if this one belongs into its logs.
    fn line(&mut self, record: &Record) -> Option<[u8; RECORD_LEN]> {
        let (sent_ns, arrived_ns) = match record.kind {
            Kind::Sent if self.echoes => return None,
            Kind::Sent => (Some(record.b), None),
            Kind::Received | Kind::Echoed => (Some(record.a).filter(|&ns| ns > 0), Some(record.b)),
        };
        let times =
            Packet { flow: 0, seq: record.seq, size: 0, src: "", dst: "", sent_ns, arrived_ns };
        let times = times.record()?;
        let line = LogRecord {
            seq: if self.numbered { times.seq } else { 0 },
            tx: times.tx,
            rx: times.rx,
            size: record.size.saturating_sub(self.unlogged),
            ..self.like
        };
        Some(line.emit())
    }
}

impl Sink {
    fn file(path: &Path, created: io::Result<(DiskFile, Option<LogRoom>)>) -> io::Result<Self> {
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("log {}: {error}", path.display()))
        };
        let (file, room) = created.map_err(named)?;
        Ok(Self::File { file: BlockFile::new(file, 0, Fsync::Never), room })
    }

    /// Writes records; an error tells what becomes of those that come, too.
    fn write(&mut self, records: &[u8]) -> Result<(), (String, &'static str)> {
        let over = |error: io::Error| (error.to_string(), LATER_LOST);
        match self {
            Self::File { file, room } => {
                if let Some(room) = room {
                    room.take(records.len()).map_err(|why| (why, LATER_LOST))?;
                }
                let written = file.append(0, &mut [IoSlice::new(records)]);
                written.map_err(|AppendError { error, uncut }| {
                    let kept = match uncut {
                        None => "what was written before stays good",
                        Some(_) => "its last record may be incomplete",
                    };
                    (format!("{error}{}; {kept}", write_hint(&error)), MEANWHILE_LOST)
                })
            }
            Self::Tcp { data, .. } => data.write_all(&in_transit(records)).map_err(over),
            Self::Udp { data, .. } => data.send(&in_transit(records)).map(drop).map_err(over),
        }
    }

    /// Ends the log; a server takes in what is on its way before it is told.
    fn end(&mut self) -> io::Result<()> {
        match self {
            Self::File { .. } => Ok(()),
            Self::Tcp { control, client, .. } | Self::Udp { control, client, .. } => {
                sleep(SETTLE);
                control.write_all(&client.stop())
            }
        }
    }
}

/// Records of a file as they travel to a server.
fn in_transit(records: &[u8]) -> Vec<u8> {
    itg_classic::log::records(records).flat_map(|record| record.emit_transit()).collect()
}

/// Asks a server for a log, and connects to where it says.
fn register(address: SocketAddr, proto: LogProto, path: &str) -> io::Result<Sink> {
    let mut control = TcpStream::connect_timeout(&address, PATIENCE)?;
    control.set_read_timeout(Some(PATIENCE))?;
    control.set_write_timeout(Some(PATIENCE))?;
    control.set_nodelay(true)?;
    let mut client = LogClient::new(proto, path.as_bytes().to_vec());
    let port = ask(&mut control, &mut client)?;
    let at = SocketAddr::new(address.ip(), port);
    match proto {
        LogProto::Udp => {
            let any: IpAddr = match at {
                SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
            };
            let data = UdpSocket::bind((any, 0))?;
            data.connect(at)?;
            Ok(Sink::Udp { control, client, data })
        }
        LogProto::Tcp => {
            let deadline = Instant::now() + PATIENCE;
            loop {
                match TcpStream::connect_timeout(&at, PATIENCE) {
                    Ok(data) => {
                        data.set_write_timeout(Some(PATIENCE))?;
                        return Ok(Sink::Tcp { control, client, data });
                    }
                    Err(error)
                        if error.kind() == io::ErrorKind::ConnectionRefused
                            && Instant::now() < deadline =>
                    {
                        sleep(RETRY);
                    }
                    Err(error) => return Err(error),
                }
            }
        }
    }
}

/// The data port that a server names.
fn ask(control: &mut TcpStream, client: &mut LogClient) -> io::Result<u16> {
    let other = |why| io::Error::new(io::ErrorKind::InvalidData, why);
    let mut out = Vec::new();
    let mut buffer = [0; 64];
    loop {
        let got = control.read(&mut buffer)?;
        if got == 0 {
            return Err(other(
                "it closed the connection: it refuses this log, or is no log server",
            ));
        }
        client.bytes(&buffer[..got], &mut out);
        for output in out.drain(..) {
            match output {
                LogClientOutput::Send(bytes) => control.write_all(&bytes)?,
                LogClientOutput::Ready(port) => return Ok(port),
                LogClientOutput::Failed => return Err(other("it is no log server of D-ITG")),
            }
        }
    }
}
