//! L-11: a hundred producers at one log server, on real sockets.
//!
//! Some seconds long; `ITG_LONG=60` makes it that many seconds. Prints what each producer got stored.
#![allow(missing_docs, reason = "tests")]

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use itg_engine::{Log, LogLimits, LogOutcome, LogServerTarget, LogTarget, OnFull, log_info};
use itg_node::{LogServer, LogServerOptions};
use itg_record::{BlockBuf, BlockFacts, RECORD_SCHEMA, Record, SentPacket, Side};
use itg_session::logs::{self, LogMessage, Registration, Role, Transport};
use tokio::sync::{mpsc, watch};

const PRODUCERS: usize = 100;
/// Records in a block.
const BLOCK: usize = 100;

fn target(address: SocketAddr, producer: usize) -> LogTarget {
    LogTarget::Server(Box::new(LogServerTarget {
        transport: Transport::Tcp,
        address,
        run: format!("crowd-{}", producer % 5),
        role: Role::Sender,
        secret: None,
        keys: None,
        spool: None,
    }))
}

/// Pushes records, as fast as they are taken, until told to stop.
fn produce(address: SocketAddr, producer: usize, stop: &AtomicBool) -> (u64, LogOutcome) {
    let run = format!("{producer}");
    let info = log_info(Side::Sender, "test", "0", run, Some(1), BTreeMap::new());
    let limits = LogLimits {
        block_records: BLOCK,
        on_full: OnFull::Wait,
        pool_bytes: 4 * BLOCK * 40,
        ..LogLimits::default()
    };
    let log = Log::create(&target(address, producer), info, limits).expect("registered");
    let mut records = log.producer();
    let mut seq = 0;
    while !stop.load(Ordering::Relaxed) {
        records.push(
            &Record::sent(SentPacket { flow: 0, seq, size: 100, planned_ns: seq, sent_ns: seq }),
            seq,
        );
        seq += 1;
    }
    drop(records);
    (seq, log.close())
}

fn frame(kind: u32, bytes: &[u8]) -> Vec<u8> {
    let len = u32::try_from(bytes.len()).expect("short");
    [&(kind | len).to_le_bytes()[..], bytes].concat()
}

/// A producer that registers, says half a block, and from then on neither reads nor writes but for
/// pings, until it is dropped.
fn stall(address: SocketAddr) -> TcpStream {
    let who = Registration {
        key: [0xEE; 16],
        run: "crowd-0".to_owned(),
        host: "stalled".to_owned(),
        program: "test".to_owned(),
        role: Role::Sender,
        flows: 1,
        record_schema: RECORD_SCHEMA,
        transport: Transport::Tcp,
        block_records: 20_000,
        block_bytes: 900_000,
        clock_offset_ns: None,
        uncertainty_ns: None,
        next_block: 0,
    };
    let mut stream = TcpStream::connect(address).expect("the server listens");
    let register = logs::encode(&LogMessage::register(who, None)).expect("short");
    stream.write_all(&frame(0, &register)).expect("taken");
    let mut head = [0; 4];
    stream.read_exact(&mut head).expect("an answer");
    let mut block = BlockBuf::new(20_000);
    for seq in 0..20_000 {
        block.push(&Record::sent(SentPacket {
            flow: 0,
            seq,
            size: 100,
            planned_ns: seq,
            sent_ns: seq,
        }));
    }
    let bytes = frame(1 << 31, block.seal(1, 0));
    stream.write_all(&bytes[..bytes.len() / 2]).expect("taken");
    stream
}

#[test]
fn l_11_a_hundred_producers_side_by_side_and_one_that_stalls() {
    let seconds = std::env::var("ITG_LONG").ok().and_then(|text| text.parse().ok()).unwrap_or(4);
    let dir = tempfile::tempdir().expect("a directory");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let (stop_server, stopped) = watch::channel(None);
    let (accounts, mut told) = mpsc::unbounded_channel();
    let anywhere = "127.0.0.1:0".parse().expect("an address");
    let options = LogServerOptions::new(anywhere, dir.path());
    let server = runtime.block_on(async { LogServer::bind(options, accounts) }).expect("a server");
    let address = server.address().expect("bound");
    let serving = runtime.spawn(server.serve(stopped));

    let stalled = stall(address);
    let stop = AtomicBool::new(false);
    let done: Vec<(u64, LogOutcome)> = thread::scope(|scope| {
        let stop = &stop;
        let threads: Vec<_> = (0..PRODUCERS)
            .map(|producer| scope.spawn(move || produce(address, producer, stop)))
            .collect();
        thread::sleep(Duration::from_secs(seconds));
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    drop(stalled);
    stop_server.send(Some("over".to_owned())).expect("the server runs");
    let outcome = runtime.block_on(serving).expect("no panic");

    // Conservation: every record that was pushed is stored, once, and in the files.
    for (pushed, outcome) in &done {
        assert_eq!((outcome.records, outcome.lost_records, &outcome.error), (*pushed, 0, &None));
    }
    let pushed: u64 = done.iter().map(|(pushed, _)| pushed).sum();
    assert_eq!(outcome.records, pushed);
    let mut in_files = 0;
    for entry in std::fs::read_dir(dir.path()).expect("readable") {
        let path = entry.expect("readable").path();
        if path.extension().is_some_and(|end| end == "itg") {
            let bytes = std::fs::read(path).expect("readable");
            let mut at = 0;
            while at < bytes.len() {
                let facts = BlockFacts::check(&bytes[at..]).expect("a good block");
                in_files += u64::from(facts.records);
                at += facts.len;
            }
        }
    }
    assert_eq!(in_files, pushed);
    let mut left = 0;
    while let Ok(account) = told.try_recv() {
        assert_eq!((account.missing_blocks, account.stored_records), (0, account.records));
        left += 1;
    }
    assert_eq!(left, PRODUCERS);

    // Fairness: no producer is left behind, whatever the scheduler does to a hundred threads.
    let mut shares: Vec<u64> = done.iter().map(|(pushed, _)| *pushed).collect();
    shares.sort_unstable();
    let mean = pushed / PRODUCERS as u64;
    println!(
        "{PRODUCERS} producers, {seconds} s: {pushed} records, least {}, median {}, most {}",
        shares[0],
        shares[PRODUCERS / 2],
        shares[PRODUCERS - 1]
    );
    assert!(shares[0] * 20 >= mean, "one of the producers starved: {shares:?}");
}
