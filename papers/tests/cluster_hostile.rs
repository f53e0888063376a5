//! bytes that want to do harm.
#![allow(missing_docs, clippy::cast_possible_truncation, reason = "a test, with small numbers")]

mod common;

use common::*;
use itg_papers::clusters::{Cluster, HEADER_LEN, Iso, Kind, Memory, Reloc};
use proptest::prelude::*;

fn sealed<K: Kind, M: Memory>(mut c: Cluster<Graph, K, M>, checksum: bool) -> Vec<u8> {
    build_graph(&mut c).expect("room for it");
    c.set_checksum(checksum);
    c.seal().to_vec()
}

/// Flips every bit; returns how many of the flips were refused.
fn flip_every_bit<K: Kind>(good: &[u8]) -> usize {
    let refused = |&bit: &usize| {
        let mut bytes = good.to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        // Either refused, or everything in it can be looked at.
        look_at::<K>(&bytes).is_err()
    };
    (0..good.len() * 8).filter(refused).count()
}

#[test]
fn x_3_every_flipped_bit_is_refused_or_gives_a_valid_cluster() {
    let (offsets, addresses) = (sealed(reloc(), false), sealed(iso(), false));
    for (refused, bits) in [
        (flip_every_bit::<Reloc>(&offsets), offsets.len() * 8),
        (flip_every_bit::<Iso>(&addresses), addresses.len() * 8),
    ] {
        // Numbers, texts and gaps are free; the rest is not.
        assert!(refused > bits / 3 && refused < bits, "{refused} of {bits} refused");
    }
    // With a checksum only what it does not cover is left: the 64 bits of the tag, and the one bit
    // of the root without which there is no root.
    let summed = sealed(reloc(), true);
    assert_eq!(summed.len() * 8 - flip_every_bit::<Reloc>(&summed), 65);
}

proptest! {
    #[test]
    fn x_3_any_words_written_over_a_cluster_are_refused_or_give_a_valid_one(
        patches in prop::collection::vec(
            (any::<prop::sample::Index>(), any::<u64>(), 0..8_usize), 1..6,
        ),
        address: bool,
    ) {
        let mut bytes = if address { sealed(iso(), false) } else { sealed(reloc(), false) };
        for (at, word, len) in patches {
            let at = at.index(bytes.len() - 8);
            // Small numbers are the likelier ones to be taken for lengths and references.
            let word = if len < 4 { word % 64 } else { word };
            bytes[at..=at + len].copy_from_slice(&word.to_le_bytes()[..=len]);
        }
        if address {
            look_at::<Iso>(&bytes).ok();
        } else {
            look_at::<Reloc>(&bytes).ok();
        }
    }

    #[test]
    fn x_3_any_words_behind_a_good_header_are_refused_or_give_a_valid_cluster(
        mut body in prop::collection::vec(0..12_u64, 0..40), objects in 0..5_u32,
    ) {
        body.iter_mut().for_each(|word| *word |= (*word & 3) << 32);
        let mut bytes = sealed(reloc(), false);
        bytes.truncate(HEADER_LEN);
        bytes.extend(body.iter().flat_map(|word| word.to_le_bytes()));
        let len = bytes.len() as u64;
        bytes[16..24].copy_from_slice(&len.to_le_bytes());
        bytes[40..48].fill(0);
        bytes[48..52].copy_from_slice(&objects.to_le_bytes());
        look_at::<Reloc>(&bytes).ok();
    }
}

/// Offsets of the objects of `build_graph`, with offsets as references, and of the first node's
/// `next`.
mod at {
    pub(super) const FIRST: usize = 64;
    pub(super) const SECOND: usize = FIRST + 72;
    pub(super) const NAME: usize = SECOND + 72;
    pub(super) const OTHERS: usize = NAME + 24;
    pub(super) const VALUES: usize = OTHERS + 32;
    pub(super) const FLAGS: usize = VALUES + 24;
    pub(super) const TRACK: usize = FLAGS + 24;
    pub(super) const NUMBER: usize = TRACK + 24;
    pub(super) const END: usize = NUMBER + 16;
    pub(super) const NEXT: usize = FIRST + 8 + 36;
}

/// Name, offset and bytes of a lie; the reason for which it is refused, or how that begins.
type Row = (&'static str, usize, &'static [u8], &'static str);

fn refuse<K: Kind>(good: &[u8], rows: &[Row]) {
    look_at::<K>(good).expect("good before it is changed");
    for &(what, offset, patch, want) in rows {
        let mut bytes = good.to_vec();
        bytes[offset..offset + patch.len()].copy_from_slice(patch);
        let refused = look_at::<K>(&bytes).expect_err(what);
        assert!(refused.starts_with(want), "{what}: got `{refused}`, expected `{want}`");
    }
}

#[test]
fn x_4_lies_in_the_header_are_refused_for_the_right_reason() {
    let good = sealed(reloc(), false);
    assert_eq!(good.len(), at::END);
    let rows: [Row; 15] = [
        ("kind", 6, &[1], "cluster kind 1: expected 0 (relocatable)"),
        ("flat", 7, &[2], "cluster flags 0x02: expected 2 (flat) not to be among them"),
        ("schema", 8, &[0; 8], "cluster of schema 0x0000000000000000: expected 0x"),
        ("longer", 16, &[0x80, 2], "cluster of 640 bytes is cut off: only 352 bytes are there"),
        ("shorter", 16, &[0x50, 1], "cluster of 336 bytes in 352 bytes: expected nothing behind"),
        ("huge", 20, &[1], "cluster length of 4294967648 bytes: at most 16777216 are allowed"),
        ("all", 17, &[255; 7], "cluster length of 18446744073709551456 bytes: at most"),
        ("origin", 24, &[1], "cluster field `origin` is 0x1: expected 0x0"),
        ("base", 39, &[1], "cluster field `base` is 0x100000000000000: expected 0x0"),
        ("root in an object", 40, &[72], "root at byte 72: no object starts there"),
        ("root off", 40, &[65], "root at byte 65: no object starts there"),
        ("root outside", 47, &[1], "root at byte 72057594037928000: no object starts there"),
        ("root a text", 40, &[at::NAME as u8], "root at byte 208: a `str` may not be the root"),
        ("fewer", 48, &[7], "cluster of 8 objects: its header says 7"),
        ("huge count", 48, &[255; 4], "cluster of 8 objects: its header says 4294967295"),
    ];
    refuse::<Reloc>(&good, &rows);
    let want = "40 bytes are too few for a cluster: its header alone takes 64";
    assert_eq!(look_at::<Reloc>(&good[..40]).unwrap_err(), want);
}

#[test]
fn x_4_lies_in_object_headers_are_refused_for_the_right_reason() {
    let rows: [Row; 7] = [
        ("type", at::FIRST, &[7], "object at byte 64: type number 7, the schema has 7 types"),
        ("flags", at::FIRST + 3, &[1], "object at byte 64: flags 0x0100, expected 0"),
        (
            "no size",
            at::FIRST + 4,
            &[0],
            "object `Node` at byte 64: size of 0 units of 8 bytes, expected 9",
        ),
        (
            "overlap",
            at::FIRST + 4,
            &[8],
            "object `Node` at byte 64: size of 8 units of 8 bytes, expected 9",
        ),
        (
            "overrun",
            at::TRACK + 4,
            &[99],
            "object at byte 312: size of 99 units of 8 bytes, only 5 are left",
        ),
        (
            "elements",
            at::VALUES + 8,
            &[5],
            "object `[u16]` at byte 264: size of 3 units of 8 bytes, expected 4",
        ),
        (
            "many elements",
            at::VALUES + 15,
            &[0x80],
            "object `[u16]` at byte 264: size of 3 units of 8 bytes, \
             expected a number of elements that fits",
        ),
    ];
    refuse::<Reloc>(&sealed(reloc(), false), &rows);
}

#[test]
fn x_4_lies_in_fields_are_refused_for_the_right_reason() {
    let rows: [Row; 9] = [
        ("text", at::NAME + 16, &[0xff], "object `str` at byte 208, byte 224: the text is not UTF"),
        (
            "bool",
            at::FLAGS + 17,
            &[2],
            "object `[bool]` at byte 288, byte 305: 2 is no value of its type",
        ),
        (
            "enum",
            at::FIRST + 32,
            &[3],
            "object `Node` at byte 64, byte 96: field `fuel`: 3 is no value of its type",
        ),
        (
            "bound",
            at::TRACK + 23,
            &[0x40],
            "object `[Point]` at byte 312, byte 332: field `y`: the number is outside its \
             declared bounds",
        ),
        (
            "outside",
            at::NEXT + 3,
            &[1],
            "object `Node` at byte 64, byte 108: field `next`: reference 0x1000011 leads out of \
             the cluster",
        ),
        (
            "header",
            at::NEXT,
            &[1],
            "object `Node` at byte 64, byte 108: field `next`: reference 0x1 does not lead to the \
             start of an object",
        ),
        (
            "middle",
            at::NEXT + 4,
            &[9],
            "object `Node` at byte 64, byte 112: field `next`: reference 0x9 does not lead to the \
             start of an object",
        ),
        (
            "wrong type",
            at::NEXT,
            &[(at::NAME / 8) as u8],
            "object `Node` at byte 64, byte 108: field `next`: reference 0x1a leads to a `str`, \
             expected a `Node`",
        ),
        (
            "element",
            at::OTHERS + 20,
            &[2],
            "object `[&Node]` at byte 232, byte 252: reference 0x2 does not lead to the start of \
             an object",
        ),
    ];
    refuse::<Reloc>(&sealed(reloc(), false), &rows);
}

#[test]
fn x_4_addresses_are_refused_for_the_right_reason() {
    const NEXT: usize = 64 + 8 + 40;
    let rows: [Row; 7] = [
        ("rank", 28, &[8], "cluster field `rank` is 0x8: expected 0x7"),
        ("base", 37, &[0x21], "cluster field `base` is 0x210000000000: expected 0x200000000000"),
        (
            "below",
            NEXT + 5,
            &[0x1f],
            "object `Node` at byte 64, byte 112: field `next`: reference 0x1f00000000a8 leads out",
        ),
        (
            "above",
            NEXT + 6,
            &[1],
            "object `Node` at byte 64, byte 112: field `next`: reference 0x12000000000a8 leads out",
        ),
        (
            "base itself",
            NEXT,
            &[0],
            "object `Node` at byte 64, byte 112: field `next`: reference 0x200000000000 does not \
             lead to the start of an object",
        ),
        (
            "odd",
            NEXT,
            &[0x44],
            "object `Node` at byte 64, byte 112: field `next`: reference 0x200000000044 is not a \
             multiple of 8 bytes into the cluster",
        ),
        (
            "middle",
            NEXT,
            &[0x48],
            "object `Node` at byte 64, byte 112: field `next`: reference 0x200000000048 does not \
             lead to the start of an object",
        ),
    ];
    refuse::<Iso>(&sealed(iso(), false), &rows);
}

#[test]
fn bytes_at_an_odd_address_are_refused() {
    let good = sealed(reloc(), false);
    let mut shifted = aligned(&[&[0; 4][..], &good].concat());
    let bytes = &shifted.as_mut()[4..4 + good.len()];
    let refused = Cluster::<Graph, Reloc, _>::check(bytes, LIMIT).unwrap_err().to_string();
    let want = "cluster at an address that is not a multiple of 8: copy it into a Buffer first";
    assert_eq!(refused, want);
}
