//! Groups in virtual time, under the oracles of `itg_group::check`.
#![allow(dead_code, reason = "not every test uses everything")]
#![allow(unreachable_pub, reason = "a module of each test")]
#![allow(clippy::print_stdout, reason = "what led to a failure")]

use std::sync::{Arc, Mutex};

use itg_core::seed::RunSeed;
use itg_group::check::{Quality, Views};
use itg_group::membership::MembershipEvent;
use itg_group::{Member, Rules, View, cast, detector, membership};
use itg_process::{Config, Ctx, Event, Injected, Layer, LayerEvent, MS, Message, Registry, Slot};
use itg_sim::{Checker, Exit, Fault, Observation, ObservedEvent, World};

/// The oracle of views, as a checker of the simulator. It also demands agreement in the end.
pub struct Watch(pub Arc<Mutex<Views>>, pub Arc<Mutex<Quality>>);

impl Checker for Watch {
    fn name(&self) -> &'static str {
        "views"
    }

    fn see(&mut self, seen: &Observation<'_>) -> Result<(), String> {
        let mut views = self.0.lock().expect("one thread");
        let mut quality = self.1.lock().expect("one thread");
        match seen.what {
            ObservedEvent::Event(event) => {
                quality.see(seen.at, seen.slot, event);
                return views.see(seen.slot, event);
            }
            ObservedEvent::Started(incarnation) => {
                quality.started(seen.slot);
                views.started(seen.slot, incarnation);
            }
            ObservedEvent::Crashed | ObservedEvent::Stopped(_) => {
                quality.gone(seen.at, seen.slot);
                views.gone(seen.slot);
            }
            _ => {}
        }
        Ok(())
    }

    fn converged(&self) -> bool {
        self.0.lock().expect("one thread").agreed().is_ok()
    }

    fn finish(&mut self) -> Result<(), String> {
        self.0.lock().expect("one thread").agreed().map(drop)
    }
}

/// Processes of one stack on one network.
pub struct Group {
    pub world: World,
    pub views: Arc<Mutex<Views>>,
    pub quality: Arc<Mutex<Quality>>,
    /// The layer that takes suspicions.
    pub layer: &'static str,
    pub seed: u64,
}

pub const FIXED: &str = "kind = \"fixed\"\ndelay = \"1ms\"";

/// Mode P: `n` processes, parameters of the layer, a network.
pub fn paper(n: u32, params: &str, network: &str, seed: u64) -> Group {
    let params = if params.is_empty() { String::new() } else { format!(", {params}") };
    let layers = format!("{{ layer = \"membership-paper\"{params} }}");
    group(n, &layers, network, seed, "membership-paper", &membership::layers(Registry::new()))
}

/// An application without a state above the log: it answers for its state, and that is all.
pub struct Top;

impl Layer for Top {
    fn deliver(&mut self, message: Message, cx: &mut Ctx<'_>) {
        if let Some(cast::CastDelivery::Checkpoint { position }) =
            cast::CastDelivery::from_message(&message)
            && let Some(answer) = cast::CastRequest::State(position, bytes::Bytes::new()).message()
        {
            cx.down(answer);
        }
    }
}

/// Mode C: detector, log, membership; parameters of the detector and of the membership.
pub fn agreed(n: u32, detector: &str, params: &str, network: &str, seed: u64) -> Group {
    agreed_with(n, detector, params, network, seed, cast::Planted::default())
}

/// The same with a planted fault in the log.
pub fn agreed_with(
    n: u32,
    detector: &str,
    params: &str,
    network: &str,
    seed: u64,
    planted: cast::Planted,
) -> Group {
    let comma =
        |params: &str| if params.is_empty() { String::new() } else { format!(", {params}") };
    // What makes the first view is said to the log, too.
    let view: Vec<_> = params
        .split(',')
        .filter(|param| {
            ["members", "arity", "core", "root"].iter().any(|key| param.trim().starts_with(key))
        })
        .collect();
    let layers = format!(
        "{{ layer = \"detector\"{} }}, {{ layer = \"log\", trace = true{} }}, {{ layer = \"membership\"{} }}, \"top\"",
        comma(detector),
        comma(&view.join(",")),
        comma(params),
    );
    let registry = membership::layers(detector::layers(cast::layers(
        Registry::new().with("top", |_| Ok(Box::new(Top))),
        planted,
    )));
    group(n, &layers, network, seed, "membership", &registry)
}

/// `n` processes of these layers.
pub fn group(
    n: u32,
    layers: &str,
    network: &str,
    seed: u64,
    layer: &'static str,
    registry: &Registry,
) -> Group {
    let text = format!(
        "processes = {n}\n[[network]]\nname = \"main\"\n{network}\n[[process]]\nlayers = [{layers}]\n"
    );
    let config = Config::parse(&text, "test.toml").expect("well written");
    let mut world = World::new(&config, registry, RunSeed(seed)).expect("known layers");
    let find = |key: &str| {
        let at = layers.split(&format!("{key} =")).nth(1)?;
        at.trim_start().split([',', ' ', '}']).next()?.parse::<u32>().ok()
    };
    let usual = Rules::default();
    let rules = Rules {
        arity: find("arity").map_or(usual.arity, |a| a.try_into().expect("an arity")),
        core: find("core").map_or(usual.core, |c| c.try_into().expect("small")),
        root_policy: if layers.contains("\"lowest\"") {
            itg_members::RootPolicy::Lowest
        } else {
            itg_members::RootPolicy::Oldest
        },
    };
    let first = View::first(find("members").unwrap_or(n), rules);
    let views = Arc::new(Mutex::new(Views::new(first)));
    let quality = Arc::default();
    world.check(Watch(Arc::clone(&views), Arc::clone(&quality)));
    world.keep_events();
    Group { world, views, quality, layer, seed }
}

impl Group {
    pub fn crash(&mut self, at: u64, slot: u32) {
        self.world.fault_at(at, Fault::Crash(Slot(slot)));
    }

    pub fn recover(&mut self, at: u64, slot: u32) {
        self.world.fault_at(at, Fault::Recover(Slot(slot)));
    }

    pub fn suspect(&mut self, at: u64, detector: u32, suspect: u32) {
        let what = Injected::Suspect(Slot(suspect));
        self.world.fault_at(at, Fault::Inject(Slot(detector), self.layer, what));
    }

    /// Runs to this time and demands that everything holds and all agree.
    #[track_caller]
    pub fn settle(&mut self, until: u64) -> View {
        self.run(until);
        let violation = self.world.finish().map(ToString::to_string);
        if violation.is_some() {
            let events = self.events();
            let views =
                |event: &Event| matches!(event.decode(), Some(MembershipEvent::Installed { .. }));
            let events: Vec<_> = events.iter().filter(|(_, _, event)| !views(event)).collect();
            for (at, slot, event) in &events[events.len().saturating_sub(80)..] {
                println!("{at} process {slot}: {} {:?}", event.name, event.values);
            }
        }
        assert_eq!(violation, None, "at {} ns, seed {}", self.world.now(), self.seed);
        self.view()
    }

    #[track_caller]
    pub fn run(&mut self, until: u64) {
        let exit = self.world.run(until);
        assert_ne!(exit, Exit::Violated, "{:?}", self.world.violation());
    }

    pub fn view(&self) -> View {
        self.views.lock().expect("one thread").agreed().expect("agreement").clone()
    }

    pub fn changes(&self) -> u64 {
        self.views.lock().expect("one thread").changes()
    }

    /// Runs up to the event of this number; returns true if there was one.
    pub fn run_to_event(&mut self, number: u64, until: u64) -> bool {
        self.world.run_while(until, |world| world.counts().events < number);
        self.world.counts().events >= number
    }

    pub fn events(&mut self) -> Vec<(u64, Slot, Event)> {
        self.world.take_events()
    }

    /// Time, process and values of those events of a set for which `pick` gives a value.
    pub fn logged<E: LayerEvent, T>(
        &mut self,
        pick: impl Fn(E) -> Option<T>,
    ) -> Vec<(u64, u32, T)> {
        let events = self.events().into_iter();
        events.filter_map(|(at, slot, event)| Some((at, slot.0, pick(event.decode()?)?))).collect()
    }

    /// Number of events of a set that `like` accepts.
    pub fn count<E: LayerEvent>(&mut self, like: impl Fn(E) -> bool) -> usize {
        self.logged(|event| like(event).then_some(())).len()
    }
}

pub fn slots(view: &View) -> Vec<u32> {
    view.slots().map(|slot| slot.0).collect()
}

pub const fn member(slot: u32, incarnation: u64) -> Member {
    Member::new(Slot(slot), incarnation)
}

pub const MILLI: u64 = MS;
