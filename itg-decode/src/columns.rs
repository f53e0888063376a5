//! Packets and windows as Parquet: typed columns, in row groups as they come; of packets also what flow they are of,
//! their delay, and in the file's metadata the version of the columns, run, seed and the bound of the clocks' error.
//!
//! A row group of [`GROUP_ROWS`] rows is held in memory and written when it is full. Zstandard,
//! level 1. What is not known is null.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use arrow_array::{ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use itg_stats::report::Report;
use itg_stats::{Analysis, PacketFlow, PacketLine};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;

use crate::export::Export;
use crate::print::{WindowLine, window_lines};
use crate::work::Work;

/// Rows of a row group.
pub(crate) const GROUP_ROWS: usize = 1 << 17;

/// Name, type, whether it may be unknown.
type Column = (&'static str, DataType, bool);

// All numbers are signed: a difference of two of them, such as a delay that clocks make negative, must not wrap in
// whatever reads the table.
const PACKETS: [Column; 14] = [
    ("run", DataType::Utf8, false),
    ("node", DataType::Utf8, true),
    ("flow", DataType::Int64, false),
    ("name", DataType::Utf8, true),
    ("proto", DataType::Utf8, true),
    ("src", DataType::Utf8, true),
    ("dst", DataType::Utf8, true),
    ("seq", DataType::Int64, true),
    ("size_bytes", DataType::Int64, false),
    ("planned_ns", DataType::Int64, true),
    ("sent_ns", DataType::Int64, true),
    ("arrived_ns", DataType::Int64, true),
    ("read_ns", DataType::Int64, true),
    ("delay_ns", DataType::Int64, true),
];

/// Version of the columns of packets, in the file's metadata.
const PACKET_SCHEMA: u32 = 3;

const WINDOWS: [Column; 13] = [
    ("flow", DataType::Int64, true),
    ("run", DataType::Utf8, true),
    ("side", DataType::Utf8, false),
    ("interval_ns", DataType::Int64, true),
    ("start_unix_ns", DataType::Int64, true),
    ("start_ns", DataType::Int64, true),
    ("partial", DataType::Boolean, false),
    ("packets", DataType::Int64, true),
    ("bytes", DataType::Int64, true),
    ("bitrate_bps", DataType::Float64, false),
    ("delay_mean_ns", DataType::Float64, true),
    ("jitter_mean_ns", DataType::Float64, true),
    ("lost", DataType::Int64, true),
];

/// A number as a column has it; what only a damaged or hostile log can say, 2⁶³ or more, is null.
fn signed(value: Option<u64>) -> Option<i64> {
    value.and_then(|value| i64::try_from(value).ok())
}

/// A Parquet file while it is written, a row at a time.
pub(crate) struct Table<T> {
    writer: ArrowWriter<Export>,
    schema: Arc<Schema>,
    columns: fn(&[T]) -> Vec<ArrayRef>,
    rows: Vec<T>,
}

impl<T> Table<T> {
    fn create(
        path: &Path,
        columns: &[Column],
        make: fn(&[T]) -> Vec<ArrayRef>,
    ) -> anyhow::Result<Self> {
        let fields: Vec<Field> = columns
            .iter()
            .map(|(name, kind, null)| Field::new(*name, kind.clone(), *null))
            .collect();
        let schema = Arc::new(Schema::new(fields));
        let file = Export::create(path)
            .with_context(|| format!("{}: cannot be written", path.display()))?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
            .set_max_row_group_row_count(Some(GROUP_ROWS))
            .set_created_by(concat!("itg-decode ", env!("CARGO_PKG_VERSION")).to_owned())
            .build();
        let writer = ArrowWriter::try_new(file, Arc::clone(&schema), Some(properties))?;
        Ok(Self { writer, schema, columns: make, rows: Vec::with_capacity(GROUP_ROWS) })
    }

    /// Takes the next row.
    pub(crate) fn push(&mut self, row: T) -> anyhow::Result<()> {
        self.rows.push(row);
        if self.rows.len() == GROUP_ROWS { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        let columns = (self.columns)(&self.rows);
        self.writer.write(&RecordBatch::try_new(Arc::clone(&self.schema), columns)?)?;
        self.rows.clear();
        Ok(())
    }

    /// Writes what is left and the directory of the file, and puts the file in its place.
    pub(crate) fn finish(mut self) -> anyhow::Result<()> {
        self.flush()?;
        Ok(self.writer.into_inner()?.finish()?)
    }
}

/// A packet and its flow.
struct PacketRow<'r> {
    line: PacketLine<'r>,
    flow: &'r PacketFlow,
}

/// Facts on a run in the metadata of a file.
#[derive(Default)]
struct RunFacts {
    seed: Option<u64>,
    /// Bound of the error that clocks make in delays; `None` without any, and within where a flow has none.
    bound_ns: Option<Option<u64>>,
}

/// Packets of a flow that have a delay: when the first and the last were sent.
type Span = (u64, u64);

/// Writes the packets of all logs, by windows as they are joined.
pub(crate) fn packets(analysis: &Analysis<'_>, work: &Work<'_>, path: &Path) -> anyhow::Result<()> {
    let flows = analysis.packet_flows();
    let unknown = PacketFlow::default();
    let mut spans: BTreeMap<(u32, &str), Option<Span>> = BTreeMap::new();
    let mut table = packet_table(path)?;
    analysis.packets_in_order(work, &<[PacketLine<'_>]>::to_vec, |lines| {
        for lines in lines.chunk_by(|a, b| (a.flow, a.run) == (b.flow, b.run)) {
            let Some(key) = lines.first().map(|line| (line.flow, line.run)) else { continue };
            let flow = flows.get(&(key.0, key.1.to_owned())).unwrap_or(&unknown);
            let dated = lines.iter().filter(|line| line.delay_ns.is_some());
            let span = spans.entry(key).or_default();
            for sent_ns in dated.filter_map(|line| line.sent_ns) {
                let (first, last) = span.unwrap_or((sent_ns, sent_ns));
                *span = Some((first.min(sent_ns), last.max(sent_ns)));
            }
            lines.iter().try_for_each(|&line| table.push(PacketRow { line, flow }))?;
        }
        Ok::<(), anyhow::Error>(())
    })?;
    let mut runs: BTreeMap<&str, RunFacts> = BTreeMap::new();
    for ((number, run), span) in spans {
        let Some(flow) = flows.get(&(number, run.to_owned())) else { continue };
        let facts = runs.entry(run).or_default();
        facts.seed = facts.seed.or(flow.seed);
        if let Some((first, last)) = span {
            let (bound, so_far) = (flow.clock_bound_ns(first, last), facts.bound_ns);
            facts.bound_ns = Some(so_far.map_or(bound, |so_far| {
                so_far.max(bound).filter(|_| so_far.is_some() && bound.is_some())
            }));
        }
    }
    for (key, value) in metadata(&runs) {
        table.writer.append_key_value_metadata(KeyValue::new(key.to_owned(), value));
    }
    table.finish()
}

/// Keys and values for a file of packets: lists in JSON, an entry a run.
fn metadata(runs: &BTreeMap<&str, RunFacts>) -> [(&'static str, String); 4] {
    let list = |value: &dyn Fn(&RunFacts) -> Option<u64>| {
        serde_json::json!(runs.values().map(value).collect::<Vec<_>>()).to_string()
    };
    [
        ("itg.schema", PACKET_SCHEMA.to_string()),
        ("itg.run", serde_json::json!(runs.keys().collect::<Vec<_>>()).to_string()),
        ("itg.seed", list(&|facts| facts.seed)),
        ("itg.clock_bound_ns", list(&|facts| facts.bound_ns.flatten())),
    ]
}

/// A file for packets.
fn packet_table<'r>(path: &Path) -> anyhow::Result<Table<PacketRow<'r>>> {
    fn column<'r>(rows: &[PacketRow<'r>], get: fn(&PacketLine<'r>) -> Option<u64>) -> ArrayRef {
        Arc::new(rows.iter().map(|row| signed(get(&row.line))).collect::<Int64Array>())
    }
    fn text<'r>(rows: &[PacketRow<'r>], get: fn(&PacketRow<'r>) -> &'r str) -> ArrayRef {
        let known = |row| Some(get(row)).filter(|text| !text.is_empty());
        Arc::new(rows.iter().map(known).collect::<StringArray>())
    }
    Table::create(path, &PACKETS, |rows: &[PacketRow<'r>]| {
        vec![
            Arc::new(rows.iter().map(|row| Some(row.line.run)).collect::<StringArray>()),
            text(rows, |row| &row.flow.node),
            column(rows, |line| Some(u64::from(line.flow))),
            text(rows, |row| &row.flow.name),
            text(rows, |row| row.flow.proto),
            text(rows, |row| &row.flow.src),
            text(rows, |row| &row.flow.dst),
            column(rows, |line| Some(line.seq)),
            column(rows, |line| Some(u64::from(line.size_bytes))),
            column(rows, |line| line.planned_ns),
            column(rows, |line| line.sent_ns),
            column(rows, |line| line.arrived_ns),
            column(rows, |line| line.read_ns),
            Arc::new(rows.iter().map(|row| row.line.delay_ns).collect::<Int64Array>()),
        ]
    })
}

/// Writes the windows of a report.
pub(crate) fn windows(report: &Report, path: &Path) -> anyhow::Result<()> {
    fn column<'r>(rows: &[WindowLine<'r>], get: fn(&WindowLine<'r>) -> Option<u64>) -> ArrayRef {
        Arc::new(rows.iter().map(|row| signed(get(row))).collect::<Int64Array>())
    }
    fn figure<'r>(rows: &[WindowLine<'r>], get: fn(&WindowLine<'r>) -> Option<f64>) -> ArrayRef {
        Arc::new(rows.iter().map(get).collect::<Float64Array>())
    }
    let mut table = Table::create(path, &WINDOWS, |rows: &[WindowLine<'_>]| {
        vec![
            column(rows, |row| row.flow.map(u64::from)),
            Arc::new(rows.iter().map(|row| row.run).collect::<StringArray>()),
            Arc::new(
                rows.iter().map(|row| Some(row.side.unwrap_or("total"))).collect::<StringArray>(),
            ),
            column(rows, |row| Some(row.interval_ns)),
            column(rows, |row| Some(row.start_unix_ns)),
            column(rows, |row| Some(row.row.start_ns)),
            Arc::new(rows.iter().map(|row| Some(row.row.partial)).collect::<BooleanArray>()),
            column(rows, |row| Some(row.row.packets)),
            column(rows, |row| Some(row.row.bytes)),
            figure(rows, |row| Some(row.row.bitrate_bps)),
            figure(rows, |row| row.row.delay_mean_ns),
            figure(rows, |row| row.row.jitter_mean_ns),
            column(rows, |row| row.row.lost),
        ]
    })?;
    for row in window_lines(report) {
        table.push(row)?;
    }
    table.finish()
}
