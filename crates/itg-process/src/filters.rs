//! Layers that come with the runtime: a trace, and a multiplexer.

use std::ops::RangeInclusive;

use crate::event::{Level, RuntimeEvent};
use crate::layer::{Ctx, Layer};
use crate::message::Message;

/// Writes an event for each message that passes: `down` and `up`, with the other process, type and
/// length of the message. Where it stands in the stack is a number in the name.
#[derive(Debug, Default)]
pub struct TraceFilter;

impl Layer for TraceFilter {
    fn send(&mut self, message: Message, cx: &mut Ctx<'_>) {
        let place = cx.layer as u64;
        let (ty, len) = (message.ty, message.body.len() as u64);
        cx.log(Level::Info, RuntimeEvent::Down { place, ty, len });
        cx.down(message);
    }

    fn deliver(&mut self, message: Message, cx: &mut Ctx<'_>) {
        let place = cx.layer as u64;
        let (ty, len) = (message.ty, message.body.len() as u64);
        cx.log(Level::Info, RuntimeEvent::Up { place, ty, len });
        cx.up(message);
    }
}

/// Several stacks above one channel: a message goes up to the branch that its type belongs to.
///
/// Branches send messages of their own types only; others are not sent, and logged. So a message
/// carries its branch in its type, and needs no other tag.
#[derive(Debug)]
pub struct Multiplexer {
    branches: Vec<Vec<RangeInclusive<u32>>>,
    types: Vec<RangeInclusive<u32>>,
}

impl Multiplexer {
    /// A multiplexer; for each branch, the types of its messages.
    #[must_use]
    pub fn new(branches: Vec<Vec<RangeInclusive<u32>>>) -> Self {
        let types = branches.iter().flatten().cloned().collect();
        Self { branches, types }
    }
}

impl Layer for Multiplexer {
    fn send(&mut self, message: Message, cx: &mut Ctx<'_>) {
        let own = self.branches.get(cx.branch());
        if own.is_some_and(|own| own.iter().any(|types| types.contains(&message.ty))) {
            cx.down(message);
        } else {
            cx.log(Level::Error, RuntimeEvent::NotOfBranch { ty: message.ty });
        }
    }

    fn deliver(&mut self, message: Message, cx: &mut Ctx<'_>) {
        let found = self
            .branches
            .iter()
            .position(|types| types.iter().any(|types| types.contains(&message.ty)));
        match found {
            Some(branch) => cx.up_to(branch, message),
            None => cx.log(Level::Warning, RuntimeEvent::NoBranch { ty: message.ty }),
        }
    }

    fn types(&self) -> &[RangeInclusive<u32>] {
        &self.types
    }
}
