//! `itg-send --classic`: the flows of a plan to receivers that speak D-ITG's protocol.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use itg_classic::recv::LOG_REFUSED;
use itg_classic::send::{LogProto, carry};
use itg_classic::wire::{FlowResult, PORT_LOG, RecvLog, Refusal, SenderEnding};
use itg_cli::{Contents, Progress, Shown, Signals, choose_pacing, log_failure, refuse, say};
use itg_engine::{LogOutcome, log_info};
use itg_node::{
    ClassicChannel, ClassicEnding, ClassicFlow, ClassicOutcome, ClassicProgress, ClassicSender,
    ClassicSending, ClassicSource, ClassicWay,
};
use itg_record::Side;
use itg_session::{Difference, explain_replies};
use itg_socket::{PacketEngine, clock};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::request::Request;
use itg_cli::print;

/// Name of the receiver's log at a log server when none is given, as with D-ITG.
const RECV_LOG: &str = "/tmp/ITGRecv.log";
/// Longest name of a log.
const NAME_MAX: usize = 199;

/// Sends what was asked for; the exit code, and what became of the log.
pub(crate) async fn send(
    request: &Request,
    mut settings: BTreeMap<String, String>,
    run: String,
    quiet: bool,
    signals: &Signals,
) -> Result<(u8, Option<LogOutcome>)> {
    let engine = request.pacing.engine;
    if engine != PacketEngine::Socket {
        return Err(refuse(format!("--classic sends through sockets, not with --engine {engine}")));
    }
    let (channels, shown) = channels(request, quiet)?;
    settings.insert("protocol".to_owned(), "D-ITG 2.8.1".to_owned());
    let pacing = choose_pacing(request.pacing, &mut settings)?;
    let (progress, mut told) = mpsc::unbounded_channel();
    let (own, seed) = (&request.logs.own, request.plan.seed.0);
    let version = env!("CARGO_PKG_VERSION");
    let sending = ClassicSending {
        log: own.target(&run, itg_session::logs::Role::Sender)?,
        info: log_info(Side::Sender, "itg-send", version, run, Some(seed), settings),
        log_limits: own.limits()?,
        pacing,
        flows_max: shown.len(),
        progress,
    };
    let starting = tokio::task::spawn_blocking(|| ClassicSender::start(sending));
    let sender = Arc::new(starting.await?.map_err(log_failure)?);
    let lines = (!quiet).then(|| Progress::start(&shown));
    let telling = tokio::spawn(async move {
        while let Some(progress) = told.recv().await {
            // What became of a flow is told at the end.
            if let ClassicProgress::Notice(id, text) = progress {
                say(format_args!("itg-send: flow {id}: {text}"));
            }
        }
    });
    let mut running = JoinSet::new();
    for channel in channels {
        let (sender, stop) = (Arc::clone(&sender), signals.stop.clone());
        running.spawn(async move { sender.run(&channel, stop).await });
    }
    let endings = running.join_all().await;
    let closing = tokio::task::spawn_blocking(move || Arc::into_inner(sender)?.close());
    let log = closing.await?;
    telling.await?;
    if let Some(lines) = lines {
        lines.end().await;
    }
    print(&account(&shown, &endings))?;
    let mut code = 0;
    for ending in &endings {
        code = code.max(judge(ending));
    }
    if let Some(log) = &log {
        say(log);
        if let Some(error) = &log.error {
            say(format_args!("itg-send: {error} ({} records lost)", log.lost_records));
            code = code.max(1);
        }
    }
    Ok((signals.exit_code().unwrap_or(code), log))
}

/// The flows by receiver, and those to show while they run.
fn channels(request: &Request, quiet: bool) -> Result<(Vec<ClassicChannel>, Vec<Shown<'_>>)> {
    let log = recv_log(request)?;
    let since_ns = Some(clock::monotonic_ns());
    let mut contents = Contents::new(&request.plan);
    let mut channels: BTreeMap<SocketAddr, ClassicChannel> = BTreeMap::new();
    let mut shown = Vec::new();
    let mut notices: Vec<String> = Vec::new();
    for planned in &request.plan.flows {
        let spec = planned.flow.spec();
        if !request.ours.contains(&spec.id) {
            continue;
        }
        let to = request.receivers[&planned.to];
        let carried = carry(&planned.flow, to.ip()).map_err(refuse)?;
        notices.extend(carried.notices);
        let live = Arc::default();
        shown.push(Shown { planned, live: Arc::clone(&live) });
        let channel = channels.entry(to).or_insert_with(|| ClassicChannel {
            way: ClassicWay::Connect { to, from: None, interface: None },
            log: log.clone(),
            flows: Vec::new(),
            since_ns,
            third_party: false,
        });
        channel.flows.push(ClassicFlow {
            offer: carried.offer,
            icmp_type: carried.icmp_type,
            spec: spec.clone(),
            dest: Some(to),
            source: None,
            packets: ClassicSource::Itg {
                flow: Box::new(planned.flow.clone()),
                content: contents.of(&spec.payload)?,
            },
            live,
        });
    }
    if !quiet {
        notices.sort();
        notices.dedup();
        say(
            "note: D-ITG's protocol does not tell what arrives (the receiver's log does) and compares no clocks",
        );
        notices.iter().for_each(|notice| say(format_args!("note: {notice}")));
    }
    Ok((channels.into_values().collect(), shown))
}

/// The log that receivers shall keep.
fn recv_log(request: &Request) -> Result<Option<RecvLog>> {
    let name = request.logs.recv_log.as_deref();
    if let Some(name) = name.filter(|name| !(1..=NAME_MAX).contains(&name.len())) {
        return Err(refuse(format!(
            "--recv-log of {} characters: D-ITG's protocol takes 1 to {NAME_MAX}",
            name.len()
        )));
    }
    let path = name.unwrap_or(RECV_LOG).as_bytes().to_vec();
    let Some(url) = &request.logs.recv_log_server else {
        return Ok(name.is_some().then_some(RecvLog::File { path }));
    };
    let (proto, host) = match url.split_once("://") {
        Some(("tcp", host)) => (LogProto::Tcp, host),
        Some(("udp", host)) => (LogProto::Udp, host),
        _ => return Err(refuse(format!("log server `{url}`: write tcp://HOST or udp://HOST"))),
    };
    let address = itg_socket::resolve(host, PORT_LOG).map_err(refuse)?;
    if address.port() != PORT_LOG {
        return Err(refuse(format!(
            "log server `{url}`: D-ITG's protocol names no port, its log servers are at {PORT_LOG}: leave \
             the port out"
        )));
    }
    Ok(Some(RecvLog::Server { address: address.ip(), proto, path }))
}

/// Account of each flow, in words.
fn account(shown: &[Shown<'_>], endings: &[ClassicEnding]) -> String {
    let outcomes: BTreeMap<u32, &ClassicOutcome> =
        endings.iter().flat_map(|ending| &ending.flows).map(|flow| (flow.flow, flow)).collect();
    let (mut text, mut packets, mut bytes) = (String::new(), 0, 0);
    for Shown { planned, .. } in shown {
        let id = planned.flow.spec().id;
        let words = outcomes.get(&id).map_or_else(|| "not sent".to_owned(), |flow| told(flow));
        text.push_str(&format!("flow {id} ({}): {words}\n", planned.name));
        if let Some(totals) = outcomes.get(&id).and_then(|flow| flow.totals.as_ref()) {
            (packets, bytes) = (packets + totals.packets, bytes + totals.bytes);
        }
    }
    if shown.len() > 1 {
        text.push_str(&format!("total: {packets} packets ({bytes} bytes) sent\n"));
    }
    text
}

fn told(flow: &ClassicOutcome) -> String {
    let Some(totals) = &flow.totals else {
        return flow
            .why
            .as_ref()
            .map_or_else(|| "not sent".to_owned(), |why| format!("not sent: {why}"));
    };
    let mut text = format!("sent {} packets ({} bytes)", totals.packets, totals.bytes);
    if totals.skipped > 0 {
        text.push_str(&format!(", left out {} that were late", totals.skipped));
    }
    if totals.failed > 0 {
        text.push_str(&format!(", {} were refused here", totals.failed));
    }
    if let Some(replies) = &flow.replies {
        text.push_str(&format!("; {}", explain_replies(totals, replies)));
    }
    if !totals.reason.is_plain() {
        text.push_str(&format!("; ended: {}", totals.reason));
    }
    text.extend(flow.why.iter().map(|why| format!("; {why}")));
    text
}

/// Says what went wrong with a channel; the exit code: 3 when its receiver was not reachable or refused,
/// 4 when it vanished, 1 for what failed here.
fn judge(channel: &ClassicEnding) -> u8 {
    let (why, code) = match &channel.ending {
        Err(why) => (why.clone(), 3),
        Ok(SenderEnding::Done) => (String::new(), 0),
        Ok(SenderEnding::LogRefused) => (LOG_REFUSED.to_owned(), 3),
        Ok(SenderEnding::Silent) => ("the receiver does not answer".to_owned(), 4),
        Ok(SenderEnding::Lost) => {
            ("the receiver has gone; what was logged here is kept".to_owned(), 4)
        }
        Ok(SenderEnding::Confused(error)) => {
            (format!("the receiver is none of D-ITG's: {error}"), 3)
        }
    };
    if code != 0 {
        say(format_args!("itg-send: {why}"));
    }
    let flows = channel.flows.iter().map(|flow| match flow.result {
        FlowResult::Done => {
            let both = flow.totals.as_ref().zip(flow.replies.as_ref());
            u8::from(both.is_some_and(|(sent, back)| Difference::between(sent, back).is_corrupt()))
        }
        FlowResult::Failed if code != 0 => code,
        FlowResult::Failed => 1,
        FlowResult::Refused(Refusal::Bind | Refusal::Rights) => 3,
        FlowResult::Refused(Refusal::Data) | FlowResult::Unanswered => 4,
    });
    flows.max().unwrap_or(0).max(code)
}
