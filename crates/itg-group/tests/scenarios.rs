//! Scenarios of groups as scripts with their expected trace: `tests/scenarios/*.txt` at the top of the repository.
//!
//! A script is blocks: commands, a line `----`, and what happens until the next blank line. `UPDATE=1 cargo test -p
//! itg-group --test cases scenarios::` writes what happens into the scripts; the difference is then read before it is
//! kept. The form is that of etcd's raft (`testdata`). Commands, with slots for processes and times as `10ms` or `2s`:
//!
//! | command | what |
//! |---|---|
//! | `processes N STACK [KEY=VALUE]…` | begins: the stack is a broadcast or a membership, with its parameters |
//! | `network KIND [KEY=VALUE]…` | before `processes`; else `fixed delay=1ms` |
//! | `cast S TEXT` | S casts up to 8 letters |
//! | `remove S OTHER` | S asks the log for the next view, without OTHER |
//! | `suspect S OTHER`, `trust S OTHER` | what the failure detector of S says |
//! | `crash S`, `recover S`, `recover S as I` | it ends; it starts again, as the next incarnation or as I |
//! | `pause S T` | it does nothing for this time |
//! | `cut S OTHER`, `mend S OTHER` | nothing gets from S to OTHER, or it does again |
//! | `partition 0,1 2` | these parts do not reach each other |
//! | `heal` | all links are fair |
//! | `run T` | time goes on |
//! | `agreed` | what all that are alive agree on |

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::casts;
use crate::common::{Top, Watch};
use itg_core::seed::RunSeed;
use itg_group::cast::CastEvent;
use itg_group::check::Views;
use itg_group::detector::DetectorEvent;
use itg_group::membership::MembershipEvent;
use itg_group::{Changes, Rules, View, ViewChange, cast, detector, membership};
use itg_process::{Config, Event, Injected, Level, MS, Registry, SECOND, Slot};
use itg_sim::{Fault, World};

/// Fewest scripts that must be there.
const LEAST: usize = 12;
/// A group in virtual time, and what its script has said of it.
struct Group {
    world: World,
    /// The layer that hears suspicions.
    layer: &'static str,
    views: Option<Arc<Mutex<Views>>>,
    now: u64,
    /// Messages cast: not yet under a name, by slot; and by origin and number.
    unnamed: BTreeMap<Slot, VecDeque<String>>,
    texts: BTreeMap<(u64, u64), String>,
    /// The last view that was seen.
    view: u64,
    /// Facts of the whole group that have been told once.
    told: BTreeSet<MembershipEvent>,
}

fn slot(text: &str) -> Result<Slot, String> {
    text.parse().map(Slot).map_err(|_| format!("`{text}` is no slot"))
}

fn time(text: &str) -> Result<u64, String> {
    let units = [("ms", MS), ("us", 1000), ("s", SECOND)];
    let found = units.iter().find_map(|(unit, ns)| Some((text.strip_suffix(unit)?, ns)));
    let (number, unit) = found.ok_or_else(|| format!("`{text}` is no time"))?;
    number.parse::<u64>().map(|number| number * unit).map_err(|_| format!("`{text}` is no time"))
}

/// `KEY=VALUE` as parameters of TOML; what is no number and no truth value is a text.
fn params(words: &[&str]) -> Result<String, String> {
    let mut text = String::new();
    for word in words {
        let (key, value) = word.split_once('=').ok_or_else(|| format!("`{word}`: KEY=VALUE"))?;
        let plain = value.parse::<u64>().is_ok() || value.parse::<bool>().is_ok();
        let value = if plain { value.to_owned() } else { format!("\"{value}\"") };
        write!(text, ", {key} = {value}").expect("into memory");
    }
    Ok(text)
}

/// The layers of a stack from the lowest, and which of them hears suspicions.
fn layers(stack: &str, params: &str) -> Result<(String, &'static str), String> {
    let one = |name: &str, more: &str| format!("{{ layer = \"{name}\"{more}{params} }}, \"top\"");
    Ok(match stack {
        "sequencer" => (one(stack, ""), "sequencer"),
        "skeen" => (one(stack, ""), "skeen"),
        "chandra-toueg" => (one(stack, ""), "chandra-toueg"),
        "log" => (one(stack, ", trace = true"), "log"),
        "uniform-sequencer" => (one(stack, ", trace = true"), "uniform-sequencer"),
        "uniform-skeen" => (one(stack, ", trace = true"), "uniform-skeen"),
        "membership-paper" => (one(stack, ""), "membership-paper"),
        "membership" => {
            let below = "\"detector\", { layer = \"log\", trace = true }";
            (format!("{below}, {}", one(stack, "")), "membership")
        }
        _ => return Err(format!("`{stack}` is no stack")),
    })
}

/// A member from its code: slot and incarnation.
fn member(code: u64) -> String {
    format!("{}.{}", code >> 32, code & 0xffff_ffff)
}

impl Group {
    fn new(words: &[&str], network: &str) -> Result<Self, String> {
        let [n, stack, rest @ ..] = words else { return Err("processes N STACK".to_owned()) };
        let (layers, layer) = layers(stack, &params(rest)?)?;
        let text = format!(
            "processes = {n}\n[[network]]\nname = \"main\"\n{network}\n[[process]]\nlayers = [{layers}]\n"
        );
        let config = Config::parse(&text, "script").map_err(|error| error.to_string())?;
        let planted = cast::Planted::default();
        let registry = Registry::new().with("top", |_| Ok(Box::new(Top)));
        let registry = membership::layers(detector::layers(cast::layers(registry, planted)));
        let mut world =
            World::new(&config, &registry, RunSeed(1)).map_err(|error| error.to_string())?;
        world.keep_events();
        let members = rest.iter().find_map(|word| word.strip_prefix("members=")?.parse().ok());
        let members = members.unwrap_or(config.processes);
        let views = stack.starts_with("membership").then(|| {
            let views = Arc::new(Mutex::new(Views::new(View::first(members, Rules::default()))));
            world.check(Watch(Arc::clone(&views), Arc::default()));
            views
        });
        if *stack != "membership-paper" {
            world.check(casts::order::Order::of(members, false));
        }
        Ok(Self {
            world,
            layer,
            views,
            now: 0,
            unnamed: BTreeMap::new(),
            texts: BTreeMap::new(),
            view: 1,
            told: BTreeSet::new(),
        })
    }

    fn fault(&mut self, fault: Fault) {
        self.world.fault_at(self.now, fault);
        // It comes about now, not with the next run.
        self.run_to(self.now + 1);
        self.now += 1;
    }

    fn run_to(&mut self, until: u64) {
        // Something to stop at, also when nothing else is to come.
        self.world.fault_at(until, Fault::Mend(Slot(0), Slot(0)));
        self.world.run(until);
    }

    fn ask(&mut self, at: Slot, ask: cast::CastRequest) -> Result<(), String> {
        if self.world.process(at).is_none() {
            return Err(format!("process {at} does not run"));
        }
        let message = ask.message().expect("a request");
        self.world.with(at, |process, now| process.send(now, message));
        Ok(())
    }

    fn command(&mut self, words: &[&str], out: &mut String) -> Result<(), String> {
        match words {
            ["cast", at, text] if text.len() <= 8 => {
                let at = slot(at)?;
                self.unnamed.entry(at).or_default().push_back((*text).to_owned());
                let payload = bytes::Bytes::copy_from_slice(text.as_bytes());
                self.ask(at, cast::CastRequest::Cast(payload))?;
            }
            ["remove", at, other] => {
                let old = itg_group::Member::new(slot(other)?, 1);
                let changes = Changes::removal([old]);
                let change = ViewChange { base: self.view, changes, shape: None };
                self.ask(slot(at)?, cast::CastRequest::Change(change, bytes::Bytes::new()))?;
            }
            ["suspect", at, other] => {
                let what = Injected::Suspect(slot(other)?);
                self.fault(Fault::Inject(slot(at)?, self.layer, what));
            }
            ["trust", at, other] => {
                let what = Injected::Trust(slot(other)?);
                self.fault(Fault::Inject(slot(at)?, self.layer, what));
            }
            ["crash", at] => self.fault(Fault::Crash(slot(at)?)),
            ["recover", at] => self.fault(Fault::Recover(slot(at)?)),
            ["recover", at, "as", incarnation] => {
                let incarnation = incarnation.parse().map_err(|_| "no incarnation".to_owned())?;
                self.fault(Fault::RecoverAs(slot(at)?, incarnation));
            }
            ["pause", at, long] => self.fault(Fault::Pause(slot(at)?, time(long)?)),
            ["cut", from, to] => self.fault(Fault::Cut(slot(from)?, slot(to)?)),
            ["mend", from, to] => self.fault(Fault::Mend(slot(from)?, slot(to)?)),
            ["partition", parts @ ..] => {
                let mut groups = BTreeMap::new();
                for (group, part) in (0_u8..).zip(parts) {
                    for at in part.split(',') {
                        groups.insert(slot(at)?, group);
                    }
                }
                self.fault(Fault::Partition(groups.into_values().collect()));
            }
            ["heal"] => self.world.heal(&[]),
            ["run", long] => {
                self.now += time(long)?;
                self.run_to(self.now);
            }
            ["agreed"] => self.agreed(out),
            _ => return Err(format!("`{}` is no command", words.join(" "))),
        }
        self.tell(out);
        match self.world.violation() {
            Some(violation) => Err(violation.to_string()),
            None => Ok(()),
        }
    }

    fn agreed(&self, out: &mut String) {
        let Some(views) = &self.views else { return };
        let line = match views.lock().expect("one thread").agreed() {
            Ok(view) => {
                let members: Vec<_> = view.roster().members().map(|m| m.to_string()).collect();
                format!(
                    "all agree on view {}, root {}: {}",
                    view.no(),
                    view.root(),
                    members.join(" ")
                )
            }
            Err(why) => format!("no agreement: {why}"),
        };
        writeln!(out, "{line}").expect("into memory");
    }

    /// Writes what has happened.
    fn tell(&mut self, out: &mut String) {
        for (at, slot, event) in self.world.take_events() {
            if let Some(words) = self.words(slot, &event) {
                let (ms, us) = (at / MS, at % MS / 1000);
                writeln!(out, "{ms:>6}.{us:03} ms  {slot}  {words}").expect("into memory");
            }
        }
    }

    /// An event in words, without what differs from build to build: digests.
    fn words(&mut self, at: Slot, event: &Event) -> Option<String> {
        if event.level == Level::Sometimes {
            return None;
        }
        let other = || Some(format!("{} {:?}", event.name, event.values));
        if let Some(event) = event.decode() {
            return self.words_of_cast(at, event, other);
        }
        if let Some(event) = event.decode() {
            return self.words_of_membership(event, other);
        }
        match event.decode() {
            Some(DetectorEvent::Suspected { slot, .. }) => Some(format!("suspects {slot}")),
            Some(DetectorEvent::Trusted { slot, .. }) => Some(format!("trusts {slot} again")),
            Some(DetectorEvent::GivenUp { slot }) => Some(format!("gives {slot} up")),
            // Bookkeeping that no scenario is about.
            Some(DetectorEvent::Slow { .. }) => None,
            _ => other(),
        }
    }

    fn words_of_cast(
        &mut self,
        at: Slot,
        event: CastEvent,
        other: impl Fn() -> Option<String>,
    ) -> Option<String> {
        Some(match event {
            CastEvent::Cast { origin, seq } => {
                let text = self.unnamed.entry(at).or_default().pop_front().unwrap_or_default();
                let words = format!("casts {text}, number {seq} of {}", member(origin));
                self.texts.insert((origin, seq), text);
                words
            }
            CastEvent::Deliver { origin, seq, position } => {
                let text = self.texts.get(&(origin, seq)).map_or("?", String::as_str);
                format!("delivers {text} at position {position}")
            }
            CastEvent::Adopted { instance, round, .. } => {
                format!(
                    "instance {instance}: adopts and acknowledges the proposal of round {round}"
                )
            }
            CastEvent::Majority { instance, round, .. } => {
                format!("instance {instance}: a majority has acknowledged round {round}")
            }
            CastEvent::Decided { instance, author, .. } => {
                format!("instance {instance}: decided, a batch of {}", member(author))
            }
            CastEvent::View { no, position, .. } => {
                self.view = self.view.max(no);
                format!("view {no} at position {position}")
            }
            CastEvent::Install { position, view, .. } => {
                format!("takes over the state at position {position} and view {view}")
            }
            CastEvent::VoidChange { base, view, .. } => {
                format!("a change of view {base} is void in view {view}")
            }
            // Memberships say so, too, with an incarnation alone.
            CastEvent::Excluded { view, member: incarnation }
                if incarnation >> 32 == 0 && self.views.is_some() =>
            {
                format!("is excluded from view {view}, as incarnation {incarnation}")
            }
            CastEvent::Excluded { view, member: code } => {
                format!("is not in view {view} any more, as {}", member(code))
            }
            // Bookkeeping that no scenario is about.
            CastEvent::Kept { .. } | CastEvent::Collect { .. } => return None,
            _ => return other(),
        })
    }

    fn words_of_membership(
        &mut self,
        event: MembershipEvent,
        other: impl Fn() -> Option<String>,
    ) -> Option<String> {
        use MembershipEvent as E;
        // All of the core say how a view was made: once is enough.
        let made = matches!(event, E::ViewMade { .. } | E::ViewGone { .. } | E::ViewNew { .. });
        if made && !self.told.insert(event) {
            return None;
        }
        Some(match event {
            E::BornAgain { incarnation, .. } => {
                format!("begins again as incarnation {incarnation}")
            }
            E::Welcomed { view, incarnation } => {
                format!("is welcome in view {view}, as incarnation {incarnation}")
            }
            E::NameTaken { view, slot, incarnation } => {
                format!("view {view} has {slot}.{incarnation} already: that is excluded first")
            }
            E::ViewMade { no, base, root } => {
                format!("view {no} follows view {base}, with root {root}")
            }
            E::ViewGone { no, slot, incarnation } => {
                format!("view {no} is without {slot}.{incarnation}")
            }
            E::ViewNew { no, slot, incarnation } => format!("view {no} has {slot}.{incarnation}"),
            E::Installed { no, .. } => format!("installs view {no}"),
            E::Stable { no, members, .. } => format!("view {no} is installed by {members} members"),
            E::Proposed { view } => format!("proposes what follows view {view}"),
            E::Reported { suspect, by, view } => {
                format!("hears that {suspect} has failed, from {by}, in view {view}")
            }
            E::Suspended { suspended: true, view } => {
                format!("cannot reach a majority of the core of view {view}")
            }
            E::Suspended { suspended: false, view } => {
                format!("reaches a majority of the core of view {view} again")
            }
            E::Root { before, .. } => format!("takes over as root from {before}"),
            // Bookkeeping that no scenario is about.
            E::Held { .. } => return None,
            _ => return other(),
        })
    }
}

/// Runs a script; the script as it should be.
fn run(script: &str) -> Result<String, String> {
    let mut fresh = String::new();
    let mut group: Option<Group> = None;
    let mut network = "kind = \"fixed\"\ndelay = \"1ms\"".to_owned();
    let mut out = String::new();
    let mut expected = false;
    for (number, line) in (1..).zip(script.lines()) {
        if expected {
            // What is expected now is written anew, up to the blank line.
            expected = !line.is_empty();
            if !expected {
                fresh.push('\n');
            }
            continue;
        }
        fresh += line;
        fresh.push('\n');
        let words: Vec<_> = line.split_whitespace().collect();
        let done = match words[..] {
            ["----"] => {
                fresh += &std::mem::take(&mut out);
                expected = true;
                Ok(())
            }
            [] => Ok(()),
            [first, ..] if first.starts_with('#') => Ok(()),
            ["network", kind, ref rest @ ..] => {
                network = params(rest)?
                    .split(", ")
                    .skip(1)
                    .fold(format!("kind = \"{kind}\""), |text, param| format!("{text}\n{param}"));
                Ok(())
            }
            ["processes", ref rest @ ..] => Group::new(rest, &network).map(|new| group = Some(new)),
            ref words => match &mut group {
                Some(group) => group.command(words, &mut out),
                None => Err("`processes` comes first".to_owned()),
            },
        };
        done.map_err(|why| format!("line {number}, `{line}`: {why}\n{out}"))?;
    }
    Ok(fresh)
}

fn scripts() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/scenarios");
    let entries = fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut paths: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|end| end == "txt")).collect();
    paths.sort();
    paths
}

#[test]
#[allow(clippy::disallowed_methods, reason = "whoever runs the test says what it is to do")]
fn scripts_lead_to_their_traces() {
    let update = std::env::var("UPDATE").is_ok_and(|value| value == "1");
    let scripts = scripts();
    assert!(scripts.len() >= LEAST, "{} scripts", scripts.len());
    let mut differ = Vec::new();
    for path in scripts {
        let text = fs::read_to_string(&path).expect("a script");
        let fresh = run(&text).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        if fresh == text {
            continue;
        }
        if update {
            fs::write(&path, &fresh).expect("written");
            continue;
        }
        let pairs = (1..).zip(text.lines().zip(fresh.lines()));
        let first = pairs.into_iter().find(|(_, (old, new))| old != new);
        let lines = [text.lines().count(), fresh.lines().count()];
        differ.push(format!("{}: {first:?}, {lines:?} lines", path.display()));
    }
    assert!(
        differ.is_empty(),
        "run again with UPDATE=1 and read the difference:\n{}",
        differ.join("\n")
    );
}

#[test]
fn what_a_script_does_not_expect_is_seen() {
    let script = "processes 2 sequencer\ncast 0 a\nrun 5ms\n----\nnothing\n";
    let fresh = run(script).expect("a script");
    assert!(fresh.contains("delivers a at position 0") && !fresh.contains("nothing"), "{fresh}");
    assert_eq!(run(&fresh).as_ref(), Ok(&fresh), "the same again");
    for (script, why) in [
        ("run 5ms\n", "line 1, `run 5ms`: `processes` comes first"),
        ("processes 2 sequencer\nrun 5\n", "line 2, `run 5`: `5` is no time"),
        ("processes 2 sequence\n", "`sequence` is no stack"),
        ("processes 2 log\ncrash 1\ncast 1 a\n", "process 1 does not run"),
        ("processes 2 log\njump\n", "`jump` is no command"),
    ] {
        let error = run(script).expect_err(script);
        assert!(error.contains(why), "{error}");
    }
}
