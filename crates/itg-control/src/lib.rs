//! The replicated experiment: load, arm, start, stop, reassign, drain, end, carried out by all members of
//! a group in one order, while hosts crash, stall, vanish and return.
//!
//! | module | what |
//! |---|---|
//! | `command` | the commands, entries of the ordered log |
//! | `state` | what each member makes of them: a deterministic state machine, one word for each flow |
//! | `layer` | the layer `experiment` above `log` and `membership`: leases, the description, duties |
//! | `event` | its events |
//! | `interface` | what it is asked for and tells |
//! | `mutant` | planted faults, for tests |
//!
//! **One owner at a time.** A host sends packets of a flow only while it is the flow's owner in the prefix
//! of the log that it knows, *and* holds a lease. A lease is an entry of the log: its owner casts `Renew`
//! with the time `g` of its own clock, and when it delivers that entry as a member, it may send until
//! `g + lease`. A new owner begins no earlier than `lease · (1 + ρ)` after its own delivery of the view
//! without the old one. Why that is safe: let `p` be the position of that view. An entry of the old owner
//! behind `p` is void, also for the old owner, which learns at `p` that it is excluded. One before `p` was
//! cast before it was decided, so before `p` was decided, so before any member delivered `p`: `g` is earlier
//! than the new owner's delivery, and the lease ends within `lease · (1 + ρ)` of it. Every bound counts
//! from when something was sent. (The design grants leases in two levels, from the core to the root and from
//! the root to hosts; that needs to know the rounds of the consensus below. Here the log itself is the
//! only authority, at the price of one small entry for each sending host four times a lease.)
//!
//! A change of owner by command needs no wait: the old one's `Released` stands in the log before the new
//! one's start. A process that is started again on its slot is another member: its flows get a new fence
//! like those of any other member that has left.

mod command;
mod event;
mod interface;
mod layer;
mod mutant;
mod state;

pub use command::{Command, Failover, Orphan, Route, Rules};
pub use event::ControlEvent;
pub use interface::{ASK, ControlDelivery, ControlRequest, TELL};
pub use layer::{fence_wait, layers};
pub use mutant::{Mutant, Planted};
pub use state::{Change, Phase, Replica, Stage, TOO_LATE, Word};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExample;
