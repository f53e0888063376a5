//! The legend below a plot: a sign and a name for each of its shapes.

use maud::{Markup, html};

use crate::svg::frame::{HEIGHT, LETTER, WIDTH, one, short};
use crate::svg::ink;
use crate::svg::look::Look;

/// Width of the sign before a name.
const BEFORE: f64 = 32.0;
/// Height of a row.
const ROW: f64 = 17.0;
/// Left and right end.
const ENDS: (f64, f64) = (12.0, WIDTH - 8.0);

/// Sign before a name.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sign {
    /// A line of this class.
    Line(&'static str),
    /// A square of this class.
    Square(&'static str),
    /// A line with its points.
    Points(Look),
}

/// A sign and its name.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) sign: Sign,
    pub(super) name: String,
}

impl Entry {
    pub(super) fn line(class: &'static str, name: &str) -> Self {
        Self { sign: Sign::Line(class), name: name.to_owned() }
    }

    pub(super) fn square(class: &'static str, name: &str) -> Self {
        Self { sign: Sign::Square(class), name: name.to_owned() }
    }
}

impl Sign {
    fn draw(self, x: f64, y: f64) -> Markup {
        let line = |class| ink::path(class, &format!("M{} {}h22", one(x), one(y - 4.0)), None);
        match self {
            Self::Line(class) => line(class),
            Self::Square(class) => {
                ink::path(class, &format!("M{} {}h10v10h-10z", one(x + 6.0), one(y - 9.0)), None)
            }
            Self::Points(look) => {
                html! { (line(look.line)) (look.point((x + 11.0, y - 4.0), None)) }
            }
        }
    }
}

/// The names in rows below the plot, and the height of these. A name that is wider than a row is shortened; its title
/// has it whole.
pub(super) fn rows(entries: &[Entry]) -> (Markup, f64) {
    let (left, right) = ENDS;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few letters")]
    let most = ((right - left - BEFORE) / LETTER) as usize;
    let (mut x, mut row, mut placed) = (left, 0.0, Vec::new());
    for entry in entries {
        let name = short(&entry.name, most);
        let wide = BEFORE + LETTER * name.chars().count() as f64;
        if x > left && x + wide > right {
            (x, row) = (left, row + 1.0);
        }
        placed.push((x, HEIGHT + 12.0 + ROW * row, entry, name));
        x += wide + 8.0;
    }
    if placed.is_empty() {
        return (html! {}, 0.0);
    }
    let rows = html! {
        @for (x, y, entry, name) in &placed {
            g {
                title { (entry.name) }
                (entry.sign.draw(*x, *y))
                (ink::text("label", (&one(x + 27.0), &one(*y)), name))
            }
        }
    };
    (rows, ROW * (row + 1.0) + 4.0)
}
