//! Membership: the members of a group, as views that follow each other.
//!
//! | module | what |
//! |---|---|
//! | `message` | the messages of the paper, their bytes and names |
//! | `paper` | mode P: the root alone decides; for accurate detectors |
//! | `agreed` | mode C, the default: a majority of the core decides, through the ordered log |
//! | `admitted` | the starts that the log has let in |
//! | `change` | causes of changes, and when positions become ranks |
//! | `event` | events of both |
//! | `layer` | both as layers, by name |

mod admitted;
mod agreed;
mod change;
mod event;
mod layer;
mod message;
mod paper;

pub use agreed::{
    Agreed, AgreedInput, AgreedOutput, AgreedRequest, Settings as AgreedSettings,
    Timer as AgreedTimer,
};
pub use event::MembershipEvent;
pub use layer::{EXCLUDED, SUSPENDED, VIEW, layers};
pub use message::{
    Cause, Down, Evidence, MembershipDelivery, MembershipMessage, MembershipRequest, Tag, Timer,
    name,
};
pub use paper::{Paper, Settings as PaperSettings};
