//! Processes in virtual time: the scenarios of the runtime on simulated networks, metrics,
//! determinism, faults.

mod common;

use common::broadcast::{self, ALL, Algorithm};
use common::world;
use itg_process::{MS, Message, Registry, SECOND, Slot, StopReason, farm};
use itg_sim::{Exit, Fault, LinkFaults, World};

fn farm_world(processes: u32, tasks: u64, network: &str, seed: u64) -> World {
    let mut world = world(
        &farm::configuration(processes, tasks, network),
        &farm::layers(Registry::new()),
        seed,
    );
    world.keep_events();
    world
}

fn events(world: &mut World, name: &str) -> Vec<(u64, u32, [u64; 3])> {
    let events = world.take_events().into_iter();
    events.filter(|(_, _, e)| e.name == name).map(|(at, slot, e)| (at, slot.0, e.values)).collect()
}

const NETWORKS: [&str; 9] = [
    "kind = \"ethernet\"",
    "kind = \"switch\"",
    "kind = \"fddi\"",
    "kind = \"dcr\"",
    "kind = \"random\"",
    "kind = \"steps\"\nunit = \"1ms\"",
    "kind = \"contention\"\nunit = \"1ms\"",
    "kind = \"fixed\"\nloss = 0.01",
    "kind = \"random\"\nmean = \"20ms\"\nloss = 0.05\nduplication = 0.2",
];

#[test]
fn n_1_the_farm_completes_on_every_simulated_network() {
    let [count, sum] = farm::expected(200);
    for network in NETWORKS {
        for crash in [false, true] {
            let mut world = farm_world(5, 200, network, 7);
            if crash {
                world.fault_at(100 * MS, Fault::Crash(Slot(2)));
                world.fault_at(300 * MS, Fault::Crash(Slot(4)));
                world.fault_at(SECOND, Fault::Recover(Slot(4)));
            }
            let exit = world.run(120 * SECOND);
            assert_eq!(exit, Exit::Stopped, "{network}, crash {crash}");
            let done = events(&mut world, "farm complete");
            let values: Vec<_> = done.iter().map(|(_, _, values)| *values).collect();
            assert_eq!(values, [[count, sum, 0]], "{network}, crash {crash}");
        }
    }
}

#[test]
fn n_1_the_farm_completes_in_process() {
    use itg_process::{Config, Contract, Inproc, Network, Time};
    let text = farm::configuration(4, 100, "kind = \"inproc\"");
    let config = Config::parse(&text, "farm.toml").expect("well written");
    let networks = [Network { name: "main".to_owned(), contract: Contract::INPROC }];
    let registry = farm::layers(Registry::new());
    let built = registry.processes(&config, itg_core::seed::RunSeed(1), &networks.into());
    let mut world = Inproc::start(built.expect("known layers"), 100, Time::ZERO);
    world.run_until(Time(60 * SECOND));
    assert!(world.stopped());
    let done = world.take_events().into_iter().find(|(_, event)| event.name == "farm complete");
    let [count, sum] = farm::expected(100);
    assert_eq!(done.map(|(slot, event)| (slot, event.values)), Some((Slot(0), [count, sum, 0])));
}

#[test]
fn n_5_losing_one_of_two_networks_leaves_the_other_intact() {
    // Heartbeats on the second network, sub-tasks on the first one.
    let registry = farm::layers(Registry::new()).with("second-network", |_| Ok(Box::new(Second)));
    let text = "processes = 4\n[[network]]\nname = \"data\"\nkind = \"switch\"\n[[network]]\nname = \
                \"udp\"\nkind = \"fixed\"\n[[process]]\nslot = 0\nlayers = [\"failure-detector\", \
                \"only-heartbeats\", { layer = \"coordinator\", tasks = 3000 }]\n[[process]]\n\
                layers = [\"second-network\", \"heartbeat\", \"beat\", \"worker\"]\n";
    let registry = registry
        .with("only-heartbeats", |_| Ok(Box::new(itg_process::TraceFilter)))
        .with("beat", |_| Ok(Box::new(itg_process::TraceFilter)));
    let run = |lose: bool| {
        let mut world = world(text, &registry, 3);
        world.keep_events();
        if lose {
            let links = LinkFaults { loss: 1_000_000, ..LinkFaults::default() };
            world.fault_at(0, Fault::Links(1, links));
        }
        let exit = world.run(300 * SECOND);
        assert_eq!(exit, Exit::Stopped);
        let events = world.take_events();
        let count = |name| events.iter().filter(|(_, _, event)| event.name == name).count();
        (count("suspects"), count("farm complete"), world.counts().dropped.clone())
    };
    assert_eq!(run(false).0, 0);
    let (_, complete, dropped) = run(true);
    assert_eq!(complete, 1, "data are intact");
    assert!(dropped.keys().all(|why| *why == itg_sim::Drop::Loss), "{dropped:?}");
}

/// Puts heartbeats on the second network.
struct Second;

impl itg_process::Layer for Second {
    fn send(&mut self, message: Message, cx: &mut itg_process::Ctx<'_>) {
        let net = u8::from(message.ty >= 1200);
        cx.down(message.on(itg_process::NetId(net)));
    }
}

#[test]
fn n_6_one_seed_one_trace() {
    for network in NETWORKS {
        let run = |seed| {
            let mut world = farm_world(4, 50, network, seed);
            world.set_buggify(1000);
            world.keep_capture();
            world.fault_at(50 * MS, Fault::Crash(Slot(1)));
            world.fault_at(60 * MS, Fault::Clock(Slot(2), 400, 5 * MS));
            world.run(100 * SECOND);
            (world.hash(), world.counts().clone(), world.take_capture())
        };
        let (first, other) = (run(1), run(2));
        assert_eq!(run(1), first, "{network}");
        if network.contains("random") || network.contains("loss") {
            assert_ne!(other.0, first.0, "{network}: another seed, another run");
        }
    }
}

/// One broadcast by `sender`: times of the deliveries in order, and unicasts.
fn broadcast(algorithm: Algorithm, n: u32, network: &str, sender: u32) -> (Vec<u64>, u64) {
    let text = format!(
        "processes = {n}\n[[network]]\nname = \"main\"\n{network}\n[[process]]\nlayers = [\"{}\"]",
        algorithm.name()
    );
    let mut world = world(&text, &broadcast::layers(Registry::new()), 1);
    world.keep_events();
    world.with(Slot(sender), |process, now| {
        process.send(now, Message::new(Slot(sender), broadcast::REQUEST, ""));
    });
    assert_eq!(world.run(u64::MAX), Exit::Idle);
    let delivered = events(&mut world, "deliver");
    assert_eq!(delivered.len(), n as usize, "everybody delivers");
    let frames = world.networks().map(|(_, _, usage)| usage.frames).sum();
    (delivered.iter().map(|(at, ..)| *at).collect(), frames)
}

#[test]
fn n_7_steps_and_messages_of_the_broadcasts() {
    for n in 2..=16 {
        for (algorithm, steps) in ALL.into_iter().zip(2..) {
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
    for n in 2..=9_u64 {
        for lambda in [1, 2, 10] {
            let network = format!("kind = \"contention\"\nlambda = {lambda}");
            for algorithm in ALL {
                let want = match algorithm {
                    Algorithm::Sequencer => (2 * (n - 1)).max(n * lambda),
                    Algorithm::Skeen => 3 * (n - 1) * lambda.max(1),
                    Algorithm::ChandraToueg => (4 * (n - 1)).max((3 * n - 2) * lambda),
                };
                let text = format!(
                    "processes = {n}\n[[network]]\nname = \"main\"\n{network}\n[[process]]\nlayers = \
                     [\"{}\"]",
                    algorithm.name()
                );
                let mut world = world(&text, &broadcast::layers(Registry::new()), 1);
                world.with(Slot(1), |process, now| {
                    process.send(now, Message::new(Slot(1), broadcast::REQUEST, ""));
                });
                world.run(u64::MAX);
                let busy = world.networks().map(|(_, _, usage)| usage.busy_ns).max();
                assert_eq!(busy, Some(want * SECOND), "{algorithm:?}, n {n}, λ {lambda}");
            }
        }
    }
}

#[test]
fn n_13_a_stop_reaches_everybody_also_when_the_caller_is_killed_right_after() {
    let text = |n: u32| {
        format!(
            "processes = {n}\n[[network]]\nname = \"main\"\nkind = \"random\"\nloss = 0.2\n[[process]]\n\
             layers = [\"trace\"]"
        )
    };
    for n in [5_u32, 30, 200] {
        for from in [0, 1, n - 1] {
            for kill in [false, true] {
                let mut world = world(&text(n), &Registry::new(), u64::from(n + from));
                world.fault_at(SECOND, Fault::Pause(Slot(0), 1));
                world.run(SECOND + 2);
                world.with(Slot(from), |process, now| process.stop(now, StopReason::Interrupted));
                if kill {
                    world.fault_at(world.now(), Fault::Crash(Slot(from)));
                }
                // The time to drain is 2 s.
                let exit = world.run(world.now() + 3 * SECOND);
                assert_eq!(exit, Exit::Stopped, "n {n} from {from}, killed {kill}");
            }
        }
    }
}

#[test]
fn exits_are_told_apart() {
    let mut world = farm_world(3, 10, "kind = \"fixed\"", 1);
    assert_eq!(world.run(MS), Exit::Until);
    assert_eq!(world.now(), MS);
    assert_eq!(world.run(100 * SECOND), Exit::Stopped);
    let text =
        "processes = 2\n[[network]]\nname = \"main\"\nkind = \"fixed\"\n[[process]]\nlayers = []";
    assert_eq!(common::world(text, &Registry::new(), 1).run(SECOND), Exit::Idle);
}
