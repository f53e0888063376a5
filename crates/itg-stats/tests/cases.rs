//! Tests of this crate as one program: `cargo test -p itg-stats --test cases NAME::` runs those of one file.

mod clock_report;
mod damaged;
mod filter;
mod gates;
mod metrics;
mod parallel;
mod partial_logs;
mod report;
mod schema;
mod twin;
mod verdicts;
