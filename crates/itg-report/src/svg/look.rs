//! Looks of lines through points, told apart without colours too.

use maud::{Markup, html};

use crate::svg::frame::one;
use crate::svg::ink;

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
pub(super) fn looks() -> impl Iterator<Item = Look> + Clone {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_lines_look_different() {
        let looks: Vec<_> =
            looks().take(16).map(|look| (look.line, look.dot, look.square)).collect();
        for (number, look) in looks.iter().enumerate() {
            assert!(!looks[..number].contains(look), "{number}: {look:?}");
        }
    }
}
