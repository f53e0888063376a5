//! The values that a plot draws: a table for people, for the pointer on the page, and for LaTeX.

use itg_core::text::table_cell;
use serde_json::{Value, json};

use crate::svg::frame::Frame;

/// Meaning of the columns of [`Values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// x and y, joined by straight lines.
    Line,
    /// x and y; y holds from x on.
    Steps,
    /// From x to x, and y.
    Bars,
    /// x and y, not joined.
    Dots,
    /// From x to x, from y to y, and a value.
    Cells,
}

impl Shape {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Line => "line",
            Self::Steps => "steps",
            Self::Bars => "bars",
            Self::Dots => "dots",
            Self::Cells => "cells",
        }
    }

    /// Numbers of a row.
    pub(super) fn width(self) -> usize {
        match self {
            Self::Line | Self::Steps | Self::Dots => 2,
            Self::Bars => 3,
            Self::Cells => 5,
        }
    }
}

/// One line of a plot, or one set of its bars, dots or cells.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Series {
    pub(super) name: String,
    /// Class of its shapes.
    pub(super) class: &'static str,
    /// Rows one behind the other; what is missing is not a number.
    pub(super) numbers: Vec<f64>,
}

/// Shades of the cells of a map.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shades {
    /// Value of the darkest.
    pub(super) darkest: f64,
    /// True if shades go by the logarithm.
    pub(super) log: bool,
    /// Meaning of the lightest and of the darkest.
    pub(super) ends: [String; 2],
}

impl Shades {
    /// Shades of shares up to this one.
    pub(super) fn of_shares(darkest: f64, end: String) -> Self {
        Self { darkest, log: false, ends: ["0 %".to_owned(), end] }
    }

    /// Place of a value from 0 to 1.
    pub(super) fn at(&self, value: f64) -> f64 {
        let share = match self.log {
            true => (1.0 + value).ln() / (1.0 + self.darkest).ln(),
            false => value / self.darkest,
        };
        share.clamp(0.0, 1.0)
    }
}

/// Everything that a plot draws.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Values {
    pub(super) shape: Shape,
    /// Names of the columns with their units, as many as [`Shape::width`].
    pub(super) columns: Vec<String>,
    pub(super) series: Vec<Series>,
    /// Lines to compare with, such as that on which two values are equal: x and y, no data.
    pub(super) guides: Vec<Series>,
    /// Shades of cells.
    pub(super) shades: Option<Shades>,
    /// Ranges of y in drawings that stand for another one, each with that; none where they are what they are.
    pub(super) stand_for: Vec<[[f64; 2]; 2]>,
}

impl Values {
    pub(super) fn new(shape: Shape, columns: &[&str], series: Vec<Series>) -> Self {
        debug_assert_eq!(columns.len(), shape.width());
        Self {
            shape,
            columns: columns.iter().map(|name| (*name).to_owned()).collect(),
            series,
            guides: Vec::new(),
            shades: None,
            stand_for: Vec::new(),
        }
    }

    /// Adds a line to compare with.
    pub(super) fn guided(mut self, name: &str, numbers: Vec<f64>) -> Self {
        self.guides.push(Series { name: name.to_owned(), class: "ref", numbers });
        self
    }

    /// The range that one in the drawing stands for.
    fn meant(&self, drawn: [f64; 2]) -> [f64; 2] {
        let known = self.stand_for.iter().find(|[of, _]| same(of, &drawn));
        known.map_or(drawn, |[_, range]| *range)
    }

    /// The rows of one series with the ranges that are meant.
    fn meant_rows(&self, series: &Series) -> impl Iterator<Item = Vec<f64>> {
        self.rows(series).map(|row| match *row {
            [a, b, from, to, value] => {
                let [from, to] = self.meant([from, to]);
                vec![a, b, from, to, value]
            }
            _ => row.to_vec(),
        })
    }

    /// The rows of one series.
    pub(super) fn rows<'a>(&self, series: &'a Series) -> impl Iterator<Item = &'a [f64]> + use<'a> {
        series.numbers.chunks_exact(self.shape.width())
    }

    /// The table: `series` and the columns; a value that is missing is empty. Numbers of a column are all whole or all
    /// have a point, so that readers that look at some rows alone know its type.
    pub(super) fn csv(&self) -> String {
        let numbers = |column: usize| {
            let rows = self.series.iter().flat_map(|series| self.meant_rows(series));
            rows.map(move |row| row[column]).filter(|value| value.is_finite())
        };
        let whole: Vec<bool> =
            (0..self.shape.width()).map(|column| numbers(column).all(is_whole)).collect();
        let names: Vec<String> = self.columns.iter().map(|name| cell(name)).collect();
        let mut text = format!("series,{}\n", names.join(","));
        for series in &self.series {
            let name = cell(&series.name);
            for row in self.meant_rows(series) {
                text += &name;
                for (value, whole) in row.iter().zip(&whole) {
                    text.push(',');
                    match (value.is_finite(), whole) {
                        (false, _) => {}
                        (true, true) => text += &value.to_string(),
                        (true, false) => text += &format!("{value:?}"),
                    }
                }
                text.push('\n');
            }
        }
        text
    }

    /// The values and axes for the script of the page. Cells name their ranges by number: a map has few.
    pub(super) fn json(&self, frame: &Frame) -> Value {
        let (mut xs, mut ys) = (Vec::new(), Vec::new());
        let series: Vec<Value> = self
            .series
            .iter()
            .map(|series| {
                let numbers: Vec<Value> = match self.shape {
                    Shape::Cells => self
                        .rows(series)
                        .flat_map(|row| {
                            let x = number_of(&mut xs, [row[0], row[1]]);
                            [json!(x), json!(number_of(&mut ys, [row[2], row[3]])), short(row[4])]
                        })
                        .collect(),
                    _ => series.numbers.iter().map(|value| short(*value)).collect(),
                };
                json!([series.name, numbers])
            })
            .collect();
        json!({
            "shape": self.shape.name(), "x": frame.x.facts(), "y": frame.y.facts(),
            "columns": self.columns, "series": series, "xs": xs, "ys": ys,
            "meant": match self.stand_for.is_empty() {
                true => Value::Null,
                false => ys.iter().map(|range| json!(self.meant(*range))).collect(),
            },
        })
    }
}

fn same(a: &[f64; 2], b: &[f64; 2]) -> bool {
    a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
}

/// The number of a range in the list, which takes it up.
fn number_of(list: &mut Vec<[f64; 2]>, range: [f64; 2]) -> usize {
    // The last ones are the most likely.
    list.iter().rposition(|known| same(known, &range)).unwrap_or_else(|| {
        list.push(range);
        list.len() - 1
    })
}

fn is_whole(value: f64) -> bool {
    value.fract().abs() < f64::EPSILON && value.abs() < 1e15
}

/// A number of at most seven digits, or a whole one.
fn short(value: f64) -> Value {
    if !value.is_finite() {
        return Value::Null;
    }
    if is_whole(value) {
        #[expect(clippy::cast_possible_truncation, reason = "a whole number below 10¹⁵")]
        let whole = value as i64;
        return json!(whole);
    }
    json!(format!("{value:.6e}").parse::<f64>().unwrap_or(value))
}

/// A text as a cell of CSV; a spreadsheet takes none for a formula.
fn cell(text: &str) -> String {
    let shown = table_cell(text);
    if shown.contains(['"', ',', ';']) {
        format!("\"{}\"", shown.replace('"', "\"\""))
    } else {
        shown.into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_row_for_each_point_and_nothing_where_nothing_is_known() {
        let series = |name: &str, numbers: &[f64]| Series {
            name: name.to_owned(),
            class: "l1",
            numbers: numbers.to_vec(),
        };
        let values = Values::new(
            Shape::Line,
            &["time_ns", "delay_ns"],
            vec![series("p99", &[0.0, 1.5, 1e9, f64::NAN]), series("=a,\"b\"\n", &[5.0, -2.0])],
        );
        assert_eq!(
            values.csv(),
            "series,time_ns,delay_ns\np99,0,1.5\np99,1000000000,\n\"'=a,\"\"b\"\"\\n\",5,-2.0\n"
        );
    }

    #[test]
    fn no_name_is_a_formula_and_what_is_not_seen_is_shown() {
        for (name, want) in [
            ("flow 1", "flow 1"),
            (" =HYPERLINK(1)", "' =HYPERLINK(1)"),
            ("\u{a0}@x", "'\u{a0}@x"),
            ("a\tb\u{202e}", "a\\tb\\u202e"),
            ("a;\"b\"", "\"a;\"\"b\"\"\""),
        ] {
            assert_eq!(cell(name), want);
        }
    }

    #[test]
    fn numbers_of_the_page_are_short() {
        for (value, want) in
            [(3.0, "3"), (1.0 / 3.0, "0.3333333"), (f64::NAN, "null"), (-7e12, "-7000000000000")]
        {
            assert_eq!(short(value).to_string(), want);
        }
    }
}
