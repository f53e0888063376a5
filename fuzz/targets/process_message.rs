//! Any bytes as frames of processes and messages of their bootstrap: refused, or written again the same.
#![no_main]

use bytes::{Bytes, BytesMut};
use itg_process::Slot;
use itg_process::bootstrap::{Application, Boot};
use itg_process::frame::{self, Frame};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // A checksum is nothing a fuzzer guesses: the first frame gets the right one.
    let mut mended = BytesMut::from(bytes);
    if let Ok(Some(extent)) = frame::extent(bytes, 1000)
        && extent <= bytes.len()
    {
        let crc = crc32c::crc32c(&bytes[8..extent]);
        mended[4..8].copy_from_slice(&crc.to_le_bytes());
        mended[10..12].fill(0);
        let crc = crc32c::crc32c(&mended[8..extent]);
        mended[4..8].copy_from_slice(&crc.to_le_bytes());
    }
    for bytes in [Bytes::copy_from_slice(bytes), mended.freeze()] {
        if let Ok(Some((Frame { message, incarnation, view }, taken))) =
            frame::decode(&bytes, Slot(1), 1000)
            && bytes[10..12] == [0, 0]
        {
            let mut again = BytesMut::new();
            frame::encode(&message, incarnation, view, &mut again);
            assert_eq!(again, bytes[..taken]);
        }
    }
    if let Ok(message) = Boot::decode(bytes) {
        assert_eq!(message.encode(), bytes);
    }
    if let Ok(application) = Application::decode(bytes) {
        assert_eq!(application.encode(), bytes);
        drop(application.config());
    }
});
