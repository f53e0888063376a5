//! Experiments of many nodes in virtual time, under oracles that see all of them.
#![allow(dead_code, reason = "not every test uses everything")]
#![allow(unreachable_pub, reason = "a module of each test")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use itg_control::{
    Command, ControlDelivery, ControlEvent, ControlRequest, Failover, Orphan, Planted, Route,
    Rules, TELL, fence_wait,
};
use itg_core::rate::Rates;
use itg_core::seed::RunSeed;
use itg_group::{cast, detector, membership};
use itg_process::{
    Config, Ctx, Layer, Level, MS, Message, Registry, SECOND, Slot, TimerId, layer_events,
};
use itg_sim::{Checker, Observation, ObservedEvent, World};

pub const NET: &str = "kind = \"random\"\nfloor = \"100us\"\nmean = \"200us\"";
/// Packets of a flow leave this far apart.
pub const GAP: u64 = 20 * MS;
/// From the order to start to the start.
const MARGIN: u64 = 50 * MS;

layer_events! {
    /// Events of the nodes of a test.
    pub enum NodeEvent {
        /// Start of the experiment.
        Started { at_ns: u64 } = "started",
        /// State that was told, by its phase and the number of flows given up.
        State { phase: u64, given_up: u64 } = "state",
        /// Description that was told.
        Graph = "graph",
        /// Packet that leaves.
        Packet { flow: u64, number: u64, fence: u64 } = "packet",
        /// The process sends a flow no more; the next packet would be this.
        Ended { flow: u64, next: u64, fence: u64 } = "ended",
    }
}

/// Settings of every process of a test.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub nodes: u32,
    pub flows: u32,
    /// Packets of each flow.
    pub packets: u64,
    /// They leave this far apart.
    pub gap: u64,
    pub rules: Rules,
    pub planted: Planted,
    /// Entries of the log that members keep for those that are behind.
    pub retain: u32,
    /// Bytes of a journal after which a snapshot makes it shorter.
    pub journal_bytes: u32,
    /// The console casts nothing: a test does.
    pub by_hand: bool,
    /// Nodes that are started again know that nobody sends who sent for them before.
    pub alone: bool,
    /// The clocks of nodes that are started again are set back by so much.
    pub set_back_ns: u64,
    /// Nodes that are started again can do their part from this instant on.
    pub able_at_ns: u64,
    /// Start of all flows.
    pub start_ns: u64,
}

impl Setup {
    pub fn new(nodes: u32, flows: u32) -> Self {
        let rules = Rules {
            orphan: Orphan::Pause,
            failover: Failover::Move,
            console: Some(nodes),
            ..Rules::default()
        };
        Self {
            nodes,
            flows,
            packets: 150,
            gap: GAP,
            rules,
            planted: Planted::default(),
            retain: 4096,
            journal_bytes: 4 << 20,
            by_hand: false,
            alone: false,
            set_back_ns: 0,
            able_at_ns: 0,
            start_ns: 0,
        }
    }

    fn planned_ns(&self, number: u64) -> u64 {
        self.start_ns + number * self.gap
    }

    pub fn routes(&self) -> Vec<Route> {
        let flow =
            |k| Route { from: k % self.nodes, to: (k + 1) % self.nodes, start_ns: self.start_ns };
        (0..self.flows).map(flow).collect()
    }
}

/// A flow being sent: its packets are events.
struct Sending {
    fence: u16,
    from_ns: u64,
    /// Instant from which its packets count, by the local clock, which is right here.
    t0_ns: u64,
    next: u64,
    /// Changes of its rate: they map a planned time to the time when it is due.
    rates: Rates,
    timer: TimerId,
}

/// The application above the experiment: sends flows in the way of an agent, and on the last process is
/// the console.
struct Node {
    setup: Setup,
    lease_ns: u64,
    sending: BTreeMap<u32, Sending>,
    loaded: bool,
    started: bool,
    able: Option<TimerId>,
    view: BTreeSet<u32>,
    holders: BTreeSet<u32>,
    /// Packets due before this time of the run may have been sent before a restart.
    sent_before_ns: u64,
}

impl Node {
    fn ask(ask: &ControlRequest, cx: &mut Ctx<'_>) {
        cx.down(ask.message());
    }

    /// The last packet of a flow has been sent here.
    fn end(flow: u32, fence: u16, next: u64, cx: &mut Ctx<'_>) {
        let event = NodeEvent::Ended { flow: flow.into(), next, fence: fence.into() };
        cx.log(Level::Info, event);
        Self::ask(&ControlRequest::Ended(flow, fence, next), cx);
    }

    fn console(&self, cx: &Ctx<'_>) -> bool {
        cx.me().0 == self.setup.nodes && !self.setup.by_hand
    }

    fn arm_when_ready(&self, cx: &mut Ctx<'_>) {
        let nodes = self.view.iter().filter(|slot| **slot != self.setup.nodes);
        if self.console(cx)
            && !self.started
            && nodes.clone().all(|slot| self.holders.contains(slot))
        {
            Self::ask(&ControlRequest::Command(Command::Arm), cx);
        }
    }

    fn told(&mut self, tell: ControlDelivery, cx: &mut Ctx<'_>) {
        match tell {
            ControlDelivery::Graph(_) => {
                cx.log(Level::Info, NodeEvent::Graph);
                if cx.incarnation() > 1 && cx.now().0 < self.setup.able_at_ns {
                    self.able = Some(cx.set_timer(itg_process::Time(self.setup.able_at_ns)));
                } else {
                    Self::ask(&ControlRequest::Able, cx);
                }
            }
            ControlDelivery::SentBefore(run_ns) => {
                self.sent_before_ns = self.sent_before_ns.max(run_ns);
                for sending in self.sending.values_mut() {
                    sending.from_ns = sending.from_ns.max(sending.t0_ns + self.sent_before_ns);
                    let due = |k| sending.t0_ns + sending.rates.due_at(self.setup.planned_ns(k));
                    while due(sending.next) < sending.from_ns {
                        sending.next += 1;
                    }
                }
            }
            ControlDelivery::Emit { flow, fence, not_before_ns, t0_unix_ns, changes } => {
                // The clock of one that was started again may have been set back.
                let again = cx.incarnation() > 1;
                let back_ns = if again { self.setup.set_back_ns } else { 0 };
                let t0_unix_ns = t0_unix_ns + back_ns;
                let at = cx.now().0.max(t0_unix_ns);
                Self::ask(&ControlRequest::RunTime(at, at - t0_unix_ns), cx);
                let timer = cx.set_timer_after(0);
                let t0_ns = t0_unix_ns;
                let from_ns = not_before_ns.max(t0_ns + self.sent_before_ns);
                // A new owner begins with the packet that is due then.
                let begin = from_ns.max(cx.now().0);
                let rates = Rates::new(&changes);
                let due = |k: &u64| t0_ns + rates.due_at(self.setup.planned_ns(*k)) >= begin;
                let next = (0..).find(due).unwrap_or(0);
                let sending = Sending { fence, from_ns, t0_ns, next, rates, timer };
                self.sending.insert(flow, sending);
            }
            ControlDelivery::Cease { flow, fence } => {
                let next = self.sending.remove(&flow).map_or(0, |sending| {
                    cx.cancel(sending.timer);
                    sending.next
                });
                Self::end(flow, fence, next, cx);
            }
            ControlDelivery::Rate { flow, changes } => {
                if let Some(sending) = self.sending.get_mut(&flow) {
                    sending.rates = Rates::new(&changes);
                    cx.cancel(sending.timer);
                    sending.timer = cx.set_timer_after(0);
                }
            }
            ControlDelivery::Lease(until) => self.lease_ns = until,
            ControlDelivery::Fenced => self.lease_ns = 0,
            ControlDelivery::Applied { command, void: None, by, .. } => match command {
                Command::Holds { .. } => {
                    self.holders.insert(by);
                    self.arm_when_ready(cx);
                }
                Command::Load { .. } => self.loaded = true,
                Command::Arm if self.console(cx) => {
                    let t0_unix_ns = cx.now().0 + MARGIN;
                    Self::ask(&ControlRequest::Command(Command::Start { t0_unix_ns }), cx);
                }
                Command::Start { .. } => {
                    self.started = true;
                    let event = NodeEvent::Started { at_ns: cx.now().0 };
                    cx.log(Level::Info, event);
                }
                _ => {}
            },
            ControlDelivery::State(replica) => {
                let phase = replica.phase() as u64;
                let given_up = replica.given_up().len() as u64;
                cx.log(Level::Info, NodeEvent::State { phase, given_up });
            }
            ControlDelivery::Applied { .. } => {}
            ControlDelivery::View { slots, .. } => {
                self.view = slots.into_iter().collect();
                self.holders.retain(|slot| self.view.contains(slot));
                self.arm_when_ready(cx);
            }
        }
    }
}

impl Layer for Node {
    fn on_start(&mut self, cx: &mut Ctx<'_>) {
        self.view = (0..=self.setup.nodes).collect();
        if self.console(cx) && cx.incarnation() == 1 {
            let graph = vec![7; 4000];
            Self::ask(&ControlRequest::Load(graph, self.setup.routes(), self.setup.rules), cx);
        }
    }

    fn deliver(&mut self, message: Message, cx: &mut Ctx<'_>) {
        if message.ty == TELL
            && let Some(tell) = ControlDelivery::from_message(&message)
        {
            self.told(tell, cx);
        }
    }

    fn timer(&mut self, id: TimerId, cx: &mut Ctx<'_>) {
        if self.able == Some(id) {
            return Self::ask(&ControlRequest::Able, cx);
        }
        let found = self.sending.iter_mut().find(|(_, sending)| sending.timer == id);
        let Some((&flow, sending)) = found else { return };
        let now = cx.now().0;
        let due = sending.t0_ns + sending.rates.due_at(self.setup.planned_ns(sending.next));
        if now < sending.from_ns || now < due {
            let at = sending.from_ns.max(due);
            sending.timer = cx.set_timer(itg_process::Time(at));
            return;
        }
        if sending.next >= self.setup.packets {
            let (fence, next) = (sending.fence, sending.next);
            self.sending.remove(&flow);
            return Self::end(flow, fence, next, cx);
        }
        if now < self.lease_ns {
            let (number, fence) = (sending.next, sending.fence.into());
            cx.log(Level::Info, NodeEvent::Packet { flow: flow.into(), number, fence });
        }
        // Without a lease what is due is left out.
        sending.next += 1;
        let due = sending.t0_ns + sending.rates.due_at(self.setup.planned_ns(sending.next));
        sending.timer = cx.set_timer(itg_process::Time(due.max(now)));
    }
}

/// Observations of the oracles.
#[derive(Debug, Default)]
pub struct Facts {
    /// Each packet: instant, sender, flow, number, fence.
    pub packets: Vec<(u64, u32, u64, u64, u64)>,
    /// By process, flow and fence: the packet that would have been next when it ended.
    pub ended: BTreeMap<(u32, u64, u64), u64>,
    /// Instants at which processes crashed.
    pub crashed: Vec<(u64, u32)>,
    /// By position: hash of the command, and of the state behind it.
    applied: BTreeMap<u64, (u64, u64)>,
    /// Instant at which each process started the experiment.
    pub started: BTreeMap<u32, u64>,
    pub graphs: u64,
    /// Phase of the last state that each process was told.
    pub phases: BTreeMap<u32, u64>,
    /// Number of flows given up in the last state that each process was told.
    pub given_up: BTreeMap<u32, u64>,
    /// Instants at which processes were told the description.
    pub described: Vec<(u64, u32)>,
    /// Last fence, owner and number of each flow.
    last: BTreeMap<u64, (u64, u32, u64)>,
    /// The highest position that each process has carried out.
    reached: BTreeMap<u32, u64>,
    down: BTreeSet<u32>,
}

/// C1: one owner at a time, no packet twice. C4: one order, and the same state behind every command.
pub struct Oracle(pub Arc<Mutex<Facts>>);

impl Checker for Oracle {
    fn name(&self) -> &'static str {
        "experiment"
    }

    fn see(&mut self, seen: &Observation<'_>) -> Result<(), String> {
        let mut facts = self.0.lock().expect("one thread");
        let slot = seen.slot.0;
        match seen.what {
            ObservedEvent::Event(event) => {
                if let Some(event) = event.decode() {
                    return facts.node(seen.at, slot, event);
                }
                if let Some(event) = event.decode() {
                    return facts.control(slot, event);
                }
            }
            ObservedEvent::Crashed => {
                facts.crashed.push((seen.at, slot));
                facts.down.insert(slot);
                facts.reached.remove(&slot);
            }
            ObservedEvent::Started(_) => {
                facts.down.remove(&slot);
            }
            _ => {}
        }
        Ok(())
    }
}

impl Facts {
    fn node(&mut self, at: u64, slot: u32, event: NodeEvent) -> Result<(), String> {
        match event {
            NodeEvent::Started { .. } => {
                self.started.insert(slot, at);
            }
            NodeEvent::State { phase, given_up } => {
                self.phases.insert(slot, phase);
                self.given_up.insert(slot, given_up);
            }
            NodeEvent::Graph => self.described.push((at, slot)),
            NodeEvent::Ended { flow, next, fence } => {
                self.ended.insert((slot, flow, fence), next);
            }
            NodeEvent::Packet { flow, number, fence } => {
                self.packets.push((at, slot, flow, number, fence));
                let now = (fence, slot, number);
                if let Some(before) = self.last.insert(flow, now) {
                    if before.0 > now.0 || (before.0 == now.0 && before.1 != now.1) {
                        return Err(format!(
                            "C1: flow {flow}: process {slot} sends under fence {fence}, after process {} \
                             under fence {}",
                            before.1, before.0
                        ));
                    }
                    if before.2 >= now.2 {
                        return Err(format!("flow {flow}: packet {number} after {}", before.2));
                    }
                }
            }
        }
        Ok(())
    }

    fn control(&mut self, slot: u32, event: ControlEvent) -> Result<(), String> {
        match event {
            ControlEvent::Applied { position, command, state } => {
                let got = (command, state);
                let want = *self.applied.entry(position).or_insert(got);
                if got != want {
                    let what = if got.0 == want.0 { "the state behind it" } else { "the command" };
                    return Err(format!("C4: position {position}: {what} is another one"));
                }
                self.reached.insert(slot, position);
            }
            ControlEvent::GraphSent { .. } => self.graphs += 1,
            _ => {}
        }
        Ok(())
    }

    /// Packets of a flow that were sent: instant, sender, number.
    /// Number of commands that have been ordered.
    pub fn ordered(&self) -> usize {
        self.applied.len()
    }

    pub fn of(&self, flow: u32) -> Vec<(u64, u32, u64)> {
        let mine = self.packets.iter().filter(|packet| packet.2 == u64::from(flow));
        mine.map(|packet| (packet.0, packet.1, packet.3)).collect()
    }

    /// Gaps in the numbers of a flow: how many packets are missing in each.
    pub fn gaps(&self, flow: u32) -> Vec<u64> {
        let sent = self.of(flow);
        let pairs = sent.windows(2).map(|pair| pair[1].2 - pair[0].2 - 1);
        pairs.filter(|missing| *missing > 0).collect()
    }
}

pub struct Cluster {
    pub world: World,
    pub facts: Arc<Mutex<Facts>>,
    pub setup: Setup,
}

pub fn cluster(setup: Setup, network: &str, exclude: &str, seed: u64) -> Cluster {
    let mut world = world(setup, network, exclude, seed);
    let facts = Arc::new(Mutex::new(Facts::default()));
    world.check(Oracle(Arc::clone(&facts)));
    Cluster { world, facts, setup }
}

/// The same without an oracle, whose facts grow.
pub fn world(setup: Setup, network: &str, exclude: &str, seed: u64) -> World {
    let n = setup.nodes + 1;
    // As agents have it: three heartbeats within the time-out.
    let whole = |text: &str| text.parse::<u64>().expect("a whole number");
    let ms = exclude.strip_suffix("ms").map(whole);
    let ring = ms.unwrap_or_else(|| 1000 * whole(exclude.trim_end_matches('s'))) / 3;
    let text = format!(
        "processes = {n}\n[[network]]\nname = \"main\"\n{network}\n[[process]]\nlayers = [{{ layer = \
         \"detector\", exclude = \"{exclude}\", ring = \"{ring}ms\" }}, {{ layer = \"log\", status = \"500ms\", rest = \"30s\", \
         retain = {}, journal_bytes = {} }}, \"membership\", {{ layer = \"experiment\", alone = {} }}, \"node\"]\n",
        setup.retain, setup.journal_bytes, setup.alone
    );
    let registry = Registry::new().with("node", move |_| {
        Ok(Box::new(Node {
            setup,
            lease_ns: 0,
            sending: BTreeMap::new(),
            loaded: false,
            started: false,
            able: None,
            view: BTreeSet::new(),
            holders: BTreeSet::new(),
            sent_before_ns: 0,
        }))
    });
    let registry = itg_control::layers(
        membership::layers(detector::layers(cast::layers(registry, cast::Planted::default()))),
        setup.planted,
    );
    let config = Config::parse(&text, "test.toml").expect("well written");
    World::new(&config, &registry, RunSeed(seed)).expect("known layers")
}

impl Cluster {
    #[track_caller]
    pub fn run(&mut self, until: u64) {
        self.world.run(until);
        assert_eq!(self.world.violation().map(ToString::to_string), None);
    }

    /// Numbers of the views of all processes.
    pub fn views(&self) -> BTreeSet<u64> {
        let all = (0..=self.setup.nodes).map(Slot);
        all.filter_map(|slot| Some(self.world.process(slot)?.view_number())).collect()
    }

    /// Has a command come from a user at a terminal of this process.
    pub fn say(&mut self, slot: u32, command: Command) {
        self.world.with(Slot(slot), |process, now| {
            process.send(now, ControlRequest::Command(command).message());
        });
    }

    /// The wait of a new owner after an exclusion.
    pub fn wait(&self) -> u64 {
        fence_wait(self.setup.rules.lease_ns)
    }

    /// The latest time at which packets of a flow are due.
    pub fn end(&self) -> u64 {
        self.setup.packets * self.setup.gap + SECOND
    }
}
