//! Rates of the whole path on this host: real senders and receivers, both logging every packet,
//! over the loopback interface.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use itg_core::distribution::Distribution;
use itg_core::flow::{Flow, FlowSpec};
use itg_core::payload::Content;
use itg_core::seed::RunSeed;
use itg_engine::LogTarget;
use itg_engine::pacing::{PacingOptions, Prepared};
use itg_node::{Receiver, ReceiverOptions, SendFlow, SendJob};
use itg_stats::{Analysis, Options};
use serde::Serialize;
use tokio::sync::watch;

/// Size of the packets in bytes.
pub(super) const SIZE: u32 = 512;
/// Name for peers and logs.
const PROGRAM: &str = "itg-send doctor";

/// One run at one rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Trial {
    /// Packets a second that were asked for; 0: as many as can be.
    pub(super) asked_pps: u32,
    /// Packets a second that arrived.
    pub(super) arrived_pps: f64,
    /// Share of the packets that were lost.
    pub(super) lost: f64,
    /// 99th percentile of the lateness of packets, in nanoseconds.
    pub(super) lateness_p99_ns: u64,
}

/// Sends `rate_pps` packets a second (0: as many as can be) for `duration_ns` and decodes both logs,
/// which are kept in `dir` until then.
pub(super) async fn trial(
    rate_pps: u32,
    duration_ns: u64,
    options: PacingOptions,
    dir: &Path,
) -> Result<Trial> {
    let logs = [dir.join("sender.itg"), dir.join("receiver.itg")];
    let receiver = Receiver::bind(
        ReceiverOptions::new(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0))
            .log(LogTarget::File(logs[1].clone()))
            .program(PROGRAM, env!("CARGO_PKG_VERSION")),
    )?;
    let address = receiver.addresses().next().context("the receiver has no address")?;
    let (end, ended) = watch::channel(None);
    let receiving = tokio::spawn(receiver.serve(ended));
    let seed = RunSeed(1);
    let mut spec = FlowSpec::new(1);
    spec.idt = Distribution::Constant(if rate_pps == 0 { 0.0 } else { 1e9 / f64::from(rate_pps) });
    spec.size = Distribution::Constant(f64::from(SIZE));
    spec.stop.duration_ns = Some(duration_ns);
    let level = options.level.unwrap_or_default();
    let flow =
        SendFlow::new(Flow::resolve(spec, seed)?, address, Content::random(seed)).name("doctor");
    let job = SendJob::new(seed, vec![flow])
        .pacing(Prepared::new(level, options))
        .log(LogTarget::File(logs[0].clone()))
        .program(PROGRAM, env!("CARGO_PKG_VERSION"));
    let (_never, stop) = watch::channel(None);
    let outcome = itg_node::send(job, stop).await;
    end.send(Some("the trial is over".to_owned())).unwrap_or_default();
    receiving.await.context("the receiver stopped on a bug")?;
    let outcome = outcome?;
    if let Some((_, error)) = outcome.failures.first() {
        anyhow::bail!("the trial at {rate_pps} packets/s failed: {error}");
    }
    let found = decode(rate_pps, duration_ns, &logs);
    for log in &logs {
        fs::remove_file(log).with_context(|| log.display().to_string())?;
    }
    found
}

fn decode(asked_pps: u32, duration_ns: u64, logs: &[std::path::PathBuf; 2]) -> Result<Trial> {
    let bytes = [fs::read(&logs[0])?, fs::read(&logs[1])?];
    let mut analysis = Analysis::new(Options::default());
    for (bytes, path) in bytes.iter().zip(logs) {
        analysis.add_log(bytes, &path.display().to_string())?;
    }
    let total = analysis.finish().total.metrics;
    ensure!(total.packets > 0, "no packet arrived at {asked_pps} packets/s");
    let lateness_ns = match (asked_pps, total.lateness_ns) {
        // Nothing is asked for that they could be late for.
        (0, _) => 0,
        (_, lateness) => lateness.context("the lateness of the packets is not known")?.p99,
    };
    Ok(Trial {
        asked_pps,
        // A sender that is late may go on past its time.
        arrived_pps: total.packets as f64 * 1e9 / duration_ns.max(total.duration_ns) as f64,
        lost: total.loss_share().context("how many packets were lost is not known")?,
        lateness_p99_ns: u64::try_from(lateness_ns).unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use itg_record::{FlowEnd, ReceivedPacket, Record, SentPacket, Side};
    use itg_testkit::logs::{EPOCH, TestLog, end, plan, spec};

    use super::*;

    #[test]
    fn a_rate_that_is_kept_for_longer_than_asked_for_is_the_lower_one() {
        let dir = tempfile::tempdir().expect("a directory");
        let flow = spec(1, "constant(1ms)", "constant(64)", 100);
        let mut sender = TestLog::new(Side::Sender, "a");
        let mut receiver = TestLog::new(Side::Receiver, "a");
        let counted = FlowEnd { sent_packets: Some(100), received_packets: Some(100), ..end(0) };
        for log in [&mut sender, &mut receiver] {
            log.flow(0, &flow, ["a", "a"]);
        }
        for packet in plan(&flow) {
            let sent_ns = EPOCH + packet.due_ns * 3 / 2;
            let (seq, size, planned_ns) = (packet.seq, packet.size, packet.due_ns);
            sender.records([Record::sent(SentPacket { flow: 0, seq, size, planned_ns, sent_ns })]);
            receiver.records([Record::received(ReceivedPacket {
                flow: 0,
                seq,
                size,
                sent_ns,
                arrived_ns: sent_ns + 10,
                read_ns: sent_ns + 20,
                ttl: 64,
                tos: 0,
            })]);
        }
        let logs = [("s", sender), ("r", receiver)].map(|(name, mut log)| {
            log.end_flow(counted.clone());
            let path = dir.path().join(name);
            fs::write(&path, log.finish()).expect("written");
            path
        });
        let trial = decode(1000, 100_000_000, &logs).expect("a trial");
        assert!((trial.arrived_pps - 100.0 / 0.1485).abs() < 1.0, "{trial:?}");
        assert!(trial.lost.abs() < f64::EPSILON && trial.lateness_p99_ns > 40_000_000, "{trial:?}");
    }
}
