//! The rectangle that a plot is drawn into: axes, ticks, labels.

use maud::{Markup, html};

use crate::svg::axis::{Quantity, Scale, digits};
use crate::svg::ink;

/// Width of a plot, in the units of its drawing.
pub(super) const WIDTH: f64 = 520.0;
/// Height of a plot.
pub(super) const HEIGHT: f64 = 280.0;
const LEFT: f64 = 66.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 44.0;

/// One axis.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    pub(super) scale: Scale,
    quantity: Quantity,
    label: String,
    high: f64,
    /// Ticks with their own words.
    named: Vec<(f64, String)>,
}

/// Ticks with words of their own are at least this far from each other, as a share of the axis for each letter.
const LETTER: f64 = 0.0175;

impl Axis {
    /// An axis that reaches to `high`, which decides the unit.
    pub(super) fn new(scale: Scale, quantity: Quantity, high: f64, label: &str) -> Self {
        Self { scale, quantity, label: label.to_owned(), high, named: Vec::new() }
    }

    /// An axis whose ticks are these values, in this order, as they are written; one that has no room beside
    /// the one before it has no text.
    pub(super) fn with_ticks(scale: Scale, label: &str, values: &[(String, f64)]) -> Self {
        let mut free = f64::NEG_INFINITY;
        let named = values.iter().map(|(text, value)| {
            let text: String = text.chars().take(16).collect();
            let half = LETTER * (text.chars().count() as f64 + 1.0) / 2.0;
            let at = scale.at(*value);
            let fits = at - half >= free;
            if fits {
                free = at + half;
            }
            (*value, if fits { text } else { String::new() })
        });
        let named = named.collect();
        Self { scale, quantity: Quantity::Probability, label: label.to_owned(), high: 1.0, named }
    }

    /// Ticks with their texts; on a logarithmic axis each with its own unit.
    fn ticks(&self, wanted: f64) -> Vec<(f64, String)> {
        if !self.named.is_empty() {
            return self.named.clone();
        }
        let (divisor, _) = self.quantity.unit(self.high);
        let text = |tick: f64| {
            if self.scale.is_log() { self.quantity.text(tick) } else { digits(tick / divisor) }
        };
        self.scale.ticks(wanted).into_iter().map(|tick| (tick, text(tick))).collect()
    }

    fn title(&self) -> String {
        let (_, unit) = self.quantity.unit(self.high);
        if self.scale.is_log() || unit.is_empty() {
            self.label.clone()
        } else {
            format!("{} [{unit}]", self.label)
        }
    }
}

/// Two axes.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) x: Axis,
    pub(super) y: Axis,
}

impl Frame {
    /// From the left, in drawing units.
    pub(super) fn px(&self, value: f64) -> f64 {
        LEFT + self.x.scale.at(value) * (WIDTH - LEFT - RIGHT)
    }

    /// From the top, in drawing units.
    pub(super) fn py(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - self.y.scale.at(value) * (HEIGHT - TOP - BOTTOM)
    }

    /// Lower end of the plot from the top.
    pub(super) fn floor(&self) -> f64 {
        HEIGHT - BOTTOM
    }

    /// Axes and grid around `inner`, and what each line is.
    pub(super) fn draw(&self, legend: &[(&str, &str)], inner: &Markup) -> Markup {
        let xs = self.x.ticks(6.0);
        let ys = self.y.ticks(5.0);
        let (right, floor) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        html! {
            (ink::path("grid", &self.grid(&xs, &ys), None))
            @for (tick, text) in &xs {
                (ink::text("mid", (&one(self.px(*tick)), &one(floor + 16.0)), text))
            }
            @for (tick, text) in &ys {
                (ink::text("end", (&one(LEFT - 6.0), &one(self.py(*tick) + 4.0)), text))
            }
            (inner)
            (ink::path("frame", &format!("M{LEFT} {TOP}V{floor}H{right}"), None))
            (ink::text("mid", (&one((LEFT + right) / 2.0), &one(HEIGHT - 8.0)), &self.x.title()))
            (ink::text("", ("4", "14"), &self.y.title()))
            (key(legend))
        }
    }

    fn grid(&self, xs: &[(f64, String)], ys: &[(f64, String)]) -> String {
        let mut d = String::new();
        for (tick, _) in xs {
            d.push_str(&format!("M{} {TOP}V{}", one(self.px(*tick)), HEIGHT - BOTTOM));
        }
        for (tick, _) in ys {
            d.push_str(&format!("M{LEFT} {}H{}", one(self.py(*tick)), WIDTH - RIGHT));
        }
        d
    }

    /// A line through these values; it breaks where one is missing.
    pub(super) fn line(&self, points: impl IntoIterator<Item = (f64, Option<f64>)>) -> String {
        let mut d = String::new();
        let mut pen = 'M';
        for (x, y) in points {
            if let Some(y) = y {
                d.push_str(&format!("{pen}{} {}", one(self.px(x)), one(self.py(y))));
                pen = 'L';
            } else {
                pen = 'M';
            }
        }
        d
    }

    /// A rectangle between two corners, as a piece of a path.
    pub(super) fn cell(&self, x: (f64, f64), y: (f64, f64)) -> String {
        let (left, right) = (self.px(x.0), self.px(x.1));
        let (low, high) = (self.py(y.0), self.py(y.1));
        let (wide, tall) = ((right - left).max(0.6), (low - high).max(0.6));
        format!("M{} {}h{}v{}h-{}z", one(left), one(low - tall), one(wide), one(tall), one(wide))
    }
}

/// Names of lines, at the right above the plot.
fn key(legend: &[(&str, &str)]) -> Markup {
    let mut right = WIDTH - RIGHT;
    let mut places = Vec::new();
    for &(class, name) in legend.iter().rev() {
        let wide = 8.4 * name.chars().count() as f64 + 30.0;
        right -= wide;
        places.push((right, class, name));
    }
    html! {
        @for (x, class, name) in places.into_iter().rev() {
            (ink::path(class, &format!("M{} 10h18", one(x)), None))
            (ink::text("label", (&one(x + 22.0), "14"), name))
        }
    }
}

/// One digit after the point is a tenth of a pixel.
pub(super) fn one(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or_else(|| text.clone(), str::to_owned)
}
