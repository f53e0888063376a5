//! `itg-cluster run FILE` for a file that describes several runs: carries them out one after the other, and
//! compares them.
//!
//! The directory of a sweep holds `sweep.json` (the file, the seed, the world) and a directory for each run,
//! `CASE/N`, which is that of an ordinary run. When a run is done its directory gets `done.json`, last of all,
//! on the disk before the next one begins. A run whose traffic failed is set aside as `CASE/N-failed-K` and repeated,
//! a few times. What is run next follows from those files ([`itg_experiment::sweep`]), so that an interrupted sweep goes
//! on where it was.

pub(crate) mod check;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use itg_cli::{Failure, LoadArgs, Signals, WordArgs, draw_seed, load_case, refuse, say};
use itg_compare::sweep::{COMPARED, Run, Runs, Table};
use itg_core::seed::RunSeed;
use itg_core::streams::fnv1a;
use itg_core::units::format_duration_ns;
use itg_experiment::Manifest;
use itg_experiment::sweep::{Case, Done, Next, Sweep, run_seed};
use itg_socket::clock;
use itg_stats::fidelity::Verdict;
use itg_stats::gate::Figure;
use serde::{Deserialize, Serialize};

use crate::directory::{DONE, SWEEP, file_name, holds_nothing_else, write};
use crate::options::{ReportFormat, RunRequest};
use crate::steps::{carry_out, closed_ports, short_of_plan};
use crate::world::{Output, World};

/// Held while a sweep goes on.
const LOCK: &str = "sweep.lock";
/// Version of these files.
const SCHEMA: u32 = 2;
/// Behind the repetition in the name of a directory: a run whose traffic failed, and that was repeated.
const ASIDE: &str = "-failed-";
/// Repetitions of a run whose traffic fails, unless the command line has a number.
const REPEATED: u32 = 2;
/// Exit codes that gates ask for.
const GATES: [u8; 2] = [98, 99];

/// Settings of a sweep, as its directory keeps them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SweepFile {
    schema: u32,
    name: String,
    /// Name of the file.
    origin: String,
    /// Its text.
    experiment: String,
    seed: u64,
    /// `local`, `sim`, `cluster` or `mpi`.
    world: String,
    in_order: bool,
    /// True if runs whose traffic failed count in means and rules.
    #[serde(default)]
    with_failed: bool,
    duration_ns: Option<u64>,
    /// Options that decide how runs are carried out: [`ways`].
    ways: String,
    /// Version of the program.
    version: String,
}

/// Record of a run that is done: [`DONE`].
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Marker {
    schema: u32,
    case: String,
    repetition: u32,
    seed: u64,
    /// Hash of its plan.
    plan: String,
    /// FNV-1a of its file, which says more than the plan: the network, the gates.
    file: String,
    /// Options that decided how it was carried out: [`ways`].
    ways: String,
    /// 0, or what a gate asked for.
    exit_code: u8,
    elapsed_ns: u64,
    /// Verdict on its traffic; earlier versions did not keep it.
    verdict: Option<String>,
    figures: BTreeMap<String, Option<f64>>,
}

impl Marker {
    /// Returns true if the run's traffic was other than asked for.
    fn failed(&self) -> bool {
        self.verdict.as_deref() == Some(Verdict::Fail.name())
    }

    /// The run among those that are done.
    fn done(&self, with_failed: bool) -> Done {
        let left_out = self.failed() && !with_failed;
        Done { elapsed_ns: self.elapsed_ns, figures: self.figures.clone(), left_out }
    }
}

/// Difference of the record of a run that is done from the run's manifest, as a sentence; none when they agree.
pub(crate) fn contradicts(record: &[u8], manifest: &Manifest) -> Option<String> {
    let marker: Marker = match serde_json::from_slice(record) {
        Ok(marker) => marker,
        Err(error) => return Some(format!("not the record of a run that is done: {error}")),
    };
    let Marker { seed, plan, file, .. } = marker;
    let own_file = file_hash(&manifest.experiment);
    (seed != manifest.seed || plan != manifest.plan || file != own_file)
        .then(|| format!("of another run: seed {seed}, plan {plan}, file {file}"))
}

/// Options that decide how runs are carried out, as words of a command line: a sweep goes on only where they are equal.
fn ways(world: &dyn World, request: &RunRequest) -> String {
    [request.options.pacing.words(), world.options()].concat().join(" ")
}

/// End of a run of a sweep.
enum Ended {
    /// With a record.
    Done,
    /// Its traffic failed: it was set aside in this directory, and is to be repeated.
    Repeated(PathBuf),
    /// Without a record, with this exit code.
    Broken(u8),
}

/// A sweep, ready to go on.
struct Work<'a> {
    world: &'a dyn World,
    request: &'a RunRequest,
    sweep: &'a Sweep,
    seed: RunSeed,
    out: PathBuf,
    figures: Vec<Figure>,
    done: BTreeMap<(usize, u32), Done>,
    /// Records of these.
    records: BTreeMap<(usize, u32), Marker>,
    /// Runs that failed and were set aside: times that they took.
    set_aside: BTreeMap<(usize, u32), Vec<u64>>,
    words: WordArgs,
    /// Destination of the runs, but for their directories.
    output: Output,
}

/// The figures that a sweep compares: those of the file, or the usual ones; and those of its rule.
pub(crate) fn figures(sweep: &Sweep) -> Result<Vec<Figure>> {
    let asked = sweep.settings.compare.iter().map(String::as_str);
    let usual = COMPARED.into_iter().filter(|_| sweep.settings.compare.is_empty());
    let rule = sweep.until.iter().flat_map(|until| until.metrics());
    let mut figures: Vec<Figure> = Vec::new();
    for name in asked.chain(usual).chain(rule) {
        let figure = Figure::parse(name).map_err(|error| refuse(format!("[sweep]: {error}")))?;
        if !figures.iter().any(|known| known.name() == figure.name()) {
            figures.push(figure);
        }
    }
    Ok(figures)
}

/// Carries out a sweep.
pub(crate) fn run(
    world: &dyn World,
    request: &RunRequest,
    sweep: &Sweep,
    text: &str,
    words: WordArgs,
) -> Result<ExitCode> {
    let mut sweep = sweep.clone();
    sweep.settings.in_order |= request.options.sweep.in_order;
    let sweep = &sweep;
    let figures = figures(sweep)?;
    let out = request.options.output.directory(&sweep.name, jiff::Timestamp::now());
    let seed = request.load.seed.map(|seed| seed.0).or(sweep.seed);
    let ours = SweepFile {
        schema: SCHEMA,
        name: sweep.name.clone(),
        origin: request.load.file.display().to_string(),
        experiment: text.to_owned(),
        seed: seed.unwrap_or_else(draw_seed).0,
        world: world.name().to_owned(),
        in_order: sweep.settings.in_order,
        with_failed: request.options.sweep.with_failed,
        duration_ns: request.load.duration.map(|time| time.0),
        ways: ways(world, request),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    if request.options.gates.junit.is_some() {
        return Err(refuse(
            "--junit is for one run: a sweep has many, each with its report in its directory",
        ));
    }
    // All cases are good, or nothing is begun.
    for case in &sweep.cases {
        let loaded = load_case(&request.load, case, run_seed(RunSeed(ours.seed), case, 1))?;
        request.options.gates.with(&loaded)?.check(&loaded.plan)?;
        world.check(&loaded)?;
    }
    if !request.options.sweep.resume && !out.join(SWEEP).exists() {
        let own = [request.options.output.own_files(), vec![out.join(LOCK)]].concat();
        holds_nothing_else(&out, &own)?;
    }
    fs::create_dir_all(&out)
        .map_err(|error| Failure::new(1, format!("directory {}: {error}", out.display())))?;
    let lock = File::options().create(true).append(true).open(out.join(LOCK));
    let lock = lock.context("the lock of the sweep")?;
    if lock.try_lock().is_err() {
        return Err(refuse(format!("another program carries out the sweep in {}", out.display())));
    }
    let kept = begin(request, &out, ours, seed.is_some())?;
    let mut work = Work {
        world,
        request,
        sweep,
        seed: RunSeed(kept.seed),
        out,
        figures,
        done: BTreeMap::new(),
        records: BTreeMap::new(),
        set_aside: BTreeMap::new(),
        words,
        // The terminal shows which runs are done.
        output: Output {
            live: false,
            gates: request.options.gates.clone(),
            ..request.options.output.open(request.options.sweep.resume, words)?
        },
    };
    work.find_done()?;
    // Between two runs, too, a signal ends the sweep in order.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let signals = runtime.block_on(async { Signals::watch() })?;
    let ended = work.carry_out(&signals);
    let compared = work.compare();
    runtime.shutdown_timeout(Duration::from_millis(100));
    let code = ended?;
    compared?;
    Ok(ExitCode::from(code))
}

/// The sweep that its directory keeps, begun now or before.
fn begin(request: &RunRequest, out: &Path, ours: SweepFile, seed_given: bool) -> Result<SweepFile> {
    let path = out.join(SWEEP);
    let shown = out.display();
    let there = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            if request.options.sweep.resume {
                return Err(refuse(format!("there is no sweep in {shown} to go on with")));
            }
            keep(&path, &ours)?;
            return Ok(ours);
        }
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    if !request.options.sweep.resume {
        return Err(refuse(format!(
            "directory {shown} holds a sweep already: add --resume to go on with it, or choose another --out"
        )));
    }
    let before: SweepFile = serde_json::from_slice(&there).map_err(|error| {
        refuse(format!("{} is no sweep of this version: {error}", path.display()))
    })?;
    if before.schema != SCHEMA {
        return Err(refuse(format!(
            "{} has schema {}, not {SCHEMA}",
            path.display(),
            before.schema
        )));
    }
    if before.world != ours.world {
        return Err(refuse(format!(
            "the sweep in {shown} was begun in the world `{}`, this is `{}`: choose another --out",
            before.world, ours.world
        )));
    }
    if seed_given && before.seed != ours.seed && before.experiment == ours.experiment {
        return Err(refuse(format!(
            "the sweep in {shown} has the seed {}, not {}: choose another --out",
            before.seed, ours.seed
        )));
    }
    let seed = if seed_given { ours.seed } else { before.seed };
    let now = SweepFile { seed, origin: before.origin.clone(), ..ours };
    if before != now {
        let same_runs = SweepFile { with_failed: before.with_failed, ..now.clone() } == before;
        if !same_runs && !request.options.sweep.accept_change {
            return Err(refuse(format!(
                "the experiment, an argument (--duration, --in-order, --pacing and its like, --lease, --orphan, \
                 --failover, --require) or the version of the program has changed since the sweep in {shown} was begun: \
                 choose another --out, or add --accept-change (runs that the change does not touch are kept)"
            )));
        }
        keep(&path, &now)?;
    }
    Ok(now)
}

/// Writes a file in one step that lasts: complete or not there, also after a loss of power.
fn keep(path: &Path, what: &impl Serialize) -> Result<()> {
    let context = || format!("cannot write {}", path.display());
    let mut text = serde_json::to_vec_pretty(what).with_context(context)?;
    text.push(b'\n');
    let fresh = path.with_extension("new");
    let mut file = File::create(&fresh).with_context(context)?;
    file.write_all(&text).and_then(|()| file.sync_all()).with_context(context)?;
    fs::rename(&fresh, path).with_context(context)?;
    let dir = path.parent().map(File::open).transpose().with_context(context)?;
    dir.map_or(Ok(()), |dir| dir.sync_all()).with_context(context)
}

/// The directory of a case: its settings as far as a file name can hold them, and a hash of all.
fn case_dir(case: &Case) -> String {
    let label = if case.label.is_empty() { "runs" } else { case.label.as_str() };
    format!("{}-{:08x}", file_name(label), fnv1a(case.key.as_bytes()) >> 32)
}

fn file_hash(text: &str) -> String {
    format!("{:016x}", fnv1a(text.as_bytes()))
}

impl Work<'_> {
    fn dir(&self, case: usize, repetition: u32) -> PathBuf {
        self.out.join(case_dir(&self.sweep.cases[case])).join(repetition.to_string())
    }

    fn load(&self, case: usize, repetition: u32) -> Result<itg_cli::Loaded> {
        let case = &self.sweep.cases[case];
        let args: &LoadArgs = &self.request.load;
        load_case(args, case, run_seed(self.seed, case, repetition))
    }

    /// The runs that are done, and that the file still asks for; those that failed and are repeated.
    fn find_done(&mut self) -> Result<()> {
        let (_, most) = self.sweep.repetitions();
        for run in (0..self.sweep.cases.len()).flat_map(|case| (1..=most).map(move |n| (case, n))) {
            while let Some(marker) = self.record(&self.aside(run, self.repeats(run) + 1), run)? {
                self.set_aside.entry(run).or_default().push(marker.elapsed_ns);
            }
            if let Some(marker) = self.record(&self.dir(run.0, run.1), run)? {
                self.take(run, marker)?;
            }
        }
        Ok(())
    }

    /// The record of a run in a directory; none where there is none, or one of another experiment.
    fn record(&self, dir: &Path, (case, repetition): (usize, u32)) -> Result<Option<Marker>> {
        let path = dir.join(DONE);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        };
        let loaded = self.load(case, repetition)?;
        let same = |marker: &Marker| {
            marker.schema == SCHEMA
                && marker.verdict.is_some()
                && marker.seed == loaded.plan.seed.0
                && marker.plan == loaded.plan.hash_text()
                && marker.file == file_hash(&loaded.text)
                && marker.ways == ways(self.world, self.request)
                && self.figures.iter().all(|figure| marker.figures.contains_key(figure.name()))
        };
        match serde_json::from_slice::<Marker>(&bytes).ok().filter(same) {
            None if !self.request.options.sweep.accept_change => Err(refuse(format!(
                "{} is of another experiment: a file that it names, a profile or the program has changed; \
                 choose another --out, or add --accept-change to do such runs again",
                path.display()
            ))),
            known => Ok(known),
        }
    }

    /// Number of times that a run was repeated.
    fn repeats(&self, run: (usize, u32)) -> usize {
        self.set_aside.get(&run).map_or(0, Vec::len)
    }

    /// The directory of a run that was repeated; `number` counts them from 1.
    fn aside(&self, (case, repetition): (usize, u32), number: usize) -> PathBuf {
        self.dir(case, repetition).with_file_name(format!("{repetition}{ASIDE}{number}"))
    }

    /// A directory of the sweep, as messages and results name it.
    fn named(&self, dir: &Path) -> String {
        dir.strip_prefix(&self.out).unwrap_or(dir).display().to_string()
    }

    /// Takes a run as done; one whose traffic failed is set aside as long as it is to be repeated: its new directory.
    fn take(&mut self, run: (usize, u32), marker: Marker) -> Result<Option<PathBuf>> {
        let most = self.request.options.sweep.repeat_failed.unwrap_or(REPEATED);
        let repeats = self.repeats(run);
        if marker.failed() && !self.world.is_deterministic() && repeats < most as usize {
            let (dir, aside) = (self.dir(run.0, run.1), self.aside(run, repeats + 1));
            remove(&aside)?;
            fs::rename(&dir, &aside).with_context(|| aside.display().to_string())?;
            self.set_aside.entry(run).or_default().push(marker.elapsed_ns);
            return Ok(Some(aside));
        }
        self.done.insert(run, marker.done(self.request.options.sweep.with_failed));
        self.records.insert(run, marker);
        Ok(None)
    }

    /// Carries out what is left; the exit code of the sweep.
    fn carry_out(&mut self, signals: &Signals) -> Result<u8> {
        let (least, most) = self.sweep.repetitions();
        let cases = self.sweep.cases.len();
        self.say(format_args!(
            "sweep {}: {cases} cases, {} runs of each, seed {}; {} runs are done",
            self.sweep.name,
            if least == most { least.to_string() } else { format!("{least} to {most}") },
            self.seed,
            self.done.len(),
        ));
        loop {
            if let Some(code) = signals.exit_code() {
                self.say_how_to_go_on();
                return Ok(code);
            }
            let lost_ns = self.set_aside.values().flatten().copied().fold(0, u64::saturating_add);
            let (case, repetition) = match self.sweep.next(self.seed, &self.done, lost_ns) {
                Next::Run { case, repetition } => (case, repetition),
                Next::Finished => break,
                Next::OutOfTime => {
                    say(
                        "itg-cluster: the time of the sweep (max_time) is used up: not all runs are done",
                    );
                    break;
                }
            };
            let label = self.sweep.cases[case].label.clone();
            let named = format!("run {} ({label}, repetition {repetition})", self.done.len() + 1);
            match self.one(case, repetition).with_context(|| named.clone()) {
                Ok(Ended::Done) => self.tell_done(&named, (case, repetition)),
                Ok(Ended::Repeated(aside)) => say(format_args!(
                    "itg-cluster: {named}: its traffic FAILED (verdict `fail`): kept in {}, and repeated",
                    self.named(&aside)
                )),
                Ok(Ended::Broken(code)) => {
                    self.say_how_to_go_on();
                    if signals.exit_code().is_some() {
                        return Ok(code);
                    }
                    let text = format!("{named} failed with exit code {code}: the sweep ends here");
                    return Err(Failure::new(code, text).into());
                }
                Err(error) => {
                    self.say_how_to_go_on();
                    return Err(error);
                }
            }
        }
        // What a run says of itself comes first; gates of the fidelity alone are the milder failure.
        let codes = || self.records.values().map(|record| record.exit_code);
        let of_runs = codes().filter(|code| !GATES.contains(code)).max();
        Ok(of_runs.filter(|code| *code != 0).or_else(|| codes().max()).unwrap_or(0))
    }

    /// Says what a run that is done has found.
    fn tell_done(&self, named: &str, run: (usize, u32)) {
        let record = &self.records[&run];
        let figures = self.figures.iter().take(3).map(|figure| {
            let value = record.figures.get(figure.name()).copied().flatten();
            let value = value.map_or_else(|| "-".to_owned(), |value| figure.text(value));
            format!("{} {value}", figure.name())
        });
        let figures: Vec<_> = figures.collect();
        let gate = if GATES.contains(&record.exit_code) { "; a gate FAILED" } else { "" };
        let traffic = if record.failed() { "; its traffic FAILED (verdict `fail`)" } else { "" };
        self.say(format_args!("{named}: {}{gate}{traffic}", figures.join(", ")));
    }

    fn say(&self, line: std::fmt::Arguments<'_>) {
        if !self.words.quiet {
            say(line);
        }
    }

    fn say_how_to_go_on(&self) {
        say(format_args!(
            "itg-cluster: {} runs are done and kept; the same command with --out {} --resume goes on",
            self.done.len(),
            self.out.display()
        ));
    }

    /// Carries out one run.
    fn one(&mut self, case: usize, repetition: u32) -> Result<Ended> {
        let dir = self.dir(case, repetition);
        // What an interrupted run has left, or one that the file does not ask for any more.
        remove(&dir)?;
        let mut loaded = self.load(case, repetition)?;
        let (plan, file) = (loaded.plan.hash_text(), file_hash(&loaded.text));
        fs::create_dir_all(&dir).with_context(|| format!("directory {}", dir.display()))?;
        let seed = loaded.plan.seed;
        write(&dir.join("experiment.toml"), &with_seed(&loaded.text, seed))?;
        let began_ns = clock::monotonic_ns();
        let output = Output { dir: dir.clone(), print: false, ..self.output.clone() };
        // Each run has its own words only for users that want to hear more.
        let words = WordArgs { quiet: self.words.verbose == 0, ..self.words };
        let done = carry_out(self.world, &mut loaded, &output, words)?;
        let verdict = done.report.total.metrics.fidelity.verdict;
        // A run that did not send its plan has a report that says so.
        let told = verdict == Verdict::Fail
            || done.code == short_of_plan(&done.report)
            || !closed_ports(&done.report).is_empty();
        if !matches!((done.code, told), (0 | 98 | 99, _) | (1 | 4, true)) {
            return Ok(Ended::Broken(done.code));
        }
        let elapsed_ns = clock::monotonic_ns().saturating_sub(began_ns);
        let figures: BTreeMap<String, Option<f64>> =
            self.figures.iter().map(|f| (f.name().to_owned(), f.of(&done.report))).collect();
        let marker = Marker {
            schema: SCHEMA,
            case: self.sweep.cases[case].label.clone(),
            repetition,
            seed: seed.0,
            plan,
            file,
            ways: ways(self.world, self.request),
            exit_code: done.code,
            elapsed_ns,
            verdict: Some(verdict.name().to_owned()),
            figures,
        };
        keep(&dir.join(DONE), &marker)?;
        Ok(self.take((case, repetition), marker)?.map_or(Ended::Done, Ended::Repeated))
    }

    /// Compares what is done: printed as text, and kept in all forms.
    fn compare(&self) -> Result<()> {
        if self.done.is_empty() && self.set_aside.is_empty() {
            return Ok(());
        }
        let cases = self.sweep.cases.iter().enumerate().map(|(place, case)| {
            let all = (place, 0)..=(place, u32::MAX);
            let runs = self.records.range(all.clone()).map(|(run, record)| Run {
                dir: self.named(&self.dir(run.0, run.1)),
                failed: record.failed(),
                figures: record.figures.clone(),
            });
            let repeated = self.set_aside.range(all).flat_map(|(run, times)| {
                (1..=times.len()).map(|number| self.named(&self.aside(*run, number)))
            });
            Runs {
                case: case.label.clone(),
                values: case.values.clone(),
                runs: runs.collect(),
                repeated: repeated.collect(),
            }
        });
        let (cases, with_failed) = (cases.collect(), self.request.options.sweep.with_failed);
        let Sweep { name, variables, .. } = self.sweep;
        let table = Table::new(name, variables, &self.figures, cases, with_failed);
        let text = table.to_text();
        write(&self.out.join("comparison.txt"), &text)?;
        write(&self.out.join("comparison.csv"), &table.to_csv())?;
        write(&self.out.join("comparison.json"), &table.to_json())?;
        let command = itg_report::command(std::env::args());
        write(&self.out.join("comparison.html"), &itg_report::sweep_page(&table, &command))?;
        for (metric, chart) in itg_report::of_sweep(&table) {
            let path = self.out.join(format!("{}.svg", metric.replace('.', "-")));
            write(&path, &chart.file(&self.sweep.name))?;
        }
        if self.output.print {
            match self.request.options.gates.format {
                ReportFormat::Text => itg_cli::print(&text)?,
                ReportFormat::Json => itg_cli::print(&(table.to_json() + "\n"))?,
                ReportFormat::Markdown => itg_cli::print(&format!("```text\n{text}```\n"))?,
            }
        }
        let repeated = self.set_aside.values().flatten().copied();
        let times = self.done.values().map(|run| run.elapsed_ns).chain(repeated);
        let spent: u64 = times.fold(0, u64::saturating_add);
        self.say(format_args!(
            "{} runs in {}; the comparison and all runs are in {}",
            self.done.len(),
            format_duration_ns(spent / 1_000_000 * 1_000_000),
            self.out.display()
        ));
        Ok(())
    }
}

/// Removes a directory, if it is there.
fn remove(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", dir.display()))
        }
        _ => Ok(()),
    }
}

/// The file of a case with the seed of a run.
fn with_seed(text: &str, seed: RunSeed) -> String {
    match text.parse::<toml::Table>() {
        Ok(mut table) => {
            let seed = i64::try_from(seed.0).unwrap_or(i64::MAX);
            table.insert("seed".to_owned(), toml::Value::Integer(seed));
            table.to_string()
        }
        Err(error) => unreachable!("it was written as TOML: {error}"),
    }
}
