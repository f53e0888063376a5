//! The paper's figures as tables on stdout and as SVG.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use itg_cli::say;
use itg_report::{Curve, Plot};
use itg_trials::{Estimate, Lines, percent, print, with_interval};

use super::choose::Chosen;
use super::results::{FIRST_SIZE, Results, estimate};
use super::trial::{End, Setting, Trial, Variant};

/// Writer of figures: plots into a directory, if one is given.
pub(crate) struct Figures {
    dir: Option<PathBuf>,
    written: Vec<String>,
}

/// Quantity of a trial that a figure shows.
#[derive(Clone, Copy)]
enum Shown {
    Rate,
    BitRate,
    Error,
}

impl Shown {
    const fn label(self) -> &'static str {
        match self {
            Self::Rate => "achieved rate, packets/s",
            Self::BitRate => "achieved rate, Mbit/s of payload",
            Self::Error => "error (1 - logged / expected), %",
        }
    }

    fn value(self, setting: &Setting, trial: &Trial) -> f64 {
        match self {
            Self::Rate => trial.rate,
            Self::BitRate => trial.rate * f64::from(setting.size) * 8.0 / 1e6,
            Self::Error => trial.error,
        }
    }

    fn text(self, estimate: Estimate) -> String {
        match self {
            Self::Rate => with_interval(estimate, 0),
            Self::BitRate => with_interval(estimate, 1),
            Self::Error => percent(estimate),
        }
    }

    fn drawn(self, value: f64) -> f64 {
        if matches!(self, Self::Error) { 100.0 * value } else { value }
    }
}

/// Values by column and row; a column is a line of the picture.
type Grid = BTreeMap<(usize, String), BTreeMap<u32, Estimate>>;

/// Arranges results; `column` gives a column's place and name, `row` its rows.
fn arrange(
    results: &Results,
    shown: Shown,
    column: impl Fn(&Setting) -> (usize, String),
    row: impl Fn(&Setting) -> u32,
) -> Grid {
    let mut grid = Grid::new();
    for (setting, trials) in results {
        let value = estimate(trials, |trial| shown.value(setting, trial));
        grid.entry(column(setting)).or_default().insert(row(setting), value);
    }
    grid
}

fn by_variant(setting: &Setting) -> (usize, String) {
    (setting.variant as usize, setting.variant.name().to_owned())
}

impl Figures {
    pub(crate) const fn new(dir: Option<PathBuf>) -> Self {
        Self { dir, written: Vec::new() }
    }

    fn draw(&mut self, name: &str, plot: &Plot) -> Result<()> {
        if let Some(dir) = &self.dir {
            let name = format!("{name}.svg");
            let path = dir.join(&name);
            fs::write(&path, plot.svg()).with_context(|| format!("writing {}", path.display()))?;
            self.written.push(name);
        }
        Ok(())
    }

    /// Prints and draws a grid.
    fn show(&mut self, name: &str, title: &str, x: &str, shown: Shown, grid: &Grid) -> Result<()> {
        let mut rows: Vec<u32> = grid.values().flat_map(|column| column.keys().copied()).collect();
        rows.sort_unstable();
        rows.dedup();
        let header = std::iter::once(x).chain(grid.keys().map(|(_, name)| name.as_str()));
        let mut lines = Lines::new(header);
        for row in rows {
            let mut cells = vec![row.to_string()];
            for column in grid.values() {
                cells.push(column.get(&row).map_or_else(|| "-".to_owned(), |e| shown.text(*e)));
            }
            lines.row(cells);
        }
        print(format_args!("\n{title}: {}\n{lines}", shown.label()));
        let line = |((_, name), column): (&(usize, String), &BTreeMap<u32, Estimate>)| Curve {
            name: name.clone(),
            points: column.iter().map(|(x, e)| (f64::from(*x), shown.drawn(e.mid))).collect(),
        };
        let plot = Plot {
            title: title.to_owned(),
            x: x.to_owned(),
            y: shown.label().to_owned(),
            lines: grid.iter().map(line).collect(),
            ..Plot::default()
        };
        self.draw(name, &plot)
    }

    /// Figure 1: generators beside the ideal line.
    pub(crate) fn first(
        &mut self,
        rates: &[u32],
        table: &[(String, BTreeMap<u32, Estimate>)],
    ) -> Result<()> {
        let mut grid = Grid::new();
        let exactly = |rate: u32| {
            let value = f64::from(rate);
            (rate, Estimate { low: value, mid: value, high: value })
        };
        let ideal = rates.iter().map(|rate| exactly(*rate)).collect();
        grid.insert((0, "ideal".to_owned()), ideal);
        for (place, (name, rates)) in table.iter().enumerate() {
            grid.insert((place + 1, name.clone()), rates.clone());
        }
        let title = format!("Figure 1: generators, {FIRST_SIZE} bytes, loopback");
        self.show("fig01", &title, "C, packets/s", Shown::Rate, &grid)
    }

    /// Figures 6, 7 (sender) or 11, 12 (receiver): a picture for each variant.
    pub(crate) fn by_buffer(&mut self, end: End, results: &Results) -> Result<()> {
        let first = if end == End::Sender { 6 } else { 11 };
        for (figure, shown) in [(first, Shown::Rate), (first + 1, Shown::Error)] {
            for variant in Variant::BUFFERED {
                let of: Results = results
                    .iter()
                    .filter(|(setting, _)| setting.variant == variant)
                    .map(|(setting, trials)| (*setting, trials.clone()))
                    .collect();
                let column = |s: &Setting| (s.rate as usize, format!("C = {}", s.rate));
                let grid = arrange(&of, shown, column, |s| s.buffer);
                let title = format!(
                    "Figure {figure}: {}, {}, c = {FIRST_SIZE} bytes, by D",
                    end.name(),
                    variant.name()
                );
                let name = format!("fig{figure:02}-{}", variant.name().to_lowercase());
                self.show(&name, &title, "D, records", shown, &grid)?;
            }
        }
        Ok(())
    }

    /// Figures 8 (sender) or 13 (receiver).
    pub(crate) fn by_size(&mut self, end: End, chosen: Chosen, results: &Results) -> Result<()> {
        let figure = if end == End::Sender { 8 } else { 13 };
        let Chosen { buffer, rate, .. } = chosen;
        let grid = arrange(results, Shown::Error, by_variant, |s| s.size);
        let title = format!(
            "Figure {figure}: {}, D = {buffer} records, C = {rate} packets/s, by c",
            end.name()
        );
        self.show(&format!("fig{figure:02}"), &title, "c, bytes", Shown::Error, &grid)
    }

    /// Figures 9, 10 (sender) or 14, 15 (receiver).
    pub(crate) fn by_rate(&mut self, end: End, chosen: Chosen, results: &Results) -> Result<()> {
        let first = if end == End::Sender { 9 } else { 14 };
        let Chosen { buffer, size, .. } = chosen;
        for (figure, shown) in [(first, Shown::BitRate), (first + 1, Shown::Error)] {
            let grid = arrange(results, shown, by_variant, |s| s.rate);
            let title = format!(
                "Figure {figure}: {}, D = {buffer} records, c = {size} bytes, by C",
                end.name()
            );
            self.show(&format!("fig{figure:02}"), &title, "C, packets/s", shown, &grid)?;
        }
        Ok(())
    }

    /// The knee at the MTU.
    pub(crate) fn over_link(&mut self, results: &Results) -> Result<()> {
        let column = |s: &Setting| (s.end as usize, s.end.name().to_owned());
        for (name, shown) in [("mtu-rate", Shown::Rate), ("mtu-error", Shown::Error)] {
            let grid = arrange(results, shown, column, |s| s.size);
            let title = "Virtual link with MTU 1500, more asked for than it takes, by c";
            self.show(name, title, "c, bytes", shown, &grid)?;
        }
        Ok(())
    }

    /// Says what was written.
    pub(crate) fn end(self) {
        if let Some(dir) = self.dir {
            say(format_args!("figures in {}: {}", dir.display(), self.written.join(", ")));
        }
    }
}
