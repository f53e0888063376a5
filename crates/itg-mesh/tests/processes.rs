//! Processes made of layers on real networks: several OS processes over loopback, and (as root) between
//! network namespaces in `tests/tests/privileged_processes.rs`.
//!
//! A child is this program again, asked for the test `child` alone.

mod meter;

use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use itg_mesh::tasks::{Queues, carry, drive};
use itg_mesh::{
    Ended, Listener, MasterSetup, Meet, Node, Report, SlaveSetup, StartError, start_master,
    start_slave,
};
use itg_process::bootstrap::{Application, Require, Step};
use itg_process::farm::{self, FarmEvent};
use itg_process::{
    Config, Contract, Ctx, Event, Inproc, Layer, Level, Message, NetId, Network, Registry, SECOND,
    Slot, StopReason, Time, layer_events, types,
};
use itg_sim::{Exit, World};
use itg_testkit::child::Kept;
use meter::MeterEvent;
use tokio::sync::mpsc::channel;

/// Task of a child: `call|wait ADDRESS [die STEP]`.
const TASK: &str = "ITG_TEST_CHILD";
/// Time that any part of a test may take.
const LIMIT: Duration = Duration::from_secs(30);
const STEP_LIMIT: u64 = 15 * SECOND;

fn any_port() -> SocketAddr {
    SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0)
}

fn registry() -> Registry {
    farm::layers(Registry::new())
        .with("second-network", |_| Ok(Box::new(SecondNetwork)))
        .with("meter", meter::make)
        .with("flood", |_| Ok(Box::new(Flood::default())))
        .with("stopper", |_| Ok(Box::new(Stopper::default())))
}

/// Puts what failure detectors say on the second network.
struct SecondNetwork;

impl Layer for SecondNetwork {
    fn send(&mut self, message: Message, cx: &mut Ctx<'_>) {
        let net = u8::from(types::DETECTOR.contains(&message.ty));
        cx.down(message.on(NetId(net)));
    }
}

layer_events! {
    /// Events of the flood.
    enum FloodEvent {
        /// Message that found no room.
        Refused { bytes: u64, ty: u32 } = "refused",
    }
}

/// Process 0 sends far more than a queue holds to process 1, which is slow.
#[derive(Default)]
struct Flood {
    next: u64,
    refused: u64,
}

const FLOOD: u64 = 2000;
const FLOOD_BODY: usize = 10_000;

impl Layer for Flood {
    fn on_start(&mut self, cx: &mut Ctx<'_>) {
        if cx.me() == Slot(0) {
            cx.set_timer_after(0);
        }
    }

    fn timer(&mut self, _id: itg_process::TimerId, cx: &mut Ctx<'_>) {
        for _ in 0..100 {
            let mut body = vec![7; FLOOD_BODY];
            body[..8].copy_from_slice(&self.next.to_le_bytes());
            self.next += 1;
            cx.down(Message::new(Slot(1), 1, body));
        }
        if self.next < FLOOD {
            cx.set_timer_after(1_000_000);
        }
    }

    fn deliver(&mut self, message: Message, _cx: &mut Ctx<'_>) {
        let number = message.body.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        let number = number.expect("a number");
        assert!(number >= self.next, "{number} after {}: order is kept", self.next);
        self.next = number + 1;
        std::thread::sleep(Duration::from_micros(500));
    }

    fn refused(&mut self, message: Message, cx: &mut Ctx<'_>) {
        self.refused += 1;
        let bytes = message.body.len() as u64;
        cx.log(Level::Info, FloodEvent::Refused { bytes, ty: message.ty });
    }
}

/// Stops all processes when process 0 says so.
#[derive(Default)]
struct Stopper {
    dies: bool,
}

impl Layer for Stopper {
    fn drained(&self) -> bool {
        // One that is about to die is not gone before.
        !self.dies
    }

    fn deliver(&mut self, message: Message, cx: &mut Ctx<'_>) {
        self.dies = message.body.first() == Some(&1);
        cx.shutdown(StopReason::Interrupted);
        if self.dies {
            // After this call: what the call has written is with the kernel.
            std::thread::spawn(|| {
                std::thread::sleep(Duration::from_millis(20));
                std::process::abort();
            });
        }
    }
}

/// The other half of the tests: a slave, as `ITG_TEST_CHILD` says.
#[test]
#[ignore = "what the other tests start"]
fn child() {
    let Ok(task) = std::env::var(TASK) else { return };
    let words: Vec<_> = task.split(' ').collect();
    let meet = match words[0] {
        "call" => Meet::Call(words[1].to_owned()),
        _ => {
            let listener = Listener::bind(words[1].parse().expect("an address")).expect("free");
            // The one line that the parent waits for.
            eprintln!("listening on {}", listener.address());
            Meet::Wait(listener)
        }
    };
    let registry = registry();
    let mut setup = SlaveSetup::new(&registry, meet);
    setup.patience = LIMIT;
    setup.step_timeout = clock(STEP_LIMIT);
    if let Some(step) = words.get(3) {
        let step: u32 = step.parse().expect("a step");
        setup.on_step = Some(Box::new(move |done| {
            if done as u32 == step {
                std::process::abort();
            }
        }));
    }
    match start_slave(setup) {
        Ok(node) => {
            let reason = node.wait(LIMIT);
            let ended = node.finish();
            assert_eq!(ended.reason, reason);
            std::process::exit(if reason.is_some() { 0 } else { 9 });
        }
        Err(StartError::Bootstrap(_)) => std::process::exit(3),
        Err(error) => panic!("{error}"),
    }
}

/// Processes of a master: this program again, as children.
struct Slave;

impl Slave {
    fn start(task: &str) -> Kept {
        let child = Command::new(std::env::current_exe().expect("this program"))
            .args(["child", "--exact", "--ignored", "--nocapture"])
            .env(TASK, task)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a child");
        Kept(child)
    }

    fn call(at: SocketAddr, die: &str) -> Kept {
        Self::start(&format!("call {at}{die}"))
    }

    /// Waits for a call; the address on which it does.
    fn wait(die: &str) -> (Kept, String) {
        use std::io::BufRead as _;
        let mut slave = Self::start(&format!("wait 127.0.0.1:0{die}"));
        let stderr = slave.0.stderr.take().expect("piped");
        let mut line = String::new();
        let mut reader = std::io::BufReader::new(stderr);
        while !line.contains("listening on ") {
            line.clear();
            assert_ne!(reader.read_line(&mut line).expect("words"), 0, "the child says nothing");
        }
        // What it says later must not fill the pipe.
        std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::stderr()));
        let at = line.trim().rsplit(' ').next().expect("a word").to_owned();
        (slave, at)
    }
}

type Events = Arc<Mutex<Vec<Event>>>;

fn application(text: &str) -> Application {
    let text = text.to_owned();
    Application { origin: "run.toml".to_owned(), text, seed: 7, network: None }
}

/// A master with slaves that call it.
fn arrival(text: &str, slaves: usize, die: impl Fn(usize) -> String) -> Started {
    let application = application(text);
    let registry = registry();
    let listener = Listener::bind(any_port()).expect("a port");
    let at = listener.address();
    let slaves: Vec<_> = (0..slaves).map(|k| Slave::call(at, &die(k))).collect();
    let events = Events::default();
    let noted = Arc::clone(&events);
    let mut setup = MasterSetup::new(&application, &registry);
    setup.listener = Some(listener);
    setup.step_timeout = clock(STEP_LIMIT);
    setup.watch = Some(Box::new(move |note| {
        if let Report::Event { event, .. } = note {
            noted.lock().expect("no panic").push(event);
        }
    }));
    Started { node: start_master(setup), slaves, events }
}

struct Started {
    node: Result<Node, StartError>,
    slaves: Vec<Kept>,
    events: Events,
}

impl Started {
    /// Waits until all processes have stopped; the end of the master.
    fn finish(mut self) -> (Ended, Vec<Event>) {
        let node = self.node.expect("all are there");
        let reason = node.wait(LIMIT);
        assert!(reason.is_some(), "it does not stop");
        let ended = node.finish();
        for slave in &mut self.slaves {
            assert_eq!(slave.code(LIMIT), Some(0));
        }
        let events = self.events.lock().expect("no panic").clone();
        (ended, events)
    }
}

/// Last event of the farm.
fn complete(events: &[Event]) -> Option<FarmEvent> {
    let mut events = events.iter().filter_map(Event::decode);
    events.find(|event| matches!(event, FarmEvent::Complete { .. }))
}

#[test]
fn n_1_the_farm_completes_on_real_networks() {
    let expected = Some(farm::expected(300));
    let layers = |network: &str| {
        farm::configuration(4, 300, network)
            .replace("\"worker\"", "{ layer = \"worker\", work = \"1ms\" }")
    };
    for network in ["kind = \"tcp\"", "kind = \"unix\"", "kind = \"udp\"\nloss = 0.01"] {
        let (ended, events) = arrival(&layers(network), 3, |_| String::new()).finish();
        assert_eq!(complete(&events), expected, "{network}");
        assert_eq!(ended.reason, Some(StopReason::Finished), "{network}");
        let counters = &ended.networks[&0];
        assert!(counters.received >= 300, "{network}: {counters:?}");
        assert_eq!((counters.damaged, counters.strangers), (0, 0), "{network}: {counters:?}");
        assert_eq!(counters.lost > 0, network.contains("loss"), "{network}: {counters:?}");
    }
}

/// Runs the processes of a configuration as agents do, a task each, over byte streams between all pairs.
fn on_tasks(config: &Config, seed: itg_core::seed::RunSeed) -> Vec<Event> {
    let networks = [Network { name: "main".to_owned(), contract: Contract::STREAM }];
    let built = registry().processes(config, seed, &networks.into()).expect("known layers");
    let events = Events::default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build();
    runtime.expect("threads").block_on(async {
        let slot = |at: usize| Slot(u32::try_from(at).expect("few"));
        let (inboxes, taken): (Vec<_>, Vec<_>) = built.iter().map(|_| channel(4096)).unzip();
        let reports = || {
            let noted = Arc::clone(&events);
            Queues::new(Box::new(move |note| {
                if let Report::Event { event, .. } = note {
                    noted.lock().expect("no panic").push(event);
                }
            }))
        };
        let mut queues: Vec<_> = built.iter().map(|_| reports()).collect();
        for (a, b) in (0..built.len()).flat_map(|a| (0..a).map(move |b| (a, b))) {
            let (near, far) = tokio::io::duplex(4096);
            for (me, peer, stream) in [(a, b, near), (b, a, far)] {
                let (inbox, (queue, frames)) = (inboxes[me].clone(), channel(4096));
                queues[me].connect(slot(peer), 0, queue);
                let both = (slot(me), slot(peer));
                tokio::spawn(async move { carry(stream, both, frames, &inbox).await });
            }
        }
        let driven = built.into_iter().zip(taken).zip(queues);
        let driven = driven.map(|((process, inbox), queues)| drive(process, inbox, queues));
        let running: Vec<_> = driven.map(tokio::spawn).collect();
        for process in running {
            let stopped = tokio::time::timeout(LIMIT, process).await.expect("it stops");
            assert_eq!(stopped.expect("no panic"), Some(StopReason::Finished));
        }
    });
    std::mem::take(&mut *events.lock().expect("no panic"))
}

/// S-5: the layer of docs/layers.md under the farm, in one address space, in virtual time, on tasks as agents
/// have them, on real networks.
#[test]
fn s_5_a_layer_of_thirty_lines_runs_in_all_worlds() {
    let text = |network: &str| {
        farm::configuration(4, 300, network)
            .replace(
                "[\"failure-detector\"",
                "[{ layer = \"meter\", period = \"2ms\" }, \"failure-detector\"",
            )
            .replace("\"worker\"", "{ layer = \"worker\", work = \"1ms\" }")
    };
    let config = |text: &str| Config::parse(text, "farm.toml").expect("well written");
    let seed = itg_core::seed::RunSeed(1);
    let expected = Some(farm::expected(300));
    let look = |world: &str, events: &[Event]| {
        assert_eq!(complete(events), expected, "{world}");
        let last = events.iter().rev().find_map(Event::decode);
        let MeterEvent::Passed { up, down } = last.unwrap_or_else(|| panic!("{world}: no meter"));
        assert!(up > 0 && down > 0, "{world}: {up} up, {down} down");
    };

    let networks = [Network { name: "main".to_owned(), contract: Contract::INPROC }];
    let processes =
        registry().processes(&config(&text("kind = \"inproc\"")), seed, &networks.into());
    let mut world = Inproc::start(processes.expect("known layers"), 100, Time::ZERO);
    world.run_until(Time(60 * SECOND));
    let events: Vec<Event> = world.take_events().into_iter().map(|(_, event)| event).collect();
    look("one address space", &events);

    let mut world =
        World::new(&config(&text("kind = \"switch\"")), &registry(), seed).expect("known");
    world.keep_events();
    assert_eq!(world.run(60 * SECOND), Exit::Stopped);
    let events: Vec<Event> = world.take_events().into_iter().map(|(.., event)| event).collect();
    look("virtual time", &events);
    look("tasks", &on_tasks(&config(&text("kind = \"tasks\"")), seed));

    for network in ["kind = \"tcp\"", "kind = \"unix\"", "kind = \"udp\""] {
        let (_, events) = arrival(&text(network), 3, |_| String::new()).finish();
        look(network, &events);
    }

    // What a user reads is what has run.
    let code = include_str!("meter/mod.rs").replace("pub(crate) ", "");
    let code = code.split_once("impl Layer").expect("a layer").1;
    assert!(include_str!("../../../docs/layers.md").contains(code.trim_end()));
}

#[test]
fn n_1_hosts_of_a_list_are_called() {
    let (slaves, hosts): (Vec<_>, Vec<_>) = (0..3).map(|_| Slave::wait("")).unzip();
    let text = format!("hosts = {hosts:?}\n{}", farm::configuration(4, 50, "kind = \"tcp\""));
    let application = application(&text);
    let registry = registry();
    let events = Events::default();
    let noted = Arc::clone(&events);
    let mut setup = MasterSetup::new(&application, &registry);
    setup.watch = Some(Box::new(move |note| {
        if let Report::Event { event, .. } = note {
            noted.lock().expect("no panic").push(event);
        }
    }));
    let started = Started { node: start_master(setup), slaves, events };
    let (_, events) = started.finish();
    let expected = Some(farm::expected(50));
    assert_eq!(complete(&events), expected);
}

#[test]
fn n_5_losing_all_datagrams_leaves_the_other_network_intact() {
    let text = "processes = 3\n[[network]]\nname = \"data\"\nkind = \"tcp\"\n[[network]]\nname = \
                \"beats\"\nkind = \"udp\"\nloss = 1.0\n[[process]]\nslot = 0\nlayers = \
                [{ layer = \"failure-detector\", timeout = \"300ms\" }, { layer = \"coordinator\", \
                tasks = 60 }]\n[[process]]\nlayers = [\"second-network\", { layer = \"heartbeat\", \
                period = \"50ms\" }, { layer = \"worker\", work = \"400ms\" }]\n";
    let text = text.replace("tasks = 60", "tasks = 6");
    let (ended, events) = arrival(&text, 2, |_| String::new()).finish();
    let expected = Some(farm::expected(6));
    assert_eq!(complete(&events), expected, "data are intact");
    let suspicions = events.iter().filter_map(Event::decode);
    let suspicions = suspicions.filter(|event| matches!(event, FarmEvent::Suspects { .. })).count();
    assert!(suspicions > 0, "nobody misses the heartbeats");
    assert_eq!(ended.networks[&1].received, 0);
}

#[test]
fn n_12_a_slave_that_is_killed_at_any_step_is_named() {
    let text = farm::configuration(4, 10, "kind = \"tcp\"");
    // All steps but the last one, which is the start itself.
    let rows = std::thread::scope(|scope| {
        let rows: Vec<_> = (Step::Hello as u32..=Step::Inited as u32)
            .map(|step| {
                let text = &text;
                scope.spawn(move || {
                    let die = |k| if k == 1 { format!(" die {step}") } else { String::new() };
                    let started = Instant::now();
                    (step, arrival(text, 3, die), started.elapsed())
                })
            })
            .collect();
        rows.into_iter().map(|row| row.join().expect("no panic")).collect::<Vec<_>>()
    });
    for (step, started, took) in rows {
        let Started { node, mut slaves, .. } = started;
        let host = itg_socket::host::name();
        match node {
            // A process that has sent its last message is missed at nothing but the start itself.
            Ok(node) if step == Step::Inited as u32 => {
                assert_eq!(node.wait(LIMIT), Some(StopReason::Finished), "the others work");
                drop(node.finish());
                let codes: Vec<_> = slaves.iter_mut().map(|slave| slave.code(LIMIT)).collect();
                assert_eq!(codes, [Some(0), None, Some(0)]);
                continue;
            }
            Err(StartError::Bootstrap(failed)) => {
                // Before it has a slot, a caller that goes has no name; then one is missing.
                let nobody = step == Step::Hello as u32 && failed.host == "slot 3";
                assert!(failed.host == host || nobody, "step {step}: {failed}");
                assert!(!failed.reason.is_empty() && failed.step <= Step::Inited, "{failed}");
            }
            other => panic!("step {step}: {other:?}"),
        }
        let limit = clock(2 * STEP_LIMIT) + Duration::from_secs(2);
        assert!(took < limit, "step {step}: after {took:?}");
        for (k, slave) in slaves.iter_mut().enumerate() {
            let want = if k == 1 { None } else { Some(3) };
            assert_eq!(slave.code(limit), want, "step {step}: slave {k}");
        }
    }
}

fn clock(ns: u64) -> Duration {
    Duration::from_nanos(ns)
}

#[test]
fn n_12_a_host_that_does_not_answer_is_named() {
    // A port that no process listens on.
    let free = Listener::bind(any_port()).expect("a port").address();
    let (mut slave, at) = Slave::wait("");
    let text = farm::configuration(3, 10, "kind = \"tcp\"");
    let text = format!("hosts = [\"{at}\", \"{free}\"]\n{text}");
    let application = application(&text);
    let registry = registry();
    let mut setup = MasterSetup::new(&application, &registry);
    setup.step_timeout = Duration::from_secs(4);
    let error = start_master(setup).expect_err("one is missing").to_string();
    let start = format!("host {free}: step 1 (hello): ");
    assert!(error.starts_with(&start) && error.contains("refused"), "{error}");
    assert_eq!(slave.code(LIMIT), Some(3));
}

#[test]
fn n_12_a_policy_may_do_without_some() {
    let free = Listener::bind(any_port()).expect("a port").address();
    let (slave, at) = Slave::wait("");
    let text = farm::configuration(3, 10, "kind = \"tcp\"");
    let text = format!("hosts = [\"{free}\", \"{at}\"]\n{text}");
    let application = application(&text);
    let registry = registry();
    let events = Events::default();
    let noted = Arc::clone(&events);
    let mut setup = MasterSetup::new(&application, &registry);
    setup.step_timeout = Duration::from_secs(4);
    setup.require = Require::AtLeast(2);
    setup.watch = Some(Box::new(move |note| {
        if let Report::Event { event, .. } = note {
            noted.lock().expect("no panic").push(event);
        }
    }));
    let node = start_master(setup).expect("two are enough");
    assert_eq!(node.missing(), [1]);
    let (_, events) = Started { node: Ok(node), slaves: vec![slave], events }.finish();
    let expected = Some(farm::expected(10));
    assert_eq!(complete(&events), expected, "slot 1 is suspected, slot 2 works");
}

#[test]
fn n_13_a_stop_from_any_slot_reaches_everybody() {
    let text = "processes = 4\n[[network]]\nname = \"main\"\nkind = \"tcp\"\n[[process]]\n\
                layers = [\"stopper\"]\n";
    // The farthest slot without and with being killed, and the master itself.
    for (slot, kill) in [(0, false), (1, false), (3, false), (2, true)] {
        let mut started = arrival(text, 3, |_| String::new());
        let node = started.node.as_ref().expect("all are there");
        let asked = Instant::now();
        let body = vec![u8::from(kill)];
        node.handle().with(|process, now| match slot {
            0 => process.stop(now, StopReason::Interrupted),
            _ => process.send(now, Message::new(Slot(slot), 1, body)),
        });
        assert_eq!(node.wait(LIMIT), Some(StopReason::Interrupted), "slot {slot}");
        drop(started.node.expect("seen").finish());
        let codes: Vec<_> = started.slaves.iter_mut().map(|slave| slave.code(LIMIT)).collect();
        let took = asked.elapsed();
        let killed = codes.iter().filter(|code| code.is_none()).count();
        assert_eq!(killed, usize::from(kill), "slot {slot}: {codes:?}");
        assert!(codes.iter().flatten().all(|code| *code == 0), "slot {slot}: {codes:?}");
        // The time to drain is 2 s; nobody waits until the limit.
        assert!(took < LIMIT / 2, "slot {slot}, kill {kill}: {took:?}");
    }
}

#[test]
fn a_queue_that_is_full_refuses_and_nothing_else_is_lost() {
    let text = "processes = 2\ndrain_timeout = \"500ms\"\n[[network]]\nname = \"main\"\nkind = \"tcp\"\n\
                queue = 100000\n[[process]]\nlayers = [\"flood\"]\n";
    let started = arrival(text, 1, |_| String::new());
    let node = started.node.as_ref().expect("both are there");
    let handle = node.handle();
    std::thread::sleep(Duration::from_millis(600));
    handle.stop(StopReason::Finished);
    let (ended, events) = started.finish();
    let counters = &ended.networks[&0];
    let refused = events.iter().filter_map(Event::decode::<FloodEvent>).count() as u64;
    assert_eq!(refused, counters.refused, "{counters:?}");
    assert!(refused > 0, "a slow process takes 20 MB at once: {counters:?}");
    assert!(counters.sent > 0, "{counters:?}");
}

#[test]
fn a_broken_connection_is_made_again() {
    let text = farm::configuration(2, 300, "kind = \"tcp\"");
    let started = arrival(&text, 1, |_| String::new());
    let node = started.node.as_ref().expect("both are there");
    // Not each of ten finds a connection on a busy machine.
    for _ in 0..10 {
        std::thread::sleep(Duration::from_millis(150));
        node.break_connections();
    }
    let (ended, events) = started.finish();
    let expected = Some(farm::expected(300));
    assert_eq!(complete(&events), expected);
    let counters = &ended.networks[&0];
    assert!(counters.broken >= 3 && counters.connections >= 4, "{counters:?}");
}

#[test]
fn strangers_are_counted_and_harm_nobody() {
    use std::io::Write as _;
    let text = farm::configuration(2, 60, "kind = \"tcp\"");
    let started = arrival(&text, 1, |_| String::new());
    let node = started.node.as_ref().expect("both are there");
    let listeners = node.addresses();
    let tcp = listeners.iter().find_map(|at| at.strip_prefix("tcp ")).expect("a door");
    let mut garbage = std::net::TcpStream::connect(tcp).expect("open");
    garbage.write_all(&[255; 4096]).expect("taken");
    let silent = std::net::TcpStream::connect(tcp).expect("open");
    let (_, events) = started.finish();
    drop((garbage, silent));
    let expected = Some(farm::expected(60));
    assert_eq!(complete(&events), expected);
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let registry = registry();
    for (text, want) in [
        (
            farm::configuration(3, 1, "kind = \"ethernet\""),
            "run.toml:4:8: [[network]]: kind: `ethernet` is no kind of real network: expected one of \
             `tcp`, `unix`, `udp`",
        ),
        (
            farm::configuration(3, 1, "kind = \"tcp\""),
            "3 processes need 2 hosts besides the master: the configuration names 0; name them all in \
             `hosts`, or none and let them call",
        ),
        (
            farm::configuration(3, 1, "kind = \"tcp\"").replace("worker", "wroker"),
            "run.toml:9:24: layer `wroker`: unknown layer: did you mean `worker`?",
        ),
    ] {
        let application = application(&text);
        let error = start_master(MasterSetup::new(&application, &registry)).expect_err("nonsense");
        assert_eq!(error.to_string(), want);
    }
}
