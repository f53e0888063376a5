//! A comparison for people.

use std::fmt::Write;

use itg_core::text::flow_numbers;
use itg_core::units::format_bit_rate;
use itg_stats::summary::ROWS;

use crate::comparison::{Comparison, Difference, Pairing};

impl Comparison {
    /// For people: a line for each difference that its interval tells, and one for the figures that do not differ.
    #[must_use]
    pub fn to_lines(&self) -> String {
        lines(self)
    }

    /// For people, with all figures.
    #[must_use]
    pub fn to_text(&self) -> String {
        render(self)
    }
}

/// The text, with a newline at its end.
fn render(comparison: &Comparison) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _written: std::fmt::Result = write(&mut out, comparison);
    out
}

/// A line for each difference that its interval tells, and one for all that do not differ.
fn lines(comparison: &Comparison) -> String {
    let mut out = format!("A: {}\nB: {}\n", comparison.a, comparison.b);
    let (mut same, mut untold) = (0_u64, 0_u64);
    let mut differing = Vec::new();
    for pairing in comparison.flows.iter().chain([&comparison.total]) {
        for figure in &pairing.figures {
            match figure.clear {
                Some(true) => differing.push((pairing.flow, figure)),
                Some(false) => same += 1,
                None => untold += u64::from(figure.a.is_some() || figure.b.is_some()),
            }
        }
    }
    let least = least_shown(&differing);
    let mut left_out = 0_usize;
    for (flow, figure) in differing {
        match flow {
            None => out.push_str(&format!("total: {}\n", changed(figure))),
            Some(flow) if change(figure) >= least => {
                out.push_str(&format!("flow {flow}: {}\n", changed(figure)));
            }
            Some(_) => left_out += 1,
        }
    }
    if left_out > 0 {
        out.push_str(&format!("{left_out} smaller differences of flows: -v\n"));
    }
    out.push_str(&format!(
        "{same} figures do not differ within their intervals; {untold} have no interval; all of them: -v\n"
    ));
    for (name, list) in [("A", &comparison.only_a), ("B", &comparison.only_b)] {
        if !list.is_empty() {
            out.push_str(&format!("only in {name}: {}\n", flow_numbers(list)));
        }
    }
    comparison.notices.iter().for_each(|notice| out.push_str(&format!("note: {notice}\n")));
    out
}

/// Size of a change for the choice of those that are shown: its share of the value in A.
fn change(figure: &Difference) -> f64 {
    figure.relative.map_or(f64::INFINITY, f64::abs)
}

/// The least change of a flow that is shown, where there are more than [`ROWS`].
fn least_shown(differing: &[(Option<u32>, &Difference)]) -> f64 {
    let of_flows = differing.iter().filter(|(flow, _)| flow.is_some());
    let mut changes: Vec<f64> = of_flows.map(|(_, figure)| change(figure)).collect();
    changes.sort_by(|a, b| b.total_cmp(a));
    if changes.len() > ROWS { changes[ROWS - 1] } else { 0.0 }
}

/// A difference that its interval tells.
fn changed(figure: &Difference) -> String {
    let [low, high] = figure.interval.map_or([None; 2], |ends| ends.map(Some));
    let [a, b, low, high] = cells(figure, [figure.a, figure.b, low, high]);
    let relative = figure.relative.map(|relative| format!(" ({:+.1} %)", 100.0 * relative));
    format!(
        "{}: {a}, then {b}{}; B - A {low} to {high}",
        figure.metric,
        relative.unwrap_or_default()
    )
}

fn write(out: &mut String, comparison: &Comparison) -> std::fmt::Result {
    let Comparison { a, b, resampling, .. } = comparison;
    writeln!(out, "A: {a}\nB: {b}")?;
    writeln!(
        out,
        "Intervals: 95 %, circular block bootstrap, {} resamples, seed {}; * leaves 0 out",
        resampling.resamples, resampling.seed
    )?;
    for pairing in comparison.flows.iter().chain([&comparison.total]) {
        write_pairing(out, pairing)?;
    }
    for (name, list) in [("A", &comparison.only_a), ("B", &comparison.only_b)] {
        if !list.is_empty() {
            writeln!(out, "\nOnly in {name}: {}", flow_numbers(list))?;
        }
    }
    for notice in &comparison.notices {
        writeln!(out, "Note: {notice}")?;
    }
    Ok(())
}

fn write_pairing(out: &mut String, pairing: &Pairing) -> std::fmt::Result {
    match pairing.flow {
        Some(number) => writeln!(out, "\nFlow {number}")?,
        None => writeln!(out, "\nTotal")?,
    }
    writeln!(
        out,
        "{:<14}{:>20}{:>20}{:>20}{:>11}  95 % interval of B - A",
        "", "A", "B", "B - A", "relative"
    )?;
    for figure in &pairing.figures {
        let [low, high] = figure.interval.map_or([None; 2], |ends| ends.map(Some));
        let [a, b, difference, low, high] =
            cells(figure, [figure.a, figure.b, figure.difference, low, high]);
        let relative = figure
            .relative
            .map_or_else(|| "-".to_owned(), |relative| format!("{:+.2} %", 100.0 * relative));
        let star = if figure.clear == Some(true) { " *" } else { "" };
        let interval =
            figure.interval.map_or_else(String::new, |_| format!("{low} to {high}{star}"));
        let line = format!(
            "{:<14}{a:>20}{b:>20}{difference:>20}{relative:>11}  {interval}",
            figure.metric,
        );
        writeln!(out, "{}", line.trim_end())?;
    }
    if let Some(effect) = &pairing.delay {
        writeln!(
            out,
            "delay as a whole: KS distance {:.4}, Cliff's delta {:+.4} ({})",
            effect.ks, effect.cliffs_delta, effect.magnitude
        )?;
    }
    Ok(())
}

/// Values of a figure with their unit, all in the same one; a dash for what is not known.
pub(crate) fn cells<const N: usize>(figure: &Difference, values: [Option<f64>; N]) -> [String; N] {
    let most = values.iter().flatten().fold(0.0, |most: f64, value| most.max(value.abs()));
    values
        .map(|value| value.map_or_else(|| "-".to_owned(), |value| figure.text_beside(value, most)))
}

/// Units of times, from the largest: nanoseconds, the word, and the places of a nanosecond behind the point.
const TIMES: [(f64, &str, i32); 4] =
    [(1e9, "s", 9), (1e6, "ms", 6), (1e3, "us", 3), (1.0, "ns", 0)];
/// Digits of a time that mean something.
const DIGITS: i32 = 5;

/// A time in the unit of another one.
fn time_beside(ns: f64, most_ns: f64) -> String {
    let fits = |(unit, ..): &(f64, &str, i32)| most_ns >= *unit;
    let (unit, word, finest) = TIMES.into_iter().find(fits).unwrap_or(TIMES[3]);
    let value = ns.round() / unit;
    if value == 0.0 {
        return "0s".to_owned();
    }
    // From 0 to 9 behind the point.
    let places = f64::from(DIGITS - 1) - value.abs().log10().floor();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 9")]
    let places = places.clamp(0.0, f64::from(finest)) as usize;
    let text = format!("{value:.places$}");
    let text =
        if places > 0 { text.trim_end_matches('0').trim_end_matches('.') } else { text.as_str() };
    format!("{text}{word}")
}

impl Difference {
    /// A value of this figure with its unit.
    #[must_use]
    pub fn text(&self, value: f64) -> String {
        self.text_beside(value, value.abs())
    }

    /// A value in the unit in which another one of the same line is.
    fn text_beside(&self, value: f64, most: f64) -> String {
        match self.unit {
            "ns" => time_beside(value, most),
            "bit/s" => format_bit_rate(value),
            "1" => format!("{:.4} %", 100.0 * value),
            unit => format!("{value:.2} {unit}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::time_beside;

    #[test]
    fn times_of_a_line_have_one_unit() {
        for (ns, most, want) in [
            (-8575.0, 8575.0, "-8.575us"),
            (-749.0, 8575.0, "-0.749us"),
            (-3_449_812.0, 14_354_000.0, "-3.4498ms"),
            (14_354_000.0, 14_354_000.0, "14.354ms"),
            (0.2, 14_354_000.0, "0s"),
            (12.0, 12.0, "12ns"),
            (10_000_000.0, 10_000_000.0, "10ms"),
            (123_456_789_012.0, 123_456_789_012.0, "123.46s"),
        ] {
            assert_eq!(time_beside(ns, most), want, "{ns}");
        }
    }
}
