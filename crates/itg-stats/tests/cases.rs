//! Tests of this crate as one program: `cargo test -p itg-stats --test cases NAME::` runs those of one file.

mod account;
mod bins;
mod clock_report;
mod clock_set;
mod curve;
mod damaged;
mod delay;
mod figures;
mod filter;
mod gates;
mod markdown;
mod metrics;
mod parallel;
mod partial_logs;
mod plan;
mod promise;
mod report;
mod schema;
mod sequence;
mod series;
mod sum;
mod tcp;
mod twin;
mod verdicts;
