//! Texts of untrusted peers, made safe for use.

use super::message::{Registration, Role, Transport};

/// Longest part of a file name that comes from the producer's text, in bytes.
const MAX_STEM: usize = 96;

/// The name under which an experiment is stored: always a plain file name (1 to 113 ASCII letters,
/// digits, `-`, `_` and `.`, no `.` in front), never a path, whatever the text is.
///
/// A text that is such a name already, and not longer than 96 bytes, stays as it is. Any other one has
/// its other characters replaced by `_` and gets a hash of the whole text behind a `-`, so that different
/// experiments stay apart.
#[must_use]
pub fn file_stem(run: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if !run.is_empty() && run.len() <= MAX_STEM && run.chars().all(plain) && !run.starts_with('.') {
        return run.to_owned();
    }
    let mut stem: String =
        run.chars().take(MAX_STEM).map(|c| if plain(c) { c } else { '_' }).collect();
    if stem.is_empty() || stem.starts_with('.') {
        stem.insert(0, '_');
        stem.truncate(MAX_STEM);
    }
    format!("{stem}-{:016x}", fnv1a(run.as_bytes()))
}

/// Text that a producer has to authenticate with the shared secret (HMAC-SHA-256) to prove that it
/// knows it: the server's challenge and all of its registration, so that nobody between them can change
/// the role, the transport or anything else of it.
#[must_use]
pub fn proof_text(nonce: &[u8; 32], who: &Registration) -> Vec<u8> {
    let Registration {
        key,
        run,
        host,
        program,
        role,
        flows,
        record_schema,
        transport,
        block_records,
        block_bytes,
        clock_offset_ns,
        uncertainty_ns,
        next_block,
    } = who;
    let mut text = b"ITG log registration 2\n".to_vec();
    text.extend(nonce);
    text.extend(key);
    text.push(match role {
        Role::Sender => 0,
        Role::Receiver => 1,
    });
    text.push(match transport {
        Transport::Tcp => 0,
        Transport::Udp => 1,
    });
    for number in [flows, block_records, block_bytes, next_block] {
        text.extend(number.to_le_bytes());
    }
    text.extend(record_schema.to_le_bytes());
    for time in [clock_offset_ns.map(i64::to_le_bytes), uncertainty_ns.map(u64::to_le_bytes)] {
        text.push(u8::from(time.is_some()));
        text.extend(time.unwrap_or_default());
    }
    for words in [run, host, program] {
        text.extend((words.len() as u64).to_le_bytes());
        text.extend(words.as_bytes());
    }
    text
}

/// Bytes as hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The 16 bytes of 32 hexadecimal digits.
pub(super) fn unhex(text: &str) -> Option<[u8; 16]> {
    let mut key = [0; 16];
    for (i, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * i..2 * i + 2)?, 16).ok()?;
    }
    (text.len() == 32).then_some(key)
}

/// FNV-1a, 64 bits (Fowler, Noll, Vo).
pub(super) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// A text of at most `max` bytes, cut at a character.
pub(super) fn cut(mut text: String, max: usize) -> String {
    text.truncate(text.floor_char_boundary(max));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn plain_names_stay_and_others_are_made_plain() {
        for (run, want) in [
            ("voip-beside-bulk", "voip-beside-bulk"),
            ("Run_2.1", "Run_2.1"),
            ("", "_-cbf29ce484222325"),
            ("..", "_..-07da1a07b4a03f2d"),
            (".hidden", "_.hidden-28280da0cdcb6865"),
            ("../../etc/passwd", "_.._.._etc_passwd-2bef2c0bbbdefdfa"),
            ("a/b", "a_b-e620c3190468cf61"),
            ("a\0b", "a_b-e5d29919042666b2"),
            ("Zürich", "Z_rich-0ef841596f67fdc0"),
        ] {
            assert_eq!(file_stem(run), want, "{run:?}");
        }
        assert_ne!(file_stem("a/b"), file_stem("a_b"));
        assert_ne!(file_stem("a/b"), file_stem("a\\b"));
        assert_eq!(file_stem(&"x".repeat(96)), "x".repeat(96));
        assert_eq!(file_stem(&"x".repeat(97)).len(), 113);
    }

    #[test]
    fn the_hash_is_fnv_1a() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }

    proptest! {
        #[test]
        fn a_stem_is_a_plain_file_name(run in ".*") {
            let stem = file_stem(&run);
            prop_assert!((1..=113).contains(&stem.len()), "{}", stem);
            prop_assert!(!stem.starts_with('.'), "{}", stem);
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            prop_assert!(stem.chars().all(plain), "{}", stem);
        }
    }
}
