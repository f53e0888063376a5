//! The broadcasts as layers, by name.

use std::any::Any;
use std::ops::RangeInclusive;

use bytes::{Bytes, BytesMut};
use itg_members::{Member, View};
use itg_process::{
    Adapter, Build, ConfigError, Layer, Machine, Message, Params, Registry, Slot, Wiring,
};

use super::interface::{CAST, CastDelivery, CastRequest, LOCAL_LAST};
use super::log::{self, FIRST, LAST, Log, LogMessage, Settings};
use super::mutant::{Mutant, Planted};
use super::reliable::{self, Data, Mode, Reliable};
use super::thesis::{self, Algorithm, Thesis, Word};
use super::uniform::{self, Fast, Uniform};

/// Messages of a broadcast, on a wire.
trait Wire: Sized {
    /// Their types; from a network, messages of a stack are none.
    const TYPES: &'static [RangeInclusive<u32>];
    fn to_wire(&self) -> (u32, Bytes);
    fn from_wire(ty: u32, body: &Bytes) -> Option<Self>;
}

/// Types of messages within a stack: what a network brings as such is malformed.
const LOCAL: RangeInclusive<u32> = CAST..=LOCAL_LAST;

impl Wire for LogMessage {
    const TYPES: &'static [RangeInclusive<u32>] = &[FIRST..=LAST, LOCAL];

    fn to_wire(&self) -> (u32, Bytes) {
        self.encode()
    }

    fn from_wire(ty: u32, body: &Bytes) -> Option<Self> {
        Self::decode(ty, body)
    }
}

impl Wire for Word {
    const TYPES: &'static [RangeInclusive<u32>] = &[thesis::FIRST..=thesis::LAST, LOCAL];

    fn to_wire(&self) -> (u32, Bytes) {
        self.encode()
    }

    fn from_wire(ty: u32, body: &Bytes) -> Option<Self> {
        Self::decode(ty, body)
    }
}

impl Wire for Data {
    const TYPES: &'static [RangeInclusive<u32>] = &[reliable::DATA..=reliable::DATA, LOCAL];

    fn to_wire(&self) -> (u32, Bytes) {
        (reliable::DATA, self.encode())
    }

    fn from_wire(ty: u32, body: &Bytes) -> Option<Self> {
        (ty == reliable::DATA).then(|| Self::decode(body))?
    }
}

impl Wire for uniform::UniformMessage {
    // Those of the log below it, too.
    const TYPES: &'static [RangeInclusive<u32>] =
        &[FIRST..=LAST, uniform::FIRST..=uniform::LAST, LOCAL];

    fn to_wire(&self) -> (u32, Bytes) {
        self.encode()
    }

    fn from_wire(ty: u32, body: &Bytes) -> Option<Self> {
        Self::decode(ty, body)
    }
}

/// Any broadcast as a layer.
#[derive(Debug, Default)]
pub struct CastWiring {
    /// Room for what is delivered next.
    room: BytesMut,
}

impl<M> Wiring<M> for CastWiring
where
    M: Machine<Request = CastRequest, Delivery = CastDelivery>,
    M::Message: Wire,
{
    fn types(&self) -> &[RangeInclusive<u32>] {
        M::Message::TYPES
    }

    fn encode(&self, message: &M::Message) -> (u32, Bytes) {
        message.to_wire()
    }

    fn decode(&self, ty: u32, body: &Bytes) -> Option<M::Message> {
        M::Message::from_wire(ty, body)
    }

    fn request(&self, message: Message) -> Result<CastRequest, Message> {
        CastRequest::from_message(message)
    }

    fn control(&self, what: &dyn Any) -> Option<CastRequest> {
        CastRequest::from_control(what)
    }

    fn delivery(&mut self, me: Slot, tell: CastDelivery) -> Message {
        tell.message_in(me, Some(&mut self.room))
    }
}

fn size(params: &mut Params, key: &'static str, usual: usize) -> Result<usize, ConfigError> {
    Ok(usize::try_from(params.number(key, usual as u64)?).unwrap_or(usize::MAX))
}

/// The settings of a log from the parameters of its layer.
fn settings(build: &mut Build<'_>, planted: Planted) -> Result<Settings, ConfigError> {
    let usual = Settings::default();
    let params = &mut *build.params;
    Ok(Settings {
        rotate: params.duration("rotate", usual.rotate)?,
        status: params.duration("status", usual.status)?,
        rest: params.duration("rest", usual.rest)?,
        batch_msgs: size(params, "batch_msgs", usual.batch_msgs)?,
        batch_bytes: size(params, "batch_bytes", usual.batch_bytes)?,
        inline_max: size(params, "inline_max", usual.inline_max)?,
        window: params.number("window", usual.window)?,
        retain: size(params, "retain", usual.retain)?,
        retain_bytes: size(params, "retain_bytes", usual.retain_bytes)?,
        journal_bytes: size(params, "journal_bytes", usual.journal_bytes)?,
        piece_bytes: size(params, "piece_bytes", usual.piece_bytes)?.clamp(1, MOST_PIECE),
        most_state: usual.most_state,
        trace: params.flag("trace", usual.trace)?,
        planted,
    })
}

/// This process as a member, and the first view: the processes of the configuration, or the first
/// `members` of them.
fn place(build: &mut Build<'_>, planted: Planted) -> Result<(Member, View), ConfigError> {
    let (_, view) = itg_members::place(build)?;
    let ignored = planted.is(Mutant::IncarnationIgnored);
    let life = if ignored { 1 } else { build.incarnation };
    Ok((Member::new(build.me, life), view))
}

/// Most bytes of a piece of a snapshot: it has to fit into a message.
const MOST_PIECE: usize = 8 << 20;

/// Name of the layer of the ordered log, and so of its journal.
const LOG: &str = "log";
/// Names of the layers of uniform broadcasts, and so of their journals.
const UNIFORM: [(&str, Fast); 2] =
    [("uniform-sequencer", Fast::Sequencer), ("uniform-skeen", Fast::Skeen)];

/// Member that the journal of the log makes of a process that is being built, and true if that is in a view; `None`
/// without one: it is what its incarnation says.
#[must_use]
pub fn restored(build: &Build<'_>, first: &View) -> Option<(Member, bool)> {
    let journals = build.journals?;
    let of_uniform = UNIFORM
        .iter()
        .find_map(|(name, _)| log::member_of(&uniform::records_of_log(journals.of(name)), first));
    of_uniform.or_else(|| log::member_of(journals.of(LOG), first))
}

/// The registry with the broadcasts.
///
/// `log` is the ordered log; its parameters are those of [`Settings`] and `members`, the number of
/// processes in the first view. `sequencer`, `skeen` and `chandra-toueg` are the failure-free forms,
/// with `members` and `window`; `uniform-sequencer` and `uniform-skeen` survive crashes, and have
/// the parameters of the log. `reliable-eager`, `reliable-lazy` and `reliable-uniform` broadcast without
/// order, with `members` and `window`.
#[must_use]
pub fn layers(registry: Registry, planted: Planted) -> Registry {
    let thesis = move |algorithm| {
        move |build: &mut Build<'_>| -> Result<Box<dyn Layer>, ConfigError> {
            let (me, view) = place(build, planted)?;
            let window = build.params.number("window", Settings::default().window)?;
            let machine = Thesis::new(algorithm, me, view.len(), window, planted);
            Ok(Box::new(Adapter::new(machine, CastWiring::default())))
        }
    };
    let mut registry = registry.with(LOG, move |build| {
        let (me, view) = place(build, planted)?;
        let settings = settings(build, planted)?;
        let log = match build.journals {
            None => Log::new(me, view, settings),
            Some(journals) => Log::with_journal(me, view, settings, journals.of(LOG)),
        };
        Ok(Box::new(Adapter::new(log, CastWiring::default())) as Box<dyn Layer>)
    });
    for (name, fast) in UNIFORM {
        registry = registry.with(name, move |build| {
            let (me, view) = place(build, planted)?;
            let settings = settings(build, planted)?;
            let machine = match build.journals {
                None => Uniform::new(fast, me, view, settings),
                Some(journals) => {
                    Uniform::with_journal(fast, me, view, settings, journals.of(name))
                }
            };
            Ok(Box::new(Adapter::new(machine, CastWiring::default())))
        });
    }
    let modes = [
        ("reliable-eager", Mode::Eager),
        ("reliable-lazy", Mode::Lazy),
        ("reliable-uniform", Mode::Uniform),
    ];
    for (name, mode) in modes {
        registry = registry.with(name, move |build| {
            let (me, view) = place(build, planted)?;
            let window = build.params.number("window", Settings::default().window)?;
            let machine = Reliable::new(mode, me, view.len(), window);
            Ok(Box::new(Adapter::new(machine, CastWiring::default())))
        });
    }
    for algorithm in Algorithm::ALL {
        registry = registry.with(algorithm.name(), thesis(algorithm));
    }
    registry
}
