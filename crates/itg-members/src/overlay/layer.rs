//! The overlay as a layer.

use std::any::Any;
use std::ops::RangeInclusive;
use std::time::Duration;

use bytes::Bytes;
use itg_process::{Adapter, Layer, Message, Registry, Slot, Wiring};

use super::message::{
    FIRST, LAST, LOCAL_FIRST, LOCAL_LAST, OverlayDelivery, OverlayMessage, OverlayRequest,
};
use super::{Merge, Overlay, Settings};
use crate::observers::RoundTrip;

/// The overlay's messages on a wire.
#[derive(Clone, Copy, Debug, Default)]
pub struct OverlayWiring;

impl Wiring<Overlay> for OverlayWiring {
    fn types(&self) -> &[RangeInclusive<u32>] {
        // From a network its own messages within a stack are malformed.
        &[FIRST..=LAST, LOCAL_FIRST..=LOCAL_LAST]
    }

    fn encode(&self, say: &OverlayMessage) -> (u32, Bytes) {
        say.encode()
    }

    fn decode(&self, ty: u32, body: &Bytes) -> Option<OverlayMessage> {
        OverlayMessage::decode(ty, body)
    }

    fn request(&self, message: Message) -> Result<OverlayRequest, Message> {
        OverlayRequest::from_message(message)
    }

    fn control(&self, what: &dyn Any) -> Option<OverlayRequest> {
        match what.downcast_ref() {
            Some(RoundTrip(ns)) => Some(OverlayRequest::RoundTrip(*ns)),
            None => what.downcast_ref::<OverlayRequest>().cloned(),
        }
    }

    fn delivery(&mut self, me: Slot, tell: OverlayDelivery) -> Message {
        tell.message(me)
    }
}

/// The registry with the layer `overlay`, which stands above a membership.
///
/// Parameters: `chunk` (16384 bytes), `window` (16 chunks), `most` (64 MiB), `retry` (200ms), `give_up`
/// (30s), `period` (1s).
#[must_use]
pub fn layers(registry: Registry, merge: Merge) -> Registry {
    registry.with("overlay", move |build| {
        let (usual, params) = (Settings::default(), &mut *build.params);
        let chunk = params.number("chunk", usual.chunk as u64)?;
        let window = params.number("window", usual.window.into())?;
        let most = params.number("most", usual.most as u64)?;
        let settings = Settings {
            chunk: usize::try_from(chunk).unwrap_or(usize::MAX).clamp(1, 1 << 20),
            window: u32::try_from(window).unwrap_or(u32::MAX).clamp(1, 1 << 16),
            most: usize::try_from(most).unwrap_or(usize::MAX).min(1 << 30),
            retry: params.duration("retry", usual.retry)?.max(Duration::from_nanos(1)),
            give_up: params.duration("give_up", usual.give_up)?,
            period: params.duration("period", usual.period)?.max(Duration::from_nanos(1)),
            merge,
        };
        Ok(Box::new(Adapter::new(Overlay::new(build.me, settings), OverlayWiring))
            as Box<dyn Layer>)
    })
}
