//! `ITGSend`: sends traffic as D-ITG's sender does, with its command line. Where it differs:
//! `docs/d-itg.md`.

mod daemon;
mod prepare;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use itg_classic::dec::version_lines;
use itg_classic::recv::LOG_REFUSED;
use itg_classic::send::{
    FlowArgs, HELP, LogSettings, Mode, SendError, parse, parse_script, take_third_party,
};
use itg_classic::wire::{FlowResult, SenderEnding};
use itg_cli::{Signals, read_text, say, stop_on_letter};
use itg_engine::pacing::{Level, PacingOptions, Prepared};
use itg_engine::{LogLimits, log_info};
use itg_node::{ClassicEnding, ClassicProgress, ClassicSender, ClassicSending};
use itg_record::Side;
use itg_socket::{clock, host};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// Writes lines to stdout at once: scripts wait for them.
fn print(text: impl Display) {
    let mut out = std::io::stdout().lock();
    // An error is ignored: there is no other place for this text.
    drop(writeln!(out, "{text}").and_then(|()| out.flush()));
}

pub(crate) fn main() -> ExitCode {
    let since_ns = clock::monotonic_ns();
    let args: Vec<String> =
        std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned()).collect();
    print(version_lines("ITGSend").trim_end());
    match run(&args, since_ns) {
        Ok(code) => code,
        Err(error) => {
            match error.downcast_ref::<SendError>() {
                Some(refused) => say(refused),
                None => say(format_args!("ITGSend: {error:#}")),
            }
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String], since_ns: u64) -> Result<ExitCode> {
    let letter = args.first().is_some_and(|first| first == "-gui");
    let mut args = args.to_vec();
    let third_party = take_third_party(&mut args);
    let mode = parse(&args)?;
    let (flows, logs) = match mode {
        Mode::Help => {
            print(HELP);
            return Ok(ExitCode::FAILURE);
        }
        Mode::Daemon(logs) => {
            return with_runtime(letter, |stop| daemon::run(logs, third_party, stop));
        }
        Mode::Single(flow, logs) => (vec![*flow], logs),
        Mode::Script(file, mut logs) => {
            let text =
                read_text(&file).map_err(|error| anyhow::anyhow!("the script {file}: {error}"))?;
            (parse_script(&text, &mut logs)?, logs)
        }
    };
    with_runtime(letter, |stop| send(flows, logs, since_ns, third_party, stop))
}

/// Runs something until it ends or a signal comes.
fn with_runtime<F, R>(letter: bool, run: R) -> Result<ExitCode>
where
    R: FnOnce(watch::Receiver<Option<String>>) -> F,
    F: Future<Output = Result<u8>>,
{
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(async {
        let signals = Signals::watch()?;
        let stop = if letter { stop_on_letter(&signals.stop) } else { signals.stop.clone() };
        let code = run(stop).await?;
        Ok(ExitCode::from(if code == daemon::ENDED {
            code
        } else {
            signals.exit_code().unwrap_or(code)
        }))
    })
}

/// Starts the sending thread, the log, and the words about both.
fn start(
    logs: &LogSettings,
    poll: bool,
    flows_max: usize,
) -> Result<(ClassicSender, mpsc::UnboundedReceiver<ClassicProgress>)> {
    let (progress, told) = mpsc::unbounded_channel();
    let level = if poll { Level::Spin } else { Level::default() };
    let run = format!("d-itg {} {}", host::name(), std::process::id());
    let version = env!("CARGO_PKG_VERSION");
    let sender = ClassicSender::start(ClassicSending {
        log: prepare::log(logs)?,
        info: log_info(Side::Sender, "ITGSend", version, run, None, BTreeMap::new()),
        log_limits: LogLimits::default(),
        pacing: Prepared::new(level, PacingOptions::default()),
        flows_max,
        progress,
    })?;
    Ok((sender, told))
}

async fn send(
    flows: Vec<FlowArgs>,
    logs: LogSettings,
    since_ns: u64,
    third_party: bool,
    stop: watch::Receiver<Option<String>>,
) -> Result<u8> {
    for flow in &flows {
        flow.lines.iter().for_each(print);
        for notice in &flow.notices {
            say(format_args!("ITGSend: flow {}: {notice}", flow.id));
        }
    }
    let (poll, count) = (flows.iter().any(|flow| flow.poll), flows.len());
    let channels = prepare::channels(flows, &logs, since_ns, third_party)?;
    let (sender, told) = start(&logs, poll, count)?;
    let telling = tokio::spawn(tell(told));
    let sender = Arc::new(sender);
    let mut running = JoinSet::new();
    for channel in channels {
        let (sender, stop) = (Arc::clone(&sender), stop.clone());
        running.spawn(async move { sender.run(&channel, stop).await });
    }
    let endings = running.join_all().await;
    let closing = tokio::task::spawn_blocking(move || Arc::into_inner(sender)?.close());
    let log = closing.await?;
    telling.await?;
    let mut code = 0;
    for ending in endings {
        code = code.max(judge(&ending));
    }
    if let Some(log) = log
        && let Some(error) = log.error
    {
        say(format_args!("ITGSend: {error} ({} records lost)", log.lost_records));
        code = 1;
    }
    Ok(code)
}

/// Says what went wrong with a channel; the exit code.
fn judge(channel: &ClassicEnding) -> u8 {
    match &channel.ending {
        Err(why) => {
            say(format_args!("ITGSend: {why}"));
            return 1;
        }
        Ok(SenderEnding::Done) => {}
        Ok(SenderEnding::LogRefused) => {
            say(format_args!("ITGSend: {LOG_REFUSED}"));
            return 1;
        }
        Ok(SenderEnding::Silent) => {
            say("ITGSend: the receiver does not answer");
            return 1;
        }
        Ok(SenderEnding::Lost) => {
            say("ITGSend: the receiver has gone; what was logged here is kept");
            return 1;
        }
        Ok(SenderEnding::Confused(error)) => {
            say(format_args!("ITGSend: the receiver is none of D-ITG's: {error}"));
            return 1;
        }
    }
    u8::from(channel.flows.iter().any(|flow| flow.result != FlowResult::Done))
}

/// Says how flows go, in D-ITG's words.
async fn tell(mut told: mpsc::UnboundedReceiver<ClassicProgress>) {
    while let Some(progress) = told.recv().await {
        say_progress(&progress);
    }
}

fn say_progress(progress: &ClassicProgress) {
    match progress {
        ClassicProgress::Started(id) => {
            print(format_args!("Started sending packets of flow ID: {id}"));
        }
        ClassicProgress::Finished(id) => {
            print(format_args!("Finished sending packets of flow ID: {id}\n"));
        }
        ClassicProgress::Notice(id, text) => say(format_args!("ITGSend: flow {id}: {text}")),
    }
}
