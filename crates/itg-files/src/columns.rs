//! Packets as Arrow columns: what flow they are of, numbers, times and their delay; and facts on their runs.
//!
//! Columns are made side by side, a batch for each stretch of packets, and handed on in order. All numbers are signed:
//! a difference of two of them, such as a delay that clocks make negative, must not wrap in whatever reads the table.
//! What is not known, or is 2⁶³ or more (damaged logs only), is null.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, DictionaryArray, Int32Array, Int64Array, StringArray};
use arrow_buffer::{BooleanBuffer, NullBuffer};
use arrow_schema::{DataType, Field, Schema};
use itg_stats::exec::Executor;
use itg_stats::{Analysis, PacketFlow, PacketLine};

/// Version of the columns, in the metadata of tables.
pub const PACKET_SCHEMA: u32 = 3;

/// Number of columns of text; they come first.
const TEXTS: usize = 6;

/// Name of each column, and whether it may be unknown.
const COLUMNS: [(&str, bool); 14] = [
    ("run", false),
    ("node", true),
    ("flow", false),
    ("name", true),
    ("proto", true),
    ("src", true),
    ("dst", true),
    ("seq", true),
    ("size_bytes", false),
    ("planned_ns", true),
    ("sent_ns", true),
    ("arrived_ns", true),
    ("read_ns", true),
    ("delay_ns", true),
];

/// Which columns of packets are made, in the order of their names in a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection(Vec<usize>);

/// A name that no column has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownColumn(pub String);

impl std::fmt::Display for UnknownColumn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
        write!(f, "no column `{}`: expected {}", self.0, names.join(", "))
    }
}

impl std::error::Error for UnknownColumn {}

impl Selection {
    /// Every column.
    #[must_use]
    pub fn all() -> Self {
        Self((0..COLUMNS.len()).collect())
    }

    /// Columns of these names, in the order in which they are named.
    ///
    /// # Errors
    /// A name that no column has.
    pub fn of(names: &[String]) -> Result<Self, UnknownColumn> {
        let place = |name: &String| {
            let found = COLUMNS.iter().position(|(known, _)| known == name);
            found.ok_or_else(|| UnknownColumn(name.clone()))
        };
        names.iter().map(place).collect::<Result<_, _>>().map(Self)
    }

    /// Names and types of these columns, texts being of the type `text`.
    #[must_use]
    pub fn schema(&self, text: &DataType) -> Schema {
        let field = |&at: &usize| {
            let (name, nullable) = COLUMNS[at];
            let kind = if text_of(at).is_some() { text.clone() } else { DataType::Int64 };
            Field::new(name, kind, nullable)
        };
        Schema::new(self.0.iter().map(field).collect::<Vec<_>>())
    }
}

/// Place of a column among those of text.
const fn text_of(column: usize) -> Option<usize> {
    match column {
        0 | 1 => Some(column),
        3..=6 => Some(column - 1),
        _ => None,
    }
}

/// A number as a column has it.
fn signed(value: Option<u64>) -> Option<i64> {
    value.and_then(|value| i64::try_from(value).ok())
}

/// The number of a packet in a column.
fn number(column: usize, line: &PacketLine<'_>) -> Option<i64> {
    match column {
        2 => Some(i64::from(line.flow)),
        7 => signed(Some(line.seq)),
        8 => Some(i64::from(line.size_bytes)),
        9 => signed(line.planned_ns),
        10 => signed(line.sent_ns),
        11 => signed(line.arrived_ns),
        12 => signed(line.read_ns),
        _ => line.delay_ns,
    }
}

/// A column of numbers.
fn numbers(lines: &[PacketLine<'_>], get: impl Fn(&PacketLine<'_>) -> Option<i64>) -> ArrayRef {
    let mut unknown = false;
    // What stands under a null is never read.
    let value = |line| {
        let value = get(line);
        unknown |= value.is_none();
        value.unwrap_or_default()
    };
    let values: Vec<i64> = lines.iter().map(value).collect();
    let known = || BooleanBuffer::collect_bool(lines.len(), |at| get(&lines[at]).is_some());
    Arc::new(Int64Array::new(values.into(), unknown.then(|| NullBuffer::new(known()))))
}

/// The column of numbers at this place: the choice of the field stands outside of the loop.
fn number_column(column: usize, lines: &[PacketLine<'_>]) -> ArrayRef {
    match column {
        2 => numbers(lines, |line| number(2, line)),
        7 => numbers(lines, |line| number(7, line)),
        8 => numbers(lines, |line| number(8, line)),
        9 => numbers(lines, |line| number(9, line)),
        10 => numbers(lines, |line| number(10, line)),
        11 => numbers(lines, |line| number(11, line)),
        12 => numbers(lines, |line| number(12, line)),
        _ => numbers(lines, |line| number(13, line)),
    }
}

/// Texts of a column for stretches of packets: a text, `None` where it is not known, and the number of packets.
pub type Stretches<'s> = [(Option<&'s str>, usize)];

/// Makes an array of the texts of a column, whose place among those of text is given.
pub type MakeTexts<'m> = &'m (dyn Fn(usize, &Stretches<'_>) -> ArrayRef + Sync);

/// Texts, each as often as there are packets.
#[must_use]
pub fn strings(_column: usize, stretches: &Stretches<'_>) -> ArrayRef {
    let all = stretches.iter().flat_map(|&(text, packets)| std::iter::repeat_n(text, packets));
    Arc::new(all.collect::<StringArray>())
}

/// The different texts of each column, which grow while packets are listed: columns then hold their numbers.
#[derive(Debug, Default)]
pub struct Dictionaries([Mutex<BTreeMap<String, i32>>; TEXTS]);

impl Dictionaries {
    /// Numbers of texts; [`Dictionaries::finish`] makes texts of them.
    #[must_use]
    pub fn keys(&self, column: usize, stretches: &Stretches<'_>) -> ArrayRef {
        let mut texts = self.0[column].lock().unwrap_or_else(PoisonError::into_inner);
        let mut key = |text: &str| {
            if let Some(&key) = texts.get(text) {
                return Some(key);
            }
            let key = i32::try_from(texts.len()).ok()?;
            texts.insert(text.to_owned(), key);
            Some(key)
        };
        let keys: Vec<_> =
            stretches.iter().map(|&(text, packets)| (text.and_then(&mut key), packets)).collect();
        drop(texts);
        let unknown = keys.iter().any(|(key, _)| key.is_none());
        if !unknown {
            let all = keys.iter().map(|&(key, packets)| (key.unwrap_or_default(), packets));
            let mut values = Vec::with_capacity(keys.iter().map(|(_, packets)| packets).sum());
            all.for_each(|(key, packets)| values.resize(values.len() + packets, key));
            return Arc::new(Int32Array::from(values));
        }
        let all = keys.into_iter().flat_map(|(key, packets)| std::iter::repeat_n(key, packets));
        Arc::new(all.collect::<Int32Array>())
    }

    /// The texts of each column, in the order of their numbers.
    #[must_use]
    pub fn texts(&self) -> Vec<ArrayRef> {
        let texts = self.0.iter().map(|texts| {
            let texts = texts.lock().unwrap_or_else(PoisonError::into_inner);
            let mut ordered: Vec<(i32, &str)> =
                texts.iter().map(|(text, &key)| (key, text.as_str())).collect();
            ordered.sort_unstable();
            Arc::new(ordered.into_iter().map(|(_, text)| Some(text)).collect::<StringArray>())
                as ArrayRef
        });
        texts.collect()
    }

    /// Type of the columns of text.
    #[must_use]
    pub fn data_type() -> DataType {
        DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
    }

    /// Puts [texts](Self::texts) in the place of their numbers in the columns of a selection.
    #[must_use]
    pub fn finish(
        selection: &Selection,
        columns: Vec<ArrayRef>,
        texts: &[ArrayRef],
    ) -> Vec<ArrayRef> {
        let with_texts = |(&at, column): (&usize, ArrayRef)| {
            let keys = column.as_any().downcast_ref::<Int32Array>();
            match (text_of(at), keys) {
                (Some(place), Some(keys)) => Arc::new(DictionaryArray::<Int32Type>::new(
                    keys.clone(),
                    Arc::clone(&texts[place]),
                )),
                _ => column,
            }
        };
        selection.0.iter().zip(columns).map(with_texts).collect()
    }
}

/// Facts on the packets of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFacts {
    /// Run id.
    pub run: String,
    /// Seed, where a log says it.
    pub seed: Option<u64>,
    /// Largest error that clocks make in the delays of the run; `None` where a flow has no such bound, and without
    /// delays.
    pub clock_bound_ns: Option<u64>,
}

/// Keys and values that describe a table of packets: lists in JSON, an entry a run.
#[must_use]
pub fn metadata(runs: &[RunFacts]) -> [(&'static str, String); 4] {
    let list = |value: &dyn Fn(&RunFacts) -> serde_json::Value| {
        serde_json::Value::from(runs.iter().map(value).collect::<Vec<_>>()).to_string()
    };
    [
        ("itg.schema", PACKET_SCHEMA.to_string()),
        ("itg.run", list(&|facts| facts.run.clone().into())),
        ("itg.seed", list(&|facts| facts.seed.into())),
        ("itg.clock_bound_ns", list(&|facts| facts.clock_bound_ns.into())),
    ]
}

/// Packets of a flow that have a delay: when the first and the last were sent.
type Span = (u64, u64);

/// A stretch of packets as it is made: its columns, and spans of its flows.
struct Made<'s> {
    rows: usize,
    columns: Vec<ArrayRef>,
    spans: Vec<((u32, &'s str), Option<Span>)>,
}

fn wider(a: Option<Span>, b: Option<Span>) -> Option<Span> {
    match (a, b) {
        (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
        (known, None) | (None, known) => known,
    }
}

/// Makes columns of all packets of an analysis, some at a time, and hands them on with their number of rows, in order:
/// by flow, run and sequence number. Returns the runs by their ids.
///
/// # Errors
/// The first one of `each`, which ends the listing.
pub fn packets<'s, E: Send>(
    analysis: &'s Analysis<'_>,
    executor: &dyn Executor,
    selection: &Selection,
    texts: MakeTexts<'_>,
    mut each: impl FnMut(usize, Vec<ArrayRef>) -> Result<(), E> + Send,
) -> Result<Vec<RunFacts>, E> {
    let flows = analysis.packet_flows();
    let make = |lines: &[PacketLine<'s>]| made(lines, &flows, selection, texts);
    let mut spans: BTreeMap<(u32, &'s str), Option<Span>> = BTreeMap::new();
    analysis.packets_in_order(executor, &make, |made: Made<'s>| {
        for (key, span) in made.spans {
            let so_far = spans.entry(key).or_default();
            *so_far = wider(*so_far, span);
        }
        each(made.rows, made.columns)
    })?;
    Ok(facts(&flows, spans))
}

fn made<'s>(
    lines: &[PacketLine<'s>],
    flows: &BTreeMap<(u32, String), PacketFlow>,
    selection: &Selection,
    texts: MakeTexts<'_>,
) -> Made<'s> {
    let unknown = PacketFlow::default();
    let mut spans = Vec::new();
    let mut stretches: [Vec<(Option<&str>, usize)>; TEXTS] = Default::default();
    for lines in lines.chunk_by(|a, b| (a.flow, a.run) == (b.flow, b.run)) {
        let Some(&PacketLine { flow, run, .. }) = lines.first() else { continue };
        let dated = lines.iter().filter(|line| line.delay_ns.is_some());
        let sent = dated.filter_map(|line| line.sent_ns);
        spans.push((
            (flow, run),
            sent.fold(None, |span, sent_ns| wider(span, Some((sent_ns, sent_ns)))),
        ));
        let flow = flows.get(&(flow, run.to_owned())).unwrap_or(&unknown);
        let said = [&*flow.node, &*flow.name, flow.proto, &*flow.src, &*flow.dst];
        stretches[0].push((Some(run), lines.len()));
        for (stretches, text) in stretches[1..].iter_mut().zip(said) {
            stretches.push((Some(text).filter(|text| !text.is_empty()), lines.len()));
        }
    }
    let column = |&at: &usize| match text_of(at) {
        Some(place) => texts(place, &stretches[place]),
        None => number_column(at, lines),
    };
    Made { rows: lines.len(), columns: selection.0.iter().map(column).collect(), spans }
}

fn facts(
    flows: &BTreeMap<(u32, String), PacketFlow>,
    spans: BTreeMap<(u32, &str), Option<Span>>,
) -> Vec<RunFacts> {
    /// Seed, and the bound: `None` without any flow with delays, and within where one has none.
    type Facts = (Option<u64>, Option<Option<u64>>);
    let mut runs: BTreeMap<&str, Facts> = BTreeMap::new();
    for ((number, run), span) in spans {
        let Some(flow) = flows.get(&(number, run.to_owned())) else { continue };
        let (seed, bound) = runs.entry(run).or_default();
        *seed = seed.or(flow.seed);
        if let Some((first, last)) = span {
            let own = flow.clock_bound_ns(first, last);
            *bound = Some(match *bound {
                None => own,
                Some(so_far) => so_far.zip(own).map(|(so_far, own)| so_far.max(own)),
            });
        }
    }
    let runs = runs.into_iter().map(|(run, (seed, bound))| RunFacts {
        run: run.to_owned(),
        seed,
        clock_bound_ns: bound.flatten(),
    });
    runs.collect()
}
