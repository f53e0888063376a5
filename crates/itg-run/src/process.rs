//! `itg-cluster process`: processes made of layers on real networks, one on each host.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Args;
use itg_cli::{Failure, Signals, WordArgs, refuse, say};
use itg_core::streams::fnv1a;
use itg_experiment::{Seed, TimeSpan};
use itg_mesh::{
    Ended, Listener, MasterSetup, Meet, Node, PROCESS_PORT, Report, ReturnSetup, SlaveSetup,
    StartError, Watch, come_back, start_master, start_slave,
};
use itg_process::bootstrap::{Application, HostFacts, Require};
use itg_process::{Config, Event, Registry, RuntimeEvent, StopReason};

use crate::judge;
use crate::parts::Parts;
use crate::ticket;
use crate::trace::Trace;

/// Time between two looks for signals.
const LOOK: Duration = Duration::from_millis(100);
/// Time that a started process on this host may take to end after the master has.
const LAST: Duration = Duration::from_secs(10);

/// Arguments of `process`.
#[derive(Debug, Args)]
pub struct ProcessArgs {
    /// Configuration of processes, layers and networks (TOML): this is process 0
    #[arg(required_unless_present_any = ["join", "wait", "back"])]
    pub file: Option<PathBuf>,
    /// Take part in the run of this host [port: 9010]
    #[arg(long, value_name = "HOST[:PORT]", conflicts_with = "file")]
    pub join: Option<String>,
    /// Take part in the run of the master that calls here [port: 9010]
    #[arg(long, value_name = "ADDR[:PORT]", conflicts_with_all = ["file", "join"])]
    pub wait: Option<String>,
    /// Address that the others call when the configuration names no hosts [port: 9010]
    #[arg(long, value_name = "ADDR[:PORT]", requires = "file")]
    pub listen: Option<String>,
    /// Start all processes on this host
    #[arg(long, requires = "file", conflicts_with = "listen")]
    pub local: bool,
    /// One process on each rank of an MPI job, with MPI for all networks: mpirun -n N itg-cluster process
    /// FILE --mpi
    #[cfg(feature = "mpi")]
    #[arg(long, requires = "file", conflicts_with_all = ["listen", "local", "network", "require"])]
    pub mpi: bool,
    /// Kind of all networks instead of those of the file: tcp, unix or udp
    #[arg(long, value_name = "KIND", requires = "file")]
    pub network: Option<String>,
    /// Seed of all random streams [default: the file's, or drawn and printed]
    #[arg(long, value_name = "N", requires = "file")]
    pub seed: Option<Seed>,
    /// Stop all processes after this time
    #[arg(long, value_name = "T", requires = "file")]
    pub until: Option<TimeSpan>,
    /// Go on without some, with at least N processes; the others count as failed
    #[arg(long, value_name = "N", requires = "file")]
    pub require: Option<u32>,
    /// Time for each step of the start
    #[arg(long, value_name = "T", default_value = "10s")]
    pub step_timeout: TimeSpan,
    /// Time to try to meet process 0
    #[arg(long, value_name = "T", default_value = "60s", conflicts_with = "file")]
    pub patience: TimeSpan,
    /// Port on which other processes reach this one, TCP and UDP [default: any]
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub port: u16,
    /// Label of the failure domain of this host
    #[arg(long, value_name = "NAME", default_value = "")]
    pub site: String,
    /// Print every event of a layer of this process
    #[arg(long)]
    pub events: bool,
    /// Write every event of a layer of this process, with --local and --mpi of all, to this file, one JSON object a
    /// line; with --local the checkers of the file judge it in the end
    #[arg(long, value_name = "NDJSON")]
    pub trace: Option<PathBuf>,
    /// Write every message that is sent or delivered to the trace, too
    #[arg(long, requires = "trace")]
    pub messages: bool,
    /// Leave what is in the trace
    #[arg(long, hide = true, requires = "trace")]
    pub append: bool,
    /// Write what lets this process return to the run when it has gone
    #[arg(long, value_name = "TICKET")]
    pub ticket: Option<PathBuf>,
    /// Return to the run of this ticket, as the next incarnation of its process; the ticket is written again
    #[arg(long = "return", value_name = "TICKET", conflicts_with_all = ["file", "join", "wait"])]
    pub back: Option<PathBuf>,
}

/// Starts a process, waits until it stops and prints what it has counted.
///
/// # Errors
/// The request makes no sense; the processes do not start, or fail; a checker objects.
pub fn run(args: &ProcessArgs, parts: &Parts, words: WordArgs) -> Result<ExitCode> {
    let registry = match args.messages {
        true => parts.layers.clone().tracing_messages(),
        false => parts.layers.clone(),
    };
    #[cfg(feature = "mpi")]
    if let Some(file) = args.file.as_ref().filter(|_| args.mpi) {
        return crate::mpi::run_process(file, args, &registry, words);
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let signals = runtime.block_on(async { Signals::watch() })?;
    let trace = args.trace.as_deref().map(|path| match args.append {
        true => Trace::append(path),
        false => Trace::create(path),
    });
    let trace = trace.transpose()?.map(|trace| Arc::new(Mutex::new(trace)));
    let watch = Some(watch(args.events, trace.clone()));
    let build = build();
    let (started, children) = match (&args.file, &args.back) {
        (Some(file), _) => master(args, file, &registry, (build, watch), words)?,
        (None, Some(ticket)) => {
            (back(args, ticket, &registry, (build, watch))?, Children::default())
        }
        (None, None) => (slave(args, &registry, (build, watch), words)?, Children::default()),
    };
    let node = started.map_err(failed)?;
    let ticket = node.ticket();
    if let (Some(path), Some(own)) = (&args.ticket, &ticket)
        && args.back.as_ref() != Some(path)
    {
        ticket::write(path, own)
            .with_context(|| format!("cannot write ticket {}", path.display()))?;
    }
    for slot in node.missing() {
        say(format_args!("process {slot} did not come: it counts as failed"));
    }
    if words.verbose > 0 {
        say("all processes run");
    }
    let deadline = args.until.map(|until| Instant::now() + Duration::from_nanos(until.0));
    let mut asked = false;
    while node.wait(LOOK).is_none() {
        let over = deadline.is_some_and(|deadline| Instant::now() >= deadline);
        if !asked && (over || signals.stop.borrow().is_some()) {
            asked = true;
            node.handle().stop(StopReason::Interrupted);
        }
    }
    let ended = node.finish();
    if let (Some(trace), Some(why)) = (&trace, ended.reason) {
        written(trace).end(why);
    }
    children.finish()?;
    itg_cli::print(&summary(&ended))?;
    if let Some(file) = &args.file
        && !judge::read_config(file)?.checkers.is_empty()
    {
        match &args.trace {
            Some(trace) if args.local => {
                judge::judge(parts, file, std::slice::from_ref(trace))?;
            }
            _ => say(judge::NOT_JUDGED),
        }
    }
    match (signals.exit_code(), ended.reason) {
        (Some(code), _) => Ok(ExitCode::from(code)),
        (None, Some(StopReason::Failed) | None) => {
            Err(Failure::new(1, "the application failed").into())
        }
        (None, Some(_)) => Ok(ExitCode::SUCCESS),
    }
}

/// Says what of a configuration is for simulations alone.
pub(crate) fn tell_left_out(config: &Config) {
    if !config.faults.is_empty() {
        let count = config.faults.len();
        say(format_args!("[[fault]]: {count} of the file left out, `simulate` puts them in"));
    }
}

/// Number of this build: all processes of a run must be of one version, others may know other layers.
#[must_use]
pub fn build() -> u64 {
    fnv1a(env!("CARGO_PKG_VERSION").as_bytes())
}

fn failed(error: StartError) -> anyhow::Error {
    let code = match error {
        StartError::Config(_) | StartError::Members(_) | StartError::Application(_) => 2,
        StartError::Bootstrap(_) => 3,
        StartError::Socket(_) | StartError::Ticket(_) | StartError::System(_) => 1,
    };
    Failure::new(code, error).into()
}

/// The trace, whoever writes to it.
fn written(trace: &Mutex<Trace>) -> MutexGuard<'_, Trace> {
    trace.lock().unwrap_or_else(|held| held.into_inner())
}

fn watch(print: bool, trace: Option<Arc<Mutex<Trace>>>) -> Watch {
    Box::new(move |report| {
        if let Report::Event { event, .. } = &report {
            tell_undeclared(event);
        }
        if let (true, Report::Event { at, event, .. }) = (print, &report) {
            // A reader that has gone does not stop the processes.
            itg_cli::print(&format!("{at} {} {:?}\n", event.name, event.values))
                .unwrap_or_default();
        }
        if let Some(trace) = &trace {
            written(trace).report(&report);
        }
    })
}

/// Says which messages are dropped as no layer declares their type.
pub(crate) fn tell_undeclared(event: &Event) {
    if let Some(RuntimeEvent::UndeclaredType { ty, from }) = event.decode() {
        say(format_args!(
            "messages of type {ty} (the first one from process {from}) are dropped: no layer declares this type \
             (`Layer::types`; those of applications are below 1000)"
        ));
    }
}

/// Returns to the run of a ticket.
fn back(
    args: &ProcessArgs,
    ticket: &Path,
    registry: &Registry,
    (build, watch): (u64, Option<Watch>),
) -> Result<Result<Node, StartError>> {
    let origin = ticket.display();
    let (mut kept, ticket) = ticket::TicketFile::open(ticket)?;
    let mut setup = ReturnSetup::new(registry, ticket);
    setup.patience = Duration::from_nanos(args.patience.0);
    setup.port = args.port;
    setup.step_timeout = args.step_timeout.duration();
    setup.build = build;
    setup.watch = watch;
    setup.persist = Some(Box::new(|ticket| kept.advance(ticket)));
    let started = come_back(setup);
    if let Some(own) = started.as_ref().ok().and_then(Node::ticket) {
        // Where the others, and this process, are reached now.
        kept.advance(&own).with_context(|| format!("cannot write ticket {origin}"))?;
    }
    Ok(started)
}

fn address(text: &str) -> Result<SocketAddr> {
    itg_socket::resolve(text, PROCESS_PORT).map_err(refuse)
}

type Start = (Result<Node, StartError>, Children);

fn master(
    args: &ProcessArgs,
    file: &PathBuf,
    registry: &Registry,
    (build, watch): (u64, Option<Watch>),
    words: WordArgs,
) -> Result<Start> {
    let origin = file.display().to_string();
    let text = fs::read_to_string(file)
        .map_err(|error| refuse(format!("cannot read configuration `{origin}`: {error}")))?;
    let config = Config::parse(&text, &origin).map_err(refuse)?;
    let seed = args.seed.map(|seed| seed.0).or(config.seed).unwrap_or_else(itg_cli::draw_seed);
    let application = Application { origin, text, seed: seed.0, network: args.network.clone() };
    let listen = match (&args.listen, args.local) {
        (Some(text), _) => Some(address(text)?),
        (None, true) => Some(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0)),
        (None, false) => None,
    };
    let listener = listen.map(Listener::bind).transpose()?;
    if !words.quiet {
        say(format_args!("seed {seed}"));
        tell_left_out(&config);
        if let Some(listener) = listener.as_ref().filter(|_| !args.local) {
            say(format_args!("listening on {}", listener.address()));
        }
    }
    let mut children = Children::default();
    if let Some(listener) = listener.as_ref().filter(|_| args.local) {
        for _ in 1..config.processes {
            children.start(listener.address(), args)?;
        }
    }
    let mut setup = MasterSetup::new(&application, registry);
    setup.listener = listener;
    setup.port = args.port;
    setup.require = args.require.map_or(Require::All, Require::AtLeast);
    setup.step_timeout = args.step_timeout.duration();
    setup.build = build;
    setup.watch = watch;
    Ok((start_master(setup), children))
}

fn slave(
    args: &ProcessArgs,
    registry: &Registry,
    (build, watch): (u64, Option<Watch>),
    words: WordArgs,
) -> Result<Result<Node, StartError>> {
    let meet = match (&args.join, &args.wait) {
        (Some(host), _) => Meet::Call(host.clone()),
        (None, at) => {
            let listener = Listener::bind(address(at.as_deref().unwrap_or("0.0.0.0"))?)?;
            if !words.quiet {
                say(format_args!("listening on {}", listener.address()));
            }
            Meet::Wait(listener)
        }
    };
    let mut setup = SlaveSetup::new(registry, meet);
    setup.patience = Duration::from_nanos(args.patience.0);
    setup.port = args.port;
    setup.facts = HostFacts {
        host: itg_socket::host::name(),
        site: args.site.clone(),
        ..HostFacts::default()
    };
    setup.step_timeout = args.step_timeout.duration();
    setup.build = build;
    setup.watch = watch;
    Ok(start_slave(setup))
}

/// This program, to be started once more: under its name, since one file may go by several.
///
/// # Errors
/// A program whose file cannot be found.
pub fn this_program() -> Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("the path of this program")?);
    if let Some(name) = std::env::args_os().next() {
        command.arg0(name);
    }
    Ok(command)
}

/// Processes that this one has started; killed and reaped when dropped.
#[derive(Debug, Default)]
struct Children(Vec<Child>);

impl Children {
    fn start(&mut self, master: SocketAddr, args: &ProcessArgs) -> Result<()> {
        let step = itg_core::units::format_duration_ns(args.step_timeout.0);
        let mut command = this_program()?;
        command.arg("process").args(args.messages.then_some("--messages"));
        if let Some(trace) = &args.trace {
            command.arg("--append").arg("--trace").arg(trace);
        }
        let child = command
            .args(["--quiet", "--join", &master.to_string(), "--step-timeout", &step])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("starting a process")?;
        self.0.push(child);
        Ok(())
    }

    /// Waits for all of them.
    fn finish(mut self) -> Result<()> {
        let deadline = Instant::now() + LAST;
        for child in &mut self.0 {
            while child.try_wait()?.is_none() {
                if Instant::now() > deadline {
                    return Err(Failure::new(1, "a process did not stop: it is killed").into());
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        Ok(())
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Both fail only for one that has ended and been reaped.
            drop(child.kill());
            drop(child.wait());
        }
    }
}

fn summary(ended: &Ended) -> String {
    let reason = match ended.reason {
        Some(StopReason::Finished) => "finished",
        Some(StopReason::Interrupted) => "interrupted",
        Some(StopReason::Failed) | None => "failed",
    };
    let counters = &ended.counters;
    let mut text = format!(
        "{reason}: {} messages sent, {} delivered, {} refused, {} of no layer\n",
        counters.sent,
        counters.delivered,
        counters.refused,
        counters.unknown_type + counters.unclaimed
    );
    for (number, net) in &ended.networks {
        text += &format!(
            "network {number}: {} frames sent, {} received, {} refused, {} lost on purpose, {} not \
             sent, {} damaged, {} of strangers; {} connections, {} broken\n",
            net.sent,
            net.received,
            net.refused,
            net.lost,
            net.unsent,
            net.damaged,
            net.strangers,
            net.connections,
            net.broken
        );
    }
    text
}
