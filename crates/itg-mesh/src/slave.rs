//! A slave's side of the bootstrap: every process but 0.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use itg_core::units::nanoseconds;
use itg_process::bootstrap::{
    Application, Boot, Diagnosis, HostFacts, STEP_TIMEOUT, Slave, SlaveAction, SlaveInput,
    SlaveOptions, Step, Terms,
};
use itg_process::{
    Config, ConfigError, Network, Process, ProcessContext, Registry, SECOND, Slot, everybody,
};
use itg_socket::clock;
use itg_socket::socket::resolve;
use socket2::Socket;

use crate::control::{BootstrapEvent, PROCESS_PORT, listen_to, pause};
use crate::frame_reader::say;
use crate::kinds::{self, Kind};
use crate::listeners::{Listeners, own_address};
use crate::mesh::{Change, Mesh, addresses};
use crate::peer::hang_up;
use crate::shared::{Agreed, Identity, Watch, now};
use crate::stream::connect;
use crate::{Listener, Node, StartError};

/// Way in which a slave meets its master.
#[derive(Debug)]
pub enum Meet {
    /// It calls this host.
    Call(String),
    /// It waits for a call.
    Wait(Listener),
}

/// Settings of a slave.
pub struct SlaveSetup<'a> {
    /// The layers that this program knows.
    pub registry: &'a Registry,
    /// Way in which it meets its master.
    pub meet: Meet,
    /// Time in which it tries to meet its master.
    pub patience: Duration,
    /// The interface on which other processes reach this one; by default the one that the master is
    /// reached by.
    pub interface: Option<IpAddr>,
    /// Port on which other processes reach this one, TCP and UDP; 0 is any.
    pub port: u16,
    /// Name of this host, and its failure domain.
    pub facts: HostFacts,
    /// Longest time of each step.
    pub step_timeout: Duration,
    /// Hash of the program: all must have the same.
    pub build: u64,
    /// Callback for events and the message trace.
    pub watch: Option<Watch>,
    /// Callback for each step that is done.
    pub on_step: Option<Box<dyn FnMut(Step) + Send>>,
}

impl<'a> SlaveSetup<'a> {
    /// Everything at its default but how it meets its master.
    #[must_use]
    pub fn new(registry: &'a Registry, meet: Meet) -> Self {
        Self {
            registry,
            meet,
            patience: Duration::from_secs(60),
            interface: None,
            port: 0,
            facts: HostFacts { host: itg_socket::host::name(), ..HostFacts::default() },
            step_timeout: Duration::from_nanos(STEP_TIMEOUT),
            build: 0,
            watch: None,
            on_step: None,
        }
    }
}

impl std::fmt::Debug for SlaveSetup<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SlaveSetup").field("meet", &self.meet).finish_non_exhaustive()
    }
}

/// Meets the master, gets a slot and the configuration, connects to the others and starts with them.
///
/// # Errors
/// No master is met; a configuration that cannot be; a host that failed, by name and step.
pub fn start_slave(mut setup: SlaveSetup<'_>) -> Result<Node, StartError> {
    let patience = u64::try_from(setup.patience.as_nanos()).unwrap_or(u64::MAX);
    let deadline = clock::machine_ns().saturating_add(patience);
    loop {
        let socket = match &setup.meet {
            Meet::Call(host) => call(host, deadline)?,
            Meet::Wait(listener) => wait(listener, deadline)?,
        };
        let mut met = false;
        let done = attempt(&mut setup, socket, &mut met);
        match done {
            // The caller was no master.
            Err(error) if !met && matches!(setup.meet, Meet::Wait(_)) => {
                tracing::debug!(%error, "a call of nobody's master");
            }
            done => return done,
        }
    }
}

fn diagnosis(host: &str, reason: String) -> StartError {
    Diagnosis { host: host.to_owned(), step: Step::Hello, reason }.into()
}

/// Calls the master again and again until it answers or the time is over.
fn call(host: &str, deadline: u64) -> Result<Socket, StartError> {
    let at = resolve(host, PROCESS_PORT)?;
    loop {
        let left = deadline.saturating_sub(clock::machine_ns());
        match connect(&at.into(), left.min(3 * SECOND), || false) {
            Ok(socket) => return Ok(socket),
            Err(why) if left < SECOND / 5 => {
                return Err(diagnosis(&format!("master {host}"), why.to_string()));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn wait(listener: &Listener, deadline: u64) -> Result<Socket, StartError> {
    loop {
        match listener.socket.accept() {
            Ok((socket, _)) => return Ok(socket),
            Err(_) if clock::machine_ns() < deadline => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(_) => {
                let at = listener.address;
                return Err(diagnosis("master", format!("it did not call {at} in time")));
            }
        }
    }
}

/// The bootstrap on one connection; `met` when a master speaks on it.
fn attempt(setup: &mut SlaveSetup<'_>, socket: Socket, met: &mut bool) -> Result<Node, StartError> {
    let near = own_address(&socket)?.ip();
    let far = socket.peer_addr()?.as_socket().map(|at| at.ip());
    let listeners = Listeners::open(
        setup.interface.unwrap_or(near),
        setup.port,
        &[Kind::Tcp, Kind::Unix, Kind::Udp],
    )?;
    let facts = HostFacts {
        addresses: listeners.addresses.iter().map(ToString::to_string).collect(),
        cores: u32::try_from(std::thread::available_parallelism().map_or(1, usize::from))
            .unwrap_or(1),
        ..setup.facts.clone()
    };
    let options = SlaveOptions {
        step_timeout: nanoseconds(setup.step_timeout),
        build: setup.build,
        ..SlaveOptions::new(facts)
    };
    let over = Arc::new(AtomicBool::new(false));
    let (heard, hears) = channel();
    let unwanted = Arc::clone(&over);
    let reader = std::thread::spawn(move || listen_to(0, socket, &unwanted, &heard));
    let mut driver = Driver {
        slave: Slave::new(options),
        inputs: VecDeque::new(),
        control: None,
        registry: setup.registry,
        listeners: Some(listeners),
        node: None,
        mesh: None,
        map: Vec::new(),
        identity: None,
        build: setup.build,
        config: 0,
        far,
        on_step: setup.on_step.as_mut(),
    };
    let done = loop {
        match driver.handle() {
            Ok(false) => {}
            Ok(true) => break Ok(()),
            Err(error) => break Err(error),
        }
        driver.news();
        driver.hear(&hears, &mut setup.watch, met)?;
    };
    over.store(true, Ordering::Relaxed);
    if let Some(control) = &driver.control {
        if done.is_err() {
            // The master hears why before it sees the end.
            control.shutdown(std::net::Shutdown::Write).unwrap_or_default();
        } else {
            hang_up(control);
        }
    }
    reader.join().unwrap_or_default();
    done?;
    let mut node = driver.node.ok_or_else(|| std::io::Error::other("started without a node"))?;
    node.start(Vec::new());
    if let Some(on_step) = &mut setup.on_step {
        on_step(Step::Start);
    }
    Ok(node)
}

type OnStep = Box<dyn FnMut(Step) + Send>;

struct Driver<'a> {
    slave: Slave,
    inputs: VecDeque<SlaveInput>,
    control: Option<Arc<Socket>>,
    registry: &'a Registry,
    listeners: Option<Listeners>,
    node: Option<Node>,
    mesh: Option<Mesh>,
    /// Addresses of all processes, in the words of the bootstrap.
    map: Vec<Vec<String>>,
    identity: Option<Identity>,
    build: u64,
    /// Hash of the configuration.
    config: u64,
    /// The address that the master has for us.
    far: Option<IpAddr>,
    on_step: Option<&'a mut OnStep>,
}

impl Driver<'_> {
    /// Waits for the next event until the slave is due. The networks open when a master speaks.
    fn hear(
        &mut self,
        hears: &Receiver<BootstrapEvent>,
        watch: &mut Option<Watch>,
        met: &mut bool,
    ) -> Result<(), StartError> {
        let input = match hears.recv_timeout(pause(self.slave.deadline())) {
            Err(_) => SlaveInput::Tick,
            Ok(BootstrapEvent::Came(_, socket)) => {
                self.control = Some(socket);
                SlaveInput::Begin
            }
            Ok(BootstrapEvent::Said(_, boot)) => {
                *met = true;
                if self.node.is_none() {
                    let listeners = self.listeners.as_mut();
                    let listeners = listeners.ok_or_else(|| std::io::Error::other("no doors"))?;
                    self.node = Some(Node::open(listeners, watch.take())?);
                }
                self.said(boot);
                return Ok(());
            }
            Ok(BootstrapEvent::Gone(_, why)) => SlaveInput::MasterGone(why),
        };
        self.inputs.push_back(input);
        Ok(())
    }

    fn reached(&mut self, step: Step) {
        if let Some(on_step) = &mut self.on_step {
            on_step(step);
        }
    }

    /// The master has said something: what the state machine does not keep is kept here.
    fn said(&mut self, boot: Boot) {
        match &boot {
            Boot::Config { slot, processes, incarnation, addresses, config, run } => {
                self.config = *config;
                self.map.clone_from(addresses);
                let (me, processes) = (Slot(*slot), *processes);
                let identity = Identity { me, processes, incarnation: *incarnation, run: *run };
                self.identity = Some(identity);
                self.reached(Step::Config);
            }
            Boot::Graph(graph) => {
                self.reached(Step::Graph);
                if let Err(error) = self.prepare(graph) {
                    self.inputs.push_back(SlaveInput::CannotInit(error.to_string()));
                    return;
                }
            }
            Boot::Init => self.reached(Step::Init),
            _ => {}
        }
        self.inputs.push_back(SlaveInput::Message(boot));
    }

    /// The networks are known: connections are greeted.
    fn prepare(&mut self, graph: &[u8]) -> Result<(), StartError> {
        let application = Application::decode(graph)?;
        let (wanted, _) = kinds::read(&application.config()?)?;
        if let (Some(identity), Some(node), Some(listeners)) =
            (self.identity, &self.node, &mut self.listeners)
        {
            let map = addresses(&self.map, self.far);
            let seed = application.seed();
            let terms = Terms {
                slot: identity.me.0,
                processes: identity.processes,
                run: identity.run,
                build: self.build,
                schema: 0,
                config: self.config,
                graph: graph.to_vec(),
            };
            let agreed = Agreed { identity, wanted: &wanted, addresses: &map, seed, terms };
            self.mesh = Some(Mesh::new(&node.shared, agreed, listeners)?);
        }
        Ok(())
    }

    /// Does what the slave wants; whether it has started.
    fn handle(&mut self) -> Result<bool, StartError> {
        let mut actions = Vec::new();
        while let Some(input) = self.inputs.pop_front() {
            self.slave.handle(now(), input, &mut actions);
            for action in actions.drain(..) {
                match action {
                    SlaveAction::Send(boot) => {
                        let step = match &boot {
                            Boot::Hello { .. } => Some(Step::Hello),
                            Boot::Ready => Some(Step::Ready),
                            Boot::Inited => Some(Step::Inited),
                            _ => None,
                        };
                        if let Some(control) = &self.control
                            && let Err(error) = say(control, &boot)
                        {
                            self.inputs.push_back(SlaveInput::MasterGone(error.to_string()));
                        } else if let Some(step) = step {
                            self.reached(step);
                        }
                    }
                    SlaveAction::Connect(others) => {
                        self.reached(Step::Mesh);
                        if let Some(mesh) = &self.mesh {
                            others.iter().for_each(|(slot, _)| mesh.connect(*slot));
                        }
                    }
                    SlaveAction::Init { graph, .. } => {
                        let input = match self.build(&graph) {
                            Ok(()) => SlaveInput::Inited,
                            Err(error) => SlaveInput::CannotInit(error.to_string()),
                        };
                        self.inputs.push_back(input);
                    }
                    SlaveAction::Start => return Ok(true),
                    SlaveAction::Failed(diagnosis) => return Err(diagnosis.into()),
                }
            }
        }
        Ok(false)
    }

    fn build(&mut self, graph: &[u8]) -> Result<(), StartError> {
        let application = Application::decode(graph)?;
        let config = application.config()?;
        let (_, networks) = kinds::read(&config)?;
        if let (Some(identity), Some(node)) = (self.identity, &self.node) {
            node.admit(Some(stack(self.registry, &application, &config, &networks, identity)?));
        }
        Ok(())
    }

    /// Handles changes of the connections to the others.
    fn news(&mut self) {
        let Some(mesh) = &mut self.mesh else { return };
        self.inputs.extend(mesh.changes().into_iter().filter_map(|change| match change {
            Change::Meshed { slot, incarnation } => Some(SlaveInput::Meshed { slot, incarnation }),
            Change::Unreachable { slot, why } => Some(SlaveInput::Unreachable(slot, why)),
            // No process has had an incarnation before the first one.
            Change::Stale { .. } => None,
        }));
    }
}

/// The process of this identity.
pub(crate) fn stack(
    registry: &Registry,
    application: &Application,
    config: &Config,
    networks: &Arc<[Network]>,
    identity: Identity,
) -> Result<Process, ConfigError> {
    let everybody = everybody(config.processes);
    let place = ProcessContext {
        slot: identity.me,
        incarnation: identity.incarnation,
        seed: application.seed(),
        networks,
        everybody: &everybody,
        journals: None,
    };
    registry.process(config, &place)
}
