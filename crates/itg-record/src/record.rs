//! One packet, as one side saw it: 40 bytes.
//!
//! Little-endian, no padding, a multiple of 8 bytes, so that records in a block stay aligned. Times
//! are nanoseconds in 64 bits: Unix times last until the year 2554.

use std::mem::{offset_of, size_of};

use itg_core::units::MAX_TIME_NS;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a record.
pub const RECORD_LEN: usize = 40;

/// Bits of [`Record::flags`].
pub mod flag {
    /// `b` is not the kernel's stamp but the time at which the program read the packet.
    pub const USER_STAMP: u16 = 0x10;
    /// The real difference did not fit `delta`: it is `u32::MAX` ns (4.29 s) or more.
    pub const DELTA_SATURATED: u16 = 0x20;
    /// A packet was sent at `b`, but it is not known for when it was planned: `a` means nothing. Logs of
    /// D-ITG have no plan.
    pub const UNPLANNED: u16 = 0x40;
    /// A packet was handed to the kernel `delta` ns before `b`, with the order to let it leave at `b`.
    pub const HELD: u16 = 0x2000;
}

/// Bits of the flags that hold the kind.
const KIND_MASK: u16 = 0x0f;
/// Bits of the flags that hold the number of packets of a run, less one. In record blocks of version 1
/// they mean nothing.
const RUN_MASK: u16 = 0x1f80;
const RUN_SHIFT: u32 = RUN_MASK.trailing_zeros();
/// Most packets that one record stands for.
pub const MAX_RUN: usize = (RUN_MASK >> RUN_SHIFT) as usize + 1;

/// Event that a record tells of, and with it the meaning of its times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// The sender gave a packet to the kernel.
    Sent = 1,
    /// The receiver got a packet.
    Received = 2,
    /// The sender of a round-trip flow got its packet back.
    Echoed = 3,
}

impl Kind {
    const fn from_flags(flags: u16) -> Option<Self> {
        match flags & KIND_MASK {
            1 => Some(Self::Sent),
            2 => Some(Self::Received),
            3 => Some(Self::Echoed),
            _ => None,
        }
    }
}

/// A [`Record`] as it lies in a block: for readers that look at some fields of many.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawRecord {
    pub(crate) flow: U32,
    pub(crate) size: U32,
    pub(crate) seq: U64,
    pub(crate) a: U64,
    pub(crate) b: U64,
    pub(crate) delta: U32,
    pub(crate) flags: U16,
    pub(crate) ttl: u8,
    pub(crate) tos: u8,
}

const _: () = {
    assert!(size_of::<RawRecord>() == RECORD_LEN && RECORD_LEN.is_multiple_of(8));
    assert!(offset_of!(RawRecord, flow) == 0);
    assert!(offset_of!(RawRecord, size) == 4);
    assert!(offset_of!(RawRecord, seq) == 8);
    assert!(offset_of!(RawRecord, a) == 16);
    assert!(offset_of!(RawRecord, b) == 24);
    assert!(offset_of!(RawRecord, delta) == 32);
    assert!(offset_of!(RawRecord, flags) == 36);
    assert!(offset_of!(RawRecord, ttl) == 38);
    assert!(offset_of!(RawRecord, tos) == 39);
};

impl RawRecord {
    /// The number in the place of the kind, when it is none.
    #[inline]
    pub(crate) const fn bad_kind(&self) -> Option<u16> {
        let flags = self.flags.get();
        if Kind::from_flags(flags).is_none() { Some(flags & KIND_MASK) } else { None }
    }

    /// Returns the number of packets that it stands for, in a block of version 2.
    #[inline]
    pub(crate) const fn packets(&self) -> usize {
        ((self.flags.get() & RUN_MASK) >> RUN_SHIFT) as usize + 1
    }

    /// Packet `k` of those it stands for, from 0.
    #[inline]
    pub(crate) const fn packet(&self, k: usize) -> Option<Record> {
        let Some(first) = self.record() else { return None };
        Some(Record {
            // A hostile log may count beyond the last number.
            seq: first.seq.wrapping_add(k as u64),
            flags: first.flags & !RUN_MASK,
            ..first
        })
    }

    /// Number of the flow in this log.
    #[inline]
    #[must_use]
    pub const fn flow(&self) -> u32 {
        self.flow.get()
    }

    /// Size in bytes.
    #[inline]
    #[must_use]
    pub const fn size(&self) -> u32 {
        self.size.get()
    }

    /// Sequence number in its flow.
    #[inline]
    #[must_use]
    pub const fn seq(&self) -> u64 {
        self.seq.get()
    }

    /// Both times, as in [`Record::a`] and [`Record::b`].
    #[inline]
    #[must_use]
    pub const fn times(&self) -> (u64, u64) {
        (self.a.get(), self.b.get())
    }

    /// Nanoseconds, as in [`Record::delta`].
    #[inline]
    #[must_use]
    pub const fn delta(&self) -> u32 {
        self.delta.get()
    }

    /// Returns 0 if the record is of this kind and has none of these [flags](flag).
    #[inline]
    #[must_use]
    pub const fn is_not(&self, kind: Kind, flags: u16) -> u16 {
        (self.flags.get() & (KIND_MASK | flags)) ^ kind as u16
    }

    /// Hop limit and traffic class byte, as in [`Record::ttl`] and [`Record::tos`].
    #[inline]
    #[must_use]
    pub const fn marks(&self) -> (u8, u8) {
        (self.ttl, self.tos)
    }

    /// The record; `None` where it has no kind. Kinds are checked with the block: then the file has been
    /// changed since.
    #[inline]
    #[must_use]
    pub const fn record(&self) -> Option<Record> {
        let flags = self.flags.get();
        let Some(kind) = Kind::from_flags(flags) else { return None };
        Some(Record {
            flow: self.flow.get(),
            size: self.size.get(),
            seq: self.seq.get(),
            kind,
            a: self.a.get(),
            b: self.b.get(),
            delta: self.delta.get(),
            flags: flags & !KIND_MASK,
            ttl: self.ttl,
            tos: self.tos,
        })
    }
}

/// One packet, as one side saw it.
///
/// | kind | `a` | `b` | `delta` |
/// |---|---|---|---|
/// | [`Kind::Sent`] | planned time, ns from the flow's start | sent, just before the kernel call; with [`flag::HELD`], when it is to leave | 0; with [`flag::HELD`], handed over so many ns before |
/// | [`Kind::Received`] | sent, as the packet says (sender's clock); 0: too short to say | arrived | read − arrived, ns |
/// | [`Kind::Echoed`] | sent | the reply arrived | read − arrived, ns |
///
/// Times without another reference are Unix nanoseconds of the clock of the side that logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Number of the flow in this log (`FlowInfo::index`).
    pub flow: u32,
    /// Size in bytes, ITG's header included, headers of the protocols below excluded.
    pub size: u32,
    /// Sequence number in its flow, from 0.
    pub seq: u64,
    /// Event that the record tells of.
    pub kind: Kind,
    /// First time; see the table.
    pub a: u64,
    /// Second time; see the table.
    pub b: u64,
    /// Nanoseconds between arrival and reading; `u32::MAX` when longer (then flagged).
    pub delta: u32,
    /// Bits of [`flag`]; the places of the kind (`0x000f`) and of the length of a run (`0x1f80`) are not
    /// written from here.
    pub flags: u16,
    /// IPv4 time to live or IPv6 hop limit of the packet as it arrived; 0 when not known.
    pub ttl: u8,
    /// Traffic class byte (DSCP and ECN) of the packet as it arrived; 0 when not known.
    pub tos: u8,
}

/// A packet as its sender gave it to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentPacket {
    /// Index of the flow in this log.
    pub flow: u32,
    /// Sequence number of the packet, from 0.
    pub seq: u64,
    /// Bytes of payload, ITG's header included.
    pub size: u32,
    /// Planned departure, in nanoseconds after the flow's start.
    pub planned_ns: u64,
    /// Unix time at which it was handed over, in nanoseconds.
    pub sent_ns: u64,
}

/// A packet as it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedPacket {
    /// Index of the flow in this log.
    pub flow: u32,
    /// Sequence number of the packet, from 0.
    pub seq: u64,
    /// Bytes of payload, ITG's header included.
    pub size: u32,
    /// Unix time in nanoseconds on the sender's clock; 0 when the packet was too short to say so.
    pub sent_ns: u64,
    /// Unix time of the arrival, in nanoseconds.
    pub arrived_ns: u64,
    /// Unix time at which the program read it, in nanoseconds.
    pub read_ns: u64,
    /// IPv4 time to live or IPv6 hop limit; 0 when not known.
    pub ttl: u8,
    /// Traffic class byte (DSCP and ECN); 0 when not known.
    pub tos: u8,
}

impl Record {
    /// A packet that the sender gave to the kernel.
    #[inline]
    #[must_use]
    pub const fn sent(packet: SentPacket) -> Self {
        let SentPacket { flow, seq, size, planned_ns, sent_ns } = packet;
        let kind = Kind::Sent;
        Self {
            flow,
            size,
            seq,
            kind,
            a: planned_ns,
            b: sent_ns,
            delta: 0,
            flags: 0,
            ttl: 0,
            tos: 0,
        }
    }

    /// The same for a packet that the kernel is told to let leave at `sent_ns`, and is given
    /// `ahead_ns` before.
    #[inline]
    #[must_use]
    pub const fn held(packet: SentPacket, ahead_ns: u64) -> Self {
        let (delta, flags) = saturate(ahead_ns);
        Self { delta, flags: flags | flag::HELD, ..Self::sent(packet) }
    }

    /// A packet that the receiver got.
    ///
    /// A reading time before the arrival (two clocks, or a clock that was set) counts as 0 between.
    #[inline]
    #[must_use]
    pub const fn received(packet: ReceivedPacket) -> Self {
        let ReceivedPacket { flow, seq, size, sent_ns, arrived_ns, read_ns, ttl, tos } = packet;
        let (delta, flags) = saturate(read_ns.saturating_sub(arrived_ns));
        let kind = Kind::Received;
        Self { flow, size, seq, kind, a: sent_ns, b: arrived_ns, delta, flags, ttl, tos }
    }

    /// A packet that came back to the sender of a round-trip flow; all times are of its clock.
    ///
    /// A reading time before the arrival counts as 0 between.
    #[inline]
    #[must_use]
    pub const fn echoed(packet: ReceivedPacket) -> Self {
        Self { kind: Kind::Echoed, ..Self::received(packet) }
    }

    /// Returns true if its times are at most [`MAX_TIME_NS`]: later ones were made up, or are damaged.
    #[inline]
    #[must_use]
    pub const fn has_good_times(&self) -> bool {
        let planned = self.flags & flag::UNPLANNED == 0;
        self.b <= MAX_TIME_NS && (self.a <= MAX_TIME_NS || !planned)
    }

    /// As [`Record::raw`], for `packets` packets: from 1 to [`MAX_RUN`].
    #[inline]
    pub(crate) fn raw_run(&self, packets: usize) -> RawRecord {
        let mut raw = self.raw();
        let more = u16::try_from(packets - 1).expect("compared with MAX_RUN before");
        raw.flags = U16::new(raw.flags.get() | more << RUN_SHIFT);
        raw
    }

    /// The record as it lies in a block.
    #[inline]
    #[must_use]
    pub const fn raw(&self) -> RawRecord {
        RawRecord {
            flow: U32::new(self.flow),
            size: U32::new(self.size),
            seq: U64::new(self.seq),
            a: U64::new(self.a),
            b: U64::new(self.b),
            delta: U32::new(self.delta),
            flags: U16::new(self.flags & !(KIND_MASK | RUN_MASK) | self.kind as u16),
            ttl: self.ttl,
            tos: self.tos,
        }
    }
}

/// A time in the 32 bits of `delta`, and the flag that says when it did not fit.
#[allow(clippy::cast_possible_truncation, reason = "compared with the bound just before")]
const fn saturate(ns: u64) -> (u32, u16) {
    if ns > u32::MAX as u64 { (u32::MAX, flag::DELTA_SATURATED) } else { (ns as u32, 0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_lie_where_the_table_says() {
        let mut record = Record::received(ReceivedPacket {
            flow: 0x0403_0201,
            seq: 7,
            size: 512,
            sent_ns: 9,
            arrived_ns: 1_000,
            read_ns: 1_000 + 0x0102_0304,
            ttl: 64,
            tos: 0xb8,
        });
        record.flags |= flag::USER_STAMP;
        let want: [&[u8]; 9] = [
            &[1, 2, 3, 4],
            &[0, 2, 0, 0],
            &[7, 0, 0, 0, 0, 0, 0, 0],
            &[9, 0, 0, 0, 0, 0, 0, 0],
            &[0xe8, 3, 0, 0, 0, 0, 0, 0],
            &[4, 3, 2, 1],
            &[0x12, 0],
            &[64],
            &[0xb8],
        ];
        assert_eq!(record.raw().as_bytes(), want.concat());
        assert_eq!(record.raw().record(), Some(record));
    }

    #[test]
    fn constructors_fill_in_kind_and_delta() {
        let sent = Record::sent(SentPacket { flow: 1, seq: 2, size: 3, planned_ns: 4, sent_ns: 5 });
        assert_eq!((sent.kind, sent.a, sent.b, sent.delta, sent.flags), (Kind::Sent, 4, 5, 0, 0));
        let max = u64::from(u32::MAX);
        for (arrived, read, delta, flags) in [
            (10, 10, 0, 0),
            (10, 9, 0, 0),
            (10, 10 + max, u32::MAX, 0),
            (10, 11 + max, u32::MAX, flag::DELTA_SATURATED),
            (0, u64::MAX, u32::MAX, flag::DELTA_SATURATED),
        ] {
            let received = Record::received(ReceivedPacket {
                flow: 1,
                seq: 2,
                size: 3,
                sent_ns: 4,
                arrived_ns: arrived,
                read_ns: read,
                ttl: 63,
                tos: 1,
            });
            assert_eq!((received.delta, received.flags), (delta, flags), "{arrived} to {read}");
            let echoed = Record::echoed(ReceivedPacket {
                flow: 1,
                seq: 2,
                size: 3,
                sent_ns: 4,
                arrived_ns: arrived,
                read_ns: read,
                ttl: 63,
                tos: 1,
            });
            assert_eq!(echoed, Record { kind: Kind::Echoed, ..received });
        }
    }

    #[test]
    fn kind_and_run_are_never_overwritten_by_flags() {
        let record = Record {
            flags: 0xffff,
            ..Record::sent(SentPacket { flow: 1, seq: 2, size: 3, planned_ns: 4, sent_ns: 5 })
        };
        let back = record.raw().record().expect("a kind");
        assert_eq!((back.kind, back.flags, record.raw().packets()), (Kind::Sent, 0xe070, 1));
        let run = record.raw_run(MAX_RUN);
        let last = run.packet(63).expect("a kind");
        assert_eq!((run.packets(), last.seq, last.flags), (64, 65, 0xe070));
    }
}
