//! Probes of the clocks on their way into a log: all of them while a run is young, then the best of each
//! stretch of time, so that a long run does not fill its log with them.

use itg_core::units::MAX_TIME_NS;
use itg_engine::log::Producer;
use itg_record::{ClockProbe, Note};
use itg_session::ProbeStamps;
use itg_socket::clock;

/// Of probes that are closer than this share of the run so far, only the best is kept.
const SHARE: u64 = 256;
/// … and of those within this time at most: 15 s. A day has 5760 notes at most and 256 more.
const LONGEST_NS: u64 = 15_000_000_000;

/// Chooses among probes in the order in which they were made.
#[derive(Debug, Default)]
struct Thinner {
    /// Instant of the first probe, in nanoseconds of this host's CLOCK_MONOTONIC: a peer's would let it choose how much
    /// is kept.
    started_ns: Option<u64>,
    /// Start of the stretch of time that is being gathered, on the same clock.
    since_ns: u64,
    best: Option<ProbeStamps>,
}

impl Thinner {
    /// Takes a probe; returns one that is to be kept, if the time has come.
    fn take(&mut self, now_ns: u64, probe: ProbeStamps) -> Option<ProbeStamps> {
        let started_ns = *self.started_ns.get_or_insert(now_ns);
        let wait_ns = (now_ns.saturating_sub(started_ns) / SHARE).min(LONGEST_NS);
        let shorter = |best: ProbeStamps| {
            if round_trip(&probe) < round_trip(&best) { probe } else { best }
        };
        self.best = Some(self.best.map_or(probe, shorter));
        if now_ns.saturating_sub(self.since_ns) < wait_ns {
            return None;
        }
        self.since_ns = now_ns;
        self.best.take()
    }
}

/// Probes that are kept in memory at most.
const MOST_KEPT: usize = 1024;

/// The probes of a session, for what is said at its end: all while there are few, then the best of neighbours.
#[derive(Clone, Debug, Default)]
pub struct ClockProbes(Vec<ProbeStamps>);

impl ClockProbes {
    /// Takes a probe. One with times that no clock shows is left out.
    pub(crate) fn take(&mut self, probe: ProbeStamps) {
        if !has_good_times(&probe) {
            return;
        }
        self.0.push(probe);
        if self.0.len() == MOST_KEPT {
            let best = |pair: &[ProbeStamps]| pair.iter().min_by_key(|p| round_trip(p)).copied();
            self.0 = self.0.chunks(2).filter_map(best).collect();
        }
    }

    /// Lead of the receiver's clock over the sender's by the best probe so far, in nanoseconds.
    pub(crate) fn ahead_ns(&self) -> Option<i64> {
        let best = self.0.iter().min_by_key(|probe| round_trip(probe))?;
        let wide = i128::from;
        let there = wide(best.received_unix_ns) - wide(best.sent.unix_ns);
        let back = wide(best.replied.unix_ns) - wide(best.arrived_unix_ns);
        i64::try_from(there.midpoint(back)).ok()
    }

    /// The probes, in the order in which they were made.
    #[must_use]
    pub fn list(&self) -> &[ProbeStamps] {
        &self.0
    }
}

fn has_good_times(probe: &ProbeStamps) -> bool {
    let ProbeStamps { sent, received_unix_ns, replied, arrived_unix_ns } = probe;
    let times = [sent.unix_ns, sent.monotonic_ns, replied.unix_ns, replied.monotonic_ns];
    times.iter().chain([received_unix_ns, arrived_unix_ns]).all(|&ns| ns <= MAX_TIME_NS)
}

/// Time on the way. Stamps that contradict themselves are the worst; the decoder refuses them.
fn round_trip(probe: &ProbeStamps) -> u64 {
    let away = probe.arrived_unix_ns.checked_sub(probe.sent.unix_ns);
    let there = probe.replied.unix_ns.checked_sub(probe.received_unix_ns);
    away.zip(there).and_then(|(away, there)| away.checked_sub(there)).unwrap_or(u64::MAX)
}

/// One session's way of logging its probes.
#[derive(Debug)]
pub(crate) struct ProbeNotes {
    run: String,
    sender_boot_id: String,
    receiver_boot_id: String,
    thinner: Thinner,
}

impl ProbeNotes {
    pub(crate) fn new(run: String, sender_boot_id: String, receiver_boot_id: String) -> Self {
        Self { run, sender_boot_id, receiver_boot_id, thinner: Thinner::default() }
    }

    /// Takes a probe; writes one down when the time has come. One with times that no clock shows is
    /// left out.
    pub(crate) fn take(&mut self, probe: ProbeStamps, log: &mut Producer) {
        if !has_good_times(&probe) {
            return;
        }
        if let Some(kept) = self.thinner.take(clock::monotonic_ns(), probe) {
            self.write(&kept, log);
        }
    }

    /// Writes down what is still to be chosen from.
    pub(crate) fn finish(&mut self, log: &mut Producer) {
        if let Some(kept) = self.thinner.best.take() {
            self.write(&kept, log);
        }
    }

    fn write(&self, probe: &ProbeStamps, log: &mut Producer) {
        let note = Note::Probe(ClockProbe {
            run: self.run.clone(),
            sender_boot_id: self.sender_boot_id.clone(),
            receiver_boot_id: self.receiver_boot_id.clone(),
            sent_unix_ns: probe.sent.unix_ns,
            sent_monotonic_ns: probe.sent.monotonic_ns,
            received_unix_ns: probe.received_unix_ns,
            replied_unix_ns: probe.replied.unix_ns,
            replied_monotonic_ns: probe.replied.monotonic_ns,
            arrived_unix_ns: probe.arrived_unix_ns,
        });
        log.note_in_time(note, clock::monotonic_ns());
    }
}

#[cfg(test)]
mod tests {
    use itg_session::ClockReading;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn probe(at_ns: u64, round_trip_ns: u64) -> ProbeStamps {
        ProbeStamps {
            sent: ClockReading { unix_ns: at_ns, monotonic_ns: at_ns },
            received_unix_ns: at_ns,
            replied: ClockReading { unix_ns: at_ns + 5, monotonic_ns: at_ns },
            arrived_unix_ns: at_ns + 5 + round_trip_ns,
        }
    }

    #[test]
    fn a_young_run_keeps_all_and_a_day_keeps_the_best_of_each_15_s() {
        let (mut thinner, mut kept, mut pending) = (Thinner::default(), Vec::new(), Vec::new());
        let mut n = 0_u64;
        for quarter in 0..86_400 * 4 {
            n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let probe = probe(7 + quarter * SECOND / 4, n >> 40);
            pending.push(round_trip(&probe));
            if let Some(best) = thinner.take(probe.sent.monotonic_ns, probe) {
                assert_eq!(Some(round_trip(&best)), pending.drain(..).min());
                kept.push(best.sent.monotonic_ns);
            }
        }
        assert!(kept.partition_point(|&at| at < 64 * SECOND) >= 255);
        assert!(kept.len() < 5760 + 1500, "{}", kept.len());
        assert!(kept.windows(2).all(|pair| pair[1] - pair[0] < 31 * SECOND));
    }

    #[test]
    fn a_day_of_probes_takes_bounded_memory_and_keeps_the_best() {
        let mut kept = ClockProbes::default();
        assert_eq!(kept.ahead_ns(), None);
        for quarter in 0..86_400 * 4 {
            kept.take(probe(7 + quarter * SECOND / 4, 1_000 + quarter % 97));
            kept.take(ProbeStamps { received_unix_ns: u64::MAX, ..probe(7, 0) });
        }
        assert!(kept.list().len() < MOST_KEPT, "{}", kept.list().len());
        assert_eq!(kept.list().iter().map(round_trip).min(), Some(1_000));
        // 70 ns ahead by the way there, 64 ns by the way back.
        let ahead = ProbeStamps { received_unix_ns: 170, ..probe(100, 7) };
        kept.take(ProbeStamps {
            replied: ClockReading { unix_ns: 175, monotonic_ns: 0 },
            arrived_unix_ns: 111,
            ..ahead
        });
        assert_eq!(kept.ahead_ns(), Some(67));
    }

    #[test]
    fn contradicting_stamps_are_the_worst() {
        let good = probe(100, 50);
        assert_eq!(round_trip(&good), 50);
        for bad in [
            ProbeStamps { arrived_unix_ns: 99, ..good },
            ProbeStamps { received_unix_ns: 200, ..good },
            ProbeStamps { received_unix_ns: 0, ..good },
        ] {
            assert_eq!(round_trip(&bad), u64::MAX);
        }
    }
}
