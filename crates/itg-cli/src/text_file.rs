//! Text files that people name, of bounded length: a name may lead to a device without an end.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Most bytes of such a file.
const MOST_BYTES: u64 = 64 << 20;

/// Reads a file of at most 64 MiB.
///
/// # Errors
/// The system's; a file that is longer.
pub fn read_file(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = File::open(path)?.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    if read as u64 > MOST_BYTES {
        let why = format!("it is longer than {} MiB", MOST_BYTES >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

/// Reads a text file of at most 64 MiB.
///
/// # Errors
/// As [`read_file`]; what is no text.
pub fn read_text(path: impl AsRef<Path>) -> io::Result<String> {
    String::from_utf8(read_file(path)?)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.utf8_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_without_an_end_are_refused() {
        let error = read_file("/dev/zero").expect_err("it has no end");
        assert!(error.to_string().contains("longer than 64 MiB"), "{error}");
        assert_eq!(read_text("/dev/null").expect("text"), "");
        assert!(read_text("/nonexistent").is_err());
    }
}
