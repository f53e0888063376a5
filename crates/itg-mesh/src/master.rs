//! The master's side of the bootstrap: process 0.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use itg_core::streams::fnv1a;
use itg_core::units::nanoseconds;
use itg_process::bootstrap::{
    Application, Master, MasterAction, MasterInput, MasterOptions, Members, Require, STEP_TIMEOUT,
    Terms,
};
use itg_process::{Config, Process, ProcessContext, Registry, SECOND, Slot, everybody};
use itg_socket::clock;
use itg_socket::socket::resolve;
use socket2::Socket;

use crate::control::{BootstrapEvent, PROCESS_PORT, interface_towards, listen_to, pause};
use crate::frame_reader::say;
use crate::kinds;
use crate::listeners::Listeners;
use crate::mesh::{Change, Mesh, addresses};
use crate::peer::hang_up;
use crate::shared::{Agreed, Identity, Watch, now};
use crate::stream::connect;
use crate::{Listener, Node, StartError};

/// Connections that may call a master beyond those it waits for.
const MORE_CALLERS: u32 = 64;

/// Settings of a master.
pub struct MasterSetup<'a> {
    /// Application that runs.
    pub application: &'a Application,
    /// The layers that this program knows.
    pub registry: &'a Registry,
    /// Listener that slaves call, when the configuration names no hosts.
    pub listener: Option<Listener>,
    /// The interface on which other processes reach this one; by default the one towards the first host,
    /// or that of the listener.
    pub interface: Option<IpAddr>,
    /// Port on which other processes reach this one, TCP and UDP; 0 is any.
    pub port: u16,
    /// Number of processes that must come.
    pub require: Require,
    /// Longest time of each step.
    pub step_timeout: Duration,
    /// Hash of the program: all must have the same.
    pub build: u64,
    /// Callback for events and the message trace.
    pub watch: Option<Watch>,
}

impl<'a> MasterSetup<'a> {
    /// Everything at its default but what runs.
    #[must_use]
    pub fn new(application: &'a Application, registry: &'a Registry) -> Self {
        Self {
            application,
            registry,
            listener: None,
            interface: None,
            port: 0,
            require: Require::All,
            step_timeout: Duration::from_nanos(STEP_TIMEOUT),
            build: 0,
            watch: None,
        }
    }
}

impl std::fmt::Debug for MasterSetup<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MasterSetup").field("application", &self.application.origin).finish()
    }
}

/// Calls the slaves (or waits for their calls), gives them their slots, starts all processes together
/// and returns the one of this host.
///
/// # Errors
/// A configuration that cannot be; a socket that cannot be had; a host that failed, by name and step.
pub fn start_master(setup: MasterSetup<'_>) -> Result<Node, StartError> {
    let config = setup.application.config()?;
    let (wanted, networks) = kinds::read(&config)?;
    let seed = setup.application.seed();
    let everybody = everybody(config.processes);
    let place = ProcessContext {
        slot: Slot(0),
        incarnation: 1,
        seed,
        networks: &networks,
        everybody: &everybody,
        journals: None,
    };
    // Faults of any stack are told before any process is called.
    let process = setup.registry.process(&config, &place)?;
    for slot in everybody.iter().skip(1) {
        drop(setup.registry.process(&config, &ProcessContext { slot: *slot, ..place })?);
    }
    let members = members(&config, setup.listener.is_some())?;
    let interface = interface(&setup, &members)?;
    let mut used: Vec<_> = wanted.iter().map(|wanted| wanted.kind).collect();
    used.sort_unstable();
    used.dedup();
    let mut listeners = Listeners::open(interface, setup.port, &used)?;
    let graph = setup.application.encode();
    let run = rand::TryRng::try_next_u64(&mut rand::rngs::SysRng)
        .map_err(|error| StartError::System(std::io::Error::other(error.to_string())))?;
    let config_hash = fnv1a(&graph);
    let terms = Terms {
        slot: 0,
        processes: config.processes,
        run,
        build: setup.build,
        schema: 0,
        config: config_hash,
        graph: graph.clone(),
    };
    let options = MasterOptions {
        require: setup.require,
        step_timeout: nanoseconds(setup.step_timeout),
        build: setup.build,
        config: config_hash,
        graph,
        run,
        addresses: listeners.addresses.iter().map(ToString::to_string).collect(),
        ..MasterOptions::new(members)
    };
    let identity = Identity { me: Slot(0), processes: config.processes, incarnation: 1, run };
    let node = Node::open(&mut listeners, setup.watch)?;
    let (heard, hears) = channel();
    let mut driver = Driver {
        master: Master::new(options),
        inputs: VecDeque::from([MasterInput::Begin]),
        sockets: BTreeMap::new(),
        slots: BTreeMap::new(),
        calls: Calls { over: Arc::default(), heard, threads: Vec::new() },
        limit: nanoseconds(setup.step_timeout),
        step: None,
        unmeshed: BTreeSet::new(),
    };
    let mut start =
        Start { process: Some(process), node, listeners, wanted, seed, identity, terms };
    let done = driver.run(&mut start, setup.listener.as_ref(), &hears)?;
    driver.close();
    let missing = done?;
    let mut node = start.node;
    node.start(missing);
    Ok(node)
}

/// The other processes: hosts that are called, or those that call.
fn members(config: &Config, listens: bool) -> Result<Members, StartError> {
    let others = config.processes - 1;
    match (others, config.hosts.len()) {
        (0, _) => Ok(Members::Static(Vec::new())),
        (_, named) if !listens && named == others as usize => {
            Ok(Members::Static(config.hosts.clone()))
        }
        (_, 0) if listens => Ok(Members::Arrival(others)),
        (_, named) => Err(StartError::Members(format!(
            "{} processes need {others} hosts besides the master: the configuration names {named}; name \
             them all in `hosts`, or none and let them call",
            config.processes
        ))),
    }
}

/// The interface that the configuration's first host is reached by.
fn interface(setup: &MasterSetup<'_>, members: &Members) -> Result<IpAddr, StartError> {
    if let Some(interface) = setup.interface {
        return Ok(interface);
    }
    match (&setup.listener, members) {
        (Some(listener), _) => Ok(listener.address.ip()),
        (None, Members::Static(hosts)) if !hosts.is_empty() => {
            // A host that cannot be found fails at step 1, with the others.
            let found = hosts.iter().find_map(|host| resolve(host, PROCESS_PORT).ok());
            let towards = found.map(interface_towards).transpose()?;
            Ok(towards.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)))
        }
        _ => Ok(Ipv4Addr::LOCALHOST.into()),
    }
}

/// Threads that read connections.
struct Calls {
    over: Arc<AtomicBool>,
    heard: Sender<BootstrapEvent>,
    threads: Vec<JoinHandle<()>>,
}

impl Calls {
    /// Calls a host again and again until it answers or the time is over.
    fn dial(&mut self, peer: u32, host: String, limit: u64) {
        let (over, heard) = (Arc::clone(&self.over), self.heard.clone());
        self.threads.push(std::thread::spawn(move || {
            // What went wrong is said before the step is over.
            let deadline = clock::machine_ns() + limit - limit / 8;
            let reached = loop {
                let left = deadline.saturating_sub(clock::machine_ns());
                let unwanted = || over.load(Ordering::Relaxed);
                let reached = resolve(&host, PROCESS_PORT)
                    .map_err(|error| error.to_string())
                    .and_then(|at| {
                        connect(&at.into(), left.min(3 * SECOND), unwanted)
                            .map_err(|error| error.to_string())
                    });
                // It may be about to start.
                let again = clock::machine_ns() + SECOND / 5 < deadline;
                if reached.is_ok() || unwanted() || !again {
                    break reached;
                }
                std::thread::sleep(Duration::from_millis(100));
            };
            match reached {
                Ok(socket) => listen_to(peer, socket, &over, &heard),
                Err(why) => heard.send(BootstrapEvent::Gone(peer, why)).unwrap_or_default(),
            }
        }));
    }

    fn accept(&mut self, peer: u32, socket: Socket) {
        let (over, heard) = (Arc::clone(&self.over), self.heard.clone());
        self.threads.push(std::thread::spawn(move || listen_to(peer, socket, &over, &heard)));
    }
}

/// Parts of a process that is being started.
struct Start {
    process: Option<Process>,
    node: Node,
    listeners: Listeners,
    wanted: Vec<kinds::Wanted>,
    seed: itg_core::seed::RunSeed,
    identity: Identity,
    terms: Terms,
}

struct Driver {
    master: Master,
    inputs: VecDeque<MasterInput>,
    sockets: BTreeMap<u32, Arc<Socket>>,
    /// Peers by slot.
    slots: BTreeMap<u32, u32>,
    calls: Calls,
    limit: u64,
    step: Option<Mesh>,
    unmeshed: BTreeSet<u32>,
}

type Done = Result<Vec<u32>, StartError>;

impl Driver {
    /// Goes on until all processes have started, or the run fails.
    fn run(
        &mut self,
        start: &mut Start,
        listener: Option<&Listener>,
        hears: &Receiver<BootstrapEvent>,
    ) -> Result<Done, StartError> {
        let most = start.identity.processes - 1 + MORE_CALLERS;
        let mut callers = 0;
        loop {
            if let Some(done) = self.handle(start)? {
                return Ok(done);
            }
            if let Some(listener) = listener
                && callers < most
                && let Ok((socket, _)) = listener.socket.accept()
            {
                callers += 1;
                self.calls.accept(callers, socket);
                continue;
            }
            self.news();
            match hears.recv_timeout(pause(self.master.deadline())) {
                Ok(BootstrapEvent::Came(peer, socket)) => {
                    self.sockets.insert(peer, socket);
                }
                Ok(BootstrapEvent::Said(peer, boot)) => {
                    self.inputs.push_back(MasterInput::Message(peer, boot));
                }
                Ok(BootstrapEvent::Gone(peer, why)) => {
                    self.inputs.push_back(MasterInput::Gone(peer, why));
                }
                Err(_) => self.inputs.push_back(MasterInput::Tick),
            }
        }
    }

    /// Ends the connections. Slaves hear the last word before they see the end.
    fn close(self) {
        for socket in self.sockets.values() {
            socket.shutdown(std::net::Shutdown::Write).unwrap_or_default();
        }
        let until = clock::machine_ns() + SECOND / 2;
        while self.calls.threads.iter().any(|thread| !thread.is_finished())
            && clock::machine_ns() < until
        {
            std::thread::sleep(Duration::from_millis(2));
        }
        self.calls.over.store(true, Ordering::Relaxed);
        self.sockets.values().for_each(|socket| hang_up(socket));
        for thread in self.calls.threads {
            thread.join().unwrap_or_default();
        }
    }

    /// Does what the master wants; the missing slots, or why not, when it is over.
    fn handle(&mut self, start: &mut Start) -> Result<Option<Done>, StartError> {
        let mut actions = Vec::new();
        while let Some(input) = self.inputs.pop_front() {
            self.master.handle(now(), input, &mut actions);
            for action in actions.drain(..) {
                match action {
                    MasterAction::Dial(peer, host) => self.calls.dial(peer, host, self.limit),
                    MasterAction::Send(peer, boot) => {
                        if let itg_process::bootstrap::Boot::Config { slot, .. } = &boot {
                            self.slots.insert(*slot, peer);
                        }
                        if let Some(socket) = self.sockets.get(&peer)
                            && let Err(error) = say(socket, &boot)
                        {
                            self.inputs.push_back(MasterInput::Gone(peer, error.to_string()));
                        }
                    }
                    MasterAction::Close(peer) => {
                        if let Some(socket) = self.sockets.get(&peer) {
                            socket.shutdown(std::net::Shutdown::Write).unwrap_or_default();
                        }
                    }
                    MasterAction::Connect(others) => {
                        let mut map = vec![Vec::new(); start.identity.processes as usize];
                        for (slot, texts) in others {
                            map[slot as usize] = addresses(&[Vec::new(), texts], None).remove(1);
                            self.unmeshed.insert(slot);
                        }
                        let agreed = Agreed {
                            identity: start.identity,
                            wanted: &start.wanted,
                            addresses: &map,
                            seed: start.seed,
                            terms: start.terms.clone(),
                        };
                        let mesh = Mesh::new(&start.node.shared, agreed, &mut start.listeners)?;
                        self.unmeshed.iter().for_each(|slot| mesh.connect(*slot));
                        self.step = Some(mesh);
                        self.news();
                    }
                    MasterAction::Init => {
                        start.node.admit(start.process.take());
                        self.inputs.push_back(MasterInput::OwnInited);
                    }
                    MasterAction::Start { missing } => return Ok(Some(Ok(missing))),
                    MasterAction::Failed(diagnosis) => return Ok(Some(Err(diagnosis.into()))),
                }
            }
        }
        Ok(None)
    }

    /// Handles changes of the connections to the others.
    fn news(&mut self) {
        let Some(mesh) = &mut self.step else { return };
        for change in mesh.changes() {
            match change {
                Change::Meshed { slot, .. } => {
                    self.unmeshed.remove(&slot);
                }
                Change::Unreachable { slot, why } => {
                    let peer = self.slots.get(&slot).copied().unwrap_or(slot);
                    let why = format!("the master cannot connect to it: {why}");
                    self.inputs.push_back(MasterInput::Gone(peer, why));
                }
                // No process has had an incarnation before the first one.
                Change::Stale { .. } => {}
            }
        }
        if self.unmeshed.is_empty() {
            self.inputs.push_back(MasterInput::OwnReady);
            self.step = None;
        }
    }
}
