//! D-ITG's logs: a plain sequence of records of 144 bytes, without header, magic or date.
//!
//! Integers are in the byte order of the host that wrote the log; the same record in network order,
//! with times re-coded, travels to D-ITG's log server. A trailing part of a record is ignored.
//! Bytes behind the NUL of an address are unspecified: they are not read, and written as 0.
//! Byte tables: `docs/d-itg.md`.

mod convert;
mod text;

pub use convert::{
    KnownFlow, MIDNIGHT_NS, Packet, Told, UNNUMBERED, is_log, is_of_departures, later_of, to_itg,
    to_itg_as,
};
pub use text::{TextError, TextLog};

/// Bytes of a record, in a file and in transit.
pub const RECORD_LEN: usize = 144;
/// Bytes of an address field.
pub const ADDRESS_LEN: usize = 46;

/// An address as the log has it: text of at most 46 bytes, not necessarily an address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address([u8; ADDRESS_LEN]);

impl Address {
    /// The first 46 bytes of `text`, up to a NUL.
    #[must_use]
    pub fn new(text: &[u8]) -> Self {
        let end = text.iter().position(|&b| b == 0).unwrap_or(text.len()).min(ADDRESS_LEN);
        let mut bytes = [0; ADDRESS_LEN];
        bytes[..end].copy_from_slice(&text[..end]);
        Self(bytes)
    }

    /// The text, without NUL.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        let end = self.0.iter().position(|&b| b == 0).unwrap_or(ADDRESS_LEN);
        &self.0[..end]
    }

    /// The text as summaries and text logs have it: control characters, which no address has, become
    /// `?`, so that they do nothing to a terminal.
    pub(crate) fn shown(&self) -> impl ExactSizeIterator<Item = u8> + '_ {
        self.as_bytes().iter().map(|&byte| if byte.is_ascii_control() { b'?' } else { byte })
    }

    /// The text for messages and file names: what cannot be part of an address, a path separator
    /// above all, becomes `_`.
    #[must_use]
    pub fn safe(&self) -> String {
        let safe = |&b: &u8| {
            if b.is_ascii_alphanumeric() || b".:%-".contains(&b) { char::from(b) } else { '_' }
        };
        self.as_bytes().iter().map(safe).collect()
    }
}

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.as_bytes().escape_ascii())
    }
}

/// A time of day (UTC). A log may hold any numbers; see [`Stamp::is_good`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stamp {
    /// Hour.
    pub hour: u32,
    /// Minute.
    pub minute: u32,
    /// Second and its fraction.
    pub second: f64,
}

impl Stamp {
    /// The time of day, from seconds since midnight and microseconds.
    #[must_use]
    pub fn from_day(seconds: u32, micros: u32) -> Self {
        let second = f64::from(seconds % 60) + f64::from(micros) / 1_000_000.0;
        Self { hour: seconds / 3600, minute: seconds % 3600 / 60, second }
    }

    /// Seconds since midnight.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        let whole = self.hour.wrapping_mul(3600).wrapping_add(self.minute.wrapping_mul(60));
        f64::from(whole) + self.second
    }

    /// Returns true if ITGDec takes it for a time: it allows hour 24.
    #[must_use]
    pub fn is_good(&self) -> bool {
        // A second that is not a number passes, as it does there.
        let bad = self.second < 0.0 || self.second > 59.999_999;
        self.hour <= 24 && self.minute <= 59 && !bad
    }

    /// Seconds since midnight and microseconds, as they travel to a log server: rounded. D-ITG
    /// truncates, which costs a microsecond every second time.
    #[must_use]
    pub fn to_day(&self) -> (u32, u32) {
        let second = if self.second.is_finite() { self.second.clamp(0.0, 60.0) } else { 0.0 };
        let whole = self.hour.wrapping_mul(3600).wrapping_add(self.minute.wrapping_mul(60));
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 60e6")]
        let micros = (second * 1e6).round() as u32;
        (whole.wrapping_add(micros / 1_000_000), micros % 1_000_000)
    }
}

/// One packet, as one side logged it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogRecord {
    /// Number of the flow.
    pub flow: u32,
    /// Sequence number, from 1; 0 when the packet carried none.
    pub seq: u32,
    /// Source port.
    pub src_port: u32,
    /// Destination port.
    pub dst_port: u32,
    /// Sent.
    pub tx: Stamp,
    /// Received; the time of sending in the log of a one-way sender.
    pub rx: Stamp,
    /// Bytes of payload.
    pub size: u32,
    /// Source address.
    pub src: Address,
    /// Destination address.
    pub dst: Address,
}

/// Reads the four bytes at `at`.
fn word(bytes: &[u8; RECORD_LEN], at: usize) -> [u8; 4] {
    [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]
}

fn real(bytes: &[u8; RECORD_LEN], at: usize) -> f64 {
    let mut raw = [0; 8];
    raw.copy_from_slice(&bytes[at..at + 8]);
    f64::from_le_bytes(raw)
}

impl LogRecord {
    /// Reads a record of a file of a little-endian host. Any bytes are a record.
    #[must_use]
    pub fn parse(bytes: &[u8; RECORD_LEN]) -> Self {
        let int = |at| u32::from_le_bytes(word(bytes, at));
        Self {
            flow: int(0),
            seq: int(4),
            src_port: int(8),
            dst_port: int(12),
            tx: Stamp { hour: int(16), minute: int(20), second: real(bytes, 128) },
            rx: Stamp { hour: int(24), minute: int(28), second: real(bytes, 136) },
            size: int(32),
            src: Address::new(&bytes[36..82]),
            dst: Address::new(&bytes[82..128]),
        }
    }

    /// The record as it lies in a file of a little-endian host.
    #[must_use]
    pub fn emit(&self) -> [u8; RECORD_LEN] {
        let mut bytes = [0; RECORD_LEN];
        let Self { tx, rx, .. } = self;
        let words = [self.flow, self.seq, self.src_port, self.dst_port];
        let times = [tx.hour, tx.minute, rx.hour, rx.minute, self.size];
        for (at, value) in words.into_iter().chain(times).enumerate() {
            bytes[4 * at..4 * at + 4].copy_from_slice(&value.to_le_bytes());
        }
        bytes[36..82].copy_from_slice(&self.src.0);
        bytes[82..128].copy_from_slice(&self.dst.0);
        bytes[128..136].copy_from_slice(&tx.second.to_le_bytes());
        bytes[136..144].copy_from_slice(&rx.second.to_le_bytes());
        bytes
    }

    /// Reads a record on its way to a log server: network order, times as seconds since midnight
    /// and microseconds. Any bytes are a record.
    #[must_use]
    pub fn parse_transit(bytes: &[u8; RECORD_LEN]) -> Self {
        let int = |at| u32::from_be_bytes(word(bytes, at));
        Self {
            flow: int(0),
            seq: int(4),
            src_port: int(8),
            dst_port: int(12),
            tx: Stamp::from_day(int(16), int(20)),
            rx: Stamp::from_day(int(24), int(28)),
            size: int(32),
            src: Address::new(&bytes[36..82]),
            dst: Address::new(&bytes[82..128]),
        }
    }

    /// The record as it travels to a log server.
    #[must_use]
    pub fn emit_transit(&self) -> [u8; RECORD_LEN] {
        let mut bytes = [0; RECORD_LEN];
        let (tx, rx) = (self.tx.to_day(), self.rx.to_day());
        let words = [self.flow, self.seq, self.src_port, self.dst_port];
        let times = [tx.0, tx.1, rx.0, rx.1, self.size];
        for (at, value) in words.into_iter().chain(times).enumerate() {
            bytes[4 * at..4 * at + 4].copy_from_slice(&value.to_be_bytes());
        }
        bytes[36..82].copy_from_slice(&self.src.0);
        bytes[82..128].copy_from_slice(&self.dst.0);
        bytes
    }

    /// Returns true if ITGDec counts this record; it calls others error lines.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.tx.is_good() && self.rx.is_good()
    }

    /// Receive time minus send time, in seconds.
    #[must_use]
    pub fn delay(&self) -> f64 {
        self.rx.seconds() - self.tx.seconds()
    }
}

/// The records of a binary log; bytes that do not fill one are left out.
pub fn records(log: &[u8]) -> impl ExactSizeIterator<Item = LogRecord> + Clone + '_ {
    log.as_chunks::<RECORD_LEN>().0.iter().map(LogRecord::parse)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The record of the reference's hexdump.
    fn sample() -> LogRecord {
        LogRecord {
            flow: 1,
            seq: 1,
            src_port: 34782,
            dst_port: 8999,
            tx: Stamp { hour: 7, minute: 40, second: 48.378_428 },
            rx: Stamp { hour: 7, minute: 40, second: 48.378_516 },
            size: 100,
            src: Address::new(b"127.0.0.1"),
            dst: Address::new(b"127.0.0.1\0rubbish"),
        }
    }

    #[test]
    fn fields_lie_where_the_table_says() {
        let bytes = sample().emit();
        assert_eq!(bytes[..16], [1, 0, 0, 0, 1, 0, 0, 0, 0xde, 0x87, 0, 0, 0x27, 0x23, 0, 0]);
        assert_eq!(bytes[16..36], [7, 0, 0, 0, 40, 0, 0, 0, 7, 0, 0, 0, 40, 0, 0, 0, 100, 0, 0, 0]);
        assert_eq!(&bytes[36..46], b"127.0.0.1\0");
        assert_eq!(&bytes[82..92], b"127.0.0.1\0");
        assert_eq!(bytes[128..136], [0x02, 0xf2, 0x25, 0x54, 0x70, 0x30, 0x48, 0x40]);
        assert_eq!(bytes[136..], [0xa1, 0x81, 0x58, 0x36, 0x73, 0x30, 0x48, 0x40]);
        assert_eq!(LogRecord::parse(&bytes), sample());
    }

    #[test]
    fn m6_transit_keeps_the_microsecond() {
        for micros in [0, 1, 9, 123_457, 378_428, 999_999] {
            for seconds in [0, 59, 86_399] {
                let stamp = Stamp::from_day(seconds, micros);
                assert_eq!(stamp.to_day(), (seconds, micros), "{stamp:?}");
            }
        }
        let record = sample();
        let back = LogRecord::parse_transit(&record.emit_transit());
        assert!((back.tx.seconds() - record.tx.seconds()).abs() < 1e-9);
        assert_eq!(LogRecord { tx: record.tx, rx: record.rx, ..back }, record);
        assert_eq!(&record.emit_transit()[16..20], &(7 * 3600 + 40 * 60 + 48_u32).to_be_bytes());
    }

    #[test]
    fn hostile_names_cannot_leave_the_folder() {
        for (text, want) in [
            (&b"127.0.0.1"[..], "127.0.0.1"),
            (b"fe80::1%eth0", "fe80::1%eth0"),
            (b"../../etc/x", ".._.._etc_x"),
            (b"a b\xff\n", "a_b__"),
        ] {
            assert_eq!(Address::new(text).safe(), want);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_record(bytes in proptest::collection::vec(any::<u8>(), RECORD_LEN)) {
            let bytes: [u8; RECORD_LEN] = bytes.try_into().expect("as long");
            let again = LogRecord::parse(&bytes).emit();
            prop_assert_eq!(LogRecord::parse(&again).emit(), again);
            let transit = LogRecord::parse_transit(&bytes).emit_transit();
            prop_assert_eq!(transit.len(), RECORD_LEN);
        }
    }
}
