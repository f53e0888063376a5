//! A layer of one's own, first in virtual time, then over TCP: a token goes round a ring of processes.
//!
//! Each process sends the token on to the next one; after the last lap the first process stops them all. The layer is
//! the same code in both worlds. In virtual time a seed decides the run: it is the same each time, and a lap takes as
//! long as the simulated network says.

use std::error::Error;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use itg_core::seed::RunSeed;
use itg_mesh::{Listener, MasterSetup, Meet, Report, SlaveSetup, start_master, start_slave};
use itg_process::bootstrap::Application;
use itg_process::{
    Build, Config, ConfigError, Ctx, Event, Layer, Level, Message, Registry, SECOND, Slot,
    StopReason, Time, layer_events,
};
use itg_sim::World;

/// Type of the message: below 1000, those of applications.
const TOKEN: u32 = 1;
const PROCESSES: u32 = 3;

layer_events! { enum RingEvent { Lap { lap: u64, ns: u64 } = "lap" } }

struct Ring {
    laps: u64,
    lap: u64,
    since: Time,
}

impl Ring {
    fn pass_on(cx: &mut Ctx<'_>) {
        let next = Slot((cx.me().0 + 1) % cx.n());
        cx.down(Message::new(next, TOKEN, Vec::new()));
    }
}

impl Layer for Ring {
    fn on_start(&mut self, cx: &mut Ctx<'_>) {
        self.since = cx.now();
        if cx.me() == Slot(0) {
            Self::pass_on(cx);
        }
    }

    fn deliver(&mut self, message: Message, cx: &mut Ctx<'_>) {
        if message.ty != TOKEN {
            return cx.up(message);
        }
        if cx.me() == Slot(0) {
            self.lap += 1;
            let ns = cx.now().0 - self.since.0;
            cx.log(Level::Info, RingEvent::Lap { lap: self.lap, ns });
            self.since = cx.now();
            if self.lap == self.laps {
                return cx.shutdown(StopReason::Finished);
            }
        }
        Self::pass_on(cx);
    }
}

fn make(build: &mut Build<'_>) -> Result<Box<dyn Layer>, ConfigError> {
    let laps = build.params.number("laps", 3)?;
    Ok(Box::new(Ring { laps, lap: 0, since: Time::ZERO }))
}

/// Configuration of the ring over a kind of network.
fn configuration(network: &str) -> String {
    format!(
        "processes = {PROCESSES}\n[[network]]\nname = \"main\"\nkind = \"{network}\"\n\
         [[process]]\nlayers = [{{ layer = \"ring\", laps = 5 }}]\n"
    )
}

fn print(world: &str, event: &Event) {
    if let Some(RingEvent::Lap { lap, ns }) = event.decode() {
        println!("{world}: lap {lap} took {} us", ns / 1000);
    }
}

fn in_virtual_time(registry: &Registry) -> Result<(), Box<dyn Error>> {
    let config = Config::parse(&configuration("switch"), "ring.toml")?;
    let mut world = World::new(&config, registry, RunSeed(1))?;
    world.keep_events();
    let exit = world.run(60 * SECOND);
    for (_, _, event) in world.take_events() {
        print("virtual time", &event);
    }
    println!("virtual time: {exit:?}");
    Ok(())
}

/// Each process is a thread here, and would be a program on a host of its own: `Meet::Call` names the master's.
fn over_tcp(registry: &Registry) -> Result<(), Box<dyn Error>> {
    let text = configuration("tcp");
    let application = Application { origin: "ring.toml".into(), text, seed: 1, network: None };
    let listener = Listener::bind("127.0.0.1:0".parse()?)?;
    let master = listener.address().to_string();
    let (told, events) = mpsc::channel();
    let mut setup = MasterSetup::new(&application, registry);
    setup.listener = Some(listener);
    setup.watch = Some(Box::new(move |report| {
        if let Report::Event { event, .. } = report {
            // The end of the program is the only listener, and it may have left.
            told.send(event).unwrap_or_default();
        }
    }));
    let limit = Duration::from_secs(60);
    thread::scope(|scope| {
        for _ in 1..PROCESSES {
            scope.spawn(|| {
                match start_slave(SlaveSetup::new(registry, Meet::Call(master.clone()))) {
                    Ok(node) => drop(node.wait(limit).map(|_| node.finish())),
                    Err(error) => eprintln!("a process did not start: {error}"),
                }
            });
        }
        let node = start_master(setup)?;
        let stopped = node.wait(limit).ok_or("it does not stop")?;
        drop(node.finish());
        for event in events.try_iter() {
            print("TCP", &event);
        }
        println!("TCP: {stopped:?}");
        Ok(())
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let registry = Registry::new().with("ring", make);
    in_virtual_time(&registry)?;
    over_tcp(&registry)
}
