//! Maps: delay over time, lost packets by number, losses of flows over time.

use std::collections::{BTreeMap, BTreeSet};

use itg_stats::Report;
use itg_stats::plot::trace::row_range;
use itg_stats::plot::{Curves, Plots, Raster};
use itg_stats::report::FlowReport;
use maud::{Markup, html};

use crate::svg::axis::{Quantity, Scale, count};
use crate::svg::by_flow;
use crate::svg::chart::{Chart, Parts};
use crate::svg::frame::{Axis, Frame, LETTER, WIDTH, one};
use crate::svg::ink;
use crate::svg::over_time::BinnedSeries;
use crate::svg::values::{Series, Shades, Shape, Values};

/// Shades of a map.
const SHADES: usize = 8;
/// Rows of a delay's octave that are drawn as one.
const FOLD: i16 = 2;
/// Letters that the name of a row has room for.
const ROOM: usize = 7;
/// Cells in a line of the loss raster.
const LINE: usize = 128;

/// Shade of a share from 0 to 1.
fn shade(share: f64) -> usize {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 7")]
    let shade = (share.clamp(0.0, 1.0) * (SHADES as f64 - 0.001)) as usize;
    shade
}

/// The cells of each shade as one path.
fn shaded(class: &str, paths: &[String; SHADES]) -> Markup {
    html! {
        @for (shade, d) in paths.iter().enumerate().filter(|(_, d)| !d.is_empty()) {
            path class=(class) fill=(ink::of(class).fill) fill-opacity=(opacity(shade)) d=(d) {}
        }
    }
}

fn opacity(shade: usize) -> String {
    format!("{:.2}", 0.13 + 0.87 * shade as f64 / (SHADES - 1) as f64)
}

/// Key of the shades, at the right above a plot.
fn scale_key(class: &str, shades: &Shades) -> Markup {
    let [low, high] = &shades.ends;
    let right = WIDTH - 14.0;
    let high_wide = LETTER * high.chars().count() as f64;
    let start = right - high_wide - 6.0 - 14.0 * SHADES as f64;
    html! {
        (ink::text("label end", (&one(start - 6.0), "14"), low))
        @for shade in 0..SHADES {
            rect class=(class) fill=(ink::of(class).fill) fill-opacity=(opacity(shade)) x=(one(start + 14.0 * shade as f64)) y="4" width="14" height="11" {}
        }
        (ink::text("label", (&one(right - high_wide), "14"), high))
    }
}

/// Packets by bin and band of rows.
fn counts(course: &BinnedSeries) -> BTreeMap<(usize, i16), u64> {
    let mut cells: BTreeMap<(usize, i16), u64> = BTreeMap::new();
    for (place, cell) in course.bins.cells().enumerate() {
        for &(row, count) in &cell.rows {
            let band = if row == 0 { 0 } else { row.signum() * ((row.abs() - 1) / FOLD + 1) };
            *cells.entry((place, band)).or_default() += count;
        }
    }
    cells
}

/// Delays above the origin at which a band begins and ends.
fn edges(band: i16) -> (i64, i64) {
    let row = |band: i16| band.signum() * ((band.abs() - 1) * FOLD + 1);
    match band {
        0 => row_range(0),
        1.. => (row_range(row(band)).0, row_range(row(band + 1)).0),
        _ => (row_range(row(band - 1)).1, row_range(row(band)).1),
    }
}

pub(super) fn delay(curves: &Curves, of: &str) -> Option<Chart> {
    let course = BinnedSeries::of(curves)?;
    let cells = counts(&course);
    let low = cells.keys().map(|key| key.1).min()?;
    let high = cells.keys().map(|key| key.1).max()?;
    let most = *cells.values().max()? as f64;
    // Delays of clocks that disagree lie on both sides of 0: their axis shows the rows as they are.
    let mirrored = low < 0;
    let (bottom, top) = (edges(low).0 as f64, edges(high).1 as f64);
    let bottom = if low == 0 { 512.0 } else { bottom };
    let label = match curves.origin_ns {
        0 => "delay".to_owned(),
        origin => format!("delay above {}", Quantity::Time.text(origin as f64)),
    };
    let y = if mirrored {
        let middle = (0, (f64::from(0), "0 s".to_owned()));
        let row = |band: i16| (f64::from(band), Quantity::Time.text(rounded(edges(band).0 as f64)));
        let rows = (low..=high).filter(|band| *band != 0).map(|band| (band, row(band)));
        let ticks: Vec<(String, f64)> =
            [middle].into_iter().chain(rows).map(|(_, (at, text))| (text, at + 0.5)).collect();
        Axis::with_ticks(Scale::linear(f64::from(low), f64::from(high) + 1.0), &label, &ticks)
    } else {
        Axis::new(Scale::log(bottom, top), Quantity::Time, top, &label)
    };
    let frame = Frame { x: course.axis(), y };
    let shades = Shades {
        darkest: most,
        log: true,
        ends: ["1".to_owned(), format!("{} packets", Quantity::Count.text(most))],
    };
    let delays = |band: i16| {
        let (from, to) = edges(band);
        (if band == 0 && !mirrored { bottom } else { from as f64 }, to as f64)
    };
    let drawn = |band: i16| match mirrored {
        true => (f64::from(band), f64::from(band) + 1.0),
        false => delays(band),
    };
    let mut paths: [String; SHADES] = Default::default();
    let mut numbers = Vec::new();
    for (&(place, band), &count) in &cells {
        let (time, span) = (course.span(place), drawn(band));
        paths[shade(shades.at(count as f64))].push_str(&frame.cell(time, span));
        numbers.extend([time.0, time.1, span.0, span.1, count as f64]);
    }
    // Rows, or delays above the origin: the values are delays.
    let origin = curves.origin_ns as f64;
    let as_drawn = !mirrored && curves.origin_ns == 0;
    let bands: BTreeSet<i16> = cells.keys().map(|key| key.1).filter(|_| !as_drawn).collect();
    let stand_for = bands.into_iter().map(|band| {
        let (from, to) = delays(band);
        [drawn(band).into(), [from + origin, to + origin]]
    });
    let stand_for = stand_for.collect();
    let inner = html! { (shaded("b1", &paths)) (scale_key("b1", &shades)) };
    let columns = ["time_from_ns", "time_to_ns", "delay_from_ns", "delay_to_ns", "packets"];
    let series = vec![Series { name: "packets".to_owned(), class: "b1", numbers }];
    let chart = Parts {
        name: "heat",
        title: "Delay over time, as a map".to_owned(),
        desc: format!(
            "How many packets of {of} had which delay when, in {}; darker is more, on a logarithmic \
             scale up to {} packets.",
            course.bin(),
            Quantity::Count.text(most)
        ),
        values: Values {
            shades: Some(shades),
            stand_for,
            ..Values::new(Shape::Cells, &columns, series)
        },
        legend: Vec::new(),
        frame,
        inner,
    };
    Some(chart.into())
}

/// Two digits of a value.
fn rounded(value: f64) -> f64 {
    format!("{value:.1e}").parse().unwrap_or(value)
}

pub(super) fn raster(raster: &Raster) -> Option<Chart> {
    let lost: u64 = raster.lost.iter().sum();
    if lost == 0 {
        return None;
    }
    let lines = raster.lost.len().div_ceil(LINE);
    let per_line = raster.numbers as f64 * LINE as f64;
    let frame = Frame {
        x: Axis::new(Scale::linear(0.0, per_line), Quantity::Count, per_line, "packet in its line"),
        y: Axis::new(
            Scale::linear(0.0, lines as f64 * per_line),
            Quantity::Count,
            lines as f64 * per_line,
            "packet number",
        ),
    };
    let cells = raster.lost.len();
    let mut paths: [String; SHADES] = Default::default();
    let mut calm = String::new();
    let mut numbers = Vec::new();
    for (place, &lost) in raster.lost.iter().enumerate() {
        let (line, column) = ((place / LINE) as f64, (place % LINE) as f64);
        let of = if place + 1 == cells { raster.in_last } else { raster.numbers };
        if column < 0.5 {
            let here = (cells - place).min(LINE) as f64 * raster.numbers as f64;
            calm.push_str(&frame.cell((0.0, here), (line * per_line, (line + 1.0) * per_line)));
        }
        if lost > 0 {
            let x = (column * raster.numbers as f64, (column + 1.0) * raster.numbers as f64);
            let y = (line * per_line, (line + 1.0) * per_line);
            let share = lost as f64 / of.max(1) as f64;
            paths[shade(share)].push_str(&frame.cell(x, y));
            numbers.extend([x.0, x.1, y.0, y.1, share]);
        }
    }
    let each = if raster.numbers == 1 {
        "each cell is one packet".to_owned()
    } else {
        format!("each cell is {} packets", count(raster.numbers))
    };
    let shades = Shades::of_shares(1.0, "100 % lost".to_owned());
    let inner = html! {
        (ink::path("calm", &calm, None))
        (shaded("b2", &paths))
        (scale_key("b2", &shades))
    };
    let columns = ["column_from", "column_to", "packet_from", "packet_to", "lost_share"];
    let series = vec![Series { name: "packets lost".to_owned(), class: "b2", numbers }];
    let chart = Parts {
        name: "raster",
        title: "Loss raster".to_owned(),
        desc: format!(
            "Lost packets by number, in lines of {} from the bottom up; {each}; {} were lost.",
            count(raster.numbers * LINE as u64),
            count(lost)
        ),
        values: Values { shades: Some(shades), ..Values::new(Shape::Cells, &columns, series) },
        legend: Vec::new(),
        frame,
        inner,
    };
    Some(chart.into())
}

/// Losses of flows: a row for each, from the top down in the order of the report.
pub(super) fn loss_by_flow(report: &Report, plots: &Plots) -> Option<Chart> {
    let course_bins = &plots.total.bins;
    let many = course_bins.cells().len();
    let fold = many.div_ceil(170).max(1);
    let length = many as f64 * course_bins.bin_ns() as f64;
    let rows = plots.losses.len();
    let flows: Vec<&FlowReport> =
        plots.losses.iter().filter_map(|row| report.flows.get(row.place)).collect();
    let names = by_flow::names(&flows);
    // Names are the better labels, if they have room.
    let named = names.iter().all(|name| name.chars().count() <= ROOM);
    let ticks: Vec<(String, f64)> = flows
        .iter()
        .zip(&names)
        .enumerate()
        .map(|(line, (flow, name))| {
            let name = if named { name.clone() } else { flow.flow.to_string() };
            (name, (rows - line) as f64 - 0.5)
        })
        .collect();
    let label = if named { "flow" } else { "number of the flow" };
    let frame = Frame {
        x: Axis::new(Scale::linear(0.0, length), Quantity::Time, length, "time"),
        y: Axis::with_ticks(Scale::linear(0.0, rows as f64), label, &ticks),
    };
    let mut paths: [String; SHADES] = Default::default();
    let mut worst = 0.0f64;
    for row in &plots.losses {
        for cells in row.cells.chunks(fold) {
            worst = worst.max(share_of(cells));
        }
    }
    let shades = Shades::of_shares(worst, format!("{} lost", Quantity::Share.text(worst)));
    let mut series = Vec::new();
    for (line, row) in plots.losses.iter().enumerate() {
        let mut numbers = Vec::new();
        let low = (rows - line - 1) as f64;
        for (place, cells) in row.cells.chunks(fold).enumerate() {
            let share = share_of(cells);
            if share > 0.0 {
                let bin = fold as f64 * course_bins.bin_ns() as f64;
                let x = (place as f64 * bin, ((place + 1) as f64 * bin).min(length));
                paths[shade(shades.at(share))].push_str(&frame.cell(x, (low + 0.06, low + 0.94)));
                numbers.extend([x.0, x.1, low, low + 1.0, share]);
            }
        }
        let name = names.get(line).cloned().unwrap_or_default();
        series.push(Series { name, class: "b2", numbers });
    }
    let inner = html! {
        (shaded("b2", &paths))
        (scale_key("b2", &shades))
    };
    let columns = ["time_from_ns", "time_to_ns", "row_from", "row_to", "lost_share"];
    let chart = Parts {
        name: "flow-loss",
        title: "Loss of flows over time".to_owned(),
        desc: format!(
            "The {rows} flows that lost most, one row each; darker is a larger share of packets lost, \
             at most {}.",
            Quantity::Share.text(worst)
        ),
        values: Values { shades: Some(shades), ..Values::new(Shape::Cells, &columns, series) },
        legend: Vec::new(),
        frame,
        inner,
    };
    Some(chart.into())
}

fn share_of(cells: &[(u64, u64)]) -> f64 {
    let lost: u64 = cells.iter().map(|cell| cell.0).sum();
    let arrived: u64 = cells.iter().map(|cell| cell.1).sum();
    lost as f64 / lost.saturating_add(arrived).max(1) as f64
}

#[cfg(test)]
mod tests {
    use itg_stats::plot::bins::TimeBins;
    use itg_stats::plot::trace::Cell;

    use super::*;

    /// Packets with delays in these rows.
    fn curves(rows: &[i16], origin_ns: i64) -> Curves {
        let mut bins = TimeBins::<Cell>::new(512);
        let cell = bins.at(1_800_000_000_000_000_000);
        cell.window.packets = rows.len() as u64;
        cell.rows = rows.iter().map(|row| (*row, 1)).collect();
        let [delay, jitter, lateness] = [(); 3].map(|()| Vec::new());
        Curves { bins, losses_known: true, origin_ns, delay, delay_marks: [0; 2], jitter, lateness }
    }

    #[test]
    fn values_of_a_map_are_delays_whatever_the_rows_are() {
        let (low, high) = (row_range(-17), row_range(33));
        for origin_ns in [0, -5_000_000] {
            let chart = delay(&curves(&[-17, 0, 33], origin_ns), "flow 1").expect("a map");
            let csv = chart.csv();
            let mut lines = csv.lines();
            assert_eq!(
                lines.next(),
                Some("series,time_from_ns,time_to_ns,delay_from_ns,delay_to_ns,packets")
            );
            let rows: Vec<[i64; 2]> = lines
                .map(|line| {
                    let cells: Vec<i64> =
                        line.split(',').skip(1).map(|cell| cell.parse().expect(&csv)).collect();
                    [cells[2], cells[3]]
                })
                .collect();
            // Rows are drawn in pairs; none reaches into another, and each holds its delay.
            assert_eq!(rows.len(), 3, "{csv}");
            assert!(rows.windows(2).all(|pair| pair[0][1] <= pair[1][0]), "{csv}");
            assert!(rows[0][0] <= low.0 + origin_ns && rows[0][1] >= low.1 + origin_ns, "{csv}");
            assert!(rows[2][0] <= high.0 + origin_ns && rows[2][1] >= high.1 + origin_ns, "{csv}");
            // The page draws rows and says delays.
            let json = chart.values.json(&chart.frame);
            assert_eq!(json["meant"][0], serde_json::json!(rows[0].map(|ns| ns as f64)));
            assert_ne!(json["meant"], json["ys"]);
        }
        let plain = delay(&curves(&[17, 33], 0), "flow 1").expect("a map");
        assert!(plain.values.json(&plain.frame)["meant"].is_null());
    }

    #[test]
    fn latex_has_the_shades_of_the_drawing_and_their_key() {
        let lost = Raster { numbers: 100, lost: vec![0, 10, 0, 50], in_last: 100 };
        let tex = raster(&lost).expect("a raster").latex("flow 1");
        // 10 % and 50 % of a cell are shades 0 and 3 of 7, and not 1 and 7.
        for opacity in [opacity(0), opacity(3)] {
            let opacity: f64 = opacity.parse().expect("a number");
            assert!(tex.contains(&format!("fill opacity={opacity:.2}")), "{opacity}: {tex}");
        }
        assert_eq!(tex.matches("forget plot").count(), 2, "{tex}");
        for end in ["{0 \\%}", "{100 \\% lost}"] {
            assert!(tex.contains(&format!("\\addlegendentry{end}")), "{end}: {tex}");
        }
    }
}
