//! `itg-log forward`: sends what a program has left in its spool.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use itg_cli::{Failure, WordArgs, read_secret, refuse, say};
use itg_engine::{Forwarded, LogUrl};
use itg_session::logs::Transport;
use itg_trust::KeyDir;

/// Arguments of `forward`.
#[derive(Debug, Args)]
pub(crate) struct ForwardArgs {
    /// The spool; FILE.index.jsonl beside it names its log. Both are removed when every block is
    /// stored. When it is interrupted, begin it anew: what is stored is not stored again
    #[arg(value_name = "SPOOL")]
    spool: PathBuf,
    /// The log server: tcp://HOST:PORT, or tls://HOST:PORT with --keys
    #[arg(long, value_name = "URL")]
    to: String,
    /// File with the secret of the log server
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Directory of keys for a log server at tls:// (`itg-cluster keys`)
    #[arg(long, value_name = "DIR")]
    keys: Option<PathBuf>,
}

/// Sends the blocks and says what became of them.
pub(crate) fn run(args: &ForwardArgs, words: WordArgs) -> Result<ExitCode> {
    let to: LogUrl = args.to.parse().map_err(refuse)?;
    if to.transport == Transport::Udp {
        return Err(refuse("a spool is sent over TCP, which loses nothing: write --to tcp://…"));
    }
    let secret = args.secret_file.as_deref().map(read_secret).transpose()?;
    let keys = args.keys.as_deref().map(KeyDir::load).transpose().map_err(refuse)?;
    let keys = to.keys(keys.as_ref()).map_err(refuse)?;
    let told = itg_engine::forward(&args.spool, &to, secret, keys)?;
    let spool = args.spool.display();
    let Forwarded { place, blocks, records, done, fate, error } = told;
    if !done {
        let why = error.unwrap_or_else(|| "the log server did not confirm it".to_owned());
        let text = format!("spool {spool}: not all of it is on {place}: {why}; {fate}");
        return Err(Failure::new(1, text).into());
    }
    if !words.quiet {
        say(format_args!("spool {spool}: {records} records in {blocks} blocks are on {place}"));
        if fate.missing_records + fate.dropped_records > 0 || !fate.missing.is_empty() {
            let gaps: u64 = fate.missing.iter().map(|(a, b)| u64::from(b - a) + 1).sum();
            let gaps = gaps + fate.missing_left_out;
            say(format_args!("the whole log: {fate}; {gaps} of its blocks are not there"));
        }
    }
    Ok(ExitCode::SUCCESS)
}
