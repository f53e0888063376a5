//! Departures of packets from the network stack of this host: the kernel's transmit stamps of every
//! Nth packet.
//!
//! The kernel stamps a packet in software, just before the device takes it, and puts the stamp into the
//! error queue of the socket, with a number (`OPT_ID`) and without the packet's bytes (`OPT_TSONLY`). The
//! queue has room for some 250 of them and loses later ones without a word, so it is read every
//! `LOOK_AFTER` stamps, and what did not come back is counted. The sending thread reads it; a channel of
//! fixed length carries the samples to the one that writes notes.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::mpsc::{self, Receiver, SyncSender};

use itg_record::{DepartureSample, DepartureTotals, Departures, Note};
use itg_socket::errqueue::{ErrorQueue, ErrorReport, ask_for_departures};

use crate::log::Producer;

/// Stamps asked for until the error queue is read.
const LOOK_AFTER: u32 = 32;
/// Packets of a flow that may be on their way; of those whose stamp is asked for, the newest replaces the
/// oldest.
const ON_PATH: u64 = 1024;
/// Stamps that may be on their way at least.
const FEWEST_SLOTS: u64 = 64;
/// Samples on their way to the log: those of 250 ms at 250 000 a second.
const ON_THE_WAY: usize = 1 << 16;
/// Longest wait for stamps that are on their way before numbers start anew: 1 s.
const PAUSE_NS: u64 = 1_000_000_000;
/// Samples in a note, at most: some 60 bytes each.
const MOST_IN_A_NOTE: usize = 1024;

/// A sample, and the index of its flow.
#[derive(Debug)]
struct Sampled {
    index: u32,
    sample: DepartureSample,
}

/// A packet whose stamp has been asked for.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    id: u32,
    awaited: bool,
    seq: u64,
    planned_ns: u64,
    handed_unix_ns: u64,
}

/// Sampling of the departures of one flow.
#[derive(Debug)]
pub struct Sampler {
    index: u32,
    every: u64,
    /// True if the kernel keeps the packets' times: it may report each of them.
    held: bool,
    next_id: u32,
    unread: u32,
    /// Slots whose stamp has not come.
    awaited: usize,
    /// Instant until which no stamps are requested, unless all awaited ones come before
    /// (CLOCK_MONOTONIC).
    paused_until_ns: Option<u64>,
    slots: Box<[Slot]>,
    totals: DepartureTotals,
    /// `None`: this flow is not sampled.
    to_log: Option<SyncSender<Sampled>>,
}

impl Sampler {
    /// Sampler of a flow whose times the kernel keeps and that is not sampled: counts the reports
    /// of queueing disciplines.
    pub fn silent() -> Self {
        Self {
            index: 0,
            every: 1,
            held: true,
            next_id: 0,
            unread: 0,
            awaited: 0,
            paused_until_ns: None,
            slots: Box::default(),
            totals: DepartureTotals::default(),
            to_log: None,
        }
    }

    /// Returns true if the stamp of this packet is to be requested.
    pub const fn wants(&self, seq: u64) -> bool {
        self.to_log.is_some() && self.paused_until_ns.is_none() && seq.is_multiple_of(self.every)
    }

    /// Counts packets that the kernel has taken.
    pub fn passed(&mut self, count: usize) {
        if self.held {
            self.unread = self.unread.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        }
    }

    /// Counts a packet that the kernel has taken and whose stamp was asked for.
    pub fn handed(&mut self, seq: u64, planned_ns: u64, handed_unix_ns: u64) {
        let id = self.next_id;
        let slot = &mut self.slots[id as usize % self.slots.len()];
        self.totals.missing += u64::from(slot.awaited);
        self.awaited += usize::from(!slot.awaited);
        *slot = Slot { id, awaited: true, seq, planned_ns, handed_unix_ns };
        self.next_id = id.wrapping_add(1);
        self.unread = self.unread.saturating_add(1);
        self.totals.asked += 1;
    }

    /// The kernel has refused one, and older kernels (before 6.9) have used a number for it: numbers start anew when
    /// no stamp with an old one can come any more.
    pub fn refused(&mut self, socket: BorrowedFd<'_>, queue: &mut ErrorQueue, now_ns: u64) {
        self.paused_until_ns = Some(now_ns.saturating_add(PAUSE_NS));
        self.read(socket, queue, now_ns);
    }

    /// Returns true if the error queue should be read.
    pub const fn is_due(&self) -> bool {
        self.unread >= LOOK_AFTER || self.paused_until_ns.is_some()
    }

    /// Returns true while reports of packets may still come.
    pub const fn is_waiting(&self) -> bool {
        self.awaited > 0 || self.held
    }

    /// Reads the error queue; `now_ns` on CLOCK_MONOTONIC.
    pub fn read(&mut self, socket: BorrowedFd<'_>, queue: &mut ErrorQueue, now_ns: u64) {
        self.unread = 0;
        queue.read(socket, |said| self.hear(said));
        if self.paused_until_ns.is_some_and(|until_ns| self.awaited == 0 || now_ns >= until_ns) {
            self.give_up();
            self.paused_until_ns = None;
            self.next_id = 0;
            if let Err(error) = ask_for_departures(&socket) {
                tracing::debug!(%error, "transmit stamps");
            }
        }
    }

    fn hear(&mut self, said: ErrorReport) {
        match said {
            ErrorReport::Missed => self.totals.missed += 1,
            ErrorReport::Invalid => self.totals.invalid += 1,
            ErrorReport::Left { id, unix_ns } => {
                let Some(to_log) = &self.to_log else { return };
                let slot = &mut self.slots[id as usize % self.slots.len()];
                if !slot.awaited || slot.id != id {
                    return;
                }
                slot.awaited = false;
                self.awaited -= 1;
                let &mut Slot { seq, planned_ns, handed_unix_ns, .. } = slot;
                let left_after_ns = unix_ns.wrapping_sub(handed_unix_ns).cast_signed();
                let sample = DepartureSample { seq, planned_ns, handed_unix_ns, left_after_ns };
                let passed = to_log.try_send(Sampled { index: self.index, sample });
                self.totals.missing += u64::from(passed.is_err());
            }
        }
    }

    fn give_up(&mut self) {
        for slot in &mut self.slots {
            self.totals.missing += u64::from(std::mem::take(&mut slot.awaited));
        }
        self.awaited = 0;
    }

    /// The account of a flow that has ended.
    pub fn finish(mut self, socket: BorrowedFd<'_>, queue: &mut ErrorQueue) -> DepartureTotals {
        queue.read(socket, |said| self.hear(said));
        self.give_up();
        self.totals
    }
}

/// Packets whose times the kernel was to keep and did not, for the end of their flow.
pub fn remarks(totals: &DepartureTotals) -> impl Iterator<Item = String> {
    // A refused packet has not left this program: it is handed over again, until the discipline takes it.
    [
        (totals.missed, "packets were dropped by a queueing discipline: their time had passed"),
        (
            totals.invalid,
            "times a queueing discipline could not use the time of a packet, which was handed over again",
        ),
    ]
    .into_iter()
    .filter(|&(count, _)| count > 0)
    .map(|(count, what)| format!("{count} {what}"))
}

/// The samples of all flows of a run, on their way into the log.
#[derive(Debug)]
pub struct Samples {
    every: u32,
    held: bool,
    sender: SyncSender<Sampled>,
    samples: Receiver<Sampled>,
}

impl Samples {
    /// Samples of one in `every` packets; `held`: the kernel keeps the times of the packets.
    pub fn new(every: u32, held: bool) -> Self {
        let (sender, samples) = mpsc::sync_channel(ON_THE_WAY);
        Self { every: every.max(1), held, sender, samples }
    }

    fn slots(&self) -> usize {
        let on_path = ON_PATH / u64::from(self.every);
        usize::try_from(on_path.next_power_of_two().max(FEWEST_SLOTS)).unwrap_or(usize::MAX)
    }

    /// Makes the sampler of a flow, for the sending thread.
    pub fn sampler(&self, index: u32) -> Sampler {
        Sampler {
            index,
            every: u64::from(self.every),
            held: self.held,
            next_id: 0,
            unread: 0,
            awaited: 0,
            paused_until_ns: None,
            slots: vec![Slot::default(); self.slots()].into_boxed_slice(),
            totals: DepartureTotals::default(),
            to_log: Some(self.sender.clone()),
        }
    }

    fn note(&self, index: u32, samples: Vec<DepartureSample>, log: &mut Producer) {
        let (every, held) = (self.every, self.held);
        log.note(Note::Departures(Departures { index, every, held, samples, totals: None }));
    }

    /// Writes the samples that have come as notes into the log.
    pub fn look(&self, log: &mut Producer) {
        let mut by_flow: BTreeMap<u32, Vec<DepartureSample>> = BTreeMap::new();
        // No more than the channel holds: others may come meanwhile.
        for Sampled { index, sample } in self.samples.try_iter().take(ON_THE_WAY) {
            let samples = by_flow.entry(index).or_default();
            samples.push(sample);
            if samples.len() == MOST_IN_A_NOTE {
                let full = std::mem::take(samples);
                self.note(index, full, log);
            }
        }
        for (index, samples) in by_flow.into_iter().filter(|(_, samples)| !samples.is_empty()) {
            self.note(index, samples, log);
        }
    }

    /// Writes down what has come, and the account of a flow that has ended.
    pub fn end(&self, index: u32, totals: DepartureTotals, log: &mut Producer) {
        self.look(log);
        let (every, held) = (self.every, self.held);
        let (samples, totals) = (Vec::new(), Some(totals));
        log.note(Note::Departures(Departures { index, every, held, samples, totals }));
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;
    use std::os::fd::AsFd;

    use itg_socket::clock;
    use itg_socket::mmsg::{self, BATCH, Outgoing};

    fn pair(address: &str) -> (UdpSocket, UdpSocket) {
        let to = UdpSocket::bind(address).expect("loopback");
        let from = UdpSocket::bind(address).expect("loopback");
        from.connect(to.local_addr().expect("bound")).expect("loopback");
        (from, to)
    }

    #[test]
    fn every_nth_packet_is_stamped_and_found_again() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let (from, _to) = pair(address);
            ask_for_departures(&from).expect("every Linux stamps departures");
            let samples = Samples::new(3, false);
            let mut sampler = samples.sampler(5);
            let mut queue = ErrorQueue::new();
            let before = clock::unix_ns();
            for batch in 0..20u64 {
                let mut packets = [Outgoing::new(b"head", b"body"); 50];
                for (seq, packet) in (50 * batch..).zip(&mut packets) {
                    packet.order.stamp = sampler.wants(seq);
                }
                assert_eq!(mmsg::send(from.as_fd(), &packets).expect("sent"), 50);
                for seq in (50 * batch..50 * batch + 50).filter(|seq| seq % 3 == 0) {
                    sampler.handed(seq, seq * 10, before);
                }
                if sampler.is_due() {
                    sampler.read(from.as_fd(), &mut queue, 0);
                }
            }
            let totals = sampler.finish(from.as_fd(), &mut queue);
            let got: Vec<_> = samples.samples.try_iter().collect();
            assert_eq!((totals.asked, totals.missing), (334, 0), "{address}");
            let want = (0..1000).filter(|seq| seq % 3 == 0);
            assert!(got.iter().map(|s| s.sample.seq).eq(want), "{address}: {got:?}");
            assert!(got.iter().all(|s| s.index == 5 && s.sample.planned_ns == s.sample.seq * 10));
            let took_ns = (clock::unix_ns() - before).cast_signed();
            // The clock may be slewed meanwhile.
            let sane = |ns: i64| (-1_000_000..=took_ns + 1_000_000).contains(&ns);
            assert!(got.iter().all(|s| sane(s.sample.left_after_ns)), "{address}: {got:?}");
            assert!(got.is_sorted_by_key(|s| s.sample.left_after_ns), "{address}: {got:?}");
        }
    }

    #[test]
    fn what_the_full_queue_of_the_kernel_loses_is_counted() {
        let (from, _to) = pair("127.0.0.1:0");
        ask_for_departures(&from).expect("every Linux stamps departures");
        let samples = Samples::new(1, false);
        let mut sampler = samples.sampler(1);
        let mut packets = [Outgoing::new(b"head", b"body"); BATCH];
        packets.iter_mut().for_each(|packet| packet.order.stamp = true);
        let mut seq = 0;
        // More than the kernel keeps, and fewer than may be on their way.
        for _ in 0..10 {
            let sent = mmsg::send(from.as_fd(), &packets).expect("sent");
            for _ in 0..sent {
                sampler.handed(seq, 0, 0);
                seq += 1;
            }
        }
        let totals = sampler.finish(from.as_fd(), &mut ErrorQueue::new());
        let got = samples.samples.try_iter().count() as u64;
        assert!(got > 0 && got < seq, "{got} of {seq}");
        assert_eq!((totals.asked, totals.missing), (seq, seq - got));
    }

    #[test]
    fn a_refused_packet_does_not_shift_the_numbers_of_later_ones() {
        let (from, _to) = pair("127.0.0.1:0");
        ask_for_departures(&from).expect("every Linux stamps departures");
        let samples = Samples::new(1, false);
        let mut sampler = samples.sampler(1);
        let mut queue = ErrorQueue::new();
        let large = vec![0; 70_000];
        for (seq, body) in [&b"a"[..], &large, b"b", &large, b"c"].into_iter().enumerate() {
            let mut packet = Outgoing::new(b"head", body);
            packet.order.stamp = true;
            match mmsg::send(from.as_fd(), &[packet]) {
                Ok(1) => sampler.handed(seq as u64, 0, 0),
                refused => {
                    assert!(refused.is_err() && body.len() > 1, "{refused:?}");
                    sampler.refused(from.as_fd(), &mut queue, 0);
                }
            }
        }
        let totals = sampler.finish(from.as_fd(), &mut queue);
        let got: Vec<_> = samples.samples.try_iter().map(|s| s.sample.seq).collect();
        assert_eq!(got, [0, 2, 4]);
        assert_eq!(totals, DepartureTotals { asked: 3, ..DepartureTotals::default() });
    }

    #[test]
    fn no_stamp_is_asked_for_while_old_numbers_are_on_their_way() {
        let (from, _to) = pair("127.0.0.1:0");
        ask_for_departures(&from).expect("every Linux stamps departures");
        let samples = Samples::new(2, false);
        let mut sampler = samples.sampler(1);
        let mut queue = ErrorQueue::new();
        let socket = from.as_fd();
        // Two that a queue holds, and one that is refused.
        sampler.handed(0, 0, 0);
        sampler.handed(2, 0, 0);
        sampler.refused(socket, &mut queue, 5);
        assert!(!sampler.wants(4) && sampler.is_due() && sampler.is_waiting());
        sampler.read(socket, &mut queue, 5 + PAUSE_NS - 1);
        sampler.hear(ErrorReport::Left { id: 1, unix_ns: 70 });
        sampler.read(socket, &mut queue, 5 + PAUSE_NS - 1);
        assert!(!sampler.wants(4), "the other one has not come");
        sampler.hear(ErrorReport::Left { id: 0, unix_ns: 80 });
        sampler.read(socket, &mut queue, 6);
        assert!(sampler.wants(4) && !sampler.is_due() && !sampler.is_waiting());
        sampler.handed(4, 0, 0);
        // The next pause ends without the stamp.
        sampler.refused(socket, &mut queue, 10);
        sampler.read(socket, &mut queue, 10 + PAUSE_NS);
        assert!(sampler.wants(6) && !sampler.wants(7));
        let totals = sampler.finish(socket, &mut queue);
        assert_eq!((totals.asked, totals.missing), (3, 1));
        let got: Vec<_> = samples.samples.try_iter().map(|s| s.sample.seq).collect();
        assert_eq!(got, [2, 0]);
    }

    #[test]
    fn without_samples_what_queueing_disciplines_say_is_heard_all_the_same() {
        let (from, _to) = pair("127.0.0.1:0");
        let mut sampler = Sampler::silent();
        assert!(!sampler.wants(0) && !sampler.is_due() && sampler.is_waiting());
        sampler.passed(LOOK_AFTER as usize);
        assert!(sampler.is_due());
        sampler.read(from.as_fd(), &mut ErrorQueue::new(), 0);
        assert!(!sampler.is_due());
        for said in [
            ErrorReport::Missed,
            ErrorReport::Left { id: 0, unix_ns: 5 },
            ErrorReport::Invalid,
            ErrorReport::Missed,
        ] {
            sampler.hear(said);
        }
        let totals = sampler.finish(from.as_fd(), &mut ErrorQueue::new());
        assert_eq!(totals, DepartureTotals { missed: 2, invalid: 1, ..DepartureTotals::default() });
        let want = [
            "2 packets were dropped by a queueing discipline: their time had passed",
            "1 times a queueing discipline could not use the time of a packet, which was handed over again",
        ];
        assert!(remarks(&totals).eq(want));
        let kept = DepartureTotals { asked: 9, missing: 2, ..DepartureTotals::default() };
        assert_eq!(remarks(&kept).count(), 0);
    }

    #[test]
    fn what_queueing_disciplines_say_is_counted() {
        let samples = Samples::new(1, true);
        let mut sampler = samples.sampler(1);
        sampler.handed(9, 3, 100);
        for said in [
            ErrorReport::Missed,
            ErrorReport::Invalid,
            ErrorReport::Missed,
            ErrorReport::Left { id: 1, unix_ns: 5 },
            ErrorReport::Left { id: 0, unix_ns: 90 },
            ErrorReport::Left { id: 0, unix_ns: 95 },
        ] {
            sampler.hear(said);
        }
        let want = DepartureTotals { asked: 1, missing: 0, missed: 2, invalid: 1 };
        assert_eq!(sampler.totals, want);
        let sample = samples.samples.try_recv().expect("one").sample;
        assert_eq!((sample.seq, sample.left_after_ns), (9, -10), "a clock that was set back");
        assert!(samples.samples.try_recv().is_err(), "what nobody asked for is no sample");
    }
}
