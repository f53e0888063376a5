//! Any bytes as a message of a broadcast, a membership or an overlay: refused, or written again and read as
//! the same.
#![no_main]

use bytes::Bytes;
use itg_group::cast::log::LogMessage;
use itg_group::cast::thesis::Word;
use itg_group::cast::uniform;
use itg_group::membership;
use itg_members::overlay;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&kind, bytes)) = bytes.split_first() else { return };
    let (ty, bytes) = (1400 + u32::from(kind % 30), Bytes::copy_from_slice(bytes));
    if let Some(say) = LogMessage::decode(ty, &bytes) {
        let (ty, again) = say.encode();
        assert_eq!(LogMessage::decode(ty, &again), Some(say));
    }
    if let Some(say) = uniform::UniformMessage::decode(ty, &bytes) {
        let (ty, again) = say.encode();
        assert_eq!(uniform::UniformMessage::decode(ty, &again), Some(say));
    }
    let (view, tree) = (1300 + u32::from(kind % 40), 1340 + u32::from(kind % 8));
    if let Some(say) = membership::MembershipMessage::decode(view, &bytes) {
        assert_eq!(membership::MembershipMessage::decode(say.ty(), &say.encode()), Some(say));
    }
    if let Some(say) = overlay::OverlayMessage::decode(tree, &bytes) {
        let (ty, again) = say.encode();
        assert_eq!(overlay::OverlayMessage::decode(ty, &again), Some(say));
    }
    if let Some(word) = Word::decode(ty, &bytes) {
        assert_eq!(word.encode(), (ty, bytes));
    }
});
