//! Membership: who is in, as views that follow each other.
//!
//! | module | what |
//! |---|---|
//! | `message` | the messages of the paper, their bytes and names |
//! | `paper` | mode P: the root alone decides; for accurate detectors |
//! | `agreed` | mode C, the default: a majority of the core decides, through the ordered log |
//! | `observers` | who watches whom |
//! | `layer` | both as layers, by name |

mod agreed;
mod layer;
mod message;
mod observers;
mod paper;

pub use agreed::{Agreed, Do, Hear, Settings as AgreedSettings, Timer as AgreedTimer};
pub(crate) use layer::place;
pub use layer::{EXCLUDED, SUSPENDED, VIEW, layers};
pub use message::{Ask, Cause, Down, Evidence, Say, Tag, Tell, Timer, name};
pub(crate) use observers::marks;
pub use observers::observers;
pub use paper::{Paper, Settings as PaperSettings};
