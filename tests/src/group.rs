//! Groups of real processes (`itg-cluster process`), whose traces are read by the checkers that watch
//! simulated runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use itg_group::check::{Order, Views};
use itg_group::{Rules, View};
use itg_process::bootstrap::Ticket;
use itg_process::{Event, Level, Slot};
use nix::sys::signal::Signal;
use nix::time::{ClockId, clock_gettime};
use serde_json::Value;
use tempfile::TempDir;

use crate::{Running, program, temp_dir};

/// How long anything may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(90);

/// One life of a process.
struct Life {
    trace: PathBuf,
    running: Option<Running>,
    /// When it was killed, in nanoseconds of the monotonic clock.
    killed: Option<u64>,
    /// Its slot, once it says so.
    slot: Option<u32>,
}

/// Processes of one group on this host, or on several namespaces of it.
pub struct Group {
    dir: TempDir,
    lives: Vec<Life>,
    processes: u32,
}

/// What the checkers make of the traces.
pub struct Judged {
    /// The oracle of views.
    pub views: Views,
    /// The oracle of the order.
    pub order: Order,
}

impl Judged {
    /// Slots of the view that all who live have installed, and that is of exactly them; else why not.
    ///
    /// # Errors
    /// In words: who differs, or has not delivered what others have.
    pub fn agreed(&self) -> Result<Vec<u32>, String> {
        let view = self.views.agreed()?;
        match self.order.missing() {
            None => Ok(view.slots().map(|slot| slot.0).collect()),
            Some(missing) => Err(missing),
        }
    }
}

fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("a clock");
    u64::try_from(now.tv_sec()).expect("positive") * 1_000_000_000
        + u64::try_from(now.tv_nsec()).expect("positive")
}

impl Group {
    /// Starts a process for each of these commands (the program `itg-cluster`, perhaps within a namespace):
    /// the first one is process 0 and is reached at `address`. All cast at random for some seconds.
    #[track_caller]
    #[must_use]
    pub fn start(address: &str, commands: Vec<Command>) -> Self {
        let processes = u32::try_from(commands.len()).expect("few");
        let text = format!(
            "processes = {processes}\nseed = 1\ndrain_timeout = \"500ms\"\n[[network]]\nname = \"main\"\n\
             kind = \"tcp\"\n[[process]]\nlayers = [\"detector\", {{ layer = \"log\", trace = true }}, \
             \"membership\", {{ layer = \"chatter\", pause = \"40ms\", until = \"20s\" }}]\n"
        );
        let mut group = Self { dir: temp_dir(), lives: Vec::new(), processes };
        let file = group.dir.path().join("run.toml");
        fs::write(&file, text).expect("written");
        let ticket = group.ticket();
        let mut at: Option<String> = None;
        for mut command in commands {
            command.arg("process");
            match &at {
                None => command.arg(&file).args(["--listen", &format!("{address}:0")]),
                Some(at) => command.args(["--join", at.as_str()]),
            };
            if at.is_none() {
                command.arg("--ticket").arg(&ticket);
            }
            let running = group.run(command);
            if at.is_none() {
                let line = group.lives[running].running.as_ref().expect("it runs");
                let line = line.line_with("listening on ", LIMIT);
                at = line.rsplit(' ').next().map(str::to_owned);
            }
        }
        group.wait("all run", |group| {
            (0..processes).all(|slot| group.lives.iter().any(|life| life.slot == Some(slot)))
        });
        group
    }

    /// So many processes on this host.
    #[track_caller]
    #[must_use]
    pub fn local(processes: u32) -> Self {
        let command = |_| Command::new(program("itg-cluster"));
        Self::start("127.0.0.1", (0..processes).map(command).collect())
    }

    fn ticket(&self) -> PathBuf {
        self.dir.path().join("ticket")
    }

    fn run(&mut self, mut command: Command) -> usize {
        let number = self.lives.len();
        let trace = self.dir.path().join(format!("{number}.ndjson"));
        let running = Running::start(command.arg("--trace").arg(&trace));
        self.lives.push(Life { trace, running: Some(running), killed: None, slot: None });
        number
    }

    #[track_caller]
    fn wait(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + LIMIT;
        loop {
            for life in self.lives.iter_mut().filter(|life| life.slot.is_none()) {
                life.slot = header(&life.trace).map(|(slot, _)| slot);
            }
            if holds(self) {
                return;
            }
            for life in &mut self.lives {
                let command = &life.trace;
                let runs = life.running.as_mut().is_none_or(Running::runs);
                assert!(runs, "the process of {} has ended", command.display());
            }
            assert!(Instant::now() < deadline, "not within {LIMIT:?}: {what}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn life(&mut self, slot: u32) -> &mut Life {
        let life = self.lives.iter_mut().rev().find(|life| life.slot == Some(slot));
        life.expect("a process of this slot")
    }

    /// Sends a signal to a process; `ip netns exec` becomes the program that it runs.
    #[track_caller]
    pub fn signal(&mut self, slot: u32, signal: Signal) {
        let life = self.life(slot);
        life.running.as_ref().expect("it runs").signal(signal);
        if signal == Signal::SIGKILL {
            drop(life.running.take());
            life.killed = Some(monotonic_ns());
        }
    }

    /// A process that was killed runs again, by the ticket of process 0.
    #[track_caller]
    pub fn come_back(&mut self, slot: u32) {
        let ticket = fs::read_to_string(self.ticket()).expect("the ticket of process 0");
        let ticket = Ticket { slot, ..ticket.parse().expect("a ticket") };
        let path = self.dir.path().join(format!("ticket-{slot}-{}", self.lives.len()));
        fs::write(&path, ticket.to_string()).expect("written");
        let mut command = Command::new(program("itg-cluster"));
        command.arg("process").arg("--return").arg(&path);
        let number = self.run(command);
        self.wait("it is back", |group| group.lives[number].slot == Some(slot));
    }

    /// Lets the checkers read the traces as far as they are written.
    ///
    /// # Panics
    /// With the property that does not hold.
    #[track_caller]
    #[must_use]
    pub fn judge(&self) -> Judged {
        let mut told: Vec<(u64, usize, Told)> = Vec::new();
        // What happened before this instant: its causes have been written before it.
        let until = monotonic_ns();
        for (number, life) in self.lives.iter().enumerate() {
            let Some((slot, start)) = header(&life.trace) else { continue };
            let mut events = events(&life.trace);
            events.retain(|(at, _)| *at <= until);
            let begin = events.first().map_or(0, |(at, _)| *at);
            told.push((begin, number, Told::Started(Slot(slot), start)));
            told.extend(
                events.into_iter().map(|(at, event)| (at, number, Told::Said(Slot(slot), event))),
            );
            told.extend(life.killed.map(|at| (at, number, Told::Gone(Slot(slot)))));
        }
        // Stable: what one process says at one instant stays in its order.
        told.sort_by_key(|(at, number, _)| (*at, *number));
        let mut judged = Judged {
            views: Views::new(View::first(self.processes, Rules::default())),
            order: Order::of(self.processes, false),
        };
        for (at, _, told) in &told {
            let held = match told {
                Told::Started(slot, start) => {
                    judged.views.started(*slot, *start);
                    judged.order.started(*slot, *start);
                    Ok(())
                }
                Told::Gone(slot) => {
                    judged.views.gone(*slot);
                    judged.order.gone(*slot);
                    Ok(())
                }
                Told::Said(slot, event) => {
                    judged.views.see(*slot, event).and_then(|()| judged.order.see(*slot, event))
                }
            };
            if let Err(violation) = held {
                self.keep();
                panic!("at {at} ns: {violation}; traces in {}", self.kept().display());
            }
        }
        judged
    }

    fn kept(&self) -> PathBuf {
        std::env::temp_dir().join(format!("itg-traces-{}", std::process::id()))
    }

    /// Keeps the traces of a run that broke a property.
    fn keep(&self) {
        fs::create_dir_all(self.kept()).expect("a directory");
        for life in &self.lives {
            let name = life.trace.file_name().expect("a name");
            fs::copy(&life.trace, self.kept().join(name)).expect("a copy");
        }
    }

    /// Waits until those of the group who live agree on a view of exactly these slots.
    #[track_caller]
    pub fn until_view(&mut self, slots: &[u32]) {
        let deadline = Instant::now() + LIMIT;
        loop {
            let why = match self.judge().views.agreed() {
                Ok(view) => {
                    let found: Vec<_> = view.slots().map(|slot| slot.0).collect();
                    if found == slots {
                        return;
                    }
                    format!("view {} of {found:?}", view.no())
                }
                Err(why) => why,
            };
            assert!(Instant::now() < deadline, "no view of {slots:?} within {LIMIT:?}: {why}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits until a process has said this, so many times.
    #[track_caller]
    pub fn until_said(&mut self, slot: u32, name: &str, times: usize) {
        self.wait(&format!("process {slot} says `{name}`"), |group| {
            let lives = group.lives.iter().filter(|life| life.slot == Some(slot));
            let said = lives.flat_map(|life| events(&life.trace));
            said.filter(|(_, event)| event.name == name).count() >= times
        });
    }

    /// Whether anybody has said this.
    #[must_use]
    pub fn anybody_said(&self, name: &str) -> bool {
        self.lives.iter().flat_map(|life| events(&life.trace)).any(|(_, event)| event.name == name)
    }

    /// Waits until nothing is cast any more and everybody has everything, then ends all processes: what all
    /// of them have said holds to the end.
    #[track_caller]
    pub fn finish(mut self) -> Judged {
        let deadline = Instant::now() + LIMIT;
        let judged = loop {
            let judged = self.judge();
            match judged.agreed() {
                Ok(_) => break judged,
                Err(why) if Instant::now() > deadline => panic!("after {LIMIT:?}: {why}"),
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        };
        let asked = self.lives.iter().find_map(|life| life.running.as_ref());
        asked.expect("somebody runs").signal(Signal::SIGTERM);
        for life in &mut self.lives {
            if let Some(running) = life.running.take() {
                let done = running.finish(LIMIT);
                assert!(matches!(done.code, Some(0 | 143)), "{done}");
            }
        }
        drop(self.judge());
        judged
    }
}

enum Told {
    Started(Slot, u64),
    Said(Slot, Event),
    Gone(Slot),
}

fn lines(trace: &Path) -> Vec<Value> {
    let text = fs::read_to_string(trace).unwrap_or_default();
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    whole.map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Slot and life of a trace, when it says so.
fn header(trace: &Path) -> Option<(u32, u64)> {
    lines(trace).iter().find_map(|line| {
        let slot = u32::try_from(line["process"].as_u64()?).ok()?;
        Some((slot, line["life"].as_u64()?))
    })
}

fn events(trace: &Path) -> Vec<(u64, Event)> {
    let lines = lines(trace);
    let event = |line: &Value| {
        let name = NAMES.iter().find(|name| line["event"] == **name)?;
        let value = |k: usize| line["values"][k].as_u64().expect("a number");
        let values = [value(0), value(1), value(2)];
        let event = Event { level: Level::Info, name, values };
        Some((line["at_ns"].as_u64().expect("a time"), event))
    };
    lines.iter().filter_map(event).collect()
}

/// The events that the checkers know, and those that tests ask for.
const NAMES: [&str; 20] = [
    "view made",
    "view gone",
    "view new",
    "installed",
    "excluded",
    "digests differ",
    "not a child",
    "cast",
    "deliver",
    "view",
    "install",
    "born again",
    "welcomed",
    "state",
    "decided",
    "collect",
    "lost payload",
    "suspended",
    "refused",
    "given up",
];
