//! The accounts of simulated flows: random plans through random networks, whose parts add up to the plan.
//!
//! `ITG_ACCOUNT_SEEDS=N` runs so many seeds, instead of those of the gate. A failure names its seed.
#![allow(clippy::print_stdout, reason = "what was tried")]

use std::collections::{BTreeMap, BTreeSet};

use itg_core::distribution::{Distribution, Unit};
use itg_core::flow::{Flow, FlowSpec, Late, Meter, OnOff, Proto, Stop};
use itg_core::seed::RunSeed;
use itg_process::{MS, Params};
use itg_record::{BlockBuf, FlowEnd, Item, Kind, LogBuilder, LogReader, Note};
use itg_sim::flows::{Logs, Network, RunInfo, SimFlow, simulate};
use itg_stats::packet_account::PacketAccount;
use itg_stats::report::{FlowReport, Report};
use itg_stats::{Analysis, Options};

/// Seeds of the gate.
const SEEDS: u64 = 2000;

/// Random numbers that depend on a seed alone (SplitMix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    fn percent(&mut self, share: u64) -> bool {
        self.below(100) < share
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::try_from(self.below(all.len() as u64)).expect("small")]
    }
}

/// A fault in what a program counts, for the checker to find.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Planted {
    None,
    /// Packets that the network dropped are no packets that were sent.
    DropNotCounted,
    /// The packets of a sender count twice.
    CountedTwice,
    /// The rest of the plan at the end is forgotten.
    RemainderForgotten,
}

fn plan(dice: &mut Dice, id: u32, seed: RunSeed) -> Flow {
    let idts = [
        "constant(1ms)",
        "constant(3ms)",
        "exp(1ms)",
        "exp(4ms)",
        "uniform(0,2ms)",
        "constant(50us)",
    ];
    let sizes = ["constant(64)", "constant(1200)", "uniform(24,1400)", "constant(16)", "exp(300)"];
    let time = |text: &str| Distribution::parse(text, Unit::Time).expect("a distribution");
    let size = Distribution::parse(dice.one_of(&sizes), Unit::Size).expect("a distribution");
    let mut stop = Stop::default();
    while stop == Stop::default() {
        stop.packets = dice.percent(60).then(|| 1 + dice.below(150));
        stop.duration_ns = dice.percent(50).then(|| (1 + dice.below(150)) * MS);
        stop.bytes = dice.percent(20).then(|| 1 + dice.below(60_000));
    }
    let mut spec = FlowSpec::new(id)
        .proto(dice.one_of(&[Proto::Udp, Proto::Udp, Proto::Tcp, Proto::Icmp]))
        .idt(time(dice.one_of(&idts)))
        .size(size)
        .start_ns(dice.below(80) * MS)
        .stop(stop)
        .meter(dice.one_of(&[Meter::Owd, Meter::Owd, Meter::Rtt]))
        .late(dice.one_of(&[Late::Keep, Late::Drop]));
    if spec.proto == Proto::Icmp {
        spec = spec.meter(Meter::Rtt);
    }
    if dice.percent(30) {
        let period = dice.one_of(&["exp(10ms)", "constant(20ms)", "uniform(1ms,30ms)"]);
        spec = spec.on_off(OnOff { on: time(period), off: time("exp(15ms)") });
    }
    Flow::resolve(spec, seed).expect("a flow that runs")
}

fn network(dice: &mut Dice) -> String {
    let mut text = match dice.below(5) {
        0 => "kind = \"ethernet\"\nrate = \"2Mbps\"\nqueue = 5\n".to_owned(),
        1 => "kind = \"switch\"\nrate = \"1Mbps\"\nqueue = 4\n".to_owned(),
        2 => "kind = \"random\"\nmean = \"5ms\"\n".to_owned(),
        _ => "kind = \"fixed\"\ndelay = \"2ms\"\n".to_owned(),
    };
    if text.contains("random") || text.contains("fixed") {
        let [loss, twice, late] = [dice.below(30), dice.below(20), dice.below(20)];
        let rate = dice.one_of(&["200kbps", "2Mbps", "100Mbps"]);
        text += &format!("loss = 0.{loss:02}\nduplication = 0.{twice:02}\nreorder = 0.{late:02}\n");
        text += &format!("reorder_by = \"10ms\"\nrate = \"{rate}\"\nqueue = 9000\n");
    }
    if dice.percent(40) {
        text += dice.one_of(&["lateness = \"200us\"\n", "lateness = \"6ms\"\n"]);
    }
    if dice.percent(30) {
        text += "clock_offset = \"3ms\"\nclock_drift_ppm = 30\n";
    }
    text
}

/// Packets that the logs of a run have of a flow, and what its description plans.
#[derive(Debug, Default)]
struct Truth {
    planned: Option<u64>,
    sent: u64,
    /// Different packets that arrived: at the receiver, and back at the sender.
    there: BTreeSet<u64>,
    back: BTreeSet<u64>,
    meter: Meter,
}

/// A run: what happened, and its two logs.
struct Ran {
    flows: BTreeMap<u32, Truth>,
    network: String,
    logs: [Vec<u8>; 2],
    /// Packets that the network dropped, of datagrams that go one way.
    dropped: Option<u64>,
}

fn run(seed: u64, planted: Planted) -> Ran {
    let mut dice = Dice(seed);
    let run_seed = RunSeed(seed);
    let plans: Vec<_> = (1..=1 + u32::try_from(dice.below(4)).expect("small"))
        .map(|id| plan(&mut dice, id, run_seed))
        .collect();
    let text = network(&mut dice);
    let mut params = Params::of_table(&text.parse().expect("TOML"), "[network]", "", None);
    let network = Network::read(&mut params, run_seed, 2, |_| None).expect("a network");
    let flows: Vec<_> = (0..)
        .zip(&plans)
        .map(|(k, flow)| {
            let (from, to) = (k % 2, (k + 1) % 2);
            SimFlow { flow, from, to, name: "flow", names: ("a", "b") }
        })
        .collect();
    let (mut sender, mut receiver) = (Vec::new(), Vec::new());
    let logs = Logs { sender: &mut sender, receiver: &mut receiver };
    let info = RunInfo { program: "test".to_owned(), ..RunInfo::default() };
    let summary = simulate(&flows, 2, network, run_seed, &info, logs).expect("a vector takes all");
    let mut truths: BTreeMap<u32, Truth> = BTreeMap::new();
    for flow in &plans {
        let planned = flow.has_plan().then(|| flow.schedule().count() as u64);
        let meter = flow.spec().meter;
        truths.insert(flow.spec().id, Truth { planned, meter, ..Truth::default() });
    }
    for item in [&sender, &receiver].into_iter().flat_map(|log| LogReader::new(log)) {
        let Item::Records { records, .. } = item else { continue };
        for record in records {
            let truth = truths.get_mut(&record.flow).expect("a flow");
            match record.kind {
                Kind::Sent => truth.sent += 1,
                Kind::Received => drop(truth.there.insert(record.seq)),
                Kind::Echoed => drop(truth.back.insert(record.seq)),
            }
        }
    }
    let sent: u64 = truths.values().map(|truth| truth.sent).sum();
    assert_eq!(sent, summary.packets.0, "seed {seed}: the sender's log has what was sent");
    let datagrams =
        plans.iter().all(|flow| flow.spec().proto != Proto::Tcp && flow.spec().meter == Meter::Owd);
    let dropped = datagrams.then(|| summary.dropped.values().sum());
    let logs = [sender, receiver].map(|log| rewritten(&log, planted, &truths));
    Ran { flows: truths, network: text, logs, dropped }
}

/// The log as a program with this fault would have written it.
fn rewritten(log: &[u8], planted: Planted, flows: &BTreeMap<u32, Truth>) -> Vec<u8> {
    if planted == Planted::None {
        return log.to_vec();
    }
    let mut builder = LogBuilder::new(7);
    let mut made = Vec::new();
    for item in LogReader::new(log) {
        match item {
            Item::Records { records, .. } => {
                let records: Vec<_> = records.collect();
                let mut block = BlockBuf::new(records.len());
                records.iter().for_each(|record| block.push(record));
                made.extend_from_slice(builder.seal(&mut block));
            }
            Item::Note { note: Note::FlowEnd(mut end), .. } => {
                let truth = &flows[&end.index];
                miscount(&mut end, planted, truth);
                made.extend(builder.note(&Note::FlowEnd(end)));
            }
            Item::Note { note: Note::End(_), .. } => made.extend(builder.end(0)),
            Item::Note { note, .. } => made.extend(builder.note(&note)),
            other => panic!("{other:?}"),
        }
    }
    made
}

fn miscount(end: &mut FlowEnd, planted: Planted, truth: &Truth) {
    let Some(sent) = &mut end.sent_packets else { return };
    match planted {
        Planted::None => {}
        Planted::DropNotCounted => *sent = truth.there.len().max(truth.back.len()) as u64,
        Planted::CountedTwice => *sent *= 2,
        Planted::RemainderForgotten => end.skipped_packets = Some(0),
    }
}

fn report(logs: &[&[u8]]) -> Report {
    let options = Options { interval_ns: Some(20 * MS), ..Options::default() };
    let mut analysis = Analysis::new(options);
    logs.iter().for_each(|log| analysis.add_log(log, "log").unwrap_or_default());
    analysis.finish()
}

/// Parts of an account, with the packets that were lost.
fn parts(account: &PacketAccount, lost: Option<u64>) -> [(&'static str, Option<u64>); 8] {
    [
        ("planned", account.planned),
        ("sent", account.sent),
        ("refused", account.refused),
        ("left_out", account.left_out),
        ("not_reached", account.not_reached),
        ("arrived", account.arrived),
        ("not_logged", account.not_logged),
        ("lost", lost),
    ]
}

/// Part that does not add up in the account of a flow, or is not known without a reason.
fn unsound(account: &PacketAccount, lost: Option<u64>) -> Result<(), String> {
    for (name, part) in parts(account, lost) {
        if part.is_none() && !account.why.contains_key(name) {
            return Err(format!("{name}: no reason"));
        }
    }
    let PacketAccount { planned, sent, refused, left_out, not_reached, arrived, .. } = *account;
    let PacketAccount { logged, not_logged, .. } = *account;
    let of = account.lost;
    let here = [of.socket, of.checksum, of.too_late, of.rebound, of.receiver_gone];
    let elsewhere = [of.sender_host, of.network, of.unknown];
    let placed = here.iter().chain(&elsewhere).flatten().sum();
    for (name, whole, sum) in [
        ("planned", planned, sum(&[sent, refused, left_out, not_reached])),
        ("sent", sent, sum(&[arrived, lost])),
        ("arrived", arrived, sum(&[logged, not_logged])),
        ("lost", lost, Some(placed)),
    ] {
        if let (Some(whole), Some(sum)) = (whole, sum)
            && whole != sum
        {
            return Err(format!("{name}: {whole}, its parts {sum}"));
        }
    }
    Ok(())
}

fn sum(parts: &[Option<u64>]) -> Option<u64> {
    parts.iter().try_fold(0, |sum, part| Some(sum + (*part)?))
}

/// Fault of the account of a flow, by what happened; `whole`: both logs tell.
fn wrong(flow: &FlowReport, truth: &Truth, whole: bool) -> Result<(), String> {
    let (account, lost) = (&flow.metrics.account, flow.metrics.lost);
    unsound(account, lost)?;
    let back = truth.meter == Meter::Rtt;
    let arrived = if back { &truth.back } else { &truth.there }.len() as u64;
    let at_receiver_of_replies = back && flow.side == "receiver";
    let arrived = (!at_receiver_of_replies).then_some(arrived);
    let unsent = truth.planned.map(|planned| planned - truth.sent);
    for (name, told, want) in [
        ("planned", account.planned, truth.planned),
        ("sent", account.sent, Some(truth.sent)),
        ("refused", account.refused, Some(0)),
        ("left_out and not_reached", sum(&[account.left_out, account.not_reached]), unsent),
        ("arrived", account.arrived, arrived),
        ("lost", lost, arrived.map(|arrived| truth.sent - arrived)),
    ] {
        match (told, want) {
            (Some(told), Some(want)) if told != want => {
                return Err(format!("{name}: {told} and not {want}"));
            }
            (None, Some(want)) if whole => return Err(format!("{name}: unknown and not {want}")),
            _ => {}
        }
    }
    Ok(())
}

/// The losses of windows are those of their flow, or unknown with a reason.
fn windows(report: &Report) -> Result<(), String> {
    let Some(course) = &report.intervals else { return Ok(()) };
    for (flow, own) in report.flows.iter().zip(&course.flows) {
        let lost: Option<Vec<u64>> = own.windows.iter().map(|row| row.lost).collect();
        match (lost, own.lost_why, flow.metrics.lost) {
            (None, Some(_), _) => {}
            (Some(by_window), None, Some(lost)) if by_window.iter().sum::<u64>() == lost => {}
            other => return Err(format!("windows of flow {}: {other:?}", flow.flow)),
        }
    }
    Ok(())
}

/// Fault of a run, by its logs: both, one of them, and each cut off where a disk was full.
fn check(ran: &Ran) -> Result<(), String> {
    let [sender, receiver] = ran.logs.each_ref().map(Vec::as_slice);
    let cut = |log: &'_ [u8]| {
        let at = Dice(log.len() as u64).below(log.len() as u64);
        usize::try_from(at).expect("a place in it")
    };
    let (half, other) = (&sender[..cut(sender)], &receiver[..cut(receiver)]);
    for (name, logs) in [
        ("both logs", &[sender, receiver][..]),
        ("the sender's log", &[sender]),
        ("the receiver's log", &[receiver]),
        ("the sender's log cut off", &[half, receiver]),
        ("the receiver's log cut off", &[sender, other]),
    ] {
        let report = report(logs);
        let whole = name == "both logs";
        for flow in &report.flows {
            wrong(flow, &ran.flows[&flow.flow], whole).map_err(|text| {
                let (number, side) = (flow.flow, flow.side);
                format!("{name}: flow {number}, {side}: {text}: {:?}", flow.metrics.account)
            })?;
        }
        windows(&report).map_err(|text| format!("{name}: {text}"))?;
        let total = &report.total.metrics;
        unsound(&total.account, total.lost).map_err(|text| format!("{name}, total: {text}"))?;
        if let (Some(dropped), true) = (ran.dropped, whole)
            && total.lost != Some(dropped)
        {
            return Err(format!("{:?} lost, {dropped} dropped by the network", total.lost));
        }
    }
    Ok(())
}

#[test]
fn parts_add_up_to_the_plan() {
    let told = std::env::var_os("ITG_ACCOUNT_SEEDS").and_then(|text| text.into_string().ok());
    let seeds = told.map_or(SEEDS, |text| text.parse().expect("a number"));
    let (mut packets, mut lost, mut left) = (0, 0, 0);
    for seed in 0..seeds {
        let ran = run(seed, Planted::None);
        for truth in ran.flows.values() {
            packets += truth.sent;
            left += truth.planned.map_or(0, |planned| planned - truth.sent);
            lost += truth.sent - truth.there.len().max(truth.back.len()) as u64;
        }
        if let Err(text) = check(&ran) {
            panic!("seed {seed}: {text}\n{}", ran.network);
        }
    }
    println!("{seeds} seeds: {packets} packets, {lost} lost, {left} did not leave");
    assert!(lost > seeds && left > seeds, "{lost} lost, {left} did not leave");
}

#[test]
fn planted_faults_are_found() {
    for planted in [Planted::DropNotCounted, Planted::CountedTwice, Planted::RemainderForgotten] {
        let found = (0..50).find_map(|seed| Some((seed, check(&run(seed, planted)).err()?)));
        let (seed, text) = found.unwrap_or_else(|| panic!("{planted:?} is not found"));
        let text = text.split(": PacketAccount").next().unwrap_or_default();
        println!("| {planted:?} | {} | {text} |", seed + 1);
    }
}
