//! Records taken many at a time, as they lie in a block.
//!
//! Most records are as one expects: of the kind that the side of the log writes, with good times, in order. What of
//! that is wrong with any record of a run is gathered in a few words, without a branch for each; then a run as
//! expected is added up by columns, and any other one record by record.

use itg_core::units::MAX_TIME_NS;
use itg_fidelity::narrow::MOST as RUN;
use itg_record::{Kind, RawRecord, Record, Side, flag};

use super::{FlowStats, Lane, PLAN_CHECKED, Volume, delay_of};
use crate::sequence::Arrival;

/// Fewer records than this are taken one by one.
const WORTHWHILE: usize = 8;

/// Flags of arrivals whose delta is not the time that the packet waited in the kernel.
const NO_DELTA: u16 = flag::USER_STAMP | flag::DELTA_SATURATED;

/// The records, but those that another program has overwritten since their kind was checked.
fn records(rows: &[RawRecord]) -> impl Iterator<Item = Record> {
    rows.iter().filter_map(RawRecord::record)
}

impl FlowStats {
    /// Takes the next records in the order of the log: the same as one by one, and sooner where nothing
    /// is wanted of single packets.
    pub fn add_rows(&mut self, rows: &[RawRecord]) {
        let at_once = !self.has_windows() && rows.len() >= WORTHWHILE;
        for rows in rows.chunks(RUN) {
            let taken = at_once
                && match (self.setup.side, self.setup.lane) {
                    (Side::Sender, _) => self.depart_all(rows),
                    (Side::Receiver, Lane::Arrivals) => self.arrive_all(rows),
                    (Side::Receiver, Lane::Plan) => self.replan_all(rows),
                    (Side::Receiver, Lane::All) => false,
                };
            if !taken {
                records(rows).for_each(|record| self.add(&record));
            }
        }
    }

    /// Takes at most [`RUN`] departures that continue the numbers of the last one, all planned and beyond those whose
    /// plan is checked. Takes none of others, and says false.
    fn depart_all(&mut self, rows: &[RawRecord]) -> bool {
        let (Some(first), [head, ..]) = (self.sent_seqs.next(), rows) else { return false };
        let was_set = self.setup.sender_clock.is_some();
        if was_set || first < PLAN_CHECKED || first.checked_add(RUN as u64).is_none() {
            return false;
        }
        let (mut planned, mut sent) = ([0; RUN], [0; RUN]);
        let (planned, sent) = (&mut planned[..rows.len()], &mut sent[..rows.len()]);
        let (mut odd, mut off, mut sizes, mut times, mut bytes) = (0, 0, 0, 0, 0);
        for (((row, planned), sent), seq) in
            rows.iter().zip(&mut *planned).zip(&mut *sent).zip(first..)
        {
            odd |= row.is_not(Kind::Sent, flag::UNPLANNED);
            off |= row.seq() ^ seq;
            sizes |= row.size() ^ head.size();
            bytes += u64::from(row.size());
            (*planned, *sent) = row.times();
            times |= *planned | *sent;
        }
        if odd != 0 || off != 0 || times >= MAX_TIME_NS {
            return false;
        }
        let departures = self.departures.get_or_insert_default();
        match u32::try_from(rows.len()) {
            Ok(packets) if sizes == 0 => departures.count_many(head.size(), packets),
            _ => rows.iter().for_each(|row| departures.count(row.size())),
        }
        let (first_ns, last_ns) = ends(sent);
        self.sent.merge(&Volume {
            packets: rows.len() as u64,
            bytes,
            first_unix_ns: Some(first_ns),
            last_unix_ns: Some(last_ns),
        });
        self.sent_seqs.advance(rows.len() as u64);
        departures.add_in_order(first, planned, sent, self.setup.epoch_unix_ns);
        true
    }

    /// As [`FlowStats::arrive`] with [`Lane::Arrivals`] and no windows, for at most [`RUN`] arrivals. Takes none where
    /// one record is of another kind, and says false.
    fn arrive_all(&mut self, rows: &[RawRecord]) -> bool {
        let Some(head) = rows.first() else { return true };
        let (mut delays, mut stack, mut arrived) = ([0; RUN], [0; RUN], [0; RUN]);
        let all = delays.iter_mut().zip(&mut stack).zip(&mut arrived).zip(rows);
        let mark = |row: &RawRecord| u16::from_ne_bytes(row.marks().into());
        let (mut kinds, mut flags, mut marks, mut times, mut unsaid) = (0, 0, 0, 0, 0);
        let (mut bytes, marked) = (0, mark(head));
        for (((delay, stack), arrived), row) in all {
            kinds |= row.is_not(Kind::Received, 0);
            flags |= row.is_not(Kind::Received, NO_DELTA);
            marks |= mark(row) ^ marked;
            let (sent_ns, arrived_ns) = row.times();
            times |= sent_ns | arrived_ns;
            // 0, which stands for a packet too short to say, is the one time from which this has the highest bit.
            unsaid |= sent_ns.wrapping_sub(1);
            *delay = arrived_ns.wrapping_sub(sent_ns).cast_signed();
            *stack = i64::from(row.delta());
            *arrived = arrived_ns;
            bytes += u64::from(row.size());
        }
        if kinds != 0 {
            return false;
        }
        if flags != 0 || marks != 0 || (times | unsaid) >= MAX_TIME_NS || self.setup.clock.is_some()
        {
            self.arrive_one_by_one(rows);
            return true;
        }
        self.follow_numbers(rows);
        let (first_ns, last_ns) = ends(&arrived[..rows.len()]);
        self.first_delay = self.first_delay.or(Some(arrived[0]));
        self.marks.add_many(head.marks(), rows.len() as u64);
        self.arrived.merge(&Volume {
            packets: rows.len() as u64,
            bytes,
            first_unix_ns: Some(first_ns),
            last_unix_ns: Some(last_ns),
        });
        self.stack.add_all(&stack[..rows.len()]);
        self.delay.add_all(&delays[..rows.len()]);
        true
    }

    /// The same for arrivals that lack something, or after which a clock is corrected.
    fn arrive_one_by_one(&mut self, rows: &[RawRecord]) {
        let (mut delays, mut known) = ([0; RUN], 0);
        let (mut stack, mut stamped) = ([0; RUN], 0);
        let clock = self.setup.clock.clone();
        for record in records(rows) {
            self.arrived.add(record.size, record.b);
            self.undated += u64::from(!record.has_good_times());
            self.marks.add(&record);
            self.user_stamps += u64::from(record.flags & flag::USER_STAMP != 0);
            stack[stamped] = i64::from(record.delta);
            stamped += usize::from(record.flags & NO_DELTA == 0);
            if let Some(delay) = delay_of(&record, clock.as_deref(), &mut self.near) {
                self.first_delay = self.first_delay.or(Some(record.b));
                delays[known] = delay;
                known += 1;
            }
        }
        self.follow_numbers(rows);
        self.stack.add_all(&stack[..stamped]);
        self.delay.add_all(&delays[..known]);
    }

    /// Takes the numbers of arrivals, and the bytes of those that had arrived before.
    fn follow_numbers(&mut self, rows: &[RawRecord]) {
        let mut next = self.arrived_seqs.next();
        let mut in_order = 0;
        for row in rows {
            let seq = row.seq();
            if next == Some(seq) {
                in_order += 1;
                next = seq.checked_add(1);
                continue;
            }
            self.arrived_seqs.advance(std::mem::take(&mut in_order));
            if self.arrived_seqs.insert(seq) == Arrival::Duplicate {
                self.duplicate_bytes += u64::from(row.size());
            }
            next = self.arrived_seqs.next();
        }
        self.arrived_seqs.advance(in_order);
    }

    /// As [`FlowStats::arrive`] with [`Lane::Plan`] and no windows, for at most [`RUN`] arrivals.
    fn replan_all(&mut self, rows: &[RawRecord]) -> bool {
        let (mut planned, mut sent) = ([0; RUN], [0; RUN]);
        let (mut first, mut packets) = (0u64, 0);
        for record in records(rows) {
            if record.kind != Kind::Received {
                self.foreign += 1;
                continue;
            }
            let seq = record.seq;
            if !self.is_in_plan(seq) || self.arrived_seqs.insert(seq) == Arrival::Duplicate {
                continue;
            }
            let Some(departed) = self.replanned_departure(&record) else { continue };
            if packets > 0 && first.checked_add(packets as u64) != Some(seq) {
                let (planned, sent) = (&planned[..packets], &sent[..packets]);
                let departures = self.departures.get_or_insert_default();
                departures.add_in_order(first, planned, sent, self.setup.epoch_unix_ns);
                packets = 0;
            }
            if packets == 0 {
                first = seq;
            }
            (planned[packets], sent[packets]) = (departed.planned_ns, departed.sent_ns);
            packets += 1;
        }
        let (planned, sent) = (&planned[..packets], &sent[..packets]);
        let departures = self.departures.get_or_insert_default();
        departures.add_in_order(first, planned, sent, self.setup.epoch_unix_ns);
        true
    }
}

/// The earliest and the latest of some times, which are at most [`MAX_TIME_NS`] and mostly in order.
fn ends(times: &[u64]) -> (u64, u64) {
    let steps = times.iter().zip(times.iter().skip(1));
    let back = steps.fold(0, |back, (earlier, later)| back | later.wrapping_sub(*earlier));
    match times {
        [first, .., last] if back.cast_signed() >= 0 => (*first, *last),
        _ => times
            .iter()
            .fold((u64::MAX, 0), |(first, last), &time| (first.min(time), last.max(time))),
    }
}
