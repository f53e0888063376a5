//! A figure of a sweep against a variable: means with whiskers over the 95 % interval.

use itg_compare::sweep::{Cell, Row, Table};
use itg_core::units::{Rate, parse_bytes, parse_duration_ns};
use itg_stats::gate::Kind;
use maud::html;

use crate::svg::axis::{Quantity, Scale};
use crate::svg::chart::{Chart, Parts};
use crate::svg::frame::{Axis, Frame, one};
use crate::svg::ink;
use crate::svg::legend::{Entry, Sign};
use crate::svg::look::looks;
use crate::svg::values::{Series, Shape, Values};

/// Lines that one plot can show; others are left out, and that is said.
const MOST_LINES: usize = 8;
/// Half the width of the end of a whisker.
const CAP: f64 = 4.0;

/// The plots of a sweep by the names of their metrics; none when there are not two values to tell apart.
pub(crate) fn charts(table: &Table) -> Vec<(String, Chart)> {
    let Some(abscissa) = Abscissa::of(table) else { return Vec::new() };
    let metrics = table.metrics.iter().enumerate();
    let charts = metrics.filter_map(|(place, metric)| {
        let chart = draw(table, &abscissa, place, &metric.name, metric.kind)?;
        Some((metric.name.clone(), chart))
    });
    charts.collect()
}

/// The variable that the plots go along: the first one with most values.
struct Abscissa {
    name: String,
    /// As written, in the order of their places.
    ticks: Vec<(String, f64)>,
    scale: Scale,
}

impl Abscissa {
    fn of(table: &Table) -> Option<Self> {
        let mut best: Option<(&String, Vec<String>)> = None;
        for name in &table.variables {
            let mut values: Vec<String> = Vec::new();
            for row in &table.cases {
                if let Some(value) = row.values.get(name).filter(|value| !values.contains(value)) {
                    values.push(value.clone());
                }
            }
            if values.len() > best.as_ref().map_or(1, |(_, most)| most.len()) {
                best = Some((name, values));
            }
        }
        let (name, values) = best?;
        // Where all values are quantities their distances count, else each has one step.
        let numbers: Option<Vec<f64>> = values.iter().map(|value| quantity(value)).collect();
        let places = numbers.unwrap_or_else(|| (0..values.len()).map(|k| k as f64).collect());
        let low = places.iter().copied().fold(f64::INFINITY, f64::min);
        let high = places.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let pad = 0.08 * (high - low);
        // The whole range is used, with room for whiskers at both ends.
        let scale = match low > 0.0 && high >= 20.0 * low {
            true => Scale::log(low / (high / low).powf(0.08), high * (high / low).powf(0.08)),
            false => Scale::linear(low - pad, high + pad),
        };
        let mut ticks: Vec<_> = values.into_iter().zip(places).collect();
        ticks.sort_by(|a, b| a.1.total_cmp(&b.1));
        Some(Self { name: name.clone(), ticks, scale })
    }

    fn place(&self, row: &Row) -> Option<f64> {
        let value = row.values.get(&self.name)?;
        self.ticks.iter().find(|(text, _)| text == value).map(|(_, at)| *at)
    }
}

/// A value as a number: a plain one, a rate, a time or a size.
fn quantity(text: &str) -> Option<f64> {
    if let Ok(number) = text.parse::<f64>() {
        return Some(number).filter(|number| number.is_finite());
    }
    if let Ok(rate) = text.parse::<Rate>() {
        return Some(match rate {
            Rate::Bits(bits) => bits.0 as f64,
            Rate::Packets(packets) => packets,
        });
    }
    let time = parse_duration_ns(text).map(|ns| ns as f64).ok();
    time.or_else(|| parse_bytes(text).map(|bytes| bytes.0 as f64).ok())
}

/// The rows of a line: those that agree in all variables but the abscissa.
struct Curve<'a> {
    name: String,
    points: Vec<(f64, &'a Cell)>,
}

fn lines<'a>(table: &'a Table, abscissa: &Abscissa, metric: usize) -> Vec<Curve<'a>> {
    let mut lines: Vec<Curve<'a>> = Vec::new();
    for row in &table.cases {
        let (Some(x), Some(cell)) = (abscissa.place(row), row.figures.get(metric)) else {
            continue;
        };
        if cell.mean.is_none() {
            continue;
        }
        let others = table.variables.iter().filter(|name| **name != abscissa.name);
        let others = others.filter_map(|name| Some(format!("{name}={}", row.values.get(name)?)));
        let name = others.collect::<Vec<_>>().join(" ");
        match lines.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.push((x, cell)),
            None => lines.push(Curve { name, points: vec![(x, cell)] }),
        }
    }
    for line in &mut lines {
        line.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    lines
}

fn draw(
    table: &Table,
    abscissa: &Abscissa,
    place: usize,
    metric: &str,
    kind: Kind,
) -> Option<Chart> {
    let lines = lines(table, abscissa, place);
    let cells = || lines.iter().flat_map(|line| &line.points).map(|(_, cell)| *cell);
    let ends = |cell: &Cell| cell.ci95.or_else(|| cell.mean.map(|mean| [mean; 2]));
    let low = cells().filter_map(ends).map(|ends| ends[0]).reduce(f64::min)?;
    let high = cells().filter_map(ends).map(|ends| ends[1]).reduce(f64::max)?;
    let quantity = match kind {
        Kind::Time => Quantity::Time,
        Kind::Share => Quantity::Share,
        Kind::BitRate => Quantity::Rate,
        Kind::Size => Quantity::Size,
        Kind::PacketRate | Kind::Count | Kind::Number | Kind::Verdict | Kind::Word => {
            Quantity::Count
        }
    };
    let y = match low < 0.0 {
        true => Scale::linear(low * 1.05, high.max(0.0) * 1.05),
        false => Scale::from_zero(high),
    };
    let x = Axis::with_ticks(abscissa.scale, &abscissa.name, &abscissa.ticks);
    let frame = Frame { x, y: Axis::new(y, quantity, high.max(-low), metric) };
    let shown = &lines[..lines.len().min(MOST_LINES)];
    let body = html! {
        @for (line, look) in shown.iter().zip(looks()) {
            @let name = if line.name.is_empty() { metric } else { &line.name };
            @let means = line.points.iter().map(|(x, cell)| (*x, cell.mean));
            (ink::path(look.line, &frame.line(means), Some(name)))
            (ink::path(&format!("{} whisker", look.line), &whiskers(&frame, line), None))
            @for (x, cell) in &line.points {
                @let words = format!("{} {}, {} runs", line.name, cell.text(kind), cell.n);
                (look.point((frame.px(*x), frame.py(cell.mean.unwrap_or(0.0))), Some(&words)))
            }
        }
    };
    let name = |line: &Curve<'_>| match line.name.as_str() {
        "" => "mean of the runs, and its 95 % interval".to_owned(),
        name => name.to_owned(),
    };
    let named = shown.iter().zip(looks());
    let legend =
        named.clone().map(|(line, look)| Entry { sign: Sign::Points(look), name: name(line) });
    let series = named.map(|(line, look)| Series {
        name: name(line),
        class: look.line,
        numbers: line
            .points
            .iter()
            .flat_map(|(x, cell)| [*x, cell.mean.unwrap_or(f64::NAN)])
            .collect(),
    });
    let values = Values::new(Shape::Line, &[&abscissa.name, metric], series.collect());
    let left_out = lines.len() - shown.len();
    let title = format!("{metric} against {}", abscissa.name);
    let mut desc = format!(
        "Means over the repetitions of each case with 95 % intervals, from {} to {}; {} lines.",
        kind.text(low),
        kind.text(high),
        shown.len()
    );
    if left_out > 0 {
        desc += &format!(" {left_out} more lines are in the table only.");
    }
    let legend = legend.collect();
    Some(Parts { name: "sweep", title, desc, frame, values, legend, inner: body }.into())
}

fn whiskers(frame: &Frame, line: &Curve<'_>) -> String {
    let mut d = String::new();
    for (x, cell) in &line.points {
        let Some([low, high]) = cell.ci95 else { continue };
        let (x, low, high) = (frame.px(*x), frame.py(low), frame.py(high));
        for y in [low, high] {
            d.push_str(&format!("M{} {}h{}", one(x - CAP), one(y), 2.0 * CAP));
        }
        d.push_str(&format!("M{} {}V{}", one(x), one(low), one(high)));
    }
    d
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use itg_compare::sweep::{Run, Runs};
    use itg_stats::gate::Figure;

    use super::*;
    use crate::svg::frame::HEIGHT;

    /// Its values by variable, the delays of its runs.
    type Given<'a> = (&'a [(&'a str, &'a str)], &'a [f64]);

    fn table(cases: &[Given<'_>]) -> Table {
        let mut variables: Vec<String> = Vec::new();
        let runs = cases.iter().map(|(values, delays)| {
            for (name, _) in values.iter() {
                if !variables.iter().any(|known| known == name) {
                    variables.push((*name).to_owned());
                }
            }
            let values = values.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
            let runs = delays.iter().map(|d| Run {
                figures: BTreeMap::from([("delay.p99".to_owned(), Some(*d))]),
                ..Run::default()
            });
            Runs { case: "c".to_owned(), values, runs: runs.collect(), ..Runs::default() }
        });
        let runs = runs.collect();
        Table::new("x", &variables, &[Figure::parse("delay.p99").expect("known")], runs, false)
    }

    #[test]
    fn a_plot_has_a_whisker_where_there_is_an_interval() {
        let table = table(&[
            (&[("rate", "1Mbps"), ("size", "64")], &[1e6, 2e6, 3e6]),
            (&[("rate", "10Mbps"), ("size", "64")], &[5e6]),
            (&[("rate", "100Mbps"), ("size", "64")], &[7e6, 8e6]),
            (&[("rate", "1Mbps"), ("size", "1400")], &[4e6, 4e6]),
        ]);
        let charts = charts(&table);
        assert_eq!(charts.len(), 1);
        let svg = charts[0].1.file("x <&>");
        assert!(svg.contains("delay.p99 against rate, x &lt;&amp;&gt;"), "{svg}");
        for want in ["1Mbps", "10Mbps", "100Mbps", "size=64", "size=1400"] {
            assert!(svg.contains(want), "{want}: {svg}");
        }
        assert_eq!(
            svg.matches("<circle").count(),
            6,
            "a point for each case, and two in the legend"
        );
        // Three ends of each whisker; the single run has none.
        let whiskers: Vec<&str> = svg.split("whisker\"").skip(1).collect();
        let strokes = |text: &str| {
            let d = text.split(" d=\"").nth(1).and_then(|d| d.split('"').next());
            d.unwrap_or("").matches('M').count()
        };
        assert_eq!(whiskers.iter().map(|text| strokes(text)).collect::<Vec<_>>(), [6, 3]);
    }

    #[test]
    fn quantities_have_their_distances_and_words_one_step_each() {
        for (values, want) in [
            (["1Mbps", "10Mbps", "100Mbps"], [1e6, 1e7, 1e8]),
            (["5ms", "1s", "2s"], [5e6, 1e9, 2e9]),
            (["64", "512", "9"], [9.0, 64.0, 512.0]),
            (["udp", "tcp", "icmp"], [0.0, 1.0, 2.0]),
        ] {
            let cases: Vec<_> = values.map(|value| ([("v", value)], [1.0])).to_vec();
            let cases: Vec<Given<'_>> =
                cases.iter().map(|(values, delays)| (&values[..], &delays[..])).collect();
            let abscissa = Abscissa::of(&table(&cases)).expect("several values");
            let places: Vec<f64> = abscissa.ticks.iter().map(|(_, at)| *at).collect();
            assert_eq!(places, want, "{values:?}");
        }
    }

    /// The shapes and texts of a drawing, each as its tag with its attributes.
    fn tags(svg: &str) -> Vec<&str> {
        let tags = svg.split('<').skip(1).filter_map(|piece| piece.split('>').next());
        let drawn = |tag: &&str| {
            let name = tag.split([' ', '/']).next().unwrap_or("");
            ["path", "rect", "circle", "text", "line", "polyline", "ellipse"].contains(&name)
        };
        tags.filter(drawn).collect()
    }

    #[test]
    fn every_shape_has_its_colour_without_the_style() {
        let svg = charts(&table(&[
            (&[("rate", "1Mbps"), ("size", "64")], &[1e6, 2e6, 3e6]),
            (&[("rate", "2Mbps"), ("size", "1400")], &[5e6, 6e6]),
        ]))[0]
            .1
            .file("x");
        let tags = tags(&svg);
        assert!(tags.len() > 20, "{svg}");
        for tag in tags {
            let value = |name: &str| {
                let rest = tag.split_once(&format!(" {name}=\"")).map(|(_, rest)| rest);
                rest.and_then(|rest| rest.split('"').next())
            };
            let colour = |text: &str| text.len() == 7 && text.starts_with('#');
            let fill = value("fill").unwrap_or_else(|| panic!("no fill: {tag}"));
            assert!(fill == "none" || colour(fill), "{tag}");
            assert!(
                fill != "none" || value("stroke").is_some_and(colour),
                "nothing is seen: {tag}"
            );
        }
    }

    #[test]
    fn there_is_a_legend_however_long_its_names_are() {
        let long =
            ["a-name-of-sixty-letters-that-is-needed-to-tell-one-from-othe", &"z".repeat(200)];
        type Case<'a> = ([(&'a str, &'a str); 2], [f64; 1]);
        let mut cases: Vec<Case<'_>> = Vec::new();
        let others = ["p", "q", "r", "s", "t", "u"];
        for name in long.iter().copied().chain(others) {
            for rate in
                ["1Mbps", "2Mbps", "3Mbps", "4Mbps", "5Mbps", "6Mbps", "7Mbps", "8Mbps", "9Mbps"]
            {
                cases.push(([("rate", rate), ("how", name)], [1e6]));
            }
        }
        let cases: Vec<Given<'_>> = cases.iter().map(|(v, d)| (&v[..], &d[..])).collect();
        let svg = charts(&table(&cases))[0].1.file("x");
        let shown = |text: &str| svg.contains(&format!(">{text}</text>"));
        assert_eq!(long[0].len(), 60);
        assert!(shown(&format!("how={}", long[0])), "{svg}");
        let short = svg.split("how=zzz").find_map(|text| text.split_once("…</text>"));
        assert!(short.is_some_and(|(text, _)| text.chars().all(|c| c == 'z')), "{svg}");
        assert!(svg.contains(&format!("<title>how={}</title>", long[1])), "{svg}");
        for name in others {
            assert!(shown(&format!("how={name}")), "{name}: {svg}");
        }
        // The drawing is higher by the rows of its legend, and all of it is inside.
        let height: f64 = svg
            .split("viewBox=\"0 -28 520 ")
            .nth(1)
            .and_then(|t| t.split('"').next())
            .and_then(|t| t.parse().ok())
            .expect("a height");
        let lowest =
            svg.split(" y=\"").skip(1).filter_map(|t| t.split('"').next()?.parse::<f64>().ok());
        let lowest = lowest.fold(0.0, f64::max);
        assert!(lowest > HEIGHT && lowest < height - 28.0, "{lowest} of {height}");
    }

    #[test]
    fn without_two_values_there_is_no_plot() {
        assert!(charts(&table(&[(&[("rate", "1Mbps")], &[1e6])])).is_empty());
        assert!(charts(&table(&[(&[], &[1e6, 2e6])])).is_empty());
    }
}
