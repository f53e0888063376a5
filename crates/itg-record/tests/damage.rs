//! Damaged logs: every good block, and an exact account of the rest.
#![allow(missing_docs, clippy::cast_possible_truncation, reason = "tests")]

mod common;

use common::{SAMPLE_RECORDS, read, sample_blocks, sample_records};
use itg_arena::{FLAG_CRC, FLAG_FLAT, Header, KIND_RELOC, seal_flat};
use itg_record::{Cause, Damage, Item, LogReader, NOTE_SCHEMA, RECORD_SCHEMA, compact};
use proptest::prelude::*;

/// Number of blocks of the sample log.
const BLOCKS: usize = 8;

fn offsets(blocks: &[Vec<u8>]) -> Vec<usize> {
    blocks
        .iter()
        .scan(0, |end, block| {
            *end += block.len();
            Some(*end - block.len())
        })
        .collect()
}

/// A damage as one line: `offset+len reason`, with `open` or `order` in front when it is none.
fn lines(bytes: &[u8]) -> Vec<String> {
    let damages = read(bytes).damages;
    let line = |d: &Damage| {
        let cause = match d.cause {
            Cause::Damaged => "",
            Cause::NotClosed => "open ",
            Cause::OutOfOrder => "order ",
        };
        format!("{cause}{}+{} {}", d.offset, d.len, d.reason)
    };
    damages.iter().map(line).collect()
}

/// The words about a log without an end.
fn not_closed(log: u32, block: u32) -> String {
    format!(
        "log {log} is not closed: it has no end note after block {block}; it is still being \
         written, or its writer was killed"
    )
}

/// The words about a block that stands behind a later one, and others behind `more`.
fn out_of_order(block: u32, before: u32, more: &str) -> String {
    format!(
        "block {block} of log 1 stands after block {before}{more}: out of order, as blocks may come by \
         UDP; their numbers tell their order"
    )
}

#[test]
fn an_undamaged_log_has_no_damage() {
    let contents = read(&sample_blocks(1, "a").concat());
    assert_eq!(contents.damages, []);
    assert_eq!((contents.notes.len(), contents.records.len()), (5, SAMPLE_RECORDS));
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn reasons_and_places_are_exact() {
    let blocks = sample_blocks(1, "a");
    let at = offsets(&blocks);
    let all = blocks.concat();
    let end = all.len();
    let pick = |numbers: &[usize]| -> Vec<u8> {
        numbers.iter().flat_map(|no| blocks[*no].iter().copied()).collect()
    };
    let patched = |offset: usize, patch: &[u8]| {
        let mut bytes = all.clone();
        bytes[offset..offset + patch.len()].copy_from_slice(patch);
        bytes
    };
    let rows: Vec<(&str, Vec<u8>, usize, Vec<String>)> = vec![
        ("empty", vec![], 0, vec!["0+0 the log is empty".into()]),
        (
            "text",
            b"2026-11-20 10:00:00 started".to_vec(),
            0,
            vec!["0+27 27 bytes are too few for a cluster: its header alone takes 64".into()],
        ),
        (
            "a missing block",
            pick(&[0, 1, 2, 3, 5, 6, 7]),
            7,
            vec![
                format!("{}+0 block 4 of log 1 missing", at[4]),
                format!("{}+0 log 1 holds 7 records, its end note counts 11", end - 224),
            ],
        ),
        (
            "missing blocks in two places",
            pick(&[2, 3, 5, 6, 7]),
            7,
            vec![
                "0+0 blocks 0 to 1 (2 blocks) of log 1 missing".into(),
                format!("{}+0 block 4 of log 1 missing", at[4] - at[2]),
                format!("{}+0 log 1 holds 7 records, its end note counts 11", end - 224 - at[2]),
            ],
        ),
        (
            "cut at a block",
            all[..at[5]].to_vec(),
            8,
            vec![format!("open {}+0 {}", at[5], not_closed(1, 4))],
        ),
        (
            "cut in a block",
            all[..at[5] + 100].to_vec(),
            8,
            vec![
                format!(
                    "open {}+100 unfinished block: block 5 of log 1 (so says its header): cluster \
                     of 184 bytes is cut off: only 100 bytes are there",
                    at[5]
                ),
                format!("open {}+0 {}", at[5], not_closed(1, 4)),
            ],
        ),
        (
            "cut in a header",
            all[..at[5] + 9].to_vec(),
            8,
            vec![
                format!(
                    "open {}+9 unfinished block: 9 bytes are too few for a cluster: its header \
                     alone takes 64",
                    at[5]
                ),
                format!("open {}+0 {}", at[5], not_closed(1, 4)),
            ],
        ),
        (
            "zeros where it goes on",
            [&all[..at[5]], &[0; 1000]].concat(),
            8,
            vec![
                format!("open {}+1000 zero bytes: space that was never written", at[5]),
                format!("open {}+0 {}", at[5], not_closed(1, 4)),
            ],
        ),
        (
            "cut, and something foreign behind it",
            [&all[..at[5] + 3], &[7; 100]].concat(),
            8,
            vec![
                format!(
                    "{}+103 no cluster starts here: expected the bytes `XPC1`, got [58, 50, 43, 07]",
                    at[5]
                ),
                format!("open {}+0 {}", at[5], not_closed(1, 4)),
            ],
        ),
        (
            "a tail of zeros",
            [all.as_slice(), &[0; 1000]].concat(),
            11,
            vec![format!("{end}+1000 zero bytes: space that was never written")],
        ),
        (
            "something foreign behind it",
            [all.as_slice(), &[7; 100]].concat(),
            11,
            vec![format!(
                "{end}+100 no cluster starts here: expected the bytes `XPC1`, got [07, 07, 07, 07]"
            )],
        ),
        (
            "three bytes in front of it",
            [b"\xef\xbb\xbf", all.as_slice()].concat(),
            11,
            vec![
                "0+3 no cluster starts here: expected the bytes `XPC1`, got [ef, bb, bf, 58]"
                    .into(),
            ],
        ),
        (
            "a changed record",
            patched(at[2] + 70, &[0xff]),
            7,
            vec![
                format!(
                    "{}+224 block 2 of log 1 (so says its header): cluster checksum: the header \
                     says 0x{:08x}, the body has 0x{:08x}",
                    at[2],
                    Header::parse(&blocks[2]).expect("good").crc,
                    crc(&patched(at[2] + 70, &[0xff])[at[2]..at[3]])
                ),
                format!("{}+0 block 2 of log 1 missing", at[3]),
                format!("{end}+0 log 1 holds 7 records, its end note counts 11"),
            ],
        ),
        (
            "another schema",
            patched(at[2] + 8, &[0; 8]),
            7,
            vec![
                format!(
                    "{}+224 block 2 of log 1 (so says its header): schema 0x0000000000000000 is \
                     no record, column or note block of this version",
                    at[2]
                ),
                format!("{}+0 block 2 of log 1 missing", at[3]),
                format!("{end}+0 log 1 holds 7 records, its end note counts 11"),
            ],
        ),
        (
            "a block twice",
            pick(&[0, 1, 2, 2, 3, 4, 5, 6, 7]),
            11,
            vec![format!("{}+224 block 2 of log 1 once more: left out", at[3])],
        ),
        (
            "a block twice, once under another number",
            {
                let mut copy = blocks[5].clone();
                copy[56] = 8;
                [&all[..at[6]], &copy, &all[at[6]..]].concat()
            },
            11,
            vec![
                format!(
                    "{}+184 block 8 of log 1 has the records of the block at byte {}: left out",
                    at[6], at[5]
                ),
                format!("order {}+0 {}", at[6] + 184, out_of_order(6, 8, "")),
                format!("{}+0 block 8 of log 1 lies beyond its 8 blocks", at[6]),
            ],
        ),
        (
            "two blocks exchanged",
            pick(&[0, 1, 4, 3, 2, 5, 6, 7]),
            11,
            vec![format!("order {}+0 {}", at[3], out_of_order(3, 4, ", and another one like it"))],
        ),
        (
            "in the order in which they came by UDP",
            pick(&[1, 0, 7, 2, 4, 3, 6, 5]),
            11,
            vec![format!(
                "order {}+0 {}",
                at[2] - at[1],
                out_of_order(0, 1, ", and 3 others like it")
            )],
        ),
        (
            "a block under another number that exists",
            patched(at[2] + 56, &[4]),
            11,
            vec![
                format!(
                    "{}+0 a second block 4 of log 1, other than the one at byte {}: one of the \
                     numbers is wrong, both blocks are used",
                    at[4], at[2]
                ),
                format!("order {}+0 {}", at[3], out_of_order(3, 4, "")),
                format!("{}+0 block 2 of log 1 missing", at[3]),
            ],
        ),
        (
            "a block under a number beyond the end",
            patched(at[2] + 59, &[0x80]),
            11,
            vec![
                format!("order {}+0 {}", at[3], out_of_order(3, 2_147_483_650, "")),
                format!("{}+0 block 2 of log 1 missing", at[3]),
                format!("{}+0 block 2147483650 of log 1 lies beyond its 8 blocks", at[2]),
            ],
        ),
        (
            "a block under another log's id",
            patched(at[2] + 60, &[9]),
            11,
            vec![
                format!("{}+0 block 2 of log 1 missing", at[3]),
                format!("{end}+0 log 1 holds 7 records, its end note counts 11"),
                format!("{}+0 blocks 0 to 1 (2 blocks) of log 9 missing", at[2]),
                format!("open {}+0 {}", at[3], not_closed(9, 2)),
            ],
        ),
    ];
    for (name, bytes, records, want) in rows {
        assert_eq!(lines(&bytes), want, "{name}");
        assert_eq!(read(&bytes).records.len(), records, "{name}");
    }
}

fn crc(block: &[u8]) -> u32 {
    let mut copy = block.to_vec();
    seal_flat(&mut copy, 0, 0, 0);
    Header::parse(&copy).expect("sealed").crc
}

#[test]
fn logs_put_together_are_told_apart() {
    let (a, b) = (sample_blocks(1, "a").concat(), sample_blocks(1, "b").concat());
    let other = sample_blocks(2, "a");
    let torn = &a[..a.len() - 51];
    let interleaved: Vec<u8> =
        sample_blocks(1, "a").iter().zip(&other).flat_map(|(x, y)| [&x[..], y].concat()).collect();
    let not_closed = not_closed(1, 6);
    /// Name, file, records of each log, pieces of the reasons.
    type Row<'a> = (&'a str, Vec<u8>, &'a [usize], Vec<&'a str>);
    let rows: [Row<'_>; 6] = [
        ("another id", [&a[..], &other.concat()].concat(), &[11, 11], vec![]),
        ("the same id", [&a[..], &b].concat(), &[11, 11], vec![]),
        ("block by block", interleaved, &[11, 11], vec![]),
        ("twice", [&a[..], &a].concat(), &[11], vec!["once more: left out"; BLOCKS]),
        (
            "the first torn, so that all is askew",
            [torn, &b].concat(),
            &[11, 11],
            vec!["is cut off: only", &not_closed],
        ),
        (
            "the second without its first block",
            [&a[..], &b[offsets(&sample_blocks(1, "b"))[1]..]].concat(),
            &[11],
            vec!["once more: left out"; BLOCKS - 1],
        ),
    ];
    for (name, bytes, records, reasons) in rows {
        let contents = read(&bytes);
        for (log, want) in records.iter().enumerate() {
            let got = contents.records.iter().filter(|(at, _)| *at == log as u32).count();
            assert_eq!(got, *want, "{name}: records of log {log}");
        }
        assert_eq!(contents.records.len(), records.iter().sum::<usize>(), "{name}");
        assert_eq!(contents.damages.len(), reasons.len(), "{name}: {:?}", contents.damages);
        for (damage, reason) in contents.damages.iter().zip(reasons) {
            let torn_header = reason == "is cut off: only" && damage.reason.contains("checksum");
            assert!(damage.reason.contains(reason) || torn_header, "{name}: {}", damage.reason);
        }
    }
}

#[test]
fn notes_of_the_future_are_damage_with_a_reason_and_nothing_else_is() {
    let mut blocks = sample_blocks(1, "a");
    let mut note = vec![0; 64];
    note.extend_from_slice(br#"{"note":"weather","sky":"blue"} "#);
    let tag = Header::parse(&blocks[3]).expect("good").tag;
    seal_flat(&mut note, NOTE_SCHEMA, 1, tag);
    blocks[3] = note;
    let got = lines(&blocks.concat());
    assert_eq!(got.len(), 1, "{got:?}");
    assert!(
        got[0].contains("+96 note block 3 of log 1 is not understood: unknown variant `weather`"),
        "{got:?}"
    );
}

#[test]
fn records_of_no_kind_are_damage() {
    let mut blocks = sample_blocks(1, "a");
    blocks[2][64 + 40 + 36] = 0x14;
    let tag = Header::parse(&blocks[2]).expect("good").tag;
    seal_flat(&mut blocks[2], RECORD_SCHEMA, 4, tag);
    let want = "(so says its header): record 1 of the block has kind 4: expected 1 (sent), 2 \
                (received) or 3 (echoed)";
    assert!(lines(&blocks.concat())[0].contains(want));
}

#[test]
fn counts_and_missing_checksums_are_found() {
    let rows = [
        (
            RECORD_SCHEMA,
            1,
            FLAG_FLAT | FLAG_CRC,
            "the block says 1 records of 40 bytes, its body has 16 bytes",
        ),
        (NOTE_SCHEMA, 2, FLAG_FLAT | FLAG_CRC, "the note block says 2 documents: expected 1"),
        (NOTE_SCHEMA, 1, FLAG_FLAT, "the block has no checksum: every block of a log has one"),
    ];
    for (schema, objects, flags, want) in rows {
        let mut block = [&[0; 64][..], br#"{"note":"none"} "#].concat();
        seal_flat(&mut block, schema, objects, 0);
        block[7] = flags;
        if flags & FLAG_CRC == 0 {
            block[52..56].fill(0);
        }
        assert_eq!(lines(&block), [format!("0+80 block 0 of log 0 (so says its header): {want}")]);
    }
}

#[test]
fn every_single_flipped_bit_is_found_and_costs_at_most_its_block() {
    flip_every_bit(&sample_blocks(1, "a"));
    let columns: Vec<_> = sample_blocks(1, "a")
        .iter()
        .map(|block| compact(block).collect::<Vec<_>>().concat())
        .collect();
    assert!(columns[2].len() < sample_blocks(1, "a")[2].len());
    flip_every_bit(&columns);
}

fn flip_every_bit(blocks: &[Vec<u8>]) {
    let at = offsets(blocks);
    let bytes = blocks.concat();
    let (records, whole) = (sample_records(), read(&bytes));
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let contents = read(&flipped);
        assert!(!contents.damages.is_empty(), "bit {bit} went unnoticed");
        let hit = at.iter().rposition(|offset| *offset <= bit / 8).expect("in some block");
        let lost = if [2, 4, 5].contains(&hit) { if hit == 5 { 3 } else { 4 } } else { 0 };
        assert!(contents.records.len() >= SAMPLE_RECORDS - lost, "bit {bit}: too much is lost");
        assert!(contents.records.iter().all(|(_, r)| records.contains(r)), "bit {bit}");
        assert!(contents.notes.len() >= whole.notes.len() - 1, "bit {bit}: too much is lost");
        assert!(
            contents.notes.iter().all(|(_, n)| whole.notes.iter().any(|(_, w)| n == w)),
            "bit {bit}"
        );
    }
}

#[test]
fn a_file_of_false_headers_ends_in_linear_time() {
    // 4 MiB of headers that each claim everything behind them: checking them all is 2^38 bytes.
    let len = 4 << 20;
    let bytes: Vec<u8> = (0..len / 64)
        .flat_map(|k| {
            Header {
                kind: KIND_RELOC,
                flags: FLAG_CRC | FLAG_FLAT,
                schema: NOTE_SCHEMA,
                total_len: len - 64 * k,
                origin: 0,
                rank: 0,
                base: 0,
                root: 0,
                objects: 1,
                crc: 1,
                tag: k,
            }
            .emit()
        })
        .collect();
    let got = lines(&bytes);
    assert_eq!(got.len(), 1);
    assert!(got[0].starts_with("0+4194304 block 0 of log 0"), "{got:?}");
    assert!(got[0].ends_with("was given up: too many false ones"), "{got:?}");
}

/// Change that may happen to a file.
#[derive(Clone, Debug)]
enum Mutation {
    Set(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    Insert(prop::sample::Index, Vec<u8>),
    Remove(prop::sample::Index, u8),
    Zero(prop::sample::Index, u8),
    Copy(prop::sample::Index, prop::sample::Index, u16),
}

impl Mutation {
    fn apply(&self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let reach = |at: usize, len: usize| at..bytes.len().min(at + len);
        match self {
            Self::Set(at, value) => *at.get_mut(bytes) = *value,
            Self::Cut(at) => bytes.truncate(at.index(bytes.len())),
            Self::Insert(at, new) => {
                let at = at.index(bytes.len());
                bytes.splice(at..at, new.iter().copied());
            }
            Self::Remove(at, len) => {
                bytes.drain(reach(at.index(bytes.len()), usize::from(*len)));
            }
            Self::Zero(at, len) => {
                let range = reach(at.index(bytes.len()), usize::from(*len));
                bytes[range].fill(0);
            }
            Self::Copy(from, to, len) => {
                let range = reach(from.index(bytes.len()), usize::from(*len));
                let (piece, at) = (bytes[range].to_vec(), to.index(bytes.len()));
                bytes.splice(at..at, piece);
            }
        }
    }
}

fn mutations() -> impl Strategy<Value = Vec<Mutation>> {
    let index = any::<prop::sample::Index>;
    prop::collection::vec(
        prop_oneof![
            (index(), any::<u8>()).prop_map(|(at, v)| Mutation::Set(at, v)),
            index().prop_map(Mutation::Cut),
            (index(), any::<Vec<u8>>()).prop_map(|(at, new)| Mutation::Insert(at, new)),
            (index(), any::<u8>()).prop_map(|(at, len)| Mutation::Remove(at, len)),
            (index(), any::<u8>()).prop_map(|(at, len)| Mutation::Zero(at, len)),
            (index(), index(), any::<u16>()).prop_map(|(f, t, len)| Mutation::Copy(f, t, len)),
        ],
        1..6,
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// `read` asserts that every byte is accounted for; what is handed out was written.
    #[test]
    fn no_mutation_invents_or_hides_anything(mutations in mutations()) {
        let mut bytes = sample_blocks(1, "a").concat();
        let before = bytes.clone();
        mutations.iter().for_each(|mutation| mutation.apply(&mut bytes));
        let (contents, written) = (read(&bytes), sample_records());
        prop_assert!(bytes == before || !contents.damages.is_empty());
        prop_assert!(contents.records.iter().all(|(_, record)| written.contains(record)));
        // A description behind an end opens another log; within one log nothing comes twice.
        for (i, found) in contents.records.iter().enumerate() {
            prop_assert!(!contents.records[..i].contains(found), "twice: {:?}", found);
        }
    }

    #[test]
    fn any_bytes_at_all_are_accounted_for(bytes: Vec<u8>) {
        read(&bytes);
    }

    /// The obvious rule beside the real one: a block is handed out where it stands first.
    #[test]
    fn blocks_in_any_order_and_number_are_handed_out_once(
        order in prop::collection::vec(0..BLOCKS, 1..20),
    ) {
        let blocks = sample_blocks(1, "a");
        let bytes: Vec<u8> = order.iter().flat_map(|no| blocks[*no].iter().copied()).collect();
        let mut want = Vec::new();
        order.iter().for_each(|no| if !want.contains(no) { want.push(*no) });
        let starts: Vec<usize> = LogReader::new(&bytes)
            .filter_map(|item| match item {
                Item::Note { offset, .. } | Item::Records { offset, .. } => Some(offset as usize),
                Item::Damage(_) => None,
            })
            .collect();
        // A description behind the end opens another log, in which the same blocks count anew.
        let end = order.iter().position(|no| *no == BLOCKS - 1);
        let first = order.iter().position(|no| *no == 0);
        if !matches!((end, first), (Some(end), Some(first)) if end < first) {
            let got: Vec<usize> = starts
                .iter()
                .map(|start| Header::parse(&bytes[*start..]).expect("good").tag as u32 as usize)
                .collect();
            prop_assert_eq!(got, want);
        }
        let damaged: u64 = read(&bytes).damages.iter().map(|damage| damage.len).sum();
        prop_assert_eq!(damaged as usize == 0, starts.len() == order.len());
    }
}
