//! Search for the good blocks of a file of this program.

use std::fs::File;
use std::io;

use itg_record::BlockFacts;
use itg_socket::MappedFile;

/// First bytes of every block.
const MAGIC: &[u8] = b"XPC1";

/// A good block.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Offset of its first byte in the file.
    pub at: u64,
    /// Description that the block gives of itself.
    pub facts: BlockFacts,
}

/// Finds all good blocks of a file; returns the end of the last one (an offset), and the blocks.
///
/// Damage between them stays where it is; the decoder accounts for it.
///
/// # Errors
/// The system's, in words where the caller shows them.
pub fn scan(file: &File) -> io::Result<(u64, Vec<Found>)> {
    if file.metadata()?.len() == 0 {
        return Ok((0, Vec::new()));
    }
    let bytes = MappedFile::open(file)?;
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
