//! Lines as SVG, the x axis linear or logarithmic.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, anyhow};
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

/// A line with its name.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// How values lie along the x axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    Linear,
    Log,
}

/// What is drawn.
#[derive(Clone, Debug)]
pub(crate) struct Plot {
    /// File name without its ending.
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) x: (String, Scale),
    pub(crate) y: String,
    pub(crate) lines: Vec<Line>,
}

const SIZE: (u32, u32) = (900, 560);

impl Plot {
    /// Writes `NAME.svg`.
    pub(crate) fn write(&self, dir: &Path) -> Result<()> {
        let path = dir.join(format!("{}.svg", self.name));
        let svg = self.svg().with_context(|| format!("drawing {}", self.name))?;
        fs::write(&path, svg).with_context(|| format!("writing {}", path.display()))
    }

    /// The picture as text; the y axis begins at 0.
    pub(crate) fn svg(&self) -> Result<String> {
        let points = || self.lines.iter().flat_map(|line| line.points.iter());
        let right = points().map(|point| point.0).fold(1.0, f64::max) * 1.05;
        let left = points().map(|point| point.0).fold(right, f64::min);
        let upper = points().map(|point| point.1).fold(1e-9, f64::max) * 1.05;
        match self.x.1 {
            Scale::Linear => self.draw(0.0..right, upper),
            Scale::Log => self.draw((left.max(1e-3)..right).log_scale(), upper),
        }
    }

    fn draw<X>(&self, x: X, upper: f64) -> Result<String>
    where
        X: AsRangedCoord<Value = f64>,
        X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let words = |error: &dyn std::fmt::Display| anyhow!("{error}");
        let mut text = String::new();
        {
            let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
            area.fill(&WHITE).map_err(|error| words(&error))?;
            let mut chart = ChartBuilder::on(&area)
                .caption(&self.title, ("sans-serif", 20))
                .margin(14)
                .x_label_area_size(44)
                .y_label_area_size(70)
                .build_cartesian_2d(x, 0.0..upper)
                .map_err(|error| words(&error))?;
            let mut mesh = chart.configure_mesh();
            mesh.x_desc(&self.x.0).y_desc(&self.y).light_line_style(WHITE);
            mesh.draw().map_err(|error| words(&error))?;
            for (number, line) in self.lines.iter().enumerate() {
                let colour = Palette99::pick(number).to_rgba();
                let series = LineSeries::new(line.points.iter().copied(), colour.stroke_width(2));
                chart
                    .draw_series(series.point_size(3))
                    .map_err(|error| words(&error))?
                    .label(&line.name)
                    .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour));
            }
            let mut labels = chart.configure_series_labels();
            labels.position(SeriesLabelPosition::UpperLeft).background_style(WHITE.mix(0.8));
            labels.border_style(BLACK).draw().map_err(|error| words(&error))?;
            area.present().map_err(|error| words(&error))?;
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_names_axes_and_lines_on_both_scales() {
        for scale in [Scale::Linear, Scale::Log] {
            let line =
                Line { name: "model <a>".to_owned(), points: vec![(3.0, 13.2), (1024.0, 114.0)] };
            let svg = Plot {
                name: "figure".to_owned(),
                title: "Ts".to_owned(),
                x: ("nodes".to_owned(), scale),
                y: "µs".to_owned(),
                lines: vec![line],
            }
            .svg()
            .expect("drawn");
            for word in ["<svg", "model &lt;a&gt;", "nodes", "µs", "Ts"] {
                assert!(svg.contains(word), "{scale:?}: no {word}");
            }
        }
    }
}
