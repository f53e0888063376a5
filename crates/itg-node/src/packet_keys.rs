//! Keys with which packets prove where they come from (`--auth`): a sender and a receiver that share a secret derive
//! them for one session from a number that each has drawn.
//!
//! All of it is HMAC-SHA-256 (RFC 2104) under names of their own: from the secret a key of the session, from that a proof
//! of the receiver and a key for each flow.

use itg_core::header::PacketKey;
use itg_engine::log::prove;
use itg_socket::host::random_u64;

/// Number drawn for one session.
pub(crate) type Nonce = [u8; 32];

/// Draws a number that nobody can guess.
pub(crate) fn nonce() -> Nonce {
    let mut nonce = [0; 32];
    nonce.chunks_exact_mut(8).for_each(|part| part.copy_from_slice(&random_u64().to_le_bytes()));
    nonce
}

/// The keys of a session.
#[derive(Clone)]
pub(crate) struct PacketKeys([u8; 32]);

impl PacketKeys {
    /// The keys of a session of this run, from the sender's number and the receiver's.
    pub(crate) fn new(secret: &[u8], run: &str, sender: &Nonce, receiver: &Nonce) -> Self {
        let text = [&b"itg packets 1\0"[..], run.as_bytes(), b"\0", sender, receiver].concat();
        Self(prove(secret, &text))
    }

    /// Proof that the receiver has the secret.
    pub(crate) fn receiver_proof(&self) -> [u8; 32] {
        prove(&self.0, b"receiver")
    }

    /// The key of a flow.
    pub(crate) fn of(&self, flow: u32) -> PacketKey {
        let key = prove(&self.0, &[&b"flow"[..], &flow.to_le_bytes()].concat());
        PacketKey::new(std::array::from_fn(|i| key[i]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ_by_secret_run_numbers_and_flow() {
        let keys =
            |secret: &str, run, a, b| PacketKeys::new(secret.as_bytes(), run, &[a; 32], &[b; 32]);
        let mut head = [0; 28];
        keys("s", "r", 1, 2).of(1).prove(100, &mut head);
        assert!(keys("s", "r", 1, 2).of(1).holds(&head, 100));
        for other in [
            keys("t", "r", 1, 2).of(1),
            keys("s", "q", 1, 2).of(1),
            keys("s", "r", 2, 2).of(1),
            keys("s", "r", 1, 3).of(1),
            keys("s", "r", 1, 2).of(2),
        ] {
            assert!(!other.holds(&head, 100));
        }
        assert_ne!(nonce(), nonce());
    }
}
