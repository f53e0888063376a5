//! The overlay: from one to all and from all to one, while members crash, come and come back.

#![allow(clippy::print_stdout, reason = "what was tried, and what it led to")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use crate::common::{self, Group, MILLI, Top, group};
use bytes::Bytes;
use itg_core::seed::RunSeed;
use itg_core::streams::{below, fnv1a};
use itg_group::{Id, cast, detector, membership};
use itg_members::overlay::{self, OverlayDelivery, OverlayEvent, OverlayRequest};
use itg_process::{Ctx, Layer, Level, Message, Registry, SECOND, Slot, layer_events};
use itg_sim::{Checker, Fault, Kind, LinkFaults, Observation, ObservedEvent, Swarm};

/// Types of offers and chunks on the wire.
const OFFER: u32 = 1340;
const CHUNK: u32 = 1342;
const NET: &str = "kind = \"fixed\"\ndelay = \"1ms\"";

layer_events! {
    /// Events of users of the overlay.
    enum UserEvent {
        /// Bytes that a member has spread.
        Got { origin: u64, seq: u64, digest: u64 } = "got",
        /// Bytes of this process that all members have.
        Everywhere { origin: u64, seq: u64 } = "everywhere",
        /// Contributions so far, members, and the merged value.
        Gathered { count: u32, of: u32, sum: u64 } = "gathered",
        /// Request refused for lack of room.
        Refused = "refused",
    }
}

/// Says what it gets.
struct User;

impl Layer for User {
    fn deliver(&mut self, message: Message, cx: &mut Ctx<'_>) {
        match OverlayDelivery::from_message(&message) {
            Some(OverlayDelivery::Spread { id, bytes }) => {
                let (origin, seq, digest) = (cast::code(id.origin), id.seq, fnv1a(&bytes));
                cx.log(Level::Info, UserEvent::Got { origin, seq, digest });
            }
            Some(OverlayDelivery::Everywhere(id)) => {
                let (origin, seq) = (cast::code(id.origin), id.seq);
                cx.log(Level::Info, UserEvent::Everywhere { origin, seq });
            }
            Some(OverlayDelivery::Gathered { count, of, bytes, .. }) => {
                let sum = u64::from_le_bytes(*bytes.first_chunk().expect("a counter"));
                cx.log(Level::Info, UserEvent::Gathered { count, of, sum });
            }
            Some(OverlayDelivery::Refused(_)) => cx.log(Level::Info, UserEvent::Refused),
            None => {}
        }
    }
}

/// Facts that the checker has seen: deliveries of each incarnation, and traffic.
#[derive(Default)]
struct Facts {
    digests: BTreeMap<(u64, u64), u64>,
    got: BTreeMap<u32, BTreeSet<(u64, u64)>>,
    everywhere: BTreeSet<(u64, u64)>,
    gathered: Vec<(u64, u64, u64)>,
    /// Bytes of chunks by receiver and sender, and offers.
    bytes: BTreeMap<(u32, u32), usize>,
    offers: u64,
}

/// Once at each incarnation of each member, the same bytes everywhere; sums are of as many as they
/// say.
struct Watch(Arc<Mutex<Facts>>);

impl Checker for Watch {
    fn name(&self) -> &'static str {
        "overlay"
    }

    fn see(&mut self, seen: &Observation<'_>) -> Result<(), String> {
        let mut facts = self.0.lock().expect("one thread");
        let slot = seen.slot.0;
        match seen.what {
            ObservedEvent::Started(_) => {
                facts.got.insert(slot, BTreeSet::new());
            }
            ObservedEvent::Crashed => {
                facts.got.remove(&slot);
            }
            ObservedEvent::Arrived(message) if message.ty == CHUNK => {
                *facts.bytes.entry((slot, message.src.0)).or_default() += message.body.len() - 32;
            }
            ObservedEvent::Arrived(message) if message.ty == OFFER => facts.offers += 1,
            ObservedEvent::Event(event) => {
                let logged = event.decode();
                if let Some(OverlayEvent::Damaged { .. } | OverlayEvent::Unmergeable { .. }) =
                    logged
                {
                    return Err(event.name.to_owned());
                }
                return event.decode().map_or(Ok(()), |event| facts.told(slot, event));
            }
            _ => {}
        }
        Ok(())
    }
}

impl Facts {
    fn told(&mut self, slot: u32, event: UserEvent) -> Result<(), String> {
        match event {
            UserEvent::Got { origin, seq, digest } => {
                let id = (origin, seq);
                if *self.digests.entry(id).or_insert(digest) != digest {
                    return Err(format!("{id:?} at {slot}: other bytes"));
                }
                if !self.got.entry(slot).or_default().insert(id) {
                    return Err(format!("{id:?} comes to {slot} twice"));
                }
            }
            UserEvent::Everywhere { origin, seq } => {
                self.everywhere.insert((origin, seq));
            }
            UserEvent::Gathered { count, of, sum } => {
                self.gathered.push((count.into(), of.into(), sum));
                if u64::from(count) != sum || count > of {
                    return Err(format!("{count} of {of} members contribute {sum}"));
                }
            }
            UserEvent::Refused => {}
        }
        Ok(())
    }
}

fn agreed(n: u32, view: &str, params: &str, net: &str, seed: u64) -> (Group, Arc<Mutex<Facts>>) {
    let with = |name: &str, rest: &str| {
        let comma = if rest.is_empty() { "" } else { ", " };
        format!("{{ layer = \"{name}\"{comma}{rest} }}")
    };
    let layers = [
        with("detector", ""),
        with("log", view),
        with("membership", view),
        with("overlay", params),
        "\"user\", \"top\"".to_owned(),
    ]
    .join(", ");
    let registry = Registry::new()
        .with("user", |_| Ok(Box::new(Pass(User))))
        .with("top", |_| Ok(Box::new(Top)));
    let registry = cast::layers(detector::layers(registry), cast::Planted::default());
    let registry = overlay::layers(membership::layers(registry), overlay::counters);
    let mut group = group(n, &layers, net, seed, "membership", &registry);
    let facts = Arc::default();
    group.world.check(Watch(Arc::clone(&facts)));
    (group, facts)
}

/// A user below others: it sees what passes.
struct Pass(User);

impl Layer for Pass {
    fn deliver(&mut self, message: Message, cx: &mut Ctx<'_>) {
        self.0.deliver(message.clone(), cx);
        cx.up(message);
    }
}

fn ask(group: &mut Group, from: u32, ask: OverlayRequest) {
    let message = ask.message().expect("a message");
    group.world.with(Slot(from), |process, now| process.send(now, message));
}

fn pattern(len: usize) -> Bytes {
    (0..len).map(|k| u8::try_from(k * k % 251).expect("a byte")).collect()
}

fn spread(group: &mut Group, from: u32, lasting: bool, len: usize) {
    ask(group, from, OverlayRequest::Spread { lasting, bytes: pattern(len) });
}

/// All get it, each byte crosses each edge once, and all are told.
#[test]
fn one_transfer_for_each_edge_of_the_tree() {
    for (n, from, len, view) in [
        (1, 0, 100, ""),
        (2, 1, 0, ""),
        (21, 0, 100_000, ""),
        (21, 17, 100_000, ""),
        (40, 5, 16_384, "arity = 2"),
        (100, 0, 1_000_000, ""),
        (100, 99, 3, "arity = 8"),
    ] {
        let what = format!("{len} bytes from {from} of {n}");
        let (mut group, facts) = agreed(n, view, "", NET, 1);
        group.run(10 * MILLI);
        spread(&mut group, from, false, len);
        group.run(SECOND);
        let facts = facts.lock().expect("one thread");
        assert!(facts.got.values().all(|got| got.len() == 1), "{what}: all have it");
        assert_eq!((facts.got.len(), facts.everywhere.len()), (n as usize, 1), "{what}");
        assert_eq!(facts.offers, u64::from(n) - 1, "{what}: offers");
        let edges = if len > 16_384 { n as usize - 1 } else { 0 };
        assert_eq!(facts.bytes.len(), edges, "{what}: edges that carried chunks");
        assert!(facts.bytes.values().all(|bytes| *bytes == len), "{what}: bytes of each edge");
    }
}

/// Chunks are passed on before all have come: on a long way the time is that of one way and one transfer.
#[test]
fn chunks_are_passed_on_at_once() {
    // 85 processes, four levels; 2 MB at 1 Gbit/s take 16 ms from one host to four children 64 ms.
    let net = "kind = \"switch\"\nrate = \"1Gbps\"";
    let (mut group, facts) = agreed(85, "", "", net, 1);
    group.run(10 * MILLI);
    spread(&mut group, 0, false, 2_000_000);
    let mut took = 0;
    while !facts.lock().expect("one thread").got.values().all(|got| got.len() == 1) {
        took += 1;
        assert!(took < 200, "not there after {took} ms");
        group.run((10 + took) * MILLI);
    }
    println!("2 MB to 85 processes over a switch of 1 Gbit/s: {took} ms");
    // Level by level it would be three times 64 ms.
    assert!(took < 110, "{took} ms");
}

/// An inner node crashes at every 2 ms of a transfer: its children are served by the new tree.
#[test]
fn an_inner_node_crashes_at_any_time() {
    for at in (0..60).step_by(2) {
        let net = "kind = \"fixed\"\ndelay = \"1ms\"\nrate = \"100Mbps\"";
        let (mut group, facts) = agreed(21, "", "", net, 1);
        group.run(10 * MILLI);
        spread(&mut group, 0, false, 300_000);
        group.crash((10 + at) * MILLI, 3);
        group.settle(10 * SECOND);
        let facts = facts.lock().expect("one thread");
        assert_eq!(facts.got.len(), 20);
        assert!(facts.got.values().all(|got| got.len() == 1), "crash after {at} ms");
        assert_eq!(facts.everywhere.len(), 1, "crash after {at} ms");
        // No member got more than one transfer and what was under way when the tree changed.
        let mut by_receiver: BTreeMap<u32, usize> = BTreeMap::new();
        for ((to, _), bytes) in &facts.bytes {
            *by_receiver.entry(*to).or_default() += bytes;
        }
        let window = 17 * 16_384;
        assert!(by_receiver.values().all(|bytes| *bytes <= 300_000 + window), "{by_receiver:?}");
    }
}

/// The origin crashes in the middle: all others have it or none that is alive has it; nothing is
/// left behind.
#[test]
fn the_origin_crashes_in_the_middle() {
    let (mut all, mut none) = (0, 0);
    for at in (1..30).step_by(2) {
        let net = "kind = \"fixed\"\ndelay = \"1ms\"\nrate = \"100Mbps\"";
        let (mut group, facts) = agreed(21, "", "give_up = \"5s\"", net, 1);
        group.run(10 * MILLI);
        spread(&mut group, 20, false, 200_000);
        group.crash((10 + at) * MILLI, 20);
        group.settle(20 * SECOND);
        let with = facts.lock().expect("one thread");
        let with = with.got.values().filter(|got| got.len() == 1).count();
        assert!(with == 0 || with == 20, "crash after {at} ms: {with} have it");
        all += u32::from(with == 20);
        none += u32::from(with == 0);
    }
    assert!(all > 0 && none > 0, "{all} times all, {none} times none");
}

#[test]
fn who_joins_gets_what_lasts_until_it_is_dropped() {
    let (mut group, facts) = agreed(9, "members = 8", "", NET, 1);
    // Process 8 joins by itself and crashes; its next incarnation gets what is spread in between.
    group.run(2 * SECOND);
    group.crash(2 * SECOND, 8);
    group.settle(10 * SECOND);
    spread(&mut group, 3, true, 50_000);
    spread(&mut group, 3, false, 40_000);
    spread(&mut group, 4, true, 10);
    group.run(11 * SECOND);
    assert_eq!(facts.lock().expect("one thread").everywhere.len(), 3);
    for slot in 0..8 {
        let id = Id { origin: common::member(4, 1), seq: 0 };
        ask(&mut group, slot, OverlayRequest::Drop(id));
    }
    group.recover(12 * SECOND, 8);
    group.settle(20 * SECOND);
    let facts = facts.lock().expect("one thread");
    let want = BTreeSet::from([(3 << 32 | 1, 0)]);
    assert_eq!(facts.got[&8], want, "what lasts and is not dropped, and nothing else");
    assert!((0..8).all(|slot| facts.got[&slot].len() == 3));
}

#[test]
fn what_does_not_fit_is_refused() {
    let (mut group, facts) = agreed(3, "", "most = 1000", NET, 1);
    group.run(10 * MILLI);
    spread(&mut group, 0, true, 600);
    spread(&mut group, 0, true, 600);
    group.run(SECOND);
    assert_eq!(group.count(|event| matches!(event, UserEvent::Refused)), 1);
    assert!(facts.lock().expect("one thread").got.values().all(|got| got.len() == 1));
}

/// Every member contributes 1: the root has their number, within a period, and none twice.
#[test]
fn the_root_gathers_what_all_contribute() {
    let (mut group, facts) = agreed(85, "", "period = \"100ms\"", NET, 1);
    for slot in 0..85 {
        ask(
            &mut group,
            slot,
            OverlayRequest::Contribute(7, Bytes::copy_from_slice(&1_u64.to_le_bytes())),
        );
    }
    group.run(2 * SECOND);
    {
        let facts = facts.lock().expect("one thread");
        assert!(facts.gathered.len() >= 18, "{:?}", facts.gathered);
        assert!(facts.gathered[1..].iter().all(|found| *found == (85, 85, 85)));
    }
    // What has not changed for long is not told again; what changes then is.
    for slot in [0, 1, 30] {
        group.crash(7 * SECOND, slot);
    }
    group.settle(17 * SECOND);
    let facts = facts.lock().expect("one thread");
    assert_eq!(facts.gathered.last(), Some(&(82, 82, 82)), "the new root has those who live");
}

/// Faults that the seed draws while many spread and all contribute; then all that live agree.
fn faults(seed: u64) -> u64 {
    let mut rng = RunSeed(seed).named("shape");
    let n = 3 + u32::try_from(below(&mut rng, 12)).expect("small");
    let arity = [2, 4][usize::try_from(below(&mut rng, 2)).expect("small")];
    let net = format!("kind = \"random\"\nmean = \"{}ms\"", 1 + below(&mut rng, 8));
    let params = "chunk = 1000, window = 4, period = \"200ms\"";
    let (mut group, facts) = agreed(n, &format!("arity = {arity}"), params, &net, seed);
    let until = 10 * SECOND;
    let kinds: Vec<_> = Kind::ALL.into_iter().filter(|kind| *kind != Kind::Clocks).collect();
    let swarm = Swarm::draw(RunSeed(seed), n, until, &kinds, None, "detector");
    let first = u32::try_from(below(&mut rng, n.into())).expect("small");
    let may_crash = |slot: Slot| (slot.0 + n - first) % n < (n - 1) / 2;
    for (at, fault) in &swarm.faults {
        match fault {
            Fault::Crash(slot) | Fault::Recover(slot) if !may_crash(*slot) => {}
            fault => group.world.fault_at(*at, fault.clone()),
        }
    }
    let mut at = 0;
    while at < until {
        at += below(&mut rng, SECOND);
        group.run(at);
        let from = u32::try_from(below(&mut rng, n.into())).expect("small");
        let len = usize::try_from(below(&mut rng, 20_000)).expect("small");
        let bytes = Bytes::from(vec![u8::try_from(len % 256).expect("a byte"); len]);
        let lasting = below(&mut rng, 2) == 0;
        ask(&mut group, from, OverlayRequest::Spread { lasting, bytes });
        let one = Bytes::copy_from_slice(&1_u64.to_le_bytes());
        ask(&mut group, from, OverlayRequest::Contribute(0, one));
    }
    group.world.heal(&(0..n).map(Slot).collect::<Vec<_>>());
    group.run(at + 60 * SECOND);
    let views = group.views.lock().expect("one thread");
    if views.majority_is_gone() {
        return 0;
    }
    assert_eq!(views.agreed().map(|view| view.len()), Ok(n), "seed {seed}");
    drop(views);
    // What is spread from now on comes to all.
    for from in 0..n {
        spread(&mut group, from, false, 5000);
    }
    let before = facts.lock().expect("one thread").digests.len();
    group.run(at + 75 * SECOND);
    let violation = group.world.finish().map(ToString::to_string);
    assert_eq!(violation, None, "seed {seed}, {n} processes, {swarm}");
    let facts = facts.lock().expect("one thread");
    let new: Vec<_> = facts.digests.keys().skip(before).collect();
    assert!(new.len() <= n as usize, "seed {seed}");
    let last = |slot: u32| {
        facts.got[&slot].iter().filter(|(origin, _)| *origin >> 32 == u64::from(slot)).max()
    };
    for from in 0..n {
        let id = last(from).expect("its own");
        let lack: Vec<_> = (0..n).filter(|slot| !facts.got[slot].contains(id)).collect();
        assert!(lack.is_empty(), "seed {seed}: {lack:?} lack {id:?}");
        assert!(facts.everywhere.contains(id), "seed {seed}: {id:?} is everywhere");
    }
    facts.digests.len() as u64
}

#[test]
fn everybody_gets_everything_after_faults_by_seed() {
    let spread: u64 = (0..60).map(faults).sum();
    println!("60 seeds, {spread} things spread");
    assert!(spread > 600);
}

#[test]
fn loss_repetition_and_reordering_change_nothing() {
    for seed in 0..10 {
        let net = "kind = \"random\"\nmean = \"1ms\"";
        let (mut group, facts) = agreed(21, "", "chunk = 2000", net, seed);
        let links = LinkFaults {
            loss: 200_000,
            duplicate: 100_000,
            reorder: 300_000,
            late_ns: 20 * MILLI,
            ..LinkFaults::default()
        };
        group.world.fault_at(MILLI, Fault::Links(0, links));
        group.run(10 * MILLI);
        spread(&mut group, 7, false, 60_000);
        spread(&mut group, 0, false, 10);
        group.run(30 * SECOND);
        let facts = facts.lock().expect("one thread");
        assert!(facts.got.values().all(|got| got.len() == 2), "seed {seed}");
    }
}
