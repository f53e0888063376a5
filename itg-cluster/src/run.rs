//! `itg-cluster run FILE --local`: the whole experiment on this host, receiver and logs embedded,
//! ending in the report; `--sim`: in virtual time (see `sim.rs`); else over agents (see `cluster`). A file that
//! describes several runs: see `sweep`.

use std::collections::BTreeMap;
use std::fs;
use std::io::IsTerminal as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use itg_cli::{
    Asked, Failure, Gates, LoadArgs, Loaded, PacingArgs, Sending, SendingResult, Signals, WordArgs,
    account, announce, draw_run, refuse, say, send_plan_observed,
};
use itg_experiment::control::{Failover, Orphan};
use itg_experiment::{Manifest, Time};
use itg_net::{
    ClassicReceiving, LogLimits, LogTarget, Receiver, ReceiverOptions, ReceiverOutcome, Start,
};
use itg_report::{Around, FLOWS_DRAWN};
use itg_stats::{Analysis, Options, Report};
use tokio::sync::watch;

use crate::cluster::console::{self, Require, require};
use crate::cluster::{figures, watch as watching};
use crate::events::Events;
use crate::live::Live;
use crate::sim::Simulation;
use crate::sweep::SweepArgs;

/// Names of the files of a run, in its directory.
pub(crate) const SENDER_LOG: &str = "sender.itg";
pub(crate) const RECEIVER_LOG: &str = "receiver.itg";
pub(crate) const MANIFEST: &str = "manifest.json";

/// Arguments of `run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    /// All nodes on this host, receiver and log writer embedded
    #[arg(long)]
    local: bool,
    /// In virtual time, through the network that [network] of the file describes
    #[arg(long, conflicts_with = "local")]
    sim: bool,
    /// One flow on each rank of an MPI job: mpirun -n N itg-cluster run FILE --mpi, N being the number of
    /// flows, and one more for the log rank when [log] of the file says `server = "mpi"`
    #[cfg(feature = "mpi")]
    #[arg(long, conflicts_with_all = ["local", "sim", "keys"])]
    mpi: bool,
    /// New directory for logs, report and manifest [default: itg-out/NAME-DATE-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) pacing: PacingArgs,
    #[command(flatten)]
    pub(crate) sweep: SweepArgs,
    /// What happens, as it happens: one JSON object a line to this file; `-`: to stdout, instead of the report
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
    /// No live view, although stderr is a terminal
    #[arg(long)]
    no_live: bool,
    /// Over agents: directory of the cluster's keys
    #[arg(long, value_name = "DIR", conflicts_with_all = ["local", "sim"])]
    pub(crate) keys: Option<PathBuf>,
    /// Over agents: how many nodes must be there, `all` or a number; the flows of the others are moved
    #[arg(long, value_name = "all|N", default_value = "all", value_parser = require, requires = "keys")]
    pub(crate) require: Require,
    /// Over agents: what becomes of flows when this program is gone, or a node cannot reach the others
    #[arg(long, value_name = "WHAT", value_enum, default_value_t, requires = "keys")]
    pub(crate) orphan: OrphanArg,
    /// Over agents: what becomes of the flows of a node that is gone
    #[arg(long, value_name = "WHAT", value_enum, default_value_t, requires = "keys")]
    pub(crate) failover: FailoverArg,
    /// Over agents: how long a node may send without news from the others
    #[arg(long, value_name = "T", default_value = "2s", value_parser = lease, requires = "keys")]
    pub(crate) lease: Time,
}

impl RunArgs {
    /// Where results go, but for the directory.
    pub(crate) fn place(&self, words: WordArgs) -> Result<Place> {
        let live = !self.no_live && !words.quiet && std::io::stderr().is_terminal();
        let print = self.events.as_deref() != Some(Path::new("-"));
        let events = Events::to(self.events.as_deref(), self.sweep.resumes())?;
        Ok(Place { out: PathBuf::new(), print, events, live })
    }

    /// What decides how runs are carried out, beside the experiment: equal where these arguments are.
    pub(crate) fn ways(&self) -> String {
        format!(
            "{:?}, require {:?}, orphan {:?}, failover {:?}, lease {} ns",
            self.pacing, self.require, self.orphan, self.failover, self.lease.0
        )
    }

    /// Where the experiment takes place.
    pub(crate) const fn world(&self) -> &'static str {
        #[cfg(feature = "mpi")]
        if self.mpi {
            return "mpi";
        }
        match (self.sim, self.local) {
            (true, _) => "sim",
            (_, true) => "local",
            _ => "cluster",
        }
    }
}

/// The words for [`Orphan`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OrphanArg {
    /// They stop: when this program is gone, or at the end of the lease
    #[default]
    Stop,
    /// They stand still while the others cannot be reached, a minute at most: then their nodes leave the run; this
    /// program is not missed
    Pause,
    /// They go on to their end; after a partition, two nodes may send the same flow
    Finish,
}

impl From<OrphanArg> for Orphan {
    fn from(arg: OrphanArg) -> Self {
        match arg {
            OrphanArg::Stop => Self::Stop,
            OrphanArg::Pause => Self::Pause,
            OrphanArg::Finish => Self::Finish,
        }
    }
}

/// The words for [`Failover`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum FailoverArg {
    /// Another node sends them on
    #[default]
    Move,
    /// They wait until the node is back
    Wait,
}

impl From<FailoverArg> for Failover {
    fn from(arg: FailoverArg) -> Self {
        match arg {
            FailoverArg::Move => Self::Move,
            FailoverArg::Wait => Self::Wait,
        }
    }
}

fn lease(text: &str) -> Result<Time, String> {
    let time: Time = text.parse().map_err(|error: itg_experiment::ValueError| error.to_string())?;
    let range = 100_000_000..=60_000_000_000;
    if range.contains(&time.0) { Ok(time) } else { Err("expected 100ms to 60s".to_owned()) }
}

/// What carries out runs: this host, agents, the ranks of a job.
pub(crate) trait World {
    /// Whether a run can take place there, as far as that is known before it begins.
    fn check(&self, loaded: &Loaded) -> Result<()>;

    /// Carries out one run.
    fn carry_out(&self, loaded: &mut Loaded, place: &Place, words: WordArgs) -> Result<Done>;
}

/// Runs the experiment.
pub(crate) fn run(args: &RunArgs, words: WordArgs) -> Result<ExitCode> {
    if args.sim && args.events.is_some() {
        return Err(refuse(
            "--events tells what happens while it happens, by the clock of this host; with --sim time is virtual \
             and over in a moment: leave --events out, the logs and the report have all",
        ));
    }
    #[cfg(feature = "mpi")]
    if args.mpi {
        return crate::mpi::run(args, words);
    }
    run_in(args, args, words)
}

/// Carries out the run that the file describes, or all of them.
pub(crate) fn run_in(world: &dyn World, args: &RunArgs, words: WordArgs) -> Result<ExitCode> {
    let mut loaded = match itg_cli::load_any(&args.load)? {
        Asked::One(loaded) => loaded,
        Asked::Sweep(sweep, text) => return crate::sweep::run(world, args, &sweep, &text, words),
    };
    if args.sweep.any() {
        return Err(refuse("--resume and its like are for files with [matrix] or [sweep]"));
    }
    let out = directory(args, &loaded.plan.name, jiff::Timestamp::now());
    world.check(&loaded)?;
    let place = Place { out, ..args.place(words)? };
    let done = world.carry_out(&mut loaded, &place, words)?;
    Ok(ExitCode::from(done.code))
}

/// Where the results of a run go.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The directory of the run.
    pub(crate) out: PathBuf,
    /// Whether the report is printed, too.
    pub(crate) print: bool,
    /// Who is told what happens.
    pub(crate) events: Events,
    /// Whether it is shown on a terminal.
    pub(crate) live: bool,
}

/// A run that has come to its end.
#[derive(Debug)]
pub(crate) struct Done {
    /// The exit code that it asks for.
    pub(crate) code: u8,
    /// What was measured.
    pub(crate) report: Report,
}

/// The world that the command line names: on this host, in virtual time, or over agents.
impl World for RunArgs {
    fn check(&self, loaded: &Loaded) -> Result<()> {
        loaded.plan.check_ends().map_err(refuse)
    }

    fn carry_out(&self, loaded: &mut Loaded, place: &Place, words: WordArgs) -> Result<Done> {
        match self.world() {
            "sim" => simulated(loaded, place, words),
            "cluster" => console::run(self, loaded, place, words),
            _ => locally(self, loaded, place, words),
        }
    }
}

/// Runs the experiment on this host.
fn locally(args: &RunArgs, loaded: &Loaded, place: &Place, words: WordArgs) -> Result<Done> {
    let started = jiff::Timestamp::now();
    let out = &place.out;
    let gates = gates(loaded)?;
    prepare(out)?;
    if !words.quiet {
        announce(&loaded.plan);
    }
    let mut manifest = manifest(loaded, started, "local");
    write(&out.join(MANIFEST), &manifest.to_json())?;

    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let done = runtime.block_on(both_sides(loaded, place, args.pacing, words));
    drop(runtime);
    if let Err(error) = &done {
        place.events.end(Some(format!("{error:#}")));
    }
    let (sent, received) = done?;

    manifest = manifest.setting("exit_code", sent.code.to_string());
    write(&out.join(MANIFEST), &manifest.to_json())?;
    let report = decode(&[out.join(SENDER_LOG), out.join(RECEIVER_LOG)], &manifest)?;
    let gate = conclude(place, &report, &itg_stats::text::render(&report), &gates, words)?;
    for (_, error) in &sent.outcome.failures {
        say(format_args!("itg-cluster: {error}"));
    }
    if !words.quiet {
        say(account(&loaded.plan, &sent.outcome).trim_end());
        say(format_args!("logs, report and manifest are in {}", out.display()));
    }
    for log in sent.outcome.log.iter().chain(&received.log) {
        if let Some(error) = &log.error {
            let lost = log.lost_records;
            return Err(Failure::new(1, format!("{error} ({lost} records lost)")).into());
        }
    }
    // A run that failed by itself says so first.
    let code = gate.filter(|_| sent.code == 0).unwrap_or(sent.code);
    Ok(Done { code, report })
}

/// The manifest of a run that this host begins.
pub(crate) fn manifest(loaded: &Loaded, started: jiff::Timestamp, world: &str) -> Manifest {
    let unix_ns = u64::try_from(started.as_nanosecond()).unwrap_or(0);
    Manifest::new(&loaded.plan, &loaded.origin, &loaded.text, loaded.duration_ns)
        .started(unix_ns)
        .setting("host", itg_net::host::name())
        .setting("os", itg_net::host::os())
        .setting("world", world)
}

/// The gates of an experiment.
pub(crate) fn gates(loaded: &Loaded) -> Result<Gates> {
    let mut gates = Gates::default();
    gates.add(&loaded.experiment, &loaded.origin)?;
    Ok(gates)
}

/// Writes the report in all its forms, `text` being the one that is printed; what the gates make of it.
pub(crate) fn conclude(
    Place { out, print, .. }: &Place,
    report: &Report,
    text: &str,
    gates: &Gates,
    words: WordArgs,
) -> Result<Option<u8>> {
    write(&out.join("report.txt"), text)?;
    write(&out.join("report.json"), &(report.to_json() + "\n"))?;
    if *print {
        crate::print(text)?;
    }
    let judged = gates.judge(report, "itg-cluster", words.quiet);
    if let Some(plots) = &report.plots {
        let command = itg_report::command(std::env::args());
        let around = Around { plots, gates: &judged.outcomes, command: &command };
        write(&out.join("report.html"), &itg_report::page(report, &around))?;
    }
    Ok(judged.code)
}

/// The directory of a run.
pub(crate) fn directory(args: &RunArgs, name: &str, started: jiff::Timestamp) -> PathBuf {
    args.out.clone().unwrap_or_else(|| {
        let time = started.strftime("%Y%m%d-%H%M%S");
        Path::new("itg-out").join(format!("{}-{time}", file_name(name)))
    })
}

/// Runs the experiment in virtual time.
fn simulated(loaded: &mut Loaded, place: &Place, words: WordArgs) -> Result<Done> {
    let started = jiff::Timestamp::now();
    let out = &place.out;
    let gates = gates(loaded)?;
    let simulation = Simulation::new(loaded)?;
    let loaded = simulation.loaded();
    prepare(out)?;
    let unix_ns = u64::try_from(started.as_nanosecond()).unwrap_or(0);
    let manifest = Manifest::new(&loaded.plan, &loaded.origin, &loaded.text, loaded.duration_ns)
        .started(unix_ns)
        .setting("world", "sim")
        .setting("simulated", simulation.model.clone())
        .setting("exit_code", "0");
    write(&out.join(MANIFEST), &manifest.to_json())?;
    let model = simulation.model.clone();
    simulation.run(out, words)?;
    let report = decode(&[out.join(SENDER_LOG), out.join(RECEIVER_LOG)], &manifest)?;
    let text = format!("Simulated: {model}\n{}", itg_stats::text::render(&report));
    let gate = conclude(place, &report, &text, &gates, words)?;
    if !words.quiet {
        say(format_args!("logs, report and manifest are in {}", out.display()));
    }
    Ok(Done { code: gate.unwrap_or(0), report })
}

/// A receiver within this program, with its log in the directory of the run.
pub(crate) fn receiver(out: &Path, listen: SocketAddr) -> Result<Receiver> {
    Receiver::bind(receiver_options(out.join(RECEIVER_LOG), listen))
        .map_err(|error| Failure::new(1, error).into())
}

/// A receiver within this program: one thread, data on a port that the system chooses, all flows in one log.
pub(crate) fn receiver_options(log: PathBuf, listen: SocketAddr) -> ReceiverOptions {
    ReceiverOptions {
        shards: 1,
        busy_poll_us: None,
        receive_buffer: None,
        listen,
        data_port: 0,
        log: Some(LogTarget::File(log)),
        log_limits: LogLimits::default(),
        allow_log_servers: false,
        secret: None,
        log_dir: None,
        once: false,
        classic: ClassicReceiving::default(),
        program: "itg-cluster".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        settings: BTreeMap::new(),
    }
}

/// Sends and receives on this host.
async fn both_sides(
    loaded: &Loaded,
    place: &Place,
    pacing: PacingArgs,
    words: WordArgs,
) -> Result<(SendingResult, ReceiverOutcome)> {
    let signals = Signals::watch()?;
    let Place { out, events, .. } = place;
    let live = place.live.then(|| Live::start(events, signals.stop.clone())).flatten();
    events.begin(watching::begin(loaded, "local", Vec::new()));
    let listen = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
    let receiver = receiver(out, listen)?;
    let address = receiver.addresses().next().context("the receiver has no address")?;
    let (end, ended) = watch::channel(None);
    let receiving = tokio::spawn(receiver.serve(ended));

    let mut settings = BTreeMap::new();
    settings.insert("plan".to_owned(), loaded.plan.hash_text());
    let sending = Sending {
        start: Start::Soon,
        plan: &loaded.plan,
        program: ("itg-cluster", env!("CARGO_PKG_VERSION")),
        run: draw_run(),
        pacing: pacing.options(&loaded.experiment.pacing),
        log: Some(LogTarget::File(out.join(SENDER_LOG))),
        log_limits: LogLimits::default(),
        recv_log: None,
        progress: !words.quiet && live.is_none(),
        settings,
    };
    let (over, is_over) = tokio::sync::oneshot::channel();
    let mut following = None;
    let sent = send_plan_observed(
        sending,
        |_| Some(address),
        &signals,
        |lives| {
            let events = events.clone();
            let follow = figures::follow(lives, is_over, move |figures| events.statistics(figures));
            following = Some(tokio::spawn(follow));
        },
    )
    .await;
    over.send(()).unwrap_or_default();
    if let Some(following) = following {
        following.await.context("the figures stopped on a bug")?;
    }
    // The receiver ends by itself when nobody holds the other end any more.
    end.send(Some("the run is over".to_owned())).unwrap_or_default();
    let received = receiving.await.context("the receiver stopped on a bug")?;
    let sent = sent?;
    let logs = sent.outcome.log.iter().chain(&received.log).filter_map(|log| log.error.clone());
    let failures = sent.outcome.failures.iter().map(|(_, error)| error.to_string());
    let stopped = signals.stop.borrow().clone();
    events.end(why(stopped, logs.chain(failures), sent.code));
    drop(live);
    Ok((sent, received))
}

/// Why a run did not end well: it was stopped, one of these errors, or its exit code; none when it did.
pub(crate) fn why(
    stopped: Option<String>,
    mut errors: impl Iterator<Item = String>,
    code: u8,
) -> Option<String> {
    stopped.or_else(|| errors.next()).or_else(|| (code != 0).then(|| format!("exit code {code}")))
}

/// Decodes the logs of a run into its report.
pub(crate) fn decode(paths: &[PathBuf], manifest: &Manifest) -> Result<Report> {
    let mut logs = Vec::new();
    for path in paths {
        let bytes = fs::read(path).with_context(|| format!("log {}", path.display()))?;
        logs.push((path.display().to_string(), bytes));
    }
    let mut analysis = Analysis::new(Options { plots: Some(FLOWS_DRAWN), ..Options::default() });
    for (name, bytes) in &logs {
        analysis.add_log(bytes, name)?;
    }
    let mut report = analysis.finish();
    if let Ok(serde_json::Value::Object(facts)) = serde_json::from_str(&manifest.to_json()) {
        report.manifest.extend(facts);
    }
    Ok(report)
}

/// Creates the directory of a run; one that holds a run already is refused.
pub(crate) fn prepare(out: &Path) -> Result<()> {
    if out.join(MANIFEST).exists() {
        let out = out.display();
        return Err(refuse(format!("directory {out} holds a run already: choose another --out")));
    }
    fs::create_dir_all(out)
        .map_err(|error| Failure::new(1, format!("directory {}: {error}", out.display())).into())
}

pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// The name of an experiment as part of a file name.
pub(crate) fn file_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    name.chars().map(plain).take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::why;

    #[test]
    fn a_run_that_fails_says_why() {
        let text = |text: &str| Some(text.to_owned());
        for (stopped, errors, code, want) in [
            (None, &[][..], 0, None),
            (text("SIGINT"), &["a log"], 130, text("SIGINT")),
            (None, &["a log", "a flow"], 0, text("a log")),
            (None, &[], 4, text("exit code 4")),
        ] {
            let errors = errors.iter().map(|error| (*error).to_owned());
            assert_eq!(why(stopped, errors, code), want);
        }
    }
}
