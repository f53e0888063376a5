//! Flows of a command line that the other side sends to here, by themselves or beside those that are sent from here.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use itg_cli::{
    Failure, IntervalLines, Intervals, ReceivedFlows, Sending, Signals, WAYS, WordArgs, account,
    exchanged, log_failure, nothing_sent, refuse, result_text, say, send_plan,
};
use itg_core::flow::{Meter, Proto};
use itg_core::units::format_duration_ns;
use itg_engine::LogTarget;
use itg_experiment::{FlowEntry, MeterKind, PlannedFlow, ProtoName, TimeSpan};
use itg_node::{AskOutcome, BindError, Receiver, ReceiverOptions, SendOutcome, Start};
use itg_session::logs::Role;
use itg_stats::Report;
use itg_stats::delay::Delay;
use itg_stats::figures::is_told;
use itg_stats::report::{FlowReport, Metrics};
use tokio::sync::watch;

use crate::request::Request;
use crate::{failures, own_log, own_report, tell_of_logs};
use itg_cli::print;

/// Time for which round trips are measured before there is load: half of the measurement, and 5 s at most.
const IDLE_MOST_NS: u64 = 5_000_000_000;
/// Time that TCP has to fill the path before round trips count: a tenth of the measurement, and 1 s at most.
const RISE_MOST_NS: u64 = 1_000_000_000;
/// Names of the flows of a measurement under load: round trips alone and beside TCP, TCP from here and to here.
const IDLE: &str = "idle";
const LOADED: &str = "loaded";
const UP: &str = "up";
const DOWN: &str = "down";

/// Directions of the flows.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct WayArgs {
    /// Have the other side send the flows to here
    ///
    /// Its itg-recv has to allow it (--allow-reverse), and bounds what it sends (--reverse-rate and others there). All
    /// connections are made from here, so that it works through a translator of addresses. UDP and TCP, one way.
    #[arg(short = 'R', long, conflicts_with_all = ["bidir", "under_load"])]
    pub(crate) reverse: bool,
    /// Send the flows both ways at once
    ///
    /// --log FILE keeps what arrives here in FILE.reverse.
    #[arg(long, conflicts_with = "under_load")]
    pub(crate) bidir: bool,
    /// Measure round trips on the idle path, and while TCP fills it
    ///
    /// Both ways, with --flows connections each way, for --duration.
    #[arg(long, conflicts_with_all = ["proto", "idt", "rate", "profile", "on_off", "packets", "bytes", "start_after",
        "stagger", "meter", "burst", "late", "max_burst", "pacing_rate", "dest_port", "source_port", "payload"])]
    pub(crate) under_load: bool,
}

impl WayArgs {
    /// True if all flows are sent from here.
    pub(crate) const fn is_plain(self) -> bool {
        !self.reverse && !self.bidir && !self.under_load
    }

    /// The entries of the flows in these directions, each with whether the other side sends it.
    ///
    /// # Errors
    /// A measurement under load without a length.
    pub(crate) fn entries(self, entry: FlowEntry) -> Result<Vec<(FlowEntry, bool)>> {
        if self.reverse {
            return Ok(vec![(to_here(entry), true)]);
        }
        if self.bidir {
            let named = |name: &str, entry: &FlowEntry| FlowEntry {
                name: Some(name.to_owned()),
                ..entry.clone()
            };
            let back = FlowEntry { source_port: None, ..to_here(named("reverse", &entry)) };
            let back = FlowEntry { source: None, interface: None, ..back };
            return Ok(vec![(named("forward", &entry), false), (back, true)]);
        }
        if self.under_load {
            return under_load(&entry);
        }
        Ok(vec![(entry, false)])
    }
}

/// The flow in the other direction.
fn to_here(entry: FlowEntry) -> FlowEntry {
    FlowEntry { from: entry.to, to: Some("local".to_owned()), ..entry }
}

/// The flows of a measurement under load: round trips alone, round trips beside TCP, TCP each way.
fn under_load(entry: &FlowEntry) -> Result<Vec<(FlowEntry, bool)>> {
    let long =
        entry.duration.ok_or_else(|| refuse("--under-load ends after a time: add --duration"))?.0;
    let (idle, rise) = ((long / 2).min(IDLE_MOST_NS), (long / 10).min(RISE_MOST_NS));
    let probe = |name: &str, start: u64, duration: u64| -> Result<FlowEntry> {
        Ok(FlowEntry {
            name: Some(name.to_owned()),
            count: None,
            proto: Some(ProtoName(Proto::Udp)),
            idt: Some("constant(10ms)".parse()?),
            size: Some("constant(64)".parse()?),
            meter: Some(MeterKind(Meter::Rtt)),
            start: Some(TimeSpan(start)),
            duration: Some(TimeSpan(duration)),
            congestion: None,
            nagle: None,
            ..entry.clone()
        })
    };
    let load = |name: &str| -> Result<FlowEntry> {
        Ok(FlowEntry {
            name: Some(name.to_owned()),
            proto: Some(ProtoName(Proto::Tcp)),
            idt: Some("constant(0s)".parse()?),
            size: Some(entry.size.clone().map_or_else(|| "constant(65536)".parse(), Ok)?),
            start: Some(TimeSpan(idle)),
            duration: Some(TimeSpan(long + rise)),
            ..entry.clone()
        })
    };
    let down = FlowEntry { source: None, interface: None, ..to_here(load(DOWN)?) };
    Ok(vec![
        (probe(IDLE, 0, idle)?, false),
        (probe(LOADED, idle + rise, long)?, false),
        (load(UP)?, false),
        (down, true),
    ])
}

/// Sends and receives the flows of a request some of which the other side sends; the exit code.
pub(crate) async fn exchange(
    request: Request,
    settings: BTreeMap<String, String>,
    id: String,
    words: WordArgs,
    signals: &Signals,
) -> Result<u8> {
    let Some(&to) = request.receivers.values().next() else { return Ok(0) };
    let receiver = Receiver::asking(receiver(&request, &id, settings.clone())?);
    let receiver = receiver.map_err(|error| match error {
        BindError::Log(error) => log_failure(error),
        BindError::Socket(_) => refuse(error),
    })?;
    let lines = lines_of(&request, WAYS[1]);
    let lines = lines.map(|lines| Intervals::received(lines, ReceivedFlows::new(receiver.watch())));
    let (end, ended) = watch::channel(None);
    // A signal ends what is sent from here, too.
    let (tell, mut stop) = (end.clone(), signals.stop.clone());
    let passing = tokio::spawn(async move {
        let reason = stop.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone());
        tell.send_if_modified(|told| told.is_none().then(|| *told = reason).is_some());
    });
    let asking = async {
        let asked = ask(&request, &id, receiver, to, signals).await;
        if let Some(failure) = &asked.failure {
            let reason =
                Some(format!("the other side does not send what it was asked for: {failure}"));
            end.send_if_modified(|told| told.is_none().then(|| *told = reason).is_some());
        }
        asked
    };
    let sending = send(&request, &id, settings, words, (signals, ended));
    let (asked, sent) = tokio::join!(asking, sending);
    passing.abort();
    if let Some(lines) = lines {
        lines.end().await;
    }
    let sent = sent?;
    conclude(&request, &id, &asked, &sent, words)?;
    Ok(signals.exit_code().unwrap_or_else(|| exit_code(&asked, sent.1)))
}

/// The lines for intervals of the flows that go this way, which is named where others go the other way.
fn lines_of(request: &Request, way: &'static str) -> Option<IntervalLines> {
    let way = Some(way).filter(|_| !request.ours.is_empty());
    request.output.lines().map(|lines| IntervalLines { way, ..lines })
}

/// The numbers of the flows that the other side sends.
fn asked_for(request: &Request) -> BTreeSet<u32> {
    let all = request.plan.flows.iter().map(|planned| planned.flow.spec().id);
    all.filter(|id| !request.ours.contains(id)).collect()
}

/// Has the other side send its flows.
async fn ask(
    request: &Request,
    id: &str,
    receiver: Receiver,
    to: SocketAddr,
    signals: &Signals,
) -> AskOutcome {
    let theirs = |planned: &&PlannedFlow| !request.ours.contains(&planned.flow.spec().id);
    let specs = request.plan.flows.iter().filter(theirs);
    let specs = specs.map(|planned| planned.flow.spec().clone()).collect();
    receiver.ask(to, (id, request.plan.seed.0, specs), signals.stop.clone()).await
}

/// Sends the flows that start here, if there are any: what became of them, and the exit code.
async fn send(
    request: &Request,
    id: &str,
    settings: BTreeMap<String, String>,
    words: WordArgs,
    (signals, ended): (&Signals, watch::Receiver<Option<String>>),
) -> Result<(SendOutcome, u8)> {
    if request.ours.is_empty() {
        return Ok((SendOutcome::default(), 0));
    }
    let sending = Sending {
        start: Start::Soon,
        plan: &request.plan,
        program: ("itg-send", env!("CARGO_PKG_VERSION")),
        pacing: request.pacing,
        log: request.logs.own.target(id, Role::Sender)?,
        log_limits: request.logs.own.limits()?,
        run: id.to_owned(),
        recv_log: None,
        packet_secret: None,
        giving_way: false,
        peer_timeout_ns: Some(request.peer.timeout_ns()),
        progress: !words.quiet,
        interval: lines_of(request, WAYS[0]),
        settings,
    };
    let receiver = |flow: &PlannedFlow| request.receiver(flow);
    let signals = signals.ended_by(ended);
    let result = send_plan(sending, receiver, &signals).await?;
    Ok((result.outcome, result.code))
}

/// Settings of the receiver of what the other side sends.
fn receiver(
    request: &Request,
    id: &str,
    settings: BTreeMap<String, String>,
) -> Result<ReceiverOptions> {
    let own = &request.logs.own;
    let log = match own.target(id, Role::Receiver)? {
        // As that of what is sent: it is the log of one run.
        Some(LogTarget::File(path)) => Some(LogTarget::Replace(match request.ours.is_empty() {
            true => path,
            false => beside(&path),
        })),
        other => other,
    };
    Ok(ReceiverOptions::new(SocketAddr::from(([0, 0, 0, 0], 0)))
        .log(log)
        .log_limits(own.limits()?)
        .peer_timeout_ns(request.peer.timeout_ns())
        .once(true)
        .program("itg-send", env!("CARGO_PKG_VERSION"))
        .settings(settings))
}

/// The log of what arrives here, beside that of what is sent.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".reverse");
    name.into()
}

/// Prints what became of the flows, and of the logs.
fn conclude(
    request: &Request,
    id: &str,
    asked: &AskOutcome,
    (sent, _): &(SendOutcome, u8),
    words: WordArgs,
) -> Result<()> {
    let file = own_log(&request.logs, sent.log.as_ref()).filter(|_| !request.ours.is_empty());
    let own = file.and_then(|file| own_report(&file, &request.gates).unwrap_or_default());
    let why = asked.failure.as_ref().map(|failure| failure.text.as_str());
    // Flows from here that were ended for that reason tell nothing new.
    let mut own_failures = failures(sent);
    own_failures.retain(|told| why.is_none_or(|why| !told.contains(why)));
    let numbers = asked_for(request);
    let back = (&numbers, &asked.session, why);
    let report = exchanged(&request.plan, id, (sent, own.as_ref()), back);
    if request.output.json {
        print(&(report.to_json() + "\n"))?;
    } else {
        // Where the other side refuses, what failed here before the first packet follows from that.
        let refused = asked.failure.is_some() && nothing_sent(&report);
        let text = match refused {
            true => String::new(),
            false => result_text(&report, &own_failures, words),
        };
        print(&text)?;
        if let Some(sentence) = load_told(&report) {
            print(&(sentence + "\n"))?;
        }
        if words.verbose > 0 {
            print(&account(&request.plan, sent))?;
        }
    }
    if !words.quiet {
        asked.notices.iter().for_each(|notice| say(format_args!("note: {notice}")));
    }
    own_failures.iter().for_each(|told| say(format_args!("itg-send: {told}")));
    tell_of_logs(sent);
    if let Some(failure) = &asked.failure {
        say(format_args!("itg-send: receiver {}: {failure}", asked.session.peer));
    }
    if let Some(log) = &asked.receiver.log {
        say(log);
        if let Some(error) = &log.error {
            let lost = log.lost_records;
            return Err(Failure::new(1, format!("{error} ({lost} records lost)")).into());
        }
    }
    Ok(())
}

/// The exit code: that of what was asked for, or of what was sent.
fn exit_code(asked: &AskOutcome, sent: u8) -> u8 {
    Some(asked.exit_code()).filter(|code| *code != 0).unwrap_or(sent)
}

/// Returns true if TCP ran both ways, to its end, for as long as round trips were measured: but for a tenth.
fn was_loaded(report: &Report) -> bool {
    let named =
        |name: &'static str| report.flows.iter().filter(move |flow| flow.name.starts_with(name));
    let length = named(LOADED).map(|flow| flow.metrics.duration_ns).max().unwrap_or(0);
    let whole = |flow: &FlowReport| {
        let Metrics { packets, duration_ns, .. } = *flow.metrics;
        packets > 0 && flow.end.is_none() && duration_ns >= length / 10 * 9
    };
    [UP, DOWN].iter().all(|name| named(name).count() > 0 && named(name).all(whole))
}

/// A percentile: name, share and value.
type Tail = (&'static str, f64, fn(&Delay) -> i64);
/// Percentiles that are told of round trips beside the median, the first of which enough of them lie beyond.
const TAILS: [Tail; 2] = [("p99", 0.99, |delay| delay.p99), ("p90", 0.9, |delay| delay.p90)];

/// The sentence on round trips without and with load.
fn load_told(report: &Report) -> Option<String> {
    let delay = |name: &str| {
        let flow =
            report.flows.iter().find(|flow| flow.name == name && flow.meter == Some("rtt"))?;
        Some((flow.metrics.packets, flow.metrics.delay_ns?))
    };
    let ((few, idle), (many, loaded)) = (delay(IDLE)?, delay(LOADED)?);
    if !was_loaded(report) {
        let text = "There is no word on round trips under load: TCP did not run both ways for all of that time.";
        return Some(text.to_owned());
    }
    let time = |ns: i64| format_duration_ns(ns.unsigned_abs() / 1_000 * 1_000);
    let more = loaded.p50 - idle.p50;
    let tail = TAILS.iter().find(|(_, share, _)| is_told(few.min(many), *share));
    let tail = tail.map_or_else(String::new, |(name, _, of)| {
        format!("; {name} {} and {}", time(of(&idle)), time(of(&loaded)))
    });
    Some(format!(
        "Round trips take {} idle and {} under load (p50{tail}): load adds {}{}.",
        time(idle.p50),
        time(loaded.p50),
        if more < 0 { "-" } else { "" },
        time(more),
    ))
}
