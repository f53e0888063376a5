//! The bootstrap: a master and its slaves over connections that may break or fall silent.

use std::collections::{BTreeMap, VecDeque};

use itg_process::bootstrap::{
    Boot, Diagnosis, HostFacts, Master, MasterAction, MasterInput, MasterOptions, Members,
    PROTOCOL, Require, STEP_TIMEOUT, Slave, SlaveAction, SlaveInput, SlaveOptions, Step,
};
use itg_process::{SECOND, Time};

/// Way in which a slave fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Death {
    /// Its connections break.
    Broken,
    /// It says nothing more.
    Silent,
}

#[derive(Default)]
struct Outcome {
    failed: Option<Diagnosis>,
    missing: Option<Vec<u32>>,
    /// Slaves that have started, by slot; slaves that have given up, and why.
    started: Vec<u32>,
    gave_up: BTreeMap<usize, Diagnosis>,
    at: u64,
}

struct Party {
    now: Time,
    master: Master,
    slaves: Vec<Slave>,
    slots: Vec<u32>,
    dead: Vec<bool>,
    /// A slave dies when it has done this: its number, the step, how.
    dies: Option<(usize, Step, Death)>,
    to_master: VecDeque<(u32, Boot)>,
    to_slave: VecDeque<(usize, SlaveInput)>,
    own: VecDeque<MasterInput>,
    outcome: Outcome,
}

fn facts(k: usize) -> HostFacts {
    HostFacts {
        host: format!("h{k}"),
        addresses: vec![format!("10.0.0.{k}")],
        ..HostFacts::default()
    }
}

impl Party {
    fn new(slaves: usize, options: MasterOptions) -> Self {
        let build = |k| Slave::new(SlaveOptions::new(facts(k)));
        Self {
            now: Time::ZERO,
            master: Master::new(options),
            slaves: (0..slaves).map(build).collect(),
            slots: vec![0; slaves],
            dead: vec![false; slaves],
            dies: None,
            to_master: VecDeque::new(),
            to_slave: VecDeque::new(),
            own: VecDeque::new(),
            outcome: Outcome::default(),
        }
    }

    fn fixed(slaves: usize) -> MasterOptions {
        MasterOptions::new(Members::Static((0..slaves).map(|k| format!("h{k}")).collect()))
    }

    /// The step that a slave has done when it sends this.
    fn done(&mut self, k: usize, step: Step) {
        if let Some((who, when, how)) = self.dies
            && (who, when) == (k, step)
        {
            self.dead[k] = true;
            if how == Death::Broken {
                let peer = u32::try_from(k).expect("small") + 1;
                self.own.push_back(MasterInput::Gone(peer, "connection reset".to_owned()));
            }
        }
    }

    fn master(&mut self, input: MasterInput) {
        let mut out = Vec::new();
        self.master.handle(self.now, input, &mut out);
        for action in out {
            match action {
                MasterAction::Dial(peer, _) => {
                    let k = peer as usize - 1;
                    self.to_slave.push_back((k, SlaveInput::Begin));
                }
                MasterAction::Send(peer, message) => {
                    if let Boot::Config { slot, .. } = &message {
                        self.slots[peer as usize - 1] = *slot;
                    }
                    // Over the wire and back.
                    let bytes = message.encode();
                    let message = Boot::decode(&bytes).expect("its own bytes");
                    self.to_slave.push_back((peer as usize - 1, SlaveInput::Message(message)));
                }
                MasterAction::Close(_) => {}
                MasterAction::Connect(others) => {
                    for (slot, _) in others {
                        let meshed = SlaveInput::Meshed { slot: 0, incarnation: 1 };
                        let k = self.slave_of(slot);
                        self.to_slave.push_back((k, meshed));
                    }
                    self.own.push_back(MasterInput::OwnReady);
                }
                MasterAction::Init => self.own.push_back(MasterInput::OwnInited),
                MasterAction::Start { missing } => self.outcome.missing = Some(missing),
                MasterAction::Failed(diagnosis) => {
                    self.outcome.failed = Some(diagnosis);
                    self.outcome.at = self.now.0;
                }
            }
        }
    }

    fn slave_of(&self, slot: u32) -> usize {
        self.slots.iter().position(|own| *own == slot).unwrap_or(slot as usize - 1)
    }

    fn slave(&mut self, k: usize, input: SlaveInput) {
        if self.dead[k] {
            return;
        }
        let step = match &input {
            SlaveInput::Message(Boot::Config { .. }) => Some(Step::Config),
            SlaveInput::Message(Boot::Graph(_)) => Some(Step::Graph),
            SlaveInput::Message(Boot::Init) => Some(Step::Init),
            SlaveInput::Message(Boot::Start) => Some(Step::Start),
            SlaveInput::Meshed { .. } => Some(Step::Mesh),
            _ => None,
        };
        if let Some(step) = step {
            self.done(k, step);
            if self.dead[k] {
                return;
            }
        }
        let mut out = Vec::new();
        self.slaves[k].handle(self.now, input, &mut out);
        let me = u32::try_from(k).expect("small") + 1;
        for action in out {
            match action {
                SlaveAction::Send(message) => {
                    let step = match &message {
                        Boot::Hello { .. } => Some(Step::Hello),
                        Boot::Ready => Some(Step::Ready),
                        Boot::Inited => Some(Step::Inited),
                        _ => None,
                    };
                    let message = Boot::decode(&message.encode()).expect("its own bytes");
                    self.to_master.push_back((me, message));
                    if let Some(step) = step {
                        self.done(k, step);
                    }
                }
                SlaveAction::Connect(others) => {
                    for (slot, _) in others {
                        let other = self.slave_of(slot);
                        if !self.dead[other] {
                            let slots = [(k, slot), (other, self.slots[k])];
                            for (who, slot) in slots {
                                let meshed = SlaveInput::Meshed { slot, incarnation: 1 };
                                self.to_slave.push_back((who, meshed));
                            }
                        }
                    }
                }
                SlaveAction::Init { graph, .. } => {
                    assert_eq!(graph, b"graph");
                    self.to_slave.push_back((k, SlaveInput::Inited));
                }
                SlaveAction::Start => self.outcome.started.push(self.slots[k]),
                SlaveAction::Failed(diagnosis) => {
                    self.outcome.gave_up.insert(k, diagnosis);
                }
            }
        }
    }

    /// Runs until nothing is left to happen.
    fn run(mut self) -> Outcome {
        self.master(MasterInput::Begin);
        loop {
            if let Some(input) = self.own.pop_front() {
                self.master(input);
            } else if let Some((peer, message)) = self.to_master.pop_front() {
                self.master(MasterInput::Message(peer, message));
            } else if let Some((k, input)) = self.to_slave.pop_front() {
                self.slave(k, input);
            } else {
                let alive = self.slaves.iter().zip(&self.dead).filter(|(_, dead)| !**dead);
                let next = alive.map(|(slave, _)| slave.deadline()).min();
                let next = next.unwrap_or(Time::NEVER).min(self.master.deadline());
                if next == Time::NEVER {
                    return self.outcome;
                }
                self.now = next;
                self.master(MasterInput::Tick);
                (0..self.slaves.len()).for_each(|k| self.slave(k, SlaveInput::Tick));
            }
        }
    }
}

#[test]
fn everybody_starts_together() {
    for slaves in [0, 1, 2, 7] {
        let mut options = Party::fixed(slaves);
        options.graph = b"graph".to_vec();
        let mut outcome = Party::new(slaves, options).run();
        assert_eq!(outcome.failed, None);
        assert_eq!(outcome.missing, Some(vec![]));
        outcome.started.sort_unstable();
        let all: Vec<_> = (1..=u32::try_from(slaves).expect("small")).collect();
        assert_eq!(outcome.started, all);
    }
}

#[test]
fn slots_go_by_the_order_of_arrival() {
    let mut options = MasterOptions::new(Members::Arrival(3));
    options.graph = b"graph".to_vec();
    let mut party = Party::new(3, options);
    for k in [2, 0, 1] {
        party.to_slave.push_back((k, SlaveInput::Begin));
    }
    let outcome = party.run();
    assert_eq!((outcome.failed, outcome.missing), (None, Some(vec![])));
    assert_eq!(outcome.started.len(), 3);
}

#[test]
fn n_12_a_slave_that_dies_at_any_step_is_named() {
    let steps =
        [Step::Hello, Step::Config, Step::Graph, Step::Mesh, Step::Ready, Step::Init, Step::Inited];
    for step in steps {
        for how in [Death::Broken, Death::Silent] {
            let mut options = Party::fixed(3);
            options.graph = b"graph".to_vec();
            let mut party = Party::new(3, options);
            party.dies = Some((1, step, how));
            let outcome = party.run();
            let row = format!("{step}, {how:?}");
            // A slave that has sent its last message is missed at nothing but the start itself.
            if step == Step::Inited && how == Death::Silent {
                assert_eq!(outcome.failed, None, "{row}");
                continue;
            }
            let failed = outcome.failed.unwrap_or_else(|| panic!("{row}: nobody noticed"));
            assert_eq!(failed.host, "h1", "{row}: {failed}");
            assert!(failed.step <= Step::Inited && !failed.reason.is_empty(), "{row}: {failed}");
            assert!(outcome.at <= 2 * STEP_TIMEOUT, "{row}: after {} ns", outcome.at);
            // No orphans: the others have given up, and none has started.
            assert_eq!(outcome.gave_up.len(), 2, "{row}: {:?}", outcome.gave_up);
            assert!(outcome.started.is_empty(), "{row}");
        }
    }
    // One that never says hello.
    for how in [Death::Broken, Death::Silent] {
        let mut party = Party::new(3, Party::fixed(3));
        party.dead[2] = true;
        if how == Death::Broken {
            party.own.push_back(MasterInput::Gone(3, "connection refused".to_owned()));
        }
        let outcome = party.run();
        let reason = match how {
            Death::Broken => "connection refused",
            Death::Silent => "nothing came within 10s",
        };
        let want = format!("host h2: step 1 (hello): {reason}");
        assert_eq!(outcome.failed.map(|failed| failed.to_string()), Some(want));
    }
}

#[test]
fn a_policy_may_do_without_some() {
    let mut options = Party::fixed(4);
    options.graph = b"graph".to_vec();
    options.require = Require::AtLeast(4);
    let mut party = Party::new(4, options.clone());
    party.dead[2] = true;
    let mut outcome = party.run();
    outcome.started.sort_unstable();
    assert_eq!((outcome.failed, outcome.missing), (None, Some(vec![3])));
    assert_eq!(outcome.started, [1, 2, 4]);
    let mut party = Party::new(4, options);
    (party.dead[2], party.dead[3]) = (true, true);
    let failed = party.run().failed.expect("too few").to_string();
    assert_eq!(failed, "host h2: step 1 (hello): nothing came within 10s, and 1 more hosts");
}

#[test]
fn other_builds_are_refused_with_both_values() {
    let mut options = Party::fixed(1);
    options.build = 0xabc;
    let outcome = Party::new(1, options).run();
    let want = "host h0: step 1 (hello): build 0x0 there, 0xabc at the master: use the same";
    assert_eq!(outcome.failed.map(|failed| failed.to_string()).as_deref(), Some(want));
    assert_eq!(outcome.gave_up.len(), 1);
}

#[test]
fn strange_bytes_and_messages_are_survived() {
    assert!(Boot::decode(&[]).is_err() && Boot::decode(&[255; 40]).is_err());
    let mut long = Boot::Ready.encode();
    long.push(0);
    let error = Boot::decode(&long).expect_err("too long").to_string();
    assert_eq!(error, "5 bytes are no message of the bootstrap: 1 bytes too many");
    // A graph that says it is longer than everything.
    let mut graph = Boot::Graph(vec![1]).encode();
    graph[4..12].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(Boot::decode(&graph).is_err());
    let mut master = Master::new(Party::fixed(1));
    let mut out = Vec::new();
    master.handle(Time::ZERO, MasterInput::Begin, &mut out);
    master.handle(Time(SECOND), MasterInput::Message(9, Boot::Inited), &mut out);
    assert!(matches!(out.last(), Some(MasterAction::Failed(_))), "{out:?}");
    let hello = Boot::Hello { protocol: PROTOCOL, build: 0, schema: 0, facts: facts(0) };
    master.handle(Time(SECOND), MasterInput::Message(1, hello), &mut out);
    assert!(matches!(out.last(), Some(MasterAction::Failed(_))), "it is over");
}
