//! The table of flows: `--format csv`, and the numbers of `--format octave`.

use std::io::Write;

use itg_core::text::table_cell;
use itg_stats::kind::Kind;
use itg_stats::metric::{METRICS, Metric};
use itg_stats::report::{FlowReport, Report};

/// Value that a cell of a table may hold.
pub(crate) trait Cell {
    /// The value as text. A fraction always has its point, so that readers that look at some rows alone do not take the
    /// column for whole numbers.
    fn text(&self) -> String;
}

impl Cell for f64 {
    fn text(&self) -> String {
        format!("{self:?}")
    }
}

macro_rules! as_they_are {
    ($($kind:ty),*) => { $(impl Cell for $kind {
        fn text(&self) -> String {
            self.to_string()
        }
    })* };
}
as_they_are!(u32, u64, i64, &str, &String);

/// A figure, or nothing where it is not known.
pub(crate) fn cell<T: Cell>(value: Option<T>) -> String {
    value.map_or_else(String::new, |value| value.text())
}

/// Value of a flow; empty where it is not known.
type Value = fn(&FlowReport) -> String;

/// A column.
enum Column {
    /// A row of the table of metrics.
    Metric(&'static Metric),
    /// One beside the metrics: its name, which is the key of the JSON, nested ones joined by `_` and the unit last; and
    /// what a flow has there.
    Own(&'static str, Value),
}

/// Columns beside the metrics, each with the column behind which it stands.
const OWN: [(&str, &str, Value); 13] = [
    ("", "flow", |f| f.flow.to_string()),
    ("", "run", |f| f.run.clone()),
    ("", "proto", |f| cell(f.proto)),
    ("", "src", |f| f.src.clone()),
    ("", "dst", |f| f.dst.clone()),
    ("", "side", |f| f.side.to_owned()),
    ("", "meter", |f| cell(f.meter)),
    ("", "profile", |f| cell(f.profile.as_ref())),
    ("ledger_loss_network", "clock_offset_ns", |f| cell(f.clock.as_ref().map(|c| c.offset_ns))),
    ("ledger_loss_network", "clock_bound_ns", |f| cell(f.clock.as_ref().map(|c| c.bound_ns))),
    ("ledger_loss_network", "clock_skew_ppm", |f| cell(f.clock.as_ref().map(|c| c.skew_ppm))),
    ("departure_stamps", "departure_stamps_missing", |f| {
        cell(f.departures.as_ref().and_then(|d| d.missing))
    }),
    ("excess_packets", "name", |f| f.name.clone()),
];

/// Columns beside the metrics that hold words.
const WORDS: [&str; 8] = ["run", "proto", "src", "dst", "side", "meter", "profile", "name"];

/// All columns, in their order.
fn columns() -> Vec<Column> {
    let behind = |place: &'static str| {
        let here = OWN.iter().filter(move |(behind, ..)| *behind == place);
        here.map(|&(_, name, value)| Column::Own(name, value))
    };
    let mut columns: Vec<_> = behind("").collect();
    for metric in METRICS.iter().filter(|metric| !metric.column.is_empty()) {
        columns.push(Column::Metric(metric));
        columns.extend(behind(metric.column));
    }
    columns
}

impl Column {
    const fn name(&self) -> &'static str {
        match self {
            Self::Metric(metric) => metric.column,
            Self::Own(name, _) => name,
        }
    }

    /// Value of a flow; empty where it is not known.
    fn of(&self, flow: &FlowReport) -> String {
        match self {
            Self::Metric(metric) => {
                metric.of(&flow.metrics).map_or_else(String::new, |figure| figure.to_string())
            }
            Self::Own(_, value) => value(flow),
        }
    }

    fn is_word(&self) -> bool {
        match self {
            Self::Metric(metric) => matches!(metric.kind, Kind::Verdict | Kind::Word),
            Self::Own(name, _) => WORDS.contains(name),
        }
    }
}

/// One line a flow and side.
pub(crate) fn csv(report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
    let columns = columns();
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(columns.iter().map(Column::name))?;
    for flow in &report.flows {
        csv.write_record(columns.iter().map(|column| match column.of(flow) {
            word if column.is_word() => table_cell(&word).into_owned(),
            number => number,
        }))?;
    }
    Ok(csv.flush()?)
}

/// Names of the columns that hold numbers, and their values for each flow; empty where a value is not known.
pub(crate) fn numbers(report: &Report) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let columns: Vec<_> = columns().into_iter().filter(|column| !column.is_word()).collect();
    let row = |flow| columns.iter().map(|column| column.of(flow)).collect();
    (columns.iter().map(Column::name).collect(), report.flows.iter().map(row).collect())
}
