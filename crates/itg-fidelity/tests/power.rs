//! Power of the verdict: sound traffic passes, planted distortions of a tenth of the mean inter-departure time do
//! not. The whole table is made by `itg-bench fidelity`; this is a part with fixed seeds.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

use itg_core::flow::FlowSpec;
use itg_fidelity::{Asked, Departed, Departures, Distributions, Fidelity, Verdict};
use itg_testkit::distortions::{Distortion, MadePacket, made};
use itg_testkit::logs::spec;

const IDTS: [&str; 5] = [
    "constant(1ms)",
    "uniform(500us,1500us)",
    "exp(1ms)",
    "gamma(2,500us)",
    "lognormal(800us,0.6)",
];

fn judge(spec: &FlowSpec, packets: &[MadePacket]) -> Fidelity {
    let mut departures = Departures::default();
    for (seq, packet) in (0..).zip(packets) {
        let (planned_ns, sent_ns) = (packet.planned_ns, packet.sent_ns);
        departures.add(Departed { seq, planned_ns, sent_ns }, Some(0));
        departures.count(packet.size);
        departures.add_size(packet.size, packet.planned_size);
    }
    let distributions = Distributions::new(spec, 1).unwrap();
    departures.judge(&Asked { distributions: Some(&distributions), ..Asked::default() })
}

/// Flows that do not pass, of those that could be made.
fn not_passed(packets: u64, seeds: u64, distortion: Distortion) -> Vec<(bool, String)> {
    IDTS.into_iter().flat_map(|idt| flows(idt, packets, seeds, distortion)).collect()
}

/// Flows of one distribution: true for those that do not pass.
fn flows(idt: &str, packets: u64, seeds: u64, distortion: Distortion) -> Vec<(bool, String)> {
    let spec = spec(1, idt, "uniform(100,1400)", packets);
    let made = (0..seeds).map_while(|seed| Some((seed, made(&spec, seed, distortion, 0.1)?)));
    made.map(|(seed, made)| {
        let fidelity = judge(&spec, &made);
        let what = format!("{distortion:?}, {idt}, seed {seed}: {:?}", fidelity.reasons);
        (fidelity.verdict != Verdict::Pass, what)
    })
    .collect()
}

#[test]
fn sound_traffic_passes() {
    for (packets, seeds) in [(10, 200), (100, 200), (1_000, 200), (10_000, 10)] {
        let flows = not_passed(packets, seeds, Distortion::None);
        let blamed: Vec<_> = flows.iter().filter(|(blamed, _)| *blamed).collect();
        assert!(blamed.len() * 100 <= flows.len(), "{packets} packets: {blamed:#?}");
    }
}

/// The player of Counter-Strike: nearly constant, but for rare values far away.
#[test]
fn sound_traffic_with_rare_values_far_away_passes() {
    for (packets, seeds) in [(10, 1_000), (100, 1_000), (1_000, 200)] {
        let flows =
            flows("student(41.6994ms,0.104821ms,0.704073)", packets, seeds, Distortion::None);
        let blamed: Vec<_> = flows.iter().filter(|(blamed, _)| *blamed).collect();
        assert!(blamed.len() * 100 <= flows.len(), "{packets} packets: {blamed:#?}");
    }
}

#[test]
fn distortions_of_the_sender_are_seen_from_a_thousand_packets_on() {
    let of_sender = Distortion::PLANTED.into_iter().filter(|planted| !planted.is_of_generator());
    for distortion in of_sender {
        let flows = not_passed(1_000, 20, distortion);
        let missed: Vec<_> = flows.iter().filter(|(seen, _)| !*seen).collect();
        assert!(!flows.is_empty() && missed.len() * 100 <= flows.len(), "{missed:#?}");
    }
}

#[test]
fn distortions_of_the_generator_are_seen_from_ten_thousand_packets_on() {
    for distortion in Distortion::PLANTED.into_iter().filter(|planted| planted.is_of_generator()) {
        let flows = not_passed(10_000, 4, distortion);
        let missed: Vec<_> = flows.iter().filter(|(seen, _)| !*seen).collect();
        assert!(!flows.is_empty() && missed.is_empty(), "{missed:#?}");
    }
}
