//! Any bytes as messages from other members of a group, to a whole stack: links, failure detector, log,
//! membership, overlay. Nothing that a peer says makes a process panic.
//!
//! Input: messages one after the other, each a byte for the sender, two for the type, one for how much
//! time passes, one for the length, and the bytes. With the first bit of the input set there is no link
//! below, so that what is above gets everything as it is.
#![no_main]

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use itg_core::seed::RunSeed;
use itg_group::{cast, detector, membership};
use itg_members::{link, overlay};
use itg_process::{
    Config, Contract, MS, Message, Network, Outgoing, Process, Registry, Report, Slot, Time, Transport,
};
use libfuzzer_sys::fuzz_target;

/// First types and numbers of types of links, detectors, broadcasts, memberships, overlays, and of what
/// only travels within a stack.
const TYPES: [(u32, u32); 6] =
    [(1110, 2), (1200, 8), (1400, 40), (1300, 40), (1340, 8), (900, 50)];

fn stack(linked: bool) -> Process {
    static REGISTRY: OnceLock<Registry> = OnceLock::new();
    let registry = REGISTRY.get_or_init(|| {
        let registry = cast::layers(link::layers(Registry::new()), cast::Planted::default());
        overlay::layers(membership::layers(detector::layers(registry)), overlay::counters)
    });
    let link = if linked { "\"link\", " } else { "" };
    let text = format!(
        "processes = 5\n[[network]]\nname = \"main\"\nkind = \"inproc\"\n[[process]]\n\
         layers = [{link}\"detector\", \"log\", \"membership\", \"overlay\"]\n"
    );
    let config = Config::parse(&text, "fuzz.toml").expect("well written");
    let network = Network {
        name: "main".to_owned(),
        contract: Contract::INPROC,
    };
    let networks: Arc<[Network]> = Arc::from([network]);
    let mut processes = registry.processes(&config, RunSeed(1), &networks).expect("known layers");
    processes.swap_remove(1)
}

/// Transport that takes every message and brings it nowhere.
struct Nowhere;

impl Transport for Nowhere {
    fn send(&mut self, _now: Time, _message: &Outgoing, _to: Slot) -> bool {
        true
    }

    fn report(&mut self, _report: Report) {}
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, mut rest)) = bytes.split_first() else { return };
    let mut process = stack(first & 1 == 0);
    let mut now = Time::ZERO;
    process.start(now);
    while let [src, kind, ty, time, len, more @ ..] = rest {
        let (body, left) = more.split_at(more.len().min(usize::from(*len)));
        rest = left;
        now = now.after(u64::from(*time) * 10 * MS);
        while process.next_wake().is_some_and(|wake| wake <= now) {
            process.wake(now);
            process.carry_out(now, &mut Nowhere);
        }
        let (first, count) = TYPES[usize::from(*kind) % TYPES.len()];
        let ty = first + u32::from(*ty) % count;
        let message = Message::new(Slot(1), ty, Bytes::copy_from_slice(body));
        process.deliver(now, Message { src: Slot(u32::from(*src) % 6), ..message });
        process.carry_out(now, &mut Nowhere);
    }
});
