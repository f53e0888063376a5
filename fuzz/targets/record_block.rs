//! Any bytes as the body of a sealed block: it is refused, or every record in it can be written
//! again into the same bytes.
#![no_main]

use itg_arena::{HEADER_LEN, seal_flat};
use itg_record::{BlockBuf, Item, LogReader, NOTE_SCHEMA, RECORD_LEN, RECORD_SCHEMA, note_block};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, body)) = bytes.split_first() else { return };
    let objects = (body.len() / RECORD_LEN) as u32 + u32::from(choice >> 1) % 3;
    let (schema, objects) =
        if choice & 1 == 0 { (RECORD_SCHEMA, objects) } else { (NOTE_SCHEMA, 1) };
    let mut block = vec![0; HEADER_LEN];
    block.extend_from_slice(body);
    block.resize(block.len().next_multiple_of(8), b' ');
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
            Item::Records { records, .. } => {
                let mut buf = BlockBuf::new(records.len().max(1));
                records.for_each(|record| buf.push(&record));
                assert_eq!(buf.seal(0, 0), block);
            }
        }
    }
});
