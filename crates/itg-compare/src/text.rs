//! A comparison for people.

use std::fmt::Write;

use itg_core::units::{format_bit_rate, format_duration_ns};

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
    for pairing in comparison.flows.iter().chain([&comparison.total]) {
        let subject =
            pairing.flow.map_or_else(|| "total".to_owned(), |flow| format!("flow {flow}"));
        for figure in &pairing.figures {
            match figure.clear {
                Some(true) => out.push_str(&format!("{subject}: {}\n", changed(figure))),
                Some(false) => same += 1,
                None => untold += u64::from(figure.a.is_some() || figure.b.is_some()),
            }
        }
    }
    out.push_str(&format!(
        "{same} figures do not differ within their intervals; {untold} have no interval; all of them: -v\n"
    ));
    for (name, list) in [("A", &comparison.only_a), ("B", &comparison.only_b)] {
        if !list.is_empty() {
            let list: Vec<_> = list.iter().map(u32::to_string).collect();
            out.push_str(&format!("only in {name}: flows {}\n", list.join(", ")));
        }
    }
    comparison.notices.iter().for_each(|notice| out.push_str(&format!("note: {notice}\n")));
    out
}

/// A difference that its interval tells.
fn changed(figure: &Difference) -> String {
    let text = |value: Option<f64>| cell(figure, value);
    let relative = figure.relative.map(|relative| format!(" ({:+.1} %)", 100.0 * relative));
    let interval = figure.interval.map(|ends| ends.map(|end| figure.text(end)).join(" to "));
    format!(
        "{}: {}, then {}{}; B - A {}",
        figure.metric,
        text(figure.a),
        text(figure.b),
        relative.unwrap_or_default(),
        interval.unwrap_or_default()
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
            let list: Vec<_> = list.iter().map(u32::to_string).collect();
            writeln!(out, "\nOnly in {name}: flows {}", list.join(", "))?;
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
        let text = |value: Option<f64>| cell(figure, value);
        let relative = figure
            .relative
            .map_or_else(|| "-".to_owned(), |relative| format!("{:+.2} %", 100.0 * relative));
        let interval = figure.interval.map_or_else(String::new, |[low, high]| {
            let star = if figure.clear == Some(true) { " *" } else { "" };
            format!("{} to {}{star}", text(Some(low)), text(Some(high)))
        });
        let line = format!(
            "{:<14}{:>20}{:>20}{:>20}{relative:>11}  {interval}",
            figure.metric,
            text(figure.a),
            text(figure.b),
            text(figure.difference)
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

pub(crate) fn cell(figure: &Difference, value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| figure.text(value))
}

impl Difference {
    /// A value of this figure with its unit.
    #[must_use]
    pub fn text(&self, value: f64) -> String {
        match self.unit {
            "ns" => {
                #[allow(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "conversions saturate"
                )]
                let ns = value.abs().round() as u64;
                // To five digits, as far as that makes it shorter.
                let grain = 10u64.pow(ns.max(1).ilog10().saturating_sub(4));
                let sign = if value < 0.0 && ns > 0 { "-" } else { "" };
                format!("{sign}{}", format_duration_ns((ns + grain / 2) / grain * grain))
            }
            "bit/s" => format_bit_rate(value),
            "1" => format!("{:.4} %", 100.0 * value),
            unit => format!("{value:.2} {unit}"),
        }
    }
}
