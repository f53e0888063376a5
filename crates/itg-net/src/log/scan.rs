//! Which good blocks a file of this program holds, and where.

use std::fs::File;
use std::io;

use itg_record::BlockFacts;

/// What every block starts with.
const MAGIC: &[u8] = b"XPC1";

/// A good block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    /// Where it starts, in bytes.
    pub(crate) at: u64,
    /// What it says of itself.
    pub(crate) facts: BlockFacts,
}

/// All good blocks of a file, and where the last one ends.
///
/// Damage between them stays where it is; the decoder accounts for it.
pub(crate) fn scan(file: &File) -> io::Result<(u64, Vec<Found>)> {
    if file.metadata()?.len() == 0 {
        return Ok((0, Vec::new()));
    }
    // SAFETY: the file belongs to this program, which writes to it only after the map is gone. Should
    // another program shorten it meanwhile, reading would end this process, as documented.
    let bytes = unsafe { memmap2::Mmap::map(file)? };
    let mut blocks = Vec::new();
    let (mut at, mut good) = (0, 0);
    while at < bytes.len() {
        if let Ok(facts) = BlockFacts::check(&bytes[at..]) {
            blocks.push(Found { at: at as u64, facts });
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
    Ok((good as u64, blocks))
}
