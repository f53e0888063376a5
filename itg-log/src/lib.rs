//! `itg-log`: stores the logs of many senders and receivers.

mod classic;
mod forward;
mod metrics;
mod seal;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use itg_classic::wire::PORT_LOG;
use itg_cli::{
    MetricsArgs, Program, Signals, WordArgs, finish, parse_throttle, read_secret, refuse, say,
};
use itg_core::units::{format_bytes, parse_bytes};
use itg_engine::{Fsync, LOG_PORT};
use itg_node::{LogServer, LogServerOptions, SlotLimits};
use itg_record::MAX_BLOCK_LEN;
use itg_session::logs::{LogAccount, LogLimits, Role};
use itg_trust::{KeyDir, Role as KeyRole};
use tokio::sync::mpsc;

use crate::classic::{ClassicOptions, ClassicServer, Telling};

/// Store the logs of many senders and receivers (their --log-server), one file an experiment.
///
/// Blocks come over TCP, with --keys over TLS (acknowledged, sent again after a break, stored exactly once), or
/// UDP (one block a datagram, missing ones are counted). A block that was acknowledged is there after a crash of this program,
/// and after a loss of power with --fsync block.
/// Runs until SIGINT or SIGTERM, then stores what has come and prints a summary. Read the files with
/// itg-decode, also while they grow.
///
/// SIGHUP has logs opened anew by their names, where their files were moved away.
///
/// Exit codes: 0 done, 1 failed, 2 the request makes no sense (a port that is taken among them), 130 and
/// 143 ended by SIGINT and SIGTERM.
#[derive(Debug, Parser)]
#[command(name = "itg-log", version, long_version = itg_cli::version!(), args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: ServeArgs,
    #[command(flatten)]
    words: WordArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Compress logs that are complete, column by column, without loss; itg-decode reads them as before
    Seal(seal::SealArgs),
    /// Send what a program that has ended left in its spool (--log-spool), each block exactly once
    Forward(forward::ForwardArgs),
}

#[derive(Debug, Args)]
struct ServeArgs {
    /// Address that producers connect to and send UDP blocks to
    #[arg(long, value_name = "ADDR[:PORT]", default_value = "[::]:9003")]
    listen: String,
    /// Take the logs of D-ITG's programs too (ITGSend -L, ITGRecv -L): where they ask for one, by TCP.
    /// Each gets a data port from 9003 to 10002, and a file of the name it asks for in --dir
    #[arg(long, value_name = "ADDR[:PORT]", num_args = 0..=1, default_missing_value = "[::]:9001")]
    classic: Option<String>,
    /// Directory for the files NAME.itg and NAME.index.jsonl, made when it is not there; nothing is written elsewhere
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Let a log of D-ITG's programs replace an older one of its name, as D-ITG does; other files never are
    /// replaced
    #[arg(long, requires = "classic")]
    replace_logs: bool,
    /// File with the secret that producers must know
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Take logs over TLS alone (tls://), from programs with keys of the same cluster; this is the directory of
    /// our own, which `itg-cluster keys add NODE --role log` makes. No block comes over UDP then
    #[arg(long, value_name = "DIR")]
    keys: Option<PathBuf>,
    /// Producers at the same time
    #[arg(long, value_name = "N", default_value_t = 256)]
    max_producers: usize,
    /// Connections of one address at the same time; those that have not registered give way to newer ones
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u16).range(1..))]
    max_per_address: u16,
    /// Experiments with producers at the same time
    #[arg(long, value_name = "N", default_value_t = 64)]
    max_experiments: usize,
    /// Logs in one experiment
    #[arg(long, value_name = "N", default_value_t = 4096)]
    max_logs: usize,
    /// Largest block of a log, its header of 64 bytes included
    #[arg(long, value_name = "BYTES", default_value = "1Mi")]
    max_block: String,
    /// Size of one log on disk; a producer that would exceed it is refused [default: no limit]
    #[arg(long, value_name = "BYTES")]
    max_log_size: Option<String>,
    /// Size of all logs of one experiment on disk [default: no limit]
    #[arg(long, value_name = "BYTES")]
    max_experiment_size: Option<String>,
    /// Memory for blocks that wait for the disk; half of it is kept so that each producer always may
    /// have two blocks on the way
    #[arg(long, value_name = "BYTES", default_value = "256Mi")]
    memory: String,
    /// Memory that one producer may take of the other half (at most an eighth of it in any case)
    #[arg(long, value_name = "BYTES", default_value = "16Mi")]
    producer_memory: String,
    /// Sync the files of experiments: never (a block that was acknowledged survives a crash of this
    /// program, not a loss of power), once a second (interval), or before a block is acknowledged (block)
    #[arg(long, value_name = "never|interval|block", default_value_t)]
    fsync: Fsync,
    /// For measurements: write to the file of an experiment no faster than this, as 20MB/s
    #[arg(long, value_name = "RATE")]
    log_throttle: Option<String>,
    #[command(flatten)]
    metrics: MetricsArgs,
}

impl ServeArgs {
    fn limits(&self) -> Result<LogLimits> {
        let bytes = |text: &String| parse_bytes(text).map(|bytes| bytes.0).map_err(refuse);
        let no_limit = |text: &Option<String>| text.as_ref().map_or(Ok(u64::MAX), bytes);
        let block_bytes = u32::try_from(bytes(&self.max_block)?).unwrap_or(u32::MAX);
        if block_bytes as usize > MAX_BLOCK_LEN {
            return Err(refuse(format!(
                "--max-block {}: a block has at most 16Mi",
                self.max_block
            )));
        }
        Ok(LogLimits {
            producers: self.max_producers,
            experiments: self.max_experiments,
            logs: self.max_logs,
            block_bytes,
            budget_bytes: bytes(&self.memory)?,
            producer_bytes: bytes(&self.producer_memory)?,
            log_bytes: no_limit(&self.max_log_size)?,
            experiment_bytes: no_limit(&self.max_experiment_size)?,
            ..LogLimits::default()
        })
    }
}

/// The program's command line, for man pages and completions.
#[must_use]
pub fn command() -> clap::Command {
    itg_cli::command::<Cli>(None)
}

/// Runs the program with the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    let cli = itg_cli::parse::<Cli>(None);
    cli.words.start();
    let done = match &cli.command {
        Some(Command::Seal(args)) => seal::run(args, cli.words),
        Some(Command::Forward(args)) => forward::run(args, cli.words),
        None => serve(&cli.serve, cli.words),
    };
    finish("itg-log", done)
}

fn serve(cli: &ServeArgs, words: WordArgs) -> Result<ExitCode> {
    let Some(dir) = &cli.dir else {
        return Err(refuse("name the directory for the logs with --dir DIR"));
    };
    let listen = itg_socket::resolve(&cli.listen, LOG_PORT).map_err(refuse)?;
    let limits = cli.limits()?;
    let secret = cli.secret_file.as_deref().map(read_secret).transpose()?;
    let keys = cli.keys.as_deref().map(KeyDir::load).transpose().map_err(refuse)?;
    if let Some(keys) = &keys {
        keys.must_be(&[KeyRole::Log]).map_err(refuse)?;
    }
    if !words.quiet {
        let secret = if secret.is_some() { "with a secret" } else { "no secret" };
        let protection = format!("{secret}, {}", if keys.is_some() { "TLS" } else { "plain" });
        let place = format!("listen {listen}, dir {}", dir.display());
        say(format_args!(
            "itg-log {}: {place}, {protection}, {}, fsync {}",
            env!("CARGO_PKG_VERSION"),
            in_words(&limits),
            cli.fsync
        ));
    }
    std::fs::create_dir_all(dir)
        .map_err(|error| refuse(format!("--dir {}: {error}", dir.display())))?;
    let classic = cli.classic.as_ref().map(|at| itg_socket::resolve(at, PORT_LOG).map_err(refuse));
    let classic = classic.transpose()?.map(|listen| ClassicOptions {
        listen,
        dir: dir.clone(),
        places: SlotLimits { total: limits.producers, per_address: cli.max_per_address.into() },
        log_bytes: limits.log_bytes,
        replace: cli.replace_logs,
    });
    let throttle_bytes_per_s = cli.log_throttle.as_deref().map(parse_throttle).transpose()?;
    let options = LogServerOptions::new(listen, dir)
        .secret(secret)
        .keys(keys)
        .limits(limits)
        .max_per_address(cli.max_per_address.into())
        .throttle_bytes_per_s(throttle_bytes_per_s)
        .fsync(cli.fsync);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let signals = Signals::watch_serving()?;
        let (accounts, mut told) = mpsc::unbounded_channel();
        let page_server = cli.metrics.bind(words.quiet).await?;
        let server = LogServer::bind(options, accounts).map_err(refuse)?;
        if let Some(page_server) = page_server {
            let program = Program::started("itg-log", env!("CARGO_PKG_VERSION"));
            let read = server.watch();
            let page = move || std::future::ready(metrics::page(program, read()));
            drop(tokio::spawn(page_server.writing_to([dir.clone()]).serve(page)));
        }
        signals.at_hangup(server.reopen_logs());
        let quiet = words.quiet;
        let classic = classic.map(|options| start_classic(options, &signals, quiet)).transpose()?;
        if !quiet {
            say(format_args!("waiting for producers on {}; end with Ctrl-C", server.address()?));
        }
        let telling = tokio::spawn(async move {
            while let Some(account) = told.recv().await {
                if !quiet {
                    say(sentence(&account));
                }
            }
        });
        let outcome = server.serve(signals.stop.clone()).await;
        telling.await?;
        if let Some(classic) = classic {
            classic.await?;
        }
        let refused = match outcome.refused_blocks {
            0 => String::new(),
            blocks => format!(", refused {blocks} blocks for want of room"),
        };
        say(format_args!(
            "served {} connections, stored {} records in {} blocks{refused}",
            outcome.connections, outcome.records, outcome.blocks
        ));
        Ok(ExitCode::from(signals.exit_code().unwrap_or(0)))
    })
}

/// The limits for people.
fn in_words(limits: &LogLimits) -> String {
    format!(
        "{} producers, {} experiments, {} logs each, blocks of {}, log size {}, experiment size {}, memory {} ({} a \
         producer)",
        limits.producers,
        limits.experiments,
        limits.logs,
        format_bytes(u64::from(limits.block_bytes)),
        limit_in_words(limits.log_bytes),
        limit_in_words(limits.experiment_bytes),
        format_bytes(limits.budget_bytes),
        format_bytes(limits.producer_bytes)
    )
}

/// Serves D-ITG's programs beside ours; the task ends with the others.
fn start_classic(
    options: ClassicOptions,
    signals: &Signals,
    quiet: bool,
) -> Result<tokio::task::JoinHandle<()>> {
    let (tell, mut told) = mpsc::unbounded_channel();
    let server = ClassicServer::bind(options, tell).map_err(|e| refuse(format!("{e:#}")))?;
    if !quiet {
        say(format_args!("waiting for D-ITG's programs on {}", server.address()?));
    }
    signals.at_hangup(server.reopen_logs());
    let stop = signals.stop.clone();
    Ok(tokio::spawn(async move {
        let serving = tokio::spawn(server.serve(stop));
        while let Some(telling) = told.recv().await {
            match telling {
                Telling::Ended(account) if !quiet || account.trouble.is_some() => say(account),
                Telling::Refused { peer, reason } => {
                    say(format_args!("{peer} is refused: {reason}"))
                }
                Telling::Opened { peer, name, proto, port } if !quiet => {
                    say(format_args!(
                        "{name}: {peer} sends its records to port {port} ({proto:?})"
                    ));
                }
                Telling::Opened { .. } | Telling::Ended(_) => {}
            }
        }
        if serving.await.is_err() {
            tracing::error!("the server for D-ITG's programs stopped on a bug");
        }
    }))
}

fn limit_in_words(bytes: u64) -> String {
    if bytes == u64::MAX { "not limited".to_owned() } else { format_bytes(bytes) }
}

/// Account of a log, in one sentence.
fn sentence(account: &LogAccount) -> String {
    let side = match account.who.role {
        Role::Sender => "sender",
        Role::Receiver => "receiver",
    };
    let missing = if account.missing_blocks == 0 && account.dropped_blocks == 0 {
        "none missing".to_owned()
    } else {
        format!(
            "{} blocks missing, {} of them left out by the producer ({} records), {} refused here",
            account.missing_blocks,
            account.dropped_blocks,
            account.dropped_records,
            account.refused_blocks
        )
    };
    let conflicts = match account.conflicting_blocks {
        0 => String::new(),
        count => format!(
            "; {count} blocks came with other contents than those stored before: somebody else has \
             written to this log"
        ),
    };
    format!(
        "{}: log {} of {} ({side}): {} of {} records in {} blocks stored, {missing}{conflicts}",
        account.run,
        account.log_id,
        account.who.host,
        account.stored_records,
        account.records,
        account.stored_blocks
    )
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
