//! Clusters of objects that refer to each other, as in Expresso: contiguous bytes that are valid where they
//! land. What is sent, stored and mapped is the same region; nothing is serialised on the way.
//!
//! A [`Cluster`] holds structs, arrays and strings, with cycles and sharing, behind the [`Header`] of
//! `itg_arena`. References are offsets ([`ClusterReloc`]) or addresses ([`ClusterIso`]); programs are
//! written once for both, over [`Kind`]. [`object!`] makes the types, [`schema!`] lists them.
//!
//! ```
//! use itg_papers::clusters::{ClusterReloc, Ref, object, schema};
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
mod macros;
mod memory;
mod object;
mod plain;
mod received;
mod reference;
mod refusal;
mod table;
mod validate;

pub use itg_arena::{
    ClusterError, FLAG_CRC, HEADER_LEN, Header, KIND_ISO, KIND_RELOC, schema_hash,
};
#[doc(hidden)]
pub use zerocopy;

pub use self::cluster::{Cluster, ClusterIso, ClusterReloc, RecvError};
pub use self::memory::{Buffer, Fixed, Memory};
pub use self::object::{Member, Object, Refs, Root, Schema};
#[doc(hidden)]
pub use self::object::{ObjectHeader, Run};
pub use self::plain::Plain;
pub use self::received::Received;
pub use self::reference::{FixedAddress, Iso, Kind, Ref, Reloc};
pub use self::refusal::{Expected, Fault, Refusal, StoreError};
pub use self::table::{
    Bound, Field, Name, SchemaMismatch, Shape, TABLE_LEN_MAX, Table, Type, compare_tables,
};
pub use crate::{object, schema};
