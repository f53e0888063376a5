//! How many records a second a log takes, end to end: one producer, to a file, and to a log server over
//! TCP on loopback and from there to disk. Prints medians of five runs and the ratio between them.
//!
//! `cargo bench -p itg-net --bench logging`
#![allow(clippy::print_stdout, reason = "a program that prints a table")]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use itg_net::{Log, LogLimits, LogServer, LogServerOptions, LogServerTarget, LogTarget, host};
use itg_record::{Record, Side};
use itg_session::logs::{self, Role, Transport};
use tokio::sync::{mpsc, watch};

const RECORDS: u64 = 5_000_000;
const RUNS: usize = 5;

/// Seconds until all records are where they belong.
fn push_all(target: &LogTarget) -> f64 {
    let info =
        host::log_info(Side::Sender, "bench", "0", "00".to_owned(), Some(1), BTreeMap::new());
    let log = Log::create(target, info, LogLimits::default()).expect("a log");
    let mut producer = log.producer();
    let started = Instant::now();
    for seq in 0..RECORDS {
        producer.push(&Record::sent(1, seq, 512, seq * 1000, seq * 1000 + 77), seq);
    }
    drop(producer);
    let outcome = log.close();
    assert_eq!((outcome.records, outcome.error), (RECORDS, None));
    started.elapsed().as_secs_f64()
}

fn median_rate(mut run: impl FnMut(usize) -> f64) -> f64 {
    let mut seconds: Vec<f64> = (0..RUNS).map(&mut run).collect();
    seconds.sort_by(f64::total_cmp);
    RECORDS as f64 / seconds[RUNS / 2] / 1e6
}

fn main() {
    let dir = tempfile::tempdir().expect("a directory");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let (_stop, stopped) = watch::channel(None);
    let store: &Path = dir.path();
    let (accounts, _told) = mpsc::unbounded_channel();
    let options = LogServerOptions {
        listen: "127.0.0.1:0".parse().expect("an address"),
        dir: store.to_owned(),
        secret: None,
        limits: logs::LogLimits::default(),
    };
    let server = runtime.block_on(async { LogServer::bind(options, accounts) }).expect("a server");
    let address = server.address().expect("bound");
    runtime.spawn(server.serve(stopped));

    let file = median_rate(|_| push_all(&LogTarget::File(store.join("local.itg"))));
    let remote = median_rate(|run| {
        push_all(&LogTarget::Server(Box::new(LogServerTarget {
            transport: Transport::Tcp,
            address,
            run: format!("run{run}"),
            role: Role::Sender,
            secret: None,
            spool: None,
        })))
    });
    println!("to a file:                      {file:6.1} M records/s");
    println!("to a log server over TCP, disk: {remote:6.1} M records/s ({:.2} x)", remote / file);
}
