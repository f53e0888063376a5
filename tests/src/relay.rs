//! A relay in user space that does to datagrams what a bad network does, from a seed, counts it and keeps
//! account of each; connections pass, and can be cut and healed.
//!
//! It listens on one address for UDP and TCP and passes everything on to another one with the same
//! port, so that ports which peers tell each other stay true. Answers pass unharmed.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sys::socket::{setsockopt, sockopt};

/// Time between two looks of a thread whether the relay has ended.
const LOOK: Duration = Duration::from_millis(20);

/// Bytes of connections that are kept.
const MOST_CARRIED: usize = 16 << 20;

/// Impairment of datagrams on their way; shares are of 0 to 1.
#[derive(Clone, Copy, Debug, Default)]
pub struct Impairment {
    /// Seed of its random choices.
    pub seed: u64,
    /// Share that is lost.
    pub lost: f64,
    /// Share that comes twice.
    pub twice: f64,
    /// Share that is reordered: it leaves after 1 to 8 of the datagrams behind it.
    pub late: f64,
    /// Share of which a byte of the payload is changed; the checksum is right again.
    pub changed: f64,
    /// Number of datagrams behind which all are lost.
    pub lost_behind: Option<usize>,
}

/// Counts of a relay's datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Relayed {
    /// Datagrams that came.
    pub came: u64,
    /// Lost by chance, or because the relay was cut.
    pub lost: u64,
    /// Passed on twice.
    pub twice: u64,
    /// Passed on behind later ones.
    pub late: u64,
    /// Passed on with another byte.
    pub changed: u64,
}

/// Outcome of one datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passed {
    /// Its first 64 bytes, fewer when it is shorter: the header of ITG's packets, and what follows.
    pub head: Vec<u8>,
    /// Unix nanoseconds before and after each copy was handed to the kernel; none for one that was
    /// lost.
    pub copies: Vec<(u64, u64)>,
}

impl Passed {
    /// The sequence number of a packet of ITG.
    #[must_use]
    pub fn seq(&self) -> u64 {
        u64::from_le_bytes(self.head[4..12].try_into().expect("a header"))
    }

    /// Time at which a packet of ITG says that it was sent, in Unix nanoseconds.
    #[must_use]
    pub fn sent_ns(&self) -> u64 {
        u64::from_le_bytes(self.head[12..20].try_into().expect("a long packet"))
    }
}

/// The account of all datagrams.
#[derive(Clone, Debug, Default)]
pub struct Traffic {
    /// As they came.
    pub datagrams: Vec<Passed>,
    /// Places in `datagrams`, copy by copy, as they left.
    pub order: Vec<usize>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    cut: AtomicBool,
    /// Counts the cuts: connections of earlier ones are of no use.
    cuts: AtomicU64,
    relayed: Mutex<Relayed>,
    traffic: Mutex<Traffic>,
    /// Bytes of connections, both ways.
    carried: Mutex<Vec<u8>>,
}

impl Shared {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Relaxed)
    }

    fn count(&self, change: impl FnOnce(&mut Relayed)) {
        change(&mut self.relayed.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Keeps bytes that pass.
    fn carry(&self, bytes: &[u8]) {
        let mut carried = self.carried.lock().unwrap_or_else(PoisonError::into_inner);
        if carried.len() + bytes.len() <= MOST_CARRIED {
            carried.extend_from_slice(bytes);
        }
    }

    fn traffic(&self) -> MutexGuard<'_, Traffic> {
        self.traffic.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A relay; ends when dropped.
#[derive(Debug)]
pub struct Relay {
    /// Address that it listens on.
    pub address: SocketAddr,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Relay {
    /// Starts one on this address of the host, with the port of the address to which it passes on.
    ///
    /// # Panics
    /// If the port is taken there.
    #[track_caller]
    #[must_use]
    pub fn start(on: IpAddr, to: SocketAddr, impairment: Impairment) -> Self {
        Self::slow(on, to, impairment, Duration::ZERO)
    }

    /// As [`start`](Self::start), with each datagram held for this long at least.
    ///
    /// # Panics
    /// If the port is taken there.
    #[track_caller]
    #[must_use]
    pub fn slow(on: IpAddr, to: SocketAddr, impairment: Impairment, delay: Duration) -> Self {
        let address = SocketAddr::new(on, to.port());
        let shared = Arc::new(Shared::default());
        let datagrams = UdpSocket::bind(address).expect("the port is free for UDP");
        datagrams.set_read_timeout(Some(LOOK)).expect("a time-out");
        make_room(&datagrams);
        let connections = TcpListener::bind(address).expect("the port is free for TCP");
        connections.set_nonblocking(true).expect("a socket");
        let (for_udp, for_tcp) = (Arc::clone(&shared), Arc::clone(&shared));
        let threads = vec![
            thread::spawn(move || pass_datagrams(&datagrams, to, impairment, delay, &for_udp)),
            thread::spawn(move || pass_connections(&connections, to, &for_tcp)),
        ];
        Self { address, shared, threads }
    }

    /// From now on nothing passes; connections break without a word.
    pub fn cut(&self) {
        self.shared.cut.store(true, Ordering::Relaxed);
        self.shared.cuts.fetch_add(1, Ordering::Relaxed);
    }

    /// Lets traffic pass again from now on.
    pub fn heal(&self) {
        self.shared.cut.store(false, Ordering::Relaxed);
    }

    /// Ends the relay once all datagrams have left; returns the outcome of each.
    #[must_use]
    pub fn finish(mut self) -> Traffic {
        self.end();
        std::mem::take(&mut *self.shared.traffic())
    }

    fn end(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            drop(thread.join());
        }
    }

    /// Bytes that connections have carried so far, both ways, as a recorder on the link has them: 16 MiB at most.
    #[must_use]
    pub fn carried(&self) -> Vec<u8> {
        self.shared.carried.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts of datagrams so far.
    #[must_use]
    pub fn relayed(&self) -> Relayed {
        *self.shared.relayed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.end();
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// True in this share of all cases.
    #[allow(clippy::cast_precision_loss, reason = "53 bits")]
    fn is(&mut self, share: f64) -> bool {
        ((self.next() >> 11) as f64) < share * (1u64 << 53) as f64
    }
}

/// A datagram that is to leave: not before when, by which way, its place in the account, its bytes.
type Leaving = (Instant, Arc<UdpSocket>, usize, Vec<u8>);

/// Lets each datagram leave when it is due, in the order in which they were given.
fn let_leave(leaving: &mpsc::Receiver<Leaving>, shared: &Shared) {
    while let Ok((due, way, place, bytes)) = leaving.recv() {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let before = unix_ns();
        // A socket error is a loss that the test will notice.
        drop(way.send(&bytes));
        let after = unix_ns();
        let mut traffic = shared.traffic();
        traffic.datagrams[place].copies.push((before, after));
        traffic.order.push(place);
    }
}

fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    u64::try_from(since.as_nanos()).expect("before 2554")
}

fn pass_datagrams(
    from: &UdpSocket,
    to: SocketAddr,
    impairment: Impairment,
    delay: Duration,
    shared: &Arc<Shared>,
) {
    let (leave, leaving) = mpsc::channel::<Leaving>();
    let for_leaving = Arc::clone(shared);
    let last = thread::spawn(move || let_leave(&leaving, &for_leaving));
    let mut chance = Chance(impairment.seed);
    let mut ways: BTreeMap<SocketAddr, Arc<UdpSocket>> = BTreeMap::new();
    // Reordered datagrams that wait for later ones: for how many still, and what.
    let mut waiting: Vec<(u64, Leaving)> = Vec::new();
    let pass = |leaving: Leaving| leave.send(leaving).expect("its thread waits for all of them");
    let mut buffer = vec![0; 65_536];
    let mut answers = Vec::new();
    while !shared.stopped() {
        let Ok((len, source)) = from.recv_from(&mut buffer) else {
            // Nothing comes: no later datagram will leave before them.
            waiting.drain(..).for_each(|(_, leaving)| pass(leaving));
            continue;
        };
        let bytes = &mut buffer[..len];
        let due = Instant::now() + delay;
        shared.count(|relayed| relayed.came += 1);
        let place = {
            let datagrams = &mut shared.traffic().datagrams;
            datagrams.push(Passed { head: bytes[..len.min(64)].to_vec(), copies: Vec::new() });
            datagrams.len() - 1
        };
        let behind = impairment.lost_behind.is_some_and(|count| place >= count);
        if shared.is_cut() || behind || chance.is(impairment.lost) {
            shared.count(|relayed| relayed.lost += 1);
            continue;
        }
        let way = ways.entry(source).or_insert_with(|| {
            let way = open_way(to);
            answers.push(answer(&way, from, source, shared));
            Arc::new(way)
        });
        if let Some(last) = bytes.last_mut()
            && impairment.changed > 0.0
            && chance.is(impairment.changed)
        {
            shared.count(|relayed| relayed.changed += 1);
            *last ^= 0x10;
        }
        let leaving = || (due, Arc::clone(way), place, bytes.to_vec());
        if chance.is(impairment.late) {
            shared.count(|relayed| relayed.late += 1);
            waiting.push((1 + chance.next() % 8, leaving()));
            continue;
        }
        pass(leaving());
        if chance.is(impairment.twice) {
            shared.count(|relayed| relayed.twice += 1);
            pass(leaving());
        }
        for (left, _) in &mut waiting {
            *left -= 1;
        }
        for (_, leaving) in waiting.extract_if(.., |(left, _)| *left == 0) {
            pass(leaving);
        }
    }
    waiting.into_iter().for_each(|(_, leaving)| pass(leaving));
    drop(leave);
    last.join().expect("no panic");
    for thread in answers {
        drop(thread.join());
    }
}

fn open_way(to: SocketAddr) -> UdpSocket {
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let way = UdpSocket::bind(any).expect("a socket");
    way.connect(to).expect("an address of this host");
    way.set_read_timeout(Some(LOOK)).expect("a time-out");
    make_room(&way);
    way
}

/// Makes room for what comes while this machine stands still; an ordinary user gets what the system allows.
fn make_room(socket: &UdpSocket) {
    const ROOM: usize = 8 << 20;
    setsockopt(socket, sockopt::RcvBufForce, &ROOM)
        .or_else(|_| setsockopt(socket, sockopt::RcvBuf, &ROOM))
        .expect("a buffer");
}

/// Passes answers back.
fn answer(
    way: &UdpSocket,
    back: &UdpSocket,
    source: SocketAddr,
    shared: &Arc<Shared>,
) -> JoinHandle<()> {
    let (way, back) = (way.try_clone().expect("a socket"), back.try_clone().expect("a socket"));
    let shared = Arc::clone(shared);
    thread::spawn(move || {
        let mut buffer = vec![0; 65_536];
        while !shared.stopped() {
            if let Ok(len) = way.recv(&mut buffer)
                && !shared.is_cut()
            {
                drop(back.send_to(&buffer[..len], source));
            }
        }
    })
}

fn pass_connections(listener: &TcpListener, to: SocketAddr, shared: &Arc<Shared>) {
    let mut threads = Vec::new();
    while !shared.stopped() {
        let Ok((here, _)) = listener.accept() else {
            thread::sleep(LOOK / 4);
            continue;
        };
        if shared.is_cut() {
            continue;
        }
        let Ok(there) = TcpStream::connect(to) else { continue };
        let life = shared.cuts.load(Ordering::Relaxed);
        for (from, into) in [(&here, &there), (&there, &here)] {
            from.set_nonblocking(false).expect("a socket");
            from.set_nodelay(true).expect("a socket");
            from.set_read_timeout(Some(LOOK)).expect("a time-out");
            let (from, into) = (from.try_clone(), into.try_clone());
            let (from, into) = (from.expect("a socket"), into.expect("a socket"));
            let shared = Arc::clone(shared);
            threads.push(thread::spawn(move || pass_bytes(from, into, life, &shared)));
        }
    }
    for thread in threads {
        drop(thread.join());
    }
}

/// Passes bytes on until one side ends, or the relay is cut.
fn pass_bytes(mut from: TcpStream, mut into: TcpStream, life: u64, shared: &Shared) {
    let mut buffer = vec![0; 65_536];
    while !shared.stopped() && shared.cuts.load(Ordering::Relaxed) == life {
        match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(got) => {
                shared.carry(&buffer[..got]);
                if into.write_all(&buffer[..got]).is_err() {
                    break;
                }
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => break,
        }
    }
    // Fails when the other side has gone before.
    drop(from.shutdown(Shutdown::Both));
    drop(into.shutdown(Shutdown::Both));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn it_does_what_it_counts() {
        let sink = UdpSocket::bind(("127.0.0.1", crate::free_port())).expect("a socket");
        make_room(&sink);
        sink.set_read_timeout(Some(Duration::from_secs(3))).expect("a time-out");
        let to = sink.local_addr().expect("bound");
        let impairment =
            Impairment { seed: 7, lost: 0.1, twice: 0.1, late: 0.2, ..Impairment::default() };
        let relay = Relay::start(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9)), to, impairment);
        let source = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let mut got: Vec<u8> = Vec::new();
        let mut one = [0; 8];
        for n in 0..200 {
            source.send_to(&[n], relay.address).expect("sent");
            thread::sleep(Duration::from_micros(100));
        }
        while sink.recv(&mut one).is_ok() {
            got.push(one[0]);
        }
        let relayed = relay.relayed();
        assert_eq!(relayed.came, 200);
        assert!(relayed.lost > 0 && relayed.twice > 0 && relayed.late > 0, "{relayed:?}");
        assert_eq!(got.len() as u64, 200 - relayed.lost + relayed.twice);
        assert!(!got.is_sorted());
        relay.cut();
        source.send_to(&[0], relay.address).expect("sent");
        assert!(sink.recv(&mut one).is_err());
    }
}
