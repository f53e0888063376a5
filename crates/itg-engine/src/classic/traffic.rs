//! The packets of a flow of D-ITG for the sending thread.

use std::sync::Arc;

use itg_classic::send::{Departures, FlowArgs, HeaderKind, SIZE_MAX, SpecError};
use itg_classic::wire::{PacketHeader, header_len};
use itg_core::schedule::Departure;

use super::time_of_day;

/// Packets whose place in the content is remembered: more than wait in the sending thread.
const PLACES: usize = 128;

/// Payload of a flow's packets, behind their header.
#[derive(Clone, Debug)]
pub struct ClassicContent {
    /// At least as long as the largest packet; of a file, followed by so many zeros.
    bytes: Arc<[u8]>,
    /// Bytes of the file; 0 when every packet carries the same.
    file_len: usize,
}

impl ClassicContent {
    /// The same bytes in every packet. D-ITG draws values 0 to 254 from the seconds of the clock; these
    /// are drawn from `seed`.
    #[must_use]
    pub fn random(seed: u64) -> Self {
        // splitmix64 (Steele, Lea, Flood, OOPSLA 2014).
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = state;
            z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
            ((z ^ z >> 31) % 255) as u8
        };
        Self { bytes: (0..SIZE_MAX).map(|_| next()).collect(), file_len: 0 }
    }

    /// Consecutive pieces of a file; what does not fill a packet any more is followed by zeros, and the
    /// next packet begins at the beginning.
    #[must_use]
    pub fn file(mut bytes: Vec<u8>) -> Self {
        let file_len = bytes.len();
        bytes.resize(file_len + SIZE_MAX as usize, 0);
        Self { bytes: bytes.into(), file_len }
    }
}

/// Form of the header of packets for a receiver of D-ITG.
#[derive(Clone, Copy, Debug)]
pub struct ClassicForm {
    /// Number of the flow.
    pub flow: u32,
    /// Header of its packets.
    pub kind: HeaderKind,
    /// True if packets carry their size, because the transport keeps no boundaries.
    pub stream: bool,
    /// Type of ICMP messages.
    pub icmp_type: u8,
}

impl ClassicForm {
    fn header_len(&self) -> usize {
        header_len(self.kind, self.stream)
    }

    /// Writes the header of a packet that is sent at `stamp_ns` (Unix time); returns its length.
    pub fn header(&self, packet: &Departure, stamp_ns: u64, out: &mut [u8]) -> usize {
        let (seconds, micros) = time_of_day(stamp_ns);
        #[expect(clippy::cast_possible_truncation, reason = "numbers wrap there")]
        // They count from 1.
        let seq = (packet.seq as u32).wrapping_add(1);
        let header = PacketHeader { flow: self.flow, seq, seconds, micros };
        header.put(self.kind, self.stream, packet.size, out)
    }
}

/// The packets of a flow as D-ITG draws them.
#[derive(Debug)]
pub struct ClassicPackets {
    duration_ns: Option<u64>,
    keep_rate: bool,
    unpaced: bool,
    departures: Departures,
    next: Option<Departure>,
    /// Without a kept rate: how late the packets so far were together.
    shift_ns: u64,
    content: ClassicContent,
    header_len: usize,
    /// Offset in the file of the next packet's piece, in bytes.
    at: usize,
    places: [usize; PLACES],
}

impl ClassicPackets {
    /// The packets of a flow, with the draws of `seed`.
    ///
    /// # Errors
    /// The system's, in words where the caller shows them.
    pub fn new(
        flow: &FlowArgs,
        seed: f64,
        content: ClassicContent,
        form: ClassicForm,
    ) -> Result<Self, SpecError> {
        let departures = Departures::new(flow, seed)?;
        let mut packets = Self {
            duration_ns: flow.limit_ms().map(|ms| u64::from(ms) * 1_000_000),
            keep_rate: flow.keep_rate,
            unpaced: flow.has_no_gaps(),
            departures,
            next: None,
            shift_ns: 0,
            content,
            header_len: form.header_len(),
            at: 0,
            places: [0; PLACES],
        };
        packets.advance(0);
        Ok(packets)
    }

    fn advance(&mut self, seq: u64) {
        let next = self.departures.next();
        self.next = next.map(|packet| Departure { seq, due_ns: packet.due_ns, size: packet.size });
    }

    /// Length of the flow in nanoseconds, if it is bounded.
    pub const fn duration_ns(&self) -> Option<u64> {
        self.duration_ns
    }

    /// Returns true if packets leave as quickly as the socket takes them.
    pub const fn unpaced(&self) -> bool {
        self.unpaced
    }

    /// Due time of the next packet, in nanoseconds from the start of the flow; `None` at the end.
    pub fn next_ns(&self) -> Option<u64> {
        self.next.map(|next| next.due_ns + self.shift_ns)
    }

    /// Number of the next packet.
    pub fn next_seq(&self) -> u64 {
        self.next.map_or_else(|| self.departures.taken(), |next| next.seq)
    }

    /// The next packet, when it is due by now.
    pub fn take(&mut self, now_ns: u64) -> Option<Departure> {
        let mut packet = self.next?;
        packet.due_ns += self.shift_ns;
        // A flow that makes up for nothing may come to its end before its last packets.
        if packet.due_ns > 0 && self.duration_ns.is_some_and(|length| packet.due_ns >= length) {
            self.next = None;
            return None;
        }
        if packet.due_ns > now_ns {
            return None;
        }
        if !self.keep_rate {
            self.shift_ns += now_ns - packet.due_ns;
        }
        if self.content.file_len > 0 {
            self.place(&packet);
        }
        self.advance(packet.seq + 1);
        Some(packet)
    }

    /// Gives a packet its piece of the file.
    fn place(&mut self, packet: &Departure) {
        let wanted = packet.size as usize - self.header_len.min(packet.size as usize);
        self.places[place_of(packet)] = self.at;
        let left = self.content.file_len - self.at;
        self.at = if wanted >= left { 0 } else { self.at + wanted };
    }

    /// Payload of a packet behind a header of `used` bytes.
    pub fn carried(&self, packet: &Departure, used: usize) -> &[u8] {
        let len = (packet.size as usize).saturating_sub(used);
        let at = if self.content.file_len > 0 { self.places[place_of(packet)] } else { 0 };
        &self.content.bytes[at..at + len]
    }
}

#[expect(clippy::cast_possible_truncation, reason = "less than 128")]
const fn place_of(packet: &Departure) -> usize {
    (packet.seq % PLACES as u64) as usize
}
