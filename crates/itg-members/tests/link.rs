//! Links: once, in order, between incarnations, over networks that lose, repeat and reorder.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use itg_core::seed::RunSeed;
use itg_members::link::{self, LinkEvent};
use itg_process::{
    Config, Ctx, Dest, Layer, Level, MS, Message, Registry, SECOND, Slot, TimerId, layer_events,
};
use itg_sim::{Checker, Fault, LinkFaults, Observation, ObservedEvent, World};

layer_events! {
    /// Events of a chatter.
    enum ChatterEvent {
        /// Number from an incarnation of another chatter.
        Heard { from: Slot, life: u64, number: u64 } = "heard",
    }
}

/// Sends numbers to all processes, and reports those that it gets.
#[derive(Default)]
struct Chatter {
    said: u64,
}

const MOST: u64 = 200;

impl Layer for Chatter {
    fn on_start(&mut self, cx: &mut Ctx<'_>) {
        cx.set_timer_after(10 * MS);
    }

    fn timer(&mut self, _id: TimerId, cx: &mut Ctx<'_>) {
        let body = [cx.incarnation().to_le_bytes(), self.said.to_le_bytes()].concat();
        cx.down(Message::new(Dest::AllButMe, 7, body));
        self.said += 1;
        if self.said < MOST {
            cx.set_timer_after(10 * MS);
        }
    }

    fn deliver(&mut self, message: Message, cx: &mut Ctx<'_>) {
        let word = |at: usize| message.body[at..at + 8].try_into().map(u64::from_le_bytes);
        let (life, number) = (word(0).expect("eight"), word(8).expect("eight"));
        let from = message.src;
        cx.log(Level::Info, ChatterEvent::Heard { from, life, number });
    }
}

/// Each incarnation of a receiver gets consecutive numbers from each incarnation of a sender.
#[derive(Default)]
struct InOrder {
    /// Receiver and its incarnation, sender and its incarnation: the last number.
    last: BTreeMap<(Slot, u64, Slot, u64), u64>,
    lives: BTreeMap<Slot, u64>,
    newest: BTreeMap<(Slot, u64, Slot), u64>,
    /// The last number that the present incarnation of each has got from the present one of each.
    ends: Arc<Mutex<BTreeMap<(Slot, Slot), u64>>>,
}

impl Checker for InOrder {
    fn name(&self) -> &'static str {
        "in order"
    }

    fn see(&mut self, seen: &Observation<'_>) -> Result<(), String> {
        match seen.what {
            ObservedEvent::Started(life) => {
                self.lives.insert(seen.slot, life);
            }
            ObservedEvent::Event(event) => {
                let Some(ChatterEvent::Heard { from, life, number }) = event.decode() else {
                    return Ok(());
                };
                let mine = self.lives.get(&seen.slot).copied().unwrap_or(1);
                let newest = self.newest.entry((seen.slot, mine, from)).or_insert(life);
                if life < *newest {
                    return Err(format!("life {life} of {from} is heard after life {newest}"));
                }
                *newest = life;
                let last = self.last.insert((seen.slot, mine, from, life), number);
                if last.is_some_and(|last| number != last + 1) {
                    let me = seen.slot;
                    return Err(format!("{me} hears {number} of {from} after {last:?}"));
                }
                self.ends.lock().expect("one thread").insert((seen.slot, from), number);
            }
            _ => {}
        }
        Ok(())
    }
}

fn run(seed: u64, params: &str, crashes: bool) -> (Option<String>, bool, u64) {
    let text = format!(
        "processes = 4\n[[network]]\nname = \"main\"\nkind = \"random\"\nmean = \"5ms\"\n[[process]]\n\
         layers = [{{ layer = \"link\"{params} }}, \"chatter\"]\n"
    );
    let registry =
        link::layers(Registry::new()).with("chatter", |_| Ok(Box::new(Chatter::default())));
    let config = Config::parse(&text, "test.toml").expect("well written");
    let mut world = World::new(&config, &registry, RunSeed(seed)).expect("known layers");
    let ends = Arc::default();
    world.check(InOrder { ends: Arc::clone(&ends), ..InOrder::default() });
    let links = LinkFaults {
        loss: 300_000,
        duplicate: 200_000,
        reorder: 300_000,
        damage: 10_000,
        late_ns: 50 * MS,
        ..LinkFaults::default()
    };
    world.fault_at(0, Fault::Links(0, links));
    if crashes {
        world.fault_at(700 * MS, Fault::Crash(Slot(1)));
        world.fault_at(900 * MS, Fault::Recover(Slot(1)));
        world.fault_at(1300 * MS, Fault::Reset(Slot(0), Slot(2)));
    }
    world.run(4 * SECOND);
    world.heal(&[]);
    world.run(20 * SECOND);
    let ends = ends.lock().expect("one thread");
    let complete = ends.len() == 12 && ends.values().all(|last| *last == MOST - 1);
    let resent = world.counts().occurrences(LinkEvent::Resent);
    (world.violation().map(|violation| violation.text.clone()), complete, resent)
}

#[test]
fn everything_arrives_once_and_in_order() {
    for seed in 0..20 {
        for crashes in [false, true] {
            let (violation, complete, resent) = run(seed, "", crashes);
            assert_eq!(violation, None, "seed {seed}");
            assert!(complete, "seed {seed}: the last numbers have arrived");
            assert!(resent > 0);
        }
    }
}

#[test]
fn mutant_14_is_caught() {
    let caught = (0..20).find(|seed| {
        let (violation, complete, _) = run(*seed, ", mutant_14 = true", true);
        violation.is_some() || !complete
    });
    assert_eq!(caught, Some(0), "sequence not reset on a change of incarnation");
}
