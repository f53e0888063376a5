//! Search for the good blocks of a file, by those who go on writing it: a log server, a spool.

use crate::facts::BlockFacts;

/// First bytes of every block.
const MAGIC: &[u8] = b"XPC1";

/// A good block of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundBlock {
    /// Offset of its first byte in the file.
    pub at: u64,
    /// Description that the block gives of itself.
    pub facts: BlockFacts,
}

/// Finds all good blocks of a file; returns the end of the last one (an offset), and the blocks.
///
/// Damage between them stays where it is; the reader accounts for it.
#[must_use]
pub fn find_blocks(bytes: &[u8]) -> (u64, Vec<FoundBlock>) {
    let mut blocks = Vec::new();
    let (mut at, mut good) = (0, 0);
    while at < bytes.len() {
        if let Ok(facts) = BlockFacts::check(&bytes[at..]) {
            blocks.push(FoundBlock { at: at as u64, facts });
            at += facts.len;
            good = at;
        } else {
            let next = bytes[at + 1..].windows(MAGIC.len()).position(|word| word == MAGIC);
            match next {
                Some(distance) => at += 1 + distance,
                None => break,
            }
        }
    }
    (good as u64, blocks)
}
