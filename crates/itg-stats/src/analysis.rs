//! From logs to the report: reads notes and records, joins the two sides of each flow, adds up.
//!
//! Logs are joined on (run id, flow number). A flow whose two sides are given has two entries in
//! the report; the receiver's knows what the sender sent, how late and how faithfully. The bytes of the
//! logs are borrowed and not copied, and of a compacted log one block at a time is decoded. How their
//! decoding is cut into pieces is in `decode`; reports are made flow by flow, side by side.

mod both_ends;
mod described;
mod notices;
mod objects;
mod owners;
mod promises;
mod shared_drops;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::OnceLock;

use itg_clocks::Dated;
use itg_core::flow::Meter;
use itg_core::units::{MAX_TIME_NS, format_duration_ns};
use itg_record::{FlowInfo, Kind, Record, Side};
use serde_json::Map;

use crate::clocks::Clocks;
use crate::decode::{self, Decoded, Pass};
use crate::delay::signed_difference;
use crate::departures::Departed;
use crate::exec::{self, Executor, Inline};
use crate::fidelity::Distributions;
use crate::filter::{Attributes, Filter};
use crate::logs::{Key, Log, LogError, Logs, known_meter, known_proto, side_name};
use crate::losses;
use crate::marks::MarksReport;
use crate::packets::{PacketLine, Packets};
use crate::plan::Plan;
use crate::plot::trace::TraceSetup;
use crate::plot::{self, Plots};
use crate::report::{
    ClockReport, DelayBasis, FlowIntervals, FlowReport, GroupBy, GroupReport, Intervals, LogDamage,
    REPORT_SCHEMA, Report,
};
use crate::series::{Grid, IntervalRow, Window};
use crate::stats::{Facts, FlowStats, Lane, PLAN_PACKETS, Setup};
use crate::tcp;
use crate::total::Totals;
use both_ends::{departed, facts, told};
pub use described::PacketFlow;
use notices::Remarks;
use objects::{Object, Objects, are_of_both_sides, find, peer, put_in_order, together};
use owners::{Lack, Owners};

/// Rows of a series beyond which only windows that hold packets are listed.
pub const MAX_ROWS: u64 = 2_000_000;

/// Reports that are made side by side, before the figures that they are made of are let go.
const REPORTED_AT_ONCE: usize = 1024;

/// Selection of what to decode, and its resolution.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Length of the windows of the series in nanoseconds; no series when `None` or 0.
    pub interval_ns: Option<u64>,
    /// Flow numbers to decode; all when empty.
    pub flows: BTreeSet<u32>,
    /// Condition for flows to decode; all when `None`.
    pub filter: Option<Filter>,
    /// Packets of a flow whose plan is computed again when the sender's log is not given;
    /// [`PLAN_PACKETS`] when `None`.
    pub plan_packets: Option<u64>,
    /// Attributes to group flows by; no groups when empty.
    pub by: Vec<GroupBy>,
    /// Number of flows to draw one by one; nothing is kept for plots when `None`.
    pub plots: Option<usize>,
}

/// Logs on their way to a report.
#[derive(Debug, Default)]
pub struct Analysis<'a> {
    options: Options,
    given: Logs<'a>,
    /// The same files read block by block, where one was found not to be as it was written.
    strict: OnceLock<Logs<'a>>,
}

impl<'a> Analysis<'a> {
    /// An analysis without logs.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { options, ..Self::default() }
    }

    /// Takes a log file, whole or damaged. The bytes are borrowed until the report is made.
    ///
    /// # Errors
    /// Bytes without a single good block, or the same bytes again.
    pub fn add_log(&mut self, bytes: &'a [u8], name: &str) -> Result<(), LogError> {
        self.add_log_with(bytes, name, &Inline)
    }

    /// As [`Analysis::add_log`], with an executor that is told which bytes have been passed.
    ///
    /// # Errors
    /// As [`Analysis::add_log`].
    pub fn add_log_with(
        &mut self,
        bytes: &'a [u8],
        name: &str,
        executor: &dyn Executor,
    ) -> Result<(), LogError> {
        self.strict = OnceLock::new();
        self.given.add(bytes, name, executor)
    }

    /// The logs as far as they are known.
    fn logs(&self) -> &Logs<'a> {
        self.strict.get().unwrap_or(&self.given)
    }

    /// Returns true if the logs are sound, as was assumed when they were read; if not, they have
    /// now been read strictly, and all results so far are void.
    fn stands(&self, executor: &dyn Executor) -> bool {
        let stands = self.strict.get().is_some() || self.given.are_sound(executor);
        if !stands {
            self.strict.get_or_init(|| self.given.strictly(executor));
        }
        stands
    }

    /// Damage of the logs so far. Blocks that have not been read yet are checked for it: call this
    /// after the report or the packets.
    #[must_use]
    pub fn damage(&self) -> &[LogDamage] {
        self.stands(&Inline);
        &self.logs().damage
    }

    /// Logs so far that have no end, because they are still being written or their writer was killed,
    /// with what stands unfinished at the end of their files. No damage: what was written is there. As
    /// [`Analysis::damage`], best asked for last.
    #[must_use]
    pub fn not_closed(&self) -> &[LogDamage] {
        self.stands(&Inline);
        &self.logs().not_closed
    }

    /// The runs whose flows are decoded, by their ids. A receiver that served many holds them all,
    /// and flow numbers repeat.
    #[must_use]
    pub fn runs(&self) -> BTreeSet<&str> {
        let mut runs = BTreeSet::new();
        for log in &self.logs().logs {
            let side = log.side();
            let flows = log.flows.iter();
            let wanted =
                flows.filter(|(index, _)| self.wants(log, **index, &log.key(**index, side)));
            runs.extend(wanted.map(|(_, info)| info.run.as_str()));
        }
        runs
    }

    /// Every packet of the logs, joined over the two sides, in the order of flow, run and sequence
    /// number: all at once, 104 bytes each. See [`Analysis::packets_in_order`] for long logs.
    #[must_use]
    pub fn packets(&self) -> Vec<PacketLine<'_>> {
        let mut all = Vec::new();
        let append = |lines: Vec<_>| {
            all.extend(lines);
            Ok::<(), std::convert::Infallible>(())
        };
        let Ok(()) = self.packets_in_order(&Inline, &<[PacketLine<'_>]>::to_vec, append);
        all
    }

    /// Every packet of the logs in the same order, some at a time: `make` makes something of them, on any
    /// thread, and `each` takes it in order. Memory does not grow with the packets.
    ///
    /// # Errors
    /// The first one of `each`, which ends the listing.
    pub fn packets_in_order<'s, T: Send, E: Send>(
        &'s self,
        executor: &dyn Executor,
        make: &(dyn Fn(&[PacketLine<'s>]) -> T + Sync),
        mut each: impl FnMut(T) -> Result<(), E> + Send,
    ) -> Result<(), E> {
        self.listing(executor).for_each(executor, make, &mut each)
    }

    /// Every packet of the logs in the same order: `make` makes something of some of them at a time, on any thread, and
    /// all that it made is returned: memory grows with it. A log is gone through once for all large flows that take
    /// turns in it, where [`Analysis::packets_in_order`] does it for each.
    pub fn collect_packets<'s, T: Send>(
        &'s self,
        executor: &dyn Executor,
        make: &(dyn Fn(&[PacketLine<'s>]) -> T + Sync),
    ) -> Vec<T> {
        self.listing(executor).collect(executor, make)
    }

    /// The packets, ready to be listed.
    fn listing<'s>(&'s self, executor: &dyn Executor) -> Packets<'s, 'a> {
        let wants = |log: &Log<'_>, index: u32, key: &Key| self.wants(log, index, key);
        let list = |logs: &'s [Log<'a>]| Packets::new(logs, &Clocks::of(logs), executor, wants);
        let packets = list(&self.logs().logs);
        if self.stands(executor) { packets } else { list(&self.logs().logs) }
    }

    /// The report.
    #[must_use]
    pub fn finish(&self) -> Report {
        self.finish_with(&Inline)
    }

    /// The report, its figures added up side by side.
    #[must_use]
    pub fn finish_with(&self, executor: &dyn Executor) -> Report {
        let report = self.report(executor);
        if self.stands(executor) { report } else { self.report(executor) }
    }

    fn report(&self, executor: &dyn Executor) -> Report {
        let grid = self.grid(executor);
        let clocks = Clocks::of(&self.logs().logs);
        let mut objects = self.decode(grid, &clocks, executor);
        shared_drops::mark(&mut objects);
        let promises = self.promises(&objects);
        let both = are_of_both_sides(&objects);
        put_in_order(&mut objects);
        let mut totals = Totals::default();
        let mut groups: BTreeMap<Vec<String>, Totals> = BTreeMap::new();
        let mut flows = Vec::with_capacity(objects.len());
        let mut remarks = Remarks::default();
        // What has been reported is kept for windows and plots alone.
        let keeps = grid.is_some() || self.options.plots.is_some();
        let (mut rest, mut kept) = (VecDeque::from(objects), Vec::new());
        while !rest.is_empty() {
            let some = together(rest.make_contiguous(), REPORTED_AT_ONCE);
            let some: Vec<_> = rest.drain(..some).collect();
            let made = exec::collect(executor, some.len(), |at| report(&some, at, &clocks));
            for ((at, (key, object)), mut report) in some.iter().enumerate().zip(made) {
                let peer = peer(&some, at);
                let facts = facts(object, peer);
                // Of all flows at once it would be too much to hold.
                let departed = departed(object, peer);
                if object.counts(peer) {
                    remarks.add(&mut report, object, peer, &facts);
                    let departed = departed.as_ref();
                    totals.add(key.flow, &object.stats, &report.metrics, &facts, departed);
                    if !self.options.by.is_empty() {
                        let values = self.options.by.iter().map(|by| by.value(&report)).collect();
                        let group = groups.entry(values).or_default();
                        group.add(key.flow, &object.stats, &report.metrics, &facts, departed);
                    }
                }
                if both {
                    totals.join(&object.stats, peer.is_some(), object.meter(), &facts);
                }
                flows.push(report);
            }
            if keeps {
                kept.extend(some);
            }
        }
        let plots = self.options.plots.map(|most| draw(&kept, &flows, most));
        let (total, mut notices) = totals.finish();
        notices.extend(self.log_notices());
        let errors = remarks.finish(&mut notices);
        let intervals = grid.map(|grid| intervals(grid, &kept, &mut notices));
        let groups = groups.into_iter().map(|(values, totals)| {
            let (total, notices) = totals.finish();
            let by = self.options.by.iter().map(|by| by.name().to_owned()).zip(values).collect();
            GroupReport { by, flows: total.flows, metrics: total.metrics, notices }
        });
        let groups = (!self.options.by.is_empty()).then(|| groups.collect());
        let mut manifest = Map::new();
        manifest.insert("logs".to_owned(), self.log_manifests().into());
        Report {
            schema: REPORT_SCHEMA,
            manifest,
            flows,
            groups,
            promises,
            total,
            intervals,
            plots,
            damage: self.logs().damage.clone(),
            errors,
            notices,
        }
    }

    /// Settings for the trace of each flow; `None` without plots.
    fn trace(&self, clocks: &Clocks) -> Option<TraceSetup> {
        self.options.plots?;
        let flows = self.logs().logs.iter().map(|log| log.flows.len()).sum();
        Some(TraceSetup { bins: plot::bins_each(flows), origin_ns: self.origin(clocks) })
    }

    /// Smallest delay at the start of the logs if two clocks disagree and nothing corrects them;
    /// else 0.
    fn origin(&self, clocks: &Clocks) -> i64 {
        const LOOKED_AT: usize = 1 << 14;
        let delays = self.logs().logs.iter().flat_map(|log| {
            let apart = |index: &u32| {
                log.flows.get(index).is_some_and(|info| {
                    !clocks.is_one(info) && clocks.correcting(info, Side::Receiver).is_none()
                })
            };
            let first = log.records().take(LOOKED_AT);
            first
                .filter(move |r| {
                    r.kind == Kind::Received && r.a != 0 && r.has_good_times() && apart(&r.flow)
                })
                .map(|r| signed_difference(r.b, r.a))
        });
        delays.min().unwrap_or(0)
    }

    /// Returns true if a flow is to be decoded.
    fn wants(&self, log: &Log<'_>, index: u32, key: &Key) -> bool {
        let chosen = self.options.flows.is_empty() || self.options.flows.contains(&key.flow);
        chosen
            && self.options.filter.as_ref().is_none_or(|filter| {
                let info = log.flow(index);
                filter.matches(&Attributes {
                    flow: key.flow,
                    proto: info.and_then(known_proto).unwrap_or(""),
                    src: info.map_or("", |info| &info.src),
                    dst: info.map_or("", |info| &info.dst),
                    name: info.and_then(|info| info.name.as_deref()).unwrap_or(""),
                    profile: info.and_then(|info| info.spec.profile.as_deref()).unwrap_or(""),
                    side: side_name(key.side),
                    run: &key.run,
                })
            })
    }

    /// Windows from the first packet of all flows.
    fn grid(&self, executor: &dyn Executor) -> Option<Grid> {
        let interval_ns = self.options.interval_ns.filter(|&ns| ns > 0)?;
        let logs = &self.logs().logs;
        let start_unix_ns = decode::earliest(logs, executor, &|number, side, record| {
            let log = &logs[number];
            let all = self.options.flows.is_empty() && self.options.filter.is_none();
            let wanted = || self.wants(log, record.flow, &log.key(record.flow, side));
            is_counted(log, record) && record.b <= MAX_TIME_NS && (all || wanted())
        })?;
        Some(Grid { start_unix_ns, interval_ns })
    }

    /// Adds up the records of all logs.
    fn decode(&self, grid: Option<Grid>, clocks: &Clocks, executor: &dyn Executor) -> Objects<'_> {
        let logs = &self.logs().logs;
        let sides: Vec<_> = logs.iter().map(Log::side).collect();
        let plan_packets = self.options.plan_packets.unwrap_or(PLAN_PACKETS);
        let basis = Basis { grid, plan_packets };
        // Flows without records count too.
        let mut sources: BTreeMap<Key, Vec<(usize, u32)>> = BTreeMap::new();
        for (number, log) in logs.iter().enumerate() {
            for &index in log.flows.keys() {
                self.source(&mut sources, (number, index));
            }
        }
        let trace = self.trace(clocks);
        let setup = |number: usize, index: u32, lane: Lane| -> Option<Setup> {
            let (log, side) = (&logs[number], sides[number]);
            let clock = || log.flow(index).and_then(|info| clocks.correcting(info, side));
            self.wants(log, index, &log.key(index, side)).then(|| Setup {
                trace,
                clock: clock(),
                sender_clock: clocks.sender(log, index),
                ..setup(log, index, side, basis, lane)
            })
        };
        let pass = Pass { logs, setup: &setup, executor };
        // Plans are computed again from what arrived, where the sender, as far as given, is as asked for.
        let of_receivers = sources.iter().filter(|(key, _)| key.side == Side::Receiver);
        let planned = of_receivers.filter(|(key, _)| !sources.contains_key(&key.other()));
        let planned = planned.flat_map(|(_, sources)| sources.iter().copied()).collect();
        let mut decoded = pass.run(&planned, true);
        for (number, flows) in decoded.iter().enumerate() {
            flows.keys().for_each(|&index| self.source(&mut sources, (number, index)));
        }
        let mut objects = Objects::with_capacity(sources.len());
        for (key, sources) in sources {
            let object = object(logs, &pass, &sources, (&mut decoded, &planned), basis);
            objects.extend(object.map(|object| (key, object)));
        }
        // Senders that have a log, but no packet of the flow in it.
        let silent = |key: &Key| {
            let place = objects.binary_search_by_key(&&key.other(), |(key, _)| key);
            place.is_ok_and(|place| !objects[place].1.stats.has_departures())
        };
        let of_receivers = objects.iter().filter(|(key, _)| key.side == Side::Receiver);
        let planned = of_receivers.filter(|(key, _)| silent(key));
        let planned: BTreeSet<_> =
            planned.flat_map(|(_, object)| object.owners.sources()).collect();
        if !planned.is_empty() {
            for (number, flows) in pass.run(&planned, false).into_iter().enumerate() {
                for (index, plan) in flows {
                    let key = logs[number].key(index, sides[number]);
                    if let Some(object) = find(&mut objects, &key) {
                        object.stats.adopt_departures(*plan);
                    }
                }
            }
        }
        for (number, log) in logs.iter().enumerate() {
            self.ends(&mut objects, number, log);
            samples(&mut objects, log, sides[number], clocks);
        }
        objects
    }

    /// Notes where a flow has records, if it is wanted.
    fn source(&self, sources: &mut BTreeMap<Key, Vec<(usize, u32)>>, source: (usize, u32)) {
        let log = &self.logs().logs[source.0];
        let key = log.key(source.1, log.side());
        if self.wants(log, source.1, &key) {
            let of_flow = sources.entry(key).or_default();
            if !of_flow.contains(&source) {
                of_flow.reserve_exact(1);
                of_flow.push(source);
            }
        }
    }

    /// Tells the objects how a log ends, and the flows in it.
    fn ends<'l>(&self, objects: &mut Objects<'l>, number: usize, log: &'l Log<'_>) {
        let side = log.side();
        for (&index, end) in &log.ends {
            if let Some(object) = find(objects, &log.key(index, side)) {
                object.owners.ended((number, index), end);
            }
        }
        let harmed = log.end.is_some_and(|end| end.lost_records > 0)
            || self.logs().damage.iter().any(|damage| log.is_in(&damage.log));
        for &index in log.flows.keys() {
            let Some(object) = find(objects, &log.key(index, side)) else { continue };
            // The replies of a round trip go on when its sender has ended.
            let round_trip = object.stats.is_round_trip();
            let open = !log.is_ended() && (round_trip || !log.ends.contains_key(&index));
            if open {
                object.notices.push(notices::unended(&log.name, side));
            }
            let headless = log.headless.contains(&index);
            if headless {
                object.notices.push(notices::headless(&log.name));
            }
            let lack = match (harmed || headless, open) {
                (true, _) => Lack::Some,
                (false, true) => Lack::Tail,
                (false, false) => Lack::Nothing,
            };
            match side {
                Side::Receiver => object.owners.lacks_of_counted((number, index), lack),
                Side::Sender => object.owners.lacks((number, index), lack),
            }
        }
    }

    fn log_notices(&self) -> Vec<String> {
        let mut notices = Vec::new();
        for log in &self.logs().logs {
            let lost = log.end.map_or(0, |end| end.lost_records);
            if lost > 0 {
                notices.push(format!(
                    "{}: {lost} records could not be written when the log was made: their packets count as lost \
                     nowhere, and where nobody counted them the loss is not known",
                    log.name
                ));
            }
        }
        notices.extend(self.logs().not_closed.iter().map(ToString::to_string));
        if !self.logs().damage.is_empty() {
            notices.push(
                "a log is damaged: packets whose records are in the damaged parts count as lost nowhere, and where \
                 nobody counted them the loss is not known"
                    .to_owned(),
            );
        }
        notices
    }
}

/// The object of a flow, with what was added up in its logs.
fn object<'l>(
    logs: &'l [Log<'_>],
    pass: &Pass<'_, '_>,
    sources: &[(usize, u32)],
    (decoded, planned): (&mut [Decoded], &BTreeSet<(usize, u32)>),
    basis: Basis,
) -> Option<Object<'l>> {
    let &(number, index) = sources.first()?;
    let log = &logs[number];
    let mut owners = Owners::default();
    sources.iter().for_each(|source| owners.add(*source, logs[source.0].flow(source.1)));
    let mut sum: Option<Box<FlowStats>> = None;
    let mut whole = false;
    for source in sources {
        let Some(part) = decoded[source.0].remove(&source.1) else { continue };
        owners.saw(*source, part.volume());
        match &mut sum {
            _ if whole => {}
            None => sum = Some(part),
            Some(sum) => {
                if sum.append(*part) {
                    continue;
                }
                // Another log of the same flow, whose packets lie among those of this one.
                let again = sources.iter().any(|source| planned.contains(source));
                let lane = if again { Lane::All } else { Lane::Arrivals };
                if let Some(stats) = pass.one_by_one(sources, lane) {
                    (**sum, whole) = (stats, true);
                }
            }
        }
    }
    let stats = sum.unwrap_or_else(|| {
        let setup = setup(log, index, log.side(), basis, Lane::Arrivals);
        Box::new(FlowStats::new(Setup { plan: None, ..setup }))
    });
    Some(Object::new(log, index, owners, stats))
}

impl<'l> Object<'l> {
    fn new(log: &'l Log<'_>, index: u32, owners: Owners<'l>, stats: Box<FlowStats>) -> Self {
        let info = log.flow(index);
        let mut notices = Vec::new();
        match info {
            None => notices.push(format!(
                "{}: the description of the flow with index {index} is lost: it is shown under that \
                 number",
                log.name
            )),
            Some(info) => {
                notices.extend(info.notices.iter().cloned());
                notices.extend(notices::changed(&info.spec.changes));
                if info.ditg.is_none()
                    && let Err(error) = Plan::new(&info.spec, info.seed)
                {
                    notices.push(format!(
                        "the plan cannot be computed again, so sizes are not compared: {error}"
                    ));
                }
            }
        }
        let held = log.side() == Side::Sender && log.is_held();
        let (tcp, departures, shares_drops) = (Vec::new(), Vec::new(), false);
        Self { info, owners, tcp, departures, held, stats, notices, shares_drops }
    }

    fn meter(&self) -> Meter {
        self.info.map_or(Meter::Owd, |info| info.spec.meter)
    }

    /// An end of the flow that the log contradicts: packets counted, and the more that are in the log.
    fn contradiction(&self) -> Option<(u64, u64)> {
        match (self.stats.side(), self.stats.counts_arrivals()) {
            (Side::Receiver, _) => self.owners.contradiction(|end| end.received_packets),
            (Side::Sender, false) => self.owners.contradiction(|end| end.sent_packets),
            // Replies in the log, packets in the account.
            (Side::Sender, true) => None,
        }
    }

    /// Returns true if this side is the one that the total counts when both are given.
    fn is_primary(&self) -> bool {
        match self.meter() {
            Meter::Owd => self.stats.side() == Side::Receiver,
            Meter::Rtt => self.stats.side() == Side::Sender,
        }
    }
}

/// Settings for all flows.
#[derive(Clone, Copy)]
struct Basis {
    grid: Option<Grid>,
    plan_packets: u64,
}

/// Description of a flow of a log before its records are read.
fn setup(log: &Log<'_>, index: u32, side: Side, basis: Basis, lane: Lane) -> Setup {
    let info = log.flow(index);
    let plan = info.filter(|_| side == Side::Sender || lane != Lane::Arrivals);
    Setup {
        side,
        meter: log.meter(index),
        epoch_unix_ns: info
            .map(|info| info.epoch_unix_ns)
            .filter(|&ns| ns > 0 && ns <= MAX_TIME_NS),
        plan: plan.and_then(|info| Plan::new(&info.spec, info.seed).ok().map(Box::new)),
        distributions: info.and_then(|info| Distributions::new(&info.spec, info.seed).ok()),
        grid: basis.grid,
        lane,
        clock: None,
        sender_clock: None,
        plan_packets: basis.plan_packets,
        trace: None,
        declared_p99_ns: log.declared_p99_ns().filter(|_| side == Side::Sender),
    }
}

/// Adds the samples of TCP connections and of departures that a log has.
fn samples(objects: &mut Objects<'_>, log: &Log<'_>, side: Side, clocks: &Clocks) {
    for (&index, samples) in &log.tcp {
        if let Some(object) = find(objects, &log.key(index, side)) {
            object.tcp.push(samples.clone());
        }
    }
    for (&index, notes) in &log.departures {
        let Some(object) = find(objects, &log.key(index, side)) else { continue };
        let epoch = log.flow(index).map(|info| info.epoch_unix_ns);
        let mut notes = notes.clone();
        if let Some((clock, epoch)) = clocks.sender(log, index).zip(epoch) {
            // Near a step the kernel's clock was another one than that of the hand-over.
            for note in &mut notes {
                note.samples.retain_mut(|sample| {
                    let due_ns = epoch.saturating_add(sample.planned_ns);
                    let packet = Dated { due_ns, sent_ns: sample.handed_unix_ns };
                    sample.handed_unix_ns = clock.correct(packet);
                    !clock.is_near_step(packet)
                });
            }
        }
        object.departures.push((epoch, notes));
    }
}

/// Plots of the flows that the total counts.
fn draw(objects: &Objects<'_>, flows: &[FlowReport], most: usize) -> Plots {
    let all = objects.iter().zip(flows).enumerate();
    let counted = all.map(|(place, all)| (place, all, peer(objects, place)));
    let counted = counted.filter(|(_, ((_, object), _), peer)| object.counts(*peer));
    let subjects: Vec<_> = counted
        .map(|(place, ((_, object), flow), peer)| plot::Subject {
            place,
            stats: &object.stats,
            facts: facts(object, peer),
            metrics: &flow.metrics,
        })
        .collect();
    let spec = |object: &Object<'_>| object.info.map(|info| info.spec.clone());
    let specs = objects.iter().map(|(_, object)| spec(object)).collect();
    Plots::draw(&subjects, most, specs)
}

/// Returns true if a record belongs to the packets that its flow counts: see [`FlowStats::volume`].
fn is_counted(log: &Log<'_>, record: &Record) -> bool {
    match record.kind {
        Kind::Sent => log.meter(record.flow) == Meter::Owd,
        Kind::Received | Kind::Echoed => true,
    }
}

/// The report on one of these objects.
fn report(objects: &[(Key, Object<'_>)], at: usize, clocks: &Clocks) -> FlowReport {
    let ((key, object), peer) = (&objects[at], peer(objects, at));
    let facts = facts(object, peer);
    let departed = departed(object, peer);
    let mut flow = of_one_side(key, object, &facts, clocks, departed.as_ref());
    let of_sender = if key.side == Side::Sender { Some(object) } else { peer };
    let congestion_control = of_sender.and_then(|object| tcp::congestion_control(&object.tcp));
    flow.metrics.congestion_control = congestion_control;
    flow.metrics.set_limit(object.info.and_then(|info| info.spec.own_limit()));
    flow.metrics.settle(told(object, peer, &facts));
    flow.notices.extend(flow.metrics.account_notices());
    flow
}

fn of_one_side(
    key: &Key,
    object: &Object<'_>,
    facts: &Facts<'_>,
    clocks: &Clocks,
    departed: Option<&Departed>,
) -> FlowReport {
    let info = object.info;
    let mut metrics = Box::new(object.stats.summary(facts));
    let mut notices = Vec::new();
    if let Some(departed) = departed {
        metrics.set_departures(departed);
        notices = departed.notices();
    }
    let pair = |info: &FlowInfo| [info.sender_boot_id.clone(), info.receiver_boot_id.clone()];
    let owners = || object.owners.described(info);
    // Of senders with different clocks none is that of the flow.
    let alike = info.filter(|info| owners().all(|(other, _)| pair(other) == pair(info)));
    let clock = alike.and_then(|info| clocks.report(info, object.stats.volume(), key.side));
    metrics.delay_basis = metrics.delay_ns.map(|delay| {
        let basis = |info: &FlowInfo, clock: Option<&ClockReport>| match clock {
            _ if object.stats.is_round_trip() || clocks.is_one(info) => DelayBasis::ONE_CLOCK,
            Some(clock) => DelayBasis::corrected(clock.bound_ns, delay.p50),
            None => DelayBasis::TWO_CLOCKS,
        };
        let of_all = match alike {
            Some(info) => Some(basis(info, clock.as_ref())),
            // Each over its own packets, as they were corrected.
            None => owners()
                .map(|(info, seen)| basis(info, clocks.report(info, &seen, key.side).as_ref()))
                .reduce(DelayBasis::and),
        };
        let unknown = || match object.stats.is_round_trip() {
            true => DelayBasis::ONE_CLOCK,
            false => DelayBasis::TWO_CLOCKS,
        };
        let basis = of_all.unwrap_or_else(unknown);
        if facts.stream { basis.by_reading() } else { basis }
    });
    let counted = Some(&object.owners).filter(|_| key.side == Side::Receiver);
    // D-ITG's logs do not say which marks its flows ask for.
    let told = info.filter(|info| info.ditg.is_none() || info.spec.socket.tos.is_some());
    let marks = object.stats.marks().report(told.map(|info| &info.spec.socket));
    notices.extend(marks.iter().flat_map(MarksReport::notices));
    FlowReport {
        flow: key.flow,
        name: info.and_then(|info| info.name.clone()).unwrap_or_else(|| key.flow.to_string()),
        proto: info.and_then(known_proto),
        src: info.map_or_else(String::new, |info| info.src.clone()),
        dst: info.map_or_else(String::new, |info| info.dst.clone()),
        side: side_name(key.side),
        run: key.run.clone(),
        // D-ITG's flows have none.
        seed: info.filter(|info| info.ditg.is_none() || info.seed != 0).map(|info| info.seed),
        meter: info.and_then(known_meter),
        profile: info.and_then(|info| info.spec.profile.clone()),
        metrics,
        host_buffer_errors: counted.and_then(|owners| owners.told(|end| end.buffer_errors)),
        receive_buffer_bytes: counted.and_then(|owners| owners.smallest(|end| end.receive_buffer)),
        foreign_packets: counted.and_then(|owners| owners.told(|end| end.foreign_packets)),
        end: object.owners.reason(),
        notices: notices::of_flow(object, facts, clock.as_ref())
            .into_iter()
            .chain(notices)
            .collect(),
        departures: departed.map(|departed| Box::new(departed.report.clone())),
        marks,
        tcp: tcp::report(&object.tcp),
        clock,
    }
}

fn intervals(grid: Grid, objects: &Objects<'_>, notices: &mut Vec<String>) -> Intervals {
    let (mut total, mut lost_why) = (BTreeMap::<u64, Window>::new(), None);
    let mut series = Vec::new();
    for (place, (key, object)) in objects.iter().enumerate() {
        let Some(own) = object.stats.series() else { continue };
        let mut windows = own.windows();
        let peer = peer(objects, place);
        let facts = facts(object, peer);
        let why = losses::place(&object.stats, &facts, &mut windows).err();
        if object.counts(peer) {
            windows.iter().for_each(|(at, window)| total.entry(*at).or_default().merge(window));
            lost_why = lost_why.or_else(|| why.map(|_| "those of a flow are not known"));
        }
        series.push((key, why, windows));
    }
    let ends = series.iter().filter_map(|(.., windows)| windows.keys().next_back());
    let last = ends.copied().max().unwrap_or(0);
    let dense = last.saturating_add(1).saturating_mul(series.len() as u64 + 1) <= MAX_ROWS;
    if !dense {
        notices.push(format!(
            "windows of {} over {} are too many to list: only those that hold packets are",
            format_duration_ns(grid.interval_ns),
            format_duration_ns(last.saturating_mul(grid.interval_ns)),
        ));
    }
    let rows = |windows: &BTreeMap<u64, Window>, losses_known: bool| {
        let row = |number, window: &_| IntervalRow::new(number, last, grid, window, losses_known);
        if dense {
            let window = |number| windows.get(&number).copied().unwrap_or_default();
            (0..=last).map(|number| row(number, &window(number))).collect()
        } else {
            windows.iter().map(|(&number, window)| row(number, window)).collect()
        }
    };
    let flow = |(key, lost_why, windows): &(&Key, Option<_>, _)| FlowIntervals {
        flow: key.flow,
        run: key.run.clone(),
        side: side_name(key.side),
        lost_why: *lost_why,
        windows: rows(windows, lost_why.is_none()),
    };
    Intervals {
        interval_ns: grid.interval_ns,
        start_unix_ns: grid.start_unix_ns,
        flows: series.iter().map(flow).collect(),
        lost_why,
        total: rows(&total, lost_why.is_none()),
    }
}
