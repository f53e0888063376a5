//! `ITGRecv`: receives the flows of D-ITG's senders, with D-ITG's own command line. Where it differs:
//! `docs/d-itg.md`.

use std::fmt::Display;
use std::io::Write as _;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use itg_classic::dec::version_lines;
use itg_classic::recv::{RECV_HELP, RecvArgs, RecvError, parse_recv};
use itg_cli::{Signals, say, stop_on_letter};
use itg_core::flow::Proto;
use itg_engine::{ClassicPlace, ClassicTarget, LEAST_LOG_BYTES, LogQuota, LogTarget};
use itg_node::{ClassicNews, ClassicReceiving, Receiver, ReceiverOptions, ReceiverOutcome};
use itg_socket::resolve;
use tokio::sync::mpsc;

/// Writes lines to stdout at once: scripts wait for them.
fn print(text: impl Display) {
    let mut out = std::io::stdout().lock();
    // An error is ignored: there is no other place for this text.
    drop(writeln!(out, "{text}").and_then(|()| out.flush()));
}

pub(crate) fn main() -> ExitCode {
    let args: Vec<String> =
        std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned()).collect();
    print(version_lines("ITGRecv").trim_end());
    let asked = match parse_recv(&args) {
        Ok(asked) => asked,
        Err(error) => {
            match error {
                RecvError::Help => print(RECV_HELP),
                RecvError::Usage(text) => print(format_args!("{text}\n{RECV_HELP}")),
                RecvError::Fatal(fatal) => say(fatal),
            }
            return ExitCode::FAILURE;
        }
    };
    for notice in &asked.notices {
        say(format_args!("ITGRecv: {notice}"));
    }
    match run(&asked, args.first().is_some_and(|first| first == "-gui")) {
        Ok(code) => code,
        Err(error) => {
            say(format_args!("ITGRecv: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(asked: &RecvArgs, letter: bool) -> anyhow::Result<ExitCode> {
    let listen = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), asked.port);
    let visit = asked.passive.as_ref().map(|host| resolve(host, asked.port)).transpose()?;
    let bind = asked.bind.as_ref().map(|host| resolve(host, 0)).transpose()?;
    let (news, told) = mpsc::unbounded_channel();
    for (name, limit) in
        [("--max-log-size", asked.max_log_size), ("--max-log-bytes", asked.max_log_bytes)]
    {
        if limit.is_some_and(|bytes| bytes < LEAST_LOG_BYTES) {
            anyhow::bail!("{name}: no log is smaller than {LEAST_LOG_BYTES} bytes");
        }
    }
    let quota = asked.log_dir.as_ref().map_or_else(LogQuota::default, |dir| {
        LogQuota::new(Path::new(dir), asked.max_log_size, asked.max_log_bytes)
    });
    let options = ReceiverOptions::new(listen)
        .data_port(itg_classic::wire::PORT_DATA)
        .log(log(asked)?)
        .log_dir(asked.log_dir.clone().map(PathBuf::from), quota)
        .replace_logs(asked.replace_logs)
        .allow_log_servers(asked.allow_log_servers)
        .allow_sources(asked.allow_sources.clone())
        .max_per_address(asked.per_address.unwrap_or(itg_node::SENDERS_PER_ADDRESS))
        .classic(ClassicReceiving {
            only: true,
            bind: bind.map(|address| address.ip()),
            interface: asked.interface.clone(),
            signalling_interface: asked.signalling_interface.clone(),
            opening: asked.opening,
            third_party: asked.third_party,
            buffer: asked.buffer,
            news: Some(news),
        })
        .program("ITGRecv", env!("CARGO_PKG_VERSION"));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(async {
        let signals = Signals::watch_serving()?;
        let stop = if letter { stop_on_letter(&signals.stop) } else { signals.stop.clone() };
        let telling = tokio::spawn(tell(told, visit.is_some()));
        let outcome = match visit {
            Some(sender) => Receiver::visit(options, sender, stop).await?,
            None => {
                let receiver = Receiver::bind(options)?;
                signals.at_hangup(receiver.reopen_log());
                print("Press Ctrl-C to terminate");
                receiver.serve(stop).await
            }
        };
        // Ends with the receiver, which held the other end.
        telling.await?;
        if signals.exit_code().is_some() {
            print("Finish with CTRL-C! ");
        }
        Ok(finished(&outcome))
    })
}

/// The log of the whole receiver; a server goes before a file, as with D-ITG.
fn log(asked: &RecvArgs) -> anyhow::Result<Option<LogTarget>> {
    let name = asked.log.clone();
    let place = match (&asked.log_server, name) {
        (Some(server), name) => ClassicPlace::Server {
            address: resolve(&server.host, server.port)?,
            proto: server.proto,
            path: name.unwrap_or_else(|| "/tmp/ITGRecv.log".to_owned()),
        },
        (None, Some(name)) => ClassicPlace::File(PathBuf::from(name)),
        (None, None) => return Ok(None),
    };
    let buffer = asked.buffer;
    Ok(Some(LogTarget::Classic(Box::new(ClassicTarget { place, buffer }))))
}

/// Says what happens, in D-ITG's words and places.
async fn tell(mut told: mpsc::UnboundedReceiver<ClassicNews>, passive: bool) {
    let name = |proto: Proto| proto.name().to_ascii_uppercase();
    while let Some(news) = told.recv().await {
        match news {
            ClassicNews::Listening { proto, port } => {
                let line = match proto {
                    Proto::Icmp => "Listening to ICMP traffic".to_owned(),
                    proto => format!("Listening on {} port : {port}", name(proto)),
                };
                if passive || proto == Proto::Tcp { print(line) } else { say(line) }
            }
            ClassicNews::Finished { proto: Proto::Icmp, .. } => {}
            ClassicNews::Finished { proto, port } => {
                print(format_args!("Finish on {} port : {port}", name(proto)));
            }
            ClassicNews::Notice(text) => say(format_args!("ITGRecv: {text}")),
        }
    }
}

/// D-ITG's exit code is 0 after Ctrl-C; a log that could not be written is a failure with us.
fn finished(outcome: &ReceiverOutcome) -> ExitCode {
    let Some(log) = &outcome.log else { return ExitCode::SUCCESS };
    let Some(error) = &log.error else { return ExitCode::SUCCESS };
    say(format_args!("ITGRecv: {error} ({} records lost)", log.lost_records));
    ExitCode::FAILURE
}
