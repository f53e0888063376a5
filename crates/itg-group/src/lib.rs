//! Group communication: who is in, and what happens in which order, agreed by everybody, while hosts
//! crash, stall, vanish and return.
//!
//! | module | what |
//! |---|---|
//! | `roster` | sets of members as runs of slots, and changes of them |
//! | `member` | members, views, the order of succession |
//! | `radix` | home positions and the tree of a view |
//! | `link` | reliable links in order, between two lives of two processes |
//! | `detector` | who has been silent for too long |
//! | `membership` | how views come about |
//! | `cast` | atomic broadcast: the ordered log and its classical relatives |
//! | `overlay` | from one to all and from all to one along the tree |
//! | `model` | how long that should take |
//! | `check` | what must hold, whatever happens |
//!
//! Everything is a state machine: input and time in, actions out ([`itg_process::Machine`]).

pub mod cast;
pub mod check;
mod codec;
pub mod detector;
pub mod link;
mod member;
pub mod membership;
pub mod model;
pub mod overlay;
pub mod radix;
mod roster;

pub use member::{Member, RootPolicy, Rules, Shape, View, ViewChange, ViewError, ViewParts};
pub use radix::Arity;
pub use roster::{Changes, MAX_SLOTS, Roster, Run, Span};
