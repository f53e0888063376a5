//! An outline promises nothing that the reader would not say, and there is one of every sound log.
#![allow(missing_docs, clippy::cast_possible_truncation, reason = "tests")]

mod common;

use common::{Contents, lively_records, log_of, read, sample_blocks};
use itg_arena::seal_flat;
use itg_record::{
    BlockBuf, LogBuilder, MAX_RUN, Outline, Outlined, RECORD_SCHEMA, Record, SentPacket, compact,
};
use proptest::prelude::*;

fn compacted(log: &[u8]) -> Vec<u8> {
    compact(log).collect::<Vec<_>>().concat()
}

/// Returns what an outline leads to; `None` where there is none, or a block is not as it was written.
fn followed(bytes: &[u8]) -> Option<Contents> {
    let mut seen = 0;
    let outline = Outline::of(bytes, |part| seen += part.len())?;
    assert_eq!(seen, bytes.len(), "all of it has been gone through");
    let mut contents = Contents::default();
    for block in outline.blocks() {
        match block {
            Outlined::Note { log, note } => contents.notes.push((log, *note)),
            Outlined::Records { log, records, .. } => {
                let checked = records.check().ok()?;
                assert_eq!(checked.packed().len(), records.packed().len());
                assert_eq!(checked.raw(), records.packed().records().raw());
                contents.records.extend(checked.map(|record| (log, record)));
            }
        }
    }
    Some(contents)
}

/// Logs of every kind, one of them behind another one and two in a file by turns.
fn sound() -> Vec<(&'static str, Vec<u8>)> {
    let plain = sample_blocks(9, "a").concat();
    let mut builder = LogBuilder::new(4);
    let note = |builder: &mut LogBuilder| {
        let Some((_, note)) = read(&plain).notes.into_iter().next() else { panic!("a note") };
        builder.note(&note)
    };
    let mut runs = note(&mut builder);
    let mut block = BlockBuf::new(3);
    for (seq, packets) in [(0, 5), (5, MAX_RUN), (5 + MAX_RUN as u64, 1)] {
        block.push_run(
            &Record::sent(SentPacket { flow: 1, seq, size: 300, planned_ns: 7, sent_ns: 8 }),
            packets,
        );
    }
    runs.extend_from_slice(builder.seal(&mut block));
    runs.extend(builder.end(0));
    let by_turns: Vec<Vec<u8>> = sample_blocks(1, "a")
        .into_iter()
        .zip(sample_blocks(2, "b"))
        .flat_map(|(a, b)| [a, b])
        .collect();
    vec![
        ("compacted", compacted(&plain)),
        ("runs, compacted", compacted(&runs)),
        ("two, one behind the other", [plain.clone(), compacted(&runs)].concat()),
        ("two by turns", by_turns.concat()),
        ("runs", runs),
        ("plain", plain),
    ]
}

#[test]
fn sound_logs_have_an_outline_that_says_what_the_reader_says() {
    for (name, bytes) in sound() {
        assert_eq!(followed(&bytes), Some(read(&bytes)), "{name}");
    }
}

#[test]
fn what_is_odd_as_a_whole_has_no_outline() {
    let blocks = sample_blocks(1, "a");
    let all = |blocks: &[Vec<u8>]| blocks.concat();
    let without = |place: usize| {
        let mut blocks = blocks.clone();
        blocks.remove(place);
        all(&blocks)
    };
    let mut twins = LogBuilder::new(1);
    let description = read(&all(&blocks)).notes.remove(0).1;
    let mut twin_log = twins.note(&description);
    let mut block = BlockBuf::new(1);
    block.push(&Record::sent(SentPacket { flow: 1, seq: 2, size: 3, planned_ns: 4, sent_ns: 5 }));
    twin_log.extend_from_slice(twins.seal(&mut block));
    twin_log.extend_from_slice(twins.seal(&mut block));
    twin_log.extend(twins.end(0));
    let mut swapped = blocks.clone();
    swapped.swap(2, 4);
    for (name, bytes) in [
        ("nothing", Vec::new()),
        ("no log", b"no log at all, but long enough to hold a header and some more bytes".to_vec()),
        ("no description", without(0)),
        ("a block is missing", without(2)),
        ("no end", without(blocks.len() - 1)),
        ("zeros behind it", [all(&blocks), vec![0; 4096]].concat()),
        ("once more", [all(&blocks), all(&blocks)].concat()),
        ("cut", all(&blocks)[..700].to_vec()),
        ("out of order", all(&swapped)),
        ("the same records twice", twin_log),
        ("records without a log", log_of(&lively_records(10, 1), 5)),
    ] {
        assert!(followed(&bytes).is_none(), "{name}");
        let odd = read(&bytes).damages.is_empty();
        assert!(!odd || name == "records without a log" || name == "once more", "{name}");
    }
}

#[test]
fn a_body_that_was_changed_is_found_when_it_is_checked() {
    for columns in [false, true] {
        let whole = sample_blocks(1, "a").concat();
        let whole = if columns { compacted(&whole) } else { whole };
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x40;
            let found = followed(&bytes);
            assert!(found.is_none() || found == Some(read(&bytes)), "byte {at}");
        }
    }
    // A kind that does not exist, under a checksum that is right.
    let mut blocks = sample_blocks(1, "a");
    let tag = u64::from_le_bytes(blocks[2][56..64].try_into().expect("eight bytes"));
    blocks[2][64 + 36] |= 0xf;
    seal_flat(&mut blocks[2], RECORD_SCHEMA, 4, tag);
    assert!(Outline::of(&blocks.concat(), |_| ()).is_some());
    assert_eq!(followed(&blocks.concat()), None);
}

proptest! {
    #[test]
    fn whatever_the_bytes_an_outline_agrees_with_the_reader(
        which in 0usize..6,
        patches in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in prop_oneof![3 => Just(None), 1 => any::<prop::sample::Index>().prop_map(Some)],
        doubled: bool,
    ) {
        let mut bytes = sound().swap_remove(which).1;
        for (at, byte) in patches {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if doubled {
            bytes = [bytes.clone(), bytes].concat();
        }
        if let Some(contents) = followed(&bytes) {
            prop_assert_eq!(contents, read(&bytes));
        }
    }
}
