//! `ITGManager`: asks a sender that waits as a daemon (`ITGSend -Q`) for flows, with D-ITG's own
//! command line. Where it differs: `docs/d-itg.md`.
#![allow(clippy::print_stderr, reason = "words go to stderr")]

use std::io::{BufRead as _, ErrorKind, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use itg_classic::dec::version_lines;
use itg_classic::recv::parse_manager;
use itg_classic::wire::{Manager, PORT_MANAGER, REQUEST_MAX, ReplyKind};
use itg_core::text::visible;

/// Time between two looks for requests and answers.
const LOOK: Duration = Duration::from_millis(100);
/// Time that a daemon may take to answer.
const ANSWER: Duration = Duration::from_secs(5);
/// Lines that were typed and not looked at yet.
const LINES_AHEAD: usize = 64;

pub(crate) fn main() -> ExitCode {
    let args: Vec<String> =
        std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned()).collect();
    print(&version_lines("ITGManager"));
    run(&args).unwrap_or_else(|error| {
        eprintln!("ITGManager: {error:#}");
        ExitCode::FAILURE
    })
}

/// Writes to stdout at once. An error is dropped: there is nowhere to report it.
fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    drop(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
}

/// The daemon's address; D-ITG's waits on IPv4 alone.
fn resolve(host: &str) -> Result<SocketAddr> {
    let all: Vec<SocketAddr> = (host, PORT_MANAGER)
        .to_socket_addrs()
        .with_context(|| format!("the daemon's host `{host}`"))?
        .collect();
    let found = all.iter().find(|address| address.is_ipv4()).or_else(|| all.first());
    found.copied().with_context(|| format!("the host `{host}` has no address"))
}

/// A manager at work.
struct Desk {
    socket: UdpSocket,
    daemon: SocketAddr,
    manager: Manager,
    /// Instant at which a request that is not answered becomes a failure.
    answer_by: Option<Instant>,
}

impl Desk {
    fn ask(&mut self, request: &str) -> Result<()> {
        let bytes = request.as_bytes();
        if bytes.len() > REQUEST_MAX {
            bail!("the request has {} bytes, more than the {REQUEST_MAX} it may have", bytes.len());
        }
        self.socket
            .send_to(bytes, self.daemon)
            .with_context(|| format!("asking the daemon at {}", self.daemon))?;
        self.manager.sent(bytes);
        self.answer_by = Some(Instant::now() + ANSWER);
        Ok(())
    }

    /// Prints an answer that comes within a moment.
    fn listen(&mut self) -> Result<()> {
        let mut datagram = [0; REQUEST_MAX + 9];
        let (len, from) = match self.socket.recv_from(&mut datagram) {
            Ok(came) => came,
            // Nothing yet; or the program was suspended and goes on.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) =>
            {
                return Ok(());
            }
            Err(error) => return Err(error).context("waiting for answers"),
        };
        let Some((kind, text)) = self.manager.reply(&datagram[..len]) else {
            eprintln!("ITGManager: {from} sent {len} bytes that answer nothing");
            return Ok(());
        };
        if self.manager.answered() {
            self.answer_by = None;
        }
        let what = match kind {
            ReplyKind::Started => "started",
            ReplyKind::Ended => "ended",
            ReplyKind::Refused => "refused",
        };
        let text = String::from_utf8_lossy(text);
        print(&format!("{} ({what}) from {}: {}\n", kind as u8, from.ip(), visible(text.trim())));
        Ok(())
    }
}

/// Lines of the standard input, read as they come.
fn lines() -> Receiver<String> {
    let (tell, told) = sync_channel(LINES_AHEAD);
    thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { return };
            if tell.send(line).is_err() {
                return;
            }
        }
    });
    told
}

fn run(args: &[String]) -> Result<ExitCode> {
    let (host, request) = parse_manager(args);
    if host.starts_with("-h") || host.starts_with("--h") {
        print(itg_classic::recv::MANAGER_HELP);
        return Ok(ExitCode::FAILURE);
    }
    let daemon = resolve(&host)?;
    let any: SocketAddr = match daemon {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).context("a UDP socket")?;
    socket.set_read_timeout(Some(LOOK))?;
    let mut desk = Desk { socket, daemon, manager: Manager::default(), answer_by: None };
    if let Some(request) = request {
        desk.ask(&request)?;
    }
    let lines = lines();
    let mut typed_all = false;
    loop {
        match lines.try_recv() {
            Ok(line) if line.starts_with('C') => break,
            Ok(line) if line.starts_with('-') => desk.ask(&line)?,
            Ok(line) if line.trim().is_empty() => {}
            Ok(line) => eprintln!("ITGManager: `{line}`: a request starts with `-`, C ends"),
            Err(TryRecvError::Disconnected) => typed_all = true,
            Err(TryRecvError::Empty) => {}
        }
        desk.listen()?;
        if desk.answer_by.is_some_and(|by| Instant::now() >= by) {
            bail!(
                "no answer from {daemon}: is `ITGSend -Q` running there? A request that it refuses is \
                 answered on its own host alone; its stderr says why"
            );
        }
        if typed_all && desk.manager.settled() {
            break;
        }
    }
    Ok(if desk.manager.refused() > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
