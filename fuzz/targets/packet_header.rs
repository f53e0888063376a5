//! Any bytes as a packet: what its header says can be written again into the same bytes.
#![no_main]

use itg_core::header::{MIN_LEN, PacketHeader};
use itg_core::units::MAX_TIME_NS;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|packet: &[u8]| {
    let Some(header) = PacketHeader::parse(packet) else {
        let time = packet.get(12..20).map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
        assert!(packet.len() < MIN_LEN as usize || time.is_some_and(|ns| ns > MAX_TIME_NS));
        return;
    };
    let mut out = [0; 20];
    let sent_ns = header.sent_ns.unwrap_or(0);
    let used =
        PacketHeader::write(header.handle, header.seq, sent_ns, packet.len() as u32, &mut out);
    assert_eq!(out[..used], packet[..used]);
});
