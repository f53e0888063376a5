//! Any bytes as a signalling message: it is refused, or it is written again into the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(message) = itg_session::decode(bytes) else { return };
    let again = itg_session::encode(&message).expect("it came in a message");
    let back = itg_session::decode(&again).expect("just written");
    assert_eq!(itg_session::encode(&back).expect("as before"), again);
});
