//! Any bytes as a log file: no panic, and every byte is in exactly one good block or damage. The
//! bytes are read as they are, and again with the checksums of all would-be blocks put right, so that
//! the search gets behind them.
#![no_main]

use itg_arena::{FLAG_CRC, HEADER_LEN, Header, MAGIC};
use itg_record::{Item, LogReader, RECORD_LEN};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    account(bytes);
    let mut repaired = bytes.to_vec();
    repair(&mut repaired);
    account(&repaired);
});

/// Reads everything and looks for bytes that are in no item or in two.
fn account(bytes: &[u8]) {
    let mut spans = Vec::new();
    for item in LogReader::new(bytes) {
        let (offset, len) = match item {
            Item::Damage(damage) => (damage.offset, damage.len),
            Item::Note { offset, .. } => (offset, block_len(bytes, offset)),
            Item::Records { offset, records, .. } => {
                assert_eq!(records.raw().len(), records.len() * RECORD_LEN);
                let header = Header::parse(&bytes[offset as usize..]).expect("a good block");
                assert_eq!(records.len(), header.objects as usize);
                assert_eq!(records.count(), header.objects as usize);
                (offset, header.total_len)
            }
        };
        spans.push((offset, len));
    }
    spans.retain(|span| span.1 > 0);
    spans.sort_unstable();
    let end = spans.iter().fold(0, |end, span| {
        assert_eq!(span.0, end, "bytes in no item, or in two");
        end + span.1
    });
    assert_eq!(end, bytes.len() as u64);
}

fn block_len(bytes: &[u8], offset: u64) -> u64 {
    Header::parse(&bytes[offset as usize..]).expect("a good block").total_len
}

/// Puts the checksum of whatever looks like a block right, from the last to the first.
fn repair(bytes: &mut [u8]) {
    let starts: Vec<usize> =
        bytes.windows(4).enumerate().filter(|w| w.1 == MAGIC).map(|w| w.0).collect();
    for start in starts.into_iter().rev() {
        let Ok(mut header) = Header::parse(&bytes[start..]) else { continue };
        let end = start.saturating_add(usize::try_from(header.total_len).unwrap_or(usize::MAX));
        let Some(body) = bytes.get(start + HEADER_LEN..end) else { continue };
        header.crc = checksum(body);
        header.flags |= FLAG_CRC;
        bytes[start..start + HEADER_LEN].copy_from_slice(&header.emit());
    }
}

fn checksum(body: &[u8]) -> u32 {
    let mut sealed = vec![0; HEADER_LEN];
    sealed.extend_from_slice(body);
    itg_arena::seal_flat(&mut sealed, 0, 0, 0);
    Header::parse(&sealed).expect("sealed").crc
}
