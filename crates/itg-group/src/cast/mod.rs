//! Atomic broadcast: all members deliver the same messages in the same order, while hosts crash,
//! stall, vanish and return.
//!
//! | module | what |
//! |---|---|
//! | `interface` | requests and deliveries of all broadcasts |
//! | `entry` | messages, batches, and their bytes |
//! | `event` | their events, and those of layers above them |
//! | `backlog` | messages that wait to be ordered, and those that have been delivered |
//! | `log` | the ordered log: consensus on batches, views as entries; the default |
//! | `reliable` | reliable broadcast, without order |
//! | `thesis` | fixed sequencer, Skeen, Chandra–Toueg in their failure-free forms |
//! | `uniform` | sequencer and Skeen that survive crashes, by cuts that the log decides |
//! | `service` | clients outside the group, each command applied once |
//! | `layers` | all of them as layers, by name |
//! | `mutant` | planted faults, for tests |

mod backlog;
mod entry;
mod event;
mod interface;
mod layers;
pub mod log;
mod mutant;
pub mod reliable;
pub mod service;
pub mod thesis;
pub mod uniform;

pub(crate) use entry::MOST_PART;
pub use entry::{Body, Entry, MOST_PAYLOAD, Value};
pub use event::{CastEvent, ReplicaEvent, ServiceEvent};
pub use interface::{CAST, CastDelivery, CastRequest, code};
pub use layers::{CastWiring, layers, restored};
pub use mutant::{Mutant, Planted};
pub use thesis::Algorithm;
