//! One experiment over many nodes: agents, the console that starts them, and what they say to each other.
//!
//! | module | what |
//! |---|---|
//! | `trust` | keys, and connections that both sides have proved to belong to the cluster |
//! | `wire` | calls and replies on such a connection |
//! | `member` | this process as a member of the group of a run: the ordered log over those connections |
//! | `signs` | what it knows of why others have left it |
//! | `description` | what every node gets to know of an experiment |
//! | `agent` | serves one node: calls, and the run that it takes part in |
//! | `idle` | when an agent ends its part in a run that nobody ends |
//! | `work` | the part of a run that a node does: its receiver, its senders |
//! | `worker` | a process of its own that sends flows |
//! | `workers` | these processes as their agent sees them |
//! | `policy` | what an agent refuses |
//! | `console` | `itg-cluster run FILE` over agents |
//! | `figures` | what nodes know of their flows while they run, merged up the tree |
//! | `metrics` | the same for Prometheus |
//! | `watch` | what the console sees of a run, as events |
//! | `collect` | logs of all nodes, and what they say of the start |
//! | `ctl` | `itg-cluster status` and `ctl` |

pub(crate) mod agent;
mod collect;
pub(crate) mod console;
pub(crate) mod ctl;
mod description;
mod ends;
pub(crate) mod figures;
mod idle;
mod member;
mod metrics;
mod policy;
mod signs;
pub(crate) mod trust;
pub(crate) mod watch;
mod wire;
mod work;
pub(crate) mod worker;
mod workers;
