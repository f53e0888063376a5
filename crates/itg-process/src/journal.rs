//! Journals: what a process remembers through a crash, as records that its layers write.
//!
//! A layer asks for a write by [`crate::Ctx::persist`]. The driver hands all writes of a step to
//! [`crate::Transport::persist`] before anything else that the process asked for: nothing leaves, and no
//! event is told, before what it depends on is durable. When the process is started again its layers find
//! their records in [`crate::Build::journals`].
//!
//! Each layer has a file of its own: [`MAGIC`], then its records one behind the other.
//!
//! | bytes | field |
//! |---|---|
//! | 0–3 | length of the record, u32 |
//! | 4–7 | CRC-32C of length and record, u32 |
//! | 8– | the record |
//!
//! Little-endian. What is behind the last record whose checksum fits was torn by a crash: nothing that
//! depends on it has left. It is cut off before the next record is written.

use std::collections::BTreeMap;

use bytes::{Buf as _, BufMut, Bytes, BytesMut};

/// First bytes of a journal.
pub const MAGIC: &[u8; 8] = b"ITGJRNL1";
/// Bytes before a record: its length and its checksum.
const HEAD: usize = 8;
/// Longest record: 64 MiB.
pub const MOST_RECORD: usize = 64 << 20;

/// Write to the journal of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalWrite {
    /// One more record.
    Append(Bytes),
    /// These records take the place of all that are there, at once.
    Replace(Vec<Bytes>),
}

/// Write to a journal, and the layer whose journal it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerWrite {
    /// Name of the layer.
    pub layer: String,
    /// The write.
    pub write: JournalWrite,
}

/// Outcome of writes to journals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// They would survive a crash.
    Durable,
    /// Not yet: the world carries out the rest later, when they would.
    Later,
}

/// Records of the journals of one process, by the names of its layers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Journals {
    layers: BTreeMap<String, Vec<Bytes>>,
}

impl Journals {
    /// Records of a layer, the oldest first.
    #[must_use]
    pub fn of(&self, layer: &str) -> &[Bytes] {
        self.layers.get(layer).map_or(&[], Vec::as_slice)
    }

    /// Sets the records of a layer.
    pub fn set(&mut self, layer: &str, records: Vec<Bytes>) {
        self.layers.insert(layer.to_owned(), records);
    }
}

/// Contents of a journal as far as it is whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalContents {
    /// Records whose checksums fit.
    pub records: Vec<Bytes>,
    /// Bytes up to the end of the last one; 0 if the journal does not begin as one.
    pub whole: usize,
}

/// Reads a journal up to the first record that is not whole.
#[must_use]
pub fn read(bytes: &Bytes) -> JournalContents {
    contents(bytes, true)
}

/// The same without a look at checksums: a planted fault of simulated storage.
#[must_use]
pub fn read_unchecked(bytes: &Bytes) -> JournalContents {
    contents(bytes, false)
}

fn contents(bytes: &Bytes, checked: bool) -> JournalContents {
    let mut found = JournalContents::default();
    if !bytes.starts_with(MAGIC) {
        return found;
    }
    let mut left = bytes.slice(MAGIC.len()..);
    found.whole = MAGIC.len();
    while left.len() >= HEAD {
        let (len, sum) = (left.get_u32_le(), left.get_u32_le());
        let wide = len as usize;
        if wide > MOST_RECORD || wide > left.len() {
            break;
        }
        let record = left.split_to(wide);
        if checked && checksum(len, &record) != sum {
            break;
        }
        found.records.push(record);
        found.whole += HEAD + wide;
    }
    found
}

/// Appends a record as it stands in a journal.
///
/// # Panics
/// Panics if it is longer than [`MOST_RECORD`].
pub fn put(record: &[u8], out: &mut impl BufMut) {
    assert!(record.len() <= MOST_RECORD, "a record of {} bytes", record.len());
    let len = u32::try_from(record.len()).unwrap_or(u32::MAX);
    out.put_u32_le(len);
    out.put_u32_le(checksum(len, record));
    out.put_slice(record);
}

/// A whole journal of these records.
#[must_use]
pub fn whole(records: &[Bytes]) -> Bytes {
    let mut out = BytesMut::with_capacity(whole_len(records));
    out.put_slice(MAGIC);
    records.iter().for_each(|record| put(record, &mut out));
    out.freeze()
}

/// Bytes of a whole journal of these records.
#[must_use]
pub fn whole_len(records: &[Bytes]) -> usize {
    MAGIC.len() + records.iter().map(|record| HEAD + record.len()).sum::<usize>()
}

fn checksum(len: u32, record: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&len.to_le_bytes()), record)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> (Vec<Bytes>, Bytes) {
        let records = vec![Bytes::from_static(b"one"), Bytes::new(), Bytes::from(vec![7; 700])];
        let bytes = whole(&records);
        (records, bytes)
    }

    #[test]
    fn what_was_written_is_read() {
        let (records, bytes) = sample();
        assert_eq!(read(&bytes), JournalContents { records, whole: bytes.len() });
        assert_eq!(read(&Bytes::new()), JournalContents::default());
        assert_eq!(read(&Bytes::from_static(b"ITGJRNL")), JournalContents::default());
    }

    #[test]
    fn a_journal_that_is_cut_anywhere_keeps_its_whole_records() {
        let (records, bytes) = sample();
        for cut in 0..bytes.len() {
            let found = read(&bytes.slice(..cut));
            assert!(found.whole <= cut && records.starts_with(&found.records), "cut at {cut}");
            assert_eq!(found.records.len() == 3, found.whole == bytes.len());
        }
    }

    #[test]
    fn a_wrong_bit_ends_the_journal_before_its_record() {
        let (records, bytes) = sample();
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let found = read(&Bytes::from(damaged));
            assert!(found.records.len() < 3 && records.starts_with(&found.records), "bit {bit}");
        }
    }

    #[test]
    fn a_tail_of_zeros_is_no_record() {
        let (records, bytes) = sample();
        let padded = [&bytes[..], &[0; 64]].concat();
        assert_eq!(read(&Bytes::from(padded)), JournalContents { records, whole: bytes.len() });
    }
}
