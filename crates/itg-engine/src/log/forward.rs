//! Sending on the blocks that an earlier process has left in its spool.
//!
//! They go under the identity of the log that the spool's index names, so that the server stores each
//! block once, however often this is begun anew.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;

use itg_session::logs::keep::SpoolRest;
use itg_session::logs::{LogFate, LogProducer, ProducerInput, Transport};
use itg_socket::clock;
use itg_trust::KeyDir;

use super::queue::{Job, Shared};
use super::remote::Remote;
use super::spool;
use super::target::{LogServerTarget, LogUrl, producer_config};

/// Outcome of forwarding a spool.
#[derive(Clone, Debug)]
pub struct Forwarded {
    /// The log server, and the experiment there.
    pub place: String,
    /// Blocks that were in the spool.
    pub blocks: u64,
    /// Records in them.
    pub records: u64,
    /// True if all blocks are stored now, and the spool is removed.
    pub done: bool,
    /// The whole log, as far as it is known.
    pub fate: LogFate,
    /// Description of a failure, and advice.
    pub error: Option<String>,
}

/// Sends the blocks of a spool to a log server over TCP; removes the spool when all are stored.
///
/// # Errors
/// A spool that cannot be read or that a process still uses; the log server's refusal.
pub fn forward(
    path: &Path,
    to: &LogUrl,
    secret: Option<Vec<u8>>,
    keys: Option<KeyDir>,
) -> io::Result<Forwarded> {
    let (spool, SpoolRest { who, log, per_flow }) = spool::open(path)?;
    let target = LogServerTarget {
        transport: Transport::Tcp,
        address: to.address,
        run: who.run.clone(),
        role: who.role,
        secret,
        keys,
        spool: None,
    };
    let (place, blocks) = (target.to_string(), log.spool.len() as u64);
    let records = log.spool.iter().map(|block| u64::from(block.records)).sum();
    if blocks == 0 {
        spool::remove(path);
        let fate = LogFate::default();
        return Ok(Forwarded { place, blocks, records, done: true, fate, error: None });
    }
    // As long as it is not said to hold blocks back, the machine leaves the spool as it is.
    let config = producer_config(who, 1, None);
    let machine = LogProducer::resume(config, log, clock::machine_ns());
    let shared = Arc::new(Shared::default());
    let (events, queue) = mpsc::sync_channel::<Job>(64);
    let mut remote = Remote::resume(target, &shared, machine, (path.to_owned(), spool), events);
    remote.feed(ProducerInput::Timer);
    remote.feed(ProducerInput::Close { per_flow });
    let mut closing = true;
    while !remote.is_over() {
        remote.step(&queue, &mut closing);
    }
    let (fate, reason) = remote.end_of_forwarding();
    let done = fate.confirmed && shared.error().is_none();
    let error = reason.or_else(|| shared.error()).or_else(|| fate.trouble.clone());
    Ok(Forwarded { place, blocks, records, done, fate, error })
}
