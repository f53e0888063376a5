//! The layers that this program knows, by name: the farm of processors, group communication, clients and
//! servers, and what gives them something to do ([`crate::load`]).

use std::time::Duration;

use bytes::Bytes;
use itg_group::cast::service::{Case, Client, Replicated, Server};
use itg_group::cast::{self, Planted};
use itg_group::{detector, membership};
use itg_members::{Member, link};
use itg_process::{Layer, Registry, farm};

use crate::load;

/// All of them.
#[must_use]
pub fn registry() -> Registry {
    let registry = detector::layers(link::layers(farm::layers(Registry::new())));
    let registry = membership::layers(cast::layers(registry, Planted::default()));
    load::layers(registry)
        .with("server", |build| {
            let servers = build.params.number("servers", build.n.into())?;
            let servers = u32::try_from(servers).unwrap_or(u32::MAX);
            let server = Server::new(Box::new(Echo), servers, Planted::default());
            Ok(Box::new(server) as Box<dyn Layer>)
        })
        .with("client", |build| {
            let params = &mut *build.params;
            let servers = u32::try_from(params.number("servers", 1)?).unwrap_or(u32::MAX);
            let case = match params.text("ask")?.as_deref() {
                None | Some("all") => Case::All,
                Some("one") => Case::One,
                Some(other) => {
                    return Err(params.error_at("ask", format!("`{other}`: expected all or one")));
                }
            };
            let patience = params.duration("patience", Duration::from_secs(1))?;
            let direct = params.flag("direct", false)?;
            Ok(Box::new(Client::new(case, servers, patience, direct)) as Box<dyn Layer>)
        })
}

/// A replicated service without a state: it answers with the first bytes of the command.
struct Echo;

impl Replicated for Echo {
    fn apply(&mut self, _client: Member, command: &Bytes) -> Bytes {
        command.slice(..command.len().min(8))
    }

    fn save(&self) -> Bytes {
        Bytes::new()
    }

    fn load(&mut self, _state: &Bytes) {}
}
