//! Memberships as layers.

use std::any::Any;
use std::ops::RangeInclusive;

use bytes::Bytes;
use itg_process::{
    Adapter, Build, ConfigError, Ctx, Injected, Layer, Message, Registry, Slot, Wiring,
};

use super::message::{Ask, Evidence, FIRST, LAST, Say, Tell};
use super::paper::{Paper, Settings};
use crate::member::{Member, RootPolicy, Rules, View};
use crate::radix::Arity;

/// Type of the message that goes up with each view, over no network: its number and digest, two u64.
pub const VIEW: u32 = 920;
/// Type of the message that goes up when this process is no member any more; empty.
pub const EXCLUDED: u32 = 921;

/// Messages of a membership on a wire.
#[derive(Clone, Copy, Debug)]
struct Wire {
    /// Whether the runtime is told the slots of each view.
    publish: bool,
}

impl Wiring<Paper> for Wire {
    fn types(&self) -> &[RangeInclusive<u32>] {
        &[FIRST..=LAST]
    }

    fn encode(&self, say: &Say) -> (u32, Bytes) {
        (say.ty(), say.encode())
    }

    fn decode(&self, ty: u32, body: &Bytes) -> Option<Say> {
        Say::decode(ty, body)
    }

    fn request(&self, message: Message) -> Result<Ask, Message> {
        Err(message)
    }

    fn delivery(&self, me: Slot, tell: Tell) -> Message {
        let (ty, body) = match tell {
            Tell::View(view) => {
                (VIEW, [view.no().to_le_bytes(), view.digest().to_le_bytes()].concat())
            }
            Tell::Excluded => (EXCLUDED, Vec::new()),
        };
        Message { src: me, ..Message::new(me, ty, body) }
    }

    fn control(&self, what: &dyn Any) -> Option<Ask> {
        ask(what)
    }

    fn hand_over(&self, tell: Tell, cx: &mut Ctx<'_>) {
        if self.publish
            && let Tell::View(view) = &tell
        {
            cx.set_view(view.no(), &view.slots().collect::<Vec<_>>());
        }
        cx.up(<Self as Wiring<Paper>>::delivery(self, cx.me(), tell));
    }
}

/// The request that another layer or a simulation makes.
fn ask(what: &dyn Any) -> Option<Ask> {
    if let Some(ask) = what.downcast_ref::<Ask>() {
        return Some(ask.clone());
    }
    match what.downcast_ref::<Injected>()? {
        Injected::Suspect(slot) => Some(Ask::Suspect(*slot, Evidence::Reported)),
        Injected::Trust(slot) => Some(Ask::Trust(*slot)),
        _ => None,
    }
}

/// Who this process is, and the first view: all processes, or the first `members` of them.
///
/// # Errors
/// Parameters that make no view.
pub(crate) fn place(build: &mut Build<'_>) -> Result<(Member, View), ConfigError> {
    let members = build.params.number("members", build.n.into())?;
    let members = u32::try_from(members).unwrap_or(u32::MAX).clamp(1, build.n.max(1));
    let usual = Rules::default();
    let arity = build.params.number("arity", usual.arity.get().into())?;
    let arity = Arity::try_from(u32::try_from(arity).unwrap_or(u32::MAX))
        .map_err(|error| build.params.error_at("arity", error))?;
    let core = build.params.number("core", usual.core.into())?;
    let core = u8::try_from(core).unwrap_or(u8::MAX).max(1);
    let root_policy = match build.params.text("root")?.as_deref() {
        None | Some("oldest") => RootPolicy::Oldest,
        Some("lowest") => RootPolicy::Lowest,
        Some(other) => {
            let text = format!("`{other}`: expected oldest or lowest");
            return Err(build.params.error_at("root", text));
        }
    };
    let me = Member::new(build.me, build.incarnation);
    Ok((me, View::first(members, Rules { arity, core, root_policy })))
}

/// The registry with the layer `membership-paper`.
///
/// Parameters: `members` of the first view (all), `arity` (4), `core` (5), `root` (`oldest`, or
/// `lowest`), `publish` (true), and the times of [`Settings`].
#[must_use]
pub fn layers(registry: Registry) -> Registry {
    registry.with("membership-paper", |build| {
        let (me, view) = place(build)?;
        let (usual, params) = (Settings::default(), &mut *build.params);
        let settings = Settings {
            compute: params.time_ns("compute", usual.compute)?,
            window: params.time_ns("window", usual.window)?,
            join_window: params.time_ns("join_window", usual.join_window)?,
            late: params.time_ns("late", usual.late)?,
            silent: params.time_ns("silent", usual.silent)?,
            retry: params.time_ns("retry", usual.retry)?,
            join: params.time_ns("join", usual.join)?,
        };
        let publish = params.flag("publish", true)?;
        let layer = Adapter::new(Paper::new(me, view, settings), Wire { publish });
        Ok(Box::new(layer) as Box<dyn Layer>)
    })
}
