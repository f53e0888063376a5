//! One experiment over many nodes: agents, the console that commands them, and what they say to each other.
//!
//! [`Agents`] is the world that `itg-run` carries runs out in, [`agent`] what serves a node. Workers are processes of their
//! own: a program that serves a node carries out [`worker::run`] when it is called as `worker --quiet`.
//!
//! | module | what |
//! |---|---|
//! | `keys` | `itg-cluster keys`: makes, renews and revokes keys |
//! | `roles` | who may ask an agent for what |
//! | `trust` | connections that both sides have proved to belong to the cluster |
//! | `wire` | calls and replies on such a connection |
//! | `state` | what an agent remembers through a restart |
//! | `member` | this process as a member of the group of a run: the ordered log over those connections |
//! | `failure_report` | what it knows of why others have left it |
//! | `description` | what every node gets to know of an experiment |
//! | `agent` | serves one node: calls, and the run that it takes part in |
//! | `idle` | decision of an agent to end its part in a run that no console ends |
//! | `restless` | flows that a node which is started again and again gives away |
//! | `work` | the part of a run that a node does: its receiver, its senders |
//! | `worker` | a process of its own that sends flows |
//! | `workers` | these processes as their agent sees them |
//! | `policy` | what an agent refuses |
//! | `options` | options of a run over agents |
//! | `console` | `itg-cluster run FILE` over agents |
//! | `metrics` | what a node knows of its flows while they run, for Prometheus |
//! | `watch` | what the console sees of a run, as events |
//! | `missing` | nodes that the console misses, since when, what it waits for |
//! | `collect` | logs of all nodes, and what they say of the start |
//! | `fetch` | `itg-cluster fetch`: the report of a run whose console is gone |
//! | `ctl` | `itg-cluster status` and `ctl` |

pub mod agent;
mod collect;
mod command_report;
mod console;
pub mod ctl;
mod description;
mod ends;
mod failure_report;
pub mod fetch;
mod finding;
mod handle;
mod idle;
pub mod keys;
mod member;
mod metrics;
mod missing;
mod options;
mod policy;
mod restless;
mod roles;
mod run_dir;
mod state;
mod status;
mod trust;
mod watch;
mod wire;
mod work;
pub mod worker;
mod workers;

pub use console::Agents;
pub use options::{AgentsOptions, FailoverArg, OrphanArg, Require};

/// The example of the README, compiled and run with the tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExample;
