//! Members of a group: which incarnations of which processes, as views that follow each other; and what follows
//! from a view without a message.
//!
//! | module | what |
//! |---|---|
//! | `roster` | sets of members as runs of slots, and changes of them |
//! | `member` | members, names of their messages, views, the order of succession |
//! | `radix` | home positions and the tree of a view |
//! | `observers` | observers of each member |
//! | `place` | the first view, from the parameters of a layer |
//! | `wire` | bytes of members and of names of messages |
//! | `link` | reliable links in order, between two incarnations of two processes |
//! | `overlay` | from one to all and from all to one along the tree |
//!
//! Which view is next, and the order of events, are agreed in `itg-group`.

pub mod link;
mod member;
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
