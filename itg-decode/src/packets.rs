//! Packets as lines: formatted side by side, written in order.
//!
//! Some ten million lines a second are wanted, and nearly all of the work is digits: they are written
//! eight at a time into a buffer of fixed size, without going through `fmt`, and those in front that a
//! column has in common with its last line are copied. Buffers go round: memory
//! that is given back and taken again comes in page by page, which costs more than the digits.

use std::borrow::Cow;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

use itg_core::text::{table_cell, visible, visible_lines};
use itg_stats::{Analysis, PacketLine};

use crate::format::Format;
use crate::work::Work;

const HEAD: &str = "flow,seq,size_bytes,planned_ns,sent_ns,arrived_ns,read_ns";

/// Prints one line a packet; in CSV with its run where there are several.
pub(crate) fn print(
    analysis: &Analysis<'_>,
    format: Format,
    work: &Work<'_>,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    let several = analysis.runs().len() > 1;
    match format {
        Format::Csv => writeln!(out, "{HEAD}{}", if several { ",run" } else { "" })?,
        Format::Text => writeln!(
            out,
            "{:>6} {:>12} {:>10} {:>16} {:>20} {:>20} {:>20}  run",
            "flow", "seq", "size [B]", "planned [ns]", "sent [ns]", "arrived [ns]", "read [ns]"
        )?,
        Format::Json => out.write_all(b"[")?,
        Format::Octave => out.write_all(OCTAVE_HEAD.as_bytes())?,
        _ => {}
    }
    let used: Mutex<Vec<Vec<u8>>> = Mutex::default();
    let pool = || used.lock().unwrap_or_else(PoisonError::into_inner);
    let make = |lines: &[PacketLine<'_>]| {
        let mut text = pool().pop().unwrap_or_default();
        text.reserve(lines.len() * 128);
        let mut csv = Csv::new(several);
        for line in lines {
            match format {
                Format::Csv => csv.write(line, &mut text),
                Format::Text => columns(line, &mut text),
                Format::Octave => octave(line, &mut text),
                _ => json(line, format == Format::Json, &mut text),
            }
        }
        text
    };
    let mut first = true;
    analysis.packets_in_order(work, &make, |mut text: Vec<u8>| {
        // Objects of an array stand behind commas; the first one does not.
        let skip = usize::from(format == Format::Json && first && !text.is_empty());
        first &= text.is_empty();
        let done = out.write_all(&text[skip..]);
        text.clear();
        pool().push(text);
        done
    })?;
    match format {
        Format::Json => out.write_all(b"]\n")?,
        Format::Octave => out.write_all(b"];\n")?,
        _ => {}
    }
    Ok(())
}

const OCTAVE_HEAD: &str = "% One row a packet; NaN where no log knows. Times but planned_ns are Unix time.\n\
    % Doubles hold 53 bits: Unix nanoseconds are rounded to 256 ns.\n\
    packet_columns = {'flow', 'seq', 'size_bytes', 'planned_ns', 'sent_ns', 'arrived_ns', 'read_ns'};\n\
    packets = [\n";

fn times(line: &PacketLine<'_>) -> [Option<u64>; 4] {
    [line.planned_ns, line.sent_ns, line.arrived_ns, line.read_ns]
}

/// The end of a line, with the run as the last field where there are several: the same for all packets of a flow, and
/// quoted where a run id out of a strange log needs it.
struct RunEnd {
    named: bool,
    run: String,
    text: Vec<u8>,
}

impl RunEnd {
    fn new(named: bool) -> Self {
        let text = if named { Vec::new() } else { b"\n".to_vec() };
        Self { named, run: String::new(), text }
    }

    fn of(&mut self, run: &str) -> &[u8] {
        if self.named && (self.run != run || self.text.is_empty()) {
            run.clone_into(&mut self.run);
            let cell = table_cell(run);
            let field = if cell.contains([',', '"']) {
                format!("\"{}\"", cell.replace('"', "\"\""))
            } else {
                cell.into_owned()
            };
            self.text = format!(",{field}\n").into_bytes();
        }
        &self.text
    }
}

/// Room for a line but its last field, six numbers of at most 20 digits, one of 10, and their commas; and for what is
/// written sixteen digits at a time.
const LINE: usize = END + 24;
/// More than such a line needs, and a power of two: places in front of it need no further look.
const END: usize = 256;

/// Lines as CSV, written from the left.
struct Csv {
    end: RunEnd,
    line: [u8; LINE],
    flow: Same,
    seq: Number,
    size: Same,
    times: [Number; 4],
}

/// Writes digits at a place of the line, and all the room behind them that they may take.
#[inline]
fn place<const N: usize>(line: &mut [u8; LINE], at: usize, digits: &[u8; N]) {
    line[at % END..at % END + N].copy_from_slice(digits);
}

/// The digits in front of the last eight of the number that a column had before. Numbers of a column share them for
/// many lines: those of times of this century stay for a tenth of a second.
#[derive(Clone, Copy)]
struct Number {
    value: u64,
    text: [u8; 16],
    len: usize,
}

impl Number {
    const ZERO: Self = Self { value: 0, text: [0; 16], len: 0 };

    /// Writes a number from `at` on; returns where it ends. Up to sixteen bytes behind that are overwritten.
    #[inline]
    fn put(&mut self, value: u64, line: &mut [u8; LINE], at: usize) -> usize {
        const EIGHT: u64 = 100_000_000;
        let (front, last) = (value / EIGHT, eight_digits(value % EIGHT));
        if front != self.value {
            self.change(front);
        }
        if front != 0 {
            place(line, at, &self.text);
            let at = at + self.len;
            place(line, at, &last.to_le_bytes());
            return at + 8;
        }
        // All but the zeros in front; of 0 itself one is left.
        let zeros = ((last ^ u64::from_le_bytes([b'0'; 8])).trailing_zeros() / 8).min(7);
        place(line, at, &(last >> (8 * zeros)).to_le_bytes());
        at + 8 - zeros as usize
    }

    #[cold]
    fn change(&mut self, front: u64) {
        let text = if front == 0 { String::new() } else { front.to_string() };
        self.text[..text.len()].copy_from_slice(text.as_bytes());
        (self.value, self.len) = (front, text.len());
    }
}

/// The number below 2³² that a column had before: in many lines of a flow it is the same.
struct Same {
    value: u32,
    text: [u8; 16],
    len: usize,
}

impl Same {
    const ZERO: Self = Self { value: 0, text: [b'0'; 16], len: 1 };

    /// As [`Number::put`].
    #[inline]
    fn put(&mut self, value: u32, line: &mut [u8; LINE], at: usize) -> usize {
        if value != self.value {
            let mut digits = [0; LINE];
            let mut number = Number::ZERO;
            let len = number.put(value.into(), &mut digits, 0);
            self.text.copy_from_slice(&digits[..16]);
            (self.value, self.len) = (value, len);
        }
        place(line, at, &self.text);
        at + self.len
    }
}

impl Csv {
    fn new(several: bool) -> Self {
        let (number, end) = (Number::ZERO, RunEnd::new(several));
        let (flow, size, line) = (Same::ZERO, Same::ZERO, [0; LINE]);
        Self { end, line, flow, seq: number, size, times: [number; 4] }
    }

    fn write(&mut self, line: &PacketLine<'_>, text: &mut Vec<u8>) {
        let buffer = &mut self.line;
        let mut at = self.flow.put(line.flow, buffer, 0);
        place(buffer, at, b",");
        at = self.seq.put(line.seq, buffer, at + 1);
        place(buffer, at, b",");
        at = self.size.put(line.size_bytes, buffer, at + 1);
        for (number, time) in self.times.iter_mut().zip(times(line)) {
            place(buffer, at, b",");
            at += 1;
            if let Some(time) = time {
                at = number.put(time, buffer, at);
            }
        }
        text.extend_from_slice(&buffer[..at]);
        text.extend_from_slice(self.end.of(line.run));
    }
}

/// The digits of a number below 10⁸, zeros in front, as the bytes of a word from the lowest on: halves, then
/// quarters, then single digits, each step for all parts at once.
const fn eight_digits(value: u64) -> u64 {
    // Quotients by multiplication: exact for numbers of so many digits.
    let halves = (value / 10_000) | ((value % 10_000) << 32);
    let hundreds = ((halves * 10_486) >> 20) & 0x7f_0000_007f;
    let quarters = hundreds | ((halves - hundreds * 100) << 16);
    let tens = ((quarters * 103) >> 10) & 0x000f_000f_000f_000f;
    (tens | ((quarters - tens * 10) << 8)) + u64::from_le_bytes([b'0'; 8])
}

fn columns(line: &PacketLine<'_>, text: &mut Vec<u8>) {
    let dash = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), |ns| ns.to_string());
    let PacketLine { flow, seq, size_bytes, run, .. } = line;
    let run = if run.is_empty() { Cow::Borrowed("-") } else { visible(run) };
    let [planned, sent, arrived, read] = times(line).map(dash);
    let row = format!(
        "{flow:>6} {seq:>12} {size_bytes:>10} {planned:>16} {sent:>20} {arrived:>20} {read:>20}  {run}\n"
    );
    text.extend_from_slice(row.as_bytes());
}

fn octave(line: &PacketLine<'_>, text: &mut Vec<u8>) {
    let nan = |ns: Option<u64>| ns.map_or_else(|| "NaN".to_owned(), |ns| ns.to_string());
    let PacketLine { flow, seq, size_bytes, .. } = line;
    let [planned, sent, arrived, read] = times(line).map(nan);
    let row = format!("{flow} {seq} {size_bytes} {planned} {sent} {arrived} {read}\n");
    text.extend_from_slice(row.as_bytes());
}

fn json(line: &PacketLine<'_>, of_an_array: bool, text: &mut Vec<u8>) {
    if of_an_array {
        text.push(b',');
    }
    // Numbers and a run id: there is nothing that JSON cannot say.
    let start = text.len();
    if serde_json::to_writer(&mut *text, line).is_err() {
        return;
    }
    if matches!(visible(line.run), Cow::Owned(_)) {
        let json = String::from_utf8_lossy(&text[start..]).into_owned();
        text.truncate(start);
        text.extend_from_slice(visible_lines(&json).as_bytes());
    }
    if !of_an_array {
        text.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_of_the_formatter() {
        let mut values = vec![0, 9, 10, 99, 100, u64::MAX];
        values.extend((0..20).flat_map(|k| [10u64.pow(k) - 1, 10u64.pow(k)]));
        values.extend((1..64).map(|shift| 0x9e37_79b9_7f4a_7c15 >> shift));
        let (mut number, mut same, mut line) = (Number::ZERO, Same::ZERO, [b'x'; LINE]);
        for value in values.iter().flat_map(|&value| [value, 5, value, value / 3, value]) {
            // With the digits of another number in front, and with none.
            let (mut new, mut other) = (Number::ZERO, Same::ZERO);
            for number in [&mut number, &mut new] {
                let end = number.put(value, &mut line, 7);
                assert_eq!(std::str::from_utf8(&line[7..end]).expect("digits"), value.to_string());
            }
            if let Ok(value) = u32::try_from(value) {
                for number in [&mut same, &mut other] {
                    let end = number.put(value, &mut line, 7);
                    assert_eq!(std::str::from_utf8(&line[7..end]), Ok(value.to_string().as_str()));
                }
            }
        }
    }

    #[test]
    fn quotients_by_multiplication_are_exact() {
        for value in 0..10_000 {
            for eight in [value, value * 10_000, value * 10_001, 99_990_000 + value] {
                let text = eight_digits(eight).to_le_bytes();
                assert_eq!(std::str::from_utf8(&text), Ok(format!("{eight:08}").as_str()));
            }
        }
    }

    #[test]
    fn a_line_of_the_largest_numbers_fits() {
        let most = Some(u64::MAX);
        let line = PacketLine {
            flow: u32::MAX,
            seq: u64::MAX,
            size_bytes: u32::MAX,
            planned_ns: most,
            sent_ns: None,
            arrived_ns: most,
            read_ns: most,
            delay_ns: Some(i64::MIN),
            run: "c0ffee",
        };
        let mut text = Vec::new();
        Csv::new(false).write(&line, &mut text);
        let mut csv = Csv::new(true);
        csv.write(&line, &mut text);
        csv.write(&PacketLine { flow: 0, read_ns: None, run: "", ..line }, &mut text);
        let odd = PacketLine { flow: 1, read_ns: None, run: "=a,\"b\u{1b}", ..line };
        csv.write(&odd, &mut text);
        let (a, b) = (u32::MAX, u64::MAX);
        let want = format!(
            "{a},{b},{a},{b},,{b},{b}\n{a},{b},{a},{b},,{b},{b},c0ffee\n0,{b},{a},{b},,{b},,\n1,{b},{a},{b},,{b},,\"'=a,\"\"b\\u001b\"\n"
        );
        assert_eq!(String::from_utf8(text).expect("digits"), want);
    }
}
