//! Any bytes as a cluster of objects, of either kind: the validator comes to the verdict of its plain
//! twin, and whatever it takes can be read from one end to the other.
#![no_main]

#[path = "../../papers/tests/common/mod.rs"]
mod common;

use common::{Graph, ISO, look_at};
use itg_papers::clusters::{HEADER_LEN, Header, Iso, KIND_ISO, KIND_RELOC, Reloc, Schema};
use libfuzzer_sys::fuzz_target;

/// A header for any body, as good as it can be: the length is right, and the number of objects is
/// that of a body that is good.
fn behind_a_header(iso: bool, root: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_LEN];
    bytes.extend_from_slice(&body[..body.len() / 8 * 8]);
    let (mut objects, mut at) = (0, HEADER_LEN);
    while let Some(size) = bytes.get(at + 4..at + 8) {
        let units = u32::from_le_bytes([size[0], size[1], size[2], size[3]]);
        at += (units as usize).max(1) * 8;
        objects += 1;
    }
    let header = Header {
        kind: if iso { KIND_ISO } else { KIND_RELOC },
        flags: 0,
        schema: if iso { <Graph as Schema<Iso>>::HASH } else { <Graph as Schema<Reloc>>::HASH },
        total_len: bytes.len() as u64,
        origin: if iso { ISO.origin } else { 0 },
        rank: if iso { ISO.rank } else { 0 },
        base: if iso { ISO.base } else { 0 },
        root: u64::from(root) * 8,
        objects,
        crc: 0,
        tag: 0,
    };
    bytes[..HEADER_LEN].copy_from_slice(&header.emit());
    bytes
}

fuzz_target!(|bytes: &[u8]| {
    let [choice, root, rest @ ..] = bytes else { return };
    let iso = choice & 1 != 0;
    let made;
    let bytes = if choice & 2 == 0 {
        made = behind_a_header(iso, *root, rest);
        &made
    } else {
        rest
    };
    let _ = if iso { look_at::<Iso>(bytes) } else { look_at::<Reloc>(bytes) };
});
