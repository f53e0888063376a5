//! Flows to send, and what is to happen with them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use itg_cli::{Gates, LogArgs};
use itg_engine::pacing::PacingOptions;
use itg_experiment::Plan;

/// Flows to send, and their receivers.
pub(crate) struct Request {
    /// In D-ITG's protocol.
    pub(crate) classic: bool,
    pub(crate) plan: Plan,
    pub(crate) receivers: BTreeMap<String, SocketAddr>,
    /// The flows that are sent from here, by number.
    pub(crate) ours: BTreeSet<u32>,
    /// Note of the flows that are not sent from here, and why.
    pub(crate) notice: Option<String>,
    pub(crate) pacing: PacingOptions,
    pub(crate) logs: SendLogArgs,
    /// Those of the experiment file, and its name.
    pub(crate) gates: Gates,
    pub(crate) origin: String,
}

/// Logs of both sides.
#[derive(Debug, Args)]
pub(crate) struct SendLogArgs {
    #[command(flatten)]
    pub(crate) own: LogArgs,
    /// Name of a log that the receiver shall keep, in the directory of its --log-dir; with --classic, a
    /// path as D-ITG's receiver and its log server take it [default there: /tmp/ITGRecv.log]
    #[arg(long, value_name = "NAME")]
    pub(crate) recv_log: Option<String>,
    /// Log server to which the receiver shall send its log (it must allow that): tcp://… or udp://…; with
    /// --classic, one that speaks D-ITG's protocol, at port 9001
    #[arg(long, value_name = "URL")]
    pub(crate) recv_log_server: Option<String>,
    /// Report of `itg-send doctor --output FILE` on this host: its promise goes into the log, and
    /// the report of the run says whether it was kept
    #[arg(long, value_name = "FILE")]
    pub(crate) promise: Option<PathBuf>,
}
