//! Gaps and sizes, asked against actual: quantiles, or the errors where one value was asked for.

use itg_stats::plot::curve::quantiles;
use itg_stats::plot::{Errors, Pair};
use maud::html;

use crate::svg::axis::{Quantity, Scale};
use crate::svg::bars::{Bars, spread};
use crate::svg::chart::{Chart, Parts};
use crate::svg::frame::{Axis, Frame, one};
use crate::svg::ink;
use crate::svg::legend::Entry;
use crate::svg::values::{Series, Shape, Values};

/// Property of packets that is compared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subject {
    /// Short name, for files.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// One of it.
    pub(super) one: &'static str,
    pub(super) quantity: Quantity,
    /// Its unit in names of columns.
    pub(super) unit: &'static str,
}

pub(super) const GAPS: Subject = Subject {
    name: "gaps",
    title: "Gaps between packets",
    one: "gap",
    quantity: Quantity::Time,
    unit: "ns",
};
pub(super) const SIZES: Subject = Subject {
    name: "sizes",
    title: "Sizes of packets",
    one: "size",
    quantity: Quantity::Size,
    unit: "bytes",
};

/// The plot that tells most; none where one value was asked for and all are it.
pub(super) fn and_actual(subject: Subject, pair: &Pair, of: &str) -> Option<Chart> {
    match &pair.errors {
        Some(errors) => self::errors(subject, errors, of),
        None => quantile_plot(subject, pair, of),
    }
}

/// Histogram of actual less asked, from the 0.5th to the 99.5th percentile.
fn errors(subject: Subject, errors: &Errors, of: &str) -> Option<Chart> {
    let Subject { quantity, unit, .. } = subject;
    let points = &errors.points;
    let (first, last) = (points.first()?, points.last()?);
    if first.low == 0 && last.high == 0 {
        return None;
    }
    let total: u64 = points.iter().map(|point| point.count).sum();
    let at = quantiles(points, 200);
    let (low, high) = (*at.get(1)? as f64, *at.get(at.len().checked_sub(2)?)? as f64);
    // What was asked for is always in the picture.
    let (low, high) = (low.min(0.0), high.max(0.0));
    let pad = (0.02 * (high - low)).max(1.0);
    let scale = Scale::linear(low - pad, high + pad);
    let mut bars = Bars::new(scale);
    let (left, right) = scale.ends();
    let mut beyond = 0;
    for point in points {
        if (point.high as f64) < left || point.low as f64 > right {
            beyond += point.count;
        } else {
            spread(&mut bars, point, point.count as f64 / total.max(1) as f64);
        }
    }
    let asked = quantity.text(errors.asked as f64);
    let label = format!("actual − asked {}, asked {asked}", subject.one);
    let x = Axis::new(scale, quantity, right.max(-left), &label);
    let note = (beyond > 0)
        .then(|| format!("{} beyond", Quantity::Share.text(beyond as f64 / total.max(1) as f64)));
    let columns = [format!("error_from_{unit}"), format!("error_to_{unit}")];
    let mut parts = bars.parts(x, [&columns[0], &columns[1]], of, note.as_deref());
    let zero = parts.frame.px(0.0);
    let line = format!("M{} 26V{}", one(zero), parts.frame.floor());
    parts.inner = html! { (parts.inner) (ink::path("ref", &line, Some("as asked"))) };
    parts.legend.push(Entry::line("ref", "as asked"));
    let top = parts.frame.y.scale.ends().1;
    parts.values = parts.values.guided("as asked", vec![0.0, 0.0, 0.0, top]);
    let parts = Parts {
        name: subject.name,
        title: format!("{}, actual less asked", subject.title),
        desc: format!(
            "{} of {of}: how far they are from the {asked} that each should be; half of them between {} and {}.",
            subject.title,
            quantity.text(at.get(at.len() / 4).copied().unwrap_or(0) as f64),
            quantity.text(at.get(3 * at.len() / 4).copied().unwrap_or(0) as f64),
        ),
        ..parts
    };
    Some(parts.into())
}

fn quantile_plot(subject: Subject, pair: &Pair, of: &str) -> Option<Chart> {
    let quantity = subject.quantity;
    let ends = |values: &[i64]| Some((*values.first()? as f64, *values.last()? as f64));
    let (a, b) = (ends(&pair.asked)?, ends(&pair.actual)?);
    let (low, high) = (a.0.min(b.0), a.1.max(b.1));
    // A single value stands in the middle.
    let (low, high) = if high > low { (low, high) } else { (0.9 * low - 1.0, 1.1 * high + 1.0) };
    let floor = if low > 0.0 { low } else { (high / 1e5).max(1.0) };
    let wide = high > 200.0 * floor && quantity == Quantity::Time;
    let scale =
        if wide { Scale::log(floor.max(high / 1e6), high) } else { Scale::fitting(low, high) };
    let scale = if !wide && scale.is_log() { Scale::linear(low, high) } else { scale };
    let frame = Frame {
        x: Axis::new(scale, quantity, high, &format!("{} asked", subject.one)),
        y: Axis::new(scale, quantity, high, &format!("actual {}", subject.one)),
    };
    let last = pair.asked.len().max(2) - 1;
    let at = |values: &[i64], share: f64| {
        let place = share * (values.len() - 1) as f64;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place")]
        let place = place.round() as usize;
        values[place.min(values.len() - 1)] as f64
    };
    let points: Vec<(f64, f64)> = (0..=last)
        .map(|k| k as f64 / last as f64)
        .map(|share| (at(&pair.asked, share), at(&pair.actual, share)))
        .collect();
    let dots: String = points
        .iter()
        .map(|&(x, y)| format!("M{} {}h4v4h-4z", one(frame.px(x) - 2.0), one(frame.py(y) - 2.0)))
        .collect();
    let diagonal = [(low.max(floor.min(high)), Some(low.max(floor.min(high)))), (high, Some(high))];
    let diagonal = if wide { diagonal } else { [(low, Some(low)), (high, Some(high))] };
    let inner = html! {
        (ink::path("ref", &frame.line(diagonal), None))
        (ink::path("b1", &dots, None))
    };
    let name = format!("{of}, {} quantiles", last + 1);
    let numbers = points.iter().flat_map(|&(x, y)| [x, y]).collect();
    let unit = subject.unit;
    let columns = [format!("asked_{unit}"), format!("actual_{unit}")];
    let series = vec![Series { name: of.to_owned(), class: "b1", numbers }];
    let parts = Parts {
        name: subject.name,
        title: format!("{}, asked and actual", subject.title),
        desc: format!(
            "{} of {name}: what was asked against what was sent, from {} to {}; on the dashed line both are \
             equal.",
            subject.title,
            quantity.text(low),
            quantity.text(high)
        ),
        values: Values::new(Shape::Dots, &[&columns[0], &columns[1]], series)
            .guided("equal", diagonal.iter().flat_map(|&(x, y)| [x, y.unwrap_or(x)]).collect()),
        legend: vec![Entry::square("b1", &name), Entry::line("ref", "equal")],
        frame,
        inner,
    };
    Some(parts.into())
}
