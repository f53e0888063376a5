//! The broadcasts as layers, by name.

use std::any::Any;
use std::ops::RangeInclusive;

use bytes::Bytes;
use itg_process::{Adapter, Build, ConfigError, Layer, Message, Params, Registry, Slot, Wiring};

use super::interface::{Ask, Tell};
use super::log::{FIRST, LAST, Log, Say, Settings};
use super::mutant::Planted;
use super::reliable::{self, Data, Mode, Reliable};
use super::thesis::{self, Algorithm, Thesis, Word};
use super::uniform::{self, Fast, Uniform};
use crate::member::{Member, View};

/// The log's messages on a wire.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogWiring;

impl Wiring<Log> for LogWiring {
    fn types(&self) -> &[RangeInclusive<u32>] {
        &[FIRST..=LAST]
    }

    fn encode(&self, say: &Say) -> (u32, Bytes) {
        say.encode()
    }

    fn decode(&self, ty: u32, body: &Bytes) -> Option<Say> {
        Say::decode(ty, body)
    }

    fn request(&self, message: Message) -> Result<Ask, Message> {
        Ask::from_message(message)
    }

    fn control(&self, what: &dyn Any) -> Option<Ask> {
        Ask::from_control(what)
    }

    fn delivery(&self, me: Slot, tell: Tell) -> Message {
        tell.message(me)
    }
}

/// The thesis forms' messages on a wire.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThesisWiring;

impl Wiring<Thesis> for ThesisWiring {
    fn types(&self) -> &[RangeInclusive<u32>] {
        &[thesis::FIRST..=thesis::LAST]
    }

    fn encode(&self, word: &Word) -> (u32, Bytes) {
        word.encode()
    }

    fn decode(&self, ty: u32, body: &Bytes) -> Option<Word> {
        Word::decode(ty, body)
    }

    fn request(&self, message: Message) -> Result<Ask, Message> {
        Ask::from_message(message)
    }

    fn delivery(&self, me: Slot, tell: Tell) -> Message {
        tell.message(me)
    }
}

/// Reliable broadcast's messages on a wire.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReliableWiring;

impl Wiring<Reliable> for ReliableWiring {
    fn types(&self) -> &[RangeInclusive<u32>] {
        &[reliable::DATA..=reliable::DATA]
    }

    fn encode(&self, data: &Data) -> (u32, Bytes) {
        (reliable::DATA, data.encode())
    }

    fn decode(&self, _ty: u32, body: &Bytes) -> Option<Data> {
        Data::decode(body)
    }

    fn request(&self, message: Message) -> Result<Ask, Message> {
        Ask::from_message(message)
    }

    fn control(&self, what: &dyn Any) -> Option<Ask> {
        Ask::from_control(what)
    }

    fn delivery(&self, me: Slot, tell: Tell) -> Message {
        tell.message(me)
    }
}

/// The uniform forms' messages on a wire, and those of the log below them.
#[derive(Clone, Copy, Debug, Default)]
pub struct UniformWiring;

impl Wiring<Uniform> for UniformWiring {
    fn types(&self) -> &[RangeInclusive<u32>] {
        &[FIRST..=LAST, uniform::FIRST..=uniform::LAST]
    }

    fn encode(&self, say: &uniform::Say) -> (u32, Bytes) {
        say.encode()
    }

    fn decode(&self, ty: u32, body: &Bytes) -> Option<uniform::Say> {
        uniform::Say::decode(ty, body)
    }

    fn request(&self, message: Message) -> Result<Ask, Message> {
        Ask::from_message(message)
    }

    fn control(&self, what: &dyn Any) -> Option<Ask> {
        Ask::from_control(what)
    }

    fn delivery(&self, me: Slot, tell: Tell) -> Message {
        tell.message(me)
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
        rotate: params.time_ns("rotate", usual.rotate)?,
        status: params.time_ns("status", usual.status)?,
        batch_msgs: size(params, "batch_msgs", usual.batch_msgs)?,
        batch_bytes: size(params, "batch_bytes", usual.batch_bytes)?,
        inline_max: size(params, "inline_max", usual.inline_max)?,
        window: params.number("window", usual.window)?,
        retain: size(params, "retain", usual.retain)?,
        retain_bytes: size(params, "retain_bytes", usual.retain_bytes)?,
        trace: params.flag("trace", usual.trace)?,
        planted,
    })
}

/// Who this process is, and the first view: the processes of the configuration, or the first
/// `members` of them.
fn place(build: &mut Build<'_>) -> Result<(Member, View), ConfigError> {
    let (_, view) = crate::membership::place(build)?;
    Ok((Member::new(build.me, build.incarnation), view))
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
            let (me, view) = place(build)?;
            let window = build.params.number("window", Settings::default().window)?;
            let machine = Thesis::new(algorithm, me, view.len(), window, planted);
            Ok(Box::new(Adapter::new(machine, ThesisWiring)))
        }
    };
    let mut registry = registry.with("log", move |build| {
        let (me, view) = place(build)?;
        let settings = settings(build, planted)?;
        Ok(Box::new(Adapter::new(Log::new(me, view, settings), LogWiring)) as Box<dyn Layer>)
    });
    for (name, fast) in [("uniform-sequencer", Fast::Sequencer), ("uniform-skeen", Fast::Skeen)] {
        registry = registry.with(name, move |build| {
            let (me, view) = place(build)?;
            let machine = Uniform::new(fast, me, view, settings(build, planted)?);
            Ok(Box::new(Adapter::new(machine, UniformWiring)))
        });
    }
    let modes = [
        ("reliable-eager", Mode::Eager),
        ("reliable-lazy", Mode::Lazy),
        ("reliable-uniform", Mode::Uniform),
    ];
    for (name, mode) in modes {
        registry = registry.with(name, move |build| {
            let (me, view) = place(build)?;
            let window = build.params.number("window", Settings::default().window)?;
            let machine = Reliable::new(mode, me, view.len(), window);
            Ok(Box::new(Adapter::new(machine, ReliableWiring)))
        });
    }
    for algorithm in Algorithm::ALL {
        registry = registry.with(algorithm.name(), thesis(algorithm));
    }
    registry
}
