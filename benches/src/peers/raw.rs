//! Raw loops: what a host can do with these system calls and no generator around them.
//!
//! `sendmmsg` of 64 equal datagrams, of one through each of many sockets in turn, or one `send` that the kernel cuts
//! (`UDP_SEGMENT`), over and over, to a receiver that naps between its batches. With a log, the sender reads the clock
//! for each packet and the receiver keeps the kernel's stamp and writes 40 bytes a packet to a file. Where the kernel
//! cuts, each packet has ITG's header and a content of its own, the receiver reads all headers, and both sides write 40
//! bytes for a run of packets, as ours do. Loops of frames are in `raw_frames`. `spin` is one datagram at a time, on
//! time; `sleep` wakes when one is due, and sends all that are due then.

use std::fs::File;
use std::io::{ErrorKind, IoSlice, Write as _};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::{Args, ValueEnum};
use itg_core::distribution::Distribution;
use itg_core::flow::{Flow, FlowSpec};
use itg_core::header::{FULL_LEN, PacketHeader};
use itg_core::payload::Content;
use itg_core::seed::RunSeed;
use itg_socket::clock;
use itg_socket::mmsg::{BATCH, Datagram, RecvBatch};
use itg_socket::socket::RECEIVE_BUFFER;
use itg_trials::print;
use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrIn, sendmmsg, setsockopt, sockopt};

use super::raw_frames;
use super::tools::SPREAD_MS;

/// Largest payload of a datagram over IPv4 in bytes.
const LARGEST: usize = 65_507;
/// Bytes that are written to the log at once.
const PIECE: usize = 1 << 20;
/// Bytes of the header of ITG.
pub(super) const HEAD: usize = FULL_LEN as usize;
/// The receiver ends after this much silence.
pub(super) const SILENCE: Duration = Duration::from_millis(400);
/// Time that the receiver waits for the first packet.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// Kind of loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Loop {
    /// sendmmsg to recvmmsg
    Batches,
    /// UDP_SEGMENT to UDP_GRO
    Segments,
    /// AF_XDP
    Frames,
    /// One datagram at a time, on time
    Spin,
    /// Datagrams that are due when it wakes, one call for each socket
    Sleep,
}

/// One side of a raw loop.
#[derive(Debug, Args)]
pub(crate) struct RawArgs {
    pub(super) kind: Loop,
    /// Receive at this address
    #[arg(long)]
    listen: Option<SocketAddr>,
    /// Send to this address
    #[arg(long)]
    to: Option<SocketAddr>,
    /// Payload bytes
    #[arg(long, default_value_t = 64)]
    pub(super) size: usize,
    #[arg(long, default_value_t = 1)]
    pub(super) seconds: u64,
    /// Sockets that send a datagram each in turn; with 1 all 64 of a batch are one socket's
    #[arg(long, default_value_t = 1)]
    flows: u32,
    /// Packets a second of each flow, for `spin` and `sleep`
    #[arg(long, default_value_t = 1000.0)]
    rate: f64,
    /// Stamps, and this file
    #[arg(long)]
    pub(super) log: Option<PathBuf>,
}

/// Runs one side, and prints how many datagrams it has sent or received; joined ones count once.
pub(crate) fn run(args: &RawArgs) -> Result<()> {
    let count = match (args.listen, args.to) {
        (Some(at), _) if args.kind == Loop::Frames => raw_frames::receive(args, at)?,
        (Some(at), _) => receive(args, at)?,
        (None, Some(to)) => match args.kind {
            Loop::Batches if args.flows > 1 => send_in_turn(args, to)?,
            Loop::Batches => send_batches(args, to)?,
            Loop::Segments => send_segments(args, to)?,
            Loop::Frames => raw_frames::send(args, to)?,
            Loop::Spin => send_on_time(args, to)?,
            Loop::Sleep => send_when_awake(args, to)?,
        },
        (None, None) => anyhow::bail!("neither --listen nor --to"),
    };
    print(count);
    Ok(())
}

pub(super) fn connected(to: SocketAddr) -> Result<UdpSocket> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect(to)?;
    Ok(socket)
}

/// One for each flow.
fn sockets(args: &RawArgs, to: SocketAddr) -> Result<Vec<UdpSocket>> {
    itg_socket::host::raise_open_files();
    (0..args.flows).map(|_| connected(to)).collect()
}

fn send_batches(args: &RawArgs, to: SocketAddr) -> Result<u64> {
    let socket = connected(to)?;
    let bytes = vec![7; args.size];
    let slices = [(); BATCH].map(|()| [IoSlice::new(&bytes)]);
    let mut headers = MultiHeaders::<SockaddrIn>::preallocate(BATCH, None);
    let begin = Instant::now();
    let mut stamps = [begin; BATCH];
    let mut sent = 0;
    while begin.elapsed() < Duration::from_secs(args.seconds) {
        if args.log.is_some() {
            for stamp in &mut stamps {
                *stamp = std::hint::black_box(Instant::now());
            }
        }
        sendmmsg(socket.as_raw_fd(), &mut headers, &slices, [None; BATCH], [], MsgFlags::empty())?;
        // A call that waits takes all of them, or ends the loop.
        sent += BATCH as u64;
    }
    Ok(sent)
}

/// One datagram a call, as packets of many flows leave that are not due together.
fn send_in_turn(args: &RawArgs, to: SocketAddr) -> Result<u64> {
    let sockets = sockets(args, to)?;
    let bytes = vec![7; args.size];
    let slices = [[IoSlice::new(&bytes)]];
    let mut headers = MultiHeaders::<SockaddrIn>::preallocate(1, None);
    let begin = Instant::now();
    let mut sent = 0;
    while begin.elapsed() < Duration::from_secs(args.seconds) {
        for socket in &sockets {
            sendmmsg(socket.as_raw_fd(), &mut headers, &slices, [None], [], MsgFlags::empty())?;
            sent += 1;
        }
    }
    Ok(sent)
}

/// Packets of this size that leave as one message.
pub(super) fn joined(size: usize) -> usize {
    (LARGEST / size.max(1)).min(BATCH)
}

fn send_segments(args: &RawArgs, to: SocketAddr) -> Result<u64> {
    let socket = connected(to)?;
    setsockopt(&socket, sockopt::UdpGsoSegment, &i32::try_from(args.size)?)?;
    let count = joined(args.size);
    let mut bytes = vec![7; args.size * count];
    let mut log = args.log.as_deref().map(RecordFile::create).transpose()?;
    ensure!(log.is_none() || args.size >= HEAD, "a packet has at least {HEAD} bytes");
    let (content, mut seq) = (Content::random(RunSeed(1)), 0);
    let size = u32::try_from(args.size)?;
    let begin = Instant::now();
    let mut messages = 0;
    while begin.elapsed() < Duration::from_secs(args.seconds) {
        if let Some(log) = &mut log {
            let now_ns = clock::unix_ns();
            log.push([1, seq, u64::from(size), now_ns, count as u64]);
            for packet in bytes.chunks_exact_mut(args.size) {
                if let Some((head, body)) = packet.split_first_chunk_mut() {
                    PacketHeader::write(1, seq, now_ns, size, head);
                    body.copy_from_slice(content.of(1, seq, body.len()));
                }
                seq += 1;
            }
            log.write_piece()?;
        }
        let sent = socket.send(&bytes)?;
        ensure!(sent == bytes.len(), "{sent} of {} bytes", bytes.len());
        messages += 1;
    }
    log.map_or(Ok(()), RecordFile::finish)?;
    Ok(messages)
}

/// Instants at which packets are due, in nanoseconds: of one flow at even times, of many with exponential gaps, their
/// starts spread as those of others.
fn plan(args: &RawArgs) -> Result<Vec<u64>> {
    ensure!(args.rate > 0.0, "no rate");
    let gap_ns = 1e9 / args.rate;
    let mut spec = FlowSpec::new(1);
    spec.idt = match args.flows {
        1 => Distribution::Constant(gap_ns),
        _ => Distribution::Exp { mean: gap_ns },
    };
    spec.stop.duration_ns = Some(args.seconds * 1_000_000_000);
    let mut plan = Vec::new();
    for number in 0..args.flows {
        spec.id = number;
        let start_ns = SPREAD_MS * 1_000_000 * u64::from(number) / u64::from(args.flows);
        let flow = Flow::resolve(spec.clone(), RunSeed(1))?;
        plan.extend(flow.schedule().map(|packet| start_ns + packet.due_ns));
    }
    plan.sort_unstable();
    Ok(plan)
}

/// One datagram at each of these instants, for which it looks at the clock without pause, through its sockets in turn.
/// Prints how late its calls began.
fn send_on_time(args: &RawArgs, to: SocketAddr) -> Result<u64> {
    let (sockets, plan) = (sockets(args, to)?, plan(args)?);
    let bytes = vec![7; args.size];
    let mut late_ns = Vec::with_capacity(plan.len());
    let begin_ns = clock::monotonic_ns();
    for (due_ns, socket) in plan.iter().zip(sockets.iter().cycle()) {
        let mut after_ns = clock::monotonic_ns() - begin_ns;
        while after_ns < *due_ns {
            std::hint::spin_loop();
            after_ns = clock::monotonic_ns() - begin_ns;
        }
        late_ns.push(after_ns - due_ns);
        socket.send(&bytes)?;
    }
    late_ns.sort_unstable();
    let at = |share: usize| late_ns.get(late_ns.len().saturating_sub(1) * share / 100);
    print(format_args!("late {} {}", at(50).unwrap_or(&0), at(99).unwrap_or(&0)));
    Ok(plan.len() as u64)
}

/// Packets at even times, through its sockets in turn: sleeps until one is due, and sends what is due then, of one socket
/// with one call.
fn send_when_awake(args: &RawArgs, to: SocketAddr) -> Result<u64> {
    ensure!(args.rate > 0.0, "no rate");
    let sockets = sockets(args, to)?;
    let gap = Duration::from_secs_f64(1.0 / (args.rate * f64::from(args.flows)));
    let gap_ns = u64::try_from(gap.as_nanos())?.max(1);
    let count = args.seconds * 1_000_000_000 / gap_ns;
    let bytes = vec![7; args.size];
    let slices = [(); BATCH].map(|()| [IoSlice::new(&bytes)]);
    let mut headers = MultiHeaders::<SockaddrIn>::preallocate(BATCH, None);
    let mut turns = sockets.iter().cycle();
    clock::sharpen_timers();
    let begin_ns = clock::monotonic_ns();
    let mut sent = 0;
    while sent < count {
        clock::sleep_until(begin_ns + sent * gap_ns);
        let due = (clock::monotonic_ns() - begin_ns) / gap_ns + 1;
        let due = usize::try_from(due.min(count).saturating_sub(sent))?.clamp(1, BATCH);
        if let [socket] = &sockets[..] {
            let (socket, slices) = (socket.as_raw_fd(), &slices[..due]);
            let addresses = &[None; BATCH][..due];
            sendmmsg(socket, &mut headers, slices, addresses, [], MsgFlags::empty())?;
        } else {
            for socket in turns.by_ref().take(due) {
                socket.send(&bytes)?;
            }
        }
        sent += due as u64;
    }
    Ok(sent)
}

/// Records of 40 bytes, a megabyte at a time.
pub(super) struct RecordFile {
    file: File,
    piece: Vec<u8>,
}

impl RecordFile {
    pub(super) fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).with_context(|| path.display().to_string())?;
        Ok(Self { file, piece: Vec::with_capacity(2 * PIECE) })
    }

    pub(super) fn push(&mut self, words: [u64; 5]) {
        for word in words {
            self.piece.extend_from_slice(&word.to_le_bytes());
        }
    }

    /// Writes what there is, if it is a megabyte.
    pub(super) fn write_piece(&mut self) -> Result<()> {
        if self.piece.len() >= PIECE { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<()> {
        self.file.write_all(&self.piece)?;
        self.piece.clear();
        Ok(())
    }

    /// Writes the rest.
    pub(super) fn finish(mut self) -> Result<()> {
        self.write()
    }

    /// Adds a datagram, which has this number, or the runs among joined ones as their headers tell them.
    fn take(&mut self, datagram: &Datagram<'_>, seq: &mut u64) {
        let arrived_ns = datagram.arrived_ns.unwrap_or(0);
        if datagram.segment == 0 {
            self.push([*seq, datagram.len as u64, arrived_ns, arrived_ns, 0]);
            *seq += 1;
            return;
        }
        let mut headers =
            datagram.bytes.chunks(datagram.segment).map(PacketHeader::parse).peekable();
        while let Some(first) = headers.next() {
            let Some(PacketHeader { handle, seq, sent_ns }) = first else { continue };
            let mut packets = 1;
            let follows = |next: &Option<PacketHeader>, packets| {
                *next == Some(PacketHeader { handle, seq: seq.wrapping_add(packets), sent_ns })
            };
            while headers.next_if(|next| follows(next, packets)).is_some() {
                packets += 1;
            }
            self.push([handle.into(), seq, packets, sent_ns.unwrap_or(0), arrived_ns]);
        }
    }
}

fn receive(args: &RawArgs, at: SocketAddr) -> Result<u64> {
    let socket = UdpSocket::bind(at)?;
    socket.set_nonblocking(true)?;
    // Beyond the system's limit only root gets it.
    if setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER).is_err() {
        setsockopt(&socket, sockopt::RcvBuf, &RECEIVE_BUFFER)?;
    }
    let (mut batch, nap) = match args.kind {
        Loop::Batches | Loop::Frames | Loop::Spin | Loop::Sleep => {
            (RecvBatch::new(BATCH, 64), Duration::from_micros(200))
        }
        Loop::Segments => {
            setsockopt(&socket, sockopt::UdpGroSegment, &true)?;
            (RecvBatch::new(BATCH, 65_536), Duration::from_micros(50))
        }
    };
    let mut log = args.log.as_deref().map(RecordFile::create).transpose()?;
    if log.is_some() {
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
    }
    let (mut seq, mut received) = (0u64, 0);
    let mut last = Instant::now();
    let mut patience = PATIENCE;
    loop {
        let count = match batch.recv(socket.as_fd()) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error.into()),
        };
        if count > 0 {
            (last, patience) = (Instant::now(), SILENCE);
        } else if last.elapsed() > patience {
            break;
        }
        received += count as u64;
        if let Some(log) = &mut log {
            for i in 0..count {
                log.take(&batch.get(i), &mut seq);
            }
            log.write_piece()?;
        }
        if count < batch.capacity() {
            thread::sleep(nap);
        }
    }
    log.map_or(Ok(()), RecordFile::finish)?;
    Ok(received)
}
