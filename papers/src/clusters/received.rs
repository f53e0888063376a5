//! A cluster on its way in: its header is good, its body is still to be filled in and validated.
//!
//! For any transport, asynchronous ones included: read 64 bytes, [`accept`](Received::accept) them,
//! read into [`body_mut`](Received::body_mut), [`validate`](Received::validate). The body is read to
//! where it stays.

use std::marker::PhantomData;

use crate::clusters::cluster::{Cluster, room_for};
use crate::clusters::memory::Memory;
use crate::clusters::object::Schema;
use crate::clusters::reference::{FixedAddress, Kind};
use crate::clusters::refusal::Refusal;
use crate::clusters::validate::check_header;
use itg_arena::{HEADER_LEN, Header};

/// The bytes of a cluster that have not been validated: nothing can be read from them.
#[derive(Debug)]
#[must_use = "what came is of no use until it has been validated"]
pub struct Received<S, K: Kind, M> {
    memory: M,
    header: Header,
    place: FixedAddress,
    schema: PhantomData<(S, K)>,
}

impl<S: Schema<K>, K: Kind, M: Memory> Received<S, K, M> {
    /// Checks a header that came, and makes room for its cluster in `memory`. `place` is zeros for
    /// relocatable clusters.
    ///
    /// # Errors
    /// A header that is not good, a cluster that is longer than `limit` bytes or than the memory.
    pub fn accept(
        header: &[u8; HEADER_LEN],
        mut memory: M,
        place: FixedAddress,
        limit: usize,
    ) -> Result<Self, Refusal> {
        let parsed = check_header::<S, K>(header, place, limit)?;
        room_for(&mut memory, &parsed)?;
        memory.as_mut()[..HEADER_LEN].copy_from_slice(header);
        Ok(Self { memory, header: parsed, place, schema: PhantomData })
    }

    /// Memory that the rest of the cluster is to be read into.
    ///
    /// # Panics
    /// If the memory has shrunk: a bug of its implementation.
    pub fn body_mut(&mut self) -> &mut [u8] {
        let len = usize::try_from(self.header.total_len).expect("there is room for it");
        &mut self.memory.as_mut()[HEADER_LEN..len]
    }

    /// Checks the body.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place. Never panics, whatever the bytes are.
    pub fn validate(self) -> Result<Cluster<S, K, M>, Refusal> {
        Cluster::from_checked(self.memory, &self.header, self.place)
    }

    /// Header of the cluster, checked.
    pub const fn header(&self) -> &Header {
        &self.header
    }
}
