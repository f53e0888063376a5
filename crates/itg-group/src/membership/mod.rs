//! Membership: who is in, as views that follow each other.
//!
//! | module | what |
//! |---|---|
//! | `message` | the messages of the paper, their bytes and names |
//! | `paper` | mode P: the root alone decides; for accurate detectors |
//! | `layer` | both as layers, by name |

mod layer;
mod message;
mod paper;

pub use layer::{EXCLUDED, VIEW, layers};
pub use message::{Ask, Cause, Down, Evidence, Say, Tag, Tell, Timer, name};
pub use paper::{Paper, Settings as PaperSettings};
