//! The first view, from the parameters of a layer.

use itg_process::{Build, ConfigError};

use crate::member::{Member, RootPolicy, Rules, View};
use crate::radix::Arity;

/// This process as a member, and the first view: all processes, or the first `members` of them.
///
/// # Errors
/// Parameters that make no view.
pub fn place(build: &mut Build<'_>) -> Result<(Member, View), ConfigError> {
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
    let me = Member::born(build.me, build.incarnation);
    Ok((me, View::first(members, Rules { arity, core, root_policy })))
}
