//! Things in pieces: snapshots on their way, long records of journals.

use std::collections::BTreeSet;
use std::mem;

use bytes::{BufMut as _, Bytes, BytesMut};
use itg_process::{Slot, Time};

/// Bytes of a record of a journal that is a piece of another one.
const PIECE: usize = 1 << 20;

/// A snapshot that is being fetched.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Incoming {
    pub(super) from: Slot,
    pub(super) k: u64,
    pub(super) total: u64,
    pub(super) sum: u64,
    pub(super) bytes: Vec<u8>,
    /// Instant of the last piece or question, and the number of questions since the last piece.
    pub(super) at: Time,
    pub(super) asked: u32,
    /// Instant of the first piece.
    pub(super) since: Time,
}

/// A snapshot that is being handed over.
#[derive(Clone, Debug, Hash)]
pub(super) struct Outgoing {
    /// Its instance, and the checksum of its bytes.
    pub(super) id: (u64, u64),
    pub(super) bytes: Bytes,
    /// Turns of the timer since the last piece went.
    pub(super) idle: u32,
}

/// Snapshots in pieces that come and go.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Transfer {
    pub(super) incoming: Option<Incoming>,
    pub(super) outgoing: Option<Outgoing>,
    /// Processes that were asked for what is missing here: pieces of others are refused.
    pub(super) asked: BTreeSet<Slot>,
    /// It was told that the state is too long.
    pub(super) too_long: bool,
}

impl Transfer {
    /// Nothing is fetched or served any more.
    pub(super) fn end(&mut self) {
        (self.incoming, self.outgoing) = (None, None);
    }

    /// Returns true if nothing is fetched or served.
    pub(super) const fn is_at_rest(&self) -> bool {
        self.incoming.is_none() && self.outgoing.is_none()
    }

    /// A state is here: nothing is missing.
    pub(super) fn installed(&mut self) {
        self.incoming = None;
        self.asked.clear();
    }
}

/// A record of a journal in records of one piece each: those of kind `more` and behind them the one of kind `last`.
pub(crate) fn split(record: Bytes, more: u8, last: u8) -> Vec<Bytes> {
    if record.len() <= PIECE {
        return vec![record];
    }
    let end = record.len().div_ceil(PIECE) - 1;
    let piece = |(at, chunk): (usize, &[u8])| {
        let mut out = BytesMut::with_capacity(1 + chunk.len());
        out.put_u8(if at == end { last } else { more });
        out.put_slice(chunk);
        out.freeze()
    };
    record.chunks(PIECE).enumerate().map(piece).collect()
}

/// The records of a journal with those in pieces put together again.
pub(crate) fn join(records: &[Bytes], more: u8, last: u8) -> Vec<Bytes> {
    let (mut found, mut open) = (Vec::with_capacity(records.len()), BytesMut::new());
    for record in records {
        let kind = record.first().copied();
        if kind != Some(more) && kind != Some(last) {
            found.push(record.clone());
            continue;
        }
        open.put_slice(&record[1..]);
        if kind == Some(last) {
            found.push(mem::take(&mut open).freeze());
        }
    }
    found
}
