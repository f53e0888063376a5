//! Clusters: contiguous bytes that are valid where they land. What is sent, stored and mapped is the
//! same region; nothing is serialised on the way.
//!
//! Every cluster starts with a [`Header`] of 64 bytes.
//!
//! - A *flat* cluster holds objects of one fixed size without references between them (log blocks);
//!   [`seal_flat`] writes its header in front of a body that is already in place, and [`Flat::check`]
//!   is the only check its reader needs.
//! - A [`Cluster`] holds objects that refer to each other: structs, arrays, strings, with cycles and
//!   sharing. References are offsets ([`ClusterReloc`]) or addresses ([`ClusterIso`]); programs are
//!   written once for both, over [`Kind`]. [`object!`] makes the types, [`schema!`] lists them.
//!
//! ```
//! use itg_arena::{ClusterReloc, Ref, object, schema};
//!
//! object! { pub struct Engine { pub power: u32 where 1..=2000 } }
//! object! { pub struct Car<K> { pub year: u32, pub engine: Ref<Engine, K> } }
//! schema! { pub struct Cars = "example.cars.1"; roots: Car<K>; others: Engine; }
//!
//! let mut c = ClusterReloc::<Cars>::with_capacity(1024);
//! let engine = c.alloc(Engine { power: 50 })?;
//! let car = c.alloc(Car { year: 2000, engine })?;
//! c.set_root(car);
//! let mut wire = Vec::new();
//! c.send(&mut wire)?; // one vectored write; the cluster is borrowed, not consumed
//!
//! let v = ClusterReloc::<Cars>::recv(&mut wire.as_slice(), 1 << 20)?.validate()?;
//! let car: &Car<_> = v.root().expect("a car");
//! assert_eq!(v.get(car.engine).map(|engine| engine.power), Some(50));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Input from outside is checked once, as a whole; any bytes are either refused with a reason and
//! its place, or are a cluster that can be read without any failure. There is no `unsafe` here:
//! bytes become values by zerocopy, and a program that mixes up references of two clusters panics.
//!
//! Costs: sending copies nothing, receiving reads the body to where it stays, validating is linear
//! and takes one bit for every 8 bytes and type that occurs. Little-endian hosts of 64 bits only.
//! Source: Expresso (clusters as the unit of transfer); the byte table is in `docs/formats.md`, what
//! is our own in `docs/decisions/0007-arena.md`.

mod bits;
mod cluster;
mod flat;
mod header;
mod macros;
mod memory;
mod object;
mod plain;
mod received;
mod reference;
mod refusal;
mod schema;
mod table;
mod validate;

pub use cluster::{Cluster, ClusterIso, ClusterReloc, RecvError};
pub use flat::{Flat, flat_header, seal_flat};
pub use header::{
    ClusterError, FLAG_CRC, FLAG_FLAT, HEADER_LEN, Header, KIND_ISO, KIND_RELOC, MAGIC, VERSION,
};
pub use memory::{Buffer, Fixed, Memory};
pub use object::{Member, Object, Refs, Root, Schema};
#[doc(hidden)]
pub use object::{ObjectHeader, Run};
pub use plain::Plain;
pub use received::Received;
pub use reference::{FixedAddress, Iso, Kind, Ref, Reloc};
pub use refusal::{Expected, Fault, Refusal, StoreError};
pub use schema::schema_hash;
pub use table::{
    Bound, Field, Name, SchemaMismatch, Shape, TABLE_LEN_MAX, Table, Type, compare_tables,
};
#[doc(hidden)]
pub use zerocopy;

#[cfg(not(all(target_endian = "little", target_pointer_width = "64")))]
compile_error!("clusters are laid out for little-endian hosts with addresses of 64 bits");

/// The example of the README, compiled and run with the tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExample;
