//! The values that a plot draws: a table for people, for the pointer on the page, and for LaTeX.

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

/// Everything that a plot draws.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Values {
    pub(super) shape: Shape,
    /// Names of the columns with their units, as many as [`Shape::width`].
    pub(super) columns: Vec<String>,
    pub(super) series: Vec<Series>,
}

impl Values {
    pub(super) fn new(shape: Shape, columns: &[&str], series: Vec<Series>) -> Self {
        debug_assert_eq!(columns.len(), shape.width());
        Self { shape, columns: columns.iter().map(|name| (*name).to_owned()).collect(), series }
    }

    /// The rows of one series.
    pub(super) fn rows<'a>(&self, series: &'a Series) -> impl Iterator<Item = &'a [f64]> + use<'a> {
        series.numbers.chunks_exact(self.shape.width())
    }

    /// The table: `series` and the columns; a value that is missing is empty. Numbers of a column are all whole or all
    /// have a point, so that readers that look at some rows alone know its type.
    pub(super) fn csv(&self) -> String {
        let numbers = |column: usize| {
            let rows = self.series.iter().flat_map(|series| self.rows(series));
            rows.map(move |row| row[column]).filter(|value| value.is_finite())
        };
        let whole: Vec<bool> =
            (0..self.shape.width()).map(|column| numbers(column).all(is_whole)).collect();
        let names: Vec<String> = self.columns.iter().map(|name| cell(name)).collect();
        let mut text = format!("series,{}\n", names.join(","));
        for series in &self.series {
            let name = cell(&series.name);
            for row in self.rows(series) {
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
        })
    }
}

/// The number of a range in the list, which takes it up.
fn number_of(list: &mut Vec<[f64; 2]>, range: [f64; 2]) -> usize {
    let same = |known: &[f64; 2]| known.iter().zip(&range).all(|(a, b)| a.to_bits() == b.to_bits());
    // The last ones are the most likely.
    list.iter().rposition(same).unwrap_or_else(|| {
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
    let plain: String = text.chars().filter(|c| !c.is_control()).collect();
    let plain = if plain.starts_with(['=', '+', '-', '@']) { format!("'{plain}") } else { plain };
    if plain.contains(['"', ',', ';']) {
        format!("\"{}\"", plain.replace('"', "\"\""))
    } else {
        plain
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
            "series,time_ns,delay_ns\np99,0,1.5\np99,1000000000,\n\"'=a,\"\"b\"\"\",5,-2.0\n"
        );
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
