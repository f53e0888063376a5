//! Memberships as layers.

use std::any::Any;
use std::ops::RangeInclusive;
use std::time::Duration;

use bytes::Bytes;
use itg_members::observers::{RoundTrip, watch};
use itg_members::overlay::OverlayRequest;
use itg_members::place;
use itg_members::wire::Take;
use itg_process::{Adapter, Ctx, Injected, Layer, Message, Registry, Slot, Wiring};

use super::agreed::{Agreed, AgreedInput, AgreedOutput, AgreedRequest, Settings as AgreedSettings};
use super::message::{
    Evidence, FIRST, LAST, MembershipDelivery, MembershipMessage, MembershipRequest,
};
use super::paper::{Paper, Settings};
use crate::cast;

/// Type of the message that goes up with each view, over no network: its number and digest, two u64.
pub const VIEW: u32 = 920;
/// Type of the message that goes up when this process is no member any more; empty.
pub const EXCLUDED: u32 = 921;
/// Type of the message that goes up when a majority of the core cannot be reached (1) or can be (0).
pub const SUSPENDED: u32 = 922;

/// Name of the layer of the membership that a majority agrees on, and so of its journal.
const MEMBERSHIP: &str = "membership";

/// Messages of a membership on a wire.
#[derive(Clone, Copy, Debug)]
struct Wire {
    /// True if the runtime is told the slots of each view.
    publish: bool,
}

/// Types that memberships use within a stack: from a network they are malformed.
const LOCAL: RangeInclusive<u32> = VIEW..=929;

impl Wiring<Paper> for Wire {
    fn types(&self) -> &[RangeInclusive<u32>] {
        &[FIRST..=LAST, LOCAL]
    }

    fn encode(&self, say: &MembershipMessage) -> (u32, Bytes) {
        (say.ty(), say.encode())
    }

    fn decode(&self, ty: u32, body: &Bytes) -> Option<MembershipMessage> {
        MembershipMessage::decode(ty, body)
    }

    fn request(&self, message: Message) -> Result<MembershipRequest, Message> {
        Err(message)
    }

    fn delivery(&mut self, me: Slot, tell: MembershipDelivery) -> Message {
        tell_message(me, &tell)
    }

    fn control(&self, what: &dyn Any) -> Option<MembershipRequest> {
        ask(what)
    }

    fn hand_over(&mut self, tell: MembershipDelivery, cx: &mut Ctx<'_>) {
        tell_up(&tell, self.publish, cx);
    }
}

/// Messages of the agreed membership: those on a wire, and what the log below tells.
#[derive(Clone, Copy, Debug)]
struct AgreedWire {
    publish: bool,
    k_obs: u32,
}

impl Wiring<Agreed> for AgreedWire {
    fn types(&self) -> &[RangeInclusive<u32>] {
        // Views, checkpoints, states and exclusions that the log tells; what else it tells passes by.
        &[FIRST..=LAST, 911..=913, 915..=915, LOCAL]
    }

    fn encode(&self, hear: &AgreedInput) -> (u32, Bytes) {
        match hear {
            AgreedInput::Say(say) => (say.ty(), say.encode()),
            // Never sent.
            AgreedInput::Log(_) => (LAST, Bytes::new()),
        }
    }

    fn decode(&self, ty: u32, body: &Bytes) -> Option<AgreedInput> {
        if (FIRST..=LAST).contains(&ty) {
            return MembershipMessage::decode(ty, body).map(AgreedInput::Say);
        }
        cast::CastDelivery::from_message(&Message::new(Slot(0), ty, body.clone()))
            .map(AgreedInput::Log)
    }

    fn request(&self, message: Message) -> Result<AgreedRequest, Message> {
        // The state of the layer above; what else it asks of the log passes by.
        if message.ty != 903 {
            return Err(message);
        }
        let mut take = Take::new(message.body.clone());
        match take.u64() {
            Some(position) => Ok(AgreedRequest::State(position, take.rest())),
            None => Err(message),
        }
    }

    fn control(&self, what: &dyn Any) -> Option<AgreedRequest> {
        ask(what).map(AgreedRequest::Ask)
    }

    fn delivery(&mut self, me: Slot, what: AgreedOutput) -> Message {
        match what {
            AgreedOutput::Tell(tell) => tell_message(me, &tell),
            AgreedOutput::Pass(tell) => tell.message(me),
            AgreedOutput::Ask(_) => Message::new(me, EXCLUDED, Vec::new()),
        }
    }

    fn hand_over(&mut self, what: AgreedOutput, cx: &mut Ctx<'_>) {
        match what {
            AgreedOutput::Tell(tell) => {
                if let MembershipDelivery::View(view) = &tell
                    && let Some(me) = view.at(cx.me())
                {
                    cx.call("detector", Box::new(watch(view, me, self.k_obs)));
                }
                tell_up(&tell, self.publish, cx);
            }
            AgreedOutput::Pass(tell) => cx.up(tell.message(cx.me())),
            AgreedOutput::Ask(ask) => {
                if let Some(message) = ask.message() {
                    cx.down(message);
                }
            }
        }
    }
}

fn tell_message(me: Slot, tell: &MembershipDelivery) -> Message {
    let (ty, body) = match tell {
        MembershipDelivery::View(view) => {
            (VIEW, [view.no().to_le_bytes(), view.digest().to_le_bytes()].concat())
        }
        MembershipDelivery::Excluded => (EXCLUDED, Vec::new()),
        MembershipDelivery::Suspended(on) => (SUSPENDED, vec![u8::from(*on)]),
    };
    Message { src: me, ..Message::new(me, ty, body) }
}

/// Tells the layer above, the overlay, and the runtime what the view is.
fn tell_up(tell: &MembershipDelivery, publish: bool, cx: &mut Ctx<'_>) {
    if let MembershipDelivery::View(view) = tell {
        if publish {
            cx.set_view(view.no(), &view.slots().collect::<Vec<_>>());
        }
        cx.call("overlay", Box::new(OverlayRequest::View(view.clone())));
    }
    cx.up(tell_message(cx.me(), tell));
}

/// The request that another layer or a simulation makes.
fn ask(what: &dyn Any) -> Option<MembershipRequest> {
    if let Some(ask) = what.downcast_ref::<MembershipRequest>() {
        return Some(ask.clone());
    }
    if let Some(RoundTrip(ns)) = what.downcast_ref() {
        return Some(MembershipRequest::RoundTrip(*ns));
    }
    match what.downcast_ref::<Injected>()? {
        Injected::Suspect(slot) => Some(MembershipRequest::Suspect(*slot, Evidence::Reported)),
        Injected::Trust(slot) => Some(MembershipRequest::Trust(*slot)),
        _ => None,
    }
}

/// The registry with the layers `membership` (agreed) and `membership-paper`.
///
/// Parameters of both: `members` of the first view (all), `arity` (4), `core` (5), `root` (`oldest`, or
/// `lowest`), `publish` (true), and the times of their settings ([`AgreedSettings`], [`Settings`]).
#[must_use]
pub fn layers(registry: Registry) -> Registry {
    let registry = registry.with(MEMBERSHIP, |build| {
        let (me, view) = place(build)?;
        let (usual, params) = (AgreedSettings::default(), &mut *build.params);
        let k_obs = params.number("k_obs", usual.k_obs.into())?;
        let settings = AgreedSettings {
            k_obs: u32::try_from(k_obs).unwrap_or(u32::MAX).min(64),
            window: params.duration("window", usual.window)?,
            window_sure: params.duration("window_sure", usual.window_sure)?,
            batch_max: params.duration("batch_max", usual.batch_max)?,
            retry: params.duration("retry", usual.retry)?.max(Duration::from_nanos(1)),
            rejoin: params.flag("rejoin", usual.rejoin)?,
            #[cfg(debug_assertions)]
            no_cut: params.flag("mutant_23", false)?,
            #[cfg(debug_assertions)]
            name_twice: params.flag("mutant_27", false)?,
        };
        let wire = AgreedWire { publish: params.flag("publish", true)?, k_obs: settings.k_obs };
        let restored = cast::restored(build, &view);
        let machine = Agreed::new(me, view, settings);
        let machine = match restored {
            Some(member) => {
                let own = build.journals.and_then(|journals| journals.of(MEMBERSHIP).last());
                machine.restored(member, own)
            }
            None => machine,
        };
        Ok(Box::new(Adapter::new(machine, wire)) as Box<dyn Layer>)
    });
    registry.with("membership-paper", |build| {
        let (me, view) = place(build)?;
        let (usual, params) = (Settings::default(), &mut *build.params);
        let settings = Settings {
            compute: params.duration("compute", usual.compute)?,
            window: params.duration("window", usual.window)?,
            join_window: params.duration("join_window", usual.join_window)?,
            late: params.duration("late", usual.late)?,
            silent: params.duration("silent", usual.silent)?,
            retry: params.duration("retry", usual.retry)?,
            join: params.duration("join", usual.join)?,
        };
        let publish = params.flag("publish", true)?;
        let layer = Adapter::new(Paper::new(me, view, settings), Wire { publish });
        Ok(Box::new(layer) as Box<dyn Layer>)
    })
}
