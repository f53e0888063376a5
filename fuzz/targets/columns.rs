//! Column blocks from both sides. Any bytes as the body of one: it is refused, or its records survive
//! the way to a record block and back. Any bytes as records: they survive the way to a column block.
#![no_main]

use itg_arena::{HEADER_LEN, Header, seal_flat};
use itg_record::{
    COLUMNS_SCHEMA, Item, LogReader, RECORD_LEN, RECORD_SCHEMA, RUN_COLUMNS_SCHEMA, RUN_SCHEMA, Record,
    compact, expand,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&[choice, low, high], data)) = bytes.split_first_chunk() else { return };
    let (columns, plain) = if choice & 0x80 == 0 {
        (COLUMNS_SCHEMA, RECORD_SCHEMA)
    } else {
        (RUN_COLUMNS_SCHEMA, RUN_SCHEMA)
    };
    let schemas = (columns, plain);
    match choice % 4 {
        0 => records(plain, data),
        // Packed columns, of the length that the input says.
        1 => {
            let objects = u16::from(choice % 0x80 / 4) * 16;
            body(schemas, objects, u32::from_le_bytes([low, high, 0, 0]), data);
        }
        _ => body(schemas, u16::from_le_bytes([low, high % 8]), data.len() as u32, data),
    }
});

/// Bytes as the columns of a block.
fn body((schema, plain_schema): (u64, u64), objects: u16, columns: u32, data: &[u8]) {
    let mut block = vec![0; HEADER_LEN];
    for word in [0, columns, data.len() as u32] {
        block.extend_from_slice(&word.to_le_bytes());
    }
    block.extend_from_slice(data);
    block.resize(block.len().next_multiple_of(8), 0);
    seal_flat(&mut block, schema, objects.into(), 7);
    // The reader tells which checksum the records have: put right, it lets them through.
    if let Some(Item::Damage(damage)) = LogReader::new(&block).next()
        && let Some((_, crc)) = damage.reason.rsplit_once("they have 0x")
    {
        let crc = u32::from_str_radix(crc, 16).expect("hexadecimal");
        block[HEADER_LEN..HEADER_LEN + 4].copy_from_slice(&crc.to_le_bytes());
        seal_flat(&mut block, schema, objects.into(), 7);
    }
    if let Some(found) = read(&block) {
        let plain = whole(expand(&block));
        assert_eq!(Header::parse(&plain).expect("a block").schema, plain_schema);
        assert_eq!(read(&plain), Some(found));
        round_trip(&plain);
    }
}

/// Bytes as the records of a block, their kinds put right.
fn records(schema: u64, data: &[u8]) {
    let mut block = vec![0; HEADER_LEN];
    for record in data.chunks_exact(RECORD_LEN) {
        let start = block.len();
        block.extend_from_slice(record);
        let kind = &mut block[start + 36];
        *kind = *kind & 0xf0 | (*kind & 0x0f) % 3 + 1;
    }
    seal_flat(&mut block, schema, (data.len() / RECORD_LEN) as u32, 7);
    round_trip(&block);
}

fn round_trip(plain: &[u8]) {
    let small = whole(compact(plain));
    assert!(small.len() <= plain.len());
    assert_eq!(read(&small), read(plain));
    assert_eq!(whole(expand(&small)), plain);
}

fn whole<'a>(pieces: impl Iterator<Item = std::borrow::Cow<'a, [u8]>>) -> Vec<u8> {
    pieces.collect::<Vec<_>>().concat()
}

/// The records of a block; `None` when it is refused.
fn read(block: &[u8]) -> Option<Vec<Record>> {
    match LogReader::new(block).next() {
        Some(Item::Records { records, .. }) => {
            assert_eq!(records.packed().records().raw(), records.raw());
            Some(records.collect())
        }
        _ => None,
    }
}
