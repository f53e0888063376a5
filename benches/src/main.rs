//! `itg-bench`: measures the programs as they are built, one command a question.
//!
//! Every command starts real programs (those that lie next to it) on this host, waits for each with a
//! deadline, takes settings in alternating order and prints medians with 95 % intervals. What each
//! command measures and how to read it: `docs/lab/README.md`.

mod agents;
mod arrivals;
mod chaos;
mod classic;
mod cluster;
mod decode;
mod doctor;
mod fidelity;
mod gaps;
mod group;
mod growth;
mod link;
mod log_cost;
mod logging;
mod made_logs;
mod mpi;
mod observed;
mod observer;
mod papers;
mod peers;
mod programs;
mod raw_links;
mod replays;
mod runtime;
mod soak;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use itg_cli::finish;
use itg_trials::{describe, print};

/// Measure the programs of ITG on this machine.
///
/// Uses itg-send, itg-recv, itg-log, itg-decode and itg-cluster from the directory of this program: build them
/// first, with `cargo build --release --workspace`. Compare numbers of one run only; other machines
/// and other loads give others.
///
/// Exit codes: 0 done, whatever was found; 1 the measurement failed; 2 the request makes no sense.
#[derive(Debug, Parser)]
#[command(name = "itg-bench", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The measurement procedure of the D-ITG paper: achieved rate and missing records by log buffer,
    /// packet size and packet rate, with logs to a local file and to a log server over TCP and UDP
    Logging(logging::LoggingArgs),
    /// Cost of logging: CPU time a packet with and without logs, records a second into a block,
    /// into a file and through a log server
    LogCost(log_cost::LogCostArgs),
    /// Cost of the runtime of layers: transactions and bytes a second beside plain sockets (Neko's
    /// Table 1), events a second and acceleration of the simulator
    Runtime(runtime::RuntimeArgs),
    /// One side of a trial of `runtime`
    #[command(hide = true)]
    RuntimePeer(runtime::PeerArgs),
    /// Our ITGSend and ITGRecv beside D-ITG's: mean rate, inter-departure times, CPU, and the
    /// largest rate without loss
    Classic(classic::ClassicArgs),
    /// Speed of decoding beside ITGDec: records a second, peak memory, packets, page
    Decode(decode::DecodeArgs),
    /// Our generator beside D-ITG, mgen, iperf3, sockperf and raw loops: rates, bursts,
    /// inter-departure times, many flows, TCP, as the kernel counts and stamps them
    Peers(peers::PeersArgs),
    /// Bound of the clock offset in made cases that try to fool the estimate: how often the truth is within it, and how
    /// near it is to the best possible one
    Clock(itg_bench_clock::Options),
    /// Power of the verdict on fidelity: how often sound traffic is not passed, and planted distortions are
    Fidelity(fidelity::FidelityArgs),
    /// Agreement of the verdict on fidelity with an independent observer: real runs with and without busy loops
    /// beside them, judged by the sender's log and by the kernel's stamps of departing packets. Needs root
    Observed(observed::ObservedArgs),
    /// Judgement of `itg-cluster replay`: honest replays that are equal within intervals, and planted changes, of
    /// which none may be
    Replays(replays::ReplaysArgs),
    /// Test of the promise of `itg-send doctor` in later runs
    Doctor(doctor::DoctorArgs),
    /// Cost of a cluster for a flow, and accuracy of the common start of 32 agents
    Cluster(cluster::ClusterArgs),
    /// Ordered broadcast: the closed-system and client/server measurements of the thesis (Tables 4 to 6), delay
    /// under an open load, how many messages a second, and what a crash of the coordinator costs
    Broadcast(group::BroadcastArgs),
    /// Membership: how long a view change takes (Figures 4 to 8), in simulation and between processes
    Membership(group::MembershipArgs),
    /// Objects that are sent as they lie in memory, beside serialisers and plain bytes (Expresso's Tables 1 and 2)
    Expresso(itg_bench_expresso::Options),
    /// Tables and figures of the five papers, measured: a page for each, with the paper's numbers, ours, and whether
    /// the shape holds
    Papers(papers::PapersArgs),
    /// One process of `broadcast` and `membership`
    #[command(hide = true)]
    Process(group::GroupProcessArgs),
    /// A log rank of MPI beside the log server: packets a second sent and logged, missing records. Needs an
    /// itg-cluster with the feature `mpi`, and its launcher
    Mpi(mpi::MpiArgs),
    /// Eight agents, 64 flows, an agent killed every 5 s and started again after 3 s: outcome of
    /// each packet. Ends with 1 where one was sent twice or is missing without a cause
    Chaos(chaos::ChaosArgs),
    /// Growth of cost with packets a second, flows, length of a log, producers of a log server and agents, and the
    /// point where this machine ends
    Growth(growth::GrowthArgs),
    /// Many short runs in a row from one process to one receiver: refusals, missing packets, and descriptors,
    /// threads and memory of both as they go
    Soak(soak::SoakArgs),
    /// One side of a raw loop of `peers`
    #[command(hide = true)]
    RawLoop(peers::RawArgs),
    /// Reading end of the raw links of `growth`
    #[command(hide = true)]
    RawSink,
    /// Runs one command and tells its time and memory; for the measurements themselves
    #[command(hide = true)]
    Measured(decode::MeasuredArgs),
}

fn main() -> ExitCode {
    let cli = itg_cli::parse::<Cli>(None);
    finish("itg-bench", run(cli))
}

fn run(cli: Cli) -> Result<ExitCode> {
    match &cli.command {
        Command::RuntimePeer(args) => {
            runtime::peer(args)?;
            return Ok(ExitCode::SUCCESS);
        }
        Command::Process(args) => return group::process(args),
        Command::Measured(args) => {
            decode::measured(args)?;
            return Ok(ExitCode::SUCCESS);
        }
        Command::RawLoop(args) => {
            peers::raw(args)?;
            return Ok(ExitCode::SUCCESS);
        }
        Command::RawSink => {
            raw_links::sink()?;
            return Ok(ExitCode::SUCCESS);
        }
        _ => print(describe("itg-bench")),
    }
    match cli.command {
        Command::Logging(args) => logging::run(&args)?,
        Command::LogCost(args) => log_cost::run(&args)?,
        Command::Runtime(args) => runtime::run(&args)?,
        Command::Classic(args) => classic::run(&args)?,
        Command::Decode(args) => decode::run(&args)?,
        Command::Peers(args) => peers::run(&args)?,
        Command::Clock(args) => itg_bench_clock::run(&args)?,
        Command::Doctor(args) => doctor::run(&args)?,
        Command::Fidelity(args) => fidelity::run(&args)?,
        Command::Observed(args) => observed::run(&args)?,
        Command::Replays(args) => replays::run(&args)?,
        Command::Cluster(args) => cluster::run(&args)?,
        Command::Mpi(args) => mpi::run(&args)?,
        Command::Broadcast(args) => group::broadcast(&args)?,
        Command::Membership(args) => group::membership(&args)?,
        Command::Expresso(args) => itg_bench_expresso::run(&args)?,
        Command::Papers(args) => papers::run(&args)?,
        Command::Chaos(args) => chaos::run(&args)?,
        Command::Growth(args) => growth::run(&args)?,
        Command::Soak(args) => soak::run(&args)?,
        Command::RuntimePeer(_)
        | Command::RawLoop(_)
        | Command::RawSink
        | Command::Measured(_)
        | Command::Process(_) => {}
    }
    Ok(ExitCode::SUCCESS)
}
