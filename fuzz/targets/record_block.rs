//! Any bytes as the body of a sealed block: it is refused, or every record in it can be written
//! again into the same bytes. Where records stand for several packets, each packet comes out once.
#![no_main]

use itg_arena::{HEADER_LEN, seal_flat};
use itg_record::{
    BlockBuf, Item, LogReader, MAX_RUN, NOTE_SCHEMA, RECORD_LEN, RECORD_SCHEMA, RUN_SCHEMA, note_block,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, body)) = bytes.split_first() else { return };
    let objects = (body.len() / RECORD_LEN) as u32 + u32::from(choice >> 1) % 3;
    let (schema, objects) = match choice & 0x81 {
        0 => (RECORD_SCHEMA, objects),
        0x80 => (RUN_SCHEMA, objects),
        _ => (NOTE_SCHEMA, 1),
    };
    let mut block = vec![0; HEADER_LEN];
    block.extend_from_slice(body);
    block.resize(block.len().next_multiple_of(8), b' ');
    if schema == RECORD_SCHEMA {
        // Bits that version 1 does not use and that no writer sets.
        for record in block[HEADER_LEN..].chunks_exact_mut(RECORD_LEN) {
            record[36] &= 0x7f;
            record[37] &= 0xe0;
        }
    }
    seal_flat(&mut block, schema, objects, 0);
    for item in LogReader::new(&block) {
        match item {
            Item::Damage(_) => {}
            Item::Note { note, .. } => {
                let again = note_block(&note, 0, 0);
                match LogReader::new(&again).next() {
                    Some(Item::Note { note: back, .. }) => assert_eq!(back, note),
                    other => panic!("a note that was read is not read again: {other:?}"),
                }
            }
            Item::Records { records, .. } if schema == RUN_SCHEMA => {
                let rows = block[HEADER_LEN..].chunks_exact(RECORD_LEN).map(|row| {
                    let flags = u16::from_le_bytes([row[36], row[37]]);
                    usize::from(flags >> 7 & 63) + 1
                });
                let runs: Vec<_> = rows.collect();
                assert_eq!(records.len(), runs.iter().sum::<usize>());
                let mut buf = BlockBuf::new(runs.len().max(1));
                let mut rest = records;
                for packets in runs {
                    assert!(packets <= MAX_RUN);
                    let first = rest.next().expect("a packet");
                    for k in 1..packets as u64 {
                        let next = rest.next().expect("a packet");
                        assert_eq!(next.seq, first.seq.wrapping_add(k));
                    }
                    buf.push_run(&first, packets);
                }
                assert_eq!(buf.records(), &block[HEADER_LEN..]);
            }
            Item::Records { records, .. } => {
                let mut buf = BlockBuf::new(records.len().max(1));
                records.for_each(|record| buf.push(&record));
                assert_eq!(buf.seal(0, 0), block);
            }
        }
    }
});
