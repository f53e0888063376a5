//! Tests of this crate as one program: `cargo test -p itg-group --test cases NAME::` runs those of one file.

mod agreed;
mod cast_bytes;
mod cast_clients;
mod cast_interleavings;
mod cast_linear;
mod cast_log;
mod cast_reliable;
mod cast_snapshots;
mod cast_thesis;
mod cast_uniform;
mod casts;
mod common;
mod oracles;
mod overlay;
mod paper;
mod ring;
mod scenarios;
mod starts;
