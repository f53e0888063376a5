//! `itg-bench-rpc`: the transports of today in the place of the thesis's RMI and CORBA: tarpc and tonic beside plain sockets and
//! the runtime of layers, in alternated trials: one client and one server in a closed loop, and the ordered
//! broadcasts of the thesis with a remote call for each send.

mod cast;
mod common;
mod grpc;
mod layers;
mod load;
mod meter;
mod native;
mod sockets;
mod transport;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::{Args, Parser, Subcommand, ValueEnum};
use itg_cli::finish;
use itg_trials::{Estimate, Lines, MARGIN, describe, order, pair, print, ratio, with_interval};

use crate::cast::CastArgs;
use crate::meter::Figures;

/// Bytes of a request; a reply has one.
const SIZES: [u32; 3] = [1, 100, 1000];

/// Remote calls of today, tarpc and tonic, beside plain sockets and the runtime of layers: time of a request and its
/// reply, and of an ordered broadcast whose sends are remote calls.
///
/// Numbers of two runs are not comparable; ratios within a run are.
///
/// Exit codes: 0 done; 1 the measurement failed; 2 the request makes no sense.
#[derive(Debug, Parser)]
#[command(name = "itg-bench-rpc", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    side: Option<Side>,
    #[command(flatten)]
    options: Options,
}

/// Processes of a trial.
#[derive(Debug, Subcommand)]
enum Side {
    /// One side of a trial of `calls`
    #[command(hide = true)]
    Peer(PeerArgs),
    /// One process of an ordered broadcast
    #[command(hide = true)]
    Cast(CastArgs),
}

#[derive(Debug, Args)]
struct Options {
    /// Trials of each setting
    #[arg(long, value_name = "N", default_value_t = 10)]
    trials: usize,
    /// Seconds a trial, 0.1 to 60
    #[arg(long, value_name = "S", default_value = "2", value_parser = seconds)]
    seconds: f64,
    /// Rounds of an ordered broadcast in one trial
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u64).range(10..=100_000))]
    rounds: u64,
    /// These parts alone, separated by commas
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    only: Vec<Part>,
    /// Few and short trials: a look, no measurement
    #[arg(long)]
    quick: bool,
}

/// A part of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// A request and its reply
    Calls,
    /// The closed system of the thesis, Tables 4 to 6
    Closed,
    /// Clients and servers, cases A and B
    Clients,
}

/// By what a request and its reply travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Way {
    /// TCP sockets that block
    Sockets,
    /// The runtime of layers over TCP
    Layers,
    /// tarpc over TCP, bincode
    Tarpc,
    /// tonic: gRPC over HTTP/2
    Tonic,
}

impl Way {
    /// Plain sockets first: the others are compared with them.
    const ALL: [(Self, &'static str); 4] = [
        (Self::Sockets, "plain sockets"),
        (Self::Layers, "runtime"),
        (Self::Tarpc, "tarpc"),
        (Self::Tonic, "tonic"),
    ];
}

/// One side of a trial.
#[derive(Debug, Args)]
struct PeerArgs {
    way: Way,
    /// Address of the server; without it this side is the server, and prints its address
    #[arg(long)]
    call: Option<SocketAddr>,
    /// Bytes of a request
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    size: u32,
    #[arg(long, value_parser = seconds)]
    seconds: f64,
}

fn seconds(text: &str) -> Result<f64> {
    let value: f64 = text.parse()?;
    ensure!((0.1..=60.0).contains(&value), "expected 0.1 to 60 seconds");
    Ok(value)
}

fn main() -> ExitCode {
    let cli = itg_cli::parse::<Cli>(None);
    let done = match &cli.side {
        None => run(&cli.options),
        Some(Side::Peer(args)) => peer(args),
        Some(Side::Cast(args)) => cast::process(args),
    };
    finish("itg-bench-rpc", done.map(|()| ExitCode::SUCCESS))
}

/// Runs the tables.
fn run(args: &Options) -> Result<()> {
    print(describe("itg-bench-rpc"));
    let (trials, seconds) = if args.quick { (3, 0.5) } else { (args.trials.max(1), args.seconds) };
    let wanted = |part| args.only.is_empty() || args.only.contains(&part);
    if wanted(Part::Calls) {
        calls(trials, seconds)?;
    }
    if wanted(Part::Closed) {
        cast::closed(trials, args.rounds)?;
    }
    if wanted(Part::Clients) {
        cast::clients(trials, args.rounds)?;
    }
    Ok(())
}

/// A client and a server.
fn calls(trials: usize, seconds: f64) -> Result<()> {
    print(format_args!(
        "a client and a server, two processes over loopback TCP, one processor each, one request after the \
         other, replies of one byte, {trials} alternated trials of {seconds} s"
    ));
    let mut lines = Lines::new([
        "way",
        "request [B]",
        "p50 [us]",
        "p99 [us]",
        "requests/s",
        "p50, plain sockets = 1",
    ]);
    for size in SIZES {
        let mut values: [Vec<Figures>; Way::ALL.len()] = Default::default();
        // The first round warms up.
        for round in 0..=trials {
            for index in order(Way::ALL.len(), round) {
                let figures = trial(Way::ALL[index].0, size, seconds)?;
                if round > 0 {
                    values[index].push(figures);
                }
            }
        }
        let column = |index: usize, of: fn(&Figures) -> f64| -> Vec<f64> {
            values[index].iter().map(of).collect()
        };
        for (index, (_, name)) in Way::ALL.into_iter().enumerate() {
            let p50 = column(index, |figures| figures.p50_us);
            lines.row([
                name.to_owned(),
                size.to_string(),
                with_interval(Estimate::of(&p50), 1),
                with_interval(Estimate::of(&column(index, |figures| figures.p99_us)), 1),
                with_interval(Estimate::of(&column(index, |figures| figures.rate)), 0),
                with_interval(ratio(&p50, &column(0, |figures| figures.p50_us)), 2),
            ]);
        }
    }
    print(lines);
    Ok(())
}

/// One trial. The server goes when the client has what it wants.
fn trial(way: Way, size: u32, seconds: f64) -> Result<Figures> {
    let name = way.to_possible_value().context("a name")?;
    let (size, time) = (size.to_string(), seconds.to_string());
    let words = ["peer", name.get_name(), "--size", &size, "--seconds", &time];
    let [server, client] = pair(&words)?;
    let out = client.wait(Duration::from_secs_f64(seconds) + MARGIN)?.ended_with(&[0])?.out;
    drop(server);
    Figures::read(&out).with_context(|| format!("no result in {out:?}"))
}

/// One side of a trial.
fn peer(args: &PeerArgs) -> Result<()> {
    let size = args.size as usize;
    let time = Duration::from_secs_f64(args.seconds);
    let Some(at) = args.call else {
        return match args.way {
            Way::Sockets => sockets::serve(size),
            Way::Layers => layers::serve(time),
            Way::Tarpc => native::serve(),
            Way::Tonic => grpc::serve(),
        };
    };
    let meter = match args.way {
        Way::Sockets => sockets::call(at, size, time),
        Way::Layers => layers::call(at, size, time),
        Way::Tarpc => native::call(at, size, time),
        Way::Tonic => grpc::call(at, size, time),
    }?;
    print(meter.figures()?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_have_a_range() {
        for (text, want) in [
            ("0.1", Some(0.1)),
            ("60", Some(60.0)),
            ("0", None),
            ("61", None),
            ("-1", None),
            ("NaN", None),
            ("inf", None),
            ("two", None),
        ] {
            assert_eq!(seconds(text).ok(), want, "seconds {text:?}");
        }
    }
}
