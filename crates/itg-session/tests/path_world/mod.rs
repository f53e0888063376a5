//! Parts of the simulated world.

mod check;
mod dice;
mod disk;
mod ends;
mod logs;
mod net;
mod plan;
pub mod planted;
mod server;
pub mod world;
