//! Code that the tests of broadcasts share.
#![allow(dead_code, reason = "not every test uses everything")]
#![allow(unreachable_pub, reason = "a module of each test")]

pub mod chat;
pub mod clients;
pub mod explore;
pub mod order;
pub mod promises;

use itg_core::seed::RunSeed;
use itg_group::cast::{self, Planted};
use itg_process::{Config, Registry};
use itg_sim::World;

/// Processes of these layers on this network, in virtual time.
pub fn world(n: u32, network: &str, layers: &str, planted: Planted, seed: u64) -> World {
    let text = format!(
        "processes = {n}\n[[network]]\nname = \"main\"\n{network}\n[[process]]\nlayers = [{layers}]"
    );
    let registry = registry(planted);
    let config = Config::parse(&text, "test.toml").expect("well written");
    World::new(&config, &registry, RunSeed(seed)).expect("known layers and networks")
}

/// The broadcasts and their users.
pub fn registry(planted: Planted) -> Registry {
    chat::layers(cast::layers(Registry::new(), planted))
}
