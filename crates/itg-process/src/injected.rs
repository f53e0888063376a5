//! Facts that a simulation or a network tells a layer through [`crate::Layer::control`].

use crate::message::Slot;

/// Something that a layer is told, as if its world had done it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Injected {
    /// The failure detector suspects this process, whatever it has heard.
    Suspect(Slot),
    /// It trusts it again.
    Trust(Slot),
    /// The last connection to this process ended, and its host refuses another one: it does not run. Real
    /// networks say so, too, to the layer `detector`.
    Refused(Slot),
}
