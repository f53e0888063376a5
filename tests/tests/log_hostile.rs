//! Hostile input on the ports of a log server: length lies, huge counts, wrong schemas, names that
//! would leave its directory, foreign blocks. All of it is refused with a reason, and a producer
//! that registered before is served as if nothing had happened.
#![allow(missing_docs, reason = "tests")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use itg_record::{
    BlockBuf, Note, RECORD_SCHEMA, ReceivedPacket, Record, SentPacket, compact, note_block,
};
use itg_session::logs::{
    LOG_MAGIC, LOG_VERSION, LogMessage as M, Registration, Role, Transport, decode, encode,
    proof_text,
};
use itg_tests::{
    LogServer, Receiver, Running, experiments, in_parallel, json, open_files, program, temp_dir,
    wait_for,
};

/// The bit of a frame's length that says: a block.
const BLOCK: u32 = 1 << 31;

fn who(key: u8, transport: Transport) -> Registration {
    Registration {
        key: [key; 16],
        run: "strange".to_owned(),
        host: "elsewhere".to_owned(),
        program: "a stranger".to_owned(),
        role: Role::Sender,
        flows: 1,
        record_schema: RECORD_SCHEMA,
        transport,
        block_records: 100,
        block_bytes: 8192,
        clock_offset_ns: None,
        uncertainty_ns: None,
        next_block: 0,
    }
}

/// A connection to the server, with patience for its answers.
struct Peer(TcpStream);

impl Peer {
    fn connect(server: &LogServer) -> Self {
        let stream = TcpStream::connect(server.address).expect("the server listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time-out");
        Self(stream)
    }

    fn raw(&mut self, bytes: &[u8]) {
        // The server may have hung up already.
        drop(self.0.write_all(bytes));
    }

    fn say(&mut self, message: &M) {
        let bytes = encode(message).expect("a short message");
        self.frame(0, &bytes);
    }

    fn frame(&mut self, kind: u32, bytes: &[u8]) {
        let len = u32::try_from(bytes.len()).expect("short");
        self.raw(&[&(kind | len).to_le_bytes(), bytes].concat());
    }

    /// The next message; none when the server has hung up.
    fn hear(&mut self) -> Option<M> {
        let mut len = [0; 4];
        self.0.read_exact(&mut len).ok()?;
        let mut bytes = vec![0; u32::from_le_bytes(len) as usize];
        self.0.read_exact(&mut bytes).ok()?;
        Some(decode(&bytes).expect("a message"))
    }

    /// Reason that the server gives in the end, when it refuses.
    #[track_caller]
    fn refusal(&mut self) -> String {
        loop {
            match self.hear() {
                Some(M::Refused { reason, .. }) => return reason,
                Some(_) => {}
                None => return "nothing".to_owned(),
            }
        }
    }

    /// Registers; the number of the log and the token for datagrams.
    #[track_caller]
    fn register(&mut self, who: Registration) -> (u32, u64) {
        self.say(&M::register(who, None));
        match self.hear() {
            Some(M::Registered { log_id, token, .. }) => (log_id, token),
            other => panic!("not registered: {other:?}"),
        }
    }
}

/// A good block of records of one log.
fn block(log_id: u32, block_no: u32) -> Vec<u8> {
    let mut block = BlockBuf::new(100);
    for seq in 0..100 {
        block.push(&Record::sent(SentPacket {
            flow: 0,
            seq,
            size: 100,
            planned_ns: seq * 1000,
            sent_ns: seq * 1000 + 7,
        }));
    }
    block.seal(log_id, block_no).to_vec()
}

/// A block with a time that no clock shows.
fn undated() -> Vec<u8> {
    let mut block = BlockBuf::new(1);
    block.push(&Record::received(ReceivedPacket {
        flow: 0,
        seq: 0,
        size: 100,
        sent_ns: u64::MAX - 9,
        arrived_ns: 7,
        read_ns: 8,
        ttl: 64,
        tos: 0,
    }));
    block.seal(1, 0).to_vec()
}

/// The same records in columns.
fn columns(log_id: u32) -> Vec<u8> {
    compact(&block(log_id, 0)).collect::<Vec<_>>().concat()
}

/// A good block with some bytes of its header changed.
fn patched(at: usize, patch: &[u8]) -> Vec<u8> {
    let mut block = block(1, 0);
    block[at..at + patch.len()].copy_from_slice(patch);
    block
}

/// Everything below a directory, by name.
fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("readable").map(|entry| entry.expect("readable"));
    let mut names: Vec<String> = entries
        .flat_map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.path().is_dir() {
                let inner = names(&entry.path());
                inner.into_iter().map(|below| format!("{name}/{below}")).collect()
            } else {
                vec![name]
            }
        })
        .collect();
    names.sort();
    names
}

/// A server, and beside it a sender whose log it stores all the while.
struct House {
    outer: tempfile::TempDir,
    server: LogServer,
    receiver: Receiver,
    sender: Running,
}

impl House {
    fn open(producers: &str) -> Self {
        let outer = temp_dir();
        let store = outer.path().join("store");
        fs::create_dir(&store).expect("writable");
        let server = LogServer::start(&store, &["--max-producers", producers]);
        let receiver = Receiver::start(&["-v"]);
        let log = server.url("tcp");
        let flow = ["--idt", "constant(1ms)", "--packets", "3000", "--log-server", &log];
        let sender = receiver.begin(&flow);
        Self { outer, server, receiver, sender }
    }

    fn store(&self) -> std::path::PathBuf {
        self.outer.path().join("store")
    }

    /// The honest sender's log is complete, and nothing stands beside the directory.
    fn close(self) {
        let store = self.store();
        self.sender.finish(Duration::from_secs(60)).exits(0);
        self.receiver.stop();
        self.server.stop();
        for name in names(self.outer.path()) {
            let inner = name.strip_prefix("store/").unwrap_or_else(|| panic!("{name} is outside"));
            assert!(!inner.contains('/') && !inner.starts_with('.'), "{name}");
        }
        let honest: Vec<_> = experiments(&store)
            .into_iter()
            .filter(|file| !file.to_string_lossy().contains("strange"))
            .filter(|file| json(&[file])["flows"][0]["packets"] == 3000)
            .collect();
        assert_eq!(honest.len(), 1, "the honest log is complete");
    }
}

#[test]
fn x_4_hostile_bytes_on_tcp_are_refused_by_name_and_disturb_nobody() {
    let house = House::open("64");
    let server = &house.server;
    let wish = |change: fn(&mut Registration)| {
        let mut who = who(7, Transport::Tcp);
        change(&mut who);
        encode(&M::register(who, None)).expect("short")
    };
    let long = |len: u32, tail: usize| [&len.to_le_bytes()[..], &vec![0xFF; tail]].concat();
    let framed = |bytes: Vec<u8>| {
        [&u32::try_from(bytes.len()).expect("short").to_le_bytes()[..], &bytes].concat()
    };
    let mut count_lie = wish(|_| {});
    // The length of the text behind kind, magic, version and key.
    count_lie[26..34].copy_from_slice(&u64::MAX.to_le_bytes());
    let rows: Vec<(&str, Vec<u8>, &str)> = vec![
        ("a length of 2 GiB", long(0x7FFF_FFFF, 100), "more than 65536 bytes was announced"),
        ("a block before registration", long(BLOCK | 64, 64), "more than 65536 bytes"),
        (
            "another protocol",
            b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
            "more than 65536 bytes",
        ),
        ("no message", framed(vec![0xFF; 40]), "cannot be understood"),
        ("a text of 2^64 bytes", framed(count_lie), "cannot be understood"),
        ("another magic", framed([&[0; 4], &b"EVIL"[..], &[1, 0]].concat()), "instead of \"ITGL\""),
        ("out of turn", framed(encode(&M::Ping { n: 0 }).expect("short")), "Ping came out of turn"),
        ("huge blocks", framed(wish(|who| who.block_bytes = u32::MAX)), "this log server takes"),
        ("huge counts", framed(wish(|who| who.block_records = u32::MAX)), "cannot hold"),
        ("another layout", framed(wish(|who| who.record_schema = 1)), "laid out in another way"),
        ("a long name", framed(wish(|who| who.run = "x".repeat(5000))), "more than 256"),
    ];
    in_parallel(
        &rows.iter().map(|(name, bytes, want)| (*name, (bytes, *want))).collect::<Vec<_>>(),
        |(bytes, want)| {
            let mut peer = Peer::connect(server);
            peer.raw(bytes);
            let reason = peer.refusal();
            assert!(reason.contains(want), "{reason:?} instead of {want:?}");
        },
    );

    let headers: Vec<(&str, Vec<u8>, &str)> = vec![
        ("a wrong checksum", patched(70, &[1]), "it is damaged"),
        ("no cluster", patched(0, b"EVIL"), "it is damaged"),
        ("another schema", patched(8, &[9; 8]), "it is damaged"),
        ("a length that lies", patched(16, &u64::MAX.to_le_bytes()), "it is damaged"),
        ("a shorter length", patched(16, &104u64.to_le_bytes()), "it is damaged"),
        ("a count that lies", patched(48, &u32::MAX.to_le_bytes()), "it is damaged"),
        ("bytes behind the block", [block(1, 0), vec![0; 8]].concat(), "it is damaged"),
        ("another log", patched(60, &[77]), "it belongs to another log"),
        ("too high a number", patched(56, &[0xFF; 4]), "its number is too high"),
        ("columns", columns(1), "a column block came"),
        ("an impossible time", undated(), "times beyond the year 2116"),
        ("a larger block than announced", vec![0; 8200], "more than 65536 bytes was announced"),
    ];
    for (place, (name, mut bytes, want)) in headers.into_iter().enumerate() {
        let mut peer = Peer::connect(server);
        let key = u8::try_from(place).expect("few") + 100;
        let (log_id, _) = peer.register(who(key, Transport::Tcp));
        if name != "another log" && bytes.len() >= 64 {
            bytes[60..64].copy_from_slice(&log_id.to_le_bytes());
        }
        peer.frame(BLOCK, &bytes);
        let reason = peer.refusal();
        assert!(reason.contains(want), "{name}: {reason:?} instead of {want:?}");
    }
    let stranger = house.store().join("strange.itg");
    assert_eq!(fs::metadata(stranger).expect("opened").len(), 0, "nothing of it is stored");
    house.close();
}

#[test]
fn names_never_lead_out_of_the_directory() {
    let house = House::open("64");
    let names = [
        "../escape",
        "/tmp/escape",
        "..",
        ".",
        "",
        "a/../../b",
        "..\\b",
        "x\0y",
        "-",
        "~root",
        ".hidden",
        "CON",
        "a\nb",
        "ü/ö",
        "../../../../../../etc/cron.d/x",
    ];
    for (place, name) in names.into_iter().enumerate() {
        let mut peer = Peer::connect(&house.server);
        let key = u8::try_from(place).expect("few");
        let strange = Registration { run: name.to_owned(), ..who(key, Transport::Tcp) };
        let (log_id, _) = peer.register(strange);
        peer.frame(BLOCK, &block(log_id, 0));
        let stored = |message: Option<M>| match message {
            Some(M::Ack { stored_to, .. }) => stored_to == 1,
            Some(_) => false,
            None => panic!("{name:?} was not taken"),
        };
        while !stored(peer.hear()) {}
    }
    house.close();
}

#[test]
fn x_4_hostile_datagrams_are_dropped_and_disturb_nobody() {
    let house = House::open("64");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let server = house.server.address;
    let send = |socket: &UdpSocket, bytes: &[u8]| {
        socket.send_to(bytes, server).expect("sent");
    };
    let bind = |log_id, token| {
        let (magic, version) = (LOG_MAGIC, LOG_VERSION);
        encode(&M::Bind { magic, version, log_id, token }).expect("short")
    };
    // Blocks of another source and a guessed token.
    send(&socket, &block(1, 0));
    send(&socket, &bind(1, 12345));
    send(&socket, &block(1, 0));
    send(&socket, &[]);
    send(&socket, &[0xFF; 60_000]);

    // A producer of its own right, with every kind of bad block before the good ones.
    let mut peer = Peer::connect(&house.server);
    let (log_id, token) = peer.register(who(1, Transport::Udp));
    send(&socket, &bind(log_id, token));
    assert_eq!(peer.hear(), Some(M::Bound));
    let good = |block_no| block(log_id, block_no);
    let bad = |at: usize, patch: &[u8]| {
        let mut block = good(9);
        block[at..at + patch.len()].copy_from_slice(patch);
        block
    };
    for bytes in [
        bad(70, &[1]),
        bad(16, &u64::MAX.to_le_bytes()),
        bad(48, &u32::MAX.to_le_bytes()),
        bad(56, &[0xFF; 4]),
        bad(60, &[77]),
        good(9)[..100].to_vec(),
        [good(9), vec![0; 10_000]].concat(),
        columns(log_id),
    ] {
        send(&socket, &bytes);
    }
    // Another program that knows the number of the log.
    let stranger = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    send(&stranger, &good(8));
    let note = note_block(
        &Note::End(itg_record::LogEnd {
            blocks: 2,
            records: 100,
            lost_records: 0,
            continued: false,
        }),
        log_id,
        1,
    );
    for bytes in [good(0), good(0), note] {
        send(&socket, &bytes);
    }
    peer.say(&M::Leave {
        blocks: 3,
        records: 100,
        dropped_blocks: 0,
        dropped_records: 0,
        per_flow: vec![(0, 100)],
        flows_left_out: 0,
    });
    let left = M::Left {
        blocks: 2,
        records: 100,
        missing: vec![(2, 2)],
        missing_left_out: 0,
        conflicting_blocks: 0,
        conflicting_records: 0,
    };
    assert_eq!(peer.hear(), Some(left));
    house.close();
}

/// Another good block of the same log, with other contents.
fn forged(log_id: u32, block_no: u32) -> Vec<u8> {
    let mut block = BlockBuf::new(100);
    for seq in 0..100 {
        let times = seq * 999;
        block.push(&Record::sent(SentPacket {
            flow: 0,
            seq,
            size: 9,
            planned_ns: times,
            sent_ns: times,
        }));
    }
    block.seal(log_id, block_no).to_vec()
}

/// Waits until the server has stored everything below a block.
#[track_caller]
fn stored(peer: &mut Peer, below: u32) {
    loop {
        match peer.hear() {
            Some(M::Ack { stored_to, .. }) if stored_to >= below => return,
            Some(M::Ack { .. }) => {}
            other => panic!("block {below} is not taken: {other:?}"),
        }
    }
}

#[test]
fn a_thiefs_block_does_not_pass_for_the_owners() {
    let dir = temp_dir();
    let server = LogServer::start::<&str>(dir.path(), &[]);
    let mut owner = Peer::connect(&server);
    let (log_id, _) = owner.register(who(1, Transport::Tcp));
    owner.frame(BLOCK, &block(log_id, 0));
    stored(&mut owner, 1);
    // It has seen the key of the log, and is faster.
    let mut thief = Peer::connect(&server);
    assert_eq!(thief.register(who(1, Transport::Tcp)).0, log_id);
    thief.frame(BLOCK, &forged(log_id, 1));
    stored(&mut thief, 2);
    drop(thief);

    let mut owner = Peer::connect(&server);
    let back = Registration { next_block: 1, ..who(1, Transport::Tcp) };
    owner.say(&M::register(back, None));
    let registered = owner.hear();
    let Some(M::Registered { stored_to: 1, .. }) = registered else {
        panic!("block 1 must come to be compared: {registered:?}")
    };
    owner.frame(BLOCK, &block(log_id, 1));
    stored(&mut owner, 2);
    owner.say(&M::Leave {
        blocks: 2,
        records: 200,
        dropped_blocks: 0,
        dropped_records: 0,
        per_flow: vec![(0, 200)],
        flows_left_out: 0,
    });
    let left = owner.hear();
    let told =
        matches!(left, Some(M::Left { conflicting_blocks: 1, conflicting_records: 100, .. }));
    assert!(told, "the owner is not told: {left:?}");
    let said = server.stop();
    assert!(said.err.contains("block 1 of log 1 of strange came with other contents"), "{said}");
    assert!(said.err.contains("somebody else has written to this log"), "{said}");

    // A server that was started again still knows what is stored.
    let server = LogServer::start::<&str>(dir.path(), &[]);
    let mut thief = Peer::connect(&server);
    let (log_id, _) = thief.register(who(1, Transport::Tcp));
    thief.frame(BLOCK, &forged(log_id, 0));
    stored(&mut thief, 1);
    drop(thief);
    let said = server.stop();
    assert!(said.err.contains("block 0 of log 1 of strange came with other contents"), "{said}");
}

#[test]
fn a_proof_holds_for_one_registration_alone() {
    type Change = fn(&mut Registration);
    let dir = temp_dir();
    let secret = dir.path().join("secret");
    itg_tests::write_secret(&secret, "open sesame");
    let args = ["--secret-file".as_ref(), secret.as_os_str()];
    let server = LogServer::start(&dir.path().join("store"), &args);
    let right = who(1, Transport::Tcp);
    let changes: [(&str, Change); 6] = [
        ("nothing", |_| {}),
        ("the role", |who| who.role = Role::Receiver),
        ("the transport", |who| who.transport = Transport::Udp),
        ("the host", |who| who.host = "another".to_owned()),
        ("the first block", |who| who.next_block = 7),
        ("the experiment", |who| who.run = "another".to_owned()),
    ];
    for (what, change) in changes {
        let mut peer = Peer::connect(&server);
        peer.say(&M::register(right.clone(), None));
        let Some(M::Challenge { nonce, .. }) = peer.hear() else { panic!("no challenge") };
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, b"open sesame");
        let text = proof_text(&nonce, &right);
        let proof = ring::hmac::sign(&key, &text).as_ref().try_into().expect("32 bytes");
        let mut who = right.clone();
        change(&mut who);
        peer.say(&M::register(who, Some(proof)));
        match (peer.hear(), what) {
            (Some(M::Registered { .. }), "nothing") => {}
            (Some(M::Refused { reason, .. }), _) if what != "nothing" => {
                assert!(reason.contains("does not know it"), "{what}: {reason}");
            }
            (other, _) => panic!("{what} was changed on the way: {other:?}"),
        }
    }
    server.stop();
}

#[test]
fn keys_of_logs_are_not_for_everybody() {
    let dir = temp_dir();
    let index = dir.path().join("strange.index.jsonl");
    let mode = || fs::metadata(&index).expect("there").permissions().mode() & 0o7777;
    // An index of an older release.
    fs::write(&index, "").expect("writable");
    fs::set_permissions(&index, fs::Permissions::from_mode(0o644)).expect("ours");
    for _ in 0..2 {
        let server = LogServer::start::<&str>(dir.path(), &[]);
        let _registered = Peer::connect(&server).register(who(1, Transport::Tcp));
        assert_eq!(mode() & 0o137, 0, "{:o}", mode());
        server.stop();
        let _made_anew = fs::remove_file(&index);
        let _without_blocks = fs::remove_file(dir.path().join("strange.itg"));
    }
}

/// A loss of power leaves half a line, with bytes that are no text.
#[test]
fn the_torn_end_of_an_index_is_cut_off_and_numbers_of_logs_stay_theirs() {
    let dir = temp_dir();
    let index = dir.path().join("strange.index.jsonl");
    let mut numbers = Vec::new();
    for key in [1, 2, 1, 2] {
        let mut bytes = fs::read(&index).unwrap_or_default();
        bytes.extend(b"{\"host\":\"a\",\"key\":\"0101\xff\0");
        fs::write(&index, bytes).expect("writable");
        let server = LogServer::start::<&str>(dir.path(), &[]);
        numbers.push(Peer::connect(&server).register(who(key, Transport::Tcp)).0);
        server.stop();
    }
    assert_eq!(numbers, [1, 2, 1, 2]);
    let lines = fs::read_to_string(&index).expect("text");
    assert_eq!(lines.lines().count(), 2, "{lines}");
}

#[test]
fn crowds_and_half_open_connections_are_bounded() {
    let house = House::open("4");
    let address: SocketAddr = house.server.address;
    let pid = house.server.running.pid();
    let before = open_files(pid);
    // 4 producers and 64 more connections are served; the oldest that are silent give way, and are told so.
    let mut crowd: Vec<Peer> = (0..200).map(|_| Peer::connect(&house.server)).collect();
    for peer in &mut crowd[..100] {
        match peer.hear() {
            Some(M::Refused { reason, again: true }) if reason.contains("a newer one takes") => {}
            other => panic!("not displaced but {other:?}"),
        }
    }
    let few = || open_files(pid) < before + 80;
    wait_for("those that gave way to be closed", Duration::from_secs(60), few);
    // Half a frame each, and never more.
    for peer in &mut crowd {
        peer.raw(&[40, 0, 0, 0, 1, 2]);
    }
    wait_for("the silent to be dropped", Duration::from_secs(60), || open_files(pid) <= before + 2);
    drop(crowd);
    let _late = TcpStream::connect(address).expect("it still listens");
    house.close();
}

#[test]
fn seal_refuses_what_is_no_log_and_leaves_it_alone() {
    let dir = temp_dir();
    for (name, bytes) in [
        ("notes.txt", &b"no log at all\n"[..]),
        ("empty", b""),
        ("zeros", &[0; 5000]),
        ("half-a-header", b"XPC1\0\0"),
    ] {
        let path = dir.path().join(name);
        fs::write(&path, bytes).expect("written");
        for undo in [&[][..], &["--undo"]] {
            let mut command = Command::new(program("itg-log"));
            command.arg("seal").args(undo).arg(&path);
            let done = Running::start(&mut command).finish(Duration::from_secs(60)).exits(2);
            assert!(done.err.contains(name) && done.err.contains("no log of ITG"), "{done}");
            assert_eq!(fs::read(&path).expect("still there"), bytes, "{name}");
        }
    }
    assert_eq!(fs::read_dir(dir.path()).expect("readable").count(), 4, "nothing beside them");
}
