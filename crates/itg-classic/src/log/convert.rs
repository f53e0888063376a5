//! Logs of D-ITG as logs of ITG, and back.
//!
//! A log of D-ITG has no date, no plan and does not say which side wrote it. Times count from
//! [`MIDNIGHT_NS`], or from the date of a log of ITG that has the same flow; one that goes back by more than half a
//! day has passed midnight. Records whose times of sending and receiving are all equal are a sender's, others a
//! receiver's, or those of round trips, which look the same: [`Told`] says what else is known.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use itg_core::distribution::{Distribution, Unit};
use itg_core::flow::{FlowSpec, Meter, Proto};
use itg_record::{
    BlockBuf, DitgFlow, FlowInfo, LOG_SCHEMA, LogBuilder, LogInfo, Note, ReceivedPacket, Record,
    SentPacket, Side, flag,
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

/// The log of ITG that says the same as `log`, a log of D-ITG of which nothing else is known.
#[must_use]
pub fn to_itg(log: &[u8]) -> Vec<u8> {
    to_itg_as(log, &Told::default())
}

/// The log of ITG that says the same as `log`, a log of D-ITG, and what is told of it.
#[must_use]
pub fn to_itg_as(log: &[u8], told: &Told) -> Vec<u8> {
    let good = || records(log).filter(LogRecord::is_good);
    let sent = is_of_departures(log);
    let mut beside: BTreeMap<FlowKey, Option<&KnownFlow>> = BTreeMap::new();
    for record in good() {
        let key = FlowKey::of(&record);
        beside.entry(key).or_insert_with(|| told.known(&key, nanoseconds(&record.rx)));
    }
    // Two logs of one flow are of its two sides.
    let beside_receiver = beside.values().flatten().any(|flow| flow.side == Side::Receiver);
    let replies = !sent
        && match told.side {
            Some(side) => side == Side::Sender,
            None => told.meter == Some(Meter::Rtt) || beside_receiver,
        };
    let side = if sent || replies { Side::Sender } else { Side::Receiver };
    let mut flows = flows_of(good());
    let mut ids: BTreeMap<u32, u32> = BTreeMap::new();
    flows.keys().for_each(|key| *ids.entry(key.flow).or_default() += 1);
    let left_out = records(log).len() - good().count();
    let tail = log.len() % RECORD_LEN;
    let mut builder = LogBuilder::new(1);
    let dated = good().find_map(|record| {
        let flow = beside.get(&FlowKey::of(&record)).copied().flatten()?;
        Some(unwrap(nanoseconds(&record.rx), flow.near_unix_ns))
    });
    let start = good().next().map_or(0, |record| {
        let ns = nanoseconds(&record.rx);
        dated.map_or(MIDNIGHT_NS + ns, |near| unwrap(ns, near))
    });
    let mut out = builder.note(&head(side, start));
    let mut in_order: Vec<_> = flows.iter().collect();
    in_order.sort_by_key(|(_, flow)| flow.index);
    for (key, flow) in in_order {
        let beside = beside.get(key).copied().flatten();
        let mut info = told.describe(key, flow, ids[&key.flow] > 1, side, beside);
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
        let packet = ReceivedPacket {
            flow: flow.index,
            seq,
            size: record.size,
            sent_ns: tx,
            arrived_ns: rx,
            read_ns: rx,
            ttl: 0,
            tos: 0,
        };
        buf.push(&record_of(packet, side, replies));
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

/// Flows of these records, numbered as they first occur.
fn flows_of(records: impl Iterator<Item = LogRecord>) -> BTreeMap<FlowKey, Flow> {
    let mut flows: BTreeMap<FlowKey, Flow> = BTreeMap::new();
    for record in records {
        let index = u32::try_from(flows.len() + 1).unwrap_or(u32::MAX);
        let new = || Flow { index, packets: 0, numbered: true };
        flows.entry(FlowKey::of(&record)).or_insert_with(new).numbered &= record.seq > 0;
    }
    flows
}

/// Beginning of the log.
fn head(side: Side, started_unix_ns: u64) -> Note {
    Note::Log(LogInfo {
        schema: LOG_SCHEMA,
        side,
        program: "D-ITG".to_owned(),
        version: "2.8.1".to_owned(),
        host: String::new(),
        os: String::new(),
        boot_id: String::new(),
        pid: 0,
        started_unix_ns,
        run: String::new(),
        seed: None,
        settings: BTreeMap::new(),
        block_records: u32::try_from(BLOCK_RECORDS).unwrap_or(u32::MAX),
        part: None,
    })
}

/// Record of a packet in a log of this side; `replies` are in logs of the senders of round trips.
fn record_of(packet: ReceivedPacket, side: Side, replies: bool) -> Record {
    match side {
        Side::Sender if replies => {
            let back = Record::echoed(packet);
            Record { flags: back.flags | flag::USER_STAMP, ..back }
        }
        Side::Sender => {
            let ReceivedPacket { flow, seq, size, sent_ns, .. } = packet;
            let sent = Record::sent(SentPacket { flow, seq, size, planned_ns: 0, sent_ns });
            Record { flags: flag::UNPLANNED, ..sent }
        }
        Side::Receiver => Record { flags: flag::USER_STAMP, ..Record::received(packet) },
    }
}

/// Facts about a log of D-ITG that are not in it.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// Transport of its flows.
    pub proto: Option<Proto>,
    /// Delay that its flows measure.
    pub meter: Option<Meter>,
    /// Side of a log of round trips, where the log of the other side is given too; see [`later_of`].
    pub side: Option<Side>,
    /// Flows of logs of ITG beside it.
    pub flows: Arc<[KnownFlow]>,
}

/// A flow of a log of ITG, of which a log of D-ITG may be the other side's.
#[derive(Clone, Debug)]
pub struct KnownFlow {
    /// Its description.
    pub info: FlowInfo,
    /// Side of its log.
    pub side: Side,
    /// Time of its first packet, in Unix nanoseconds.
    pub near_unix_ns: u64,
}

impl KnownFlow {
    /// Returns true if a flow of D-ITG is this one, by number, addresses and ports; a port of 0 is not known.
    fn is(&self, key: &FlowKey) -> bool {
        let same = |text: &str, address: &Address, port: u32| {
            let (own, own_port) = endpoint(text);
            let ip = |address: &Address| {
                let text = String::from_utf8_lossy(address.as_bytes()).into_owned();
                text.parse::<IpAddr>().map(|ip| ip.to_canonical())
            };
            let hosts = match (ip(&own), ip(address)) {
                (Ok(own), Ok(ip)) => own == ip,
                _ => own == *address,
            };
            hosts && (own_port == port || own_port == 0 || port == 0)
        };
        self.info.flow == key.flow
            && same(&self.info.src, &key.src, key.src_port)
            && same(&self.info.dst, &key.dst, key.dst_port)
    }
}

impl Told {
    /// The flow of ITG that a flow of D-ITG is whose packet came at this time of day: the nearest in time, if there are
    /// several.
    fn known(&self, key: &FlowKey, day_ns: u64) -> Option<&KnownFlow> {
        let apart =
            |flow: &&KnownFlow| unwrap(day_ns, flow.near_unix_ns).abs_diff(flow.near_unix_ns);
        self.fitting(key).min_by_key(apart)
    }

    /// The flows of ITG that a flow of D-ITG may be.
    fn fitting(&self, key: &FlowKey) -> impl Iterator<Item = &KnownFlow> {
        self.flows.iter().filter(|flow| flow.is(key))
    }

    /// Describes a flow as far as the log, and what is told of it, tell. Flows that share a number, of several senders,
    /// are told apart by their run.
    fn describe(
        &self,
        key: &FlowKey,
        flow: &Flow,
        shared: bool,
        side: Side,
        beside: Option<&KnownFlow>,
    ) -> FlowInfo {
        let end = |address: &Address, port: u32| {
            let text = String::from_utf8_lossy(address.as_bytes()).into_owned();
            if text.contains(':') { format!("[{text}]:{port}") } else { format!("{text}:{port}") }
        };
        let (src, dst) = (end(&key.src, key.src_port), end(&key.dst, key.dst_port));
        let beside = beside.map(|known| &known.info);
        let proto = self.proto.or_else(|| beside.map(|info| info.spec.proto));
        // A log of one side of two, with times of sending and of receiving, is of round trips.
        let of_trips = self.side.map(|_| Meter::Rtt);
        let meter = self.meter.or(of_trips).or_else(|| beside.map(|info| info.spec.meter));
        let mut notices = Vec::new();
        if beside.is_none() {
            notices.push(
                "from a log of D-ITG, which has no date: times count from 2 January 1970"
                    .to_owned(),
            );
        }
        if meter.is_none() && side == Side::Receiver {
            notices.push(
                "a log of D-ITG does not tell one-way delays from round trips: --as owd or --as rtt says it".to_owned(),
            );
        }
        if !flow.numbered {
            notices.push(UNNUMBERED.to_owned());
        }
        // Unknown distributions: no plan is computed from them.
        let unknown =
            |unit| Distribution::Empirical { name: "D-ITG".to_owned(), unit, table: None };
        let runs: BTreeSet<&str> = self.fitting(key).map(|flow| flow.info.run.as_str()).collect();
        if let Some(info) = beside.filter(|_| runs.len() > 1) {
            notices.push(format!(
                "flows of {} runs fit this one of a log of D-ITG, which has no date: it is taken for that of run {}, \
                 whose time of day is the nearest",
                runs.len(),
                info.run
            ));
        }
        let own_run = if shared { format!("d-itg {src} {dst}") } else { "d-itg".to_owned() };
        let boot =
            |of: fn(&FlowInfo) -> &String| beside.map_or_else(String::new, |info| of(info).clone());
        FlowInfo {
            changes: Vec::new(),
            index: flow.index,
            flow: key.flow,
            name: beside.and_then(|info| info.name.clone()),
            run: beside.map_or(own_run, |info| info.run.clone()),
            seed: beside.map_or(0, |info| info.seed),
            spec: FlowSpec::new(key.flow)
                .proto(proto.unwrap_or(Proto::Udp))
                .meter(meter.unwrap_or(Meter::Owd))
                .idt(unknown(Unit::Time))
                .size(unknown(Unit::Size)),
            src,
            dst,
            epoch_unix_ns: 0,
            sender_boot_id: boot(|info| &info.sender_boot_id),
            receiver_boot_id: boot(|info| &info.receiver_boot_id),
            notices,
            ditg: Some(DitgFlow {
                proto_known: proto.is_some(),
                // A sender's log has no delay.
                meter_known: meter.is_some() || side == Side::Sender,
            }),
        }
    }
}

/// Returns true if every packet of a log of D-ITG was sent and received at the same instant: it is a sender's.
#[must_use]
pub fn is_of_departures(log: &[u8]) -> bool {
    records(log).filter(LogRecord::is_good).all(|record| record.tx == record.rx)
}

/// Packets of each of two logs that are compared to find the one that was written later.
const COMPARED: usize = 1 << 16;

/// Of two logs of D-ITG with times of arrival that have flows in common, the one whose packets arrived later on their
/// way, `false` for the first: the log of the sender of round trips, for the other is its receiver's. `None` where they
/// have none in common, or are equal.
///
/// Of a clock apart from the sender's only the receiver's log can have a negative delay; where both have none, the
/// longer delays are those of the way there and back.
#[must_use]
pub fn later_of(first: &[u8], second: &[u8]) -> Option<bool> {
    let delay = |record: &LogRecord| {
        let (tx, rx) = (nanoseconds(&record.tx), nanoseconds(&record.rx));
        i128::from(unwrap(rx, tx + DAY_NS)) - i128::from(tx + DAY_NS)
    };
    let good = |log| records(log).take(COMPARED).filter(LogRecord::is_good);
    let ours: BTreeMap<(FlowKey, u32), i128> =
        good(first).map(|record| ((FlowKey::of(&record), record.seq), delay(&record))).collect();
    let mut pairs: Vec<(i128, i128)> = good(second)
        .filter_map(|record| {
            Some((*ours.get(&(FlowKey::of(&record), record.seq))?, delay(&record)))
        })
        .collect();
    if pairs.iter().all(|(one, other)| one == other) {
        return None;
    }
    let negative = [pairs.iter().any(|pair| pair.0 < 0), pairs.iter().any(|pair| pair.1 < 0)];
    match negative {
        [true, false] => return Some(true),
        [false, true] => return Some(false),
        _ => {}
    }
    pairs.sort_by_key(|(one, other)| other - one);
    let (one, other) = pairs[pairs.len() / 2];
    Some(other > one)
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
