//! The vocabulary of the end-to-end tests in `tests/tests/` and `tests/long/`: programs with deadlines, receivers,
//! senders, relays that impair, decoded logs, network namespaces and packet captures.
//!
//! The programs are those that cargo has built beside the test (`target/debug`): run the tests with
//! `--workspace`, or build the programs first. Everything that goes wrong panics with the words of
//! the program. Every guard cleans up when it is dropped: processes are killed and reaped,
//! namespaces and mounts removed.
#![allow(clippy::missing_panics_doc, reason = "in tests everything that goes wrong panics")]

mod account;
mod capture;
mod cases;
mod classic;
mod cluster;
mod cluster_logs;
mod decode;
mod ditg;
mod faults;
mod firewall;
mod group;
mod imports;
mod intervals;
mod log_server;
mod namespace;
mod peer;
mod program;
mod receiver;
mod relay;
mod repository;
mod slow;
mod tokens;

pub use account::{Account, accounts};
pub use capture::{Capture, CapturedPacket};
pub use cases::{Case, DATAGRAMS, LONG, PLAIN, REPLIES, REQUESTS, Run, Way, adds_up, pause, table};
pub use classic::{
    ClassicLogServer, ClassicPeer, ClassicReceiver, classic_send, classic_sender, own_address,
};
pub use cluster::{Authority, Cluster, cluster_keys, cluster_program, flow_packets};
pub use cluster_logs::{each_record, logs_below};
pub use decode::{Packet, decode, json, lists, packets};
pub use ditg::{is_listening, itgdec, listens, not_run_without_d_itg, real, takes_datagrams};
pub use faults::{Fault, Harm, KINDS, Kind, Lost, Process};
pub use firewall::NFT;
pub use group::{Group, Judged};
pub use imports::circles;
pub use intervals::{IntervalLine, interval_lines};
pub use itg_testkit::child::{Output, Running, children};
pub use itg_testkit::host::{
    Tmpfs, clock_ticks, free_port, in_parallel, leave_out, not_run, open_files, temp_dir,
    two_ports, wait_for, write_secret,
};
pub use log_server::{LogServer, experiments, stored};
pub use namespace::{Namespace, Pair, Switch};
pub use peer::{Peer, now_ns, packet};
pub use program::program;
pub use receiver::{Receiver, send, sender};
pub use relay::{Impairment, Passed, Relay, Relayed, Traffic};
pub use repository::{files, root};
pub use slow::Slow;
