//! Destinations of a decoder, and the errors that end it.

use std::io::{self, Write};

/// Most values in a table of windows: rows times columns.
pub const CELLS_MAX: u64 = 2_000_000_000;

/// Destinations of a decoder's output.
pub trait Outputs {
    /// The standard output.
    fn stdout(&mut self) -> &mut dyn Write;

    /// Creates or empties a file.
    ///
    /// # Errors
    /// Whatever the system says.
    fn create(&mut self, name: &str) -> io::Result<Box<dyn Write>>;

    /// Tells the user something that ITGDec would not.
    fn notice(&mut self, text: &str);
}

/// Error that ends decoding.
#[derive(Debug, thiserror::Error)]
pub enum DecError {
    /// A file cannot be created.
    #[error("Error opening file '{name}' for write: {source}")]
    Create {
        /// Its name.
        name: String,
        /// Error of the system.
        source: io::Error,
    },
    /// Writing failed.
    #[error("cannot write: {0}")]
    Write(#[from] io::Error),
    /// `-r`: a packet of the receiver's log is not in the sender's.
    #[error("Error, unable to find correspondent line in sender log file")]
    NoSenderRecord {
        /// Flow.
        flow: u32,
        /// Sequence number.
        seq: u32,
    },
    /// A table of windows would be too large.
    #[error("windows of {length_ms} ms make a table of {cells} values: use longer windows")]
    TooManyWindows {
        /// Length of a window in milliseconds.
        length_ms: f64,
        /// Rows times columns.
        cells: u64,
    },
}
