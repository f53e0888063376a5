//! `ITGSend`: command lines, scripts, distributions, application profiles, and the departures of a
//! flow.
//!
//! Options are read as D-ITG reads them (first letters, `atoi` and `strtod`, later ones override);
//! what it refuses is refused in its words. Where it crashes, loops or misleads, we do what was
//! meant; `docs/d-itg.md` lists every such place.

mod args;
mod departures;
mod distribution;
mod flow;
mod offered;
mod profile;
mod spec;
mod values;

pub use args::{HELP, Mode, THIRD_PARTY, parse, parse_request, parse_script, take_third_party};
pub use departures::{Departure, Departures};
pub use distribution::Distribution;
pub use flow::{
    DEFAULT_DURATION_MS, FlowArgs, HeaderKind, LogProto, LogServer, LogSettings, SIZE_MAX,
    SendError, Signalling, Source, Transport,
};
pub use offered::{Carried, CarryError, carried_sizes, carry};
pub use profile::App;
pub use spec::SpecError;
pub use values::{ValueError, read_values};
