//! Sending a plan from this host, and saying what became of it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use itg_core::flow::{Meter, Payload};
use itg_core::payload::Content;
use itg_core::units::format_bytes;
use itg_engine::pacing::{self, Level, PacingOptions, Prepared};
use itg_engine::{FlowLive, LogLimits, LogTarget};
use itg_experiment::{PathMtu, Plan, PlannedFlow};
use itg_node::{ArrivalAsks, FlowOutcome, SendFlow, SendJob, SendOutcome, Start, arrival_asks};
use itg_session::{Difference, Timeouts, explain, explain_replies};
use itg_socket::{PacketEngine, can_share, txtime};
use itg_stats::summary::ROWS;

use crate::failure::{Failure, refuse};
use crate::intervals::{IntervalLines, Intervals, SentFlow, SentFlows};
use crate::log_args::log_failure;
use crate::progress::{Progress, Shown};
use crate::signals::Signals;
use crate::text_file::read_file;
use crate::verbosity::{WordArgs, say};

/// Way of round trips, which have lines for intervals of their own where the two ways have.
const ROUND_TRIPS: &str = "round trips";

/// Settings for sending a plan.
pub struct Sending<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// Run id (see [`draw_run`]).
    pub run: String,
    /// Name and version of the program.
    pub program: (&'a str, &'a str),
    /// Instant from which planned times count.
    pub start: Start,
    /// Waiting of the sending thread, and path of its packets.
    pub pacing: PacingOptions,
    /// Log of what is sent.
    pub log: Option<LogTarget>,
    /// Size of the log's blocks, and memory that they may take.
    pub log_limits: LogLimits,
    /// Name of a log that receivers are asked to keep, or the URL of a log server to send it to.
    pub recv_log: Option<String>,
    /// Secret shared with the receivers, when packets shall prove where they come from.
    pub packet_secret: Option<Vec<u8>>,
    /// True if this thread gives way to the one that sends, for good: where the program sends one run and does nothing
    /// else.
    pub giving_way: bool,
    /// Time for which a receiver may be silent while packets flow; the usual one when `None`.
    pub peer_timeout_ns: Option<u64>,
    /// True to show progress, on a terminal.
    pub progress: bool,
    /// Lines for intervals, instead of the progress.
    pub interval: Option<IntervalLines>,
    /// Every resolved setting, for the log.
    pub settings: BTreeMap<String, String>,
}

/// Result of sending a plan.
pub struct SendingResult {
    /// The flows and logs.
    pub outcome: SendOutcome,
    /// The exit code of the command-line contract.
    pub code: u8,
}

/// A fresh run id: 32 hexadecimal digits.
#[must_use]
pub fn draw_run() -> String {
    format!("{:016x}{:016x}", itg_socket::host::random_u64(), itg_socket::host::random_u64())
}

/// Sends the flows of a plan that `receiver` gives a receiver for; ends early on a signal.
///
/// # Errors
/// Payload files that cannot be read, a log that cannot be written. What goes wrong between the
/// hosts is part of the result.
pub async fn send_plan(
    sending: Sending<'_>,
    receiver: impl Fn(&PlannedFlow) -> Option<SocketAddr>,
    signals: &Signals,
) -> Result<SendingResult> {
    send_plan_observed(sending, receiver, signals, |_| ()).await
}

impl Sending<'_> {
    /// Checks that these flows can be sent in this way.
    fn suits(&self, flows: &[SendFlow]) -> Result<()> {
        let engine = self.pacing.engine;
        for flow in flows {
            engine.serves(flow.flow().spec()).map_err(refuse)?;
        }
        for flow in flows.iter().filter(|_| self.packet_secret.is_some()) {
            flow.flow().can_prove().map_err(refuse)?;
        }
        let held = self.pacing.level == Some(Level::Txtime);
        if held && engine != PacketEngine::default() {
            return Err(refuse(format!(
                "--pacing txtime leaves times to the queueing disciplines that --engine {engine} goes past: \
                 leave one out"
            )));
        }
        if self.pacing.sockets.is_some() {
            if held || engine != PacketEngine::default() {
                return Err(refuse(
                    "--sockets is for packets that leave through sockets at once: leave it out with --pacing txtime and \
                     --engine xdp",
                ));
            }
            if !flows.iter().any(|flow| can_share(flow.flow().spec())) {
                return Err(refuse("--sockets is for one-way flows of UDP: leave it out"));
            }
        }
        for flow in flows.iter().filter(|_| held) {
            txtime::serves(flow.flow().spec()).map_err(refuse)?;
        }
        if self.pacing.tx_stamps.is_some() && self.log.is_none() {
            return Err(refuse("--tx-stamps puts stamps into the log of the sender: add --log"));
        }
        engine.available().map_err(|error| Failure::new(1, error).into())
    }
}

/// As [`send_plan`]; `observe` is given the counters of the flows by number before the first packet.
///
/// # Errors
/// As of [`send_plan`].
pub async fn send_plan_observed(
    sending: Sending<'_>,
    receiver: impl Fn(&PlannedFlow) -> Option<SocketAddr>,
    signals: &Signals,
    observe: impl FnOnce(Vec<(u32, Arc<FlowLive>)>),
) -> Result<SendingResult> {
    let plan = sending.plan;
    let mut contents = Contents::new(plan);
    let mut flows = Vec::new();
    let mut shown = Vec::new();
    for planned in &plan.flows {
        let Some(receiver) = receiver(planned) else { continue };
        let live = Arc::new(FlowLive::default());
        let content = contents.of(&planned.flow.spec().payload)?;
        flows.push(
            SendFlow::new(planned.flow.clone(), receiver, content)
                .name(&planned.name)
                .live(Arc::clone(&live)),
        );
        shown.push(Shown { planned, live });
    }
    sending.suits(&flows)?;
    let mut settings = sending.settings;
    if sending.packet_secret.is_some() {
        settings.insert("auth".to_owned(), "yes".to_owned());
    }
    let engine = sending.pacing.engine;
    settings.insert("engine".to_owned(), engine.to_string());
    if engine != PacketEngine::default() && sending.progress {
        say(format_args!(
            "engine {engine}: packets pass neither the firewall nor the queues of this host"
        ));
    }
    let pacing = choose_pacing(sending.pacing, &mut settings)?;
    let lives = shown.iter().map(|shown| (shown.planned.flow.spec().id, Arc::clone(&shown.live)));
    observe(lives.collect());
    let (lines, asks) = sending.interval.map(|lines| intervals(lines, &shown)).unzip();
    let lines: Vec<_> = lines.into_iter().flatten().collect();
    let show = sending.progress && lines.is_empty();
    let progress = show.then(|| Progress::start(&shown));
    let (program, version) = sending.program;
    let job = SendJob::new(plan.seed, flows)
        .run(sending.run)
        .start(sending.start)
        .pacing(pacing)
        .log(sending.log)
        .log_limits(sending.log_limits)
        .recv_log(sending.recv_log)
        .packet_secret(sending.packet_secret.map(Arc::from))
        .program(program, version)
        .giving_way(sending.giving_way)
        .peer_timeout_ns(sending.peer_timeout_ns.unwrap_or_else(|| Timeouts::default().silence_ns))
        .arrival_asks(asks)
        .settings(settings);
    let outcome = itg_node::send(job, signals.stop.clone()).await;
    if let Some(progress) = progress {
        progress.end().await;
    }
    for lines in lines {
        lines.end().await;
    }
    let outcome = outcome.map_err(log_failure)?;
    let code = match signals.exit_code() {
        Some(code) => code,
        None => itg_node::exit_code(&outcome),
    };
    Ok(SendingResult { outcome, code })
}

/// Lines for intervals, and the questions that they ask the run. Where lines are of one way, round trips, which go both
/// ways, have lines of their own.
fn intervals(lines: IntervalLines, shown: &[Shown<'_>]) -> (Vec<Intervals>, ArrivalAsks) {
    let (asker, asks) = arrival_asks();
    let flows = shown.iter().map(|Shown { planned, live }| {
        let spec = planned.flow.spec();
        SentFlow {
            live: Arc::clone(live),
            round_trip: spec.meter == Meter::Rtt,
            resends: spec.proto.properties().resends,
        }
    });
    let (back, there): (Vec<_>, Vec<_>) =
        flows.partition(|flow| lines.way.is_some() && flow.round_trip);
    let back_lines = IntervalLines { way: Some(ROUND_TRIPS), ..lines };
    let started = [(lines, there), (back_lines, back)]
        .into_iter()
        .filter(|(_, flows)| !flows.is_empty())
        .map(|(lines, flows)| Intervals::sent(lines, SentFlows::new(flows, asker.clone())))
        .collect();
    (started, asks)
}

/// Chooses how the sending thread waits; tells the choice and what was measured, and notes them in
/// the settings.
///
/// # Errors
/// A level that this host does not have, or timing errors above what was asked for.
pub fn choose_pacing(
    options: PacingOptions,
    settings: &mut BTreeMap<String, String>,
) -> Result<Prepared> {
    if options.level == Some(Level::Txtime) {
        if options.max_error_p99.is_some() {
            return Err(refuse(
                "--max-error holds the wake-ups of the sending thread to something; with --pacing txtime \
                 the kernel keeps the times, and the stamps of departures tell how well: leave it out",
            ));
        }
        settings.insert("pacing_txtime".to_owned(), "yes".to_owned());
    }
    if let Some(every) = options.tx_stamps {
        settings.insert("tx_stamps".to_owned(), every.to_string());
    }
    if let Some(count) = options.sockets {
        settings.insert("sockets".to_owned(), count.to_string());
    }
    let (pacing, measured) = pacing::choose(options).map_err(|e| Failure::new(1, e))?;
    settings.insert("pacing".to_owned(), pacing.describe());
    if let (Some(errors), Some(most)) = (measured, options.max_error_p99) {
        settings.insert("pacing_max_error_p99_ns".to_owned(), most.as_nanos().to_string());
        settings.insert("pacing_measured_p99_ns".to_owned(), errors.p99_ns.to_string());
    }
    for refusal in pacing.refusals() {
        tracing::warn!("{refusal}");
    }
    tracing::debug!("pacing: {}", pacing.describe());
    Ok(pacing)
}

/// Contents of the packets of a plan, by kind, each made once.
#[derive(Debug)]
pub struct Contents<'a> {
    plan: &'a Plan,
    random: Option<Arc<Content>>,
    others: Vec<(Payload, Arc<Content>)>,
}

impl<'a> Contents<'a> {
    /// None made yet.
    #[must_use]
    pub const fn new(plan: &'a Plan) -> Self {
        Self { plan, random: None, others: Vec::new() }
    }

    /// Content of packets with this payload.
    ///
    /// # Errors
    /// A file that cannot be read, or is empty.
    pub fn of(&mut self, payload: &Payload) -> Result<Arc<Content>> {
        if *payload == Payload::Random {
            let seed = self.plan.seed;
            let random = self.random.get_or_insert_with(|| Arc::new(Content::random(seed)));
            return Ok(Arc::clone(random));
        }
        if let Some((_, content)) = self.others.iter().find(|(kind, _)| kind == payload) {
            return Ok(Arc::clone(content));
        }
        let content = match payload {
            Payload::Random => Content::random(self.plan.seed),
            Payload::Pattern(bytes) => Content::repeated(bytes),
            Payload::File(name) => {
                let bytes = read_file(name)
                    .map_err(|error| refuse(format!("payload file {name}: {error}")))?;
                if bytes.is_empty() {
                    return Err(refuse(format!("payload file {name} is empty")));
                }
                Content::repeated(&bytes)
            }
        };
        let content = Arc::new(content);
        self.others.push((payload.clone(), Arc::clone(&content)));
        Ok(content)
    }
}

/// Says what will be sent: every setting in force (without -v of the first flows only, where many differ), what was
/// decided for the user, and the requested values that cannot be reached; `to` is the receiver of a flow that this host
/// sends, where it is known.
pub fn announce(plan: &Plan, words: WordArgs, to: impl Fn(&PlannedFlow) -> Option<SocketAddr>) {
    let text = plan.describe();
    // The first line is that of the run.
    let (all, most) = (text.lines().count(), ROWS + 1);
    let most = if words.verbose > 0 { all } else { most };
    text.lines().take(most).for_each(say);
    if all > most {
        say(format_args!("{} more settings of flows: -v; the manifest has all", all - most));
    }
    for notice in &plan.notices {
        say(format_args!("note: {notice}"));
    }
    // Flows of one destination have one path, unless their options differ.
    let mut known: BTreeMap<_, Option<PathMtu>> = BTreeMap::new();
    let path = |flow: &PlannedFlow| {
        let (to, options) = (to(flow)?, &flow.flow.spec().socket);
        let way = (to, options.source.clone(), options.interface.clone(), options.tos);
        *known.entry(way).or_insert_with(|| {
            let mtu = u32::try_from(itg_socket::path_mtu(to, options).ok()?).ok()?;
            Some(PathMtu { mtu, ipv6: to.is_ipv6() })
        })
    };
    for warning in plan.estimate_on(path).warnings {
        say(format_args!("warning: {warning}"));
    }
}

/// Both sides' accounts, flow by flow, in words.
#[must_use]
pub fn account(plan: &Plan, outcome: &SendOutcome) -> String {
    let mut text = String::new();
    let names: BTreeMap<u32, &str> =
        plan.flows.iter().map(|planned| (planned.flow.spec().id, planned.name.as_str())).collect();
    for flow in &outcome.flows {
        let name = names.get(&flow.flow).copied().unwrap_or_default();
        text.push_str(&format!("flow {} ({name}): {}\n", flow.flow, flow_account(flow)));
    }
    if outcome.flows.len() > 1 {
        let totals = outcome.flows.iter().filter_map(|flow| flow.totals.as_ref());
        let (packets, bytes) =
            totals.fold((0, 0), |(p, b), totals| (p + totals.packets, b + totals.bytes));
        for shared in &outcome.shared_drops {
            text.push_str(&format!("{shared}\n"));
        }
        let counts = || outcome.flows.iter().map(|flow| flow.counts.as_ref());
        let received: u64 = counts().flatten().map(|counts| counts.unique).sum();
        let untold = counts().filter(Option::is_none).count();
        let but =
            if untold > 0 { format!(" ({untold} flows are not counted)") } else { String::new() };
        text.push_str(&format!(
            "total: {packets} packets ({}) sent, {received} received{but}\n",
            format_bytes(bytes)
        ));
    }
    text
}

/// As [`account`]; of many flows those that are in order together, and the others one by one as far as there is room.
#[must_use]
pub fn account_in_short(plan: &Plan, outcome: &SendOutcome) -> String {
    let whole = account(plan, outcome);
    if outcome.flows.len() <= ROWS {
        return whole;
    }
    // A line a flow, and the total.
    let (mut text, mut fine, mut left_out) = (String::new(), 0_usize, 0_usize);
    let mut lines = whole.lines();
    for ((flow, line), place) in outcome.flows.iter().zip(&mut lines).zip(0..) {
        if is_fine(flow) {
            fine += 1;
        } else if place - fine < ROWS {
            text.push_str(&format!("{line}\n"));
        } else {
            left_out += 1;
        }
    }
    if left_out > 0 {
        text.push_str(&format!("{left_out} more flows with differences: -v\n"));
    }
    if fine > 0 {
        text.push_str(&format!("{fine} flows: both sides agree; each of them: -v\n"));
    }
    lines.for_each(|line| text.push_str(&format!("{line}\n")));
    text
}

/// Returns true if a flow went to its end and both sides agree on it.
fn is_fine(flow: &FlowOutcome) -> bool {
    let (Some(totals), Some(counts)) = (&flow.totals, &flow.counts) else { return false };
    let replied = flow.replies.as_ref().is_none_or(|replies| replies.unique == totals.packets);
    flow.refused.is_none()
        && totals.reason.is_plain()
        && Difference::between(totals, counts).is_none()
        && replied
}

fn flow_account(flow: &FlowOutcome) -> String {
    if let Some(reason) = &flow.refused {
        return format!("not sent: {reason}");
    }
    let Some(totals) = &flow.totals else { return "not sent".to_owned() };
    let mut text = match &flow.counts {
        Some(counts) => {
            let sentence = explain(totals, counts);
            let sentence = sentence.strip_prefix(&format!("flow {}: ", flow.flow));
            sentence.unwrap_or_default().trim_end_matches('.').to_owned()
        }
        None => format!(
            "sent {} packets ({} bytes); the receiver's count did not come",
            totals.packets, totals.bytes
        ),
    };
    if let Some(replies) = &flow.replies {
        text.push_str(&format!("; {}", explain_replies(totals, replies)));
    }
    if !totals.reason.is_plain() {
        text.push_str(&format!("; ended: {}", totals.reason));
    }
    text
}
