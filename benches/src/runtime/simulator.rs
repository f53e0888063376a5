//! Events a second that the simulator handles on one core, its acceleration against real time, and
//! its memory.

use anyhow::{Context as _, Result, ensure};
use itg_core::distribution::{Distribution, Unit};
use itg_core::flow::{Flow, FlowSpec, Proto};
use itg_core::seed::RunSeed;
use itg_process::farm::{self, FarmEvent};
use itg_process::{Config, Ctx, Layer, MS, Message, Params, Registry, SECOND, Slot, TimerId};
use itg_sim::flows::{Logs, Network, RunInfo, SimFlow, simulate};
use itg_sim::{Agenda, Checker, Class, Kind, Observation, ObservedEvent, Swarm, World};
use itg_trials::{Claim, Estimate, Lines, print, with_interval};

/// The bars of the issue.
const EVENTS_BAR: f64 = 2.0;
const ACCELERATION_BAR: f64 = 1000.0;
const MEMORY_BAR_GB: f64 = 2.0;

/// Sends a token to the next process whenever it gets one.
struct Ring;

impl Layer for Ring {
    fn on_start(&mut self, cx: &mut Ctx<'_>) {
        let next = Slot((cx.me().0 + 1) % cx.capacity());
        cx.down(Message::new(next, 1, ""));
    }

    fn deliver(&mut self, message: Message, cx: &mut Ctx<'_>) {
        let next = Slot((cx.me().0 + 1) % cx.capacity());
        cx.down(Message { dst: next.into(), ..message });
    }
}

/// A timer each millisecond.
struct Tick;

impl Layer for Tick {
    fn on_start(&mut self, cx: &mut Ctx<'_>) {
        cx.set_timer_after(MS);
    }

    fn timer(&mut self, _id: TimerId, cx: &mut Ctx<'_>) {
        cx.set_timer_after(MS);
    }
}

/// The farm ends with all results.
#[derive(Default)]
struct Complete {
    tasks: u64,
    seen: bool,
}

impl Checker for Complete {
    fn name(&self) -> &'static str {
        "farm"
    }

    fn see(&mut self, seen: &Observation<'_>) -> Result<(), String> {
        if let ObservedEvent::Event(event) = seen.what
            && let Some(complete @ FarmEvent::Complete { .. }) = event.decode()
        {
            self.seen = complete == farm::expected(self.tasks);
            return self.seen.then_some(()).ok_or_else(|| format!("{complete:?}"));
        }
        Ok(())
    }

    fn converged(&self) -> bool {
        self.seen
    }
}

/// Result of a run: events handled, and virtual time in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    events: u64,
    virtual_ns: u64,
}

fn world(text: &str, seed: u64) -> Result<World> {
    let registry = farm::layers(Registry::new())
        .with("ring", |_| Ok(Box::new(Ring)))
        .with("tick", |_| Ok(Box::new(Tick)));
    let config = Config::parse(text, "benchmark")?;
    Ok(World::new(&config, &registry, RunSeed(seed))?)
}

fn layers(processes: u32, network: &str, layer: &str) -> String {
    format!(
        "processes = {processes}\n[[network]]\nname = \"main\"\n{network}\n[[process]]\nlayers = \
         [\"{layer}\"]"
    )
}

fn until(text: &str, end: u64) -> Result<Done> {
    let mut world = world(text, 1)?;
    world.run(end);
    Ok(Done { events: world.counts().events, virtual_ns: world.now() })
}

/// The heap alone, with 1000 events that wait.
fn heap() -> Done {
    const EVENTS: u64 = 2_000_000;
    let mut agenda = Agenda::default();
    (0..1000_u64).for_each(|k| agenda.push(k * 7919 % 1000, Class::World, k));
    for _ in 0..EVENTS {
        if let Some((at, k)) = agenda.pop() {
            agenda.push(at + 1 + k * 7919 % 1000, Class::World, k);
        }
    }
    Done { events: EVENTS, virtual_ns: 0 }
}

/// Five processes of the farm with faults drawn from the seed, and a checker.
fn protocol() -> Result<Done> {
    const TASKS: u64 = 3000;
    let config = farm::configuration(5, TASKS, "kind = \"random\"");
    let mut done = Done::default();
    for seed in 0..10 {
        let mut world = world(&config, seed)?;
        world.check(Complete { tasks: TASKS, seen: false });
        let swarm = Swarm::draw(
            RunSeed(seed),
            5,
            40 * SECOND,
            &Kind::ALL,
            Some(Slot(0)),
            "failure-detector",
        );
        world.set_buggify(swarm.buggify);
        for (at, fault) in swarm.faults {
            world.fault_at(at, fault);
        }
        world.run(40 * SECOND);
        world.heal(&[0, 1, 2, 3, 4].map(Slot));
        world.run(120 * SECOND);
        ensure!(world.converged(), "seed {seed} does not end");
        done.events += world.counts().events;
        done.virtual_ns += world.now();
    }
    Ok(done)
}

/// Ten minutes of 64 flows between 8 hosts: VoIP-like, exponential and bulk ones, a quarter TCP.
fn experiment() -> Result<Done> {
    let mut flows = Vec::new();
    for id in 1..=64 {
        let mut spec = FlowSpec::new(id);
        spec.stop.duration_ns = Some(600 * SECOND);
        if id % 4 == 0 {
            spec.proto = Proto::Tcp;
        }
        spec.idt = Distribution::parse(if id % 2 == 0 { "exp(20ms)" } else { "20ms" }, Unit::Time)?;
        spec.size = Distribution::parse("uniform(100,1400)", Unit::Size)?;
        flows.push(Flow::resolve(spec, RunSeed(1))?);
    }
    let table: toml::Table = "kind = \"switch\"\nrate = \"100Mbps\"".parse()?;
    let mut params = Params::of_table(&table, "[network]", "", None);
    let network = Network::read(&mut params, RunSeed(1), 8, |_| None)?;
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let flows: Vec<_> = (0_u32..)
        .zip(&flows)
        .map(|(k, flow)| {
            let (from, to) = (k % 8, (k + 1 + k / 8) % 8);
            let to = if from == to { (to + 1) % 8 } else { to };
            SimFlow { flow, from, to, name: "", names: (names[from as usize], names[to as usize]) }
        })
        .collect();
    let (mut one, mut other) = (std::io::sink(), std::io::sink());
    let logs = Logs { sender: &mut one, receiver: &mut other };
    let info = RunInfo { program: "benchmark".to_owned(), ..RunInfo::default() };
    let summary = simulate(&flows, 8, network, RunSeed(1), &info, logs)?;
    Ok(Done { events: summary.events, virtual_ns: summary.virtual_ns })
}

/// Bytes of memory that this process holds now.
fn resident() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/self/statm").context("/proc/self/statm")?;
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<f64>().ok());
    Ok(pages.context("/proc/self/statm")? * 4096.0)
}

/// Prints the table.
pub(crate) fn run(trials: usize) -> Result<()> {
    let many = layers(10_000, "kind = \"random\"", "ring");
    let before = resident()?;
    let mut world = world(&many, 1)?;
    world.run(100 * MS);
    let gb = (resident()? - before) / 1e9;
    // First of all, so that no freed memory serves it.
    let what = format!("10 000 processes that send messages: {gb:.3} GB, <= {MEMORY_BAR_GB} GB");
    let mut claims = vec![Claim::new(gb <= MEMORY_BAR_GB, &what)];
    drop(world);
    print(format_args!("simulator, one thread, seconds of its processor time, {trials} trials"));
    let mut lines = Lines::new(["", "events", "seconds", "M events/s", "x real time"]);
    let fixed = layers(100, "kind = \"fixed\"", "ring");
    let random = layers(100, "kind = \"random\"", "ring");
    let switch = layers(100, "kind = \"switch\"", "ring");
    let ticks = layers(100, "kind = \"fixed\"", "tick");
    type Run<'a> = Box<dyn Fn() -> Result<Done> + 'a>;
    let rows: [(&str, Option<f64>, Option<f64>, Run<'_>); 7] = [
        ("heap alone, 1000 events wait", Some(EVENTS_BAR), None, Box::new(|| Ok(heap()))),
        ("timers, 100 processes", Some(EVENTS_BAR), None, Box::new(|| until(&ticks, 10 * SECOND))),
        (
            "messages, fixed delay, 100 processes",
            Some(EVENTS_BAR),
            None,
            Box::new(|| until(&fixed, 10 * SECOND)),
        ),
        (
            "messages, random delay, 100 processes",
            Some(EVENTS_BAR),
            None,
            Box::new(|| until(&random, 10 * SECOND)),
        ),
        (
            "messages, switch, 100 processes",
            Some(EVENTS_BAR),
            None,
            Box::new(|| until(&switch, SECOND)),
        ),
        ("farm of 5 processes, faults, checker", None, Some(ACCELERATION_BAR), Box::new(protocol)),
        ("10 minutes of 64 flows between 8 hosts", None, None, Box::new(experiment)),
    ];
    for (name, events_bar, time_bar, run) in rows {
        let mut seconds = Vec::new();
        let mut done = Done::default();
        for _ in 0..trials.max(1) {
            let begin = itg_socket::clock::thread_cpu_ns();
            done = run()?;
            seconds.push((itg_socket::clock::thread_cpu_ns() - begin) as f64 / 1e9);
        }
        let took = Estimate::of(&seconds).mid.max(1e-9);
        let rate = done.events as f64 / took / 1e6;
        let times = done.virtual_ns as f64 / 1e9 / took;
        claims.push(match (events_bar, time_bar) {
            (Some(bar), _) => {
                Claim::new(rate >= bar, &format!("{name}: {rate:.2} M events/s, >= {bar}"))
            }
            (_, Some(bar)) => {
                Claim::new(times >= bar, &format!("{name}: {times:.0} x real time, >= {bar}"))
            }
            _ => Claim::new(took < 10.0, &format!("{name}: {took:.1} s, < 10")),
        });
        lines.row([
            name.to_owned(),
            done.events.to_string(),
            with_interval(Estimate::of(&seconds), 3),
            format!("{rate:.2}"),
            if times > 0.0 { format!("{times:.0}") } else { String::new() },
        ]);
    }
    print(format_args!("{lines}\n"));
    claims.iter().for_each(print);
    Ok(())
}
