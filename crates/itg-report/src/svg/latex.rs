//! A plot as code for pgfplots, so that it has the fonts of the paper that takes it.

use std::collections::BTreeMap;

use crate::svg::axis::digits;
use crate::svg::chart::Chart;
use crate::svg::frame::Axis;
use crate::svg::ink;
use crate::svg::values::{Series, Shape};

/// Ticks with words of their own, at most.
const TICKS: usize = 12;
/// Number of the darkest shade, from 0.
const LAST_SHADE: u8 = 7;

/// The drawing: one `tikzpicture` that holds its values, for `\input`.
pub(super) fn picture(chart: &Chart, title: &str) -> String {
    let (x, y) = (&chart.frame.x, &chart.frame.y);
    let one_line: String = title.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let mut text = format!(
        "% {one_line}\n% The preamble needs: \\usepackage{{pgfplots}} \\pgfplotsset{{compat=1.16}}\n\
         \\begin{{tikzpicture}}\n"
    );
    for (name, hex) in colours(chart) {
        text += &format!("\\definecolor{{{name}}}{{HTML}}{{{hex}}}\n");
    }
    text += "\\begin{axis}[width=\\linewidth, height=0.6\\linewidth, grid=major, grid style={black!12},\n";
    for (name, axis) in [("x", x), ("y", y)] {
        text += &side(name, axis);
    }
    text += "  legend style={font=\\small, draw=none, fill=none, at={(0.5,1.03)}, anchor=south, legend columns=4},\n";
    text += "  legend cell align=left]\n";
    for series in &chart.values.series {
        text += &plot(chart, series);
    }
    for guide in &chart.values.guides {
        text += &line(chart, guide, "");
        text += &format!("\\addlegendentry{{{}}}\n", escaped(&guide.name));
    }
    // All cells of a map are one thing, in shades of one colour.
    if let Some((first, shades)) = chart.values.series.first().zip(chart.values.shades.as_ref()) {
        for (shade, name) in [0, LAST_SHADE].into_iter().zip(&shades.ends) {
            text += &format!(
                "\\addlegendimage{{area legend, draw=none, fill={}, fill opacity={}}}\n\\addlegendentry{{{}}}\n",
                colour(first.class),
                opacity(shade),
                escaped(name)
            );
        }
    }
    text += "\\end{axis}\n\\end{tikzpicture}\n";
    match text.contains(LETTER) {
        true => text.replacen("\\begin{axis}", &format!("{LETTER_DEFINED}\\begin{{axis}}"), 1),
        false => text,
    }
}

/// The colours that the series need, by name.
fn colours(chart: &Chart) -> Vec<(String, String)> {
    let mut list: Vec<(String, String)> = Vec::new();
    for series in chart.values.series.iter().chain(&chart.values.guides) {
        let entry = (colour(series.class), hex(series.class).to_uppercase());
        if !list.contains(&entry) {
            list.push(entry);
        }
    }
    list
}

fn hex(class: &str) -> &'static str {
    let ink = ink::of(class);
    ink.stroke.unwrap_or(ink.fill).trim_start_matches('#')
}

fn colour(class: &str) -> String {
    format!("itg{}", hex(class).to_uppercase())
}

/// The options of one axis.
fn side(name: &str, axis: &Axis) -> String {
    let (low, high) = axis.scale.ends();
    let (divisor, _) = axis.unit();
    let mut text = format!("  {name}label={{{}}},", escaped(&axis.title_with_unit()));
    if axis.scale.is_log() {
        text += &format!(" {name}mode=log,");
    }
    text += &format!(" {name}min={}, {name}max={},", low / divisor, high / divisor);
    // No more than have room.
    let every = axis.named().len().div_ceil(TICKS).max(1);
    let named: Vec<&(f64, String)> = axis.named().iter().step_by(every).collect();
    if !named.is_empty() {
        let places: Vec<String> = named.iter().map(|(at, _)| (at / divisor).to_string()).collect();
        let words: Vec<String> =
            named.iter().map(|(_, text)| format!("{{{}}}", escaped(text))).collect();
        text += &format!(
            " {name}tick={{{}}}, {name}ticklabels={{{}}},",
            places.join(","),
            words.join(",")
        );
    }
    text + "\n"
}

/// A line with its dashes; `how` are more options.
fn line(chart: &Chart, series: &Series, how: &str) -> String {
    let point = at(chart);
    let dash = ink::of(series.class).dash.map_or_else(String::new, |dash| {
        let lengths: Vec<&str> = dash.split(' ').collect();
        let words = lengths.chunks(2).map(|pair| match pair {
            [on, off] => format!("on {on}pt off {off}pt"),
            _ => String::new(),
        });
        format!(", dash pattern={}", words.collect::<Vec<_>>().join(" "))
    });
    let mut text = format!(
        "\\addplot[color={}, thick, unbounded coords=jump{how}{dash}] coordinates {{\n",
        colour(series.class)
    );
    for row in series.numbers.chunks_exact(2) {
        text += &(point(row[0], row[1]) + "\n");
    }
    text + "};\n"
}

/// Coordinates in the units of the axes; what is not known is `nan`.
fn at(chart: &Chart) -> impl Fn(f64, f64) -> String {
    let (x, y) = (&chart.frame.x, &chart.frame.y);
    let (dx, dy) = (x.unit().0, y.unit().0);
    let (along, up) = (x.scale, y.scale);
    move |x, y| match y.is_finite() {
        true => format!("({},{})", along.drawn(x) / dx, up.drawn(y) / dy),
        false => format!("({},nan)", along.drawn(x) / dx),
    }
}

fn plot(chart: &Chart, series: &Series) -> String {
    let values = &chart.values;
    let colour = colour(series.class);
    let point = at(chart);
    let mut text = String::new();
    let rows = values.rows(series);
    match values.shape {
        Shape::Line => text += &line(chart, series, ""),
        Shape::Steps => text += &line(chart, series, ", const plot"),
        Shape::Dots => {
            text +=
                &format!("\\addplot[color={colour}, only marks, mark size=1pt] coordinates {{\n");
            text.extend(rows.map(|row| point(row[0], row[1]) + "\n"));
            text += "};\n";
        }
        Shape::Bars => {
            text += &format!("\\addplot[area legend, draw=none, fill={colour}] coordinates {{\n");
            let floor = chart.frame.y.scale.ends().0;
            for row in rows {
                for (x, y) in [(row[0], floor), (row[0], row[2]), (row[1], row[2]), (row[1], floor)]
                {
                    text += &point(x, y);
                }
                text.push('\n');
            }
            text += "} \\closedcycle;\n";
        }
        Shape::Cells => return cells(chart, series, &colour),
    }
    text + &format!("\\addlegendentry{{{}}}\n", escaped(&series.name))
}

fn opacity(shade: u8) -> String {
    digits(0.13 + 0.87 * f64::from(shade) / f64::from(LAST_SHADE))
}

/// The cells of a map, those of one shade at once.
fn cells(chart: &Chart, series: &Series, colour: &str) -> String {
    let values = &chart.values;
    let point = at(chart);
    let mut shades: BTreeMap<u8, String> = BTreeMap::new();
    for row in values.rows(series) {
        let part = values.shades.as_ref().map_or(1.0, |shades| shades.at(row[4]));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 7")]
        let shade = (part * (f64::from(LAST_SHADE) + 0.99)) as u8;
        let text = shades.entry(shade).or_default();
        for (x, y) in [(row[0], row[2]), (row[1], row[2]), (row[1], row[3]), (row[0], row[3])] {
            *text += &point(x, y);
        }
        *text += "(nan,nan)\n";
    }
    let mut text = String::new();
    for (shade, corners) in shades {
        let opacity = opacity(shade);
        text += &format!(
            "\\addplot[draw=none, fill={colour}, fill opacity={opacity}, unbounded coords=jump, forget plot] \
             coordinates {{\n{corners}}};\n"
        );
    }
    text
}

/// Digits above the line, by their values.
const SUPERSCRIPTS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
/// Command for a letter that pdfTeX lacks; there it is a question mark, unless the paper defines the command itself.
const LETTER: &str = "\\itgletter";
const LETTER_DEFINED: &str =
    "\\providecommand\\itgletter[1]{\\ifdefined\\Umathchar#1\\else?\\fi}\n";
/// Letters of these blocks that LaTeX's first encoding of fonts, OT1, lacks.
const NOT_IN_OT1: &str = "«»ÐÞðþĄąĐđĘęĦħĮįĸĿŀŉŊŋŦŧŲųſ";

/// Returns true for letters that every engine has, with every font.
fn has_everywhere(c: char) -> bool {
    matches!(c, '\u{a1}'..='\u{17f}') && c != '\u{ad}' && !NOT_IN_OT1.contains(c)
}

/// A text for LaTeX, with every engine.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '#' | '$' | '%' | '&' | '_' | '{' | '}' => out.extend(['\\', c]),
            '\\' => out += "\\textbackslash{}",
            '~' => out += "\\textasciitilde{}",
            '^' => out += "\\textasciicircum{}",
            '<' => out += "$<$",
            '>' => out += "$>$",
            '|' => out += "$|$",
            '≤' => out += "$\\leq$",
            '−' | '\u{2013}' => out += "$-$",
            'µ' | 'μ' => out += "$\\mu$",
            '…' => out += "\\dots{}",
            '→' => out += "$\\rightarrow$",
            '·' => out += "$\\cdot$",
            '\u{202f}' => out += "\\,",
            '⁻' => out += "\\textsuperscript{$-$}",
            c if SUPERSCRIPTS.contains(&c) => {
                let digit = SUPERSCRIPTS.iter().position(|of| *of == c).unwrap_or(0);
                out += &format!("\\textsuperscript{{{digit}}}");
            }
            c if c.is_control() || c.is_whitespace() => out.push(' '),
            c if c.is_ascii() || has_everywhere(c) => out.push(c),
            c => out += &format!("{LETTER}{{{c}}}"),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_is_taken_for_a_command() {
        assert_eq!(
            escaped("50 % of a_b\\{$}#~^&\n<|> ≤ µs"),
            "50 \\% of a\\_b\\textbackslash{}\\{\\$\\}\\#\\textasciitilde{}\\textasciicircum{}\\& \
             $<$$|$$>$ $\\leq$ $\\mu$s"
        );
        assert_eq!(
            escaped("čš з 10⁻⁴"),
            "čš \\itgletter{з} 10\\textsuperscript{$-$}\\textsuperscript{4}"
        );
    }
}
