//! `ITGSend -Q` among hosts that have not agreed: hosts that it sends to, and hosts that it
//! answers. Needs root.
#![allow(missing_docs, reason = "tests")]

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use itg_tests::{Pair, Running, not_run, program, takes_datagrams, temp_dir};
use nix::sys::signal::Signal;

/// Time that a program may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);
/// Time for which nothing may come where nothing is to come.
const QUIET: Duration = Duration::from_secs(1);
const DAEMON: &str = "10.77.0.1:8998";
const ATTACKER: &str = "10.77.0.2";
const VICTIM: &str = "10.77.0.3";

/// The daemon on its host; the other host has the addresses of the attacker and of the victim.
struct House {
    pair: Pair,
    daemon: Running,
}

impl House {
    fn open(args: &[&str]) -> Self {
        let pair = Pair::new();
        pair.receiver.ip(&format!("address add {VICTIM}/24 dev link0"));
        let dir = temp_dir();
        let mut command = pair.sender.command(&program("ITGSend"));
        let daemon = Running::start(command.current_dir(dir.path()).arg("-Q").args(args));
        takes_datagrams(&daemon, 8998);
        Self { pair, daemon }
    }

    /// Carries out the attack: a receiver at the attacker's address agrees to whatever is offered, the data
    /// are to go to the victim. The datagrams that the victim got, and the answers to the attacker; each is waited for
    /// so long.
    fn flood(&self, patience: Duration) -> (usize, Vec<Vec<u8>>) {
        self.pair.receiver.within(|| {
            let listener = TcpListener::bind((ATTACKER, 9000)).expect("a port");
            let victim = UdpSocket::bind((VICTIM, 8999)).expect("a port");
            let asks = UdpSocket::bind((ATTACKER, 0)).expect("a port");
            let request = format!("-a {VICTIM} -Sda {ATTACKER} -C 1000 -c 1000 -t 60000");
            asks.send_to(request.as_bytes(), DAEMON).expect("sent");
            listener.set_nonblocking(true).expect("a socket");
            let until = Instant::now() + patience;
            let mut held = None;
            while held.is_none() && Instant::now() < until {
                held = listener.accept().ok();
                std::thread::sleep(Duration::from_millis(5));
            }
            if let Some((stream, _)) = &mut held {
                agree(stream);
            }
            (received(&victim, 100, patience).len(), received(&asks, 1, patience))
        })
    }
}

/// Greets a sender and accepts its flow.
fn agree(stream: &mut TcpStream) {
    stream.set_nonblocking(false).expect("a socket");
    stream.set_read_timeout(Some(LIMIT)).expect("a time-out");
    let mut byte = [0];
    stream.read_exact(&mut byte).expect("a greeting");
    stream.write_all(&[2]).expect("it reads");
    // An offer over IPv4 has 26 bytes; the flow's number is behind the first six.
    let mut offer = [0; 26];
    stream.read_exact(&mut offer).expect("an offer");
    let mut accept = vec![5];
    accept.extend_from_slice(&offer[6..10]);
    accept.extend_from_slice(&8999_u16.to_be_bytes());
    stream.write_all(&accept).expect("it reads");
}

/// Datagrams that come: so many, or until none has come for so long.
fn received(socket: &UdpSocket, most: usize, patience: Duration) -> Vec<Vec<u8>> {
    socket.set_read_timeout(Some(patience)).expect("a time-out");
    let mut all = Vec::new();
    let mut bytes = [0; 2048];
    while all.len() < most {
        match socket.recv(&mut bytes) {
            Ok(len) => all.push(bytes[..len].to_vec()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
                break;
            }
        }
    }
    all
}

#[test]
fn a_daemon_floods_nobody_who_has_not_agreed() {
    if not_run() {
        return;
    }
    let house = House::open(&[]);
    assert_eq!(house.flood(QUIET), (0, Vec::new()), "{}", house.daemon.err());
    let words = house.daemon.line_with("is refused", LIMIT);
    assert!(words.contains("--allow-third-party") && words.contains(VICTIM), "{words}");
    // The same request, where its user allows it.
    let house = House::open(&["--allow-third-party"]);
    let (packets, answers) = house.flood(LIMIT);
    assert!(packets >= 100 && answers[0][0] == 1, "{packets} {answers:?}");
}

#[test]
fn a_daemon_answers_nothing_that_is_no_request() {
    if not_run() {
        return;
    }
    let house = House::open(&[]);
    let rows: [&[u8]; 8] =
        [b"", b"\0", b" \n", b"hello", b"-C nothing", b"\xff\xfe", b"-Q", &[b'-'; 1458]];
    for namespace in [&house.pair.receiver, &house.pair.sender] {
        let answers = namespace.within(|| {
            let asks = UdpSocket::bind("0.0.0.0:0").expect("a port");
            for row in rows {
                asks.send_to(row, DAEMON).expect("sent");
            }
            // A refusal is not sent to an address that may be forged.
            asks.send_to(b"-Fp /etc/passwd", DAEMON).expect("sent");
            received(&asks, 1, QUIET)
        });
        assert_eq!(answers, Vec::<Vec<u8>>::new());
    }
    // On the daemon's own host no other host can have asked: the daemon says why not.
    let answers = house.pair.sender.within(|| {
        let asks = UdpSocket::bind("127.0.0.1:0").expect("a port");
        asks.send_to(b"", "127.0.0.1:8998").expect("sent");
        asks.send_to(b"-Fp /etc/passwd", "127.0.0.1:8998").expect("sent");
        let mut answers = received(&asks, 2, LIMIT);
        answers.extend(received(&asks, 1, QUIET));
        answers
    });
    let kinds: Vec<u8> = answers.iter().map(|answer| answer[0]).collect();
    assert_eq!(kinds, [1, 3]);
    assert!(String::from_utf8_lossy(&answers[1]).contains("may not name files"));
}

/// Ctrl-Z and `fg`: the wait for an answer is interrupted, and goes on.
#[test]
fn a_manager_that_was_suspended_goes_on() {
    if not_run() {
        return;
    }
    let house = House::open(&[]);
    let dir = temp_dir();
    let mut command = house.pair.receiver.command(&program("ITGRecv"));
    let receiver = Running::start(command.current_dir(dir.path()));
    itg_tests::listens(&receiver, 9000);
    let mut command = house.pair.receiver.command(&program("ITGManager"));
    let words = "10.77.0.1 -a 10.77.0.2 -C 100 -c 100 -z 200";
    let manager = Running::start(command.args(words.split(' ')));
    for _ in 0..5 {
        std::thread::sleep(Duration::from_millis(150));
        manager.signal(Signal::SIGSTOP);
        std::thread::sleep(Duration::from_millis(20));
        manager.signal(Signal::SIGCONT);
    }
    let done = manager.finish(LIMIT).exits(0);
    assert!(done.out.contains("1 (started)") && done.out.contains("2 (ended)"), "{done}");
}

#[test]
fn our_manager_drives_a_daemon_as_ever() {
    if not_run() {
        return;
    }
    let house = House::open(&[]);
    let dir = temp_dir();
    let mut command = house.pair.receiver.command(&program("ITGRecv"));
    let receiver = Running::start(command.current_dir(dir.path()).args(["-l", "r.log"]));
    itg_tests::listens(&receiver, 9000);
    for asks in ["-a 10.77.0.2", "-a 10.77.0.2 -Sda 10.77.0.2", "-a 10.77.0.2 -m rttm"] {
        let mut command = house.pair.receiver.command(&program("ITGManager"));
        let words = format!("10.77.0.1 {asks} -C 100 -c 100 -z 20");
        let done = Running::start(command.args(words.split(' '))).finish(LIMIT).exits(0);
        assert!(done.out.contains("1 (started)") && done.out.contains("2 (ended)"), "{done}");
    }
}
