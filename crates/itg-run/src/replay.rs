//! `itg-cluster replay DIR`: a run done again from nothing but its manifest, and compared with the original.
//!
//! The plan must have the same hash, or nothing is sent. Differences of program, host and options between then and now
//! are named: they are what an honest replay may differ by. The judgement is that of
//! [`itg_compare::agreement`], beside what was planned for each packet and the verdict on fidelity.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use itg_cli::{Failure, WordArgs, load_manifest, print, refuse, say};
use itg_compare::agreement::{Agreement, judge};
use itg_compare::{Resampling, compare, other_plan};
use itg_experiment::Manifest;
use itg_stats::fidelity::Fidelity;

use crate::diff::{Logs, Planned};
use crate::directory::{MANIFEST, SWEEP, holds_nothing_else, is_within};
use crate::inventory::{LONGEST, read_text, regular};
use crate::options::OutputOptions;
use crate::results::{OPTIONS, logs, setting};
use crate::ro_crate::RO_CRATE;
use crate::steps::carry_out;
use crate::world::{Output, World, host_settings};

/// Packets that only one of the runs has sent, as a share of all and for each flow, are no difference up to here: the
/// end of a run falls between two packets.
const ALONE_SHARE: u64 = 100;
const ALONE_OF_A_FLOW: u64 = 2;
/// Largest difference of the shares of packets that left more than one mean inter-departure time late.
const LATE_SHARE: f64 = 0.1;

/// Run that is to be done again.
#[derive(Debug)]
pub struct Original {
    manifest: Manifest,
    dir: PathBuf,
}

impl Original {
    /// Reads the manifest of a run, from its directory or by its own path.
    ///
    /// # Errors
    /// It cannot be read, or is none.
    pub fn read(path: &Path) -> Result<Self> {
        let file = if path.is_dir() { path.join(MANIFEST) } else { path.to_owned() };
        let shown = file.display();
        let read = match path.is_dir() {
            true => read_text(path, MANIFEST, LONGEST),
            false => itg_cli::read_text(&file),
        };
        let text = read
            .map_err(|error| refuse(format!("{shown}: {error}: expected the manifest of a run")))?;
        let manifest =
            Manifest::parse(&text).map_err(|error| refuse(format!("{shown}: {error}")))?;
        let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty());
        let dir = dir.unwrap_or_else(|| Path::new(".")).to_owned();
        Ok(Self { manifest, dir })
    }

    /// Name of the world that carried it out.
    #[must_use]
    pub fn world(&self) -> &str {
        setting(&self.manifest, "world")
    }

    /// Options of that world, as words of a command line.
    #[must_use]
    pub fn options(&self) -> Vec<String> {
        setting(&self.manifest, OPTIONS).split_whitespace().map(str::to_owned).collect()
    }

    /// Directory that must stay as it is: that of the run, or that of the sweep which has it; none around a manifest that
    /// was taken out of its run.
    fn sealed(&self) -> Option<PathBuf> {
        let dir = self.dir.canonicalize().ok().filter(|dir| dir.join(RO_CRATE).exists())?;
        let sweep = dir.ancestors().nth(2).filter(|sweep| sweep.join(SWEEP).exists());
        Some(sweep.map_or_else(|| dir.clone(), Path::to_owned))
    }

    /// Directory of the replay: a file more in the original's, and that is not as it was left. By default it lies in the
    /// working directory, or beside the original where the working directory is within.
    fn destination(&self, options: &OutputOptions) -> Result<PathBuf> {
        let name = format!("{}-replay", self.manifest.name);
        let mut dir = options.directory(&name, jiff::Timestamp::now());
        let Some(sealed) = self.sealed() else { return Ok(dir) };
        if options.out.is_none() && is_within(&dir, &sealed) {
            let parent = sealed.parent().unwrap_or(&sealed);
            dir = dir.file_name().map_or_else(|| parent.to_owned(), |name| parent.join(name));
        }
        let mut written = options.own_files();
        written.push(dir.clone());
        match written.iter().find(|path| is_within(path, &sealed)) {
            None => Ok(dir),
            Some(path) => Err(refuse(format!(
                "{} is within {}, which `itg-cluster verify` would not find as it was left: choose another place",
                path.display(),
                sealed.display()
            ))),
        }
    }

    /// Facts about program and host that differ between then and now, a sentence each.
    fn differences(&self, world: &dyn World) -> Vec<String> {
        let now = [("world", world.name().to_owned()), (OPTIONS, world.options().join(" "))];
        let now = now.into_iter().chain(host_settings());
        let mut lines = Vec::new();
        let mut compare = |key: &str, then: &str, now: &str| {
            let or_none =
                |text: &str| if text.is_empty() { "none".to_owned() } else { text.to_owned() };
            if then != now {
                lines.push(format!("{key}: then {}, now {}", or_none(then), or_none(now)));
            }
        };
        compare("version", &self.manifest.version, env!("CARGO_PKG_VERSION"));
        for (key, now) in now {
            compare(key, setting(&self.manifest, key), &now);
        }
        lines
    }

    /// Names of the logs of the run.
    fn names(&self) -> Result<Vec<String>> {
        logs(&self.manifest).map_err(|error| refuse(format!("{MANIFEST}: {error:#}")))
    }

    /// The logs of the run, each file once; none where they are not beside the manifest.
    fn logs(&self) -> Result<Option<Logs>> {
        let names = self.names()?;
        let paths: Vec<_> = names.iter().map_while(|name| regular(&self.dir, name).ok()).collect();
        let there = !paths.is_empty() && paths.len() == names.len();
        if there { Logs::of(paths).map(Some) } else { Ok(None) }
    }
}

/// Does a run again, and says on stdout how the two compare; exit code 1 when they are not equal within intervals.
///
/// # Errors
/// The plan is not that of the original, the run fails, or the two differ.
pub fn replay(
    world: &dyn World,
    original: &Original,
    options: &OutputOptions,
    words: WordArgs,
) -> Result<ExitCode> {
    let manifest = &original.manifest;
    let mut loaded = load_manifest(manifest)?;
    let plan = loaded.plan.hash_text();
    if plan != manifest.plan {
        return Err(refuse(format!(
            "the manifest's experiment with seed {} gives plan {plan}, and the run had plan {}: the manifest was \
             changed, or the run is of another version ({}, this is {})",
            manifest.seed,
            manifest.plan,
            manifest.version,
            env!("CARGO_PKG_VERSION")
        )));
    }
    world.check(&loaded)?;
    original.names()?;
    let dir = original.destination(options)?;
    holds_nothing_else(&dir, &options.own_files())?;
    for line in original.differences(world) {
        say(format_args!("itg-cluster: differs from the original run: {line}"));
    }
    let output = options.open(false, words)?;
    let print_report = output.print && words.verbose > 0;
    let output = Output { dir: dir.clone(), print: print_report, ..output };
    let done = carry_out(world, &mut loaded, &output, words)?;
    if !matches!(done.code, 0 | 98 | 99) {
        return Ok(ExitCode::from(done.code));
    }
    let (Some(theirs), Some(ours)) = (original.logs()?, Original::read(&dir)?.logs()?) else {
        say(
            "itg-cluster: the logs of the original run are not beside its manifest: nothing to compare",
        );
        return Ok(ExitCode::from(done.code));
    };
    let comparison = Replayed::of(&theirs, &ours, plan)?;
    print(&comparison.lines.iter().map(|line| format!("{line}\n")).collect::<String>())?;
    match comparison.verdict {
        Agreement::Equal => Ok(ExitCode::from(done.code)),
        Agreement::Different => {
            Err(Failure::new(1, "the replay differs from the original run").into())
        }
        Agreement::Unknown => {
            Err(Failure::new(1, "the runs are too short: it cannot be told if they are equal")
                .into())
        }
    }
}

/// A run and its replay, compared.
struct Replayed {
    lines: Vec<String>,
    verdict: Agreement,
}

impl Replayed {
    fn of(original: &Logs, ours: &Logs, plan: String) -> Result<Self> {
        let mut judged = vec![(Agreement::Equal, format!("plan: equal: {plan}"))];
        let same_bytes = original.are_equal_to(ours);
        if same_bytes {
            judged.push((Agreement::Equal, "logs: equal: the same bytes".to_owned()));
        }
        let (a, b) = (original.report()?, ours.report()?);
        let planned = Planned::of(&original.schedule()?, &ours.schedule()?);
        let packets = of_packets(&planned, a.total.flows);
        judged.push((packets, format!("packets: {}: {planned}", packets.name())));
        judged.push(of_fidelity(&a.total.metrics.fidelity, &b.total.metrics.fidelity));
        if let Some(why) = other_plan(&a, &b) {
            judged.push((
                Agreement::Different,
                format!("flows: different: {why} (A: the original, B: the replay)"),
            ));
        }
        let comparison = compare(("original", &a), ("replay", &b), Resampling::default());
        for (flows, which) in [(&comparison.only_a, "original"), (&comparison.only_b, "replay")] {
            for flow in flows {
                judged.push((
                    Agreement::Different,
                    format!("flow {flow}: different: only in the {which}"),
                ));
            }
        }
        let figures = judge(&comparison);
        // A figure that all packets together do not give says little of the run.
        let known = figures.iter().any(|f| f.flow.is_none() && f.agreement == Agreement::Equal);
        judged.extend(figures.iter().map(|figure| (figure.agreement, figure.to_string())));
        let of = |which| judged.iter().filter(|(agreement, _)| *agreement == which).count();
        let [equal, unknown, different] =
            [Agreement::Equal, Agreement::Unknown, Agreement::Different].map(of);
        let (verdict, words) = match different {
            0 if known || same_bytes => (
                Agreement::Equal,
                format!("equal within intervals: {equal} equal, {unknown} not known"),
            ),
            0 => (
                Agreement::Unknown,
                format!("not known: too few packets: {equal} equal, {unknown} not known"),
            ),
            count => (
                Agreement::Different,
                format!("different in {count} of {} judgements", judged.len()),
            ),
        };
        let mut lines: Vec<_> = judged.into_iter().map(|(_, line)| line).collect();
        lines.push(words);
        Ok(Self { lines, verdict })
    }
}

fn of_packets(planned: &Planned, flows: u64) -> Agreement {
    let alone = planned.alone.0 + planned.alone.1;
    let few = (planned.same / ALONE_SHARE).max(ALONE_OF_A_FLOW * flows);
    match planned.differs {
        Some(_) => Agreement::Different,
        None if alone > few => Agreement::Different,
        // Where no senders' log was kept there is nothing to compare.
        None if planned.same == 0 => Agreement::Unknown,
        None => Agreement::Equal,
    }
}

/// Compares the timing of the senders by their late packets: a verdict changes at a threshold, on both sides of which
/// two runs may be alike.
fn of_fidelity(a: &Fidelity, b: &Fidelity) -> (Agreement, String) {
    let agreement = match a.late_share.zip(b.late_share) {
        None => Agreement::Unknown,
        Some((a, b)) if (a - b).abs() <= LATE_SHARE => Agreement::Equal,
        Some(_) => Agreement::Different,
    };
    let words = |of: &Fidelity| {
        let late = of
            .late_share
            .map_or_else(|| "unknown".to_owned(), |share| format!("{:.1} %", 100.0 * share));
        format!("{} ({late} late)", of.verdict.name())
    };
    (agreement, format!("fidelity: {}: {}, then {}", agreement.name(), words(a), words(b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_packets_that_nobody_counted_are_not_equal() {
        let of = |late_share| Fidelity { late_share, ..Fidelity::default() };
        for (a, b, want, words) in [
            (Some(0.0), Some(0.01), Agreement::Equal, "0.0 % late"),
            (Some(0.0), Some(0.5), Agreement::Different, "50.0 % late"),
            (None, Some(0.0), Agreement::Unknown, "unknown late"),
            (None, None, Agreement::Unknown, "unknown late"),
        ] {
            let (agreement, line) = of_fidelity(&of(a), &of(b));
            assert_eq!(agreement, want, "{a:?} {b:?}");
            assert!(line.contains(words), "{line}");
        }
    }

    #[test]
    fn packets_at_the_end_of_a_run_are_no_difference() {
        let planned = |same, alone, differs: bool| Planned {
            same,
            alone,
            differs: differs.then(|| "flow 1 packet 3".to_owned()),
        };
        for (planned, flows, want) in [
            (planned(1000, (3, 7), false), 1, Agreement::Equal),
            (planned(1000, (4, 7), false), 1, Agreement::Different),
            (planned(10, (1, 1), false), 1, Agreement::Equal),
            (planned(0, (0, 50), false), 2, Agreement::Different),
            (planned(0, (0, 0), false), 2, Agreement::Unknown),
            (planned(0, (1, 1), false), 1, Agreement::Unknown),
            (planned(1000, (0, 0), true), 1, Agreement::Different),
        ] {
            assert_eq!(of_packets(&planned, flows), want, "{planned}");
        }
    }
}
