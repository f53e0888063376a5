//! A program of layers of one's own: its checkers judge simulations, and a planted fault is found.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use itg_core::seed::RunSeed;
use itg_process::{
    Build, ConfigError, Ctx, Layer, Level, MS, Message, Registry, Slot, StopReason, TimerId,
    layer_events,
};
use itg_run::simulate::{self, SimulateArgs};
use itg_run::{Parts, diff, judge, trace};
use itg_sim::{Checker, Model, Observation, ObservedEvent};

layer_events! {
    /// Events of the counter.
    enum CounterEvent {
        /// Number that process 0 has given out.
        Number { number: u64 } = "number",
    }
}

const ASK: u32 = 1;
const NUMBER: u32 = 2;

/// Every process asks process 0 for numbers, of which none may be given out twice. Planted: process 0 forgets that it
/// has given one out when the next request comes within a microsecond of the last one.
struct Counter {
    next: u64,
    rounds: u64,
    last_ns: u64,
    hasty: bool,
}

impl Layer for Counter {
    fn on_start(&mut self, cx: &mut Ctx<'_>) {
        cx.set_timer_after(MS);
    }

    fn timer(&mut self, _id: TimerId, cx: &mut Ctx<'_>) {
        cx.down(Message::new(Slot(0), ASK, Vec::new()));
        self.rounds -= 1;
        match self.rounds {
            0 if cx.me() == Slot(0) => cx.shutdown(StopReason::Finished),
            0 => {}
            _ => {
                cx.set_timer_after(MS);
            }
        }
    }

    fn deliver(&mut self, message: Message, cx: &mut Ctx<'_>) {
        if message.ty != ASK {
            return cx.log(Level::Info, CounterEvent::Number { number: message.body[0].into() });
        }
        let now = cx.now().0;
        if !self.hasty || now - self.last_ns > 1000 {
            self.next += 1;
        }
        self.last_ns = now;
        let number = u8::try_from(self.next).expect("few");
        cx.down(Message::new(message.src, NUMBER, vec![number]));
    }
}

fn counter(build: &mut Build<'_>) -> Result<Box<dyn Layer>, ConfigError> {
    let hasty = build.params.flag("hasty", false)?;
    let rounds = build.params.number("rounds", 10)?;
    Ok(Box::new(Counter { next: 0, rounds, last_ns: 0, hasty }))
}

/// No number twice.
#[derive(Default)]
struct Once(std::collections::BTreeSet<u64>);

impl Checker for Once {
    fn name(&self) -> &'static str {
        "once"
    }

    fn see(&mut self, seen: &Observation<'_>) -> Result<(), String> {
        if let ObservedEvent::Event(event) = seen.what
            && let Some(CounterEvent::Number { number }) = event.decode()
            && !self.0.insert(number)
        {
            assert_eq!(seen.layer, "counter");
            return Err(format!("number {number} is given out twice"));
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), String> {
        if self.0.is_empty() { Err("no number is given out".to_owned()) } else { Ok(()) }
    }
}

/// A network of one's own: no message needs any time.
#[derive(Debug)]
struct AtOnce;

impl Model for AtOnce {
    fn describe(&self) -> String {
        "at once".to_owned()
    }

    fn contract(&self) -> itg_process::Contract {
        itg_process::Contract::INPROC
    }

    fn submit(&mut self, now: u64, packet: itg_sim::Packet, out: &mut Vec<itg_sim::Effect>) {
        for to in packet.to.slots() {
            out.push(itg_sim::Effect::Deliver(packet.id, *to, now));
        }
    }

    fn usage(&self) -> itg_sim::Usage {
        itg_sim::Usage::default()
    }
}

fn parts() -> Parts {
    Parts::new("counting", Registry::new().with("counter", counter))
        .with_checker("once", |_| Ok(Box::new(Once::default())))
        .with_network("at-once", |_| Ok(Box::new(AtOnce)))
}

#[derive(Debug, Parser)]
struct Simulate {
    #[command(flatten)]
    args: SimulateArgs,
}

fn simulated(words: &[&str]) -> Result<(), String> {
    let words = ["simulate"].iter().chain(words);
    let parsed = Simulate::try_parse_from(words).map_err(|error| error.to_string())?;
    let done = simulate::run(&parsed.args, &parts());
    done.map(|code| assert_eq!(code, ExitCode::SUCCESS)).map_err(|error| format!("{error:#}"))
}

fn write(dir: &Path, layer: &str, more: &str) -> PathBuf {
    let file = dir.join("counting.toml");
    let text = format!(
        "processes = 3\ncheck = [\"once\"]\n{more}\n[[network]]\nname = \"main\"\nkind = \"random\"\n\
         mean = \"100us\"\n[[process]]\nlayers = [{layer}]\n"
    );
    fs::write(&file, text).expect("written");
    file
}

#[test]
fn a_planted_fault_is_found_by_a_sweep_and_again_by_its_command() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |layer: &str| write(dir.path(), layer, "").display().to_string();
    let file = path("\"counter\"");
    assert_eq!(simulated(&[&file, "--seeds", "60", "--jobs", "2"]), Ok(()));
    let file = path("{ layer = \"counter\", hasty = true }");
    let found = simulated(&[&file, "--seeds", "60", "--jobs", "2"]).expect_err("it is planted");
    assert!(found.ends_with(" of 60 seeds fail"), "{found}");
    let failed: u64 = found.split(' ').next().and_then(|n| n.parse().ok()).expect("a number");
    // The same seeds one by one: each failure names its command.
    let mut again = 0;
    for seed in 0..60 {
        let seed = seed.to_string();
        if let Err(text) = simulated(&[&file, "--seed", &seed]) {
            let command = format!("replay: counting simulate {file} --seed {seed} --until 60s");
            assert!(
                text.contains(" is given out twice (at ") && text.ends_with(&command),
                "{text}"
            );
            again += 1;
        }
    }
    assert_eq!((failed, failed > 0), (again, true));
}

#[test]
fn what_is_wrong_with_a_request_is_said_before_anything_runs() {
    let dir = tempfile::tempdir().expect("a directory");
    let layer = "\"counter\"";
    for (more, want) in [
        ("[[fault]]\nat = \"1s\"\nkind = \"crush\"", "no fault `crush`: did you mean `crash`?"),
        ("[[fault]]\nat = \"1s\"\nkind = \"crash\"\nprocess = 3", "processes go from 0 to 2"),
    ] {
        let file = write(dir.path(), layer, more).display().to_string();
        let said = simulated(&[&file, "--seed", "1"]).expect_err("refused");
        assert!(said.contains(want), "{said}");
    }
    let file = write(dir.path(), layer, "");
    let text = fs::read_to_string(&file).expect("written");
    fs::write(&file, text.replace("\"once\"", "\"one\"")).expect("written");
    let file = file.display().to_string();
    let said = simulated(&[&file, "--seed", "1", "--network", "tcp"]).expect_err("refused");
    assert!(said.contains("`tcp` is a real network"), "{said}");
    for words in [&[&*file, "--seed", "1"][..], &[&*file, "--seeds", "2"]] {
        let said = simulated(words).expect_err("refused");
        assert!(
            said.contains("2:10: checker `one`: unknown checker: did you mean `once`?"),
            "{said}"
        );
    }
    fs::write(&file, text.replace("check = [\"once\"]\n", "")).expect("written");
    let said = simulated(&[&file, "--seeds", "2"]).expect_err("nothing could fail");
    assert!(said.contains("has no `check`"), "{said}");
}

#[test]
fn faults_of_the_file_come_at_their_times_and_a_network_of_ones_own_carries_messages() {
    let dir = tempfile::tempdir().expect("a directory");
    let trace = dir.path().join("trace.ndjson");
    let more = "[[fault]]\nat = \"3500us\"\nkind = \"crash\"\nprocess = 1\n[[fault]]\nat = \"6ms\"\n\
                kind = \"return\"\nprocess = 1";
    let file = write(dir.path(), "\"counter\"", more);
    let path = trace.display().to_string();
    let words =
        [&*file.display().to_string(), "--trace", &path, "--network", "at-once", "--seed", "1"];
    assert_eq!(simulated(&words), Ok(()));
    let read = trace::read(&trace).expect("a trace");
    let of_one: Vec<_> = read
        .iter()
        .filter(|line| line.process == 1 && line.layer == trace::RUNTIME)
        .map(|line| (line.at_ns, line.event.as_str(), line.values[0]))
        .collect();
    let want = [(0, "started", 1), (3_500_000, "crashed", 0), (6_000_000, "started", 2)];
    assert_eq!(of_one[..3], want, "{of_one:?}");
    let numbers = read.iter().filter(|line| line.process == 1 && line.event == "number");
    let times: Vec<_> = numbers.map(|line| line.at_ns).collect();
    assert!(times.starts_with(&[1_000_000, 2_000_000, 3_000_000, 7_000_000]), "{times:?}");
}

#[test]
fn a_process_that_has_finished_does_not_return_when_the_faults_end() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = write(dir.path(), "\"counter\"", "");
    let text = fs::read_to_string(&file).expect("written").replace("check = [\"once\"]\n", "");
    let config = itg_process::Config::parse(&text, "file").expect("a configuration");
    let layers = Registry::new().with("counter", counter);
    let mut world = itg_sim::World::new(&config, &layers, RunSeed(1)).expect("a world");
    assert_eq!(world.run(60_000 * MS), itg_sim::Exit::Stopped);
    world.heal(&[0, 1, 2].map(Slot));
    assert_eq!([0, 1, 2].map(|slot| world.process(Slot(slot)).is_some()), [false; 3]);
}

#[test]
fn traces_are_judged_and_compared() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = write(dir.path(), "\"counter\"", "");
    let text = file.display().to_string();
    let [one, other] = ["a", "b"].map(|name| dir.path().join(name));
    for (seed, path) in [("1", &one), ("1", &other)] {
        let path = path.display().to_string();
        let words = [&*text, "--seed", seed, "--trace", &path, "--messages"];
        assert_eq!(simulated(&words), Ok(()));
    }
    let compared = || {
        let args =
            diff::DiffArgs { real: one.clone(), sim: other.clone(), format: diff::Format::Json };
        diff::run(&args).map(drop).map_err(|error| error.to_string())
    };
    let judged = || {
        let args = judge::CheckArgs { file: file.clone(), traces: vec![other.clone()] };
        judge::run(&args, &parts()).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!((compared(), judged()), (Ok(()), Ok(())));
    // Real processes do not say that the faults of a simulation are over.
    let text = fs::read_to_string(&one).expect("a trace");
    let real: String = text.split_inclusive('\n').filter(|line| !line.contains("healed")).collect();
    assert_ne!(text, real);
    fs::write(&one, real).expect("written");
    assert_eq!(compared(), Ok(()));
    let lines = trace::read(&one).expect("a trace");
    let count = |event: &str| lines.iter().filter(|line| line.event == event).count();
    assert!(count("send") >= count("deliver") && count("deliver") >= 2 * count("number") - 2);
    // The last number is the first one again.
    let text = fs::read_to_string(&other).expect("a trace");
    let last = text.lines().rfind(|line| line.contains("\"number\"")).expect("a number");
    let (head, _) = last.split_once("\"values\":[").expect("values");
    fs::write(&other, text.replace(last, &format!("{head}\"values\":[1,0,0]}}"))).expect("written");
    let differs = compared().expect_err("another number");
    assert!(differs.contains("counter number") && differs.contains("[1, 0, 0]"), "{differs}");
    let objection = judged().expect_err("given out twice");
    assert!(objection.starts_with("once: number 1 is given out twice"), "{objection}");
}
