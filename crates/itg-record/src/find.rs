//! Search for the good blocks of a file, by those who go on writing it: a log server, a spool.

use crate::facts::BlockFacts;
use crate::limits::MAX_BLOCK_LEN;
use crate::note::Note;

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

/// End of a file that holds a log, for those who write behind it, or replace it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogTail {
    /// End of its last good block, an offset in bytes.
    pub good_bytes: u64,
    /// Number of the log that this block belongs to.
    pub last_log: u32,
    /// True if that block is the end of its log, and nothing stands behind it.
    pub has_end: bool,
    /// True if what stands behind it is the beginning of a block or space that was never written: its writer was
    /// killed, or power was lost.
    pub is_torn: bool,
}

impl LogTail {
    /// Looks at both ends of a file; `None` where it does not begin with a good block: it is no log. Of a large file a
    /// part at its end is read alone.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Option<Self> {
        BlockFacts::check(bytes).ok()?;
        // Two blocks: the last good one, and one that is torn.
        let from = bytes.len().saturating_sub(2 * MAX_BLOCK_LEN);
        let last = |from: usize| Some((from, find_blocks(&bytes[from..]).1.pop()?));
        let (from, found) = last(from).or_else(|| last(0))?;
        let at = from + usize::try_from(found.at).ok()?;
        let good = at + found.facts.len;
        let rest = &bytes[good..];
        let is_start = rest.iter().zip(MAGIC).all(|(got, want)| got == want);
        let is_end = matches!(BlockFacts::note(&bytes[at..]), Some(Note::End(_)));
        Some(Self {
            good_bytes: good as u64,
            last_log: found.facts.log_id,
            has_end: is_end && rest.is_empty(),
            is_torn: !rest.is_empty()
                && rest.len() <= MAX_BLOCK_LEN
                && (is_start || rest.iter().all(|byte| *byte == 0)),
        })
    }
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
