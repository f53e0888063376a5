//! Connections between processes: one thread each, which greets and then reads. Both sides may connect;
//! both connections are read then, and each side writes to the one that it had first.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use itg_process::bootstrap::{Boot, Diagnosis, Step};
use itg_process::{SECOND, Slot};
use itg_socket::clock;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::{SockAddr, Socket, Type};

use crate::frame_reader::{FrameReader, SLICE, is_pause, prepare, say};
use crate::peer::hang_up;
use crate::shared::{Identity, News, Shared, now};

/// Nanoseconds for a connection to be made.
const CONNECT: u64 = 3 * SECOND;
/// Nanoseconds for the process that has connected to say which one it is.
const GREETING: u64 = 5 * SECOND;
/// Pauses before the next attempt when a connection is made and ends at once: a process that is killed closes
/// its listener a little later than the connections behind it, on a busy host some time later, and only then its host
/// refuses.
const AGAIN: [Duration; 5] = [
    Duration::from_millis(1),
    Duration::from_millis(4),
    Duration::from_millis(16),
    Duration::from_millis(64),
    Duration::from_millis(256),
];
/// Nanoseconds within which a connection ends at once: on a busy host a process that is killed closes what it has open
/// a second later.
const AT_ONCE: u64 = 3 * SECOND;
/// Longest greeting, in bytes.
const MOST_GREETING: usize = 4096;
/// Connections at a time whose process is not known yet.
pub(crate) const MOST_UNKNOWN: usize = 256;

/// Connects to a process and reads what it says.
pub(crate) fn dial(shared: &Arc<Shared>, net: u8, slot: u32) {
    let before = {
        let Some(state) = shared.lock() else { return };
        state.nets[usize::from(net)].peers[slot as usize].incarnation()
    };
    let reached = target(shared, net, slot).and_then(|target| target.reach(&shared.closing));
    match reached {
        Ok((socket, incarnation, reader)) => read(shared, net, slot, incarnation, socket, reader),
        Err(Unreached { why, refused, stale, .. }) => {
            tracing::debug!(slot, net, why, "not reached");
            let Some(mut state) = shared.lock() else { return };
            if let Some(news) = &state.news {
                let unreachable = News::Unreachable { slot, why };
                let said = stale.map_or(unreachable, |incarnation| News::Stale { incarnation });
                news.send(said).unwrap_or_default();
            }
            if let Some(newer) = stale {
                state.end_replaced(newer);
                shared.changed.notify_all();
            }
            shared.give_up(&mut state, net, slot, now());
            if refused {
                state.refused(net, slot, before);
            }
            shared.carry_out(&mut state);
        }
    }
}

/// Reason that a process was not reached.
struct Unreached {
    why: String,
    /// Its host says that no process listens there.
    refused: bool,
    /// A connection was made and has ended at once.
    cut: bool,
    /// The incarnation that has taken the place of this process.
    stale: Option<u64>,
}

impl<T: std::fmt::Display> From<T> for Unreached {
    fn from(why: T) -> Self {
        Self { why: why.to_string(), refused: false, cut: false, stale: None }
    }
}

/// A process to connect to, and the process that connects.
struct Target {
    identity: Identity,
    /// Addresses of this process.
    own: Vec<String>,
    net: u8,
    slot: u32,
    address: SockAddr,
    max_body: usize,
}

fn target(shared: &Shared, net: u8, slot: u32) -> Result<Target, Unreached> {
    let state = shared.lock().ok_or("a layer has panicked")?;
    let network = &state.nets[usize::from(net)];
    let address = network.peers[slot as usize].address.clone();
    let (Some(identity), Some(address)) = (state.identity, address) else {
        return Err("it has no address".into());
    };
    let (own, max_body) = (state.own_addresses(), network.wanted.max_body);
    Ok(Target { identity, own, net, slot, address, max_body })
}

type Reached = Result<(Socket, u64, FrameReader), Unreached>;

impl Target {
    /// Connects, again when the connection ends at once.
    fn reach(&self, closing: &AtomicBool) -> Reached {
        let mut reached = self.attempt(closing);
        for pause in AGAIN {
            let again = matches!(&reached, Err(unreached) if unreached.cut);
            if !again || closing.load(Ordering::Relaxed) {
                break;
            }
            std::thread::sleep(pause);
            reached = self.attempt(closing);
        }
        reached
    }

    fn attempt(&self, closing: &AtomicBool) -> Reached {
        let &Self { identity: Identity { me, incarnation, run, .. }, net, slot, .. } = self;
        let closed = || closing.load(Ordering::Relaxed);
        let socket = connect(&self.address, CONNECT, closed).map_err(|error| {
            let refused = error.kind() == ErrorKind::ConnectionRefused;
            // It was made and has ended before this process looked.
            let cut = matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe);
            Unreached { refused, cut, ..Unreached::from(error) }
        })?;
        let addresses = self.own.clone();
        let made = clock::machine_ns();
        let mut reader = FrameReader::new(MOST_GREETING);
        let greeting = Boot::Mesh { slot: me.0, incarnation, net, run, addresses };
        let heard = prepare(&socket, !self.address.is_unix())
            .and_then(|()| say(&socket, &greeting))
            .map_err(|error| error.to_string())
            .and_then(|()| reader.hear(&socket, made + GREETING, closing));
        let heard = heard.map_err(|why| {
            let cut = clock::machine_ns() < made + AT_ONCE;
            Unreached { cut, ..Unreached::from(why) }
        })?;
        match heard {
            Boot::Mesh { slot: its, incarnation, net: its_net, run: its_run, .. }
                if (its, its_net, its_run) == (slot, net, run) =>
            {
                reader.limit(self.max_body);
                Ok((socket, incarnation, reader))
            }
            Boot::Mesh { slot: its, .. } => {
                Err(format!("slot {its} of another run answers there").into())
            }
            Boot::Stale { incarnation: newer } => {
                let why = format!(
                    "incarnation {newer} of slot {me} has taken the place of {incarnation}"
                );
                Err(Unreached { stale: Some(newer), ..Unreached::from(why) })
            }
            other => {
                Err(format!("it answers {other:?}").chars().take(200).collect::<String>().into())
            }
        }
    }
}

/// Connects within a time.
///
/// # Errors
/// Refused, unreachable, or no answer.
pub(crate) fn connect(
    address: &SockAddr,
    limit_ns: u64,
    unwanted: impl Fn() -> bool,
) -> io::Result<Socket> {
    let socket = Socket::new(address.domain(), Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    let deadline = clock::machine_ns() + limit_ns;
    match socket.connect(address) {
        Ok(()) => return Ok(socket),
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
        // A Unix socket whose queue is full says so at once.
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            return Err(io::Error::new(ErrorKind::WouldBlock, "it takes no more connections"));
        }
        Err(error) => return Err(error),
    }
    let slice = PollTimeout::try_from(SLICE).unwrap_or(PollTimeout::MAX);
    loop {
        let mut waited = [PollFd::new(std::os::fd::AsFd::as_fd(&socket), PollFlags::POLLOUT)];
        match poll(&mut waited, slice) {
            Ok(0) | Err(nix::errno::Errno::EINTR) => {}
            Ok(_) => break,
            Err(error) => return Err(error.into()),
        }
        if unwanted() {
            return Err(io::Error::new(ErrorKind::Interrupted, "this process is closing"));
        }
        if clock::machine_ns() >= deadline {
            let limit = itg_core::units::format_duration_ns(limit_ns);
            let text = format!("no answer within {limit}: check the address and the firewall");
            return Err(io::Error::new(ErrorKind::TimedOut, text));
        }
    }
    match socket.take_error() {
        Ok(None) => Ok(socket),
        Ok(Some(error)) | Err(error) => Err(error),
    }
}

/// Reads a connection that another process made to one of our listeners.
pub(crate) fn answer(shared: &Arc<Shared>, socket: Socket, tcp: bool) {
    let greeted = prepare(&socket, tcp)
        .map_err(|error| error.to_string())
        .and_then(|()| greet(shared, &socket));
    shared.unknown.fetch_sub(1, Ordering::Relaxed);
    match greeted {
        Ok(Some((net, slot, incarnation, reader))) => {
            read(shared, net, slot, incarnation, socket, reader);
        }
        Ok(None) => {}
        Err(why) => tracing::debug!(why, "a connection of nobody who takes part"),
    }
}

type Greeted = (u8, u32, u64, FrameReader);

/// Reads which process connects, and answers; `None` when it asked how to return, and has been told.
fn greet(shared: &Arc<Shared>, socket: &Socket) -> Result<Option<Greeted>, String> {
    let mut reader = FrameReader::new(MOST_GREETING);
    let deadline = clock::machine_ns() + GREETING;
    let (slot, incarnation, net, run, addresses) =
        match reader.hear(socket, deadline, &shared.closing)? {
            Boot::Mesh { slot, incarnation, net, run, addresses } => {
                (slot, incarnation, net, run, addresses)
            }
            asks @ Boot::Return { .. } => return receive(shared, socket, &asks).map(|()| None),
            _ => return Err("it does not say who it is".to_owned()),
        };
    let mut state = shared.lock().ok_or("a layer has panicked")?;
    // Others may know our identity before we do.
    let identity = loop {
        match state.identity {
            Some(identity) => break identity,
            None if shared.is_closing() || clock::machine_ns() >= deadline => {
                return Err("it came long before the start".to_owned());
            }
            None => state = shared.wait(state, SLICE).ok_or("a layer has panicked")?,
        }
    };
    let Some(network) = state.nets.get_mut(usize::from(net)) else {
        return Err(format!("there is no network {net}"));
    };
    if run != identity.run || slot >= identity.processes || Slot(slot) == identity.me {
        network.counters.strangers += 1;
        return Err(format!("slot {slot} of another run"));
    }
    reader.limit(network.wanted.max_body);
    let newest = network.peers[slot as usize].incarnation();
    if incarnation < newest {
        network.counters.strangers += 1;
        drop(state);
        say(socket, &Boot::Stale { incarnation: newest }).map_err(|error| error.to_string())?;
        return Err(format!("incarnation {incarnation} of slot {slot}, which is at {newest}"));
    }
    if newest > 0 && incarnation > newest {
        let from = socket.peer_addr().ok().and_then(|at| at.as_socket()).map(|at| at.ip());
        shared.begin_incarnation(&mut state, slot, incarnation, &addresses, from);
    }
    let addresses = state.own_addresses();
    drop(state);
    let Identity { me, incarnation: own, run, .. } = identity;
    say(socket, &Boot::Mesh { slot: me.0, incarnation: own, net, run, addresses })
        .map_err(|error| error.to_string())?;
    Ok(Some((net, slot, incarnation, reader)))
}

/// Tells a process that returns its place, or why it has none.
fn receive(shared: &Arc<Shared>, socket: &Socket, asks: &Boot) -> Result<(), String> {
    let answer = {
        let mut state = shared.lock().ok_or("a layer has panicked")?;
        state.receive(asks)
    };
    let say = |boot: &Boot| say(socket, boot).map_err(|error| error.to_string());
    match answer {
        Ok(place) => place.iter().try_for_each(say),
        Err(diagnosis) => {
            say(&Boot::Abort(diagnosis.clone()))?;
            Err(diagnosis.to_string())
        }
    }
}

/// Answer of a process that does not run to one that returns.
pub(crate) fn not_running(reason: &str) -> Diagnosis {
    Diagnosis { host: itg_socket::host::name(), step: Step::Hello, reason: reason.to_owned() }
}

/// Reads frames until the connection ends.
fn read(
    shared: &Arc<Shared>,
    net: u8,
    slot: u32,
    incarnation: u64,
    socket: Socket,
    mut reader: FrameReader,
) {
    // What ends the process hangs up, which ends a read; the kernel ends it when the host has gone.
    if let Err(error) = socket.set_read_timeout(None) {
        tracing::debug!(%error, "a connection keeps its read time-out");
    }
    let socket = Arc::new(socket);
    let Some(id) = shared.linked(net, slot, incarnation, &socket) else {
        hang_up(&socket);
        return;
    };
    let me = shared.lock().and_then(|state| state.identity).map_or(Slot(0), |own| own.me);
    let mut frames = Vec::new();
    let why = loop {
        let whole = reader.all(me, &mut frames);
        let good = frames.is_empty() || shared.deliver(net, slot, &mut frames);
        if let Err(error) = whole {
            if let Some(mut state) = shared.lock() {
                state.nets[usize::from(net)].counters.damaged += 1;
            }
            break error.to_string();
        }
        if !good {
            break "it speaks for somebody else".to_owned();
        }
        match reader.fill(&socket) {
            Ok(0) => break "closed by the other side".to_owned(),
            Ok(_) => {}
            Err(error) if is_pause(&error) && !shared.is_closing() => {}
            Err(error) => break error.to_string(),
        }
    };
    tracing::debug!(slot, net, why, "a connection has ended");
    hang_up(&socket);
    shared.unlinked(net, slot, id);
}

/// Time that a closing process waits for the others to close their connections, too.
pub(crate) const LINGER: Duration = Duration::from_millis(300);

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// The connections behind a listener of a process that is killed close before the listener.
    #[test]
    fn a_door_that_closes_after_the_connection_is_a_refusal() {
        // The door without a connection closes at another moment in each round: before, while and after one is made.
        for before in [0; 1000].into_iter().chain(0..3) {
            let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
            let address = SockAddr::from(listener.local_addr().unwrap());
            let dying = thread::spawn(move || {
                for _ in 0..before {
                    drop(listener.accept().unwrap());
                }
            });
            let identity = Identity { me: Slot(0), processes: 2, incarnation: 1, run: 7 };
            let target =
                Target { identity, own: Vec::new(), net: 0, slot: 1, address, max_body: 100 };
            let unreached = target.reach(&AtomicBool::new(false)).err().unwrap();
            dying.join().unwrap();
            assert!(unreached.refused && !unreached.cut, "{before}: {}", unreached.why);
        }
    }
}
