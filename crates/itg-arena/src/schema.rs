//! Schema hashes: the name of a type table in 64 bits, so that a reader knows at once whether it
//! understands the objects of a cluster.

/// FNV-1a (64 bits) of a canonical type text, such as `itg.record.1 flow:u32 size:u32`.
///
/// The text names the type, its version and every field with its type in the order of the bytes; a
/// change of any of them is another schema. The hash tells schemas apart by accident-proof
/// probability, not against an attacker.
///
/// Source: Fowler, Noll, Vo; RFC 9923, 64-bit offset basis and prime.
#[must_use]
pub const fn schema_hash(text: &str) -> u64 {
    const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let bytes = text.as_bytes();
    let mut hash = OFFSET_BASIS;
    let mut i = 0;
    while i < bytes.len() {
        hash = (hash ^ bytes[i] as u64).wrapping_mul(PRIME);
        i += 1;
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_published_vectors() {
        for (text, want) in [
            ("", 0xcbf2_9ce4_8422_2325),
            ("a", 0xaf63_dc4c_8601_ec8c),
            ("foobar", 0x8594_4171_f739_67e8),
        ] {
            assert_eq!(schema_hash(text), want, "input {text:?}");
        }
    }
}
