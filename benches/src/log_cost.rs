//! Cost of logging: CPU time a packet of a sending process (L-7), records a second (L-8).

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use itg_engine::{Fsync, Log, LogLimits, LogServerTarget, LogTarget, log_info};
use itg_node::{LogServer, LogServerOptions};
use itg_record::{BlockBuf, LogBuilder, Record, SentPacket, Side};
use itg_session::logs::{Role, Transport};
use itg_testkit::child::Running;
use itg_trials::{Claim, Estimate, Lines, cpus, order, print, ratio, with_interval};
use tokio::sync::{mpsc, watch};

use crate::programs::{Location, Programs, clear};

/// The bar of remote logging: CPU time a packet, as a multiple of that without logging.
const REMOTE_BAR: f64 = 1.05;
/// The bars of L-8, in millions of records a second.
const APPEND_BAR: f64 = 50.0;
const SERVER_BAR: f64 = 5.0;

/// Options of `log-cost`.
#[derive(Debug, Args)]
pub(crate) struct LogCostArgs {
    /// Trials of each setting
    #[arg(long, value_name = "N", default_value_t = 7)]
    trials: usize,
    /// Packets a trial of a sender
    #[arg(long, value_name = "N", default_value_t = 500_000)]
    packets: u64,
    /// Packets a second, waited for asleep; 0: flat out. Asleep, most of the CPU time is that of waking
    /// up, once a packet or once for several, as the machine pleases
    #[arg(long, value_name = "PPS", default_value_t = 0)]
    rate: u64,
    /// Payload bytes a packet
    #[arg(long, value_name = "BYTES", default_value_t = 512)]
    size: u32,
    /// Rate at which the throttled local disk writes
    #[arg(long, value_name = "RATE", default_value = "4MB/s")]
    slow_disk: String,
    /// Few and short trials: a look, no measurement
    #[arg(long)]
    quick: bool,
}

impl LogCostArgs {
    fn trials(&self) -> usize {
        if self.quick { 3 } else { self.trials.max(1) }
    }

    fn packets(&self) -> u64 {
        if self.quick { self.packets.min(200_000) } else { self.packets.max(1) }
    }
}

pub(crate) fn run(args: &LogCostArgs) -> Result<()> {
    itg_cli::parse_throttle(&args.slow_disk)?;
    cpu_a_packet(args)?;
    records_a_second(args)
}

/// One way to log.
struct Way {
    name: &'static str,
    args: Vec<String>,
    /// Nanoseconds of CPU a packet; packets a second.
    cpu_ns: Vec<f64>,
    rate: Vec<f64>,
    /// Trials in which the receiver got every packet.
    whole: usize,
}

impl LogCostArgs {
    /// Options of the flow.
    fn flow(&self) -> Vec<String> {
        let pace = match self.rate {
            0 => "--idt constant(0s)".to_owned(),
            rate => format!("--pacing sleep --rate {rate}pps"),
        };
        let (size, packets) = (self.size, self.packets());
        let text = format!("--seed 1 {pace} --size constant({size}) -v --packets {packets}");
        text.split(' ').map(str::to_owned).collect()
    }
}

/// CPU time a packet of `itg-send`, with and without logs.
fn cpu_a_packet(args: &LogCostArgs) -> Result<()> {
    let programs = Programs::find()?;
    let work = tempfile::tempdir().context("a directory for logs")?;
    let store = work.path().join("server");
    fs::create_dir(&store)?;
    // The sender has a processor to itself, so that what others do is not its cost.
    let (ours, others) =
        if cpus() > 1 { (vec![0], (1..cpus()).collect()) } else { (vec![], vec![]) };
    let server = programs.log_server(&store, &[], &others)?;
    let receiver = programs.receiver(&Location::Here, "127.0.0.1", &[], &others)?;
    let file = work.path().join("local.itg").display().to_string();
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let way = |name, args| Way { name, args, cpu_ns: Vec::new(), rate: Vec::new(), whole: 0 };
    let mut ways = [
        way("no log", vec![]),
        way("local disk", words(&["--log", &file])),
        way("LS-TCP", words(&["--log-server", &format!("tcp://{}", server.address)])),
        way("LS-UDP", words(&["--log-server", &format!("udp://{}", server.address)])),
        way("throttled disk", words(&["--log", &file, "--log-throttle", &args.slow_disk])),
    ];
    let (trials, packets) = (args.trials(), args.packets());
    print(format_args!(
        "CPU time a packet of itg-send, {packets} packets of {} bytes, {}, {trials} trials; throttled \
         disk {}",
        args.size,
        if args.rate == 0 { "flat out".to_owned() } else { format!("{} a second", args.rate) },
        args.slow_disk
    ));
    // The first round warms up.
    for round in 0..=trials {
        for index in order(ways.len(), round) {
            let way = &mut ways[index];
            let mut command = Command::new(programs.path("itg-send"));
            command.arg(&receiver.address).args(args.flow()).args(&way.args);
            let started = Instant::now();
            let done = Running::spawn(&mut command, &ours)?.wait(Duration::from_secs(600))?;
            let took = started.elapsed().as_secs_f64();
            let done = done.ended_with(&[0])?;
            if round > 0 {
                way.cpu_ns.push(done.cpu.as_secs_f64() * 1e9 / packets as f64);
                way.rate.push(packets as f64 / took / 1e3);
                way.whole += usize::from(done.out.contains("both sides agree"));
            }
            clear(&store)?;
        }
    }
    receiver.stop()?;
    server.stop()?;
    show(&ways, trials);
    Ok(())
}

/// Prints what ways cost, and whether the bars hold.
fn show(ways: &[Way; 5], trials: usize) {
    let base = &ways[0].cpu_ns;
    let mut lines = Lines::new([
        "",
        "CPU ns a packet",
        "x no log, same round",
        "kpackets/s",
        "trials without loss",
    ]);
    for way in ways {
        lines.row([
            way.name.to_owned(),
            with_interval(Estimate::of(&way.cpu_ns), 0),
            with_interval(ratio(&way.cpu_ns, base), 3),
            with_interval(Estimate::of(&way.rate), 0),
            format!("{} of {trials}", way.whole),
        ]);
    }
    print(lines);
    if ways.iter().any(|way| way.whole < trials) {
        print(
            "NOT COMPARABLE: the receiver was overrun in some trials, and a packet that meets a full \
             socket buffer costs its sender something else; repeat on an idle machine",
        );
    }
    for remote in &ways[2..4] {
        let got = ratio(&remote.cpu_ns, base).mid;
        let what = format!("{} <= {REMOTE_BAR} x no log: {got:.3}", remote.name);
        print(Claim::new(got <= REMOTE_BAR, &what));
    }
    for remote in &ways[2..4] {
        let got = ratio(&remote.cpu_ns, &ways[4].cpu_ns).mid;
        let what = format!("{} < throttled local disk: {got:.3} of its CPU time", remote.name);
        print(Claim::new(got < 1.0, &what));
    }
    print("");
}

/// Sizes of the blocks that go to a log server, in records.
const BLOCKS: [usize; 4] = [30, 40, 1000, 1024];

/// One place where records are stored.
struct StoredWay {
    name: String,
    target: LogTarget,
    block_records: usize,
    fsync: Fsync,
}

impl StoredWay {
    /// Millions of records a second; where each block is synced, a tenth of them is enough.
    fn pushed(&self, records: u64, round: usize) -> Result<f64> {
        let mut target = self.target.clone();
        if let LogTarget::Server(server) = &mut target {
            server.run = format!("run-{round}-{}-{}", self.block_records, self.fsync);
        }
        let records = if self.fsync == Fsync::Block { records / 10 } else { records };
        let limits = LogLimits {
            block_records: self.block_records,
            fsync: self.fsync,
            ..LogLimits::default()
        };
        pushed(&target, records, limits)
    }
}

/// A local file and a log server, then both with syncs.
fn stored_ways(
    file: &Path,
    address: SocketAddr,
    start: &impl Fn(Fsync) -> Result<SocketAddr>,
) -> Result<Vec<StoredWay>> {
    let local = |name: &str, fsync| StoredWay {
        name: name.to_owned(),
        target: LogTarget::File(file.to_owned()),
        block_records: 1024,
        fsync,
    };
    let remote = |name: String, address, block_records, fsync| StoredWay {
        name,
        target: LogTarget::Server(Box::new(LogServerTarget {
            transport: Transport::Tcp,
            address,
            run: String::new(),
            role: Role::Sender,
            secret: None,
            keys: None,
            spool: None,
        })),
        block_records,
        fsync,
    };
    let mut ways = vec![local("to a local file, blocks of 1024", Fsync::Never)];
    ways.extend(BLOCKS.map(|block| {
        let name = format!("to a log server and its disk, blocks of {block}");
        remote(name, address, block, Fsync::Never)
    }));
    for fsync in [Fsync::Interval, Fsync::Block] {
        ways.push(local(&format!("to a local file, --fsync {fsync}"), fsync));
        let name = format!("to a log server, --fsync {fsync}");
        ways.push(remote(name, start(fsync)?, 1024, fsync));
    }
    Ok(ways)
}

/// Records a second into a block, into a file and through a log server.
fn records_a_second(args: &LogCostArgs) -> Result<()> {
    let trials = args.trials();
    let records = if args.quick { 500_000 } else { 5_000_000 };
    let work = tempfile::tempdir().context("a directory for logs")?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (_stop, stopped) = watch::channel(None);
    let (accounts, _told) = mpsc::unbounded_channel();
    let start = |fsync| -> Result<SocketAddr> {
        let options = LogServerOptions::new("127.0.0.1:0".parse()?, work.path()).fsync(fsync);
        let server = runtime.block_on(async { LogServer::bind(options, accounts.clone()) })?;
        let address = server.address()?;
        runtime.spawn(server.serve(stopped.clone()));
        Ok(address)
    };
    let address = start(Fsync::Never)?;
    let ways = stored_ways(&work.path().join("local.itg"), address, &start)?;
    print(format_args!(
        "Records a second, {records} records a trial, {trials} trials; server and producer in one \
         process, TCP over loopback"
    ));
    let mut append = Vec::new();
    let mut rates = vec![Vec::new(); ways.len()];
    for round in 0..=trials {
        for index in order(ways.len() + 1, round) {
            let (rate, into) = match index.checked_sub(1) {
                None => (appended(records), &mut append),
                Some(way) => (ways[way].pushed(records, round)?, &mut rates[way]),
            };
            if round > 0 {
                into.push(rate);
            }
            clear(work.path())?;
        }
    }
    let mut lines = Lines::new(["", "M records/s", "x local file, same round"]);
    let mut row = |name: &str, got: &[f64], digits| {
        lines.row([
            name.to_owned(),
            with_interval(Estimate::of(got), digits),
            with_interval(ratio(got, &rates[0]), 2),
        ]);
    };
    row("appended to a block and sealed, in memory", &append, 0);
    for (way, got) in ways.iter().zip(&rates) {
        row(&way.name, got, 2);
    }
    print(lines);
    let got = Estimate::of(&append).mid;
    print(Claim::new(got >= APPEND_BAR, &format!("append >= {APPEND_BAR} M records/s: {got:.0}")));
    // The last way without syncs.
    let got = Estimate::of(&rates[BLOCKS.len()]).mid;
    let what = format!("memory to server's disk >= {SERVER_BAR} M records/s: {got:.1}");
    print(Claim::new(got >= SERVER_BAR, &what));
    runtime.shutdown_timeout(Duration::from_secs(5));
    Ok(())
}

fn record(seq: u64) -> Record {
    Record::sent(SentPacket {
        flow: 1,
        seq,
        size: 512,
        planned_ns: seq * 1000,
        sent_ns: seq * 1000 + 77,
    })
}

/// Millions of records a second that one thread places into blocks of 1024, sealed when full.
fn appended(records: u64) -> f64 {
    let mut builder = LogBuilder::new(1);
    let mut block = BlockBuf::new(1024);
    let started = Instant::now();
    for seq in 0..records {
        block.push(std::hint::black_box(&record(seq)));
        if block.is_full() {
            std::hint::black_box(builder.seal(&mut block));
            block.clear();
        }
    }
    records as f64 / started.elapsed().as_secs_f64() / 1e6
}

/// Millions of records a second of one producer, until all are where they belong.
fn pushed(target: &LogTarget, records: u64, limits: LogLimits) -> Result<f64> {
    let info = log_info(Side::Sender, "itg-bench", "0", "00".to_owned(), Some(1), BTreeMap::new());
    let log = Log::create(target, info, limits)?;
    let mut producer = log.producer();
    let started = Instant::now();
    for seq in 0..records {
        producer.push(&record(seq), seq);
    }
    drop(producer);
    let outcome = log.close();
    let took = started.elapsed().as_secs_f64();
    ensure!(
        outcome.records == records && outcome.error.is_none(),
        "{} of {records} records stored: {:?}",
        outcome.records,
        outcome.error
    );
    Ok(records as f64 / took / 1e6)
}
