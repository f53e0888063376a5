//! Cost of the runtime of layers (N-14): Neko's Table 1, each value beside plain sockets in
//! alternated trials, and the speed of the simulator.

mod layers;
mod raw;
mod simulator;
mod work;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use itg_mesh::{Listener, MasterSetup, Meet, Report, SlaveSetup, start_master, start_slave};
use itg_process::bootstrap::Application;
use itg_trials::{
    Claim, Estimate, Lines, MARGIN, order, pair, percent, print, ratio, said, with_interval,
};

use self::work::Work;

/// Cost of the runtime.
#[derive(Debug, Args)]
pub(crate) struct RuntimeArgs {
    /// Trials of each setting
    #[arg(long, value_name = "N", default_value_t = 10)]
    trials: usize,
    /// Seconds a trial
    #[arg(long, value_name = "S", default_value_t = 2.0)]
    seconds: f64,
    /// Few and short trials: a look, no measurement
    #[arg(long)]
    quick: bool,
    /// Leaves out the simulator
    #[arg(long)]
    no_simulator: bool,
    /// Leaves out the networks
    #[arg(long)]
    no_networks: bool,
}

/// One side of a trial.
#[derive(Debug, Args)]
pub(crate) struct PeerArgs {
    work: Work,
    /// Through the runtime
    #[arg(long)]
    layers: bool,
    /// Address of the other side; without it this side listens, and prints its address
    #[arg(long)]
    call: Option<SocketAddr>,
    #[arg(long)]
    seconds: f64,
}

/// Runs all tables.
pub(crate) fn run(args: &RuntimeArgs) -> Result<()> {
    if !args.no_networks {
        networks(args)?;
    }
    if !args.no_simulator {
        print("");
        simulator::run(if args.quick { 1 } else { 5 })?;
    }
    Ok(())
}

fn networks(args: &RuntimeArgs) -> Result<()> {
    let (trials, seconds) =
        if args.quick { (3, 0.5) } else { (args.trials.max(1), args.seconds.max(0.1)) };
    print(format_args!(
        "runtime and plain sockets, two processes over loopback, one processor each, {trials} \
         alternated trials of {seconds} s"
    ));
    let mut lines = Lines::new(["", "plain sockets", "runtime", "runtime/plain [%]", "Neko [%]"]);
    let mut claims = Vec::new();
    for (work, name, bar, neko) in Work::ALL {
        let mut values = [Vec::new(), Vec::new()];
        // The first round warms up.
        for round in 0..=trials {
            for index in order(2, round) {
                let value = trial(work, index == 1, seconds)?;
                if round > 0 {
                    values[index].push(value);
                }
            }
        }
        let [plain, layers] = values;
        let part = ratio(&layers, &plain);
        let what = format!("{name}: runtime/plain >= {bar:.0} %: {}", percent(part));
        claims.push(Claim::new(100.0 * part.mid >= bar, &what));
        lines.row([
            name.to_owned(),
            with_interval(Estimate::of(&plain), 0),
            with_interval(Estimate::of(&layers), 0),
            percent(part),
            format!("{neko:.0}"),
        ]);
    }
    print(format_args!("{lines}\n"));
    claims.iter().for_each(print);
    Ok(())
}

/// One trial: transactions or kilobytes a second.
fn trial(work: Work, layers: bool, seconds: f64) -> Result<f64> {
    let name = work.to_possible_value().context("a name")?;
    let time = seconds.to_string();
    let mut words = vec!["runtime-peer", name.get_name(), "--seconds", &time];
    if layers {
        words.push("--layers");
    }
    let [first, second] = pair(&words)?;
    let limit = Duration::from_secs_f64(seconds) + MARGIN;
    let words =
        [second.wait(limit)?.ended_with(&[0])?.out, first.wait(limit)?.ended_with(&[0])?.out];
    let result = words.iter().find_map(|out| out.trim().strip_prefix("result "));
    let result = result.with_context(|| format!("no result in {words:?}"))?;
    result.parse().with_context(|| format!("result {result}"))
}

/// One side of a trial.
pub(crate) fn peer(args: &PeerArgs) -> Result<()> {
    match (args.layers, args.call) {
        (false, None) => raw::serve(args.work, args.seconds),
        (false, Some(at)) => raw::call(args.work, at, args.seconds),
        (true, None) => master(args),
        (true, Some(at)) => slave(at, args.seconds),
    }
}

/// Process 0 of the runtime: it measures.
fn master(args: &PeerArgs) -> Result<()> {
    let listener = Listener::bind(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0))?;
    said(listener.address());
    let registry = layers::registry();
    let (network, layers) = match args.work {
        Work::TcpRr => ("tcp", ["client", "echo"]),
        Work::UdpRr => ("udp", ["client", "echo"]),
        Work::TcpStream => ("tcp", ["sink", "source"]),
    };
    let text = format!(
        "processes = 2\n[[network]]\nname = \"main\"\nkind = \"{network}\"\n[[process]]\nslot = 0\n\
         layers = [{{ layer = \"{}\", time = \"{}s\" }}]\n[[process]]\nlayers = [{{ layer = \"{}\", time \
         = \"{}s\" }}]\n",
        layers[0], args.seconds, layers[1], args.seconds
    );
    let application = Application { origin: "benchmark".to_owned(), text, seed: 1, network: None };
    let (result, results) = std::sync::mpsc::channel();
    let mut setup = MasterSetup::new(&application, &registry);
    setup.listener = Some(listener);
    setup.watch = Some(Box::new(move |note| {
        if let Report::Event { event, .. } = note
            && let Some(layers::BenchEvent::Result { count, ns }) = event.decode()
        {
            result.send([count, ns]).unwrap_or_default();
        }
    }));
    let node = start_master(setup)?;
    let limit = Duration::from_secs_f64(args.seconds) + MARGIN;
    if node.wait(limit).is_none() {
        bail!("the processes did not stop");
    }
    let counters = node.finish().networks;
    let [count, elapsed_ns] = results.try_recv().context("no result")?;
    tracing::debug!(?counters, "networks");
    raw::result(args.work, count, elapsed_ns as f64 / 1e9);
    Ok(())
}

/// Process 1.
fn slave(at: SocketAddr, seconds: f64) -> Result<()> {
    let registry = layers::registry();
    let node = start_slave(SlaveSetup::new(&registry, Meet::Call(at.to_string())))?;
    let limit = Duration::from_secs_f64(seconds) + MARGIN;
    if node.wait(limit).is_none() {
        bail!("the processes did not stop");
    }
    drop(node.finish());
    Ok(())
}
