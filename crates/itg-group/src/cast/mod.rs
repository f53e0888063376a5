//! Atomic broadcast: everybody delivers the same messages in the same order, while hosts crash, stall,
//! vanish and return.
//!
//! | module | what |
//! |---|---|
//! | `interface` | what all broadcasts are asked for and tell |
//! | `entry` | messages, batches, and their bytes |
//! | `backlog` | what waits to be ordered, and what has been delivered |
//! | `log` | the ordered log: consensus on batches, views as entries; the default |
//! | `reliable` | reliable broadcast, without order |
//! | `thesis` | fixed sequencer, Skeen, Chandra–Toueg in their failure-free forms |
//! | `uniform` | sequencer and Skeen that survive crashes, by cuts that the log decides |
//! | `service` | clients outside the group, each command applied once |
//! | `names` | the two layers of the thesis under its names |
//! | `layers` | all of them as layers, by name |
//! | `mutant` | planted faults, for tests |

mod backlog;
pub(crate) mod entry;
mod interface;
mod layers;
pub mod log;
mod mutant;
pub mod names;
pub mod reliable;
pub mod service;
pub mod thesis;
pub mod uniform;

pub use entry::{Body, Entry, Id, MOST_PAYLOAD, Value};
pub use interface::{Ask, CAST, Tell, code};
pub use layers::{CastWiring, layers};
pub use mutant::{Mutant, Planted};
pub use thesis::Algorithm;
