//! `ITGLog`: stores the logs of D-ITG's senders and receivers, with D-ITG's own command line. Where
//! it differs: `docs/d-itg.md`.

#[path = "classic/mod.rs"]
mod classic;

use std::io::Write as _;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use itg_classic::dec::version_lines;
use itg_classic::recv::{LOG_HELP, LogArgs, RecvError, parse_log};
use itg_classic::send::LogProto;
use itg_classic::wire::PORT_LOG;
use itg_cli::{Signals, WordArgs, say};
use itg_node::SlotLimits;
use tokio::sync::mpsc;

use self::classic::{ClassicOptions, ClassicServer, Telling};

/// Most clients at a time.
const CLIENTS: usize = 256;
/// Most of one address, unless the user says otherwise.
const PER_ADDRESS: usize = 128;

pub(crate) fn main() -> ExitCode {
    WordArgs { quiet: false, verbose: 0, timestamps: false }.start();
    let args: Vec<String> =
        std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned()).collect();
    print(&version_lines("ITGLog"));
    match parse_log(&args) {
        Ok(args) => serve(args).map_or_else(
            |error| {
                say(format_args!("ITGLog: {error:#}"));
                ExitCode::FAILURE
            },
            |()| ExitCode::SUCCESS,
        ),
        Err(RecvError::Help) => {
            print(LOG_HELP);
            ExitCode::FAILURE
        }
        Err(error) => {
            say(error);
            ExitCode::FAILURE
        }
    }
}

/// Writes to stdout at once. An error is ignored: there is no other place for this text.
fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    drop(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
}

fn serve(args: LogArgs) -> Result<()> {
    for notice in &args.notices {
        say(format_args!("ITGLog: {notice}"));
    }
    let dir = args.dir.map_or_else(|| PathBuf::from("."), PathBuf::from);
    anyhow::ensure!(dir.is_dir(), "--log-dir {}: there is no such directory", dir.display());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("starting threads")?;
    runtime.block_on(async {
        let signals = Signals::watch_serving()?;
        let (tell, mut told) = mpsc::unbounded_channel();
        let options = ClassicOptions {
            listen: (Ipv6Addr::UNSPECIFIED, PORT_LOG).into(),
            dir: dir.clone(),
            places: SlotLimits {
                total: CLIENTS,
                per_address: args.per_address.unwrap_or(PER_ADDRESS),
            },
            log_bytes: u64::MAX,
            replace: args.replace,
        };
        // The clients' ends are the last ones to tell.
        let server = ClassicServer::bind(options, tell)?;
        say(format_args!("clients ask on {}, logs go to {}", server.address()?, dir.display()));
        print("Press Ctrl-C to terminate!\n");
        let telling = tokio::spawn(async move {
            while let Some(told) = told.recv().await {
                tell_of(&told);
            }
        });
        signals.at_hangup(server.reopen_logs());
        server.serve(signals.stop.clone()).await;
        telling.await?;
        print("Finish with CRTL-C! \n");
        Ok(())
    })
}

/// Prints an event: what D-ITG's server says to stdout, what it does not say to stderr.
fn tell_of(telling: &Telling) {
    match telling {
        Telling::Opened { peer, name, proto, port } => {
            let proto = if *proto == LogProto::Tcp { "TCP" } else { "UDP" };
            print(&format!(
                "Name Log File : {name} \nProtocol used : {proto} \nReceiving data on port: {port} \n"
            ));
            say(format_args!("{name} is for {peer}"));
        }
        Telling::Ended(account) => {
            let ended = if account.proto == LogProto::Tcp { "TCP channel!" } else { "UDP channel" };
            print(&format!("Data transmission ended on {ended}\n"));
            say(account);
        }
        Telling::Refused { peer, reason } => say(format_args!("{peer} is refused: {reason}")),
    }
}
