//! The products that go record by record: text and Octave logs, sizes, inter-departure times, every
//! delay, combined and split logs.

use std::collections::BTreeMap;
use std::io::{BufWriter, Write};

use super::args::{Flows, Options, counted};
use super::figures::FlowKey;
use super::output::{DecError, Outputs};
use crate::log::{LogRecord, Stamp, records};
use crate::number::fixed;

pub(super) type File = BufWriter<Box<dyn Write>>;

pub(super) fn create(name: &str, out: &mut dyn Outputs) -> Result<File, DecError> {
    match out.create(name) {
        Ok(file) => Ok(BufWriter::new(file)),
        Err(source) => Err(DecError::Create { name: name.to_owned(), source }),
    }
}

/// Writes what has one line a record: `-l -o -P -I -x`.
pub(super) fn each_record(
    options: &Options,
    records: impl Iterator<Item = LogRecord>,
    out: &mut dyn Outputs,
) -> Result<(), DecError> {
    let Options { text_log, octave, sizes, gaps, each, .. } = options;
    if text_log.is_none() && octave.is_none() && !sizes && !gaps && each.is_none() {
        return Ok(());
    }
    let open = |name: &Option<String>, out: &mut dyn Outputs| {
        name.as_ref().map(|name| create(name, out)).transpose()
    };
    let mut text_log = open(text_log, out)?;
    let mut octave = open(octave, out)?;
    let [delays, jitters] = match each {
        Some([delays, jitters]) => [Some(delays.clone()), Some(jitters.clone())],
        None => [None, None],
    };
    let (mut delays, mut jitters) = (open(&delays, out)?, open(&jitters, out)?);
    let (mut line, mut last_rx, mut last_delay) = (Vec::new(), None, None);
    for record in records {
        let mut emit = |file: &mut File, write: fn(&LogRecord, &mut Vec<u8>)| {
            line.clear();
            write(&record, &mut line);
            file.write_all(&line)
        };
        if let Some(file) = &mut text_log {
            emit(file, LogRecord::write_text)?;
        }
        if let Some(file) = &mut octave {
            emit(file, LogRecord::write_octave)?;
        }
        if *sizes {
            writeln!(out.stdout(), "{}", record.size)?;
        }
        // The difference is printed for error lines too, but never taken from one.
        if let (true, Some(last)) = (*gaps, last_rx) {
            let gap: f64 = record.rx.seconds() - last;
            writeln!(out.stdout(), "{}", fixed(gap, 0))?;
        }
        let Some(record) = counted(record, options.flows) else { continue };
        last_rx = Some(record.rx.seconds());
        let delay = record.delay();
        if let Some(file) = &mut delays {
            writeln!(file, "{}", fixed(delay, 0))?;
        }
        if let (Some(file), Some(last)) = (&mut jitters, last_delay) {
            let jitter: f64 = delay - last;
            writeln!(file, "{}", fixed(jitter.abs(), 0))?;
        }
        last_delay = Some(delay);
    }
    for file in [text_log, octave, delays, jitters].iter_mut().flatten() {
        file.flush()?;
    }
    Ok(())
}

/// The receiver's records with the times of sending of the sender's log (`-r`).
pub(super) fn combine(
    receiver: impl Iterator<Item = LogRecord>,
    sender_log: &[u8],
) -> Result<Vec<LogRecord>, DecError> {
    let mut sent: BTreeMap<(u32, u32, FlowKey), Stamp> = BTreeMap::new();
    for record in records(sender_log) {
        // The first one counts.
        sent.entry((record.flow, record.seq, FlowKey::of(&record))).or_insert(record.tx);
    }
    receiver
        .map(|record| {
            let LogRecord { flow, seq, .. } = record;
            let key = (flow, seq, FlowKey::of(&record));
            let tx = *sent.get(&key).ok_or(DecError::NoSenderRecord { flow, seq })?;
            Ok(LogRecord { tx, ..record })
        })
        .collect()
}

pub(super) fn write_log(
    name: &str,
    records: &[LogRecord],
    out: &mut dyn Outputs,
) -> Result<(), DecError> {
    let mut file = create(name, out)?;
    for record in records {
        file.write_all(&record.emit())?;
    }
    Ok(file.flush()?)
}

/// Writes one binary log a flow (`-s`). Flows that differ in ports alone share a name: their records
/// go into one file, where ITGDec keeps those of the last flow.
pub(super) fn split(
    suffix: &str,
    records: impl Iterator<Item = LogRecord>,
    flows: Flows,
    out: &mut dyn Outputs,
) -> Result<(), DecError> {
    let mut parts: BTreeMap<String, Vec<LogRecord>> = BTreeMap::new();
    for record in records {
        let Some(record) = counted(record, flows) else { continue };
        let LogRecord { flow, src, dst, .. } = &record;
        let name = format!("{flow}-{}-{}.{suffix}.dat", src.safe(), dst.safe());
        parts.entry(name).or_default().push(record);
    }
    for (name, records) in parts {
        write_log(&name, &records, out)?;
    }
    Ok(())
}
