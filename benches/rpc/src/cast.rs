//! Ordered broadcast where each send is a remote call: the closed system and the clients and servers of the
//! thesis's Tables 4 to 6, over tarpc, tonic and the runtime's TCP, in alternated trials.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::{Args, ValueEnum};
use itg_mesh::{Listener, MasterSetup, Meet, Report, SlaveSetup, Watch};
use itg_mesh::{start_master, start_slave};
use itg_process::Event;
use itg_process::bootstrap::Application;
use itg_testkit::child::Running;
use itg_trials::{Estimate, Lines, MARGIN, order, print, ratio, said, with_interval};

use crate::common::on_one_thread;
use crate::load::{LoadEvent, SIZE, registry};
use crate::{grpc, native, transport};

const ALGORITHMS: [&str; 3] = ["sequencer", "skeen", "chandra-toueg"];
/// The thesis's Tables 4 to 6, ms a broadcast: n, then sockets, RMI and CORBA, each by algorithm.
const THESIS: [(u32, [[f64; 3]; 3]); 3] = [
    (2, [[6.0, 7.0, 12.0], [16.0, 19.0, 31.0], [14.0, 17.0, 28.0]]),
    (4, [[10.0, 13.0, 22.0], [28.0, 44.0, 68.0], [25.0, 37.0, 60.0]]),
    (6, [[14.0, 22.0, 36.0], [44.0, 79.0, 105.0], [36.0, 69.0, 98.0]]),
];

/// By what the processes talk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Way {
    /// The runtime of layers over TCP
    Layers,
    /// tarpc over TCP, bincode
    Tarpc,
    /// tonic: gRPC over HTTP/2
    Tonic,
}

impl Way {
    /// With the name in the table, in the order of the thesis's sockets, RMI and CORBA.
    const ALL: [(Self, &'static str); 3] =
        [(Self::Layers, "runtime"), (Self::Tarpc, "tarpc"), (Self::Tonic, "tonic")];
}

/// One process of a trial.
#[derive(Debug, Args)]
pub(crate) struct CastArgs {
    way: Way,
    /// The configuration
    file: PathBuf,
    #[arg(long)]
    slot: u32,
    /// File with the addresses of all processes, by slot: waited for
    #[arg(long)]
    peers: PathBuf,
}

/// The closed system.
pub(crate) fn closed(trials: usize, rounds: u64) -> Result<()> {
    print(format_args!(
        "\nclosed system: in round r process r mod n casts {SIZE} bytes and everybody delivers; each send is a \
         remote call, the next one to the same process waits for its reply (the runtime's sends have none); us a broadcast, mean of {rounds} rounds, \
         {trials} alternated trials; in brackets times the runtime's TCP, and what RMI and CORBA were to the thesis's \
         sockets"
    ));
    let mut lines = Lines::new(["n, way", "Sequencer", "Skeen", "Chandra-Toueg"]);
    for (n, thesis) in THESIS {
        let text = |algorithm: &str| {
            configuration(
                n,
                &format!("\"{algorithm}\", {{ layer = \"rounds\", rounds = {rounds} }}"),
            )
        };
        let cells = cells(trials, n, text)?;
        for (way, (_, name)) in Way::ALL.into_iter().enumerate() {
            let mut row = vec![format!("{n}, {name}")];
            for (at, ways) in cells.iter().enumerate() {
                let mean = with_interval(Estimate::of(&ways[way]), 0);
                row.push(match way {
                    0 => mean,
                    _ => {
                        let times = ratio(&ways[way], &ways[0]).mid;
                        let then = thesis[way][at] / thesis[0][at];
                        format!("{mean} ({times:.1}; thesis {then:.1})")
                    }
                });
            }
            lines.row(row);
        }
    }
    print(lines);
    Ok(())
}

/// Clients and servers.
pub(crate) fn clients(trials: usize, rounds: u64) -> Result<()> {
    let servers = 3;
    print(format_args!(
        "\none client and {servers} servers, {rounds} requests of {SIZE} bytes one after the other: us from request to \
         first answer (mean, {trials} alternated trials; in brackets times the runtime's TCP); case A: the client \
         casts to all servers, case B: it asks one, which casts"
    ));
    let mut lines = Lines::new(["case, way", "Sequencer", "Skeen", "Chandra-Toueg"]);
    for (case, direct) in [("A", true), ("B", false)] {
        let text = |algorithm: &str| {
            let broadcast = format!("{{ layer = \"{algorithm}\", members = {servers} }}");
            let below = if direct { format!("{broadcast}, ") } else { String::new() };
            let client = format!(
                "[[process]]\nslot = {servers}\nlayers = [{below}{{ layer = \"client\", servers = {servers}, direct = \
                 {direct} }}, {{ layer = \"asker\", rounds = {rounds} }}]\n"
            );
            let server = format!("{broadcast}, {{ layer = \"server\", servers = {servers} }}");
            let text = configuration(servers + 1, &server);
            let (head, rest) = text.split_once("[[process]]").unwrap_or((&text, ""));
            format!("{head}{client}[[process]]{rest}")
        };
        let cells = cells(trials, servers + 1, text)?;
        for (way, (_, name)) in Way::ALL.into_iter().enumerate() {
            let row = cells.iter().map(|ways| {
                let mean = with_interval(Estimate::of(&ways[way]), 0);
                let times = ratio(&ways[way], &ways[0]).mid;
                if way == 0 { mean } else { format!("{mean} ({times:.1})") }
            });
            lines.row(std::iter::once(format!("{case}, {name}")).chain(row));
        }
    }
    print(lines);
    Ok(())
}

fn configuration(n: u32, layers: &str) -> String {
    format!(
        "processes = {n}\ndrain_timeout = \"500ms\"\n[[network]]\nname = \"main\"\nkind = \"tcp\"\n[[process]]\n\
         layers = [{layers}]\n"
    )
}

/// Microseconds a round of each trial, by algorithm and way.
fn cells(
    trials: usize,
    n: u32,
    text: impl Fn(&str) -> String,
) -> Result<Vec<[Vec<f64>; Way::ALL.len()]>> {
    let mut cells = Vec::new();
    for algorithm in ALGORITHMS {
        let mut ways: [Vec<f64>; Way::ALL.len()] = Default::default();
        for round in 0..trials {
            for index in order(Way::ALL.len(), round) {
                let (way, name) = Way::ALL[index];
                let seen = trial(way, n, &text(algorithm));
                ways[index].push(seen.with_context(|| format!("{algorithm} over {name}"))?);
            }
        }
        cells.push(ways);
    }
    Ok(cells)
}

/// One trial: so many processes; microseconds a round, the mean over those that measured.
fn trial(way: Way, n: u32, text: &str) -> Result<f64> {
    let dir = tempfile::tempdir().context("a directory")?;
    let (file, peers) = (dir.path().join("run.toml"), dir.path().join("peers"));
    std::fs::write(&file, text)?;
    let program = std::env::current_exe().context("this program")?;
    let name = way.to_possible_value().context("a name")?;
    let start = |slot: u32| {
        let mut command = Command::new(&program);
        command.args(["cast", name.get_name()]).arg(&file).args(["--slot", &slot.to_string()]);
        Running::spawn(command.arg("--peers").arg(&peers), &[])
    };
    let running: Vec<_> = (0..n).map(start).collect::<Result<_>>()?;
    let mut addresses = String::new();
    // Of the runtime's processes the first alone says where it is.
    for process in running.iter().take(if way == Way::Layers { 1 } else { running.len() }) {
        addresses += &process.after("listening on ", MARGIN)?;
        addresses.push('\n');
    }
    let half = dir.path().join("half");
    std::fs::write(&half, addresses)?;
    std::fs::rename(&half, &peers)?;
    let (mut count, mut total) = (0.0, 0.0);
    for process in running {
        let out = process.wait(3 * MARGIN)?.ended_with(&[0])?.out;
        for line in out.lines().filter_map(|line| line.strip_prefix("result ")) {
            let numbers: Vec<f64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
            let [rounds, ns, _] = numbers[..] else { anyhow::bail!("three numbers: {line:?}") };
            count += rounds;
            total += ns;
        }
    }
    ensure!(count > 0.0, "nobody has measured anything");
    Ok(total / count / 1e3)
}

/// One process of a trial.
pub(crate) fn process(args: &CastArgs) -> Result<()> {
    let text = std::fs::read_to_string(&args.file).context("the configuration")?;
    let events = match args.way {
        Way::Layers => layers(args, text)?,
        Way::Tarpc => on_one_thread(called::<native::Carrier>(args, &text))?,
        Way::Tonic => on_one_thread(called::<grpc::Carrier>(args, &text))?,
    };
    for LoadEvent::Result { count, ns, p50 } in events.iter().filter_map(Event::decode) {
        print(format_args!("result {count} {ns} {p50}"));
    }
    Ok(())
}

async fn called<C: transport::Carry>(args: &CastArgs, text: &str) -> Result<Vec<Event>> {
    let process = transport::process(text, args.slot)?;
    let listener = transport::listen().await?;
    said(listener.local_addr()?);
    let peers = peers(&args.peers)?;
    transport::run::<C>(process, listener, &peers, 2 * MARGIN).await
}

/// The same by the runtime. Its slots follow from the order in which processes connect.
fn layers(args: &CastArgs, text: String) -> Result<Vec<Event>> {
    let registry = registry();
    let (tell, told) = std::sync::mpsc::channel();
    let watch: Watch = Box::new(move |note| {
        if let Report::Event { event, .. } = note {
            // The receiving end is gone only when this process ends.
            tell.send(event).unwrap_or_default();
        }
    });
    let node = if args.slot == 0 {
        let listener = Listener::bind(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0))?;
        said(listener.address());
        let application =
            Application { origin: "benchmark".to_owned(), text, seed: 1, network: None };
        let mut setup = MasterSetup::new(&application, &registry);
        (setup.listener, setup.watch) = (Some(listener), Some(watch));
        start_master(setup)?
    } else {
        let master = peers(&args.peers)?.first().copied().context("no address")?;
        let mut setup = SlaveSetup::new(&registry, Meet::Call(master.to_string()));
        setup.watch = Some(watch);
        start_slave(setup)?
    };
    ensure!(node.wait(2 * MARGIN).is_some(), "the processes did not stop");
    drop(node.finish());
    Ok(told.try_iter().collect())
}

/// The addresses of all processes, when they are there.
fn peers(file: &Path) -> Result<Vec<SocketAddr>> {
    let deadline = Instant::now() + MARGIN;
    loop {
        if let Ok(text) = std::fs::read_to_string(file) {
            return text.lines().map(|line| Ok(line.parse()?)).collect();
        }
        ensure!(Instant::now() < deadline, "nobody says where the others are");
        std::thread::sleep(Duration::from_millis(2));
    }
}
