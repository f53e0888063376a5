//! Tests of this crate as one program: `cargo test -p itg-session --test cases NAME::` runs those of one file.

mod bytes;
mod codecs;
mod harness;
mod log_bytes;
mod log_harness;
mod log_messages;
mod log_producer_rules;
mod log_robustness;
mod log_server_rules;
mod log_simulation;
mod messages;
mod receiver_rules;
mod robustness;
mod run_files;
mod samples;
mod sender_rules;
mod simulation;
mod turn_rules;
