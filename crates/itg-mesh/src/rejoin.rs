//! A process that runs again returns to its run: it asks the processes that run for its place,
//! opens its listeners, connects to all of them, and starts as a new incarnation of its slot.
//!
//! An incarnation is used once: its ticket is written before another process hears of it, so that a
//! process which is killed at any moment counts on.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::time::Duration;

use itg_core::units::nanoseconds;
use itg_process::bootstrap::{
    Application, Boot, Diagnosis, HostFacts, MOST_BYTES, PROTOCOL, STEP_TIMEOUT, Step, Terms,
    Ticket,
};
use itg_process::{Registry, SECOND, Slot};
use itg_socket::clock;

use crate::frame_reader::{FrameReader, prepare, say};
use crate::kinds::{self, Kind};
use crate::listeners::{Address, Listeners, own_address};
use crate::mesh::{Change, Mesh, addresses};
use crate::shared::{Agreed, Identity, Watch};
use crate::slave::stack;
use crate::stream::connect;
use crate::{Node, StartError};

/// Attempts to return at most: a further one follows when another process knows of a later
/// incarnation.
const MOST_ATTEMPTS: u32 = 8;
/// Nanoseconds until one of the others has to answer.
const ANSWER: u64 = 3 * SECOND;

/// Writes a ticket where it lasts; the process is not started when that fails.
pub type Persist<'a> = Box<dyn FnMut(&Ticket) -> std::io::Result<()> + 'a>;

/// Settings of a process that returns.
pub struct ReturnSetup<'a> {
    /// The layers that this program knows.
    pub registry: &'a Registry,
    /// Its ticket (see [`Node::ticket`]).
    pub ticket: Ticket,
    /// Time in which it tries to find a process that runs.
    pub patience: Duration,
    /// The interface on which other processes reach this one; by default the one by which it reaches them.
    pub interface: Option<IpAddr>,
    /// Port on which other processes reach this one, TCP and UDP; 0 is any.
    pub port: u16,
    /// Longest time to connect to the others.
    pub step_timeout: Duration,
    /// Hash of the program: all must have the same.
    pub build: u64,
    /// Callback for events and the message trace.
    pub watch: Option<Watch>,
    /// Keeps the ticket of an incarnation before it is used. Without it the caller has to see to it that no
    /// ticket is used twice.
    pub persist: Option<Persist<'a>>,
}

impl<'a> ReturnSetup<'a> {
    /// Everything at its default but its ticket.
    #[must_use]
    pub const fn new(registry: &'a Registry, ticket: Ticket) -> Self {
        Self {
            registry,
            ticket,
            patience: Duration::from_secs(60),
            interface: None,
            port: 0,
            step_timeout: Duration::from_nanos(STEP_TIMEOUT),
            build: 0,
            watch: None,
            persist: None,
        }
    }

    /// Takes this incarnation: from here on no other start has it.
    fn take(&mut self, incarnation: u64) -> Result<(), StartError> {
        self.ticket.incarnation = incarnation;
        let Some(persist) = &mut self.persist else { return Ok(()) };
        persist(&self.ticket).map_err(StartError::Ticket)
    }
}

impl std::fmt::Debug for ReturnSetup<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReturnSetup").field("ticket", &self.ticket).finish_non_exhaustive()
    }
}

/// Returns to a run under a new incarnation. [`Node::missing`] of the result are those that were
/// not reached: they connect when they hear of it, or are gone themselves.
///
/// # Errors
/// No process runs, or those that do refuse (another program, another run, the run is over), by
/// name; the ticket cannot be written.
pub fn come_back(mut setup: ReturnSetup<'_>) -> Result<Node, StartError> {
    let patience = u64::try_from(setup.patience.as_nanos()).unwrap_or(u64::MAX);
    let deadline = clock::machine_ns().saturating_add(patience);
    setup.take(setup.ticket.incarnation.saturating_add(1))?;
    for _ in 0..MOST_ATTEMPTS {
        let place = loop {
            match ask_all(&setup.ticket, setup.build) {
                Ok(place) => break place,
                // A process answers, and refuses.
                Err((true, diagnosis)) => return Err(diagnosis.into()),
                Err((false, diagnosis)) if clock::machine_ns() >= deadline => {
                    return Err(diagnosis.into());
                }
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        };
        if place.incarnation > setup.ticket.incarnation {
            setup.take(place.incarnation)?;
        }
        let incarnation = setup.ticket.incarnation;
        match attempt(&mut setup, &place, incarnation)? {
            Attempt::Done(node) => return Ok(node),
            Attempt::Stale(newer) => setup.take(newer.saturating_add(1))?,
        }
    }
    let newest = setup.ticket.incarnation - 1;
    let reason = format!("others know of incarnation {newest}: two processes have one ticket");
    Err(refused(&setup.ticket, reason).into())
}

fn refused(ticket: &Ticket, reason: String) -> Diagnosis {
    Diagnosis { host: format!("slot {}", ticket.slot), step: Step::Hello, reason }
}

/// Answer of the processes that run.
struct RunState {
    incarnation: u64,
    processes: u32,
    /// Addresses of all processes by slot, as the first one that answered has them.
    addresses: Vec<Vec<Address>>,
    config: u64,
    graph: Vec<u8>,
    /// By which it reaches the others.
    interface: IpAddr,
}

/// Asks all processes of the ticket at once. Reason of the refusal or of the silence, and true if
/// it was a refusal.
fn ask_all(ticket: &Ticket, build: u64) -> Result<RunState, (bool, Diagnosis)> {
    let (answer, answers) = channel();
    let (mut best, mut why): (Option<RunState>, Option<(bool, Diagnosis)>) = (None, None);
    std::thread::scope(|scope| {
        for (slot, its) in (0_u32..).zip(&ticket.addresses) {
            let answer = answer.clone();
            if slot != ticket.slot {
                scope.spawn(move || answer.send(ask(ticket, build, slot, its)).unwrap_or_default());
            }
        }
        drop(answer);
        for answered in answers {
            match answered {
                Ok(place) => {
                    let highest = best.as_ref().map_or(0, |best| best.incarnation);
                    let incarnation = place.incarnation.max(highest);
                    let best = best.get_or_insert(place);
                    best.incarnation = incarnation;
                }
                Err(new) if why.as_ref().is_none_or(|old| new.0 && !old.0) => why = Some(new),
                Err(_) => {}
            }
        }
    });
    let nobody = || (true, refused(ticket, "its ticket names no other process".to_owned()));
    best.ok_or_else(|| why.unwrap_or_else(nobody))
}

/// Asks one process, at the first of its addresses that answers.
fn ask(
    ticket: &Ticket,
    build: u64,
    slot: u32,
    its: &[String],
) -> Result<RunState, (bool, Diagnosis)> {
    let host = format!("slot {slot}");
    let failed =
        |why: String| (false, Diagnosis { host: host.clone(), step: Step::Hello, reason: why });
    let mut last = failed("it has no address of a stream".to_owned());
    let listeners = its.iter().filter_map(|text| Address::parse(text, None));
    for listener in listeners.filter(|listener| listener.kind.is_stream()) {
        match ask_at(ticket, build, &listener) {
            Ok(Ok(place)) => return Ok(place),
            Ok(Err(diagnosis)) => return Err((true, diagnosis)),
            Err(why) => last = failed(format!("{listener}: {why}")),
        }
    }
    Err(last)
}

fn ask_at(
    ticket: &Ticket,
    build: u64,
    listener: &Address,
) -> Result<Result<RunState, Diagnosis>, String> {
    let words = |error: std::io::Error| error.to_string();
    let address = listener.socket_address().map_err(words)?;
    let deadline = clock::machine_ns() + ANSWER;
    let socket = connect(&address, ANSWER, || false).map_err(words)?;
    prepare(&socket, listener.kind == Kind::Tcp).map_err(words)?;
    let interface = match listener.kind {
        Kind::Tcp => own_address(&socket).map_err(words)?.ip(),
        Kind::Unix | Kind::Udp => Ipv4Addr::LOCALHOST.into(),
    };
    let facts = HostFacts { host: itg_socket::host::name(), ..HostFacts::default() };
    let Ticket { run, slot, .. } = *ticket;
    say(&socket, &Boot::Return { protocol: PROTOCOL, build, schema: 0, run, slot, facts })
        .map_err(words)?;
    let mut reader = FrameReader::new(MOST_BYTES);
    let wanted = AtomicBool::new(false);
    let (processes, incarnation, texts, config) = match reader.hear(&socket, deadline, &wanted)? {
        Boot::Config { processes, incarnation, addresses, config, slot: mine, run: its }
            if (mine, its) == (slot, run) =>
        {
            (processes, incarnation, addresses, config)
        }
        Boot::Abort(diagnosis) => return Ok(Err(diagnosis)),
        other => return Err(format!("it answers {other:?}").chars().take(200).collect()),
    };
    let Boot::Graph(graph) = reader.hear(&socket, deadline, &wanted)? else {
        return Err("it does not say what runs".to_owned());
    };
    // A process that listens at all addresses is reached as it was reached now.
    let host = listener.ip().map(|at| at.ip());
    let addresses =
        texts.iter().flat_map(|its| addresses(std::slice::from_ref(its), host)).collect();
    Ok(Ok(RunState { incarnation, processes, addresses, config, graph, interface }))
}

enum Attempt {
    Done(Node),
    /// Another process knows of this incarnation.
    Stale(u64),
}

/// Opens the listeners, connects to the others as this incarnation and starts.
fn attempt(
    setup: &mut ReturnSetup<'_>,
    place: &RunState,
    incarnation: u64,
) -> Result<Attempt, StartError> {
    let Ticket { run, slot, .. } = setup.ticket;
    let application = Application::decode(&place.graph)?;
    let config = application.config()?;
    let (wanted, networks) = kinds::read(&config)?;
    let identity = Identity { me: Slot(slot), processes: place.processes, incarnation, run };
    // Faults of the stack are told before any process is greeted.
    let process = stack(setup.registry, &application, &config, &networks, identity)?;
    let kinds = [Kind::Tcp, Kind::Unix, Kind::Udp];
    let interface = setup.interface.unwrap_or(place.interface);
    let mut listeners = Listeners::open(interface, setup.port, &kinds)?;
    let mut node = Node::open(&mut listeners, None)?;
    let terms = Terms {
        slot,
        processes: place.processes,
        run,
        build: setup.build,
        schema: 0,
        config: place.config,
        graph: place.graph.clone(),
    };
    let shared = Arc::clone(&node.shared);
    let map = &place.addresses;
    let seed = application.seed();
    let agreed = Agreed { identity, wanted: &wanted, addresses: map, seed, terms };
    let mut mesh = Mesh::new(&shared, agreed, &mut listeners)?;
    let others = (0_u32..).zip(map).filter(|(other, its)| *other != slot && !its.is_empty());
    let mut awaited: Vec<u32> = others.map(|(other, _)| other).collect();
    awaited.iter().for_each(|other| mesh.connect(*other));
    let mut missing = Vec::new();
    let deadline = clock::machine_ns().saturating_add(nanoseconds(setup.step_timeout));
    while !awaited.is_empty() && clock::machine_ns() < deadline {
        for change in mesh.changes() {
            match change {
                Change::Meshed { slot, .. } => {
                    awaited.retain(|other| *other != slot);
                    missing.retain(|other| *other != slot);
                }
                Change::Unreachable { slot, why } if awaited.contains(&slot) => {
                    tracing::debug!(slot, why, "not reached");
                    awaited.retain(|other| *other != slot);
                    missing.push(slot);
                }
                Change::Unreachable { .. } => {}
                Change::Stale { incarnation } => return Ok(Attempt::Stale(incarnation)),
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    missing.extend(awaited);
    missing.sort_unstable();
    shared.watch(setup.watch.take());
    node.admit(Some(process));
    node.start(missing);
    Ok(Attempt::Done(node))
}
