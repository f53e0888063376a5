//! Flat clusters: contiguous bytes that are valid where they land. What is sent, stored and mapped is the
//! same region; nothing is serialised on the way.
//!
//! Every cluster starts with a [`Header`] of 64 bytes. A *flat* cluster holds objects of one fixed size
//! without references between them (log blocks); [`seal_flat`] writes its header in front of a body that is
//! already in place, and [`Flat::check`] is the only check its reader needs. Clusters whose objects refer to
//! each other are in `itg_papers::clusters`, behind the same header.
//!
//! Input from outside is checked once, as a whole; any bytes are either refused with a reason, or are a
//! cluster that can be read without any failure. There is no `unsafe` here: bytes become values by zerocopy.
//!
//! Source: Expresso (clusters as the unit of transfer); the byte table is in `docs/formats.md`, what
//! is our own in `docs/decisions/0007-arena.md`.

mod flat;
mod header;
mod schema;

pub use flat::{Flat, flat_header, seal_flat};
pub use header::{
    ClusterError, FLAG_CRC, FLAG_FLAT, HEADER_LEN, Header, KIND_ISO, KIND_RELOC, MAGIC, VERSION,
};
pub use schema::schema_hash;

#[cfg(not(all(target_endian = "little", target_pointer_width = "64")))]
compile_error!("clusters are laid out for little-endian hosts with addresses of 64 bits");

/// The example of the README, compiled and run with the tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExample;
