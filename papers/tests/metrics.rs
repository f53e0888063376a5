//! The three broadcasts of the thesis on the metrics and networks of Urbán, Défago and Schiper: steps, messages,
//! latencies and throughput as their tables have them.

use itg_core::seed::RunSeed;
use itg_group::cast::{self, Algorithm, CastEvent, CastRequest, Planted};
use itg_process::{Config, Registry, SECOND, Slot};
use itg_sim::{Exit, World};

/// A group after one broadcast by `sender`.
fn after_one(algorithm: Algorithm, n: u32, network: &str, sender: u32) -> World {
    let text = format!(
        "processes = {n}\n[[network]]\nname = \"main\"\n{network}\n[[process]]\nlayers = [\"{}\"]",
        algorithm.name()
    );
    let registry = cast::layers(Registry::new(), Planted::default());
    let config = Config::parse(&text, "test.toml").expect("well written");
    let mut world = World::new(&config, &registry, RunSeed(1)).expect("known layers and networks");
    world.keep_events();
    let message = CastRequest::Cast("one".into()).message().expect("a message");
    world.with(Slot(sender), |process, now| process.send(now, message));
    assert_eq!(world.run(u64::MAX), Exit::Idle);
    world
}

/// One broadcast by `sender`: times of the deliveries in order, and unicasts.
fn broadcast(algorithm: Algorithm, n: u32, network: &str, sender: u32) -> (Vec<u64>, u64) {
    let mut world = after_one(algorithm, n, network, sender);
    let events = world.take_events().into_iter();
    let delivered =
        events.filter(|(.., event)| matches!(event.decode(), Some(CastEvent::Deliver { .. })));
    let times: Vec<u64> = delivered.map(|(at, ..)| at).collect();
    assert_eq!(times.len(), n as usize, "everybody delivers");
    (times, world.networks().map(|(_, _, usage)| usage.frames).sum())
}

#[test]
fn n_7_steps_and_messages_of_the_broadcasts() {
    for n in 2..=16 {
        for (algorithm, steps) in Algorithm::ALL.into_iter().zip(2..) {
            for sender in [1, 0] {
                let (times, frames) = broadcast(algorithm, n, "kind = \"steps\"", sender);
                let last = times.last().copied();
                // A coordinator that is the sender saves Chandra and Toueg a step, and the sequencer
                // that is the sender saves one too.
                let saved = u64::from(sender == 0 && algorithm != Algorithm::Skeen);
                assert_eq!(last, Some((steps - saved) * SECOND), "{algorithm:?}, n {n}");
                let (_, messages) = broadcast(algorithm, n, "kind = \"messages\"", sender);
                assert_eq!(messages, steps * u64::from(n - 1), "{algorithm:?}, n {n}");
                assert_eq!(frames, messages);
            }
        }
    }
}

#[test]
fn n_11_contention_latencies_are_those_of_the_annex() {
    // First and last delivery for λ = 0.5, 1, 2, 10.
    type Row = (Algorithm, u32, [(u64, u64); 4]);
    let point_to_point: [Row; 9] = [
        (Algorithm::Sequencer, 3, [(2, 5), (3, 7), (5, 12), (21, 52)]),
        (Algorithm::Sequencer, 5, [(2, 9), (3, 10), (5, 16), (21, 72)]),
        (Algorithm::Sequencer, 7, [(2, 13), (3, 14), (5, 20), (21, 92)]),
        (Algorithm::Skeen, 3, [(5, 8), (7, 11), (12, 19), (52, 83)]),
        (Algorithm::Skeen, 5, [(9, 14), (10, 16), (16, 27), (80, 131)]),
        (Algorithm::Skeen, 7, [(13, 20), (14, 22), (24, 39), (120, 191)]),
        (Algorithm::ChandraToueg, 3, [(6, 9), (9, 13), (15, 22), (63, 94)]),
        (Algorithm::ChandraToueg, 5, [(11, 17), (12, 18), (17, 28), (81, 142)]),
        (Algorithm::ChandraToueg, 7, [(16, 25), (17, 26), (23, 42), (111, 212)]),
    ];
    let broadcast_rows: [Row; 5] = [
        (Algorithm::Sequencer, 3, [(2, 4), (3, 6), (5, 10), (21, 42)]),
        (Algorithm::Sequencer, 5, [(2, 4), (3, 6), (5, 10), (21, 42)]),
        (Algorithm::Sequencer, 7, [(2, 4), (3, 6), (5, 10), (21, 42)]),
        (Algorithm::Skeen, 5, [(7, 9), (9, 12), (16, 21), (72, 93)]),
        (Algorithm::ChandraToueg, 5, [(7, 10), (10, 13), (17, 26), (73, 114)]),
    ];
    let mut wrong = Vec::new();
    for (variant, rows) in [("pp", &point_to_point[..]), ("br", &broadcast_rows[..])] {
        for (algorithm, n, want) in rows {
            for (lambda, want) in
                [("0.5", want[0]), ("1", want[1]), ("2", want[2]), ("10", want[3])]
            {
                let network =
                    format!("kind = \"contention\"\nlambda = {lambda}\nvariant = \"{variant}\"");
                let (times, _) = broadcast(*algorithm, *n, &network, 1);
                let first = times.first().copied().unwrap_or(0);
                let last = times.last().copied().unwrap_or(0);
                let got = (first as f64 / 1e9, last as f64 / 1e9);
                if got != (want.0 as f64, want.1 as f64) {
                    wrong.push(format!(
                        "{variant} {algorithm:?} {n} λ {lambda}: {got:?}, not {want:?}"
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn n_11_throughput_is_that_of_the_closed_forms() {
    // Busy time of the busiest resource for one broadcast, in units.
    for n in 2..=9_u32 {
        for lambda in [1, 2, 10] {
            let network = format!("kind = \"contention\"\nlambda = {lambda}");
            for algorithm in Algorithm::ALL {
                let want = match algorithm {
                    Algorithm::Sequencer => (2 * (n - 1)).max(n * lambda),
                    Algorithm::Skeen => 3 * (n - 1) * lambda.max(1),
                    Algorithm::ChandraToueg => (4 * (n - 1)).max((3 * n - 2) * lambda),
                };
                let world = after_one(algorithm, n, &network, 1);
                let busy = world.networks().map(|(_, _, usage)| usage.busy_ns).max();
                assert_eq!(
                    busy,
                    Some(u64::from(want) * SECOND),
                    "{algorithm:?}, n {n}, λ {lambda}"
                );
            }
        }
    }
}
