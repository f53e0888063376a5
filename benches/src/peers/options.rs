//! Options of the measurement.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Table of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Table {
    /// One flow, as fast as can be, each packet by itself
    Rates,
    /// The same in bursts that the kernel cuts and joins
    Bursts,
    /// Accuracy of inter-departure times
    Gaps,
    /// 10 000 flows, and 64 against one
    Flows,
    /// 100 000 flows that share sockets, to two receivers
    Crowd,
    /// A paced flow with noisy flows beside it
    Noise,
    /// A receiver of several threads
    Shards,
    /// TCP in bulk
    Tcp,
    /// One flow past the network stack, as fast as can be, over veth
    Frames,
}

/// Interface between sender and receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Over {
    /// Loopback
    Lo,
    /// A pair of virtual interfaces between two namespaces
    Veth,
}

/// Options of `peers`.
#[derive(Debug, Args)]
pub(crate) struct PeersArgs {
    /// These tables only
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(super) only: Vec<Table>,
    /// Over these interfaces only
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(super) over: Vec<Over>,
    /// Payload bytes of packets, for rates, bursts and frames
    #[arg(long, value_delimiter = ',', default_value = "64,512,1472")]
    pub(super) sizes: Vec<usize>,
    /// Packets a second, for inter-departure times
    #[arg(long, value_delimiter = ',', default_value = "100,1000,10000,100000")]
    pub(super) rates: Vec<u32>,
    /// Distributions of inter-departure times: constant, exponential, pareto, uniform
    #[arg(long, value_delimiter = ',', default_value = "constant,exponential,pareto,uniform")]
    pub(super) laws: Vec<String>,
    /// Trials of each setting
    #[arg(long, default_value_t = 5)]
    pub(super) runs: usize,
    /// Length of a trial in seconds
    #[arg(long)]
    pub(super) seconds: Option<u64>,
    /// A look: three trials of one size over loopback, inter-departure times at two rates
    #[arg(long)]
    pub(super) quick: bool,
    /// Write the figures to this file as JSON
    #[arg(long)]
    pub(super) json: Option<PathBuf>,
}

impl PeersArgs {
    pub(super) fn wants(&self, table: Table) -> bool {
        self.only.is_empty() || self.only.contains(&table)
    }

    pub(super) fn runs(&self) -> usize {
        if self.quick { self.runs.min(3) } else { self.runs.max(1) }
    }

    pub(super) fn sizes(&self) -> Vec<usize> {
        if self.quick { self.sizes.iter().copied().take(1).collect() } else { self.sizes.clone() }
    }

    pub(super) fn seconds(&self, usual: u64) -> u64 {
        self.seconds.unwrap_or(if self.quick { 1 } else { usual }).max(1)
    }

    pub(super) fn over(&self, over: Over) -> bool {
        (self.over.is_empty() || self.over.contains(&over)) && !(self.quick && over == Over::Veth)
    }
}
