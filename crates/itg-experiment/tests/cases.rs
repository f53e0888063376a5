//! Tests of this crate as one program: `cargo test -p itg-experiment --test cases NAME::` runs those of one file.

mod estimates;
mod examples;
mod files;
mod page;
mod plans;
mod sweeps;
