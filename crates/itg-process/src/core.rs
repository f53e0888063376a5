//! State that all layers of a process share: queue of calls, timers, outputs.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::RangeInclusive;
use std::sync::Arc;

use chacha20::ChaCha8Rng;
use itg_core::seed::RunSeed;

use crate::counters::Counters;
use crate::event::{Event, Level, RuntimeEvent};
use crate::journal::LayerWrite;
use crate::message::{Dest, Message, Slot, Time, To};
use crate::network::Network;
use crate::output::{Output, StopReason, Trace, Way};

/// A timer that was set. Timers of one instant fire in the order in which they were set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimerId {
    pub(crate) at: Time,
    pub(crate) id: u64,
}

/// A call that waits for its layer.
pub(crate) enum Call {
    Start,
    Send(Message),
    Deliver(Message),
    Refused(Message),
    Timer(TimerId),
    Control(Box<dyn Any + Send>),
    Stop(StopReason),
}

/// Place of a layer in the stack: a chain, or a tree above multiplexers.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: Arc<str>,
    /// The layer below, and which of its branches this one stands on; `None` above the networks.
    pub(crate) below: Option<(usize, usize)>,
    pub(crate) above: Vec<usize>,
}

/// Types of which it is said that no layer declares them.
const MOST_UNDECLARED: usize = 16;
/// Index of the runtime itself among the owners of timers.
pub(crate) const RUNTIME: usize = usize::MAX;

pub(crate) struct Core {
    pub(crate) me: Slot,
    pub(crate) capacity: u32,
    pub(crate) incarnation: u64,
    pub(crate) view: Arc<[Slot]>,
    pub(crate) view_no: u64,
    pub(crate) now: Time,
    pub(crate) seed: RunSeed,
    pub(crate) config: Arc<toml::Table>,
    pub(crate) networks: Arc<[Network]>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) types: Vec<RangeInclusive<u32>>,
    pub(crate) calls: VecDeque<(usize, usize, Call)>,
    pub(crate) timers: BTreeMap<(Time, u64), usize>,
    pub(crate) next_timer: u64,
    pub(crate) out: VecDeque<Output>,
    /// Writes to journals; the rest of what is asked for waits until they are durable.
    pub(crate) writes: Vec<LayerWrite>,
    /// True if the world keeps journals.
    pub(crate) keeps_journals: bool,
    pub(crate) counters: Counters,
    pub(crate) trace: bool,
    /// Types that no layer declares, as far as they have been said.
    undeclared: BTreeSet<u32>,
    /// Parts in a million.
    pub(crate) buggify: u32,
    /// A stop that was asked for and has not begun.
    pub(crate) stop: Option<(StopReason, Slot)>,
    /// True once the process has stopped: nothing goes out any more.
    pub(crate) closed: bool,
    rngs: Vec<Option<Box<ChaCha8Rng>>>,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("me", &self.me).field("now", &self.now).finish_non_exhaustive()
    }
}

impl Core {
    #[allow(clippy::too_many_arguments, reason = "one for each fact about a process")]
    pub(crate) fn new(
        me: Slot,
        processes: u32,
        incarnation: u64,
        seed: RunSeed,
        config: Arc<toml::Table>,
        networks: Arc<[Network]>,
        nodes: Vec<Node>,
        types: Vec<RangeInclusive<u32>>,
        everybody: Arc<[Slot]>,
    ) -> Self {
        let rngs = nodes.iter().map(|_| None).collect();
        Self {
            me,
            capacity: processes,
            incarnation,
            view: everybody,
            view_no: 0,
            now: Time::ZERO,
            seed,
            config,
            networks,
            nodes,
            types,
            calls: VecDeque::new(),
            timers: BTreeMap::new(),
            next_timer: 0,
            out: VecDeque::new(),
            writes: Vec::new(),
            keeps_journals: false,
            counters: Counters::default(),
            trace: false,
            undeclared: BTreeSet::new(),
            buggify: 0,
            stop: None,
            closed: false,
            rngs,
        }
    }

    pub(crate) fn push(&mut self, layer: usize, branch: usize, call: Call) {
        self.calls.push_back((layer, branch, call));
    }

    pub(crate) fn rng(&mut self, layer: usize) -> &mut ChaCha8Rng {
        let (seed, me, name) = (self.seed, self.me, &self.nodes[layer].name);
        self.rngs[layer]
            .get_or_insert_with(|| Box::new(seed.named(&format!("process {me} layer {name}"))))
    }

    pub(crate) fn set_timer(&mut self, layer: usize, at: Time) -> TimerId {
        // A time that has passed is now: a timer never fires before one that was due earlier.
        let at = at.max(self.now);
        let id = self.next_timer;
        self.next_timer += 1;
        self.timers.insert((at, id), layer);
        TimerId { at, id }
    }

    pub(crate) fn event(&mut self, layer: usize, event: Event) {
        let layer = Arc::clone(&self.nodes[layer].name);
        self.out.push_back(Output::Event(layer, event));
    }

    pub(crate) fn ask_stop(&mut self, why: StopReason, origin: Slot) {
        self.stop.get_or_insert((why, origin));
    }

    /// Hands a message to its network; what is for this process itself is delivered after the call in
    /// progress.
    pub(crate) fn transmit(&mut self, mut message: Message) {
        message.src = self.me;
        if self.closed {
            self.counters.after_stop += 1;
            return;
        }
        let Some(network) = self.networks.get(usize::from(message.net.0)) else {
            self.counters.no_such_network += 1;
            return;
        };
        if message.body.len() > network.contract.max_body {
            self.counters.too_long += 1;
            self.push(0, 0, Call::Refused(message));
            return;
        }
        let me = self.me;
        let to = match &message.dst {
            Dest::One(slot) if *slot == me => To::Many(Arc::new([])),
            Dest::One(slot) => To::One(*slot),
            Dest::Many(slots) => others(slots, me),
            Dest::All | Dest::AllButMe => (0..self.capacity)
                .map(Slot)
                .filter(|slot| *slot != me)
                .collect::<Vec<_>>()
                .into_to(),
            Dest::View => others(&self.view, me),
        };
        let own = match &message.dst {
            Dest::One(slot) => *slot == me,
            Dest::Many(slots) => slots.contains(&me),
            Dest::All => true,
            Dest::AllButMe => false,
            Dest::View => self.view.contains(&me),
        };
        self.counters.sent += u64::from(!message.is_of_the_runtime());
        if self.trace {
            let all: Vec<_> = to.slots().iter().copied().chain(own.then_some(me)).collect();
            let dst = Dest::Many(all.into());
            self.note(Way::Send, &Message { dst, ..message.clone() });
        }
        if own {
            self.deliver(message.clone());
        }
        if !to.slots().is_empty() {
            self.out.push_back(Output::Send { message, to });
        }
    }

    /// Delivers a message to the lowest layer.
    pub(crate) fn deliver(&mut self, message: Message) {
        if !self.types.iter().any(|range| range.contains(&message.ty)) {
            self.counters.unknown_type += 1;
            self.tell_undeclared(&message);
            return;
        }
        self.counters.delivered += 1;
        self.note(Way::Deliver, &message);
        self.push(0, 0, Call::Deliver(message));
    }

    /// Says of the first types that no layer declares them.
    fn tell_undeclared(&mut self, message: &Message) {
        if self.undeclared.len() < MOST_UNDECLARED && self.undeclared.insert(message.ty) {
            let event = RuntimeEvent::UndeclaredType { ty: message.ty, from: message.src };
            let event = Event::new(Level::Warning, event);
            self.out.push_back(Output::Event("runtime".into(), event));
        }
    }

    pub(crate) fn note(&mut self, way: Way, message: &Message) {
        if self.trace {
            self.out.push_back(Output::Trace(Trace {
                at: self.now,
                way,
                process: self.me,
                src: message.src,
                dst: message.dst.clone(),
                net: message.net,
                ty: message.ty,
                len: message.body.len(),
            }));
        }
    }
}

/// These slots but one, in ascending order, each once.
fn others(slots: &[Slot], me: Slot) -> To {
    let mut slots: Vec<_> = slots.iter().copied().filter(|slot| *slot != me).collect();
    slots.sort_unstable();
    slots.dedup();
    slots.into_to()
}

trait IntoTo {
    fn into_to(self) -> To;
}

impl IntoTo for Vec<Slot> {
    fn into_to(self) -> To {
        match self.as_slice() {
            &[slot] => To::One(slot),
            slots => To::Many(slots.into()),
        }
    }
}
