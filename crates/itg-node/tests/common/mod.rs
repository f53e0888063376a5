//! Runs of a sender and a receiver in this process, over loopback.
#![allow(missing_docs, reason = "tests")]

use std::net::SocketAddr;
use std::path::Path;

use itg_core::distribution::Distribution;
use itg_core::flow::{Flow, FlowSpec};
use itg_core::payload::Content;
use itg_core::seed::RunSeed;
use itg_engine::{LogLimits, LogTarget, OnFull};
use itg_node::{Receiver, ReceiverOptions, SendFlow, SendJob, SendOutcome, send};
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// Change that makes a flow differ from the usual one.
pub(crate) type Edit = fn(&mut FlowSpec);

pub(crate) fn limits() -> LogLimits {
    // All blocks from the beginning: growing would be an allocation of its own.
    LogLimits { on_full: OnFull::Wait, pool_bytes: 4 << 20, ..LogLimits::default() }
}

pub(crate) fn receiver(log: Option<LogTarget>) -> Receiver {
    let options = ReceiverOptions::new("127.0.0.1:0".parse().expect("an address"))
        .log(log)
        .log_limits(limits())
        .once(true);
    Receiver::bind(options).expect("loopback")
}

pub(crate) fn flow(id: u32, receiver: SocketAddr, edit: impl FnOnce(&mut FlowSpec)) -> SendFlow {
    let mut spec = FlowSpec::new(id);
    edit(&mut spec);
    let flow = Flow::resolve(spec, RunSeed(1)).expect("a flow that can be run");
    SendFlow::new(flow, receiver, Content::random(RunSeed(1)))
}

pub(crate) fn job(flows: Vec<SendFlow>, log: Option<LogTarget>) -> SendJob {
    SendJob::new(RunSeed(1), flows).log(log).log_limits(limits())
}

/// A runtime of two threads.
pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime")
}

/// Sends so many packets, 20 us apart in the mean, with logs on both sides.
pub(crate) fn run(edit: Edit, packets: u64, dir: &Path) -> SendOutcome {
    let log = |name: &str| Some(LogTarget::File(dir.join(name)));
    runtime().block_on(async {
        let receiver = receiver(log("recv.itg"));
        let address = receiver.addresses().next().expect("one");
        let (_stop, stopped) = watch::channel(None);
        let serving = tokio::spawn(receiver.serve(stopped.clone()));
        let flow = flow(1, address, |spec| {
            spec.idt = Distribution::Exp { mean: 20_000.0 };
            spec.stop.packets = Some(packets);
            edit(spec);
        });
        let outcome = send(job(vec![flow], log("send.itg")), stopped).await.expect("sent");
        let counts = outcome.flows[0].counts.as_ref().expect("counted");
        assert_eq!(counts.packets, packets, "{outcome:?}");
        assert_eq!(serving.await.expect("served").packets, packets);
        outcome
    })
}
