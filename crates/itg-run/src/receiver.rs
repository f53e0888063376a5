//! A receiver within this program.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::Result;
use itg_cli::Failure;
use itg_engine::LogTarget;
use itg_node::{Receiver, ReceiverOptions};

use crate::directory::RECEIVER_LOG;

/// A receiver within this program, with its log in the directory of the run.
pub(crate) fn receiver(out: &Path, listen: SocketAddr) -> Result<Receiver> {
    Receiver::bind(receiver_options(LogTarget::File(out.join(RECEIVER_LOG)), listen))
        .map_err(|error| Failure::new(1, error).into())
}

/// A receiver within this program: one thread, data on a port that the system chooses, all flows in one log.
#[must_use]
pub fn receiver_options(log: LogTarget, listen: SocketAddr) -> ReceiverOptions {
    ReceiverOptions::new(listen)
        .log(log)
        // A node's workers are sessions of one address.
        .max_per_address(1024)
        .program("itg-cluster", env!("CARGO_PKG_VERSION"))
}
