//! A receiver within this program.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Result;
use itg_cli::Failure;
use itg_engine::{LogLimits, LogQuota, LogTarget};
use itg_node::{ClassicReceiving, Receiver, ReceiverOptions};

use crate::directory::RECEIVER_LOG;

/// A receiver within this program, with its log in the directory of the run.
pub(crate) fn receiver(out: &Path, listen: SocketAddr) -> Result<Receiver> {
    Receiver::bind(receiver_options(out.join(RECEIVER_LOG), listen))
        .map_err(|error| Failure::new(1, error).into())
}

/// A receiver within this program: one thread, data on a port that the system chooses, all flows in one log.
#[must_use]
pub fn receiver_options(log: PathBuf, listen: SocketAddr) -> ReceiverOptions {
    ReceiverOptions {
        packet_secret: None,
        shards: 1,
        busy_poll_us: None,
        receive_buffer: None,
        listen,
        data_port: 0,
        log: Some(LogTarget::File(log)),
        log_limits: LogLimits::default(),
        allow_log_servers: false,
        allow_sources: Vec::new(),
        secret: None,
        log_keys: None,
        reverse: None,
        // A node's workers are sessions of one address.
        max_per_address: 1024,
        log_dir: None,
        log_quota: LogQuota::default(),
        replace_logs: false,
        once: false,
        classic: ClassicReceiving::default(),
        program: "itg-cluster".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        settings: BTreeMap::new(),
    }
}
