//! Flows to send, and what is to happen with them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use itg_cli::{
    Gates, IntervalArgs, IntervalLines, LogArgs, PeerArgs, SenderMetricsArgs, read_secret,
};
use itg_engine::pacing::PacingOptions;
use itg_experiment::{Plan, PlannedFlow};

/// Flows to send, and their receivers.
pub(crate) struct Request {
    /// In D-ITG's protocol.
    pub(crate) classic: bool,
    /// The other side sends flows, too: those that are not `ours`.
    pub(crate) exchange: bool,
    pub(crate) plan: Plan,
    pub(crate) receivers: BTreeMap<String, SocketAddr>,
    /// The flows that are sent from here, by number.
    pub(crate) ours: BTreeSet<u32>,
    /// Note of the flows that are not sent from here, and why.
    pub(crate) notice: Option<String>,
    /// Secret for the proofs of packets.
    pub(crate) packet_secret: Option<Vec<u8>>,
    pub(crate) peer: PeerArgs,
    pub(crate) pacing: PacingOptions,
    pub(crate) logs: SendLogArgs,
    pub(crate) output: OutputArgs,
    /// Those of the experiment file, and its name.
    pub(crate) gates: Gates,
    pub(crate) origin: String,
}

impl Request {
    /// The receiver of a flow that is sent from here.
    pub(crate) fn receiver(&self, flow: &PlannedFlow) -> Option<SocketAddr> {
        self.ours.contains(&flow.flow.spec().id).then(|| self.receivers[&flow.to])
    }
}

/// Output at the end and meanwhile.
#[derive(Debug, Args)]
pub(crate) struct OutputArgs {
    /// Print what became of the flows as JSON
    ///
    /// One object with the keys of itg-decode's report, instead of the table.
    #[arg(short = 'J', long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) interval: IntervalArgs,
    #[command(flatten)]
    pub(crate) metrics: SenderMetricsArgs,
}

impl OutputArgs {
    /// The lines for intervals, if they were asked for.
    pub(crate) fn lines(&self) -> Option<IntervalLines> {
        let every = self.interval.interval?;
        Some(IntervalLines { every, on_stderr: self.json, way: None })
    }
}

/// Proof of where packets come from.
#[derive(Debug, Args)]
pub(crate) struct AuthArgs {
    /// Have every packet prove with the secret of --secret-file that it comes from here (8 bytes behind the header):
    /// the receiver, which has the same secret, counts packets without proof as foreign; UDP
    #[arg(long, help_heading = "Network", requires = "secret_file", conflicts_with = "classic")]
    auth: bool,
    /// Secret shared with the receivers, for --auth
    #[arg(long, help_heading = "Network", value_name = "FILE", requires = "auth")]
    secret_file: Option<PathBuf>,
}

impl AuthArgs {
    pub(crate) const fn is_given(&self) -> bool {
        self.auth
    }

    /// The secret, if packets shall prove themselves.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn secret(&self) -> Result<Option<Vec<u8>>> {
        self.secret_file.as_deref().map(read_secret).transpose()
    }
}

impl SendLogArgs {
    /// The log that the receiver shall keep: its name, or the URL of a log server.
    pub(crate) fn recv_log(&self) -> Option<String> {
        let server = self.recv_log_server.clone().map(|url| self.own.named(url));
        self.recv_log.clone().or(server)
    }
}

/// Logs of both sides.
#[derive(Debug, Args)]
pub(crate) struct SendLogArgs {
    #[command(flatten)]
    pub(crate) own: LogArgs,
    /// Name of a log that the receiver shall keep, in the directory of its --log-dir; with --classic, a
    /// path as D-ITG's receiver and its log server take it [default there: /tmp/ITGRecv.log]
    #[arg(long, help_heading = "Logs", value_name = "NAME")]
    pub(crate) recv_log: Option<String>,
    /// Log server to which the receiver shall send its log (it must allow that): tcp://…, udp://…, or
    /// tls://… with the receiver's keys; with --classic, one that speaks D-ITG's protocol, at port 9001
    #[arg(long, help_heading = "Logs", value_name = "URL")]
    pub(crate) recv_log_server: Option<String>,
    /// Report of `itg-send doctor --output FILE` on this host: its promise goes into the log, and
    /// the report of the run says whether it was kept
    #[arg(long, help_heading = "Timing", value_name = "FILE")]
    pub(crate) promise: Option<PathBuf>,
}
