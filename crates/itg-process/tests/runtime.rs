//! The runtime in one address space: order of layers, active layers, start, stop, configuration.

use std::sync::{Arc, Mutex};

use itg_core::seed::RunSeed;
use itg_process::{
    Active, ActiveCx, Config, Contract, Ctx, Dest, Inproc, Layer, MS, Message, Network, Outgoing,
    Registry, Report, RuntimeEvent, SECOND, Slot, StopReason, Time, TimerId, Transport, US,
};

/// Notes that a test's layers have written.
type Notes = Arc<Mutex<Vec<String>>>;

fn note(notes: &Notes, text: impl Into<String>) {
    notes.lock().expect("not poisoned").push(text.into());
}

fn taken(notes: &Notes) -> Vec<String> {
    std::mem::take(&mut notes.lock().expect("not poisoned"))
}

fn networks(names: &[&str]) -> Arc<[Network]> {
    let network = |name: &&str| Network { name: (*name).to_owned(), contract: Contract::INPROC };
    names.iter().map(network).collect()
}

/// Builds and starts the processes of a configuration.
fn world(text: &str, registry: &Registry) -> Inproc {
    let config = Config::parse(text, "test.toml").expect("well written");
    let names: Vec<_> = config.networks.iter().map(|network| network.name.as_str()).collect();
    let built = registry.processes(&config, RunSeed(1), &networks(&names)).expect("known layers");
    Inproc::start(built, 100, Time::ZERO)
}

const NET: &str = "[[network]]\nname = \"main\"\nkind = \"inproc\"\n";

/// Answers each message of type 1 with one of type 2, and writes down those of type 2.
struct Answer(Notes);

impl Layer for Answer {
    fn deliver(&mut self, message: Message, cx: &mut Ctx<'_>) {
        note(&self.0, format!("{} got {} from {}", cx.me(), message.ty, message.src));
        if message.ty == 1 {
            cx.down(Message::new(message.src, 2, message.body));
        }
    }
}

fn answering(notes: &Notes) -> Registry {
    let notes = Arc::clone(notes);
    Registry::new().with("answer", move |_| Ok(Box::new(Answer(Arc::clone(&notes)))))
}

#[test]
fn n_2_each_message_crosses_each_layer_once_each_way() {
    let notes = Notes::default();
    let text = format!(
        "processes = 2\n{NET}[[process]]\nlayers = [\"trace\", \"trace\", \"trace\", \"answer\"]"
    );
    let mut world = world(&text, &answering(&notes));
    for ty in [1, 3] {
        world.with(Slot(0), Time::ZERO, |p| p.send(Time::ZERO, Message::new(Slot(1), ty, "x")));
    }
    world.run(Time::ZERO);
    let mut crossings: Vec<_> = world
        .take_events()
        .into_iter()
        .filter_map(|(slot, event)| match event.decode()? {
            RuntimeEvent::Down { place, ty, .. } => Some((slot, "down", place, ty)),
            RuntimeEvent::Up { place, ty, .. } => Some((slot, "up", place, ty)),
            _ => None,
        })
        .collect();
    let all = crossings.len();
    crossings.sort_unstable();
    crossings.dedup();
    // Three messages (question, answer, the one without answer), two processes, three filters.
    assert_eq!((all, crossings.len()), (18, 18));
    assert_eq!(taken(&notes), ["1 got 1 from 0", "1 got 3 from 0", "0 got 2 from 1"]);
}

/// Runs one active layer over a script of (time, message type) deliveries.
fn active<F, R>(script: &[(u64, u32)], until: Time, body: F) -> Vec<String>
where
    F: Fn(ActiveCx, Notes) -> R + Send + Sync + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    let notes = Notes::default();
    let inner = Arc::clone(&notes);
    let body = Arc::new(body);
    let registry = Registry::new().with("active", move |_| {
        let (body, notes) = (Arc::clone(&body), Arc::clone(&inner));
        Ok(Box::new(Active::new(move |cx| body(cx, notes))))
    });
    let config = format!("processes = 1\n{NET}[[process]]\nlayers = [\"active\"]");
    let mut world = world(&config, &registry);
    let mut script = script.iter().peekable();
    loop {
        let message = script.peek().map_or(Time::NEVER, |(at, _)| Time(*at));
        let timer = world.next_wake().unwrap_or(Time::NEVER);
        let now = message.min(timer);
        if now > until {
            return taken(&notes);
        }
        // Messages of an instant come before its time-outs, as drivers deliver them.
        while let Some((_, ty)) = script.next_if(|(at, _)| Time(*at) == now) {
            let message = Message::new(Slot(0), *ty, "");
            world.with(Slot(0), now, |p| p.deliver(now, message));
        }
        world.run(now);
    }
}

#[test]
fn n_3_receive_waits_polls_and_times_out() {
    // receive(0) takes what is there and never waits.
    let got = active(&[(5, 7), (5, 8)], Time(100), async |mut cx: ActiveCx, notes| {
        note(&notes, format!("{:?}", cx.receive_for(0).await.map(|m| m.ty)));
        cx.sleep_until(Time(10)).await;
        for _ in 0..3 {
            let got = cx.receive_for(0).await.map(|m| m.ty);
            note(&notes, format!("{got:?} at {}", cx.now().0));
        }
    });
    assert_eq!(got, ["None", "Some(7) at 10", "Some(8) at 10", "None at 10"]);
    // receive(t): in time, too late, and exactly on time, where the message wins.
    for (at, want) in [(49, "Some(1) at 49"), (50, "Some(1) at 50"), (51, "None at 50")] {
        let got = active(&[(at, 1)], Time(60), async |mut cx: ActiveCx, notes| {
            let got = cx.receive_for(50).await.map(|m| m.ty);
            note(&notes, format!("{got:?} at {}", cx.now().0));
        });
        assert_eq!(got, [want], "message at {at}");
    }
    // receive() waits for ever; the inbox is first in, first out.
    let got = active(&[(5, 1), (5, 2), (9, 3)], Time(100), async |mut cx: ActiveCx, notes| {
        loop {
            let ty = cx.receive().await.ty;
            note(&notes, format!("{ty} at {}", cx.now().0));
        }
    });
    assert_eq!(got, ["1 at 5", "2 at 5", "3 at 9"]);
    // sleep is not interruptible: what arrives meanwhile waits.
    let got = active(&[(5, 1), (20, 2)], Time(100), async |mut cx: ActiveCx, notes| {
        cx.sleep_for(20).await;
        note(&notes, format!("awake at {}", cx.now().0));
        for _ in 0..2 {
            note(&notes, format!("{}", cx.receive().await.ty));
        }
    });
    assert_eq!(got, ["awake at 20", "1", "2"]);
}

#[test]
#[should_panic(expected = "awaits something else")]
fn n_3_nothing_else_can_be_awaited() {
    active(&[], Time(1), async |_cx: ActiveCx, _notes| std::future::pending().await);
}

#[test]
fn an_active_layer_may_handle_some_messages_at_once() {
    let notes = Notes::default();
    let inner = Arc::clone(&notes);
    let registry = Registry::new().with("active", move |_| {
        let (early, late) = (Arc::clone(&inner), Arc::clone(&inner));
        let layer = Active::new(async move |mut cx: ActiveCx| {
            cx.sleep_for(10).await;
            note(&late, format!("inbox {}", cx.receive().await.ty));
        });
        Ok(Box::new(layer.with_deliver(move |message, _cx| {
            if message.ty == 1 {
                note(&early, "at once 1");
                return None;
            }
            Some(message)
        })))
    });
    let config = format!("processes = 1\n{NET}[[process]]\nlayers = [\"active\"]");
    let mut world = world(&config, &registry);
    for ty in [2, 1] {
        world.with(Slot(0), Time(1), |p| p.deliver(Time(1), Message::new(Slot(0), ty, "")));
    }
    world.run_until(Time(20));
    assert_eq!(taken(&notes), ["at once 1", "inbox 2"]);
}

#[test]
fn n_4_nothing_runs_before_the_start() {
    // A layer cannot send while it is built: it has no context. What comes from outside is held.
    let notes = Notes::default();
    let config = format!("processes = 1\n{NET}[[process]]\nlayers = [\"answer\"]");
    let config = Config::parse(&config, "test.toml").expect("well written");
    let built = answering(&notes).processes(&config, RunSeed(1), &networks(&["main"]));
    let mut process = built.expect("known layers").remove(0);
    process.deliver(Time(1), Message { src: Slot(3), ..Message::new(Slot(0), 1, "early") });
    process.send(Time(2), Message::new(Slot(0), 1, "not taken"));
    process.wake(Time(3));
    let mut sent = Sent::default();
    process.carry_out(Time(3), &mut sent);
    assert!(sent.0.is_empty() && process.next_wake().is_none());
    assert_eq!(taken(&notes), Vec::<String>::new());
    process.start(Time(4));
    assert_eq!(taken(&notes), ["0 got 1 from 3"]);
    process.carry_out(Time(4), &mut sent);
    assert_eq!(sent.0, [Slot(3)], "the answer goes out");
}

/// A transport that takes everything: the receivers.
#[derive(Default)]
struct Sent(Vec<Slot>);

impl Transport for Sent {
    fn send(&mut self, _now: Time, _message: &Outgoing, to: Slot) -> bool {
        self.0.push(to);
        true
    }

    fn report(&mut self, _report: Report) {}
}

/// Sets timers and writes down when they fire.
struct Clockwork(Notes, Vec<TimerId>);

impl Layer for Clockwork {
    fn on_start(&mut self, cx: &mut Ctx<'_>) {
        // Set in this order; 3 and 4 fire at the same time, in the order of setting.
        self.1 = [30, 10, 20, 20, 5].map(|at| cx.set_timer(Time(at))).to_vec();
        cx.cancel(self.1[4]);
    }

    fn timer(&mut self, id: TimerId, cx: &mut Ctx<'_>) {
        let which = self.1.iter().position(|timer| *timer == id);
        note(&self.0, format!("{which:?} at {}", cx.now().0));
        if which == Some(1) {
            // A time that has passed is now.
            let id = cx.set_timer(Time(0));
            self.1.push(id);
        }
    }
}

#[test]
fn timers_fire_in_the_order_of_time_then_of_setting() {
    let notes = Notes::default();
    let inner = Arc::clone(&notes);
    let registry = Registry::new()
        .with("clock", move |_| Ok(Box::new(Clockwork(Arc::clone(&inner), Vec::new()))));
    let config = format!("processes = 1\n{NET}[[process]]\nlayers = [\"clock\"]");
    world(&config, &registry).run_until(Time(100));
    let want =
        ["Some(1) at 10", "Some(5) at 10", "Some(2) at 20", "Some(3) at 20", "Some(0) at 30"];
    assert_eq!(taken(&notes), want);
}

#[test]
fn multiplexers_route_by_type_and_keep_branches_apart() {
    let notes = Notes::default();
    let config = format!(
        "processes = 2\n{NET}[[process]]\nlayers = [\"trace\", {{ layer = \"multiplexer\", \
         branches = [{{ types = [0, 1], layers = [\"answer\"] }}, \
         {{ types = [2, 9], layers = [\"answer\"] }}] }}]"
    );
    let mut world = world(&config, &answering(&notes));
    for ty in [1, 2, 10] {
        let message = Message { src: Slot(0), ..Message::new(Slot(1), ty, "") };
        world.with(Slot(1), Time(1), |p| p.deliver(Time(1), message));
    }
    world.run(Time(1));
    // The answer of the first branch is of type 2, which is the other branch's: it is not sent.
    assert_eq!(taken(&notes), ["1 got 1 from 0", "1 got 2 from 0"]);
    let wrong: Vec<_> = world
        .take_events()
        .into_iter()
        .filter_map(|(_, event)| event.decode())
        .filter(|event| !matches!(event, RuntimeEvent::Up { .. } | RuntimeEvent::Down { .. }))
        .collect();
    let want = [RuntimeEvent::NotOfBranch { ty: 2 }, RuntimeEvent::NoBranch { ty: 10 }];
    assert_eq!(wrong, want);
}

#[test]
fn destinations_are_resolved() {
    let notes = Notes::default();
    let config = format!("processes = 4\n{NET}[[process]]\nlayers = [\"answer\"]");
    let mut world = world(&config, &answering(&notes));
    let rows = [
        (Dest::All, vec![0, 1, 2, 3]),
        (Dest::AllButMe, vec![0, 2, 3]),
        (Dest::View, vec![0, 1, 2, 3]),
        (Dest::Many([Slot(3), Slot(1), Slot(3)].into()), vec![1, 3]),
        (Dest::One(Slot(1)), vec![1]),
    ];
    for (dst, want) in rows {
        world.with(Slot(1), Time(0), |p| p.send(Time(0), Message::new(dst.clone(), 3, "")));
        world.run(Time(0));
        let mut got = taken(&notes);
        got.sort();
        let want: Vec<_> = want.iter().map(|slot| format!("{slot} got 3 from 1")).collect();
        assert_eq!(got, want, "{dst:?}");
    }
}

#[test]
fn unknown_types_and_networks_are_counted() {
    let notes = Notes::default();
    let config = format!("processes = 1\n{NET}[[process]]\nlayers = [\"answer\"]");
    let mut world = world(&config, &answering(&notes));
    let now = Time(1);
    // Twice of one type: both are counted, the type is said once.
    for ty in [1234, 1234, 1235] {
        world.with(Slot(0), now, |p| p.deliver(now, Message::new(Slot(0), ty, "")));
    }
    let said = world.take_events();
    let said: Vec<RuntimeEvent> = said.iter().filter_map(|(_, event)| event.decode()).collect();
    let want = [1234, 1235].map(|ty| RuntimeEvent::UndeclaredType { ty, from: Slot(0) });
    assert_eq!(said, want);
    world.with(Slot(0), now, |p| {
        p.send(now, Message::new(Slot(0), 3, "").on(itg_process::NetId(7)));
    });
    let counters = world.process(Slot(0)).counters();
    assert_eq!((counters.unknown_type, counters.no_such_network), (3, 1));
    assert_eq!(taken(&notes), Vec::<String>::new());
}

#[test]
fn a_full_inbox_refuses_and_the_sender_is_told() {
    struct Burst(Notes);
    impl Layer for Burst {
        fn on_start(&mut self, cx: &mut Ctx<'_>) {
            if cx.me() == Slot(0) {
                (0..102).for_each(|_| cx.down(Message::new(Slot(1), 3, "")));
                // The refusal of a multicast names the one that does not get it.
                cx.down(Message::new(Dest::AllButMe, 3, ""));
            }
        }
        fn refused(&mut self, message: Message, _cx: &mut Ctx<'_>) {
            note(&self.0, format!("refused for {:?}", message.dst));
        }
    }
    let notes = Notes::default();
    let inner = Arc::clone(&notes);
    let registry = Registry::new().with("burst", move |_| Ok(Box::new(Burst(Arc::clone(&inner)))));
    let config = format!("processes = 3\n{NET}[[process]]\nlayers = [\"burst\"]");
    let mut world = world(&config, &registry);
    assert_eq!(taken(&notes), ["refused for One(Slot(1))"; 3]);
    world.run(Time(1));
    let delivered = [Slot(1), Slot(2)].map(|slot| world.process(slot).counters().delivered);
    assert_eq!(delivered, [100, 1]);
}

/// Stops at a time, and writes down that it was told.
struct Stopper(Notes);

impl Layer for Stopper {
    fn on_stop(&mut self, why: StopReason, cx: &mut Ctx<'_>) {
        note(&self.0, format!("{} {why:?} at {}", cx.me(), cx.now().0));
    }
}

#[test]
fn n_13_a_stop_from_any_slot_reaches_everybody() {
    // 5: all are neighbours; 100: along the tree.
    for n in [1_u32, 2, 5, 100] {
        for from in [0, 1, n / 2, n - 1].into_iter().filter(|from| *from < n) {
            let notes = Notes::default();
            let inner = Arc::clone(&notes);
            let registry =
                Registry::new().with("stop", move |_| Ok(Box::new(Stopper(Arc::clone(&inner)))));
            let config = format!("processes = {n}\n{NET}[[process]]\nlayers = [\"stop\"]");
            let mut world = world(&config, &registry);
            let now = Time(MS);
            world.with(Slot(from), now, |p| p.stop(now, StopReason::Finished));
            let end = world.run_until(Time(10 * SECOND));
            assert!(world.stopped(), "n {n} from {from}");
            assert!(world.reasons().all(|why| why == Some(StopReason::Finished)));
            assert_eq!(taken(&notes).len(), n as usize, "each layer is told once");
            assert!(end < Time(SECOND), "n {n} from {from}: at {end}");
        }
    }
}

#[test]
fn n_15_errors_name_file_line_key_and_the_nearest_word() {
    let rows = [
        ("processes = 0\n", "test.toml:1:13: configuration: processes: 0: expected 1 to 1048576"),
        ("procesess = 3\n", "test.toml:1:13: unknown key `procesess`: did you mean `processes`?"),
        (
            "processes = \"x\"\n",
            "test.toml:1:13: configuration: processes: `\"x\"`: expected a whole number, 0 or more",
        ),
        (
            "processes = 2\n[[network]]\nname = \"a\"\n",
            "test.toml:2:1: [[network]]: missing key `kind`",
        ),
        (
            "processes = 2\n[[network]]\nname = \"a\"\nkind = \"inproc\"\n[[process]]\nslot = 2\nlayers = []\n",
            "test.toml:6:8: [[process]]: slot: slots go from 0 to 1",
        ),
        (
            "processes = 2\n[[network]]\nname = \"a\"\nkind = \"inproc\"\n[[process]]\nlayer = []\n",
            "test.toml:6:9: [[process]]: unknown key `layer`: did you mean `layers`?",
        ),
        (
            "processes = 1\n[[network]]\nname = \"a\"\nkind = \"inproc\"\n[[process]]\nlayers = [\"trace\", \"anwser\"]\n",
            "test.toml:6:20: layer `anwser`: unknown layer: did you mean `answer`?",
        ),
        (
            "processes = 1\n[[network]]\nname = \"a\"\nkind = \"inproc\"\n[[process]]\nlayers = [{ layer = \"wait\", perod = \"1s\" }]\n",
            "test.toml:6:37: layer `wait`: unknown key `perod`: did you mean `period`?",
        ),
        (
            "processes = 1\n[[network]]\nname = \"a\"\nkind = \"inproc\"\n[[process]]\nlayers = [{ layer = \"wait\", period = \"1\" }]\n",
            "test.toml:6:38: layer `wait`: period: duration `1` has no unit: expected a number with ns, us, ms, s, min or h, such as 500us or 20s",
        ),
        ("a = [", "test.toml:1:6: not TOML: unclosed array, expected `]`"),
    ];
    let registry = answering(&Notes::default()).with("wait", |build| {
        build.params.time_ns("period", US)?;
        Ok(Box::new(itg_process::TraceFilter))
    });
    for (text, want) in rows {
        let got = Config::parse(text, "test.toml")
            .and_then(|config| registry.processes(&config, RunSeed(1), &networks(&["a"])));
        let got = got.map(drop).map_err(|error| error.to_string());
        assert_eq!(got, Err(want.to_owned()), "{text}");
    }
}

#[test]
fn random_streams_depend_on_seed_slot_and_name_alone() {
    use rand::Rng as _;
    struct Draw(Notes);
    impl Layer for Draw {
        fn on_start(&mut self, cx: &mut Ctx<'_>) {
            let draw = cx.rng().next_u64();
            note(&self.0, format!("{} {draw}", cx.me()));
        }
    }
    let run = |layers: &str| {
        let notes = Notes::default();
        let inner = Arc::clone(&notes);
        let registry =
            Registry::new().with("draw", move |_| Ok(Box::new(Draw(Arc::clone(&inner)))));
        let config = format!("processes = 2\n{NET}[[process]]\nlayers = [{layers}]");
        world(&config, &registry);
        taken(&notes)
    };
    let alone = run("\"draw\"");
    assert_ne!(alone[0][2..], alone[1][2..]);
    assert_eq!(run("\"trace\", \"draw\", \"trace\""), alone, "other layers shift nothing");
}

#[test]
fn content_is_a_value_or_none_at_all() {
    let content = (7_u64, "seven".to_owned(), vec![Some(1_u8), None]);
    let message = Message::of(Slot(1), 3, &content);
    assert_eq!(message.content(), Some(content));
    assert_eq!(message.content::<(u64, String)>(), None, "something is left");
    let cut = message.body.slice(..message.body.len() - 1);
    assert_eq!(Message::new(Slot(1), 3, cut).content::<(u64, String, Vec<Option<u8>>)>(), None);
    // A length beyond every frame makes no room.
    let long = Message::of(Slot(1), 3, &u64::MAX);
    assert_eq!(long.content::<Vec<u64>>(), None);
}

#[test]
fn an_active_layer_has_what_others_have() {
    struct Called(Notes);
    impl Layer for Called {
        fn control(&mut self, what: &dyn std::any::Any, _cx: &mut Ctx<'_>) {
            note(&self.0, format!("called with {:?}", what.downcast_ref::<u32>()));
        }
        fn send(&mut self, message: Message, _cx: &mut Ctx<'_>) {
            note(&self.0, format!("type {} on {:?}", message.ty, message.net));
        }
    }
    struct Above;
    impl Layer for Above {
        fn on_start(&mut self, cx: &mut Ctx<'_>) {
            (5..8).for_each(|ty| cx.down(Message::new(Slot(0), ty, "")));
        }
    }
    let notes = Notes::default();
    let below = notes.clone();
    let registry = Registry::new()
        .with("called", move |_| Ok(Box::new(Called(below.clone()))))
        .with("above", |_| Ok(Box::new(Above)))
        .with("active", |_| {
            let layer = Active::new(async |mut cx: ActiveCx| {
                let what = cx.config()["mine"]["what"].as_integer();
                cx.call("called", Box::new(u32::try_from(what.expect("a number")).expect("small")));
                let net = cx.network("second").expect("its name");
                let incarnation = u32::try_from(cx.incarnation()).expect("the first");
                cx.send(Message::new(Slot(0), incarnation, "").on(net));
            });
            // What the layer above sends: one type is kept.
            Ok(Box::new(layer.with_send(|message, _| (message.ty != 6).then_some(message))))
        });
    let text = format!(
        "processes = 1\n{NET}[[network]]\nname = \"second\"\nkind = \"inproc\"\n[[process]]\n\
         layers = [\"called\", \"active\", \"above\"]\n[mine]\nwhat = 42"
    );
    drop(world(&text, &registry));
    let want =
        ["called with Some(42)", "type 1 on NetId(1)", "type 5 on NetId(0)", "type 7 on NetId(0)"];
    assert_eq!(taken(&notes), want);
}
