//! Packets as lines: formatted side by side, written in order.
//!
//! Some ten million lines a second are wanted, and nearly all of the work is digits: they are written
//! two at a time into a buffer of fixed size, without going through `fmt`.

use std::io::Write;

use itg_stats::{Analysis, PacketLine};

use crate::args::Format;
use crate::work::Work;

const HEAD: &str = "flow,seq,size_bytes,planned_ns,sent_ns,arrived_ns,read_ns\n";

/// Prints one line a packet; says how many.
pub(crate) fn print(
    analysis: &Analysis<'_>,
    format: Format,
    work: &Work<'_>,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    match format {
        Format::Csv => out.write_all(HEAD.as_bytes())?,
        Format::Text => writeln!(
            out,
            "{:>6} {:>12} {:>10} {:>16} {:>20} {:>20} {:>20}",
            "flow", "seq", "size [B]", "planned [ns]", "sent [ns]", "arrived [ns]", "read [ns]"
        )?,
        Format::Json => out.write_all(b"[")?,
        Format::Octave => out.write_all(OCTAVE_HEAD.as_bytes())?,
        _ => {}
    }
    let make = |lines: Vec<PacketLine>| {
        let mut text = Vec::with_capacity(lines.len() * 96);
        for line in &lines {
            match format {
                Format::Csv => csv(line, &mut text),
                Format::Text => columns(line, &mut text),
                Format::Octave => octave(line, &mut text),
                _ => json(line, format == Format::Json, &mut text),
            }
        }
        text
    };
    let mut first = true;
    analysis.packets_in_order(work, &make, |text: Vec<u8>| {
        // Objects of an array stand behind commas; the first one does not.
        let skip = usize::from(format == Format::Json && first && !text.is_empty());
        first &= text.is_empty();
        out.write_all(&text[skip..])
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

fn times(line: &PacketLine) -> [Option<u64>; 4] {
    [line.planned_ns, line.sent_ns, line.arrived_ns, line.read_ns]
}

fn csv(line: &PacketLine, text: &mut Vec<u8>) {
    // Six numbers of at most 20 digits, one of 10, and their signs.
    let mut buffer = [0; 160];
    let mut at = buffer.len();
    let mut put = |byte: u8, value: Option<u64>| {
        at -= 1;
        buffer[at] = byte;
        if let Some(value) = value {
            at = digits(value, &mut buffer, at);
        }
    };
    let [planned, sent, arrived, read] = times(line);
    put(b'\n', read);
    put(b',', arrived);
    put(b',', sent);
    put(b',', planned);
    put(b',', Some(u64::from(line.size_bytes)));
    put(b',', Some(line.seq));
    put(b',', Some(u64::from(line.flow)));
    text.extend_from_slice(&buffer[at..]);
}

/// Writes a number in front of `at`; returns where it starts.
fn digits(mut value: u64, buffer: &mut [u8; 160], mut at: usize) -> usize {
    const PAIRS: [u8; 200] = {
        let mut pairs = [0; 200];
        let mut k = 0;
        while k < 100 {
            pairs[2 * k as usize] = b'0' + k / 10;
            pairs[2 * k as usize + 1] = b'0' + k % 10;
            k += 1;
        }
        pairs
    };
    let mut pair = |value: u64| {
        // Below 100, so that it fits everything.
        let from = usize::try_from(value).unwrap_or(0) * 2;
        at -= 2;
        buffer[at..at + 2].copy_from_slice(&PAIRS[from..from + 2]);
    };
    while value >= 100 {
        pair(value % 100);
        value /= 100;
    }
    pair(value);
    at + usize::from(value < 10)
}

fn columns(line: &PacketLine, text: &mut Vec<u8>) {
    let dash = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), |ns| ns.to_string());
    let PacketLine { flow, seq, size_bytes, .. } = line;
    let [planned, sent, arrived, read] = times(line).map(dash);
    let row = format!(
        "{flow:>6} {seq:>12} {size_bytes:>10} {planned:>16} {sent:>20} {arrived:>20} {read:>20}\n"
    );
    text.extend_from_slice(row.as_bytes());
}

fn octave(line: &PacketLine, text: &mut Vec<u8>) {
    let nan = |ns: Option<u64>| ns.map_or_else(|| "NaN".to_owned(), |ns| ns.to_string());
    let PacketLine { flow, seq, size_bytes, .. } = line;
    let [planned, sent, arrived, read] = times(line).map(nan);
    let row = format!("{flow} {seq} {size_bytes} {planned} {sent} {arrived} {read}\n");
    text.extend_from_slice(row.as_bytes());
}

fn json(line: &PacketLine, of_an_array: bool, text: &mut Vec<u8>) {
    if of_an_array {
        text.push(b',');
    }
    // Numbers and nothing else: there is nothing that JSON cannot say.
    if serde_json::to_writer(&mut *text, line).is_ok() && !of_an_array {
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
        for value in values {
            let mut buffer = [0; 160];
            let at = digits(value, &mut buffer, 160);
            assert_eq!(std::str::from_utf8(&buffer[at..]).expect("digits"), value.to_string());
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
        };
        let mut text = Vec::new();
        csv(&line, &mut text);
        let (a, b) = (u32::MAX, u64::MAX);
        let want = format!("{a},{b},{a},{b},,{b},{b}\n");
        assert_eq!(String::from_utf8(text).expect("digits"), want);
    }
}
