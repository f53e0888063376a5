//! The rectangle that a plot is drawn into: axes, ticks, labels.

use maud::{Markup, html};
use serde_json::{Value, json};

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
/// Width of a letter at most in the mean, on a narrow page, where letters are larger.
pub(super) const LETTER: f64 = 7.3;
/// Height that a line of text takes.
const LINE: f64 = 15.0;

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

/// Most letters of a tick with words of its own, below the plot and beside it.
const TICK: [usize; 2] = [16, 7];

impl Axis {
    /// An axis that reaches to `high`, which decides the unit.
    pub(super) fn new(scale: Scale, quantity: Quantity, high: f64, label: &str) -> Self {
        Self { scale, quantity, label: label.to_owned(), high, named: Vec::new() }
    }

    /// An axis whose ticks are these values, as they are written.
    pub(super) fn with_ticks(scale: Scale, label: &str, values: &[(String, f64)]) -> Self {
        let named = values.iter().map(|(text, value)| (*value, text.clone())).collect();
        Self { scale, quantity: Quantity::Probability, label: label.to_owned(), high: 1.0, named }
    }

    /// Ticks that have words of their own, which are not numbers.
    pub(super) fn named(&self) -> &[(f64, String)] {
        &self.named
    }

    /// Divisor and name of the unit; names have none.
    pub(super) fn unit(&self) -> (f64, &'static str) {
        self.quantity.unit(self.high)
    }

    /// The label with the unit of the axis behind it.
    pub(super) fn title_with_unit(&self) -> String {
        match self.unit().1 {
            "" => self.label.clone(),
            unit => format!("{} [{unit}]", self.label),
        }
    }

    /// Facts of the axis for the script of the page.
    pub(super) fn facts(&self) -> Value {
        let (low, high) = self.scale.ends();
        json!({
            "label": self.label, "quantity": self.quantity.name(), "log": self.scale.is_log(),
            "low": low, "high": high, "names": self.named,
        })
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

    /// The label; ticks of a logarithmic axis have their units themselves.
    fn title(&self) -> String {
        if self.scale.is_log() { self.label.clone() } else { self.title_with_unit() }
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

    /// Axes and grid around `inner`.
    pub(super) fn draw(&self, inner: &Markup) -> Markup {
        let mut xs = self.x.ticks(6.0);
        let mut ys = self.y.ticks(5.0);
        apart(&mut xs, TICK[0], |tick, text| {
            (self.px(tick), LETTER * text.chars().count() as f64 + 6.0)
        });
        apart(&mut ys, TICK[1], |tick, _| (self.py(tick), LINE));
        let (right, floor) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        html! {
            (ink::path("grid", &self.grid(&xs, &ys), None))
            @for (tick, text) in xs.iter().filter(|(_, text)| !text.is_empty()) {
                (ink::text("mid", (&one(self.px(*tick)), &one(floor + 17.0)), text))
            }
            @for (tick, text) in ys.iter().filter(|(_, text)| !text.is_empty()) {
                (ink::text("end", (&one(LEFT - 6.0), &one(self.py(*tick) + 4.0)), text))
            }
            (inner)
            (ink::path("frame", &format!("M{LEFT} {TOP}V{floor}H{right}"), None))
            (ink::text("mid", (&one((LEFT + right) / 2.0), &one(HEIGHT - 8.0)), &self.x.title()))
            (ink::text("", ("4", "14"), &self.y.title()))
        }
    }

    /// Lines at the ticks; at named ones only where the name has room.
    fn grid(&self, xs: &[(f64, String)], ys: &[(f64, String)]) -> String {
        let mut d = String::new();
        let shown = |axis: &Axis, text: &str| axis.named.is_empty() || !text.is_empty();
        for (tick, _) in xs.iter().filter(|(_, text)| shown(&self.x, text)) {
            d.push_str(&format!("M{} {TOP}V{}", one(self.px(*tick)), HEIGHT - BOTTOM));
        }
        for (tick, _) in ys.iter().filter(|(_, text)| shown(&self.y, text)) {
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

/// Removes the texts of ticks that have no room beside others, of which the first one has it. `room` is the middle of a
/// text and the length that it takes.
fn apart(ticks: &mut [(f64, String)], most: usize, room: impl Fn(f64, &str) -> (f64, f64)) {
    let mut taken: Vec<(f64, f64)> = Vec::new();
    for (tick, text) in ticks {
        *text = short(text, most);
        let (at, long) = room(*tick, text);
        let (low, high) = (at - long / 2.0, at + long / 2.0);
        if taken.iter().any(|&(from, to)| low < to && from < high) {
            text.clear();
        } else if !text.is_empty() {
            taken.push((low, high));
        }
    }
}

/// A text of at most so many letters.
pub(super) fn short(text: &str, most: usize) -> String {
    match text.chars().count() > most {
        true => text.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

/// One digit after the point is a tenth of a pixel.
pub(super) fn one(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or_else(|| text.clone(), str::to_owned)
}
