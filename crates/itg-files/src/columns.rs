//! Packets as columns: what flow they are of, numbers, times and their delay; and facts on their runs.
//!
//! Columns are made side by side, a batch for each stretch of packets, and handed on in order, or all at once, as
//! whoever reads them holds them ([`MakeColumn`]): [`crate::arrow`] has Arrow arrays, `itg-decode` what Parquet takes.
//! All numbers are signed: a difference of two of them, such as a delay that clocks make negative, must not wrap in
//! whatever reads the table. What is not known, or is 2⁶³ or more (damaged logs only), is null.

use std::collections::BTreeMap;

use itg_stats::exec::Executor;
use itg_stats::{Analysis, PacketFlow, PacketLine};

/// Version of the columns, in the metadata of tables.
pub const PACKET_SCHEMA: u32 = 3;

/// Number of columns of text.
pub const TEXTS: usize = 6;

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

/// Column of a selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// True if it may have values that are not known.
    pub nullable: bool,
    /// Its place among the columns of text; a column of numbers has none.
    pub text: Option<usize>,
}

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

    /// The columns themselves.
    pub fn columns(&self) -> impl Iterator<Item = Column> {
        self.0.iter().map(|&at| {
            let (name, nullable) = COLUMNS[at];
            Column { name, nullable, text: text_of(at) }
        })
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

/// Texts of a column for stretches of packets: a text, `None` where it is not known, and the number of packets.
pub type Stretches<'s> = [(Option<&'s str>, usize)];

/// Maker of columns, by which they are held as their reader wants them.
pub trait MakeColumn: Sync {
    /// A column of some packets.
    type Column: Send;

    /// Makes a column of numbers. `known` says whether the one at a place is known; without it all are.
    fn numbers(&self, values: Vec<i64>, known: Option<impl Fn(usize) -> bool>) -> Self::Column;

    /// Makes a column of texts, whose place among those of text is given.
    fn texts(&self, text: usize, stretches: &Stretches<'_>) -> Self::Column;
}

fn numbers<M: MakeColumn>(
    maker: &M,
    lines: &[PacketLine<'_>],
    get: impl Fn(&PacketLine<'_>) -> Option<i64>,
) -> M::Column {
    let mut unknown = false;
    // What stands under an unknown one is never read.
    let value = |line| {
        let value = get(line);
        unknown |= value.is_none();
        value.unwrap_or_default()
    };
    let values: Vec<i64> = lines.iter().map(value).collect();
    maker.numbers(values, unknown.then_some(|at: usize| get(&lines[at]).is_some()))
}

/// The column of numbers at this place: the choice of the field stands outside of the loop.
fn number_column<M: MakeColumn>(maker: &M, column: usize, lines: &[PacketLine<'_>]) -> M::Column {
    match column {
        2 => numbers(maker, lines, |line| number(2, line)),
        7 => numbers(maker, lines, |line| number(7, line)),
        8 => numbers(maker, lines, |line| number(8, line)),
        9 => numbers(maker, lines, |line| number(9, line)),
        10 => numbers(maker, lines, |line| number(10, line)),
        11 => numbers(maker, lines, |line| number(11, line)),
        12 => numbers(maker, lines, |line| number(12, line)),
        _ => numbers(maker, lines, |line| number(13, line)),
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
struct Made<'s, C> {
    rows: usize,
    columns: Vec<C>,
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
pub fn packets<'s, M: MakeColumn, E: Send>(
    analysis: &'s Analysis<'_>,
    executor: &dyn Executor,
    selection: &Selection,
    maker: &M,
    mut each: impl FnMut(usize, Vec<M::Column>) -> Result<(), E> + Send,
) -> Result<Vec<RunFacts>, E> {
    let flows = analysis.packet_flows();
    let make = |lines: &[PacketLine<'s>]| made(lines, &flows, selection, maker);
    let mut spans = Spans::new();
    analysis.packets_in_order(executor, &make, |made: Made<'s, M::Column>| {
        add(&mut spans, made.spans);
        each(made.rows, made.columns)
    })?;
    Ok(facts(&flows, spans))
}

/// Columns of some packets, with their number of rows.
pub type Batch<C> = (usize, Vec<C>);

/// Makes the same columns of all packets, and the runs, all at once: faster than [`packets`] where flows take turns.
pub fn collect<'s, M: MakeColumn>(
    analysis: &'s Analysis<'_>,
    executor: &dyn Executor,
    selection: &Selection,
    maker: &M,
) -> (Vec<Batch<M::Column>>, Vec<RunFacts>) {
    let flows = analysis.packet_flows();
    let make = |lines: &[PacketLine<'s>]| made(lines, &flows, selection, maker);
    let mut spans = Spans::new();
    let batches = analysis.collect_packets(executor, &make).into_iter().map(|made| {
        add(&mut spans, made.spans);
        (made.rows, made.columns)
    });
    let batches = batches.collect();
    (batches, facts(&flows, spans))
}

/// Spans of flows of runs.
type Spans<'s> = BTreeMap<(u32, &'s str), Option<Span>>;

fn add<'s>(spans: &mut Spans<'s>, some: Vec<((u32, &'s str), Option<Span>)>) {
    for (key, span) in some {
        let so_far = spans.entry(key).or_default();
        *so_far = wider(*so_far, span);
    }
}

fn made<'s, M: MakeColumn>(
    lines: &[PacketLine<'s>],
    flows: &BTreeMap<(u32, String), PacketFlow>,
    selection: &Selection,
    maker: &M,
) -> Made<'s, M::Column> {
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
        Some(place) => maker.texts(place, &stretches[place]),
        None => number_column(maker, at, lines),
    };
    Made { rows: lines.len(), columns: selection.0.iter().map(column).collect(), spans }
}

fn facts(flows: &BTreeMap<(u32, String), PacketFlow>, spans: Spans<'_>) -> Vec<RunFacts> {
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
