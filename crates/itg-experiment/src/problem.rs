//! What is wrong with an experiment, where, and what would have been understood instead.

use std::collections::BTreeMap;
use std::fmt;

/// A position in a text, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Line.
    pub line: usize,
    /// Character in the line.
    pub column: usize,
}

impl Place {
    /// The place of a byte of a text.
    #[must_use]
    pub fn of(text: &str, byte: usize) -> Self {
        let before = text.get(..byte).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        Self {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }
}

/// Where a table and its keys stand in the file; empty for a table that was not read from a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// The head of the table.
    pub head: Option<Place>,
    /// The values of its keys.
    pub keys: BTreeMap<String, Place>,
}

impl Places {
    /// The place of a key, or of the table when it has no such key.
    #[must_use]
    pub fn key(&self, key: &str) -> Option<Place> {
        self.keys.get(key).copied().or(self.head)
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Name of the file; empty when the experiment was not read from a file.
    pub origin: String,
    /// Where in the file, when known.
    pub place: Option<Place>,
    /// What is wrong and what to do.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.origin.is_empty() {
            write!(f, "{}:", self.origin)?;
            if let Some(Place { line, column }) = self.place {
                write!(f, "{line}:{column}:")?;
            }
            f.write_str(" ")?;
        }
        f.write_str(&self.text)
    }
}

/// An experiment file that cannot be read: everything that is wrong with it, in the order of the
/// file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", lines(problems))]
pub struct ExperimentError {
    /// At least one.
    pub problems: Vec<Problem>,
}

/// An experiment that is well written but cannot be done as asked: all reasons, in the order of the
/// file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", lines(problems))]
pub struct PlanError {
    /// At least one.
    pub problems: Vec<Problem>,
}

fn lines(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// The word nearest to `got`, when one is near enough to be meant.
pub(crate) fn nearest<'a>(got: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let got = got.to_lowercase();
    known
        .into_iter()
        .map(|word| (strsim::damerau_levenshtein(&got, &word.to_lowercase()), word))
        .min()
        .filter(|(distance, word)| *distance <= 1 + word.chars().count() / 3)
        .map(|(_, word)| word)
}

/// "did you mean …?", or the words to choose from when none is near.
pub(crate) fn suggestion<'a>(
    got: &str,
    known: impl IntoIterator<Item = &'a str> + Clone,
) -> String {
    nearest(got, known.clone()).map_or_else(
        || {
            let known: Vec<_> = known.into_iter().map(|word| format!("`{word}`")).collect();
            format!("expected one of {}", known.join(", "))
        },
        |word| format!("did you mean `{word}`?"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_lines_and_characters_from_one() {
        let text = "a\nbéd\n";
        for (byte, line, column) in [(0, 1, 1), (2, 2, 1), (5, 2, 3), (7, 3, 1), (99, 3, 1)] {
            assert_eq!(Place::of(text, byte), Place { line, column }, "byte {byte}");
        }
    }

    #[test]
    fn near_words_are_suggested_and_far_ones_listed() {
        let known = ["idt", "size", "duration", "start"];
        for (got, want) in [
            ("idd", "did you mean `idt`?"),
            ("IDT", "did you mean `idt`?"),
            ("durration", "did you mean `duration`?"),
            ("colour", "expected one of `idt`, `size`, `duration`, `start`"),
        ] {
            assert_eq!(suggestion(got, known), want, "input {got:?}");
        }
    }
}
