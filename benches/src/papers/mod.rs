//! `itg-bench papers`: a page for each of the five papers, from measurements by the other commands: the paper's
//! numbers, ours, the shape that must hold, and whether it does.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use itg_cli::say;
use itg_testkit::child::Running;
use itg_trials::{Claim, print};

use crate::programs::Programs;

/// Time that one measurement may take: the D-ITG paper's procedure in full takes hours.
const LIMIT: Duration = Duration::from_secs(24 * 3600);
/// Columns of a line of a page.
const WIDTH: usize = 116;

/// The papers' tables and figures, measured.
#[derive(Debug, Args)]
pub(crate) struct PapersArgs {
    /// These papers alone, separated by commas
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<Paper>,
    /// Fewer and shorter trials, for a first look: all five in some minutes
    #[arg(long)]
    quick: bool,
    /// Directory for the pages and their figures (SVG); made if it is not there
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// A published system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Paper {
    /// Log buffer, packet size and rate: Figures 1 and 6 to 15
    DItg,
    /// Cost of layers: Table 1
    Neko,
    /// Time of a view change: Figures 4 to 8
    Membership,
    /// Three algorithms of ordered broadcast: Tables 2 to 6
    AtomicBroadcast,
    /// Objects sent as they lie in memory: Tables 1 and 2
    Expresso,
}

impl Paper {
    const ALL: [Self; 5] =
        [Self::DItg, Self::Neko, Self::Membership, Self::AtomicBroadcast, Self::Expresso];

    const fn name(self) -> &'static str {
        match self {
            Self::DItg => "d-itg",
            Self::Neko => "neko",
            Self::Membership => "membership",
            Self::AtomicBroadcast => "atomic-broadcast",
            Self::Expresso => "expresso",
        }
    }

    /// Source, numbers and shape of the paper, and what differs here.
    const fn text(self) -> &'static str {
        match self {
            Self::DItg => include_str!("d-itg.md"),
            Self::Neko => include_str!("neko.md"),
            Self::Membership => include_str!("membership.md"),
            Self::AtomicBroadcast => include_str!("atomic-broadcast.md"),
            Self::Expresso => include_str!("expresso.md"),
        }
    }

    /// Commands of this program that measure it; figures go to the directory `plots`.
    fn commands(self, quick: bool, plots: &str) -> Vec<Vec<&str>> {
        let look = |words: &[&'static str]| -> Vec<&str> {
            words.iter().copied().chain(quick.then_some("--quick")).collect()
        };
        let drawn = |words| [look(words), vec!["--out", plots]].concat();
        match self {
            Self::DItg => vec![drawn(&["logging"])],
            Self::Neko => vec![look(&["runtime"])],
            Self::Membership => {
                vec![drawn(&["membership", "--only", "figures,contention,phases"])]
            }
            Self::AtomicBroadcast => vec![drawn(&["broadcast", "--only", "closed,sizes,clients"])],
            Self::Expresso => vec![vec!["expresso"]],
        }
    }

    /// Another program that measures a part of it.
    const fn beside(self) -> Option<&'static str> {
        match self {
            Self::AtomicBroadcast => Some("itg-bench-rpc"),
            _ => None,
        }
    }
}

/// Writes the pages.
pub(crate) fn run(args: &PapersArgs) -> Result<()> {
    let begin = Instant::now();
    let mut failed = Vec::new();
    for paper in Paper::ALL {
        if !args.only.is_empty() && !args.only.contains(&paper) {
            continue;
        }
        let started = Instant::now();
        let mut page = Page::of(paper);
        let plots = args.out.join(paper.name());
        fs::create_dir_all(&plots).with_context(|| format!("directory {}", plots.display()))?;
        let dir = plots.to_str().context("--out is not UTF-8")?;
        let own = paper.commands(args.quick, dir).into_iter().map(|words| ("itg-bench", words));
        let quick = || if args.quick { vec!["--quick"] } else { vec![] };
        let other = paper.beside().map(|program| (program, quick()));
        for (program, words) in own.chain(other) {
            let command = format!("{program} {}", words.join(" "));
            let found = match Programs::with(&[program]) {
                Ok(programs) => programs.path(program),
                Err(why) => {
                    page.missing.push(format!("NOT MEASURED: {command}: {why:#}"));
                    continue;
                }
            };
            say(format_args!("{}: {command}", paper.name()));
            if let Err(why) = measured(&found, &words).map(|out| page.add(&out)) {
                let what = format!("{command}: {why:#}");
                page.add(&format!("NOT MEASURED: {what}"));
                failed.push(what);
            }
        }
        let figures = figures(&plots)?;
        let path = args.out.join(format!("{}.md", paper.name()));
        fs::write(&path, page.text(args.quick, &figures))
            .with_context(|| format!("writing {}", path.display()))?;
        if figures.is_empty() {
            fs::remove_dir(&plots).with_context(|| format!("directory {}", plots.display()))?;
        }
        let held = page.claims.iter().filter(|claim| claim.holds).count();
        print(format_args!(
            "{}: {held} of {} claims hold, {} parts not measured, {} figures, {:.0} s",
            path.display(),
            page.claims.len(),
            page.missing.len(),
            figures.len(),
            started.elapsed().as_secs_f64()
        ));
        page.claims.iter().filter(|claim| !claim.holds).for_each(print);
        page.missing.iter().for_each(print);
    }
    print(format_args!("took {:.0} s", begin.elapsed().as_secs_f64()));
    if !failed.is_empty() {
        bail!("{} of the measurements failed: {}", failed.len(), failed.join("; "));
    }
    Ok(())
}

/// Lines that a program prints.
fn measured(program: &Path, words: &[&str]) -> Result<String> {
    Ok(Running::spawn(Command::new(program).args(words), &[])?.wait(LIMIT)?.ended_with(&[0])?.out)
}

/// Names of the figures in a directory, in order.
fn figures(dir: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("directory {}", dir.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "svg") {
            names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
    }
    names.sort();
    Ok(names)
}

/// Page of a paper in the making.
#[derive(Debug)]
struct Page {
    paper: Paper,
    claims: Vec<Claim>,
    missing: Vec<String>,
    results: String,
}

impl Page {
    const fn of(paper: Paper) -> Self {
        Self { paper, claims: Vec::new(), missing: Vec::new(), results: String::new() }
    }

    /// Takes what a command has printed: claims and missing parts apart, machine and tables as they are.
    fn add(&mut self, out: &str) {
        let (mut table, mut machine) = (false, false);
        for line in out.lines() {
            if let Some(claim) = Claim::read(line) {
                self.claims.push(claim);
                continue;
            }
            if line.starts_with("NOT MEASURED") || line.starts_with("NOT SATURATED") {
                self.missing.push(line.to_owned());
                continue;
            }
            machine = line.starts_with("machine: ") || (machine && !line.is_empty());
            if machine {
                self.results += &format!("    {line}\n");
                continue;
            }
            // A table is a paragraph of its own.
            let row = line.starts_with('|');
            if row != table && !self.results.ends_with("\n\n") {
                self.results.push('\n');
            }
            table = row;
            self.results += &if row { format!("{line}\n") } else { wrapped(line, WIDTH) };
        }
        self.results.push('\n');
    }

    fn text(&self, quick: bool, figures: &[String]) -> String {
        let mut text = self.paper.text().to_owned();
        text += "\n## What holds, and what does not\n\n";
        if quick {
            text += "From a first look (`--quick`): few and short trials.\n\n";
        }
        text += "| | claim |\n|---|---|\n";
        for Claim { holds, what } in &self.claims {
            let word = if *holds { "holds" } else { "**differs**" };
            writeln!(text, "| {word} | {} |", what.replace('|', "\\|")).unwrap_or_default();
        }
        for line in &self.missing {
            text += &format!("\n{}", wrapped(line, WIDTH));
        }
        text += &format!("\n## Measured\n\n{}", paragraphs(&self.results));
        if !figures.is_empty() {
            text += "\n## Figures\n\n";
        }
        for name in figures {
            text += &format!("![{name}]({}/{name}.svg)\n", self.paper.name());
        }
        text
    }
}

/// Text without empty lines at its ends, and with one of them between paragraphs.
fn paragraphs(text: &str) -> String {
    let mut lines: Vec<&str> = text.trim_end().lines().skip_while(|line| line.is_empty()).collect();
    lines.dedup_by(|line, before| line.is_empty() && before.is_empty());
    lines.join("\n") + "\n"
}

/// A line as lines of at most so many characters, where its words allow it.
fn wrapped(line: &str, width: usize) -> String {
    let mut text = String::new();
    let mut column = 0;
    for word in line.split_whitespace() {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > width {
            text.push('\n');
            column = 0;
        } else if column > 0 {
            text.push(' ');
            column += 1;
        }
        text += word;
        column += length;
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_tells_claims_and_what_is_missing_apart_from_tables() {
        let mut page = Page::of(Paper::Neko);
        page.add(
            "machine: 2 x a\nload:    0 0 0\n\nwords about it\n| a | b |\n|---|---|\n| 1 | 2 |\n\nHOLDS    a >= b: \
             1|2\nDIFFERS  b >= a\nNOT MEASURED: c\n\n\n\nlast",
        );
        let text = page.text(true, &["fig01".to_owned()]);
        let tail = text.split_once("\n## What holds").expect("claims").1;
        assert_eq!(
            tail,
            ", and what does not\n\nFrom a first look (`--quick`): few and short trials.\n\n| | claim |\n|---|---|\n\
             | holds | a >= b: 1\\|2 |\n| **differs** | b >= a |\n\nNOT MEASURED: c\n\n## Measured\n\n    machine: 2 x \
             a\n    load:    0 0 0\n\nwords about it\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nlast\n\n## Figures\n\n\
             ![fig01](neko/fig01.svg)\n"
        );
    }

    #[test]
    fn lines_are_cut_between_words_alone() {
        for (line, want) in [
            ("", "\n"),
            ("one two", "one two\n"),
            ("one two three", "one two\nthree\n"),
            ("  onetwothree four", "onetwothree\nfour\n"),
        ] {
            assert_eq!(wrapped(line, 7), want, "{line:?}");
        }
    }

    #[test]
    fn names_are_those_of_the_option_and_commands_exist() {
        use clap::{CommandFactory as _, Parser as _};
        for paper in Paper::ALL {
            let value = paper.to_possible_value().expect("a value");
            assert_eq!(value.get_name(), paper.name());
            assert!(paper.text().starts_with("# ") && paper.text().ends_with('\n'), "{paper:?}");
            for quick in [false, true] {
                for words in paper.commands(quick, "plots") {
                    let all = ["itg-bench"].into_iter().chain(words.iter().copied());
                    crate::Cli::try_parse_from(all)
                        .unwrap_or_else(|why| panic!("{words:?}: {why}"));
                }
            }
        }
        crate::Cli::command().debug_assert();
    }
}
