//! `--local`: the whole experiment on this host, receiver and logs embedded.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::{Context as _, Result};
use itg_cli::{
    Loaded, PacingArgs, Sending, Signals, WordArgs, account, account_in_short, draw_run,
    send_plan_observed,
};
use itg_engine::{LogLimits, LogTarget};
use itg_experiment::Manifest;
use itg_node::Start;
use tokio::sync::watch;

use crate::directory::{RECEIVER_LOG, SENDER_LOG};
use crate::events::What;
use crate::figures;
use crate::live::Live;
use crate::receiver::receiver;
use crate::world::{Outcome, Output, Prepared, World, why};

/// Address of the receiver; its port is drawn.
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// This host.
#[derive(Clone, Copy, Debug, Default)]
pub struct Local {
    /// Options about pacing.
    pub pacing: PacingArgs,
}

impl World for Local {
    fn name(&self) -> &'static str {
        "local"
    }

    fn options(&self) -> Vec<String> {
        self.pacing.words()
    }

    fn prepare<'a>(&'a self, loaded: &'a mut Loaded) -> Result<Box<dyn Prepared + 'a>> {
        Ok(Box::new(Ready { loaded, pacing: self.pacing }))
    }
}

/// A run on this host.
struct Ready<'a> {
    loaded: &'a Loaded,
    pacing: PacingArgs,
}

impl Prepared for Ready<'_> {
    fn loaded(&self) -> &Loaded {
        self.loaded
    }

    fn receiver(&self) -> Option<SocketAddr> {
        Some(LISTEN)
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    fn carry_out(
        self: Box<Self>,
        output: &Output,
        _manifest: &Manifest,
        words: WordArgs,
    ) -> Result<Outcome> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        runtime.block_on(both_sides(self.loaded, output, self.pacing, words))
    }
}

/// Sends and receives on this host.
async fn both_sides(
    loaded: &Loaded,
    output: &Output,
    pacing: PacingArgs,
    words: WordArgs,
) -> Result<Outcome> {
    let signals = Signals::watch()?;
    let Output { dir, events, .. } = output;
    let live = output.live.then(|| Live::start(events, signals.stop.clone())).flatten();
    events.begin(What::run(&loaded.plan, "local", Vec::new()));
    let receiver = receiver(dir, LISTEN)?;
    let address = receiver.addresses().next().context("the receiver has no address")?;
    let (end, ended) = watch::channel(None);
    let receiving = tokio::spawn(receiver.serve(ended));

    let sending = Sending {
        packet_secret: None,
        giving_way: false,
        peer_timeout_ns: None,
        start: Start::Soon,
        plan: &loaded.plan,
        program: ("itg-cluster", env!("CARGO_PKG_VERSION")),
        run: draw_run(),
        pacing: pacing.options(&loaded.experiment.pacing),
        log: Some(LogTarget::File(dir.join(SENDER_LOG))),
        log_limits: LogLimits::default(),
        recv_log: None,
        progress: !words.quiet && live.is_none(),
        interval: None,
        settings: [("plan".to_owned(), loaded.plan.hash_text())].into(),
    };
    let (over, is_over) = tokio::sync::oneshot::channel();
    let mut following = None;
    let sent = send_plan_observed(
        sending,
        |_| Some(address),
        &signals,
        |lives| {
            let events = events.clone();
            let follow = figures::follow(lives, is_over, move |figures| events.statistics(figures));
            following = Some(tokio::spawn(follow));
        },
    )
    .await;
    over.send(()).unwrap_or_default();
    if let Some(following) = following {
        following.await.context("the figures stopped on a bug")?;
    }
    // The receiver ends by itself when the other end is held no more.
    end.send(Some("the run is over".to_owned())).unwrap_or_default();
    let received = receiving.await.context("the receiver stopped on a bug")?;
    let sent = sent?;
    let failures: Vec<String> =
        sent.outcome.failures.iter().map(|(_, error)| error.to_string()).collect();
    let logs = || sent.outcome.log.iter().chain(&received.log);
    let log_error = logs().find_map(|log| {
        let lost = log.lost_records;
        log.error.as_ref().map(|error| format!("{error} ({lost} records lost)"))
    });
    let errors = logs().filter_map(|log| log.error.clone()).chain(failures.iter().cloned());
    let stopped = signals.stop.borrow().clone();
    Ok(Outcome {
        logs: vec![dir.join(SENDER_LOG), dir.join(RECEIVER_LOG)],
        code: sent.code,
        interrupted: why(stopped, errors, sent.code),
        accounts: vec![account(&loaded.plan, &sent.outcome)],
        accounts_in_short: vec![account_in_short(&loaded.plan, &sent.outcome)],
        failures,
        log_error,
        ..Outcome::default()
    })
}
