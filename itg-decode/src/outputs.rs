//! Products of a report beside its text: a page, plots, gates, JUnit.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use itg_cli::{Gates, read_text, refuse};
use itg_experiment::{Experiment, Manifest};
use itg_report::{Around, Chart};
use itg_stats::Report;
use itg_stats::gate::Gate;

use crate::complaints::PROGRAM;
use crate::export::Export;

/// Pages, plots and gates.
#[derive(Debug, Default, Args)]
pub(crate) struct OutputArgs {
    /// Also write the report as one HTML page that opens from disk, without network.
    #[arg(long, value_name = "FILE", conflicts_with = "packets")]
    pub(crate) html: Option<PathBuf>,
    /// Also write the plots into this directory, which is made when it is not there: each as SVG, its values as CSV,
    /// and as a drawing of pgfplots for LaTeX.
    #[arg(long, value_name = "DIR", conflicts_with = "packets")]
    pub(crate) svg: Option<PathBuf>,
    /// Fail with exit code 99 (98: fidelity only) when this holds for a flow, or with `total.` before it
    /// for the total: `delay.p99 > 20ms`, `total.loss > 0.1%`, `fidelity != pass`; may be given several
    /// times.
    #[arg(long, value_name = "GATE", conflicts_with = "packets")]
    pub(crate) fail_if: Vec<Gate>,
    /// Also take the gates of this experiment file, `[gates]`.
    #[arg(long, value_name = "FILE", conflicts_with = "packets")]
    pub(crate) gates: Option<PathBuf>,
    /// A gate whose figure is not known does not fail.
    #[arg(long)]
    pub(crate) allow_unknown: bool,
    /// The manifest of the run (manifest.json of itg-cluster), for --html and --format json.
    #[arg(long, value_name = "FILE", conflicts_with = "packets")]
    pub(crate) manifest: Option<PathBuf>,
    /// Also write what the gates said as JUnit XML; without gates one test a flow: its fidelity.
    #[arg(long, value_name = "FILE", conflicts_with = "packets")]
    pub(crate) junit: Option<PathBuf>,
}

impl OutputArgs {
    /// Number of flows to draw one by one; `None` when nothing is drawn.
    pub(crate) fn plots(&self) -> Option<usize> {
        (self.html.is_some() || self.svg.is_some()).then_some(itg_report::FLOWS_DRAWN)
    }

    /// The gates of the command line and of the experiment file, with the rule for unknown figures.
    ///
    /// # Errors
    /// A file that cannot be read, is no experiment, or has something in `fail_if` that is no gate.
    pub(crate) fn all_gates(&self) -> anyhow::Result<Gates> {
        let mut gates = Gates { list: self.fail_if.clone(), allow_unknown: self.allow_unknown };
        if let Some(path) = &self.gates {
            let name = path.display().to_string();
            let text = read_text(path)
                .map_err(|error| refuse(format!("{name}: cannot be read: {error}")))?;
            gates.add(&Experiment::parse(&text, &name).map_err(refuse)?, &name)?;
        }
        Ok(gates)
    }

    /// Adds what the manifest of the run says.
    ///
    /// # Errors
    /// A file that cannot be read or is no manifest.
    pub(crate) fn add_manifest(&self, report: &mut Report) -> anyhow::Result<()> {
        let Some(path) = &self.manifest else { return Ok(()) };
        let name = path.display();
        let text = read_text(path).with_context(|| format!("{name}: cannot be read"))?;
        let manifest = Manifest::parse(&text).with_context(|| format!("{name}"))?;
        if let serde_json::Value::Object(facts) = serde_json::to_value(&manifest)? {
            report.manifest.extend(facts);
        }
        Ok(())
    }

    /// Writes everything that was asked for; the exit code, where a gate decides it.
    pub(crate) fn write(
        &self,
        report: &Report,
        gates: &Gates,
        quiet: bool,
    ) -> anyhow::Result<Option<u8>> {
        let judged = gates.judge(report, PROGRAM, quiet);
        if let Some(plots) = &report.plots {
            if let Some(path) = &self.html {
                let command = itg_report::command(std::env::args());
                let around = Around {
                    plots,
                    gates: &judged.outcomes,
                    allow_unknown: gates.allow_unknown,
                    command: &command,
                };
                let page = itg_report::page(report, &around);
                write(path, &page)?;
            }
            if let Some(folder) = &self.svg {
                drawings(report, plots, folder)?;
            }
        }
        if let Some(path) = &self.junit {
            let text = match &judged.outcomes[..] {
                [] => itg_report::junit_of_fidelity(report),
                outcomes => {
                    let took_ns = report.total.metrics.duration_ns;
                    itg_report::junit(outcomes, gates.allow_unknown, took_ns)
                }
            };
            write(path, &text)?;
        }
        Ok(judged.code)
    }
}

pub(crate) fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let whole = || {
        let mut file = Export::create(path)?;
        file.write_all(text.as_bytes())?;
        file.finish()
    };
    whole().with_context(|| format!("{}: cannot be written", path.display()))
}

fn drawings(report: &Report, plots: &itg_stats::plot::Plots, folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("{}: cannot be made", folder.display()))?;
    for chart in itg_report::of_total(report, plots) {
        drawing(folder, &format!("total-{}", chart.name), &chart, "all flows")?;
    }
    for drawn in &plots.flows {
        let Some(flow) = report.flows.get(drawn.place) else { continue };
        let of = flow.title();
        for chart in itg_report::of_flow(drawn, &of) {
            // The place keeps flows of the same number apart.
            let name = format!("flow{}-{}-{}", flow.flow, drawn.place, chart.name);
            drawing(folder, &name, &chart, &of)?;
        }
    }
    Ok(())
}

/// A plot with its values as a table, and as code for LaTeX.
fn drawing(folder: &Path, name: &str, chart: &Chart, of: &str) -> anyhow::Result<()> {
    for (suffix, text) in [("svg", chart.file(of)), ("csv", chart.csv()), ("tex", chart.latex(of))]
    {
        write(&folder.join(format!("{name}.{suffix}")), &text)?;
    }
    Ok(())
}
