//! The 64 bytes in front of every cluster.
//!
//! Little-endian, no padding. Parsing checks the fixed fields (magic, version, kind, flags, length);
//! what the other fields must be depends on the kind of cluster and is checked there.

use std::mem::{offset_of, size_of};

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a cluster header.
pub const HEADER_LEN: usize = 64;
/// The first four bytes of every cluster.
pub const MAGIC: [u8; 4] = *b"XPC1";
/// Format version this crate reads and writes.
pub const VERSION: u16 = 1;
/// Kind of a relocatable cluster: references are offsets. Flat clusters are of this kind.
pub const KIND_RELOC: u8 = 0;
/// Kind of a cluster at a fixed address: references are addresses.
pub const KIND_ISO: u8 = 1;
/// Flag: the field `crc` holds the CRC-32C of the body.
pub const FLAG_CRC: u8 = 1;
/// Flag: the body holds objects of one fixed size, without object headers and references.
pub const FLAG_FLAT: u8 = 2;

/// The header as it lies in memory and in files.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 4],
    version: U16,
    kind: u8,
    flags: u8,
    schema: U64,
    total_len: U64,
    origin: U32,
    rank: U32,
    base: U64,
    root: U64,
    objects: U32,
    crc: U32,
    tag: U64,
}

const _: () = {
    assert!(size_of::<RawHeader>() == HEADER_LEN);
    assert!(offset_of!(RawHeader, version) == 4);
    assert!(offset_of!(RawHeader, kind) == 6);
    assert!(offset_of!(RawHeader, flags) == 7);
    assert!(offset_of!(RawHeader, schema) == 8);
    assert!(offset_of!(RawHeader, total_len) == 16);
    assert!(offset_of!(RawHeader, origin) == 24);
    assert!(offset_of!(RawHeader, rank) == 28);
    assert!(offset_of!(RawHeader, base) == 32);
    assert!(offset_of!(RawHeader, root) == 40);
    assert!(offset_of!(RawHeader, objects) == 48);
    assert!(offset_of!(RawHeader, crc) == 52);
    assert!(offset_of!(RawHeader, tag) == 56);
};

/// Contents of a cluster's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// [`KIND_RELOC`] or [`KIND_ISO`].
    pub kind: u8,
    /// [`FLAG_CRC`] and [`FLAG_FLAT`].
    pub flags: u8,
    /// [`schema_hash`](crate::schema_hash) of the type table.
    pub schema: u64,
    /// Length in bytes, header included, a multiple of 8.
    pub total_len: u64,
    /// Slot of the node that made it (fixed address only, else 0).
    pub origin: u32,
    /// Number among the clusters of its origin (fixed address only, else 0).
    pub rank: u32,
    /// Address of its first byte (fixed address only, else 0).
    pub base: u64,
    /// Offset of the root object in bytes; 0 means none.
    pub root: u64,
    /// Number of objects.
    pub objects: u32,
    /// CRC-32C of the body (RFC 3720, appendix B.4) when [`FLAG_CRC`] is set, else 0.
    pub crc: u32,
    /// A value of the user's own.
    pub tag: u64,
}

/// Bytes that are no cluster, or one that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClusterError {
    /// Too few bytes for a header.
    #[error("{have} bytes are too few for a cluster: its header alone takes {HEADER_LEN}")]
    Short {
        /// Bytes there are.
        have: usize,
    },
    /// The first four bytes are something else.
    #[error("no cluster starts here: expected the bytes `XPC1`, got {:02x?}", .got)]
    Magic {
        /// Bytes found.
        got: [u8; 4],
    },
    /// Another format version.
    #[error("cluster format version {got}: this program reads version {VERSION}")]
    Version {
        /// Version found.
        got: u16,
    },
    /// A kind that does not exist or is not wanted here.
    #[error("cluster kind {got}: expected {expected}")]
    Kind {
        /// Kind found.
        got: u8,
        /// Kinds that would do.
        expected: &'static str,
    },
    /// Flags that do not exist or are not wanted here.
    #[error("cluster flags {got:#04x}: expected {expected}")]
    Flags {
        /// Flags found.
        got: u8,
        /// Flags that would do.
        expected: &'static str,
    },
    /// A length that no cluster can have.
    #[error("cluster length of {got} bytes: expected a multiple of 8, at least {HEADER_LEN}")]
    Length {
        /// Length in the header.
        got: u64,
    },
    /// Longer than the reader allows.
    #[error("cluster length of {got} bytes: at most {limit} are allowed here")]
    Limit {
        /// Length in the header.
        got: u64,
        /// The reader's limit in bytes.
        limit: usize,
    },
    /// The bytes end before the cluster does.
    #[error("cluster of {need} bytes is cut off: only {have} bytes are there")]
    CutOff {
        /// Length in the header.
        need: u64,
        /// Bytes there are.
        have: usize,
    },
    /// A field that has no meaning for this kind of cluster is not 0.
    #[error("cluster field `{field}` is {got:#x}: a flat cluster has 0 there")]
    NotZero {
        /// Name of the field.
        field: &'static str,
        /// Value found.
        got: u64,
    },
    /// The body is not what was written.
    #[error("cluster checksum: the header says {stored:#010x}, the body has {computed:#010x}")]
    Crc {
        /// CRC-32C in the header.
        stored: u32,
        /// CRC-32C of the body as it is.
        computed: u32,
    },
}

impl Header {
    /// Reads the header of the cluster at the start of `bytes`, which may be longer.
    ///
    /// # Errors
    /// Bytes that do not start with a header of this version, or one with an unknown kind, unknown
    /// flags or an impossible length. Whether the whole cluster is there is not looked at.
    pub fn parse(bytes: &[u8]) -> Result<Self, ClusterError> {
        let Ok((raw, _)) = RawHeader::ref_from_prefix(bytes) else {
            return Err(ClusterError::Short { have: bytes.len() });
        };
        if raw.magic != MAGIC {
            return Err(ClusterError::Magic { got: raw.magic });
        }
        if raw.version.get() != VERSION {
            return Err(ClusterError::Version { got: raw.version.get() });
        }
        if raw.kind > KIND_ISO {
            let expected = "0 (relocatable) or 1 (fixed address)";
            return Err(ClusterError::Kind { got: raw.kind, expected });
        }
        if raw.flags & !(FLAG_CRC | FLAG_FLAT) != 0 {
            let expected = "1 (checksum), 2 (flat) or their sum";
            return Err(ClusterError::Flags { got: raw.flags, expected });
        }
        let total_len = raw.total_len.get();
        if total_len < HEADER_LEN as u64 || !total_len.is_multiple_of(8) {
            return Err(ClusterError::Length { got: total_len });
        }
        Ok(Self {
            kind: raw.kind,
            flags: raw.flags,
            schema: raw.schema.get(),
            total_len,
            origin: raw.origin.get(),
            rank: raw.rank.get(),
            base: raw.base.get(),
            root: raw.root.get(),
            objects: raw.objects.get(),
            crc: raw.crc.get(),
            tag: raw.tag.get(),
        })
    }

    /// The 64 bytes that [`Header::parse`] reads back.
    #[must_use]
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        zerocopy::transmute!(RawHeader {
            magic: MAGIC,
            version: U16::new(VERSION),
            kind: self.kind,
            flags: self.flags,
            schema: U64::new(self.schema),
            total_len: U64::new(self.total_len),
            origin: U32::new(self.origin),
            rank: U32::new(self.rank),
            base: U64::new(self.base),
            root: U64::new(self.root),
            objects: U32::new(self.objects),
            crc: U32::new(self.crc),
            tag: U64::new(self.tag),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: Header = Header {
        kind: KIND_ISO,
        flags: FLAG_CRC,
        schema: 0x0807_0605_0403_0201,
        total_len: 4096,
        origin: 7,
        rank: 9,
        base: 0x2000_0000_0000,
        root: 72,
        objects: 3,
        crc: 0xdead_beef,
        tag: u64::MAX,
    };

    #[test]
    fn bytes_lie_where_the_table_says() {
        let want: [&[u8]; 13] = [
            b"XPC1",
            &[1, 0],
            &[1],
            &[1],
            &[1, 2, 3, 4, 5, 6, 7, 8],
            &[0, 16, 0, 0, 0, 0, 0, 0],
            &[7, 0, 0, 0],
            &[9, 0, 0, 0],
            &[0, 0, 0, 0, 0, 0x20, 0, 0],
            &[72, 0, 0, 0, 0, 0, 0, 0],
            &[3, 0, 0, 0],
            &[0xef, 0xbe, 0xad, 0xde],
            &[0xff; 8],
        ];
        assert_eq!(EXAMPLE.emit().as_slice(), want.concat());
        assert_eq!(Header::parse(&EXAMPLE.emit()), Ok(EXAMPLE));
    }

    #[test]
    fn headers_that_say_nothing_sensible_are_refused() {
        let rows: [(usize, &[u8], &str); 7] = [
            (0, b"XPC2", "no cluster starts here: expected the bytes `XPC1`, got [58, 50, 43, 32]"),
            (4, &[2, 0], "cluster format version 2: this program reads version 1"),
            (6, &[2], "cluster kind 2: expected 0 (relocatable) or 1 (fixed address)"),
            (7, &[4], "cluster flags 0x04: expected 1 (checksum), 2 (flat) or their sum"),
            (16, &[63, 0], "cluster length of 63 bytes: expected a multiple of 8, at least 64"),
            (16, &[56, 0], "cluster length of 56 bytes: expected a multiple of 8, at least 64"),
            (16, &[65, 1], "cluster length of 321 bytes: expected a multiple of 8, at least 64"),
        ];
        for (offset, patch, want) in rows {
            let mut bytes = EXAMPLE.emit();
            bytes[offset..offset + patch.len()].copy_from_slice(patch);
            let got = Header::parse(&bytes).map_err(|e| e.to_string());
            assert_eq!(got, Err(want.to_owned()), "{patch:?} at byte {offset}");
        }
        let short = Header::parse(&EXAMPLE.emit()[..63]).map_err(|e| e.to_string());
        let want = "63 bytes are too few for a cluster: its header alone takes 64";
        assert_eq!(short, Err(want.to_owned()));
    }
}
