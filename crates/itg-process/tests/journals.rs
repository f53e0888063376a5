//! Writes to journals come before everything else that a process asks for.

use std::sync::Arc;

use bytes::Bytes;
use itg_core::seed::RunSeed;
use itg_process::{
    Config, Contract, Ctx, JournalWrite, Journals, Layer, LayerWrite, Message, Network, Outgoing,
    Process, ProcessContext, Registry, Report, Slot, Stored, Time, Transport, everybody,
};

/// Answers each message, and then stores it; says at its start what it has stored before.
struct Promises(Vec<Bytes>);

impl Layer for Promises {
    fn on_start(&mut self, cx: &mut Ctx<'_>) {
        for stored in std::mem::take(&mut self.0) {
            cx.down(Message::new(Slot(1), 2, stored));
        }
    }

    fn deliver(&mut self, message: Message, cx: &mut Ctx<'_>) {
        cx.down(Message::new(message.src, 1, message.body.clone()));
        cx.persist(JournalWrite::Append(message.body));
    }
}

/// Events of a world, in its order; its disk is slow, or it has none that is.
#[derive(Default)]
struct Seen(Vec<String>, bool);

impl Transport for Seen {
    fn send(&mut self, _now: Time, message: &Outgoing, _to: Slot) -> bool {
        let text = String::from_utf8_lossy(&message.message.body).into_owned();
        self.0.push(format!("{} {text}", if message.message.ty == 1 { "sent" } else { "told" }));
        true
    }

    fn persist(&mut self, _now: Time, writes: Vec<LayerWrite>) -> Stored {
        for LayerWrite { layer, write } in writes {
            self.0.push(format!("{layer} {write:?}"));
        }
        if self.1 { Stored::Later } else { Stored::Durable }
    }

    fn report(&mut self, _report: Report) {}
}

fn process(journals: Option<&Journals>) -> Process {
    let registry = Registry::new().with("promises", |build| {
        let stored = build.journals.map_or(&[][..], |journals| journals.of("promises"));
        Ok(Box::new(Promises(stored.to_vec())))
    });
    let text = "processes = 2\n[[network]]\nname = \"main\"\nkind = \"inproc\"\n[[process]]\n\
         layers = [\"promises\"]";
    let config = Config::parse(text, "test.toml").expect("well written");
    let networks: Arc<[Network]> =
        [Network { name: "main".to_owned(), contract: Contract::INPROC }].into();
    let everybody = everybody(2);
    let place = ProcessContext {
        slot: Slot(0),
        incarnation: 1,
        seed: RunSeed(1),
        networks: &networks,
        everybody: &everybody,
        journals,
    };
    registry.process(&config, &place).expect("known layers")
}

fn hear(process: &mut Process, text: &'static str) {
    process.deliver(Time(1), Message { src: Slot(1), ..Message::new(Slot(0), 1, text) });
}

#[test]
fn nothing_leaves_before_what_is_stored_in_its_step() {
    let mut process = process(Some(&Journals::default()));
    process.start(Time(0));
    let mut seen = Seen::default();
    hear(&mut process, "one");
    hear(&mut process, "two");
    process.carry_out(Time(1), &mut seen);
    let want = ["promises Append(b\"one\")", "promises Append(b\"two\")", "sent one", "sent two"];
    assert_eq!(seen.0, want);
}

#[test]
fn nothing_leaves_until_a_slow_disk_has_stored_it() {
    let mut process = process(Some(&Journals::default()));
    process.start(Time(0));
    let mut seen = Seen(Vec::new(), true);
    hear(&mut process, "one");
    process.carry_out(Time(1), &mut seen);
    assert_eq!(seen.0, ["promises Append(b\"one\")"]);
    // What comes meanwhile waits with it, and is stored before either is told.
    hear(&mut process, "two");
    seen.1 = false;
    process.carry_out(Time(2), &mut seen);
    assert_eq!(seen.0[1..], ["promises Append(b\"two\")", "sent one", "sent two"]);
}

#[test]
fn a_start_finds_what_was_stored_and_a_world_without_storage_forgets_it() {
    let mut journals = Journals::default();
    journals.set("promises", vec![Bytes::from_static(b"one")]);
    let mut back = process(Some(&journals));
    back.start(Time(0));
    let mut seen = Seen::default();
    back.carry_out(Time(0), &mut seen);
    assert_eq!(seen.0, ["told one"]);
    let mut without = process(None);
    without.start(Time(0));
    hear(&mut without, "two");
    let mut seen = Seen::default();
    without.carry_out(Time(1), &mut seen);
    assert_eq!(seen.0, ["sent two"]);
}
