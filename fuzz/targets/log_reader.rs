//! Any bytes as a log file: no panic, and every byte is in exactly one good block or damage. The
//! bytes are read as they are, and again with the checksums of all would-be blocks put right, so that
//! the search gets behind them.
#![no_main]

use std::cell::RefCell;

use itg_arena::{FLAG_CRC, HEADER_LEN, Header, MAGIC};
use itg_record::{Item, LogReader, RECORD_LEN};
use libfuzzer_sys::fuzz_target;

thread_local! {
    /// The repaired bytes, kept from run to run.
    static REPAIRED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

fuzz_target!(|bytes: &[u8]| {
    account(bytes);
    REPAIRED.with_borrow_mut(|repaired| {
        repaired.clear();
        repaired.extend_from_slice(bytes);
        if repair(repaired) {
            account(repaired);
        }
    });
});

/// Reads everything and looks for bytes that are in no item or in two.
fn account(bytes: &[u8]) {
    let mut end = 0;
    for item in LogReader::new(bytes) {
        let (offset, len) = match item {
            Item::Damage(damage) => (damage.offset, damage.len),
            Item::Note { offset, .. } => (offset, header_at(bytes, offset).total_len),
            Item::Records { offset, records, .. } => {
                let (header, packed) = (header_at(bytes, offset), records.packed());
                assert_eq!(records.raw().len(), packed.len() * RECORD_LEN);
                assert_eq!(packed.len(), header.objects as usize);
                assert!(records.len() == packed.len() || packed.has_runs());
                let packets = records.len();
                assert_eq!(records.count(), packets);
                (offset, header.total_len)
            }
        };
        // Items with bytes come in the order of the file; the others are about whole logs.
        if len > 0 {
            assert_eq!(offset, end, "bytes in no item, or in two");
            end += len;
        }
    }
    assert_eq!(end, bytes.len() as u64);
}

fn header_at(bytes: &[u8], offset: u64) -> Header {
    Header::parse(&bytes[offset as usize..]).expect("a good block")
}

/// Puts the checksum of whatever looks like a block right, from the last to the first; whether any was
/// wrong.
fn repair(bytes: &mut [u8]) -> bool {
    let mut changed = false;
    for start in (0..bytes.len().saturating_sub(HEADER_LEN)).rev() {
        if bytes[start..start + 4] != MAGIC {
            continue;
        }
        let Ok(mut header) = Header::parse(&bytes[start..]) else { continue };
        let end = start.saturating_add(usize::try_from(header.total_len).unwrap_or(usize::MAX));
        let Some(body) = bytes.get(start + HEADER_LEN..end) else { continue };
        let crc = crc32c::crc32c(body);
        if header.crc != crc || header.flags & FLAG_CRC == 0 {
            changed = true;
            header.crc = crc;
            header.flags |= FLAG_CRC;
            bytes[start..start + HEADER_LEN].copy_from_slice(&header.emit());
        }
    }
    changed
}
