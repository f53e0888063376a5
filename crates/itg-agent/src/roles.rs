//! Requests that the roles of a certificate allow its holder to make of an agent.

use itg_trust::{Holder, Role};

use crate::wire::{Call, Join};

/// Checks that the holder of a certificate may ask for this.
///
/// # Errors
/// None of its roles allows it.
pub(crate) fn may(holder: &Holder, call: &Call) -> Result<(), String> {
    match call {
        Call::Clock => Ok(()),
        Call::Join(join) if from_console(join) => holder.must_be(&[Role::Console]),
        Call::Join(_) => holder.must_be(&[Role::Agent]),
        Call::Status | Call::Runs | Call::List(_) | Call::Fetch { .. } => {
            holder.must_be(&[Role::Reader, Role::Console])
        }
        Call::Forget(_) | Call::Command(_) | Call::Rate { .. } => holder.must_be(&[Role::Console]),
    }
}

/// True if the caller says that it is the console of the run, its last member.
fn from_console(join: &Join) -> bool {
    join.from as usize + 1 >= join.addresses.len()
}
