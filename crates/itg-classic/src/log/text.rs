//! The text log of `ITGDec -l`, one line a record, and its way back (`-t`).

use super::{Address, LogRecord, Stamp};
use crate::number::fixed;

/// Width of an address in a line.
const WIDTH: usize = 46;
/// Bytes of an address that ITGDec reads back: the first of the 46 is lost.
const READ_BACK: usize = 45;

impl LogRecord {
    /// Appends the line of this record, with its newline. Ports are printed modulo 65536.
    pub fn write_text(&self, out: &mut Vec<u8>) {
        let Self { flow, seq, size, tx, rx, .. } = self;
        let padded = |out: &mut Vec<u8>, address: &Address, port: u32| {
            let text = address.shown();
            out.extend(std::iter::repeat_n(b' ', WIDTH - text.len()));
            out.extend(text);
            out.extend_from_slice(format!("/{}", port % 65536).as_bytes());
        };
        let time =
            |stamp: &Stamp| format!("{}:{}:{}", stamp.hour, stamp.minute, fixed(stamp.second, 0));
        out.extend_from_slice(format!("Flow>{flow:04} Seq>{seq:>7} Src>").as_bytes());
        padded(out, &self.src, self.src_port);
        out.extend_from_slice(b" Dest>");
        padded(out, &self.dst, self.dst_port);
        let (tx, rx) = (time(tx), time(rx));
        out.extend_from_slice(format!(" txTime>{tx} rxTime>{rx} Size>{size:>5}\n").as_bytes());
    }

    /// Appends the line of `ITGDec -o`: sequence number, times and size.
    pub fn write_octave(&self, out: &mut Vec<u8>) {
        let Self { seq, size, tx, rx, .. } = self;
        let time =
            |stamp: &Stamp| format!("{} {} {}", stamp.hour, stamp.minute, fixed(stamp.second, 0));
        out.extend_from_slice(format!("{seq:>7} {} {} {size}\n", time(tx), time(rx)).as_bytes());
    }
}

/// A line that is no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the text log: no {field} where one belongs")]
pub struct TextError {
    /// Number of the line, from 1.
    pub line: usize,
    /// Word or number that was expected.
    pub field: &'static str,
}

/// The records of a text log, as ITGDec reads them back: addresses keep their leading blanks.
#[derive(Clone, Debug)]
pub struct TextLog<'a> {
    rest: &'a [u8],
    line: usize,
    over: bool,
}

impl<'a> TextLog<'a> {
    /// Reads `text` from its start.
    #[must_use]
    pub const fn new(text: &'a [u8]) -> Self {
        Self { rest: text, line: 0, over: false }
    }
}

impl Iterator for TextLog<'_> {
    type Item = Result<LogRecord, TextError>;

    /// The next record. After an error, or a flow number of 0, nothing follows.
    fn next(&mut self) -> Option<Self::Item> {
        if self.over || self.rest.trim_ascii().is_empty() {
            return None;
        }
        let end = self.rest.iter().position(|&b| b == b'\n').unwrap_or(self.rest.len());
        let line = &self.rest[..end];
        self.rest = self.rest.get(end + 1..).unwrap_or_default();
        self.line += 1;
        match parse_line(line) {
            Ok(record) if record.flow == 0 => {
                self.over = true;
                None
            }
            Ok(record) => Some(Ok(record)),
            Err(field) => {
                self.over = true;
                Some(Err(TextError { line: self.line, field }))
            }
        }
    }
}

/// Rest of a line.
struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    fn word(&mut self, word: &'static str) -> Result<(), &'static str> {
        self.0 = self.0.trim_ascii_start().strip_prefix(word.as_bytes()).ok_or(word)?;
        Ok(())
    }

    fn digits(&mut self, field: &'static str, more: &[u8]) -> Result<&str, &'static str> {
        self.0 = self.0.trim_ascii_start();
        let end = self.0.iter().position(|b| !b.is_ascii_digit() && !more.contains(b));
        let (number, rest) = self.0.split_at(end.unwrap_or(self.0.len()));
        self.0 = rest;
        std::str::from_utf8(number).map_err(|_| field)
    }

    fn int(&mut self, field: &'static str) -> Result<u32, &'static str> {
        self.digits(field, b"")?.parse().map_err(|_| field)
    }

    fn stamp(&mut self, field: &'static str) -> Result<Stamp, &'static str> {
        let hour = self.int(field)?;
        self.word(":")?;
        let minute = self.int(field)?;
        self.word(":")?;
        let second = self.digits(field, b".+-einfa")?.parse().map_err(|_| field)?;
        Ok(Stamp { hour, minute, second })
    }

    fn address(&mut self, field: &'static str) -> Result<(Address, u32), &'static str> {
        let (text, rest) = self.0.split_at_checked(WIDTH).ok_or(field)?;
        self.0 = rest;
        let address = Address::new(&text[WIDTH - READ_BACK..]);
        self.word("/")?;
        Ok((address, self.int(field)?))
    }
}

/// Reads one line, or says what is missing.
fn parse_line(line: &[u8]) -> Result<LogRecord, &'static str> {
    let mut cursor = Cursor(line);
    cursor.word("Flow>")?;
    let flow = cursor.int("flow number")?;
    cursor.word("Seq>")?;
    let seq = cursor.int("sequence number")?;
    cursor.word("Src>")?;
    let (src, src_port) = cursor.address("source")?;
    cursor.word("Dest>")?;
    let (dst, dst_port) = cursor.address("destination")?;
    cursor.word("txTime>")?;
    let tx = cursor.stamp("time of sending")?;
    cursor.word("rxTime>")?;
    let rx = cursor.stamp("time of arrival")?;
    cursor.word("Size>")?;
    let size = cursor.int("size")?;
    Ok(LogRecord { flow, seq, src_port, dst_port, tx, rx, size, src, dst })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "Flow>0001 Seq>      1 Src>                                     127.0.0.1/34782 \
        Dest>                                     127.0.0.1/8999 txTime>7:40:48.378428 \
        rxTime>7:40:48.378516 Size>  100\n";

    #[test]
    fn a_line_comes_back() {
        let record = TextLog::new(LINE.as_bytes()).next().expect("a line").expect("a record");
        let mut out = Vec::new();
        record.write_text(&mut out);
        assert_eq!(String::from_utf8_lossy(&out), LINE);
        assert_eq!(record.src.as_bytes().len(), 45);
    }

    #[test]
    fn what_is_no_line_is_named() {
        let cut = |len: usize| TextLog::new(&LINE.as_bytes()[..len]).next();
        for (len, field) in [(3, "Flow>"), (9, "Seq>"), (40, "source"), (155, "rxTime>")] {
            assert_eq!(cut(len), Some(Err(TextError { line: 1, field })), "cut at {len}");
        }
        let two = format!("{LINE}rubbish\n{LINE}");
        let mut log = TextLog::new(two.as_bytes());
        assert!(log.next().is_some_and(|line| line.is_ok()));
        assert_eq!(log.next(), Some(Err(TextError { line: 2, field: "Flow>" })));
        assert_eq!(log.next(), None);
        let zero = LINE.replace("0001", "0000");
        assert_eq!(TextLog::new(zero.as_bytes()).next(), None);
    }
}
