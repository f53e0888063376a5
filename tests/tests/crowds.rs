//! Crowds of connections that send nothing: a peer that sends a message is served at once all the
//! same.
#![allow(missing_docs, reason = "tests")]

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use itg_classic::send::LogProto;
use itg_classic::wire::LogRequest;
use itg_core::flow::FlowSpec;
use itg_session::{MAGIC, Message, VERSION};
use itg_tests::{
    ClassicReceiver, LogServer, Receiver, free_port, in_parallel, send, stored, temp_dir,
};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use socket2::{Domain, Socket, Type};

/// Time that a program may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Source address of crowds; others come from 127.0.0.1.
const CROWDED: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// So many connections from this address, each of which says this and then nothing.
fn crowd(count: usize, from: IpAddr, to: SocketAddr, says: &[u8]) -> Vec<TcpStream> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    setrlimit(Resource::RLIMIT_NOFILE, most, most).expect("up to the hard limit");
    let connect = |_| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.bind(&SocketAddr::new(from, 0).into()).expect("loopback");
        // Closed with a reset: thousands of ports that wait out their minute would be in the way of other tests.
        socket.set_linger(Some(Duration::ZERO)).expect("a socket");
        socket.connect(&to.into()).expect("it listens");
        let mut stream = TcpStream::from(socket);
        // It may have lost its place already.
        drop(stream.write_all(says));
        stream
    };
    (0..count).map(connect).collect()
}

/// A message as it goes over the wire.
fn frame(message: &Message) -> Vec<u8> {
    let bytes = itg_session::encode(message).expect("a short message");
    let len = u32::try_from(bytes.len()).expect("short");
    [&len.to_le_bytes()[..], &bytes].concat()
}

/// A greeting of ITG's senders, after which flows would follow.
fn greeting() -> Vec<u8> {
    frame(&Message::Hello {
        magic: MAGIC,
        version: VERSION,
        run: "0123456789abcdef0123456789abcdef".to_owned(),
        seed: 1,
        program: "a stranger".to_owned(),
        host: "elsewhere".to_owned(),
        boot_id: String::new(),
        flows: 1,
        recv_log: None,
    })
}

#[test]
fn a_crowd_of_one_address_keeps_nobody_from_a_receiver() {
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let rows = [
        ("silent", (CROWDED, Vec::new())),
        ("greeted", (CROWDED, greeting())),
        ("D-ITG's greeting", (CROWDED, vec![1])),
        ("half a greeting", (CROWDED, greeting()[..9].to_vec())),
        ("of the sender's own address", (local, Vec::new())),
    ];
    in_parallel(&rows, |(from, says)| {
        let mut receiver = Receiver::start::<&str>(&[]);
        // More than it serves at the same time.
        let crowd = crowd(1100, *from, receiver.address, says);
        receiver.serves();
        let (at, data) = (receiver.at(), free_port().to_string());
        let classic = [&at, "--classic", "--dest-port", &data, "--packets", "5"];
        drop(itg_tests::sender(&classic).finish(LIMIT).exits(0));
        drop(crowd);
    });
}

/// The next message of a receiver.
fn hear(stream: &mut TcpStream) -> Message {
    let mut len = [0; 4];
    stream.read_exact(&mut len).expect("a message");
    let mut bytes = vec![0; u32::from_le_bytes(len) as usize];
    stream.read_exact(&mut bytes).expect("a message");
    itg_session::decode(&bytes).expect("a message")
}

/// A receiver with so many places for an address, and a sender of this host that has opened a flow.
fn receiver_with_a_flow(places: &str) -> (Receiver, TcpStream) {
    let receiver = Receiver::start(&["--max-per-address", places]);
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let open = frame(&Message::Open { flows: vec![FlowSpec::new(1)] });
    let says = [greeting(), open].concat();
    let mut with_flow = crowd(1, local, receiver.address, &says).remove(0);
    with_flow.set_read_timeout(Some(LIMIT)).expect("a time-out");
    assert!(matches!(hear(&mut with_flow), Message::Welcome { .. }));
    assert!(matches!(hear(&mut with_flow), Message::Opened { .. }));
    (receiver, with_flow)
}

#[test]
fn senders_with_flows_keep_their_places() {
    let (receiver, mut with_flow) = receiver_with_a_flow("2");
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    // The others of that address have one place, which goes from each to the next.
    let mut others = crowd(50, local, receiver.address, &greeting());
    for other in &mut others[..49] {
        other.set_read_timeout(Some(LIMIT)).expect("a time-out");
        let mut said = Vec::new();
        // A reset is an end, too.
        drop(other.read_to_end(&mut said));
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(said.is_empty() || said.contains("a newer one takes its place"), "{said:?}");
    }
    with_flow.write_all(&frame(&Message::Bye)).expect("it is there");
    assert!(matches!(hear(&mut with_flow), Message::ByeAck { .. }));
}

#[test]
fn who_finds_no_place_is_told_which_option_makes_one() {
    let (receiver, _with_flow) = receiver_with_a_flow("1");
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let mut silent = crowd(1, local, receiver.address, &[]).remove(0);
    silent.set_read_timeout(Some(LIMIT)).expect("a time-out");
    let Message::Refuse { reason } = hear(&mut silent) else { panic!("not refused") };
    assert!(reason.contains("--max-per-address"), "{reason}");
}

#[test]
fn a_connection_that_says_nothing_does_not_hold_up_the_end() {
    let receiver = Receiver::start::<&str>(&[]);
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let _silent = crowd(1, local, receiver.address, &[]).remove(0);
    thread::sleep(Duration::from_millis(200));
    receiver.running.signal(Signal::SIGTERM);
    // Half of the time that it waits for a first byte.
    drop(receiver.running.finish(LIMIT).exits(143).within(Duration::from_secs(5)));
}

#[test]
fn a_crowd_of_one_address_keeps_nobody_from_itgrecv() {
    let mut receiver = ClassicReceiver::start(&[]);
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, receiver.port));
    let crowd = crowd(1100, CROWDED, at, &[1]);
    receiver.serves();
    drop(crowd);
}

/// Sends some packets whose records go to this server.
fn logs_to(server: &LogServer, secret: &Path) {
    let receiver = Receiver::start::<&str>(&[]);
    let (at, url) = (receiver.at(), server.url("tcp"));
    let secret = secret.display().to_string();
    let args = [&at, "--packets", "5", "--log-server", &url, "--log-secret-file", &secret];
    drop(send(&args).exits(0));
}

#[test]
fn a_crowd_without_the_secret_keeps_nobody_from_a_log_server() {
    use itg_session::logs::{
        LOG_MAGIC, LOG_VERSION, LogMessage, Registration, Role, Transport, decode, encode,
    };
    let register = LogMessage::Register {
        magic: LOG_MAGIC,
        version: LOG_VERSION,
        who: Registration {
            key: [7; 16],
            run: "strange".to_owned(),
            host: "elsewhere".to_owned(),
            program: "a stranger".to_owned(),
            role: Role::Sender,
            flows: 1,
            record_schema: itg_record::RECORD_SCHEMA,
            transport: Transport::Tcp,
            block_records: 100,
            block_bytes: 8192,
            clock_offset_ns: None,
            uncertainty_ns: None,
            next_block: 0,
        },
        proof: None,
    };
    let bytes = encode(&register).expect("a short message");
    let len = u32::try_from(bytes.len()).expect("short");
    let register = [&len.to_le_bytes()[..], &bytes].concat();
    let rows = [("silent", Vec::new()), ("without the proof", register)];
    in_parallel(&rows, |says| {
        let (store, keys) = (temp_dir(), temp_dir());
        let secret = keys.path().join("secret");
        itg_tests::write_secret(&secret, "between us\n");
        let path = secret.display().to_string();
        let server = LogServer::start(store.path(), &["--secret-file", &path]);
        let crowd = crowd(500, CROWDED, server.address, says);
        // The secret is asked for in any case.
        let mut asked = TcpStream::connect(server.address).expect("it listens");
        asked.set_read_timeout(Some(LIMIT)).expect("a time-out");
        asked.write_all(&rows[1].1).expect("it reads");
        let mut len = [0; 4];
        asked.read_exact(&mut len).expect("a message");
        let mut bytes = vec![0; u32::from_le_bytes(len) as usize];
        asked.read_exact(&mut bytes).expect("a message");
        let answer = decode(&bytes).expect("a message");
        assert!(matches!(answer, LogMessage::Challenge { .. }), "{answer:?}");
        logs_to(&server, &secret);
        drop(crowd);
        assert_eq!(stored(&itg_tests::experiments(store.path())), (5, 0));
    });
}

#[test]
fn a_crowd_of_one_address_keeps_nobody_from_d_itgs_log_server() {
    let store = temp_dir();
    let port = free_port();
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let server = LogServer::start(store.path(), &["--classic", &at.to_string()]);
    let crowd = crowd(400, CROWDED, at, &[]);
    let mut honest = TcpStream::connect(at).expect("it listens");
    honest.set_read_timeout(Some(LIMIT)).expect("a time-out");
    let mut greeting = [0];
    honest.read_exact(&mut greeting).expect("the server greets");
    let request = LogRequest { proto: LogProto::Udp, stop: false, path: b"honest.log".to_vec() };
    honest.write_all(&request.encode()).expect("the server reads");
    let mut port = [0; 4];
    honest.read_exact(&mut port).expect("a data port");
    assert!((9003..=10_002).contains(&u32::from_be_bytes(port)), "{port:?}");
    drop((crowd, server));
}
