//! Files of inter-departure times (`-Ft`) and sizes (`-Fs`): one number a line.

use itg_core::distribution::TABLE_MAX;

use super::distribution::Distribution;
use super::flow::{FlowArgs, Source};
use crate::number::{integer, real};

/// A file that does not give its values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// A line that is no number of its kind.
    #[error("line {line} of the file: `{text}`: expected {expected}")]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// The line.
        text: String,
        /// Text for the user: the kind and range of values that a line may hold.
        expected: &'static str,
    },
    /// No line, or too many.
    #[error("the file holds {0} values: expected 1 to 10 million")]
    Count(usize),
}

/// Reads the values of a file: inter-departure times in milliseconds above 0, or (`sizes`) whole
/// numbers of bytes from 1 to 65536. Empty lines are skipped.
///
/// # Errors
/// The first line that is none, or a file without values.
pub fn read_values(text: &str, sizes: bool) -> Result<Vec<f64>, ValueError> {
    let mut values = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        let (value, good, expected) = if sizes {
            let size = integer(line);
            #[allow(clippy::cast_precision_loss, reason = "in range when it counts")]
            let value = size as f64;
            (value, (1..=65_536).contains(&size), "a size of 1 to 65536 bytes")
        } else {
            let gap = real(line);
            (gap, gap > 0.0 && gap.is_finite(), "a gap in milliseconds above 0")
        };
        if !good {
            let text = line.chars().take(40).collect();
            return Err(ValueError::Line { line: number + 1, text, expected });
        }
        values.push(value);
        if values.len() > TABLE_MAX {
            break;
        }
    }
    let count = values.len();
    if count == 0 || count > TABLE_MAX { Err(ValueError::Count(count)) } else { Ok(values) }
}

impl FlowArgs {
    /// The files that are to be loaded: of inter-departure times, of sizes.
    #[must_use]
    pub fn value_files(&self) -> [Option<&str>; 2] {
        [&self.idt, &self.size].map(|source| match source {
            Source::File(name) => Some(name.as_str()),
            Source::Law(_) => None,
        })
    }

    /// Takes the text of the file of inter-departure times, or (`sizes`) of sizes. The first time
    /// is the delay of the flow, inter-departure times start at the second one.
    ///
    /// # Errors
    /// See [`read_values`].
    pub fn load(&mut self, text: &str, sizes: bool) -> Result<(), ValueError> {
        let values = read_values(text, sizes)?;
        if sizes {
            self.size = Source::Law(Distribution::Listed { values, first: 0 });
            return Ok(());
        }
        if self.delay_from_file {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
            let delay = values[0] as u32;
            self.delay_ms = delay;
        }
        let first = 1 % values.len();
        self.idt = Source::Law(Distribution::Listed { values, first });
        Ok(())
    }
}
