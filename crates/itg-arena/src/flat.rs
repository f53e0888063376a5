//! Flat clusters: a header and a body of fixed-size objects without references.
//!
//! The writer fills the body in place and seals it; the reader checks once and then looks at the
//! bytes where they are. What an object is and whether `objects × size = body` is the business of
//! the schema's owner. Cost: one pass over the body for the CRC-32C, on each side.

use crate::header::{ClusterError, FLAG_CRC, FLAG_FLAT, HEADER_LEN, Header, KIND_RELOC};

/// The header of a flat cluster, with the CRC-32C of its body, for a body that lies elsewhere.
///
/// # Panics
/// If `body` is not a multiple of 8 bytes long: a bug of the caller.
#[must_use]
pub fn flat_header(body: &[u8], schema: u64, objects: u32, tag: u64) -> [u8; HEADER_LEN] {
    let total_len = HEADER_LEN + body.len();
    assert!(total_len.is_multiple_of(8), "a cluster of {total_len} bytes: not a multiple of 8");
    let header = Header {
        kind: KIND_RELOC,
        flags: FLAG_CRC | FLAG_FLAT,
        schema,
        total_len: total_len as u64,
        origin: 0,
        rank: 0,
        base: 0,
        root: 0,
        objects,
        crc: crc32c::crc32c(body),
        tag,
    };
    header.emit()
}

/// Writes the header of a flat cluster, with the CRC-32C of its body, into the first 64 bytes of
/// `buf`; the rest of `buf` is the body.
///
/// # Panics
/// If `buf` is shorter than a header or not a multiple of 8 bytes long: a bug of the caller.
pub fn seal_flat(buf: &mut [u8], schema: u64, objects: u32, tag: u64) {
    let (head, body) = buf.split_at_mut(HEADER_LEN);
    head.copy_from_slice(&flat_header(body, schema, objects, tag));
}

/// A flat cluster that has been checked, where it lies.
#[derive(Clone, Copy, Debug)]
pub struct Flat<'a> {
    header: Header,
    body: &'a [u8],
}

impl<'a> Flat<'a> {
    /// Checks the flat cluster at the start of `bytes`, which may be longer, and returns it with its
    /// length in bytes. A cluster longer than `limit` bytes is refused before its body is looked at.
    ///
    /// A cluster without a checksum is accepted; [`Flat::has_crc`] tells.
    ///
    /// # Errors
    /// No header, a cluster that is not flat, too long or cut off, fields that are not 0 where a flat
    /// cluster has 0, a body that does not match its checksum. Never panics.
    pub fn check(bytes: &'a [u8], limit: usize) -> Result<(Self, usize), ClusterError> {
        let header = Header::parse(bytes)?;
        if header.kind != KIND_RELOC {
            let expected = "0 (relocatable) for a flat cluster";
            return Err(ClusterError::Kind { got: header.kind, expected });
        }
        if header.flags & FLAG_FLAT == 0 {
            let expected = "2 (flat) to be among them";
            return Err(ClusterError::Flags { got: header.flags, expected });
        }
        for (field, got) in [
            ("origin", u64::from(header.origin)),
            ("rank", u64::from(header.rank)),
            ("base", header.base),
            ("root", header.root),
        ] {
            if got != 0 {
                return Err(ClusterError::NotZero { field, got });
            }
        }
        if header.total_len > limit as u64 {
            return Err(ClusterError::Limit { got: header.total_len, limit });
        }
        let cut_off = ClusterError::CutOff { need: header.total_len, have: bytes.len() };
        let Some(body) = usize::try_from(header.total_len)
            .ok()
            .and_then(|total_len| bytes.get(HEADER_LEN..total_len))
        else {
            return Err(cut_off);
        };
        let computed = if header.flags & FLAG_CRC == 0 { 0 } else { crc32c::crc32c(body) };
        if computed != header.crc {
            return Err(ClusterError::Crc { stored: header.crc, computed });
        }
        Ok((Self { header, body }, HEADER_LEN + body.len()))
    }

    /// The whole header.
    #[must_use]
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// Hash of the schema of its objects.
    #[must_use]
    pub const fn schema(&self) -> u64 {
        self.header.schema
    }

    /// The user's tag.
    #[must_use]
    pub const fn tag(&self) -> u64 {
        self.header.tag
    }

    /// Number of objects, as the header says: the owner of the schema compares it with the body.
    #[must_use]
    pub const fn objects(&self) -> u32 {
        self.header.objects
    }

    /// Returns true if the body was covered by a checksum.
    #[must_use]
    pub const fn has_crc(&self) -> bool {
        self.header.flags & FLAG_CRC != 0
    }

    /// The bytes behind the header; a multiple of 8.
    #[must_use]
    pub const fn body(&self) -> &'a [u8] {
        self.body
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::cast_possible_truncation, reason = "small test values")]
    use proptest::prelude::*;

    use super::*;

    fn sealed(body: &[u8]) -> Vec<u8> {
        let mut buf = vec![0xaa; HEADER_LEN];
        buf.extend_from_slice(body);
        seal_flat(&mut buf, 5, 2, 77);
        buf
    }

    fn refusal(bytes: &[u8], limit: usize) -> String {
        Flat::check(bytes, limit).expect_err("must be refused").to_string()
    }

    #[test]
    fn a_sealed_cluster_reads_back_even_with_bytes_behind_it() {
        let mut bytes = sealed(b"16 bytes of body");
        bytes.extend_from_slice(b"more");
        let (flat, used) = Flat::check(&bytes, 80).expect("good");
        assert_eq!((flat.schema(), flat.objects(), flat.tag(), used), (5, 2, 77, 80));
        assert_eq!(flat.body(), b"16 bytes of body");
        assert!(flat.has_crc());
    }

    #[test]
    fn the_checksum_is_crc_32c() {
        // RFC 3720, appendix B.4: 32 bytes of zeros.
        let bytes = sealed(&[0; 32]);
        assert_eq!(bytes[52..56], [0xaa, 0x36, 0x91, 0x8a]);
    }

    #[test]
    fn refusals_name_the_reason() {
        let good = sealed(b"16 bytes of body");
        let rows: [(usize, u8, &str); 7] = [
            (6, 1, "cluster kind 1: expected 0 (relocatable) for a flat cluster"),
            (7, 1, "cluster flags 0x01: expected 2 (flat) to be among them"),
            (24, 9, "cluster field `origin` is 0x9: a flat cluster has 0 there"),
            (31, 1, "cluster field `rank` is 0x1000000: a flat cluster has 0 there"),
            (32, 8, "cluster field `base` is 0x8: a flat cluster has 0 there"),
            (40, 64, "cluster field `root` is 0x40: a flat cluster has 0 there"),
            (17, 1, "cluster length of 336 bytes: at most 320 are allowed here"),
        ];
        for (offset, value, want) in rows {
            let mut bytes = good.clone();
            bytes[offset] = value;
            assert_eq!(refusal(&bytes, 320), want, "{value} at byte {offset}");
        }
        let want = "cluster of 80 bytes is cut off: only 79 bytes are there";
        assert_eq!(refusal(&good[..79], 320), want);
        let mut bytes = good;
        bytes[64] ^= 1;
        assert!(refusal(&bytes, 320).starts_with("cluster checksum: the header says 0x"));
    }

    #[test]
    fn a_cluster_without_checksum_is_accepted_and_says_so() {
        let mut bytes = sealed(b"16 bytes of body");
        bytes[7] = FLAG_FLAT;
        assert!(refusal(&bytes, 80).contains("the body has 0x00000000"), "a stray checksum");
        bytes[52..56].fill(0);
        let (flat, _) = Flat::check(&bytes, 80).expect("good");
        assert!(!flat.has_crc());
    }

    #[test]
    #[should_panic(expected = "a cluster of 71 bytes: not a multiple of 8")]
    fn sealing_an_odd_length_is_a_bug() {
        seal_flat(&mut [0; 71], 0, 0, 0);
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_cut_exactly(bytes: Vec<u8>, limit in 0_usize..200) {
            if let Ok((flat, used)) = Flat::check(&bytes, limit) {
                prop_assert!(used <= limit && flat.body().len() + HEADER_LEN == used);
            }
        }

        #[test]
        fn one_flipped_bit_is_found_or_lies_in_schema_objects_and_tag(
            words in prop::collection::vec(any::<u64>(), 1..20), at: prop::sample::Index,
        ) {
            let body: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
            let mut bytes = sealed(&body);
            let bit = at.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            let free = [8..16, 48..52, 56..64].iter().any(|field| field.contains(&(bit / 8)));
            prop_assert_eq!(Flat::check(&bytes, 1 << 20).is_ok(), free, "bit {}", bit);
        }
    }
}
