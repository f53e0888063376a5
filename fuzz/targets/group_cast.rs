//! Any bytes as a message of a broadcast: refused, or written again into the same bytes.
#![no_main]

use bytes::Bytes;
use itg_group::cast::log::Say;
use itg_group::cast::thesis::Word;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&kind, bytes)) = bytes.split_first() else { return };
    let (ty, bytes) = (1400 + u32::from(kind % 30), Bytes::copy_from_slice(bytes));
    if let Some(say) = Say::decode(ty, &bytes) {
        let (ty, again) = say.encode();
        assert_eq!(Say::decode(ty, &again), Some(say));
    }
    if let Some(word) = Word::decode(ty, &bytes) {
        assert_eq!(word.encode(), (ty, bytes));
    }
});
