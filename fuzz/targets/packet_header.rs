//! Any bytes as a packet: what its header says can be written again into the same bytes.
#![no_main]

use itg_core::header::{MIN_LEN, PacketHeader};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|packet: &[u8]| {
    let Some(header) = PacketHeader::parse(packet) else {
        assert!(packet.len() < MIN_LEN as usize);
        return;
    };
    let mut out = [0; 20];
    let sent_ns = header.sent_ns.unwrap_or(0);
    let used =
        PacketHeader::write(header.handle, header.seq, sent_ns, packet.len() as u32, &mut out);
    assert_eq!(out[..used], packet[..used]);
});
