//! A process that runs again returns to its run: it asks the processes that run for its place, opens doors,
//! connects to all of them, and starts as a new incarnation of its slot.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::time::Duration;

use itg_process::bootstrap::{
    Application, Boot, Diagnosis, HostFacts, MOST_BYTES, PROTOCOL, STEP_TIMEOUT, Step, Terms,
    Ticket,
};
use itg_process::{Registry, SECOND, Slot};

use crate::clock;
use crate::processes::doors::{Address, Doors, own_address};
use crate::processes::intake::{Intake, prepare, say};
use crate::processes::kinds::{self, Kind};
use crate::processes::mesh::{Change, Mesh, addresses};
use crate::processes::shared::{Identity, Watch};
use crate::processes::slave::stack;
use crate::processes::stream::connect;
use crate::processes::{Node, StartError};

/// How often it counts its lives anew when another process knows of more.
const MOST_ATTEMPTS: u32 = 8;
/// Nanoseconds until one of the others has to answer.
const ANSWER: u64 = 3 * SECOND;

/// What a process needs to return.
pub struct ReturnSetup<'a> {
    /// The layers that this program knows.
    pub registry: &'a Registry,
    /// Who it was (see [`Node::ticket`]).
    pub ticket: Ticket,
    /// How long it tries to find somebody who runs.
    pub patience: Duration,
    /// The interface on which other processes reach this one; by default the one by which it reaches them.
    pub interface: Option<IpAddr>,
    /// Port on which other processes reach this one, TCP and UDP; 0 is any.
    pub port: u16,
    /// Nanoseconds to connect to the others.
    pub step_timeout: u64,
    /// Hash of the program: all must have the same.
    pub build: u64,
    /// Who hears of events and of the message trace.
    pub watch: Option<Watch>,
}

impl<'a> ReturnSetup<'a> {
    /// Everything at its default but who it was.
    #[must_use]
    pub const fn new(registry: &'a Registry, ticket: Ticket) -> Self {
        Self {
            registry,
            ticket,
            patience: Duration::from_secs(60),
            interface: None,
            port: 0,
            step_timeout: STEP_TIMEOUT,
            build: 0,
            watch: None,
        }
    }
}

impl std::fmt::Debug for ReturnSetup<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReturnSetup").field("ticket", &self.ticket).finish_non_exhaustive()
    }
}

/// Returns to a run under a new incarnation. [`Node::missing`] of the result are those who were not
/// reached: they connect when they hear of it, or are gone themselves.
///
/// # Errors
/// Nobody runs, or those who do refuse (another program, another run, the run is over), by name.
pub fn come_back(mut setup: ReturnSetup<'_>) -> Result<Node, StartError> {
    let patience = u64::try_from(setup.patience.as_nanos()).unwrap_or(u64::MAX);
    let deadline = clock::machine_ns().saturating_add(patience);
    let mut least = setup.ticket.incarnation + 1;
    for _ in 0..MOST_ATTEMPTS {
        let place = loop {
            match ask_all(&setup.ticket, setup.build) {
                Ok(place) => break place,
                // Somebody answers, and refuses.
                Err((true, diagnosis)) => return Err(diagnosis.into()),
                Err((false, diagnosis)) if clock::machine_ns() >= deadline => {
                    return Err(diagnosis.into());
                }
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        };
        least = least.max(place.incarnation);
        match attempt(&mut setup, &place, least)? {
            Attempt::Done(node) => return Ok(node),
            Attempt::Stale(newer) => least = newer + 1,
        }
    }
    let reason = format!("others know of incarnation {}: two processes have one ticket", least - 1);
    Err(refused(&setup.ticket, reason).into())
}

fn refused(ticket: &Ticket, reason: String) -> Diagnosis {
    Diagnosis { host: format!("slot {}", ticket.slot), step: Step::Hello, reason }
}

/// What those who run have answered.
struct Place {
    incarnation: u64,
    processes: u32,
    /// Where everybody is, as the one who answered first has it.
    addresses: Vec<Vec<Address>>,
    config: u64,
    graph: Vec<u8>,
    /// By which it reaches the others.
    interface: IpAddr,
}

/// Asks all processes of the ticket at once. What was refused or why nobody answers, and whether it was
/// a refusal.
fn ask_all(ticket: &Ticket, build: u64) -> Result<Place, (bool, Diagnosis)> {
    let (answer, answers) = channel();
    let (mut best, mut why): (Option<Place>, Option<(bool, Diagnosis)>) = (None, None);
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
fn ask(ticket: &Ticket, build: u64, slot: u32, its: &[String]) -> Result<Place, (bool, Diagnosis)> {
    let host = format!("slot {slot}");
    let failed =
        |why: String| (false, Diagnosis { host: host.clone(), step: Step::Hello, reason: why });
    let mut last = failed("it has no address of a stream".to_owned());
    let doors = its.iter().filter_map(|text| Address::parse(text, None));
    for door in doors.filter(|door| door.kind.is_stream()) {
        match ask_at(ticket, build, &door) {
            Ok(Ok(place)) => return Ok(place),
            Ok(Err(diagnosis)) => return Err((true, diagnosis)),
            Err(why) => last = failed(format!("{door}: {why}")),
        }
    }
    Err(last)
}

fn ask_at(ticket: &Ticket, build: u64, door: &Address) -> Result<Result<Place, Diagnosis>, String> {
    let words = |error: std::io::Error| error.to_string();
    let address = door.socket_address().map_err(words)?;
    let deadline = clock::machine_ns() + ANSWER;
    let socket = connect(&address, ANSWER, || false).map_err(words)?;
    prepare(&socket, door.kind == Kind::Tcp).map_err(words)?;
    let interface = match door.kind {
        Kind::Tcp => own_address(&socket).map_err(words)?.ip(),
        Kind::Unix | Kind::Udp => Ipv4Addr::LOCALHOST.into(),
    };
    let facts = HostFacts { host: crate::host::name(), ..HostFacts::default() };
    let Ticket { run, slot, .. } = *ticket;
    say(&socket, &Boot::Return { protocol: PROTOCOL, build, schema: 0, run, slot, facts })
        .map_err(words)?;
    let mut intake = Intake::new(MOST_BYTES);
    let wanted = AtomicBool::new(false);
    let (processes, incarnation, texts, config) = match intake.hear(&socket, deadline, &wanted)? {
        Boot::Config { processes, incarnation, addresses, config, slot: mine, run: its }
            if (mine, its) == (slot, run) =>
        {
            (processes, incarnation, addresses, config)
        }
        Boot::Abort(diagnosis) => return Ok(Err(diagnosis)),
        other => return Err(format!("it answers {other:?}").chars().take(200).collect()),
    };
    let Boot::Graph(graph) = intake.hear(&socket, deadline, &wanted)? else {
        return Err("it does not say what runs".to_owned());
    };
    // Whoever listens everywhere is reached as it was reached now.
    let host = door.ip().map(|at| at.ip());
    let addresses =
        texts.iter().flat_map(|its| addresses(std::slice::from_ref(its), host)).collect();
    Ok(Ok(Place { incarnation, processes, addresses, config, graph, interface }))
}

enum Attempt {
    Done(Node),
    /// Another process knows of this incarnation.
    Stale(u64),
}

/// Opens doors, connects to the others as this incarnation and starts.
fn attempt(
    setup: &mut ReturnSetup<'_>,
    place: &Place,
    incarnation: u64,
) -> Result<Attempt, StartError> {
    let Ticket { run, slot, .. } = setup.ticket;
    let application = Application::decode(&place.graph)?;
    let config = application.config()?;
    let (wanted, networks) = kinds::read(&config)?;
    let identity = Identity { me: Slot(slot), processes: place.processes, incarnation, run };
    // What is wrong with the stack is said before anybody is greeted.
    let process = stack(setup.registry, &application, &config, &networks, identity)?;
    let kinds = [Kind::Tcp, Kind::Unix, Kind::Udp];
    let interface = setup.interface.unwrap_or(place.interface);
    let mut doors = Doors::open(interface, setup.port, &kinds)?;
    let mut node = Node::open(&mut doors, None)?;
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
    let mut mesh = Mesh::new(&shared, identity, &wanted, map, &mut doors, seed, terms)?;
    let others = (0_u32..).zip(map).filter(|(other, its)| *other != slot && !its.is_empty());
    let mut awaited: Vec<u32> = others.map(|(other, _)| other).collect();
    awaited.iter().for_each(|other| mesh.connect(*other));
    let mut missing = Vec::new();
    let deadline = clock::machine_ns().saturating_add(setup.step_timeout);
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
