//! Cases that once fooled the estimate of clock offsets, each made by hand.
#![allow(missing_docs, clippy::cast_possible_truncation, reason = "tests: numbers made up here")]

use itg_clocks::{ClockModel, Probe, estimate};

const START: u64 = 1_700_000_000_000_000_000;
const MS: i64 = 1_000_000;

/// Clocks of sender and receiver at a true time in ns: what they show beyond it, and how much of that the monotonic clock
/// shows, too.
type Clocks = fn(i64) -> [(i64, i64); 2];

/// A probe at a true time, with its delays there and back, in ns.
fn probe(clocks: Clocks, at: i64, there: i64, back: i64) -> Probe {
    let unix = |host: usize, at: i64| START.saturating_add_signed(at + clocks(at)[host].0);
    let monotonic =
        |host: usize, at: i64| 1_000_000_000_000u64.saturating_add_signed(at + clocks(at)[host].1);
    let (came, answered) = (at + there, at + there + 10_000);
    Probe {
        sender_monotonic: monotonic(0, at),
        sent: unix(0, at),
        received: unix(1, came),
        replied: unix(1, answered),
        arrived: unix(0, answered + back),
        receiver_monotonic: monotonic(1, answered),
    }
}

/// Four probes a second from 0 to a true time in ms, with the delays that hold at each, in ns.
fn probes(clocks: Clocks, until_ms: i64, delays: fn(i64) -> (i64, i64)) -> Vec<Probe> {
    let times = (0..=until_ms / 250).map(|i| i * 250 * MS);
    times.map(|at| probe(clocks, at, delays(at).0, delays(at).1)).collect()
}

/// Compares the estimate with the truth at true times in ms.
fn holds(model: &ClockModel, clocks: Clocks, times_ms: impl Iterator<Item = i64>) {
    for at in times_ms.map(|ms| ms * MS) {
        let [(sender, _), (receiver, _)] = clocks(at);
        let shown = START.saturating_add_signed(at + sender);
        let off = model.offset_at(shown).abs_diff(receiver - sender);
        let bound = model.bound_at(shown);
        assert!(off <= bound + 2, "at {} ms: off by {off} ns, bound {bound} ns", at / MS);
    }
}

#[test]
fn a_change_of_rate_behind_a_queue_is_within_the_bound() {
    // 400 ppm faster from 20 s on; all the while 100 ms of queue there, and next to nothing back.
    let clocks: Clocks = |at| {
        let gained = (at - 20_000 * MS).max(0) / 2_500;
        [(0, 0), (gained, gained)]
    };
    let model = estimate(&probes(clocks, 40_000, |_| (100 * MS, 20_000))).expect("probes");
    holds(&model, clocks, (0..=400).map(|i| i * 100));
    assert!(model.bound_at(START + 20_000_000_000) < 60_000_000);
}

#[test]
fn what_was_between_two_settings_is_within_the_bound() {
    // Both hosts are set between the same two probes: the sender by 3 s at 10.1 s, the receiver by 2 s at 10.2 s.
    let clocks: Clocks = |at| {
        let set = |from_ms: i64, by_ms: i64| if at >= from_ms * MS { by_ms * MS } else { 0 };
        [(set(10_100, 3_000), 0), (set(10_200, 2_000), 0)]
    };
    let model = estimate(&probes(clocks, 20_000, |_| (50_000, 50_000))).expect("probes");
    holds(&model, clocks, (0..=2_000).map(|i| i * 10));
    assert!(model.bound_at(START + 5_000_000_000) < 100_000, "far from the step it is known");
}

#[test]
fn a_probe_between_two_settings_is_not_needed_to_know_of_them() {
    // The receiver is set right before each of two probes, of which neither can be used.
    let clocks: Clocks = |at| {
        let set = |from_ms: i64, by_ms: i64| if at >= from_ms * MS { by_ms * MS } else { 0 };
        [(0, 0), (0, set(9_900, -7_000) + set(10_150, 7_000 + 40))].map(|(_, by)| (by, 0))
    };
    let model = estimate(&probes(clocks, 20_000, |_| (50_000, 50_000))).expect("probes");
    holds(&model, clocks, (0..=2_000).map(|i| i * 10));
}

#[test]
fn clocks_that_tick_are_within_the_bound() {
    let clocks: Clocks = |_| [(0, 0), (1_700_000, 1_700_000)];
    let tick = |stamp: u64| stamp / 4_000_000 * 4_000_000;
    let ticking = probes(clocks, 10_000, |at| (300_000 + at % 7_000_000, 250_000)).into_iter();
    let ticking: Vec<_> = ticking
        .map(|probe| Probe {
            sent: tick(probe.sent),
            received: tick(probe.received),
            replied: tick(probe.replied),
            arrived: tick(probe.arrived),
            sender_monotonic: tick(probe.sender_monotonic),
            receiver_monotonic: tick(probe.receiver_monotonic),
        })
        .collect();
    let model = estimate(&ticking).expect("probes");
    holds(&model, clocks, (0..=100).map(|i| i * 100));
    // The stamps of a packet are cut off, too.
    let report = model.bound_between(START, START + 10_000_000_000);
    for packet in 0..400 {
        let (sent, arrived) = (packet * 23 * MS, packet * 23 * MS + 500_000);
        let stamp =
            |host: usize, at: i64| tick(START.saturating_add_signed(at + clocks(at)[host].0));
        let (sent, arrived) = (stamp(0, sent), stamp(1, arrived));
        let delay = arrived as i64 - sent as i64 - model.offset_at(sent);
        assert!(delay.abs_diff(500_000) <= report, "{delay} ns, bound {report} ns");
    }
}

#[test]
fn a_packet_on_its_way_while_a_clock_is_set_is_within_the_bound_of_the_run() {
    // The receiver is set by 1 s at 10.2 s; a packet is under way from 9.5 s to 10.5 s.
    let clocks: Clocks = |at| [(0, 0), (if at >= 10_200 * MS { 1_000 * MS } else { 0 }, 0)];
    let model = estimate(&probes(clocks, 20_000, |_| (50_000, 50_000))).expect("probes");
    let sent = START + 9_500_000_000;
    let arrived = START + 10_500_000_000 + 1_000_000_000;
    let delay = (arrived - sent) as i64 - model.offset_at(sent);
    let bound = model.bound_between(START, START + 20_000_000_000);
    assert!(delay.abs_diff(1_000 * MS) <= bound, "{delay} ns, bound {bound} ns");
}
