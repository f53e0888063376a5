//! Group communication on this host, beside the figures of the papers: `itg-bench broadcast` and `itg-bench
//! membership`.
//!
//! Real processes over Unix and TCP sockets (each is this program again, as `itg-cluster process` is one), and
//! stacks in one address space; the raw transports are measured in the same run, so that ratios hold on any
//! machine.

mod broadcast;
mod clients;
mod common;
mod contention;
mod crash;
mod membership;
mod open;
mod phases;
mod processes;
mod raw;
mod storage;

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use itg_cli::WordArgs;
use itg_run::{Parts, layers};

pub(crate) use self::broadcast::{BroadcastArgs, run as broadcast};
pub(crate) use self::membership::{MembershipArgs, run as membership};

/// Arguments of a process of a measurement: those of `itg-cluster process`.
#[derive(Debug, Args)]
pub(crate) struct GroupProcessArgs {
    #[command(flatten)]
    args: itg_run::process::ProcessArgs,
    #[command(flatten)]
    words: WordArgs,
}

/// Runs a process of a measurement.
pub(crate) fn process(process: &GroupProcessArgs) -> Result<ExitCode> {
    process.words.start();
    let parts = Parts::new("itg-bench", layers::registry());
    itg_run::process::run(&process.args, &parts, process.words)
}
