//! Starts that the log has let in: the nonce of each member that has joined.
//!
//! The log says them with each view change. They are part of the state at its checkpoints: length u32, members with
//! their nonces, then the state of the layer above. Who joins by a state, or comes back with one in its journal, so
//! knows them as well as the others.

use std::collections::BTreeMap;

use bytes::{BufMut as _, Bytes, BytesMut};
use itg_members::wire::{Put as _, Take};
use itg_members::{Member, View};

use crate::cast::MOST_PART;
use crate::codec;

type Nonces = BTreeMap<Member, u64>;

/// Nonces of the members that have joined.
#[derive(Debug, Default)]
pub(super) struct Admitted {
    nonces: Nonces,
    /// Those at the last checkpoint, and its position: the log may go on before the layer above answers.
    at_checkpoint: Option<(u64, Nonces)>,
}

impl Admitted {
    /// The nonce of a member; of those of the first view there is none.
    pub(super) fn nonce(&self, member: Member) -> Option<u64> {
        self.nonces.get(&member).copied()
    }

    /// The bytes that go with the change that lets these in.
    pub(super) fn with_change(joiners: &[(Member, u64)]) -> Bytes {
        codec::write(&joiners).into()
    }

    /// The log has let in the joiners of a change.
    pub(super) fn changed(&mut self, with: &Bytes) {
        let joined: Vec<(Member, u64)> = codec::read(with).unwrap_or_default();
        self.nonces.extend(joined);
    }

    /// Forgets those that are not in the view.
    pub(super) fn retain(&mut self, view: &View) {
        self.nonces.retain(|member, _| view.contains(*member));
    }

    /// Begins with those of a state.
    pub(super) fn replace(&mut self, nonces: Nonces) {
        self.nonces = nonces;
    }

    /// The log asks for the state at this position.
    pub(super) fn checkpoint(&mut self, position: u64) {
        self.at_checkpoint = Some((position, self.nonces.clone()));
    }

    /// The state at the last checkpoint, with this one of the layer above; `None` if it is not of that checkpoint.
    pub(super) fn state(&mut self, position: u64, above: &Bytes) -> Option<Bytes> {
        let (_, nonces) = self.at_checkpoint.take_if(|(asked, _)| *asked == position)?;
        let nonces = codec::write(&nonces);
        let mut state = BytesMut::with_capacity(4 + nonces.len() + above.len());
        state.blob(&nonces);
        state.put_slice(above);
        Some(state.freeze())
    }

    /// The nonces of a state, and the state of the layer above; without nonces all of it is of the layer above.
    pub(super) fn parts(state: &Bytes) -> (Nonces, Bytes) {
        let mut take = Take::new(state.clone());
        let nonces = take.blob(MOST_PART).and_then(|nonces| codec::read(&nonces));
        nonces.map_or_else(|| (Nonces::new(), state.clone()), |nonces| (nonces, take.rest()))
    }
}
