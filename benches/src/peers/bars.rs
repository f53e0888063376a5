//! The figures of all tables, and the bars they are held to.

use std::path::Path;

use anyhow::{Context as _, Result};
use itg_trials::{Claim, Estimate, print};
use serde::Serialize;

/// One figure.
#[derive(Clone, Debug, Serialize)]
struct Figure {
    table: String,
    row: String,
    figure: &'static str,
    median: f64,
    low: f64,
    high: f64,
    trials: Vec<f64>,
}

/// Record of a measurement: machine, figures and bars.
#[derive(Debug, Serialize)]
pub(crate) struct Book {
    machine: String,
    figures: Vec<Figure>,
    bars: Vec<Claim>,
}

impl Book {
    pub(crate) const fn new(machine: String) -> Self {
        Self { machine, figures: Vec::new(), bars: Vec::new() }
    }

    /// Takes down the trials of a figure and returns their median.
    pub(crate) fn figure(
        &mut self,
        table: &str,
        row: &str,
        figure: &'static str,
        trials: &[f64],
    ) -> Estimate {
        let Estimate { low, mid, high } = Estimate::of(trials);
        self.figures.push(Figure {
            table: table.to_owned(),
            row: row.to_owned(),
            figure,
            median: mid,
            low,
            high,
            trials: trials.to_vec(),
        });
        Estimate { low, mid, high }
    }

    /// Prints whether a bar is reached.
    pub(crate) fn bar(&mut self, holds: bool, what: String) {
        let claim = Claim { holds, what };
        print(&claim);
        self.bars.push(claim);
    }

    /// The sum of it, and the file.
    pub(crate) fn finish(&self, json: Option<&Path>) -> Result<()> {
        let reached = self.bars.iter().filter(|bar| bar.holds).count();
        print(format_args!("\n{reached} of {} bars reached", self.bars.len()));
        if let Some(path) = json {
            let text = serde_json::to_string_pretty(self)? + "\n";
            std::fs::write(path, text).with_context(|| path.display().to_string())?;
        }
        Ok(())
    }
}
