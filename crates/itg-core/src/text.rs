//! Places in texts that people write, faults of a configuration, and the nearest known word; and texts
//! of strangers, in a form in which they do nothing to a terminal or a spreadsheet; tables and notes for people.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

/// Returns true if a character changes what a terminal shows beyond its own place: control characters, line
/// and paragraph separators, and those that turn the direction of text.
const fn is_active(c: char) -> bool {
    matches!(c, '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}')
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(c, '\u{2066}'..='\u{2069}')
}

/// The text with what is active, but for these characters, as JSON and most languages escape it.
fn escaped<'a>(text: &'a str, but: &[char]) -> Cow<'a, str> {
    let active = |c: char| is_active(c) && !but.contains(&c);
    let Some(first) = text.find(active) else { return Cow::Borrowed(text) };
    let mut out = text[..first].to_owned();
    for c in text[first..].chars() {
        match c {
            c if !active(c) => out.push(c),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            // All are of the first 65536 characters. Writing to a String cannot fail.
            c => write!(out, "\\u{:04x}", u32::from(c)).unwrap_or_default(),
        }
    }
    Cow::Owned(out)
}

/// A text from outside (of a peer, a log, a file) as part of a line: whatever would act on a terminal, line
/// ends included, is shown as `\n` or `\u001b`.
#[must_use]
pub fn visible(text: &str) -> Cow<'_, str> {
    escaped(text, &[])
}

/// Longest text of a peer that is shown, in characters.
const LONGEST_OF_PEER: usize = 200;

/// A text that a peer has told as part of a line: as [`visible`], and no longer than 200 characters.
#[must_use]
pub fn from_peer(text: &str) -> String {
    let mut shown = visible(text).into_owned();
    if let Some((end, _)) = shown.char_indices().nth(LONGEST_OF_PEER) {
        shown.truncate(end);
        shown.push('…');
    }
    shown
}

/// Lines in which texts from outside may be: as [`visible`], but for line ends and tabulators. JSON says the
/// same afterwards, since such characters stand in its strings only.
#[must_use]
pub fn visible_lines(text: &str) -> Cow<'_, str> {
    escaped(text, &['\n', '\t'])
}

/// A text from outside as a cell of a table that spreadsheets open: as [`visible`], and behind an apostrophe
/// if it would be taken for a formula.
#[must_use]
pub fn table_cell(text: &str) -> Cow<'_, str> {
    let shown = visible(text);
    if shown.trim_start().starts_with(['=', '+', '-', '@']) {
        return Cow::Owned(format!("'{shown}"));
    }
    shown
}

/// Rows of a table as lines: columns of words to the left, all others to the right; empty columns are left out.
#[must_use]
pub fn align<R: AsRef<[String]>>(rows: &[R], is_words: impl Fn(usize) -> bool) -> String {
    let mut widths: Vec<usize> = Vec::new();
    for row in rows.iter().map(AsRef::as_ref) {
        widths.resize(widths.len().max(row.len()), 0);
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut out = String::new();
    for row in rows.iter().map(AsRef::as_ref) {
        let mut line = String::new();
        for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            if width == 0 {
                continue;
            }
            let gap = if line.is_empty() { "" } else { "  " };
            // Writing to a String cannot fail.
            let written = if is_words(column) {
                write!(line, "{gap}{cell:<width$}")
            } else {
                write!(line, "{gap}{cell:>width$}")
            };
            written.unwrap_or_default();
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// Numbers of flows: "flow 3", "flows 1-3, 7".
#[must_use]
pub fn flow_numbers(ids: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for id in ids {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*id) => *last = *id,
            _ => ranges.push((*id, *id)),
        }
    }
    let texts: Vec<_> = ranges
        .iter()
        .map(
            |(first, last)| {
                if first == last { first.to_string() } else { format!("{first}-{last}") }
            },
        )
        .collect();
    format!("flow{} {}", if ids.len() == 1 { "" } else { "s" }, texts.join(", "))
}

/// Notes of flows, each text once with the numbers of its flows, in the order of first appearance.
#[must_use]
pub fn grouped(notes: &[(u32, String)]) -> Vec<String> {
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    let mut groups: Vec<(&str, Vec<u32>)> = Vec::new();
    for (id, text) in notes {
        let place = *places.entry(text).or_insert_with(|| {
            groups.push((text, Vec::new()));
            groups.len() - 1
        });
        groups[place].1.push(*id);
    }
    groups.into_iter().map(|(text, ids)| format!("{}: {text}", flow_numbers(&ids))).collect()
}

/// A position in a text, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Line.
    pub line: usize,
    /// Character in the line.
    pub column: usize,
}

impl Position {
    /// The beginning of a text.
    const START: Self = Self { line: 1, column: 1 };

    /// The place of a byte of a text.
    #[must_use]
    pub fn of(text: &str, byte: usize) -> Self {
        Self::START.behind(&text.as_bytes()[..byte.min(text.len())])
    }

    /// The place behind some bytes that begin here.
    fn behind(mut self, bytes: &[u8]) -> Self {
        for byte in bytes {
            match byte {
                b'\n' => self = Self { line: self.line + 1, column: 1 },
                // A byte within a character is no column.
                byte if byte & 0xC0 != 0x80 => self.column += 1,
                _ => {}
            }
        }
        self
    }
}

/// Bytes between two marks of [`PositionIndex`]: so many are read at most to find a position.
const STRIDE: usize = 256;

/// Positions in a text, each found in the same time, however long the text is.
#[derive(Clone, Debug)]
pub struct PositionIndex<'a> {
    text: &'a [u8],
    /// Position of every [`STRIDE`]th byte.
    marks: Vec<Position>,
}

impl<'a> PositionIndex<'a> {
    /// Reads the text once.
    #[must_use]
    pub fn of(text: &'a str) -> Self {
        let text = text.as_bytes();
        let mut at = Position::START;
        let marks = text.chunks(STRIDE).map(|chunk| {
            let next = at.behind(chunk);
            std::mem::replace(&mut at, next)
        });
        let mut marks: Vec<_> = marks.collect();
        marks.push(at);
        Self { text, marks }
    }

    /// The place of a byte: see [`Position::of`].
    #[must_use]
    pub fn at(&self, byte: usize) -> Position {
        let byte = byte.min(self.text.len());
        let mark = byte / STRIDE;
        self.marks[mark].behind(&self.text[mark * STRIDE..byte])
    }
}

/// Fault of a configuration, and its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    /// Name of the file; empty when there is none.
    pub origin: String,
    /// Place in the file, when known.
    pub place: Option<Position>,
    /// Fault, and the values that would have been understood.
    pub text: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.origin.is_empty() {
            write!(f, "{}:", self.origin)?;
            if let Some(Position { line, column }) = self.place {
                write!(f, "{line}:{column}:")?;
            }
            f.write_str(" ")?;
        }
        f.write_str(&self.text)
    }
}

/// The known word that was probably meant.
pub fn nearest<'a>(got: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = got.to_lowercase();
    known
        .into_iter()
        .map(|word| (strsim::damerau_levenshtein(&lower, &word.to_lowercase()), word))
        .min()
        .filter(|(distance, word)| *distance <= 1 + word.chars().count() / 3)
        .map(|(_, word)| word)
}

/// "did you mean …?", or the words to choose from when none is near.
#[must_use]
pub fn suggestion<'a>(got: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<_> = known.into_iter().collect();
    match nearest(got, known.iter().copied()) {
        Some(word) => format!("did you mean `{word}`?"),
        None if known.is_empty() => "nothing is expected here".to_owned(),
        None => {
            let known: Vec<_> = known.iter().map(|word| format!("`{word}`")).collect();
            format!("expected one of {}", known.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_grouped() {
        let notes = [(1, "a"), (2, "a"), (2, "b"), (3, "a"), (7, "a")];
        let notes = notes.map(|(id, text)| (id, text.to_owned()));
        assert_eq!(grouped(&notes), ["flows 1-3, 7: a", "flow 2: b"]);
    }

    #[test]
    fn tables_are_aligned() {
        let row = |cells: [&str; 4]| cells.map(str::to_owned);
        let rows = [row(["flow", "", "n", "word"]), row(["1", "", "1000", "ä"])];
        assert_eq!(align(&rows, |column| column != 2), "flow     n  word\n1     1000  ä\n");
    }

    #[test]
    fn places_count_lines_and_characters_from_one() {
        let text = "a\nbéd\n";
        for (byte, line, column) in [(0, 1, 1), (2, 2, 1), (5, 2, 3), (7, 3, 1), (99, 3, 1)] {
            assert_eq!(Position::of(text, byte), Position { line, column }, "byte {byte}");
            assert_eq!(PositionIndex::of(text).at(byte), Position { line, column }, "byte {byte}");
        }
    }

    #[test]
    fn an_index_finds_every_byte_of_texts_of_all_lengths() {
        for length in [0, 1, STRIDE - 1, STRIDE, STRIDE + 1, 3 * STRIDE, 3 * STRIDE + 7] {
            for pattern in ["é\nab", "no line ends here, é", "\n"] {
                let text: String = pattern.chars().cycle().take(length).collect();
                let index = PositionIndex::of(&text);
                for byte in 0..=text.len() + 1 {
                    assert_eq!(
                        index.at(byte),
                        Position::of(&text, byte),
                        "byte {byte} of {text:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn texts_from_outside_are_shown_and_do_nothing() {
        for (text, line, lines, cell) in [
            ("plain é", "plain é", "plain é", "plain é"),
            ("\x1b[2J", "\\u001b[2J", "\\u001b[2J", "\\u001b[2J"),
            ("\u{9b}2J", "\\u009b2J", "\\u009b2J", "\\u009b2J"),
            ("a\u{202e}b", "a\\u202eb", "a\\u202eb", "a\\u202eb"),
            ("a\nb\r", "a\\nb\\r", "a\nb\\r", "a\\nb\\r"),
            ("=1+1", "=1+1", "=1+1", "'=1+1"),
            (" @x", " @x", " @x", "' @x"),
            ("-5", "-5", "-5", "'-5"),
        ] {
            assert_eq!((visible(text), from_peer(text)), (line.into(), line.into()), "{text:?}");
            assert_eq!(visible_lines(text), lines, "{text:?}");
            assert_eq!(table_cell(text), cell, "{text:?}");
        }
    }

    #[test]
    fn what_a_peer_tells_is_no_longer_than_a_line_or_two() {
        for (text, want) in [
            ("é".repeat(200), "é".repeat(200)),
            ("é".repeat(201), "é".repeat(200) + "…"),
            ("\n".repeat(5000), "\\n".repeat(100) + "…"),
        ] {
            assert_eq!(from_peer(&text), want);
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
