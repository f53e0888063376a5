//! `itg-send`: sends seeded flows to receivers and says what became of them.

mod classic;
mod doctor;
mod flow_args;
mod nodes;
mod request;
mod ways;

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Args, Parser, Subcommand};
use flow_args::FlowArgs;
use itg_classic::send::carried_sizes;
use itg_cli::{
    Gates, Help, LoadArgs, PacingArgs, PeerArgs, Program, SenderMetrics, Sending, Signals,
    Unreached, WordArgs, account, announce, draw_run, draw_seed, finish, load_within, promised,
    read_text, refuse, result_text, say, send_plan_observed, sent, unreached,
};
use itg_core::flow::Proto;
use itg_core::text::from_peer;
use itg_engine::LogOutcome;
use itg_engine::pacing::Level;
use itg_experiment::{Experiment, PacingEntry, Plan, PlanInputs, PlannedFlow, Seed, TimeSpan};
use itg_node::{SendOutcome, Start};
use itg_session::logs::Role;
use itg_session::{Phase, SessionError};
use itg_stats::gate::{Judgement, Outcome};
use itg_stats::{Analysis, Options, Report};

use crate::nodes::CONTROL_PORT;
use crate::request::{AuthArgs, OutputArgs, Request, SendLogArgs};
use crate::ways::WayArgs;
use itg_cli::print;

/// Bytes of a log that are read at the end of a run whether or not a gate asks for it: 256 MiB, 6 million packets.
const QUICKLY_READ: u64 = 256 << 20;
/// Duration of a flow when nothing else ends it: 10 s.
const DEFAULT_DURATION_NS: u64 = 10_000_000_000;

/// Send seeded flows to a receiver (itg-recv) and log every packet.
///
/// One flow, or several equal ones, from the command line; with `run`, the flows of an experiment
/// file. What is sent is a pure function of the seed, which is printed and logged.
///
/// Units: durations 100ns, 500us, 20ms, 1.5s, 2min, 1h; rates 64kbps, 10Mbps, 50pps, 100kpps; bytes
/// 512, 64Ki, 10M. Distributions: constant(x), uniform(a,b), exp(mean), normal(mean,sd),
/// lognormal(median,sigma), pareto(shape,scale), cauchy(location,scale), student(location,scale,nu),
/// gamma(shape,scale), weibull(shape,scale), poisson(mean), discrete(x:w,…), mix(w:DIST,…),
/// empirical(FILE), trunc(DIST,lo,hi).
///
/// Exit codes: 0 the plan was carried out (overload is told and keeps 0), 1 the run failed or the kernel refused packets,
/// 2 the request makes no sense (or a name has no address), 3 the receiver is not reachable or refused, 4 the receiver
/// or a connection vanished, or nothing of a flow arrived (what was measured is kept), 98 and 99 a gate of the
/// experiment file failed by the log of this side (98: only such on the fidelity), 129, 130 and 143 ended by SIGHUP,
/// SIGINT and SIGTERM (after the summary).
#[derive(Debug, Parser)]
#[command(name = "itg-send", version, long_version = itg_cli::version!(), args_conflicts_with_subcommands = true)]
#[command(arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    single: SingleArgs,
    #[command(flatten)]
    words: WordArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Send the flows of an experiment file
    Run(Box<RunArgs>),
    /// Measure what this host can do: wake-ups, clocks, sockets, rates; one minute of loopback traffic
    Doctor(doctor::DoctorArgs),
}

/// Protocol, timing, logs and output, wherever the flows come from.
#[derive(Debug, Args)]
struct HowArgs {
    /// Speak the protocol of D-ITG 2.8.1, to its ITGRecv or to itg-recv
    #[arg(long, help_heading = "D-ITG")]
    classic: bool,
    #[command(flatten)]
    auth: AuthArgs,
    #[command(flatten)]
    peer: PeerArgs,
    #[command(flatten)]
    pacing: PacingArgs,
    #[command(flatten)]
    logs: SendLogArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Args)]
struct SingleArgs {
    /// The receiver: HOST, HOST:PORT, [V6]:PORT or V6%ZONE [default port: 9000]
    #[arg(value_name = "HOST[:PORT]")]
    host: Option<String>,
    #[command(flatten)]
    ways: WayArgs,
    #[command(flatten)]
    flow: FlowArgs,
    /// Run seed [default: drawn and printed]
    #[arg(long, value_name = "N")]
    seed: Option<Seed>,
    #[command(flatten)]
    how: HowArgs,
}

#[derive(Debug, Args)]
struct RunArgs {
    #[command(flatten)]
    load: LoadArgs,
    /// Send the flows of this node [default: of the nodes whose addresses this host has]
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    #[command(flatten)]
    how: HowArgs,
}

const HELP: Help = Help {
    examples: &[
        "itg-send 10.0.0.3 --rate 10M --duration 20s",
        "itg-send 10.0.0.3 --idt 'exp(1ms)' --size 'uniform(64,1400)' --seed 42 --log send.itg",
        "itg-send 10.0.0.3 --proto tcp --rate max --interval 1s",
        "itg-send 10.0.0.3 --reverse --rate 10M",
        "itg-send 10.0.0.3 --under-load",
        "itg-send run experiment.toml",
    ],
};

/// The program's command line, for man pages and completions.
#[must_use]
pub fn command() -> clap::Command {
    itg_cli::command::<Cli>(Some(&HELP))
}

/// Runs the program with the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    let cli = itg_cli::parse::<Cli>(Some(&HELP));
    cli.words.start();
    finish("itg-send", run(cli))
}

fn run(cli: Cli) -> Result<ExitCode> {
    let request = match cli.command {
        Some(Command::Run(args)) => from_file(*args)?,
        Some(Command::Doctor(args)) => return doctor::run(&args, cli.words),
        None => from_flags(cli.single)?,
    };
    let words = cli.words;
    if !words.quiet {
        announce(&request.plan, words, |flow| request.receiver(flow));
        if let Some(notice) = &request.notice {
            say(format_args!("itg-send: {notice}"));
        }
    }
    check_words(&request)?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(async {
        let signals = Signals::watch()?;
        let mut settings = BTreeMap::new();
        settings.insert("plan".to_owned(), request.plan.hash_text());
        settings.extend(request.logs.own.settings());
        settings.extend(request.peer.settings());
        if let Some(path) = &request.logs.promise {
            settings.extend(promised(path)?);
        }
        let id = draw_run();
        let code = if request.classic {
            to_ditg(&request, settings, id, words, &signals).await
        } else if request.exchange {
            ways::exchange(request, settings, id, words, &signals).await
        } else {
            to_itg(request, settings, id, words, &signals).await
        };
        Ok(ExitCode::from(code?))
    })
}

/// Sends to D-ITG's receiver; the exit code.
async fn to_ditg(
    request: &Request,
    settings: BTreeMap<String, String>,
    id: String,
    words: WordArgs,
    signals: &Signals,
) -> Result<u8> {
    let (code, log) = classic::send(request, settings, id, words.quiet, signals).await?;
    let file = own_log(&request.logs, log.as_ref());
    let file = file.filter(|_| code == 0 && !request.gates.list.is_empty());
    let Some(file) = file else { return Ok(code) };
    let own = own_report(&file, &request.gates)?;
    let name = file.display().to_string();
    let gate = own.and_then(|own| judge(&request.gates, &request.origin, (&name, &own), words));
    Ok(gate.unwrap_or(0))
}

/// Sends to our receivers; the exit code.
async fn to_itg(
    request: Request,
    settings: BTreeMap<String, String>,
    id: String,
    words: WordArgs,
    signals: &Signals,
) -> Result<u8> {
    let program = Program::started("itg-send", env!("CARGO_PKG_VERSION"));
    let metrics = SenderMetrics::start(&request.output.metrics, program, words.quiet).await?;
    let sending = Sending {
        start: Start::Soon,
        plan: &request.plan,
        program: ("itg-send", env!("CARGO_PKG_VERSION")),
        pacing: request.pacing,
        log: request.logs.own.target(&id, Role::Sender)?,
        log_limits: request.logs.own.limits()?,
        run: id.clone(),
        recv_log: request.logs.recv_log(),
        packet_secret: request.packet_secret.clone(),
        giving_way: true,
        peer_timeout_ns: Some(request.peer.timeout_ns()),
        progress: !words.quiet,
        interval: request.output.lines(),
        settings,
    };
    let receiver = |flow: &PlannedFlow| request.receiver(flow);
    let result = send_plan_observed(sending, receiver, signals, |lives| {
        if let Some(metrics) = &metrics {
            let at = |to: &str| request.receivers.get(to).copied();
            metrics.begin((&request.plan, &id), lives, at);
        }
    });
    let result = result.await?;
    let file = own_log(&request.logs, result.outcome.log.as_ref());
    let own = file.as_deref().map_or(Ok(None), |file| own_report(file, &request.gates));
    // A log that cannot be read has been complained of; without gates nothing depends on it.
    let own = if request.gates.list.is_empty() { own.unwrap_or_default() } else { own? };
    let outcome = &result.outcome;
    let report = sent(&request.plan, &id, outcome, own.as_ref());
    if request.output.json {
        print(&(report.to_json() + "\n"))?;
    } else {
        print(&result_text(&report, &failures(outcome), words))?;
    }
    if words.verbose > 0 && !request.output.json {
        print(&account(&request.plan, outcome))?;
    }
    failures(outcome).iter().for_each(|told| say(format_args!("itg-send: {told}")));
    let closed = closed_ports(&request.plan, outcome);
    closed.iter().for_each(|told| say(format_args!("itg-send: {told}")));
    tell_of_logs(outcome);
    if let Some(metrics) = metrics {
        let ended_ns = metrics.end(outcome, &report);
        metrics.stay(ended_ns, signals).await;
    }
    // A run that failed by itself says so first.
    if result.code != 0 {
        return Ok(result.code);
    }
    let gate = file.zip(own).and_then(|(file, own)| {
        judge(&request.gates, &request.origin, (&file.display().to_string(), &own), words)
    });
    Ok(gate.unwrap_or(0))
}

/// Refuses options that exclude each other.
fn check_words(request: &Request) -> Result<()> {
    if !request.classic && request.logs.recv_log.is_some() && request.logs.recv_log_server.is_some()
    {
        return Err(refuse("--recv-log and --recv-log-server exclude each other: leave one out"));
    }
    if request.classic && (request.output.json || request.output.interval.interval.is_some()) {
        return Err(refuse("--classic has neither --json nor --interval: leave them out"));
    }
    if request.classic && request.peer.is_given() {
        return Err(refuse(
            "--peer-timeout is not for D-ITG's protocol: leave it out with --classic",
        ));
    }
    if (request.classic || request.exchange) && request.output.metrics.is_given() {
        return Err(refuse(
            "--metrics tells of ITG's flows that are sent from here: leave it out with --classic, --reverse, --bidir \
             and --under-load",
        ));
    }
    let pacing = &request.pacing;
    let kept = pacing.level == Some(Level::Txtime) || pacing.tx_stamps.is_some();
    if request.classic && (kept || pacing.sockets.is_some()) {
        return Err(refuse(
            "--classic has neither --pacing txtime, --tx-stamps nor --sockets: leave them out",
        ));
    }
    Ok(())
}

/// Failures of sessions, in words, each once.
pub(crate) fn failures(outcome: &SendOutcome) -> Vec<String> {
    let sentence = |(receiver, error): &(SocketAddr, SessionError)| {
        // D-ITG's receiver hangs up on what it does not understand.
        let hint = match error.phase {
            Phase::Greet => "; is it a receiver of D-ITG? Then add --classic",
            _ => "",
        };
        format!("receiver {receiver}: {error}{hint}")
    };
    outcome.failures.iter().map(sentence).collect()
}

/// Ports to open for flows of which nothing arrived.
pub(crate) fn closed_ports(plan: &Plan, outcome: &SendOutcome) -> Vec<String> {
    let protos: BTreeMap<u32, Proto> =
        plan.flows.iter().map(|p| (p.flow.spec().id, p.flow.spec().proto)).collect();
    unreached(outcome.flows.iter().filter(|flow| flow.is_unreached()).filter_map(|flow| {
        Some(Unreached { flow: flow.flow, proto: *protos.get(&flow.flow)?, to: flow.path?.1 })
    }))
}

/// Says which logs there are.
pub(crate) fn tell_of_logs(outcome: &SendOutcome) {
    let own = outcome.log.iter().map(|log| (log.to_string(), log.lost_records, log.error.as_ref()));
    let remote = outcome.remote_logs.iter().map(|(receiver, log)| {
        let (file, receiver) = (from_peer(&log.file), receiver.ip());
        let words = format!("log {file} on {receiver}: {} records", log.records);
        (words, log.lost_records, log.error.as_ref())
    });
    for (words, lost, error) in own.chain(remote) {
        say(words);
        if let Some(error) = error {
            say(format_args!("itg-send: {} ({lost} records lost)", from_peer(error)));
        }
    }
}

/// The file with the log of this run, if it goes to one that has begun: until then there may be an older log.
pub(crate) fn own_log(logs: &SendLogArgs, log: Option<&LogOutcome>) -> Option<PathBuf> {
    logs.own.file()?;
    log.filter(|log| log.begun).map(|log| PathBuf::from(&log.place))
}

/// The report of the log of this side; `None` of one that takes long to read when no gate asks for it.
pub(crate) fn own_report(log: &Path, gates: &Gates) -> Result<Option<Report>> {
    let name = log.display().to_string();
    let quickly = |kind: fs::Metadata| kind.is_file() && kind.len() <= QUICKLY_READ;
    if gates.list.is_empty() && !fs::metadata(log).is_ok_and(quickly) {
        return Ok(None);
    }
    let bytes = fs::read(log).with_context(|| format!("log {name}"))?;
    let mut analysis = Analysis::new(Options::default());
    analysis.add_log(&bytes, &name)?;
    Ok(Some(analysis.finish()))
}

/// Judges the gates by the log of this side. One that needs the receiver's log does not fail here, but is
/// named.
fn judge(gates: &Gates, origin: &str, log: (&str, &Report), words: WordArgs) -> Option<u8> {
    if gates.list.is_empty() {
        return None;
    }
    let (name, report) = log;
    let lenient = Gates { allow_unknown: true, ..gates.clone() };
    let judged = lenient.judge(report, "itg-send", words.quiet);
    let unknown = |outcome: &&Outcome| matches!(outcome.judgement, Judgement::Unknown { .. });
    let open: Vec<String> =
        judged.outcomes.iter().filter(unknown).map(|outcome| outcome.gate.to_string()).collect();
    if !open.is_empty() {
        say(format_args!(
            "itg-send: the log of this side does not tell about `{}`: judge with both logs, \
             `itg-decode {name} RECEIVER-LOG --gates {origin}`",
            open.join("`, `")
        ));
    }
    judged.code
}

/// Limits of packet sizes, where they are not ITG's own.
fn sizes(classic: bool) -> Option<fn(Proto) -> RangeInclusive<u32>> {
    classic.then_some(carried_sizes)
}

/// Refuses options that flows of the other side do not have.
fn check_ways(args: &SingleArgs) -> Result<()> {
    if args.ways.is_plain() {
        return Ok(());
    }
    let (how, words) = (&args.how, args.how.pacing.words());
    for (given, what) in [
        (how.classic, "--classic"),
        (how.auth.is_given(), "--auth"),
        (how.logs.recv_log.is_some(), "--recv-log"),
        (how.logs.recv_log_server.is_some(), "--recv-log-server"),
        (args.ways.reverse && how.logs.promise.is_some(), "--promise"),
    ] {
        if given {
            return Err(refuse(format!(
                "{what} is for flows that are all sent from here: leave it out with --reverse, --bidir and --under-load"
            )));
        }
    }
    match words.first().filter(|_| args.ways.reverse) {
        Some(word) => Err(refuse(format!(
            "{word} is about this host, and with --reverse the other one sends: leave it out"
        ))),
        None => Ok(()),
    }
}

/// The address of a receiver; a file of that name tells that `run` is missing.
fn receiver_at(host: &str) -> Result<SocketAddr> {
    let is_file = Path::new(host).is_file();
    let run = || refuse(format!("`{host}` is a file here: did you mean `itg-send run {host}`?"));
    if is_file && host.ends_with(".toml") {
        return Err(run());
    }
    itg_socket::resolve(host, CONTROL_PORT)
        .map_err(|error| if is_file { run() } else { refuse(error) })
}

fn from_flags(args: SingleArgs) -> Result<Request> {
    let Some(host) = &args.host else {
        return Err(refuse(
            "name a receiver, as in `itg-send 10.0.0.3`, or an experiment with `run FILE`",
        ));
    };
    let receiver = receiver_at(host)?;
    check_ways(&args)?;
    let ways = args.ways;
    let mut entry = args.flow.entry();
    entry.to = Some(host.clone());
    if entry.duration.is_none() && entry.packets.is_none() && entry.bytes.is_none() {
        entry.duration = Some(TimeSpan(DEFAULT_DURATION_NS));
    }
    let name = "command line".to_owned();
    let (flows, back): (Vec<_>, Vec<_>) = ways.entries(entry)?.into_iter().unzip();
    let counts: Vec<_> = flows.iter().map(|flow| flow.count.unwrap_or(1)).collect();
    let experiment = Experiment { schema: 1, name, flows, ..Experiment::default() };
    let seed = args.seed.map_or_else(draw_seed, |seed| seed.0);
    let mut files =
        |name: &str| read_text(name).map_err(|error| format!("cannot read `{name}`: {error}"));
    let inputs = PlanInputs { sizes: sizes(args.how.classic), ..PlanInputs::new(seed, &mut files) };
    let plan = Plan::resolve(&experiment, inputs).map_err(refuse)?;
    let receivers = plan.flows.iter().map(|flow| (flow.to.clone(), receiver)).collect();
    // Flows are numbered in the order of their entries.
    let back = counts.into_iter().zip(back);
    let back = back.flat_map(|(count, back)| std::iter::repeat_n(back, count as usize));
    let numbered = plan.flows.iter().map(|flow| flow.flow.spec().id).zip(back);
    let ours = numbered.filter(|(_, back)| !back).map(|(id, _)| id).collect();
    let HowArgs { classic, auth, peer, pacing, logs, output } = args.how;
    let (gates, origin) = (Gates::default(), String::new());
    Ok(Request {
        classic,
        exchange: !ways.is_plain(),
        plan,
        receivers,
        ours,
        notice: None,
        packet_secret: auth.secret()?,
        peer,
        pacing: pacing.options(&PacingEntry::default()),
        logs,
        output,
        gates,
        origin,
    })
}

fn from_file(args: RunArgs) -> Result<Request> {
    let loaded = load_within(&args.load, sizes(args.how.classic))?;
    loaded.plan.check_ends().map_err(refuse)?;
    let mut gates = Gates::default();
    gates.add(&loaded.experiment, &loaded.origin)?;
    gates.check(&loaded.plan)?;
    if !gates.list.is_empty() && args.how.logs.own.file().is_none() {
        let file = &loaded.origin;
        say(format_args!(
            "itg-send: the gates of {file} are not judged without a log: add --log FILE, or later \
             `itg-decode LOG… --gates {file}`"
        ));
    }
    let nodes = &loaded.experiment.nodes;
    let log_server = loaded.experiment.log.url(nodes);
    let nodes::Ours { flows: ours, notice } = nodes::ours(&loaded, args.node.as_deref())?;
    let mut receivers = BTreeMap::new();
    for flow in loaded.plan.flows.iter().filter(|flow| ours.contains(&flow.flow.spec().id)) {
        let address = nodes.get(&flow.to).map_or("127.0.0.1", |node| node.address.as_str());
        let receiver = itg_socket::resolve(address, CONTROL_PORT).map_err(refuse)?;
        receivers.insert(flow.to.clone(), receiver);
    }
    let HowArgs { classic, auth, peer, pacing, mut logs, output } = args.how;
    let pacing = pacing.options(&loaded.experiment.pacing);
    let (plan, origin) = (loaded.plan, loaded.origin);
    if let Some(url) = log_server {
        logs.own.or_server(&url);
        if !classic && logs.recv_log.is_none() {
            logs.recv_log_server.get_or_insert(url);
        }
    }
    Ok(Request {
        classic,
        exchange: false,
        plan,
        receivers,
        ours,
        notice,
        packet_secret: auth.secret()?,
        peer,
        pacing,
        logs,
        output,
        gates,
        origin,
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_consistent() {
        let command = super::command();
        let lines = command.clone().term_width(100).render_help().to_string().lines().count();
        assert!(lines <= 48, "-h fits a screen: {lines} lines");
        command.debug_assert();
    }
}
