//! Column blocks: the records of one block, column by column, in a fraction of their bytes.
//!
//! The columns of a log have in common that the next number follows from those before it: sequence
//! numbers go up by one, inter-departure times of a constant rate are nearly equal, a packet takes about
//! as long as the one before it. So each column is predicted by one of a few [`Method`]s, the one that
//! costs least, and only the errors are written, in rows of [`frames`](crate::frames). Prediction
//! from the *stream* (records of the same flow and kind) keeps interleaved flows apart. Where rows
//! repeat themselves (flows that take turns), LZ4 may go over the whole. Nothing is lost: the
//! checksum of the records as they were is kept, and compared.
//!
//! Costs: all methods are tried on a sample of each column when writing; one pass over each column
//! when reading, with 9 × 8 bytes of memory a record.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use itg_arena::{HEADER_LEN, seal_flat};
use zerocopy::IntoBytes;

use crate::error::ColumnsError;
use crate::frames::{FRAME, frame_len, put_row, take_byte, take_row};
use crate::limits::{
    COLUMNS_SCHEMA, MAX_BLOCK_LEN, MAX_BLOCK_RECORDS, MAX_RECORDS_PER_BYTE, RUN_COLUMNS_SCHEMA,
};
use crate::record::RawRecord;

/// Returns true if a block of this schema holds columns.
pub(crate) const fn is_columns(schema: u64) -> bool {
    matches!(schema, COLUMNS_SCHEMA | RUN_COLUMNS_SCHEMA)
}
/// Most records for each byte of a column block of this schema: where a record may stand for many
/// packets, one.
const fn records_per_byte(schema: u64) -> usize {
    if schema == RUN_COLUMNS_SCHEMA { 1 } else { MAX_RECORDS_PER_BYTE }
}
/// Bytes in front of the columns: checksum of the records, length of the columns, and stored length.
const PREFIX: usize = 12;
/// LZ4 makes at most 255 bytes of one.
const LZ4_MOST: usize = 255;
/// Number of frames of a column that the methods are tried on.
const SAMPLE: usize = 2;

/// Columns in the order in which they are written: those that tell streams apart come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Flags,
    Flow,
    Size,
    Seq,
    A,
    B,
    Delta,
    Ttl,
    Tos,
}

impl Column {
    const ALL: [Self; 9] = [
        Self::Flags,
        Self::Flow,
        Self::Size,
        Self::Seq,
        Self::A,
        Self::B,
        Self::Delta,
        Self::Ttl,
        Self::Tos,
    ];

    /// Returns true if it may be predicted from its stream.
    const fn knows_streams(self) -> bool {
        !matches!(self, Self::Flags | Self::Flow)
    }

    /// Returns true if it may be taken relative to the column before it: `b` as b − a (on one clock,
    /// the delay), `delta` as b + delta (the time of reading).
    const fn has_relative(self) -> bool {
        matches!(self, Self::B | Self::Delta)
    }

    const fn value(self, record: &RawRecord) -> u64 {
        match self {
            Self::Flags => record.flags.get() as u64,
            Self::Flow => record.flow.get() as u64,
            Self::Size => record.size.get() as u64,
            Self::Seq => record.seq.get(),
            Self::A => record.a.get(),
            Self::B => record.b.get(),
            Self::Delta => record.delta.get() as u64,
            Self::Ttl => record.ttl as u64,
            Self::Tos => record.tos as u64,
        }
    }

    const fn max(self) -> u64 {
        match self {
            Self::Flags => u16::MAX as u64,
            Self::Flow | Self::Size | Self::Delta => u32::MAX as u64,
            Self::Seq | Self::A | Self::B => u64::MAX,
            Self::Ttl | Self::Tos => u8::MAX as u64,
        }
    }
}

/// Rule by which a number is predicted. Before the first record there is 0; a stream's first record
/// is predicted from the record before it, its second by the difference alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// 0: the numbers themselves.
    Zero,
    /// The number before.
    Last,
    /// The number before, and its difference to the one before that once more.
    Slope,
    /// As `Last`, within the stream.
    StreamLast,
    /// As `Slope`, within the stream.
    StreamSlope,
}

/// The first byte of a column: its rule, and whether it is relative to the column before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Method {
    rule: Rule,
    relative: bool,
}

/// Bit of [`Method`]'s byte.
const RELATIVE: u8 = 0x10;

impl Method {
    const fn byte(self) -> u8 {
        let rule = match self.rule {
            Rule::Zero => 0,
            Rule::Last => 1,
            Rule::Slope => 2,
            Rule::StreamLast => 3,
            Rule::StreamSlope => 4,
        };
        if self.relative { rule | RELATIVE } else { rule }
    }

    /// The method of a column, when it may have it.
    fn parse(byte: u8, column: Column) -> Result<Self, ColumnsError> {
        let relative = byte & RELATIVE != 0;
        let rule = match byte & !RELATIVE {
            0 => Rule::Zero,
            1 => Rule::Last,
            2 => Rule::Slope,
            3 if column.knows_streams() => Rule::StreamLast,
            4 if column.knows_streams() => Rule::StreamSlope,
            _ => return Err(ColumnsError::Method { got: byte }),
        };
        if relative && !column.has_relative() {
            return Err(ColumnsError::Method { got: byte });
        }
        Ok(Self { rule, relative })
    }
}

/// Positions in the block of the records before each record in its stream.
struct Streams {
    /// The record before in the stream; for its first record, the one before it in the block.
    last: Vec<usize>,
    /// The one before that; where there is none, the same as `last`.
    second: Vec<usize>,
}

impl Streams {
    /// Of records by their flow and kind; `None` when there is only one stream.
    fn of(flags: &[u64], flow: &[u64]) -> Option<Self> {
        let keys = || flow.iter().zip(flags.iter().map(|flags| flags & 0xf));
        let first = keys().next()?;
        if keys().all(|key| key == first) {
            return None;
        }
        let (mut last, mut second) = (Vec::new(), Vec::new());
        // Number of the latest record of each stream, and whether it is its first.
        let mut seen: BTreeMap<(&u64, u64), (usize, bool)> = BTreeMap::new();
        for (at, key) in keys().enumerate() {
            let before = seen.insert(key, (at, false));
            let (one, two) = match before {
                None => {
                    seen.insert(key, (at, true));
                    (at.saturating_sub(1), at.saturating_sub(1))
                }
                Some((one, true)) => (one, one),
                Some((one, false)) => (one, last[one]),
            };
            last.push(one);
            second.push(two);
        }
        Some(Self { last, second })
    }
}

/// Computes what is written of a part of a column: numbers minus predictions, modulo 2⁶⁴.
fn errors(
    x: &[u64],
    rule: Rule,
    streams: Option<&Streams>,
    part: Range<usize>,
    row: &mut Vec<u64>,
) {
    let slope = |one: u64, two: u64| one.wrapping_add(one.wrapping_sub(two));
    let before = |i: usize, count: usize| x[i.saturating_sub(count)];
    let start = part.start;
    row.clear();
    match (rule, streams) {
        (Rule::Zero, _) => row.extend_from_slice(&x[part]),
        (Rule::Last, _) | (Rule::StreamLast, None) => {
            row.extend(part.map(|i| x[i].wrapping_sub(before(i, 1))));
        }
        (Rule::Slope, _) | (Rule::StreamSlope, None) => {
            row.extend(part.map(|i| x[i].wrapping_sub(slope(before(i, 1), before(i, 2)))));
        }
        (Rule::StreamLast, Some(Streams { last, .. })) => {
            row.extend(part.map(|i| x[i].wrapping_sub(x[last[i]])));
        }
        (Rule::StreamSlope, Some(Streams { last, second })) => {
            row.extend(part.map(|i| x[i].wrapping_sub(slope(x[last[i]], x[second[i]]))));
        }
    }
    if start == 0
        && let (Some(first), Some(x)) = (row.first_mut(), x.first())
    {
        *first = *x;
    }
}

/// Turns what was written of a column into its numbers.
fn restore(x: &mut [u64], rule: Rule, streams: Option<&Streams>) {
    match (rule, streams) {
        (Rule::Zero, _) => {}
        (Rule::Last, _) | (Rule::StreamLast, None) => {
            let mut last = 0_u64;
            for x in x {
                last = last.wrapping_add(*x);
                *x = last;
            }
        }
        (Rule::Slope, _) | (Rule::StreamSlope, None) => {
            let Some((first, rest)) = x.split_first_mut() else { return };
            let (mut last, mut step) = (*first, 0_u64);
            for x in rest {
                step = step.wrapping_add(*x);
                last = last.wrapping_add(step);
                *x = last;
            }
        }
        (Rule::StreamLast, Some(Streams { last, .. })) => {
            for i in 1..x.len() {
                x[i] = x[i].wrapping_add(x[last[i]]);
            }
        }
        (Rule::StreamSlope, Some(Streams { last, second })) => {
            for i in 1..x.len() {
                let (one, two) = (x[last[i]], x[second[i]]);
                x[i] = x[i].wrapping_add(one).wrapping_add(one.wrapping_sub(two));
            }
        }
    }
}

/// Appends a column by the method that takes the fewest bytes; `relative` is the same column relative
/// to the one before it.
fn put_column(x: &[u64], relative: Option<&[u64]>, streams: Option<&Streams>, out: &mut Vec<u8>) {
    let mut row = Vec::with_capacity(x.len());
    // All frames of a short column, some of a long one.
    let every = x.len().div_ceil(FRAME).div_ceil(SAMPLE).max(1);
    let mut cost = |x: &[u64], rule| -> usize {
        let starts = (every / 2 * FRAME..x.len()).step_by(every * FRAME);
        let frames = starts.map(|start| {
            errors(x, rule, streams, start..x.len().min(start + FRAME), &mut row);
            frame_len(&row)
        });
        frames.sum()
    };
    let rules: &[Rule] = match streams {
        _ if x.windows(2).all(|w| w[0] == w[1]) => &[Rule::Zero],
        None => &[Rule::Zero, Rule::Last, Rule::Slope],
        Some(_) => &[Rule::Zero, Rule::Last, Rule::Slope, Rule::StreamLast, Rule::StreamSlope],
    };
    let relative = relative.filter(|_| rules.len() > 1);
    let bases = [(x, false)].into_iter().chain(relative.map(|x| (x, true)));
    let methods = bases
        .flat_map(|(x, relative)| rules.iter().map(move |&rule| (x, Method { rule, relative })));
    let (x, method) = methods.min_by_key(|(x, method)| cost(x, method.rule)).expect("some rule");
    errors(x, method.rule, streams, 0..x.len(), &mut row);
    out.push(method.byte());
    put_row(&row, out);
}

/// The column block, of this schema, of records with this checksum and tag; `None` when it would not be shorter than
/// the record block.
#[allow(clippy::cast_possible_truncation, reason = "lengths below MAX_BLOCK_LEN")]
pub(crate) fn encode(records: &[RawRecord], schema: u64, crc: u32, tag: u64) -> Option<Vec<u8>> {
    let plain_len = HEADER_LEN + size_of_val(records);
    let [flags, flow, rest @ ..] = Column::ALL
        .map(|column| records.iter().map(|record| column.value(record)).collect::<Vec<_>>());
    let streams = Streams::of(&flags, &flow);
    let mut columns = Vec::with_capacity(size_of_val(records) / 2);
    let [_, _, a, b, delta, ..] = &rest;
    for (column, x) in Column::ALL.into_iter().zip([&flags, &flow].into_iter().chain(&rest)) {
        let relative = match column {
            Column::B => Some(b.iter().zip(a).map(|(b, a)| b.wrapping_sub(*a)).collect()),
            Column::Delta => Some(delta.iter().zip(b).map(|(d, b)| d.wrapping_add(*b)).collect()),
            _ => None,
        };
        let relative: Option<Vec<u64>> = relative;
        let streams = streams.as_ref().filter(|_| column.knows_streams());
        put_column(x, relative.as_deref(), streams, &mut columns);
    }
    let packed = lz4_flex::block::compress(&columns);
    // Worth the time to unpack when an eighth is saved.
    let stored = if packed.len() < columns.len() / 8 * 7 { &packed } else { &columns };
    let len = HEADER_LEN + PREFIX + stored.len();
    let len = len.max(records.len() / records_per_byte(schema) + 1).next_multiple_of(8);
    if len >= plain_len {
        return None;
    }
    let mut block = vec![0; HEADER_LEN];
    block.extend_from_slice(&crc.to_le_bytes());
    block.extend_from_slice(&(columns.len() as u32).to_le_bytes());
    block.extend_from_slice(&(stored.len() as u32).to_le_bytes());
    block.extend_from_slice(stored);
    block.resize(len, 0);
    seal_flat(&mut block, schema, records.len() as u32, tag);
    Some(block)
}

/// Returns true if a column block of `len` bytes may say that it has so many records.
pub(crate) const fn may_hold(schema: u64, objects: u32, len: u64) -> bool {
    let most = len.saturating_mul(records_per_byte(schema) as u64);
    objects as u64 <= most && objects as usize <= MAX_BLOCK_RECORDS
}

/// The number at `at`, which is within the prefix.
fn word(body: &[u8], at: usize) -> Result<u32, ColumnsError> {
    let bytes = body.get(at..at + 4).ok_or(ColumnsError::CutOff)?;
    bytes.try_into().map(u32::from_le_bytes).map_err(|_| ColumnsError::CutOff)
}

/// The checksum in the body of a column block.
pub(crate) fn stored_crc(body: &[u8]) -> Result<u32, ColumnsError> {
    word(body, 0)
}

/// The columns of a body, unpacked.
fn unpack(body: &[u8]) -> Result<Cow<'_, [u8]>, ColumnsError> {
    let (columns, stored) = (word(body, 4)?, word(body, 8)?);
    let [columns_len, stored_len] = [columns, stored].map(|len| len as usize);
    let rest = &body[PREFIX..];
    if stored_len > columns_len
        || columns_len > MAX_BLOCK_LEN
        || columns_len > stored_len.saturating_mul(LZ4_MOST)
    {
        return Err(ColumnsError::Lengths { columns, stored });
    }
    let (bytes, padding) = rest.split_at_checked(stored_len).ok_or(ColumnsError::CutOff)?;
    if padding.iter().any(|byte| *byte != 0) {
        return Err(ColumnsError::Rest);
    }
    if stored_len == columns_len {
        return Ok(Cow::Borrowed(bytes));
    }
    let mut unpacked = vec![0; columns_len];
    match lz4_flex::block::decompress_into(bytes, &mut unpacked) {
        Ok(len) if len == columns_len => Ok(Cow::Owned(unpacked)),
        Ok(_) => Err(ColumnsError::Lengths { columns, stored }),
        Err(error) => Err(ColumnsError::Lz4(error.to_string())),
    }
}

/// The records in the body of a column block, `count` of them by its header. Neither their checksum
/// nor their kinds are looked at.
pub(crate) fn decode(body: &[u8], count: usize) -> Result<Vec<RawRecord>, ColumnsError> {
    let unpacked = unpack(body)?;
    let mut input = &*unpacked;
    let mut x: [Vec<u64>; 9] = Default::default();
    let mut streams = None;
    for (at, column) in Column::ALL.into_iter().enumerate() {
        let method = Method::parse(take_byte(&mut input)?, column)?;
        let mut row = take_row(&mut input, count)?;
        if matches!(method.rule, Rule::StreamLast | Rule::StreamSlope) {
            let streams = streams.get_or_insert_with(|| Streams::of(&x[0], &x[1]));
            restore(&mut row, method.rule, streams.as_ref());
        } else {
            restore(&mut row, method.rule, None);
        }
        if method.relative {
            let base = row.iter_mut().zip(&x[at - 1]);
            match column {
                Column::B => base.for_each(|(x, a)| *x = x.wrapping_add(*a)),
                _ => base.for_each(|(x, b)| *x = x.wrapping_sub(*b)),
            }
        }
        let all = row.iter().fold(0, |all, value| all | value);
        if all > column.max() {
            return Err(ColumnsError::Value);
        }
        x[at] = row;
    }
    if !input.is_empty() {
        return Err(ColumnsError::Rest);
    }
    Ok(records(&x, count))
}

/// Puts columns of equal length together.
#[allow(clippy::cast_possible_truncation, reason = "compared with the largest value before")]
fn records(x: &[Vec<u64>; 9], count: usize) -> Vec<RawRecord> {
    let [flags, flow, size, seq, a, b, delta, ttl, tos] = x.each_ref().map(|x| &x[..count]);
    (0..count)
        .map(|i| RawRecord {
            flow: (flow[i] as u32).into(),
            size: (size[i] as u32).into(),
            seq: seq[i].into(),
            a: a[i].into(),
            b: b[i].into(),
            delta: (delta[i] as u32).into(),
            flags: (flags[i] as u16).into(),
            ttl: ttl[i] as u8,
            tos: tos[i] as u8,
        })
        .collect()
}

/// CRC-32C of records as they lie in a record block.
pub(crate) fn crc_of(records: &[RawRecord]) -> u32 {
    crc32c::crc32c(records.as_bytes())
}
