//! What the programs of ITG share: loading experiments, sending plans, progress on terminals,
//! signals, words on stderr, exit codes.
//!
//! The programs stay thin: they parse their command line, call this crate and the ones below, and
//! choose an exit code.

mod failure;
mod generate;
mod load;
mod log_args;
mod pacing_args;
mod progress;
mod sending;
mod signals;
mod words;

pub use failure::{Failure, finish, refuse};
pub use generate::parse;
pub use load::{LoadArgs, Loaded, draw_seed, load};
pub use log_args::{LogArgs, parse_throttle, read_secret};
pub use pacing_args::PacingArgs;
pub use sending::{Sending, SendingResult, account, announce, draw_run, log_failure, send_plan};
pub use signals::{Signals, stop_on_letter};
pub use words::{WordArgs, say};
