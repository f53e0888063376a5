//! The keys of a cluster: the files that `itg-cluster keys` makes, and the roles that certificates name.
//!
//! Both ends of a connection prove with them who they are (mutual TLS). This crate reads the files and makes the
//! configurations; it opens no connection, and knows neither agents nor log servers.

mod expiry;
mod keys;
mod roles;

pub use keys::{
    CA, CERTIFICATE, KEY, KeyDir, KeyError, Keys, REVOKED, explain, read_guarded, read_key,
    server_name,
};
pub use roles::{Holder, NAME, Role, node_label, node_name, plain};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExample;
