//! Pages for Prometheus of the programs that send and receive: the same families with the same labels on all of them.
//!
//! What is not known is left out. Counters never go back while a program lives.

mod classes;
mod flows;
mod receiver;
#[cfg(feature = "send")]
mod sender;

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use itg_node::metrics::{MetricsPage, MetricsServer};
use itg_socket::clock;
use tokio::task::JoinHandle;

pub use classes::{Classes, LATENESS_BOUNDS_NS};
pub use flows::{FlowFacts, FlowLabels, MOST_FLOWS, write_flows, write_lateness};
pub use receiver::ReceiverPage;
#[cfg(feature = "send")]
pub use sender::{SenderMetrics, SenderMetricsArgs};

use crate::failure::Failure;
use crate::verbosity::say;

/// Option of programs that have a page for Prometheus.
#[derive(Clone, Debug, Default, Args)]
pub struct MetricsArgs {
    /// Tell Prometheus at http://ADDR:PORT/metrics what this program does; not encrypted, open to
    /// whoever reaches the port
    #[arg(long, help_heading = "Watching", value_name = "ADDR:PORT")]
    pub metrics: Option<SocketAddr>,
    /// Answer requests for --metrics that call this host NAME, too; others have to use its address, its host name or
    /// localhost (may be given several times)
    #[arg(long, help_heading = "Watching", value_name = "NAME", requires = "metrics")]
    metrics_host: Vec<String>,
}

impl MetricsArgs {
    /// Listens where the page shall be, if it shall be anywhere, and says where that is.
    ///
    /// # Errors
    /// A port that is taken, an address that this host does not have.
    pub async fn bind(&self, quiet: bool) -> Result<Option<MetricsServer>> {
        let Some(at) = self.metrics else { return Ok(None) };
        let bound = MetricsServer::bind(at).await;
        let bound = bound.map_err(|error| Failure::new(2, format!("--metrics {at}: {error}")))?;
        if !quiet {
            say(format_args!("metrics on http://{}/metrics", bound.address()?));
        }
        Ok(Some(bound.named(self.metrics_host.iter().cloned())))
    }
}

/// A program, for its page.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    name: &'static str,
    version: &'static str,
    started_unix_ns: u64,
}

impl Program {
    /// A program that starts now.
    #[must_use]
    pub fn started(name: &'static str, version: &'static str) -> Self {
        Self { name, version, started_unix_ns: clock::unix_ns() }
    }

    /// A page that begins with it.
    #[must_use]
    pub fn page(&self) -> MetricsPage {
        MetricsPage::new(self.name, self.version, self.started_unix_ns)
    }
}

/// Serves the page of a receiver for as long as the task runs.
pub fn serve_receiver(
    server: MetricsServer,
    program: Program,
    receiver: &itg_node::Receiver,
) -> JoinHandle<()> {
    let page = Arc::new(ReceiverPage::new(program, receiver.observe()));
    tokio::spawn(server.serve(move || {
        let page = Arc::clone(&page);
        async move { page.text().await }
    }))
}
