//! Logs over TLS: both sides' logs as over TCP, nothing of them in clear on the link, each block once after a break;
//! and nobody who has no keys of the cluster, revoked ones, or those of another role. Attackers are clients and
//! servers of this test.
#![allow(missing_docs, reason = "tests")]

use std::fs::{self, Permissions};
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use itg_record::RECORD_SCHEMA;
use itg_session::logs::{LogMessage as M, Registration, Role, Transport, decode, encode};
use itg_tests::{
    Authority, Impairment, LogServer, Output, Receiver, Relay, Running, accounts, experiments,
    in_parallel, json, lists, packets, program, send, sender, stored, temp_dir, wait_for,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
    crypto,
};

const LIMIT: Duration = Duration::from_secs(90);
/// Address of the tests' relays; servers are at 127.0.0.1.
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// A log server with keys of its role.
fn start(authority: &Authority, dir: &Path) -> LogServer {
    let keys = authority.add("store", "log");
    LogServer::start(dir, &["-v", "--keys", text(&keys)])
}

/// The certificates of keys.
fn chain(keys: &Path) -> Vec<CertificateDer<'static>> {
    let chain = CertificateDer::pem_file_iter(keys.join("node.pem")).expect("a chain");
    chain.collect::<Result<_, _>>().expect("a chain")
}

fn private(keys: &Path) -> PrivateKeyDer<'static> {
    PrivateKeyDer::from_pem_file(keys.join("node.key")).expect("a key")
}

/// A producer of one's own, with these keys or without a certificate.
struct Peer(StreamOwned<ClientConnection, TcpStream>);

impl Peer {
    /// Connects, believing the authority of `ca`.
    fn connect(at: SocketAddr, ca: &Path, keys: Option<&Path>) -> Self {
        let mut roots = RootCertStore::empty();
        let root = CertificateDer::from_pem_file(ca.join("ca.pem")).expect("a root");
        roots.add(root).expect("a good one");
        let provider = Arc::new(crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions of TLS")
            .with_root_certificates(roots);
        let config = match keys {
            Some(keys) => {
                config.with_client_auth_cert(chain(keys), private(keys)).expect("a certificate")
            }
            None => config.with_no_client_auth(),
        };
        let name = ServerName::try_from("itg-cluster").expect("a name");
        let tls = ClientConnection::new(Arc::new(config), name).expect("a client");
        let tcp = TcpStream::connect(at).expect("it listens");
        tcp.set_read_timeout(Some(LIMIT)).expect("a time-out");
        Self(StreamOwned::new(tls, tcp))
    }

    /// Says this, unless the server has hung up.
    fn say(&mut self, message: &M) {
        let bytes = encode(message).expect("a short message");
        let len = u32::try_from(bytes.len()).expect("short").to_le_bytes();
        drop(self.0.write_all(&[&len[..], &bytes].concat()));
        drop(self.0.flush());
    }

    /// The next message, or why there is none.
    fn hear(&mut self) -> Result<M, String> {
        let mut len = [0; 4];
        self.0.read_exact(&mut len).map_err(|error| error.to_string())?;
        let mut bytes = vec![0; u32::from_le_bytes(len) as usize];
        self.0.read_exact(&mut bytes).map_err(|error| error.to_string())?;
        Ok(decode(&bytes).expect("a message"))
    }

    /// The answer to a registration.
    fn register(&mut self) -> Result<M, String> {
        let who = Registration {
            key: [7; 16],
            run: "strange".to_owned(),
            host: "elsewhere".to_owned(),
            program: "a stranger".to_owned(),
            role: Role::Sender,
            flows: 1,
            record_schema: RECORD_SCHEMA,
            transport: Transport::Tcp,
            block_records: 100,
            block_bytes: 8192,
            clock_offset_ns: None,
            uncertainty_ns: None,
            next_block: 0,
        };
        self.say(&M::register(who, None));
        self.hear()
    }
}

/// Sends a short run with the logs of both sides at these servers.
fn run(url: &str, sender_keys: &[&str], receiver_keys: &[&str]) -> Output {
    let receiver = Receiver::start(&[&["--allow-log-servers"][..], receiver_keys].concat());
    let at = receiver.at();
    let flow = ["--seed", "7", "--packets", "3000", "--idt", "constant(100us)"];
    let flow = [&flow[..], &["--size", "uniform(40,900)", "--flows", "2"]].concat();
    let logs = ["--log-server", url, "--recv-log-server", url];
    let done = send(&[&[at.as_str()], &flow[..], &logs, sender_keys].concat()).exits(0);
    drop(receiver.stop());
    done
}

#[test]
fn logs_of_both_sides_are_those_over_tcp_and_a_recorder_on_the_link_reads_nothing() {
    let authority = Authority::default();
    let (a, b) = (authority.add("a", "agent"), authority.add("b", "console"));
    let stores = [temp_dir(), temp_dir()];
    let plain = LogServer::start(stores[0].path(), &[""; 0]);
    let tls = start(&authority, stores[1].path());
    let relays =
        [&plain, &tls].map(|server| Relay::start(HERE, server.address, Impairment::default()));
    drop(run(&format!("tcp://{}", relays[0].address), &[], &[]));
    let keys = ["--keys", text(&b)];
    let done = run(&format!("tls://{}", relays[1].address), &["--keys", text(&a)], &keys);
    assert!(done.err.contains("tls://"), "{done}");
    drop((plain.stop(), tls.stop()));
    let [over_tcp, over_tls] = stores.each_ref().map(|store| experiments(store.path()));
    assert_eq!(stored(&over_tls), (6000, 6000));
    assert_eq!(stored(&over_tcp), (6000, 6000));
    let planned = |files: &[std::path::PathBuf]| {
        let mut all: Vec<_> =
            packets(files).iter().map(|p| (p.flow, p.seq, p.size, p.planned)).collect();
        all.sort_unstable();
        all
    };
    assert_eq!(planned(&over_tls), planned(&over_tcp));

    // Any 24 bytes of a stored record: recorded over TCP, nowhere over TLS.
    let [on_tcp, on_tls] = relays.each_ref().map(Relay::carried);
    assert!(on_tls.len() > 12_000 * 40, "{} bytes", on_tls.len());
    for (files, carried, clear) in [(&over_tcp, &on_tcp, true), (&over_tls, &on_tls, false)] {
        let bytes = fs::read(&files[0]).expect("a log");
        for at in [200, bytes.len() / 3, bytes.len() / 2, bytes.len() - 3000] {
            let needle = &bytes[at..at + 24];
            let found = carried.windows(24).any(|window| window == needle);
            assert_eq!(found, clear, "at {at}");
        }
        for word in [&b"XPC1"[..], b"itg-send", b"itg-recv"] {
            let found = carried.windows(word.len()).any(|window| window == word);
            assert!(found == clear || word.len() == 4, "{}", String::from_utf8_lossy(word));
        }
    }
}

#[test]
fn a_cut_connection_is_resumed_and_each_block_stored_once() {
    let authority = Authority::default();
    let (keys, store) = (authority.add("a", "agent"), temp_dir());
    let server = start(&authority, store.path());
    let relay = Relay::start(HERE, server.address, Impairment::default());
    let receiver = Receiver::start(&["-v"]);
    let url = format!("tls://{}", relay.address);
    let flow = ["--idt", "constant(200us)", "--size", "64", "--packets", "20000"];
    let logs = ["--log-server", &url, "--keys", text(&keys), "--log-block", "100"];
    let sender = receiver.begin(&[&flow[..], &logs].concat());
    for _ in 0..2 {
        thread::sleep(Duration::from_millis(500));
        relay.cut();
        thread::sleep(Duration::from_millis(300));
        relay.heal();
    }
    let done = sender.finish(LIMIT).exits(0);
    assert_eq!(accounts(&done.out)[0].sent, 20_000, "{done}");
    drop((receiver.stop(), server.stop()));
    let files = experiments(store.path());
    let report = json(&files);
    assert_eq!(report["damage"].as_array().map(Vec::len), Some(0), "{report}");
    let seqs: Vec<u64> = lists(&packets(&files))[&1].iter().map(|p| p.0).collect();
    assert!(seqs.iter().copied().eq(0..20_000), "every packet once");
}

#[test]
fn strangers_store_nothing() {
    let (authority, other) = (Authority::default(), Authority::default());
    let store = temp_dir();
    let ca = authority.add("a", "agent");
    let reader = authority.add("screen", "reader");
    let foreign = other.add("a", "agent");
    // A thief has copied the keys before they were revoked, with the list of that time.
    let stolen = authority.add("b", "agent");
    let thief = temp_dir();
    for name in ["ca.pem", "node.pem", "node.key", "revoked.pem"] {
        fs::copy(stolen.join(name), thief.path().join(name)).expect("copied");
    }
    authority.revoke("b");
    let server = start(&authority, store.path());
    for (name, keys, why) in [
        ("no certificate", None, "CertificateRequired"),
        ("keys of another cluster", Some(foreign.as_path()), "DecryptError"),
        ("revoked keys", Some(thief.path()), "CertificateRevoked"),
    ] {
        let said = Peer::connect(server.address, &ca, keys).register();
        let error = said.map_err(|error| error.replace(' ', "")).expect_err(name);
        assert!(error.contains(why), "{name}: {error}");
    }
    match Peer::connect(server.address, &ca, Some(&reader)).register() {
        Ok(M::Refused { reason, again: false }) => {
            assert!(reason.contains("node `screen` (reader) is no agent or console"), "{reason}");
        }
        other => panic!("a reader: {other:?}"),
    }
    // Our own program with the thief's keys says why, and without keys what to do.
    let receiver = Receiver::start::<&str>(&[]);
    let (at, tls, tcp) = (receiver.at(), server.url("tls"), server.url("tcp"));
    let flow = [at.as_str(), "--packets", "5", "--log-server"];
    in_parallel(
        &[
            ("revoked", ([&tls, "--keys", text(thief.path())].to_vec(), "revoked")),
            ("plain", (vec![tcp.as_str()], "--keys DIR")),
            ("no keys", (vec![tls.as_str()], "--keys DIR")),
            ("a reader", ([&tls, "--keys", text(&reader)].to_vec(), "is no agent or console")),
        ],
        |(args, why)| {
            let done = sender(&[&flow[..], args].concat()).finish(LIMIT);
            assert!(matches!(done.code, Some(1..=3)), "{done}");
            drop(done.says(why));
        },
    );
    assert!(experiments(store.path()).is_empty(), "nothing is stored");
    // Meanwhile, and after all that, nodes are served; blocks over UDP have no way in.
    let keys = ["--keys", text(&ca)];
    drop(send(&[&flow[..], &[&tls], &keys].concat()).exits(0));
    assert_eq!(experiments(store.path()).len(), 1);
    assert!(std::net::UdpSocket::bind(server.address).is_ok(), "no port for UDP is open");
    drop((receiver.stop(), server.stop()));
}

#[test]
fn a_connection_ends_when_its_keys_are_revoked() {
    // What is wrong with the server's own keys does not matter.
    for own_are_good in [true, false] {
        ends_when_revoked(own_are_good);
    }
}

fn ends_when_revoked(own_are_good: bool) {
    let authority = Authority::default();
    let store = temp_dir();
    let server = start(&authority, store.path());
    let keys = authority.add("a", "agent");
    let mut peer = Peer::connect(server.address, &keys, Some(&keys));
    assert!(matches!(peer.register(), Ok(M::Registered { .. })));
    if !own_are_good {
        let own = keys.with_file_name("store").join("node.key");
        fs::set_permissions(own, Permissions::from_mode(0o644)).expect("ours");
    }
    authority.revoke("a");
    // A server gives up who is silent.
    let end = loop {
        peer.say(&M::Ping { n: 1 });
        match peer.hear() {
            Ok(M::Pong { .. }) => thread::sleep(Duration::from_millis(200)),
            Ok(other) => panic!("{other:?}"),
            Err(error) => break error,
        }
    };
    drop(server.running.line_with("the keys have been revoked", LIMIT));
    assert!(!end.is_empty());
    drop(server.stop());
}

#[test]
fn producers_send_nothing_to_a_server_of_another_role() {
    let authority = Authority::default();
    let (node, mine) = (authority.add("a", "agent"), authority.add("b", "agent"));
    // A node of the cluster that poses as its log server.
    let store = temp_dir();
    let mut command = Command::new(program("itg-log"));
    command.args(["--listen", "127.0.0.1:0", "--dir"]).arg(store.path());
    let done = Running::start(command.args(["--keys", text(&node)])).finish(LIMIT).exits(2);
    drop(done.says("--role log"));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("bound");
    let provider = Arc::new(crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions of TLS")
        .with_no_client_auth()
        .with_single_cert(chain(&node), private(&node))
        .expect("keys");
    let config = Arc::new(config);
    let (tell, told) = std::sync::mpsc::channel();
    thread::spawn(move || {
        while let Ok((tcp, _)) = listener.accept() {
            let tls = ServerConnection::new(Arc::clone(&config)).expect("a server");
            let mut heard = Vec::new();
            drop(StreamOwned::new(tls, tcp).read_to_end(&mut heard));
            drop(tell.send(heard));
        }
    });
    let receiver = Receiver::start::<&str>(&[]);
    let (to, url) = (receiver.at(), format!("tls://{at}"));
    let args = [&to, "--packets", "5", "--log-server", &url, "--keys", text(&mine)];
    let done = send(&args);
    assert!(matches!(done.code, Some(1..=3)), "{done}");
    drop(done.says("node `a` (agent) is no log"));
    let heard: Vec<Vec<u8>> = told.try_iter().collect();
    assert!(!heard.is_empty() && heard.iter().all(Vec::is_empty), "not a word is said to it");
    drop(receiver.stop());
}

#[test]
fn a_spool_is_forwarded_over_tls() {
    let authority = Authority::default();
    let (keys, dir) = (authority.add("a", "agent"), temp_dir());
    let store = dir.path().join("store");
    fs::create_dir(&store).expect("room");
    let server = start(&authority, &store);
    let (address, url) = (server.address.to_string(), server.url("tls"));
    let receiver = Receiver::start(&["-v"]);
    let spool = dir.path().join("spool");
    let flow = ["--idt", "constant(500us)", "--packets", "6000", "--log-server", &url];
    let log = ["--keys", text(&keys), "--log-spool", text(&spool), "--log-block", "50"];
    let sender = receiver.begin(&[&flow[..], &log].concat());
    wait_for("blocks", LIMIT, || {
        let bytes = |path| fs::metadata(path).map_or(0, |there| there.len());
        experiments(&store).iter().map(bytes).sum::<u64>() > 4096
    });
    server.kill();
    let done = sender.finish(LIMIT).exits(1).says("itg-log forward");
    assert_eq!(accounts(&done.out)[0].sent, 6000, "{done}");
    let server = LogServer::listening(
        &address,
        &store,
        &["--keys", text(keys.with_file_name("store").as_path())],
    );
    let forward = |args: &[&str]| {
        let mut command = Command::new(program("itg-log"));
        command.arg("forward").arg(&spool).args(["--to", &url]).args(args);
        Running::start(&mut command).finish(LIMIT)
    };
    drop(forward(&[]).exits(2).says("--keys DIR"));
    drop(forward(&["--keys", text(&keys)]).exits(0));
    drop((receiver.stop(), server.stop()));
    let seqs: Vec<u64> = lists(&packets(&experiments(&store)))[&1].iter().map(|p| p.0).collect();
    assert!(seqs.iter().copied().eq(0..6000), "every packet once");
}
