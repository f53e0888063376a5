//! Named lines through points: their looks and their legend; and plots of what somebody else measured.

use maud::{Markup, html};

use crate::svg::axis::{Quantity, Scale};
use crate::svg::chart::Chart;
use crate::svg::frame::{Axis, Frame, HEIGHT, WIDTH, one};
use crate::svg::ink;

/// Width of a letter of the legend, at most in the mean, and of what stands before a name.
const LETTER: f64 = 6.8;
const BEFORE: f64 = 32.0;
/// Height of a row of the legend.
const ROW: f64 = 17.0;
/// From the left end of the legend to its right one.
const LEGEND: (f64, f64) = (12.0, WIDTH - 8.0);

/// Look of a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// Class of the line.
    pub(super) line: &'static str,
    dot: &'static str,
    square: bool,
}

/// Looks by the numbers of the lines: four colours, with points that are full or open, round or square; sixteen
/// can be told apart.
pub(super) fn looks() -> impl Iterator<Item = Look> {
    let lines = ["l1", "l2", "l3", "l4"];
    let dots = [["b1", "b2", "b3", "b4"], ["o1", "o2", "o3", "o4"]];
    let looks = [false, true].into_iter().flat_map(move |square| {
        dots.into_iter().flat_map(move |dots| {
            lines.into_iter().zip(dots).map(move |(line, dot)| Look { line, dot, square })
        })
    });
    looks.cycle()
}

impl Look {
    /// A point at a place of the drawing.
    pub(super) fn point(self, (x, y): (f64, f64), title: Option<&str>) -> Markup {
        let ink = ink::of(self.dot);
        let title = html! { @if let Some(title) = title { title { (title) } } };
        html! {
            @if self.square {
                rect class=(self.dot) fill=(ink.fill) stroke=[ink.stroke] stroke-width=[ink.width]
                    x=(one(x - 2.4)) y=(one(y - 2.4)) width="4.8" height="4.8" { (title) }
            } @else {
                circle class=(self.dot) fill=(ink.fill) stroke=[ink.stroke] stroke-width=[ink.width]
                    cx=(one(x)) cy=(one(y)) r="2.6" { (title) }
            }
        }
    }
}

/// The names of the lines in rows below the plot, and the height of these. A name that is wider than a row is
/// shortened; its title has it whole. Lines without names need no legend.
pub(super) fn legend(names: &[&str]) -> (Markup, f64) {
    let (left, right) = LEGEND;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few letters")]
    let most = ((right - left - BEFORE) / LETTER) as usize;
    let (mut x, mut row, mut entries) = (left, 0.0, Vec::new());
    for (name, look) in names.iter().zip(looks()).filter(|(name, _)| !name.is_empty()) {
        let letters = name.chars().count();
        let short: String = match letters > most {
            true => name.chars().take(most - 1).chain(['…']).collect(),
            false => (*name).to_owned(),
        };
        let wide = BEFORE + LETTER * short.chars().count() as f64;
        if x > left && x + wide > right {
            (x, row) = (left, row + 1.0);
        }
        entries.push((x, HEIGHT + 12.0 + ROW * row, look, short, *name));
        x += wide + 8.0;
    }
    if entries.is_empty() {
        return (html! {}, 0.0);
    }
    let rows = html! {
        @for (x, y, look, short, name) in &entries {
            g {
                title { (name) }
                (ink::path(look.line, &format!("M{} {}h22", one(*x), one(y - 4.0)), None))
                (look.point((x + 11.0, y - 4.0), None))
                (ink::text("label", (&one(x + 27.0), &one(*y)), short))
            }
        }
    };
    (rows, ROW * (row + 1.0) + 4.0)
}

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
    /// Label of the y axis, which begins at 0.
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
        let high = points().map(|(_, y)| *y).filter(|y| y.is_finite()).fold(0.0, f64::max);
        let x = match self.x_log {
            true => Scale::log(xs().filter(|x| *x > 0.0).fold(right, f64::min), right * 1.05),
            false => Scale::from_zero(right),
        };
        let frame = Frame {
            x: Axis::new(x, Quantity::Count, right, &self.x),
            y: Axis::new(Scale::from_zero(high), Quantity::Count, high, &self.y),
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
        let names: Vec<&str> = self.lines.iter().map(|line| line.name.as_str()).collect();
        let (legend, below) = legend(&names);
        let desc = format!(
            "{} against {}; {} lines, up to {}.",
            self.y,
            self.x,
            self.lines.len(),
            Quantity::Count.text(high)
        );
        let body = html! { (frame.draw(&[], &inner)) (legend) };
        Chart { name: "lines", title: self.title.clone(), desc, below, body }.titled(&self.title)
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
            plot.lines.clear();
            assert!(plot.svg().contains("asked"));
        }
    }

    #[test]
    fn sixteen_lines_look_different() {
        let looks: Vec<_> =
            looks().take(16).map(|look| (look.line, look.dot, look.square)).collect();
        for (number, look) in looks.iter().enumerate() {
            assert!(!looks[..number].contains(look), "{number}: {look:?}");
        }
    }
}
