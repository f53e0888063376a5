//! Logs of D-ITG as logs of ITG, and back.
//!
//! A log of D-ITG has no date, no plan and does not say which side wrote it. Times count from
//! [`MIDNIGHT_NS`]; one that goes back by more than half a day has passed midnight. Records whose
//! times of sending and receiving are all equal are a sender's, others a receiver's (or those of a
//! round trip, which look the same).

use std::collections::BTreeMap;

use itg_core::distribution::{Distribution, Unit};
use itg_core::flow::FlowSpec;
use itg_record::{
    BlockBuf, FlowInfo, LOG_SCHEMA, LogBuilder, LogInfo, Note, ReceivedPacket, Record, SentPacket,
    Side, flag,
};

use super::{Address, LogRecord, RECORD_LEN, Stamp, records};
use crate::dec::FlowKey;

/// Unix time that stands for the midnight before a log's first packet: 2 January 1970, since the log
/// has no date.
pub const MIDNIGHT_NS: u64 = DAY_NS;

const DAY_NS: u64 = 86_400_000_000_000;
const HALF_DAY_NS: u64 = DAY_NS / 2;
const BLOCK_RECORDS: usize = 4096;
/// Records that are looked at to tell a log of D-ITG from something else.
const LOOKED_AT: usize = 16;

/// The notice of flows whose packets carry no numbers (`-p 2`).
pub const UNNUMBERED: &str =
    "packets carry no numbers: they are numbered as they come, loss is unseen";

/// Returns true if `bytes` are a log of D-ITG, as far as that can be told: whole records at the
/// start, with times of day, ports and addresses.
#[must_use]
pub fn is_log(bytes: &[u8]) -> bool {
    let fits = |record: &LogRecord| {
        let port = |port: u32| port <= 65_535;
        let address = |address: &Address| {
            let text = address.as_bytes();
            text.len() >= 2
                && text.iter().all(|b| b.is_ascii_alphanumeric() || b":.%-_".contains(b))
        };
        record.is_good()
            && port(record.src_port)
            && port(record.dst_port)
            && address(&record.src)
            && address(&record.dst)
    };
    let first = &bytes[..bytes.len().min(LOOKED_AT * RECORD_LEN)];
    let good = records(first).filter(fits).count();
    // Some may be error lines.
    good > 0 && good * 2 >= records(first).len()
}

/// Nanoseconds since midnight.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a good stamp")]
fn nanoseconds(stamp: &Stamp) -> u64 {
    // The log holds whole microseconds, as a fraction of a second.
    let micros = (stamp.second * 1e6).round() as u64;
    let whole = u64::from(stamp.hour) * 3600 + u64::from(stamp.minute) * 60;
    (whole * 1_000_000 + micros) * 1000
}

/// The time of the day `ns` that lies nearest to `near`.
const fn unwrap(ns: u64, near: u64) -> u64 {
    let day = near / DAY_NS * DAY_NS;
    let here = day + ns % DAY_NS;
    if here > near + HALF_DAY_NS && here >= DAY_NS {
        here - DAY_NS
    } else if here + HALF_DAY_NS < near {
        here + DAY_NS
    } else {
        here
    }
}

/// State of a flow of the log during conversion.
struct Flow {
    index: u32,
    /// Packets so far, for those without numbers.
    packets: u64,
    numbered: bool,
}

/// The log of ITG that says the same as `log`, a log of D-ITG.
#[must_use]
pub fn to_itg(log: &[u8]) -> Vec<u8> {
    let good = || records(log).filter(LogRecord::is_good);
    let side =
        if good().all(|record| record.tx == record.rx) { Side::Sender } else { Side::Receiver };
    let mut flows: BTreeMap<FlowKey, Flow> = BTreeMap::new();
    let mut ids: BTreeMap<u32, u32> = BTreeMap::new();
    for record in good() {
        let next = u32::try_from(flows.len() + 1).unwrap_or(u32::MAX);
        let flow = flows.entry(FlowKey::of(&record)).or_insert_with(|| {
            *ids.entry(record.flow).or_default() += 1;
            Flow { index: next, packets: 0, numbered: true }
        });
        flow.numbered &= record.seq > 0;
    }
    let left_out = records(log).len() - good().count();
    let tail = log.len() % RECORD_LEN;
    let mut builder = LogBuilder::new(1);
    let start = good().next().map_or(0, |record| MIDNIGHT_NS + nanoseconds(&record.rx));
    let mut out = builder.note(&Note::Log(LogInfo {
        schema: LOG_SCHEMA,
        side,
        program: "D-ITG".to_owned(),
        version: "2.8.1".to_owned(),
        host: String::new(),
        os: String::new(),
        boot_id: String::new(),
        pid: 0,
        started_unix_ns: start,
        run: String::new(),
        seed: None,
        settings: BTreeMap::new(),
        block_records: u32::try_from(BLOCK_RECORDS).unwrap_or(u32::MAX),
    }));
    let mut in_order: Vec<_> = flows.iter().collect();
    in_order.sort_by_key(|(_, flow)| flow.index);
    for (key, flow) in in_order {
        let mut info = describe(key, flow, ids[&key.flow] > 1);
        if flow.index == 1 && left_out + tail > 0 {
            info.notices.push(format!(
                "{left_out} records of the log hold no times of day and {tail} bytes at its end no \
                 record: they are left out"
            ));
        }
        out.extend(builder.note(&Note::Flow(info)));
    }
    let mut buf = BlockBuf::new(BLOCK_RECORDS);
    let mut latest = start;
    for record in good() {
        let Some(flow) = flows.get_mut(&FlowKey::of(&record)) else { continue };
        let rx = unwrap(nanoseconds(&record.rx), latest);
        latest = latest.max(rx);
        let tx = unwrap(nanoseconds(&record.tx), rx);
        let seq = if flow.numbered { u64::from(record.seq) - 1 } else { flow.packets };
        flow.packets += 1;
        buf.push(&match side {
            Side::Sender => {
                let sent = Record::sent(SentPacket {
                    flow: flow.index,
                    seq,
                    size: record.size,
                    planned_ns: 0,
                    sent_ns: tx,
                });
                Record { flags: flag::UNPLANNED, ..sent }
            }
            Side::Receiver => {
                let got = Record::received(ReceivedPacket {
                    flow: flow.index,
                    seq,
                    size: record.size,
                    sent_ns: tx,
                    arrived_ns: rx,
                    read_ns: rx,
                    ttl: 0,
                    tos: 0,
                });
                Record { flags: flag::USER_STAMP, ..got }
            }
        });
        if buf.is_full() {
            out.extend_from_slice(builder.seal(&mut buf));
            buf.clear();
        }
    }
    if !buf.is_empty() {
        out.extend_from_slice(builder.seal(&mut buf));
    }
    out.extend(builder.end(0));
    out
}

/// Describes a flow as far as the log tells. Flows that share a number, of several senders, are
/// told apart by their run.
fn describe(key: &FlowKey, flow: &Flow, shared: bool) -> FlowInfo {
    let end = |address: &Address, port: u32| {
        let text = String::from_utf8_lossy(address.as_bytes()).into_owned();
        if text.contains(':') { format!("[{text}]:{port}") } else { format!("{text}:{port}") }
    };
    let (src, dst) = (end(&key.src, key.src_port), end(&key.dst, key.dst_port));
    let mut notices = vec![
        "from a log of D-ITG: it has no date (times count from 2 January 1970) and tells neither \
         transport nor plan"
            .to_owned(),
    ];
    if !flow.numbered {
        notices.push(UNNUMBERED.to_owned());
    }
    // Unknown distributions: no plan is computed from them.
    let unknown = |unit| Distribution::Empirical { name: "D-ITG".to_owned(), unit, table: None };
    FlowInfo {
        changes: Vec::new(),
        index: flow.index,
        flow: key.flow,
        name: None,
        run: if shared { format!("d-itg {src} {dst}") } else { "d-itg".to_owned() },
        seed: 0,
        spec: FlowSpec {
            idt: unknown(Unit::Time),
            size: unknown(Unit::Size),
            ..FlowSpec::new(key.flow)
        },
        src,
        dst,
        epoch_unix_ns: 0,
        sender_boot_id: String::new(),
        receiver_boot_id: String::new(),
        notices,
    }
}

/// A packet for a log of D-ITG. Times are Unix nanoseconds; only the time of day is kept.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Flow.
    pub flow: u32,
    /// Sequence number, from 0.
    pub seq: u64,
    /// Bytes.
    pub size: u32,
    /// Source: address and port.
    pub src: &'a str,
    /// Destination: address and port.
    pub dst: &'a str,
    /// Sent; the time of arrival when not known.
    pub sent_ns: Option<u64>,
    /// Arrived; the time of sending in a sender's log.
    pub arrived_ns: Option<u64>,
}

impl Packet<'_> {
    /// The record of D-ITG; `None` when no time is known. Numbers above 32 bits wrap, as D-ITG's
    /// would.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "32 bits, as in D-ITG")]
    pub fn record(&self) -> Option<LogRecord> {
        let rx = self.arrived_ns.or(self.sent_ns)?;
        let tx = self.sent_ns.unwrap_or(rx);
        let stamp = |ns: u64| {
            let micros = ns / 1000 % (DAY_NS / 1000);
            Stamp::from_day((micros / 1_000_000) as u32, (micros % 1_000_000) as u32)
        };
        let (src, src_port) = endpoint(self.src);
        let (dst, dst_port) = endpoint(self.dst);
        Some(LogRecord {
            flow: self.flow,
            seq: self.seq.wrapping_add(1) as u32,
            src_port,
            dst_port,
            tx: stamp(tx),
            rx: stamp(rx),
            size: self.size,
            src,
            dst,
        })
    }
}

/// Address and port of `10.0.0.1:8999`, `[::1]:8999`, or an address alone.
fn endpoint(text: &str) -> (Address, u32) {
    let (address, port) = match text.rsplit_once(':') {
        Some((address, port)) if address.starts_with('[') || !address.contains(':') => {
            (address, port.parse().unwrap_or(0))
        }
        _ => (text, 0),
    };
    (Address::new(address.trim_matches(['[', ']']).as_bytes()), port)
}
