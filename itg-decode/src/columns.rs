//! Packets and windows as Parquet: typed columns, in row groups as they come; of packets also what flow they are of,
//! their delay, and in the file's metadata the version of the columns, run, seed and the bound of the clocks' error.
//!
//! A row group of [`GROUP_ROWS`] rows is held in memory and written when it is full. Zstandard,
//! level 1. What is not known is null.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use arrow_array::{ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use itg_files::columns::{self, Selection};
use itg_stats::Analysis;
use itg_stats::report::Report;
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

// All numbers are signed: a difference of two of them must not wrap in whatever reads the table.
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

/// A Parquet file to write batches of rows to.
fn create(path: &Path, schema: Schema) -> anyhow::Result<(Arc<Schema>, ArrowWriter<Export>)> {
    let schema = Arc::new(schema);
    let file =
        Export::create(path).with_context(|| format!("{}: cannot be written", path.display()))?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .set_created_by(concat!("itg-decode ", env!("CARGO_PKG_VERSION")).to_owned())
        .build();
    let writer = ArrowWriter::try_new(file, Arc::clone(&schema), Some(properties))?;
    Ok((schema, writer))
}

/// Writes the packets of all logs, some at a time as they are joined.
pub(crate) fn packets(analysis: &Analysis<'_>, work: &Work<'_>, path: &Path) -> anyhow::Result<()> {
    let selection = Selection::all();
    let (schema, mut writer) = create(path, selection.schema(&DataType::Utf8))?;
    let runs = columns::packets(analysis, work, &selection, &columns::strings, |_, batch| {
        writer.write(&RecordBatch::try_new(Arc::clone(&schema), batch)?)?;
        Ok::<(), anyhow::Error>(())
    })?;
    for (key, value) in columns::metadata(&runs) {
        writer.append_key_value_metadata(KeyValue::new(key.to_owned(), value));
    }
    Ok(writer.into_inner()?.finish()?)
}

/// Writes the windows of a report.
pub(crate) fn windows(report: &Report, path: &Path) -> anyhow::Result<()> {
    fn column<'r>(rows: &[WindowLine<'r>], get: fn(&WindowLine<'r>) -> Option<u64>) -> ArrayRef {
        Arc::new(rows.iter().map(|row| signed(get(row))).collect::<Int64Array>())
    }
    fn figure<'r>(rows: &[WindowLine<'r>], get: fn(&WindowLine<'r>) -> Option<f64>) -> ArrayRef {
        Arc::new(rows.iter().map(get).collect::<Float64Array>())
    }
    let fields = WINDOWS.map(|(name, kind, null)| Field::new(name, kind, null));
    let (schema, mut writer) = create(path, Schema::new(fields.to_vec()))?;
    let lines: Vec<WindowLine<'_>> = window_lines(report).collect();
    for rows in lines.chunks(GROUP_ROWS) {
        let columns: Vec<ArrayRef> = vec![
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
        ];
        writer.write(&RecordBatch::try_new(Arc::clone(&schema), columns)?)?;
    }
    Ok(writer.into_inner()?.finish()?)
}
