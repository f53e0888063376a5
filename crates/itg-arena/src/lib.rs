//! Clusters: contiguous bytes that are valid where they land. What is sent, stored and mapped is the
//! same region; nothing is serialised on the way.
//!
//! Every cluster starts with a [`Header`] of 64 bytes. A *flat* cluster holds objects of one fixed
//! size without references between them (log blocks); [`seal_flat`] writes its header in front of a
//! body that is already in place, and [`Flat::check`] is the only check its reader needs.
//!
//! Costs: sealing and checking read the body once, for its CRC-32C; nothing is copied or allocated.
//! Source: Expresso (clusters as the unit of transfer); the byte table is in `docs/formats.md`.

mod flat;
mod header;
mod schema;

pub use flat::{Flat, seal_flat};
pub use header::{
    ClusterError, FLAG_CRC, FLAG_FLAT, HEADER_LEN, Header, KIND_ISO, KIND_RELOC, MAGIC, VERSION,
};
pub use schema::schema_hash;
