//! Trials: what measurements share. The order of settings, medians with their intervals ([`Estimate`]), tables
//! ([`Lines`]), claims and whether they hold ([`Claim`]), the machine ([`describe`]), and the two processes of a trial
//! ([`pair()`]).

mod machine;
mod output;
mod pair;
mod table;
mod trials;

pub use machine::{cpus, describe};
pub use output::{Claim, print};
pub use pair::{MARGIN, pair, said};
pub use table::{Lines, percent, share, with_interval};
pub use trials::{Estimate, order, ratio};
