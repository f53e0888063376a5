//! A paced flow with noisy flows beside it: what it loses, and where its delay comes from.

use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use itg_trials::{Lines, order, print, with_interval};
use serde_json::Value;

use super::bars::Book;
use super::options::PeersArgs;
use super::tools::{RECEIVER, Stage};
use super::trial::{ours, progress, report};
use crate::programs::memory;

/// Packets a second of the paced flow.
const RATE: u32 = 1000;
const NOISY: u32 = 8;
/// Inter-departure times of a noisy flow: 100 packets at once, and so every 10 ms on average.
const BURSTS: &str = "mix(99:constant(0ns),1:exp(10ms))";
const SIZE: u32 = 512;

/// Parts of the delay in the report, and in the table.
const PARTS: [(&str, &str); 3] = [
    ("lateness_ns", "sender, p99 us"),
    ("network_ns", "network, p99 us"),
    ("stack_ns", "until read, p99 us"),
];

/// Figures of the paced flow in one trial.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Paced {
    lost: f64,
    /// Of these the kernel dropped at the receiver's socket.
    at_socket: f64,
    /// Time from the planned one until it is read, by [`PARTS`].
    parts_us: [f64; 3],
}

pub(super) fn run(args: &PeersArgs, stage: &Stage, book: &mut Book) -> Result<()> {
    let seconds = args.seconds(3);
    let table = format!("a flow of {RATE} packets/s, {NOISY} noisy flows beside it");
    let settings = [("alone", false), ("beside them", true)];
    let mut found: [Vec<Paced>; 2] = Default::default();
    for round in 0..args.runs() {
        progress(&table, round, args.runs());
        for place in order(settings.len(), round) {
            found[place].push(trial(stage, seconds, settings[place].1)?);
        }
    }
    let header = ["", "lost", "dropped at the socket, of all flows"].into_iter();
    let mut lines = Lines::new(header.chain(PARTS.map(|(_, name)| name)));
    for ((name, _), trials) in settings.iter().zip(&found) {
        let mut cell = |figure, digits, of: &dyn Fn(&Paced) -> f64| {
            let values: Vec<_> = trials.iter().map(of).collect();
            with_interval(book.figure(&table, name, figure, &values), digits)
        };
        let mut row = vec![
            (*name).to_owned(),
            cell("lost", 0, &|paced| paced.lost),
            cell("lost at the socket", 0, &|paced| paced.at_socket),
        ];
        for (part, (_, name)) in PARTS.iter().enumerate() {
            row.push(cell(name, 1, &|paced| paced.parts_us[part]));
        }
        lines.row(row);
    }
    print(format_args!(
        "\n{table}, each of {BURSTS} and {SIZE} B; {seconds} s, {} trials in turns\n\n{lines}\n",
        args.runs()
    ));
    let lost: f64 = found[1].iter().map(|paced| paced.lost).sum();
    book.bar(lost == 0.0, format!("{table}: it lost {lost:.0} packets in all trials, 0 wanted"));
    Ok(())
}

/// One receiver for all flows; the noisy ones begin first and end last.
fn trial(stage: &Stage, seconds: u64, noisy: bool) -> Result<Paced> {
    let work = tempfile::Builder::new().prefix("itg-bench-").tempdir_in(memory())?;
    let [sent, arrived] = ["s.itg", "r.itg"].map(|name| work.path().join(name));
    let log = ["--log".to_owned(), arrived.display().to_string()];
    let receiver = stage.programs.receiver(&stage.receiver, stage.address, &log, RECEIVER)?;
    let size = SIZE.to_string();
    let sender = |options: &[&str], seconds: u64| {
        ours(stage, &receiver.address, &[options, &["--size", &size]].concat(), seconds)
    };
    let noise = noisy
        .then(|| sender(&["--idt", BURSTS, "--flows", &NOISY.to_string()], seconds + 2))
        .transpose()?;
    if noisy {
        thread::sleep(Duration::from_millis(500));
    }
    let log = sent.display().to_string();
    let (paced, limit) = sender(&["--rate", &format!("{RATE}pps"), "--log", &log], seconds)?;
    paced.wait(limit)?.ended_with(&[0])?;
    if let Some((noise, limit)) = noise {
        noise.wait(limit)?.ended_with(&[0])?;
    }
    receiver.stop()?.ended_with(&[130])?;
    paced_flow(&report(stage, &[&sent, &arrived])?)
}

/// Figures of the flow whose sender's log is there, at its receiver.
fn paced_flow(report: &Value) -> Result<Paced> {
    let flows = report["flows"].as_array().context("flows")?;
    let ours = |flow: &&Value| flow["side"] == "receiver" && !flow["lateness_ns"].is_null();
    let flow = flows.iter().find(ours).context("the paced flow at its receiver")?;
    let number = |value: &Value, what: &'static str| value.as_f64().context(what);
    let ledger = &flow["ledger"];
    let mut parts_us = [0.0; 3];
    for (us, (part, name)) in parts_us.iter_mut().zip(PARTS) {
        *us = number(&ledger[part]["p99"], name)? / 1e3;
    }
    Ok(Paced {
        lost: number(&flow["lost"], "lost")?,
        at_socket: number(&ledger["loss"]["socket"], "lost at the socket")?,
        parts_us,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_paced_flow_is_the_one_with_the_log_of_its_sender() {
        let way = |p99: u64| json!({"p99": p99});
        let entry = |side: &str, late: Value, lost: Value| {
            json!({"side": side, "lateness_ns": late, "lost": lost, "ledger": {
                "lateness_ns": way(1000), "network_ns": way(2500), "stack_ns": way(4000),
                "loss": {"socket": 1}}})
        };
        let report = json!({"flows": [
            entry("receiver", Value::Null, json!(7)),
            entry("sender", way(1), Value::Null),
            entry("receiver", way(1), json!(3)),
        ]});
        let want = Paced { lost: 3.0, at_socket: 1.0, parts_us: [1.0, 2.5, 4.0] };
        assert_eq!(paced_flow(&report).expect("there"), want);
        assert!(paced_flow(&json!({"flows": []})).is_err());
    }
}
