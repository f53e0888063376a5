//! Many short runs in a row, each of one flow: one process sends them all, one receiver takes them, and neither may
//! refuse, lose or keep anything.

use std::fs;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use itg_cli::say;
use itg_core::distribution::Distribution;
use itg_core::flow::{Flow, FlowSpec, Proto};
use itg_core::payload::Content;
use itg_core::seed::RunSeed;
use itg_node::{SendFlow, SendJob, SendOutcome};
use itg_testkit::host::open_files;
use itg_trials::{Lines, print};
use tokio::sync::watch;

use crate::programs::{Location, Programs};

/// Packets of a run.
const PACKETS: u64 = 2;
/// Refusals that are told one by one.
const TOLD: u64 = 20;
/// Shares of the runs after which both processes are looked at, in percent.
const LOOKS: [u64; 5] = [1, 10, 25, 50, 100];

/// Options of `soak`.
#[derive(Debug, Args)]
pub(crate) struct SoakArgs {
    /// Runs, of UDP and of TCP in turn
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(100..))]
    runs: u64,
    /// Runs at the same time: each takes a third of a second, most of which it waits
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=128))]
    lanes: u64,
}

/// Outcomes of runs.
#[derive(Clone, Copy, Debug, Default)]
struct Outcomes {
    /// A receiver or a system that did not let it begin, or broke it off.
    refused: u64,
    /// Not every packet arrived once.
    short: u64,
}

/// Resources that a process holds.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    descriptors: usize,
    threads: u64,
    resident_kib: u64,
}

impl Held {
    fn of(pid: u32) -> Result<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))
            .with_context(|| format!("process {pid}"))?;
        let number = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
            line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
        };
        let (threads, resident_kib) = (number("Threads"), number("VmRSS"));
        Ok(Self { descriptors: open_files(pid), threads, resident_kib })
    }

    fn cells(self) -> [String; 3] {
        let mib = self.resident_kib as f64 / 1024.0;
        [self.descriptors.to_string(), self.threads.to_string(), format!("{mib:.1}")]
    }
}

pub(crate) fn run(args: &SoakArgs) -> Result<()> {
    let programs = Programs::find()?;
    let receiver = programs.receiver(&Location::Here, "127.0.0.1", &[], &[])?;
    let to = receiver.address.parse().context("the address of the receiver")?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let mut lines = Lines::new([
        "runs",
        "refused",
        "runs with packets missing or doubled",
        "sender: descriptors",
        "threads",
        "MiB",
        "receiver: descriptors",
        "threads",
        "MiB",
    ]);
    let looks = LOOKS.map(|percent| (args.runs * percent / 100).max(1));
    let mut outcomes = Outcomes::default();
    let next = AtomicU64::new(0);
    thread::scope(|scope| {
        let (tell, told) = mpsc::sync_channel(0);
        for _ in 0..args.lanes {
            let (tell, next, runtime) = (tell.clone(), &next, &runtime);
            scope.spawn(move || {
                loop {
                    let begun = next.fetch_add(1, Ordering::Relaxed);
                    if begun >= args.runs {
                        return;
                    }
                    let proto = if begun.is_multiple_of(2) { Proto::Tcp } else { Proto::Udp };
                    let ended = runtime.block_on(short_run(to, proto));
                    if tell.send(ended).is_err() {
                        return;
                    }
                }
            });
        }
        drop(tell);
        for (count, ended) in (1..).zip(told) {
            match ended {
                Ok(outcome) => outcomes.add(count, &outcome),
                Err(error) => outcomes.refuse(count, &format!("{error:#}")),
            }
            if looks.contains(&count) {
                say(format_args!("itg-bench: {count} of {} runs", args.runs));
                let counts = [count, outcomes.refused, outcomes.short].map(|n| n.to_string());
                let held = [Held::of(std::process::id())?, Held::of(receiver.pid())?];
                lines.row(counts.into_iter().chain(held.into_iter().flat_map(Held::cells)));
            }
        }
        Ok::<_, anyhow::Error>(())
    })?;
    drop(receiver.stop()?);
    print(format_args!(
        "short runs in a row: {PACKETS} packets each, UDP and TCP in turn, {} at a time, all from one process\n\n{lines}",
        args.lanes
    ));
    if outcomes.refused + outcomes.short > 0 {
        bail!("{} runs were refused, {} did not end whole", outcomes.refused, outcomes.short);
    }
    Ok(())
}

impl Outcomes {
    fn add(&mut self, count: u64, outcome: &SendOutcome) {
        let refused = outcome.flows.iter().find_map(|flow| flow.refused.clone());
        let failed = outcome.failures.first().map(|(_, error)| error.to_string());
        if let Some(why) = refused.or(failed) {
            self.refuse(count, &why);
        } else {
            let whole = |flow: &itg_node::FlowOutcome| {
                let counts = flow.counts.as_ref();
                counts.is_some_and(|counts| (counts.unique, counts.packets) == (PACKETS, PACKETS))
            };
            self.short += u64::from(!outcome.flows.iter().all(whole));
        }
    }

    fn refuse(&mut self, run: u64, why: &str) {
        self.refused += 1;
        if self.refused <= TOLD {
            say(format_args!("itg-bench: run {run} is refused: {why}"));
        }
    }
}

/// Sends one run without logs.
async fn short_run(to: SocketAddr, proto: Proto) -> Result<SendOutcome> {
    let seed = RunSeed(1);
    let mut spec = FlowSpec::new(1);
    spec.proto = proto;
    spec.idt = Distribution::Constant(1e6);
    spec.size = Distribution::Constant(100.0);
    spec.stop.packets = Some(PACKETS);
    let flow = SendFlow::new(Flow::resolve(spec, seed)?, to, Content::random(seed)).name("soak");
    let job = SendJob::new(seed, vec![flow]).program("itg-bench soak", env!("CARGO_PKG_VERSION"));
    let (_never, stop) = watch::channel(None);
    Ok(itg_node::send(job, stop).await?)
}
