//! Groups of real processes (`itg-cluster process`), whose traces are read by the checkers that watch
//! simulated runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use itg_group::cast::{CastEvent, ReplicaEvent};
use itg_group::check::{Order, Views};
use itg_group::detector::DetectorEvent;
use itg_group::membership::MembershipEvent;
use itg_group::{Rules, View};
use itg_process::bootstrap::Ticket;
use itg_process::{Event, LayerEvent, Level, Slot};
use nix::sys::signal::Signal;
use nix::time::{ClockId, clock_gettime};
use serde_json::Value;
use tempfile::TempDir;

use crate::{Running, program, temp_dir};

/// Time that anything may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(90);

/// One incarnation of a process.
struct Incarnation {
    trace: PathBuf,
    running: Option<Running>,
    /// Instant at which it was killed, in nanoseconds of the monotonic clock.
    killed: Option<u64>,
    /// Its slot, once it says so.
    slot: Option<u32>,
}

/// Processes of one group on this host, or on several namespaces of it.
pub struct Group {
    dir: TempDir,
    lives: Vec<Incarnation>,
    processes: u32,
}

/// Verdict of the checkers on the traces.
pub struct Judged {
    /// The oracle of views.
    pub views: Views,
    /// The oracle of the order.
    pub order: Order,
}

impl Judged {
    /// Slots of the view that all running processes have installed, and that is of exactly them;
    /// else the reason.
    ///
    /// # Errors
    /// In words: the process that differs, or has not delivered what others have.
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
    /// the first one is process 0 and is reached at `address`. All cast at random for 20 s.
    #[track_caller]
    #[must_use]
    pub fn start(address: &str, commands: Vec<Command>) -> Self {
        Self::with("\"detector\"", "20s", address, commands)
    }

    /// The same with this layer for the detector, casting at random for so long.
    #[track_caller]
    #[must_use]
    pub fn with(detector: &str, until: &str, address: &str, commands: Vec<Command>) -> Self {
        let processes = u32::try_from(commands.len()).expect("few");
        let text = format!(
            "processes = {processes}\nseed = 1\ndrain_timeout = \"500ms\"\n[[network]]\nname = \"main\"\n\
             kind = \"tcp\"\n[[process]]\nlayers = [{detector}, {{ layer = \"log\", trace = true }}, \
             \"membership\", {{ layer = \"chatter\", pause = \"40ms\", until = \"{until}\" }}]\n"
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
        let commands = (0..processes).map(|_| Command::new(program("itg-cluster"))).collect();
        Self::start("127.0.0.1", commands)
    }

    /// The same, where nobody is excluded before it has been silent for 6 s instead of 3.
    #[track_caller]
    #[must_use]
    pub fn patient(processes: u32) -> Self {
        let commands = (0..processes).map(|_| Command::new(program("itg-cluster"))).collect();
        let detector = "{ layer = \"detector\", exclude = \"6s\" }";
        Self::with(detector, "20s", "127.0.0.1", commands)
    }

    fn ticket(&self) -> PathBuf {
        self.dir.path().join("ticket")
    }

    fn run(&mut self, mut command: Command) -> usize {
        let number = self.lives.len();
        let trace = self.dir.path().join(format!("{number}.ndjson"));
        let running = Running::start(command.arg("--trace").arg(&trace));
        self.lives.push(Incarnation { trace, running: Some(running), killed: None, slot: None });
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

    fn life(&mut self, slot: u32) -> &mut Incarnation {
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

    /// A process that was killed runs again, by its ticket.
    #[track_caller]
    pub fn come_back(&mut self, slot: u32) {
        self.come_back_by(slot, Command::new(program("itg-cluster")));
    }

    /// The same, by this command (the program `itg-cluster`, perhaps within a namespace).
    #[track_caller]
    pub fn come_back_by(&mut self, slot: u32, mut command: Command) {
        let path = self.ticket_of(slot);
        command.args(["process", "--step-timeout", "2s", "--return"]).arg(&path);
        let number = self.run(command);
        self.wait("it is back", |group| group.lives[number].slot == Some(slot));
    }

    /// The ticket of a process: the first time it is that of process 0 for its slot.
    #[track_caller]
    #[must_use]
    pub fn ticket_of(&self, slot: u32) -> PathBuf {
        let path = self.dir.path().join(format!("ticket-{slot}"));
        if !path.exists() {
            let ticket = fs::read_to_string(self.ticket()).expect("the ticket of process 0");
            let ticket = Ticket { slot, ..ticket.parse().expect("a ticket") };
            fs::write(&path, ticket.to_string()).expect("written");
        }
        path
    }

    /// The slot of the process that the command of this number started.
    #[must_use]
    pub fn slot_of(&self, command: usize) -> u32 {
        self.lives[command].slot.expect("it runs")
    }

    /// Number of times that a process has logged this event in its latest incarnation.
    #[track_caller]
    #[must_use]
    pub fn says(&mut self, slot: u32, like: fn(&Event) -> bool) -> usize {
        let events = events(&self.life(slot).trace);
        events.iter().filter(|(_, event)| like(event)).count()
    }

    /// Lets the checkers read the traces as far as they are written.
    ///
    /// # Panics
    /// With the property that does not hold.
    #[track_caller]
    #[must_use]
    pub fn judge(&self) -> Judged {
        let mut told: Vec<(u64, usize, TraceEvent)> = Vec::new();
        // What happened before this instant: its causes have been written before it.
        let until = monotonic_ns();
        for (number, life) in self.lives.iter().enumerate() {
            let Some((slot, start)) = header(&life.trace) else { continue };
            let mut events = events(&life.trace);
            events.retain(|(at, _)| *at <= until);
            let begin = events.first().map_or(0, |(at, _)| *at);
            told.push((begin, number, TraceEvent::Started(Slot(slot), start)));
            told.extend(
                events
                    .into_iter()
                    .map(|(at, event)| (at, number, TraceEvent::Said(Slot(slot), event))),
            );
            told.extend(life.killed.map(|at| (at, number, TraceEvent::Gone(Slot(slot)))));
        }
        // Stable: what one process says at one instant stays in its order.
        told.sort_by_key(|(at, number, _)| (*at, *number));
        let mut judged = Judged {
            views: Views::new(View::first(self.processes, Rules::default())),
            order: Order::of(self.processes, false),
        };
        for (at, _, told) in &told {
            let held = match told {
                TraceEvent::Started(slot, start) => {
                    judged.views.started(*slot, *start);
                    judged.order.started(*slot, *start);
                    Ok(())
                }
                TraceEvent::Gone(slot) => {
                    judged.views.gone(*slot);
                    judged.order.gone(*slot);
                    Ok(())
                }
                TraceEvent::Said(slot, event) => {
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

    /// Waits until the checkers, and the traces themselves, show this.
    #[track_caller]
    pub fn until(&mut self, what: &str, holds: impl Fn(&Self, &Judged) -> bool) {
        self.wait(what, |group| holds(group, &group.judge()));
    }

    /// Waits until the running processes of the group agree on a view of exactly these slots.
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
    pub fn until_said(&mut self, slot: u32, like: fn(&Event) -> bool, times: usize) {
        self.wait(&format!("process {slot} has said it {times} times"), |group| {
            let lives = group.lives.iter().filter(|life| life.slot == Some(slot));
            let said = lives.flat_map(|life| events(&life.trace));
            said.filter(|(_, event)| like(event)).count() >= times
        });
    }

    /// Returns true if any process has logged this event.
    #[must_use]
    pub fn anybody_said(&self, like: fn(&Event) -> bool) -> bool {
        self.lives.iter().flat_map(|life| events(&life.trace)).any(|(_, event)| like(&event))
    }

    /// Waits until nothing is cast any more and all processes have delivered everything, then ends
    /// them: what all of them have said holds to the end.
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

enum TraceEvent {
    Started(Slot, u64),
    Said(Slot, Event),
    Gone(Slot),
}

fn lines(trace: &Path) -> Vec<Value> {
    let text = fs::read_to_string(trace).unwrap_or_default();
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    whole.map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Slot and incarnation of a trace, when it says so.
fn header(trace: &Path) -> Option<(u32, u64)> {
    lines(trace).iter().filter(|line| line["event"] == "started").find_map(|line| {
        let slot = u32::try_from(line["process"].as_u64()?).ok()?;
        Some((slot, line["values"][0].as_u64()?))
    })
}

fn events(trace: &Path) -> Vec<(u64, Event)> {
    let lines = lines(trace);
    let event = |line: &Value| {
        let name = line["event"].as_str()?;
        let value = |k: usize| line["values"][k].as_u64().expect("a number");
        let values = [value(0), value(1), value(2)];
        // Votes are counted in simulations only.
        if let Some(CastEvent::Adopted { .. } | CastEvent::Majority { .. }) =
            CastEvent::decode(name, values)
        {
            return None;
        }
        let event = known::<CastEvent>(name, values)
            .or_else(|| known::<MembershipEvent>(name, values))
            .or_else(|| known::<DetectorEvent>(name, values))
            .or_else(|| known::<ReplicaEvent>(name, values))?;
        Some((line["at_ns"].as_u64().expect("a time"), event))
    };
    lines.iter().filter_map(event).collect()
}

/// The event of a set that has this name and these values.
fn known<E: LayerEvent>(name: &str, values: [u64; 3]) -> Option<Event> {
    E::decode(name, values).map(|event| Event::new(Level::Info, event))
}
