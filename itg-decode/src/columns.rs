//! Packets and windows as Parquet: the columns of the CSV, typed, in row groups as they come.
//!
//! A row group of [`GROUP_ROWS`] rows is held in memory and written when it is full. Zstandard,
//! level 1. What is not known is null.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use arrow::array::{ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use itg_stats::report::Report;
use itg_stats::{Analysis, PacketLine};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
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
const PACKETS: [Column; 8] = [
    ("flow", DataType::Int64, false),
    ("seq", DataType::Int64, true),
    ("size_bytes", DataType::Int64, false),
    ("planned_ns", DataType::Int64, true),
    ("sent_ns", DataType::Int64, true),
    ("arrived_ns", DataType::Int64, true),
    ("read_ns", DataType::Int64, true),
    ("run", DataType::Utf8, false),
];

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

/// Writes the packets of all logs, by windows as they are joined.
pub(crate) fn packets(analysis: &Analysis<'_>, work: &Work<'_>, path: &Path) -> anyhow::Result<()> {
    let mut table = packet_table(path)?;
    analysis.packets_in_order(work, &<[PacketLine<'_>]>::to_vec, |lines| {
        lines.into_iter().try_for_each(|line| table.push(line))
    })?;
    table.finish()
}

/// A file for packets.
fn packet_table<'r>(path: &Path) -> anyhow::Result<Table<PacketLine<'r>>> {
    fn column<'r>(rows: &[PacketLine<'r>], get: fn(&PacketLine<'r>) -> Option<u64>) -> ArrayRef {
        Arc::new(rows.iter().map(|row| signed(get(row))).collect::<Int64Array>())
    }
    Table::create(path, &PACKETS, |rows: &[PacketLine<'r>]| {
        vec![
            column(rows, |row| Some(u64::from(row.flow))),
            column(rows, |row| Some(row.seq)),
            column(rows, |row| Some(u64::from(row.size_bytes))),
            column(rows, |row| row.planned_ns),
            column(rows, |row| row.sent_ns),
            column(rows, |row| row.arrived_ns),
            column(rows, |row| row.read_ns),
            Arc::new(rows.iter().map(|row| Some(row.run)).collect::<StringArray>()),
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
