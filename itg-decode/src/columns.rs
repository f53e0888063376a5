//! Packets and windows as Parquet: typed columns, in row groups as they come; of packets also what flow they are of,
//! their delay, and in the file's metadata the version of the columns, run, seed and the bound of the clocks' error.
//!
//! A row group of at least [`GROUP_ROWS`] rows is held in memory and written when it is full. Whole numbers are held
//! as their differences (`DELTA_BINARY_PACKED`), texts in dictionaries; what that makes is not compressed again. What
//! is not known is null.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use itg_files::columns::{self, MakeColumn, Selection, Stretches};
use itg_stats::Analysis;
use itg_stats::report::Report;
use parquet::basic::{Encoding, LogicalType, Repetition, Type as Physical};
use parquet::column::writer::{ColumnWriter, ColumnWriterImpl};
use parquet::data_type::{ByteArray, ByteArrayType, DataType};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, Type, TypePtr};

use crate::export::Export;
use crate::print::{WindowLine, window_lines};
use crate::work::Work;

/// Rows from which on a row group is full.
pub(crate) const GROUP_ROWS: usize = 1 << 17;
/// Rows of a text that are written at once.
const PIECE_ROWS: usize = 1 << 10;

/// Kind of a column's values.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Number,
    Figure,
    Text,
    Flag,
}

/// Name, kind, whether it may be unknown.
type Field = (&'static str, Kind, bool);

// All numbers are signed: a difference of two of them must not wrap in whatever reads the table.
const WINDOWS: [Field; 13] = [
    ("flow", Kind::Number, true),
    ("run", Kind::Text, true),
    ("side", Kind::Text, false),
    ("interval_ns", Kind::Number, true),
    ("start_unix_ns", Kind::Number, true),
    ("start_ns", Kind::Number, true),
    ("partial", Kind::Flag, false),
    ("packets", Kind::Number, true),
    ("bytes", Kind::Number, true),
    ("bitrate_bps", Kind::Figure, false),
    ("delay_mean_ns", Kind::Figure, true),
    ("jitter_mean_ns", Kind::Figure, true),
    ("lost", Kind::Number, true),
];

/// A number as a column has it; what only a damaged or hostile log can say, 2⁶³ or more, is null.
fn signed(value: Option<u64>) -> Option<i64> {
    value.and_then(|value| i64::try_from(value).ok())
}

/// Values of a column that are known, and of each row 1 if its value is, else 0.
struct Cells<T> {
    known: Vec<T>,
    levels: Vec<i16>,
}

impl<T> FromIterator<Option<T>> for Cells<T> {
    fn from_iter<I: IntoIterator<Item = Option<T>>>(values: I) -> Self {
        let mut cells = Self { known: Vec::new(), levels: Vec::new() };
        for value in values {
            cells.levels.push(i16::from(value.is_some()));
            cells.known.extend(value);
        }
        cells
    }
}

impl<T> Cells<T> {
    fn append(&mut self, mut other: Self) {
        self.known.append(&mut other.known);
        self.levels.append(&mut other.levels);
    }

    fn write<D: DataType<T = T>>(
        &self,
        writer: &mut ColumnWriterImpl<'_, D>,
    ) -> parquet::errors::Result<usize> {
        // Of a column that is always known the writer asks for no levels, and looks at none.
        writer.write_batch(&self.known, Some(&self.levels), None)
    }
}

/// Texts, and in how many rows each stands.
type Texts = Vec<(Option<ByteArray>, usize)>;

/// Writes texts a piece at a time: as many rows of one text as there may be stand nowhere at once.
fn write_texts(
    texts: &Texts,
    writer: &mut ColumnWriterImpl<'_, ByteArrayType>,
) -> parquet::errors::Result<usize> {
    let mut written = 0;
    for (text, rows) in texts {
        for first in (0..*rows).step_by(PIECE_ROWS) {
            let rows = PIECE_ROWS.min(rows - first);
            let cells: Cells<_> = std::iter::repeat_n(text.clone(), rows).collect();
            written += cells.write(writer)?;
        }
    }
    Ok(written)
}

/// A column of some rows.
enum Column {
    Numbers(Cells<i64>),
    Figures(Cells<f64>),
    Texts(Texts),
    Flags(Cells<bool>),
}

impl Column {
    /// Adds the rows of another one of its kind.
    fn append(&mut self, other: Self) {
        match (self, other) {
            (Self::Numbers(all), Self::Numbers(more)) => all.append(more),
            (Self::Figures(all), Self::Figures(more)) => all.append(more),
            (Self::Texts(all), Self::Texts(more)) => all.extend(more),
            (Self::Flags(all), Self::Flags(more)) => all.append(more),
            _ => unreachable!("batches have the same columns"),
        }
    }

    fn write(&self, writer: &mut ColumnWriter<'_>) -> Result<()> {
        match (self, writer) {
            (Self::Numbers(cells), ColumnWriter::Int64ColumnWriter(writer)) => cells.write(writer),
            (Self::Figures(cells), ColumnWriter::DoubleColumnWriter(writer)) => cells.write(writer),
            (Self::Texts(texts), ColumnWriter::ByteArrayColumnWriter(writer)) => {
                write_texts(texts, writer)
            }
            (Self::Flags(cells), ColumnWriter::BoolColumnWriter(writer)) => cells.write(writer),
            _ => bail!("a column of another kind than its field"),
        }?;
        Ok(())
    }
}

/// Makes columns of packets as Parquet takes them.
struct Maker;

impl MakeColumn for Maker {
    type Column = Column;

    fn numbers(&self, mut values: Vec<i64>, known: Option<impl Fn(usize) -> bool>) -> Column {
        let mut levels = vec![1; values.len()];
        if let Some(known) = known {
            let mut at = 0;
            values.retain(|_| {
                let known = known(at);
                levels[at] = i16::from(known);
                at += 1;
                known
            });
        }
        Column::Numbers(Cells { known: values, levels })
    }

    fn texts(&self, _text: usize, stretches: &Stretches<'_>) -> Column {
        let held = |&(text, rows): &(Option<&str>, usize)| (text.map(ByteArray::from), rows);
        Column::Texts(stretches.iter().map(held).collect())
    }
}

/// A Parquet file in the making, and the rows of the group that is not yet full.
struct File {
    writer: SerializedFileWriter<Export>,
    group: Vec<Column>,
    rows: usize,
}

impl File {
    fn create(path: &Path, fields: &[Field]) -> Result<Self> {
        let mut properties = WriterProperties::builder()
            .set_created_by(concat!("itg-decode ", env!("CARGO_PKG_VERSION")).to_owned());
        for (name, _, _) in fields.iter().filter(|(_, kind, _)| *kind == Kind::Number) {
            let column = ColumnPath::from(*name);
            properties = properties
                .set_column_dictionary_enabled(column.clone(), false)
                .set_column_encoding(column, Encoding::DELTA_BINARY_PACKED);
        }
        let fields = fields.iter().map(field).collect::<parquet::errors::Result<_>>()?;
        let schema = Type::group_type_builder("schema").with_fields(fields).build()?;
        let file = Export::create(path)
            .with_context(|| format!("{}: cannot be written", path.display()))?;
        let properties = Arc::new(properties.build());
        let writer = SerializedFileWriter::new(file, Arc::new(schema), properties)?;
        Ok(Self { writer, group: Vec::new(), rows: 0 })
    }

    /// Takes rows, and writes a group when it is full.
    fn take(&mut self, rows: usize, columns: Vec<Column>) -> Result<()> {
        self.rows += rows;
        if self.group.is_empty() {
            self.group = columns;
        } else {
            for (all, more) in self.group.iter_mut().zip(columns) {
                all.append(more);
            }
        }
        if self.rows >= GROUP_ROWS { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        self.rows = 0;
        let columns = std::mem::take(&mut self.group);
        let mut group = self.writer.next_row_group()?;
        for column in &columns {
            let mut writer = group.next_column()?.context("a field for each column")?;
            column.write(writer.untyped())?;
            writer.close()?;
        }
        group.close()?;
        Ok(())
    }

    fn finish(mut self) -> Result<()> {
        if self.rows > 0 {
            self.flush()?;
        }
        Ok(self.writer.into_inner()?.finish()?)
    }
}

fn field((name, kind, nullable): &Field) -> parquet::errors::Result<TypePtr> {
    let (physical, logical) = match kind {
        Kind::Number => (Physical::INT64, None),
        Kind::Figure => (Physical::DOUBLE, None),
        Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        Kind::Flag => (Physical::BOOLEAN, None),
    };
    let repetition = if *nullable { Repetition::OPTIONAL } else { Repetition::REQUIRED };
    let builder = Type::primitive_type_builder(name, physical).with_logical_type(logical);
    Ok(Arc::new(builder.with_repetition(repetition).build()?))
}

/// Writes the packets of all logs, some at a time as they are joined.
pub(crate) fn packets(analysis: &Analysis<'_>, work: &Work<'_>, path: &Path) -> Result<()> {
    let selection = Selection::all();
    let fields = selection.columns().map(|column| {
        let kind = if column.text.is_some() { Kind::Text } else { Kind::Number };
        (column.name, kind, column.nullable)
    });
    let mut file = File::create(path, &fields.collect::<Vec<_>>())?;
    let runs = columns::packets(analysis, work, &selection, &Maker, |rows, columns| {
        file.take(rows, columns)
    })?;
    for (key, value) in columns::metadata(&runs) {
        file.writer.append_key_value_metadata(KeyValue::new(key.to_owned(), value));
    }
    file.finish()
}

/// Writes the windows of a report.
pub(crate) fn windows(report: &Report, path: &Path) -> Result<()> {
    fn column<'r>(rows: &[WindowLine<'r>], get: fn(&WindowLine<'r>) -> Option<u64>) -> Column {
        Column::Numbers(rows.iter().map(|row| signed(get(row))).collect())
    }
    fn figure<'r>(rows: &[WindowLine<'r>], get: fn(&WindowLine<'r>) -> Option<f64>) -> Column {
        Column::Figures(rows.iter().map(get).collect())
    }
    fn text<'r>(rows: &[WindowLine<'r>], get: fn(&WindowLine<'r>) -> Option<&'r str>) -> Column {
        Column::Texts(rows.iter().map(|row| (get(row).map(ByteArray::from), 1)).collect())
    }
    let mut file = File::create(path, &WINDOWS)?;
    let lines: Vec<WindowLine<'_>> = window_lines(report).collect();
    for rows in lines.chunks(GROUP_ROWS) {
        let columns = vec![
            column(rows, |row| row.flow.map(u64::from)),
            text(rows, |row| row.run),
            text(rows, |row| Some(row.side.unwrap_or("total"))),
            column(rows, |row| Some(row.interval_ns)),
            column(rows, |row| Some(row.start_unix_ns)),
            column(rows, |row| Some(row.row.start_ns)),
            Column::Flags(rows.iter().map(|row| Some(row.row.partial)).collect()),
            column(rows, |row| Some(row.row.packets)),
            column(rows, |row| Some(row.row.bytes)),
            figure(rows, |row| Some(row.row.bitrate_bps)),
            figure(rows, |row| row.row.delay_mean_ns),
            figure(rows, |row| row.row.jitter_mean_ns),
            column(rows, |row| row.row.lost),
        ];
        file.take(rows.len(), columns)?;
    }
    file.finish()
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader as _, SerializedFileReader};
    use parquet::record::RowAccessor as _;

    use super::*;

    #[test]
    fn rows_are_those_of_the_batches_over_groups_and_unknown_ones() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("t.parquet");
        let fields = [("n", Kind::Number, true), ("text", Kind::Text, false)];
        let mut file = File::create(&path, &fields).expect("a file");
        let batch = GROUP_ROWS / 2 + 1;
        for first in (0..5).map(|k| k * batch) {
            let values = (first..first + batch).map(|n| i64::MIN + n as i64).collect();
            let numbers = Maker.numbers(values, Some(|at: usize| !(first + at).is_multiple_of(3)));
            let texts = Maker.texts(0, &[(Some("a"), batch - 1), (Some("b"), 1)]);
            file.take(batch, vec![numbers, texts]).expect("rows");
        }
        file.finish().expect("finished");
        let file = std::fs::File::open(&path).expect("there");
        let table = SerializedFileReader::new(file).expect("a table");
        assert_eq!(table.num_row_groups(), 3);
        let mut rows = 0;
        for (n, row) in table.get_row_iter(None).expect("rows").enumerate() {
            let row = row.expect("a row");
            let number = (!n.is_multiple_of(3)).then_some(i64::MIN + n as i64);
            assert_eq!(row.get_long(0).ok(), number);
            let last = (n + 1).is_multiple_of(batch);
            assert_eq!(row.get_string(1).expect("a text"), if last { "b" } else { "a" });
            rows += 1;
        }
        assert_eq!(rows, 5 * batch);
    }
}
