//! Plots of named lines through points, for what somebody else measured.

use maud::html;

use crate::svg::axis::{Quantity, Scale};
use crate::svg::chart::{Chart, Parts};
use crate::svg::frame::{Axis, Frame};
use crate::svg::ink;
use crate::svg::legend::{Entry, Sign};
use crate::svg::look::looks;
use crate::svg::values::{Series, Shape, Values};

/// A line of a [`Plot`].
#[derive(Clone, Debug, Default)]
pub struct Curve {
    /// Name in the legend.
    pub name: String,
    /// Points in the order in which the line passes through them; a value that is not finite interrupts it.
    pub points: Vec<(f64, f64)>,
}

/// A plot of lines, for programs that measure and draw what they have measured.
#[derive(Clone, Debug, Default)]
pub struct Plot {
    /// Title above the plot.
    pub title: String,
    /// Label of the x axis, which begins at 0 or is logarithmic.
    pub x: String,
    /// True if the x axis is logarithmic.
    pub x_log: bool,
    /// Label of the y axis, which begins at 0, or below the lowest value under it.
    pub y: String,
    /// The lines.
    pub lines: Vec<Curve>,
}

impl Plot {
    /// The plot as a file of its own.
    #[must_use]
    pub fn svg(&self) -> String {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let xs = || points().map(|(x, _)| *x).filter(|x| x.is_finite());
        let right = xs().fold(0.0, f64::max);
        let ys = || points().map(|(_, y)| *y).filter(|y| y.is_finite());
        let (low, high) = (ys().fold(0.0, f64::min), ys().fold(0.0, f64::max));
        let x = match self.x_log {
            true => Scale::log(xs().filter(|x| *x > 0.0).fold(right, f64::min), right * 1.05),
            false => Scale::from_zero(right),
        };
        let y = if low < 0.0 { Scale::fitting(low, high) } else { Scale::from_zero(high) };
        let frame = Frame {
            x: Axis::new(x, Quantity::Count, right, &self.x),
            y: Axis::new(y, Quantity::Count, high, &self.y),
        };
        let inner = html! {
            @for (line, look) in self.lines.iter().zip(looks()) {
                @let finite = line.points.iter().map(|(x, y)| (*x, (x + y).is_finite().then_some(*y)));
                (ink::path(look.line, &frame.line(finite.clone()), Some(&line.name)))
                @for (x, y) in finite.filter_map(|(x, y)| Some((x, y?))) {
                    (look.point((frame.px(x), frame.py(y)), None))
                }
            }
        };
        let named = self.lines.iter().zip(looks());
        // A line without a name is what the axis says.
        let name = |line: &Curve| match line.name.is_empty() {
            true => self.y.clone(),
            false => line.name.clone(),
        };
        let legend =
            named.clone().map(|(line, look)| Entry { sign: Sign::Points(look), name: name(line) });
        let series = named.map(|(line, look)| Series {
            name: line.name.clone(),
            class: look.line,
            numbers: line.points.iter().flat_map(|(x, y)| [*x, *y]).collect(),
        });
        let desc = format!(
            "{} against {}; {} lines, up to {}.",
            self.y,
            self.x,
            self.lines.len(),
            Quantity::Count.text(high)
        );
        let chart = Chart::from(Parts {
            name: "lines",
            title: self.title.clone(),
            desc,
            values: Values::new(Shape::Line, &[&self.x, &self.y], series.collect()),
            legend: legend.collect(),
            frame,
            inner,
        });
        chart.titled(&self.title)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_names_axes_and_lines_on_both_scales_even_when_there_is_nothing_to_draw() {
        let line = |name: &str, points: &[(f64, f64)]| Curve {
            name: name.to_owned(),
            points: points.to_vec(),
        };
        for x_log in [false, true] {
            let mut plot = Plot {
                title: "Rate <1>".to_owned(),
                x: "asked".to_owned(),
                x_log,
                y: "µs".to_owned(),
                lines: vec![
                    line("model <a>", &[(3.0, 13.2), (40.0, f64::NAN), (1024.0, 114.0)]),
                    line("empty", &[]),
                ],
            };
            let svg = plot.svg();
            for word in
                ["<svg", "model &lt;a&gt;", "empty", "asked", "µs", ">Rate &lt;1&gt;</text>"]
            {
                assert!(svg.contains(word), "{x_log}: no {word} in {svg}");
            }
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{x_log}: {svg}");
            // Two points and one in the legend for each line.
            assert_eq!(svg.matches("<circle").count(), 4, "{svg}");
            plot.lines[0].name.clear();
            assert!(plot.svg().matches(">µs</text>").count() == 2, "a legend for it, too");
            plot.lines.clear();
            assert!(plot.svg().contains("asked"));
        }
    }
    #[test]
    fn what_is_below_0_is_drawn_below_it() {
        let points = vec![(1.0, 0.0), (2.0, -50.0), (3.0, 100.0)];
        let lines = vec![Curve { name: "error".to_owned(), points }];
        let svg = Plot { x: "asked".to_owned(), y: "%".to_owned(), lines, ..Plot::default() }.svg();
        let heights = svg.split("cy=\"").skip(1).map(|rest| rest.split('"').next().unwrap());
        let heights: Vec<f64> = heights.map(|y| y.parse().unwrap()).collect();
        assert!(heights[1] > heights[0] + 10.0 && heights[0] > heights[2] + 10.0, "{heights:?}");
    }
}
