//! Group communication: members, and the order of events, agreed by all, while hosts crash, stall,
//! vanish and return.
//!
//! | module | what |
//! |---|---|
//! | `roster` | sets of members as runs of slots, and changes of them |
//! | `member` | members, views, the order of succession |
//! | `radix` | home positions and the tree of a view |
//! | `observers` | observers of each member |
//! | `place` | the first view, from the parameters of a layer |
//! | `wire` | bytes of members and of names of messages |
//! | `link` | reliable links in order, between two incarnations of two processes |
//! | `detector` | processes that have been silent for too long |
//! | `membership` | views and their changes |
//! | `cast` | atomic broadcast: the ordered log and its classical relatives |
//! | `overlay` | from one to all and from all to one along the tree |
//! | `check` | properties that must hold, whatever happens |
//!
//! Everything is a state machine: input and time in, actions out ([`itg_process::Machine`]).

pub mod cast;
pub mod check;
mod codec;
pub mod detector;
pub mod link;
mod member;
pub mod membership;
pub mod observers;
pub mod overlay;
mod place;
pub mod radix;
mod roster;
pub mod wire;

pub use member::{Id, Member, RootPolicy, Rules, Shape, View, ViewChange, ViewError, ViewParts};
pub use place::place;
pub use radix::Arity;
pub use roster::{Changes, MAX_SLOTS, Roster, Run, Span};

/// The example of the README, compiled and run with the tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExample;
