//! Lines as SVG.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use plotters::prelude::*;

/// A line with its name.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// What is drawn.
#[derive(Clone, Debug)]
pub(crate) struct Plot {
    /// File name without its ending.
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) x: String,
    pub(crate) y: String,
    pub(crate) lines: Vec<Line>,
}

const COLOURS: [RGBColor; 10] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 39, 40),
    RGBColor(44, 160, 44),
    RGBColor(255, 127, 14),
    RGBColor(148, 103, 189),
    RGBColor(140, 86, 75),
    RGBColor(227, 119, 194),
    RGBColor(127, 127, 127),
    RGBColor(188, 189, 34),
    RGBColor(23, 190, 207),
];

/// The largest value, or 1 where there is none above 0.
fn top(values: impl Iterator<Item = f64>) -> f64 {
    let top = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
    if top > 0.0 { top } else { 1.0 }
}

/// A number at an axis: `200k`, `1.5M`, `0.25`.
fn short(value: &f64) -> String {
    let (scaled, unit) = match value.abs() {
        1e6.. => (value / 1e6, "M"),
        1e3.. => (value / 1e3, "k"),
        _ => (*value, ""),
    };
    let text = format!("{scaled:.3}");
    format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

impl Plot {
    /// The picture as text. Both axes begin at 0.
    pub(crate) fn svg(&self) -> Result<String> {
        let points = || self.lines.iter().flat_map(|line| line.points.iter());
        let right = top(points().map(|point| point.0)) * 1.02;
        let upper = top(points().map(|point| point.1)) * 1.05;
        let mut text = String::new();
        {
            let area = SVGBackend::with_string(&mut text, (900, 560)).into_drawing_area();
            let failed = |error: String| anyhow::anyhow!("drawing {}: {error}", self.name);
            area.fill(&WHITE).map_err(|error| failed(error.to_string()))?;
            let mut chart = ChartBuilder::on(&area)
                .caption(&self.title, ("sans-serif", 20))
                .margin(14)
                .x_label_area_size(44)
                .y_label_area_size(70)
                .build_cartesian_2d(0.0..right, 0.0..upper)
                .map_err(|error| failed(error.to_string()))?;
            chart
                .configure_mesh()
                .x_desc(&self.x)
                .y_desc(&self.y)
                .light_line_style(WHITE)
                .x_label_formatter(&short)
                .y_label_formatter(&short)
                .draw()
                .map_err(|error| failed(error.to_string()))?;
            for (line, colour) in self.lines.iter().zip(COLOURS.iter().cycle()) {
                let good = line.points.iter().copied().filter(|(x, y)| (x + y).is_finite());
                chart
                    .draw_series(LineSeries::new(good, colour.stroke_width(2)).point_size(3))
                    .map_err(|error| failed(error.to_string()))?
                    .label(&line.name)
                    .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], *colour));
            }
            chart
                .configure_series_labels()
                .position(SeriesLabelPosition::UpperLeft)
                .background_style(WHITE.mix(0.8))
                .border_style(BLACK)
                .draw()
                .map_err(|error| failed(error.to_string()))?;
            area.present().map_err(|error| failed(error.to_string()))?;
        }
        Ok(text)
    }

    /// Writes `NAME.svg`.
    pub(crate) fn write(&self, dir: &Path) -> Result<()> {
        let path = dir.join(format!("{}.svg", self.name));
        fs::write(&path, self.svg()?).with_context(|| format!("writing {}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_at_axes_are_short() {
        for (value, want) in
            [(0.0, "0"), (0.25, "0.25"), (90.0, "90"), (2e5, "200k"), (1.5e6, "1.5M")]
        {
            assert_eq!(short(&value), want);
        }
    }

    #[test]
    fn a_plot_names_its_lines_even_when_there_is_nothing_to_draw() {
        let line = |name: &str, points: &[(f64, f64)]| Line {
            name: name.to_owned(),
            points: points.to_vec(),
        };
        let mut plot = Plot {
            name: "fig".to_owned(),
            title: "Rate <1>".to_owned(),
            x: "asked".to_owned(),
            y: "got".to_owned(),
            lines: vec![line("local", &[(1.0, 2.0), (2.0, f64::NAN)]), line("remote", &[])],
        };
        let svg = plot.svg().expect("drawn");
        for word in ["<svg", "local", "remote", "asked", "Rate &lt;1&gt;"] {
            assert!(svg.contains(word), "no {word} in {svg}");
        }
        plot.lines.clear();
        assert!(plot.svg().is_ok());
    }
}
