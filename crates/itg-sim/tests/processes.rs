//! Processes in virtual time: the scenarios of the runtime on simulated networks, metrics,
//! determinism, faults.

mod common;

use common::world;
use itg_process::farm::{self, FarmEvent};
use itg_process::{LayerEvent, MS, Message, Registry, SECOND, Slot, StopReason};
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

/// Events of a set, with time and process.
fn events<E: LayerEvent>(world: &mut World) -> Vec<(u64, Slot, E)> {
    let events = world.take_events().into_iter();
    events.filter_map(|(at, slot, event)| Some((at, slot, event.decode()?))).collect()
}

/// Last events of the farm.
fn complete(world: &mut World) -> Vec<FarmEvent> {
    let events = events(world).into_iter().map(|(.., event)| event);
    events.filter(|event| matches!(event, FarmEvent::Complete { .. })).collect()
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
            let expected = [farm::expected(200)];
            assert_eq!(complete(&mut world), expected, "{network}, crash {crash}");
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
    let events = world.take_events().into_iter();
    let mut events = events.filter_map(|(slot, event)| Some((slot, event.decode()?)));
    let done = events.find(|(_, event)| matches!(event, FarmEvent::Complete { .. }));
    assert_eq!(done, Some((Slot(0), farm::expected(100))));
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
        let events = events(&mut world);
        let count =
            |which: fn(&FarmEvent) -> bool| events.iter().filter(|(.., e)| which(e)).count();
        let suspicions = count(|event| matches!(event, FarmEvent::Suspects { .. }));
        let complete = count(|event| matches!(event, FarmEvent::Complete { .. }));
        (suspicions, complete, world.counts().dropped.clone())
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

#[test]
fn a_world_whose_processes_have_all_crashed_is_healed() {
    let mut world = farm_world(3, 10, "kind = \"fixed\"", 1);
    (0..3).for_each(|slot| world.fault_at(MS, Fault::Crash(Slot(slot))));
    assert_ne!(world.run(SECOND), Exit::Stopped, "none of them has stopped");
    let all: Vec<Slot> = (0..3).map(Slot).collect();
    world.heal(&all);
    assert!(all.iter().all(|slot| world.process(*slot).is_some_and(|it| it.incarnation() == 2)));
}
