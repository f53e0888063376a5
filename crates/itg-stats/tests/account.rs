//! The account of a flow against what was done to its packets: random plans, ends, owners and logs.

use std::collections::BTreeMap;

use itg_core::end::EndCause;
use itg_core::flow::{FlowSpec, Proto, Stop};
use itg_core::schedule::Departure;
use itg_record::{FlowEnd, ReceivedPacket, Record, SentPacket, Side};
use itg_stats::fidelity::{Cause, Verdict};
use itg_stats::packet_account::PacketAccount;
use itg_stats::report::Metrics;
use itg_stats::{Analysis, Options};
use itg_testkit::logs::{EPOCH, TestLog, plan, spec};

const SEEDS: u64 = 10_000;

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
}

/// What was done to the packets of a flow.
#[derive(Debug, Default)]
struct Truth {
    planned: u64,
    sent: u64,
    refused: u64,
    left_out: u64,
    not_reached: u64,
    arrived: u64,
    duplicated: u64,
    not_logged: u64,
    socket: u64,
    interrupted: bool,
}

impl Truth {
    fn add(&mut self, more: &Self) {
        self.sent += more.sent;
        self.refused += more.refused;
        self.left_out += more.left_out;
        self.arrived += more.arrived;
        self.duplicated += more.duplicated;
        self.not_logged += more.not_logged;
        self.socket += more.socket;
    }
}

/// A fault that is put into what a program counts, for the checker to find.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Planted {
    None,
    /// Packets that the kernel refused count as sent.
    RefusedAsSent,
    /// The rest of the plan is forgotten: the flow says that it ran to its end.
    RestForgotten,
    /// Packets left out count twice.
    LeftOutTwice,
}

/// Which logs there are, and in which state.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Logs {
    Both,
    Sender,
    Receiver,
    /// The sender was killed: its log has no end, and the receiver was told nothing.
    KilledSender,
    /// A version that did not tell what was refused.
    Older,
}

/// A flow that ends by its packets or by its time.
fn made(dice: &mut Dice) -> FlowSpec {
    let idt = ["constant(1ms)", "exp(1ms)"][usize::from(dice.percent(50))];
    let packets = 5 + dice.below(60);
    let by_packets = spec(1, idt, "constant(100)", packets);
    let duration_ns = Some(packets * 1_000_000);
    if dice.percent(50) {
        by_packets
    } else {
        by_packets.stop(Stop { duration_ns, ..Stop::default() })
    }
}

/// What one owner of the flow did to these packets, with its log so far and the receiver's.
fn carry(
    due: &[Departure],
    (dice, shares): (&mut Dice, [u64; 5]),
    sender: &mut TestLog,
    (receiver, flow): (&mut TestLog, u32),
) -> Truth {
    let mut counts = Truth::default();
    for &Departure { seq, size, due_ns } in due {
        let at = EPOCH + due_ns;
        if dice.percent(shares[0]) {
            counts.left_out += 1;
            continue;
        }
        if dice.percent(shares[1]) {
            counts.refused += 1;
            continue;
        }
        counts.sent += 1;
        let sent = SentPacket { flow: 0, seq, size, planned_ns: due_ns, sent_ns: at };
        sender.records([Record::sent(sent)]);
        if dice.percent(shares[2]) {
            counts.socket += u64::from(dice.percent(50));
            continue;
        }
        counts.arrived += 1;
        let copies = 1 + u64::from(dice.percent(shares[3]));
        counts.duplicated += copies - 1;
        if copies == 1 && dice.percent(shares[4]) {
            counts.not_logged += 1;
            continue;
        }
        receiver.records((0..copies).map(|copy| {
            let arrived_ns = at + 10 + copy;
            let (sent_ns, read_ns, ttl, tos) = (at, arrived_ns, 64, 0);
            let packet = ReceivedPacket { flow, seq, size, sent_ns, arrived_ns, read_ns, ttl, tos };
            Record::received(packet)
        }));
    }
    counts
}

/// The ends of an owner in its own log and in the receiver's, as programs count.
fn ends(
    counts: &Truth,
    (logs, planted): (Logs, Planted),
    flow: u32,
    reason: &EndCause,
) -> [FlowEnd; 2] {
    let (mut sent, mut left_out, mut refused) = (counts.sent, counts.left_out, counts.refused);
    match planted {
        Planted::RefusedAsSent => (sent, refused) = (sent + refused, 0),
        Planted::LeftOutTwice => left_out *= 2,
        Planted::None | Planted::RestForgotten => {}
    }
    let known = logs != Logs::KilledSender;
    let newer = known && logs != Logs::Older;
    let both = FlowEnd {
        sent_packets: known.then_some(sent),
        skipped_packets: known.then_some(left_out),
        refused_packets: newer.then_some(refused),
        received_packets: Some(counts.arrived + counts.duplicated),
        received_unique: Some(counts.arrived),
        ..FlowEnd::new(0, reason.to_string())
    };
    let refused_by = BTreeMap::from([("EPERM".to_owned(), refused)]);
    let refused_by = refused_by.into_iter().filter(|(_, n)| newer && *n > 0).collect();
    let by_receiver = FlowEnd {
        index: flow,
        log_lost_records: counts.not_logged,
        socket_drops: Some(counts.socket),
        ..both.clone()
    };
    [FlowEnd { refused_by, ..both }, by_receiver]
}

/// Runs a flow with these dice, and decodes its logs.
fn run(dice: &mut Dice, logs: Logs, planted: Planted) -> (Truth, Metrics) {
    let spec = made(dice);
    let due = plan(&spec);
    let planned = due.len();
    let draw =
        |dice: &mut Dice, end: usize| usize::try_from(dice.below(end as u64)).expect("small");
    let end = if dice.percent(50) { planned } else { draw(dice, planned + 1) };
    let shares = [dice.below(30), dice.below(30), dice.below(30), dice.below(30), dice.below(10)];
    let mut owners = vec![0, end];
    if end > 4 && dice.percent(30) {
        owners.insert(1, 1 + draw(dice, end - 2));
    }
    let cause = match (end == planned, dice.percent(50)) {
        (true, _) => EndCause::ScheduleDone,
        (_, true) => EndCause::Interrupted,
        (_, false) => EndCause::ConnectionBroke("reset".to_owned()),
    };
    let mut truth = Truth {
        planned: planned as u64,
        not_reached: (planned - end) as u64,
        interrupted: cause == EndCause::Interrupted,
        ..Truth::default()
    };
    let mut receiver = TestLog::new(Side::Receiver, "b");
    let mut senders = Vec::new();
    for (flow, part) in (0_u32..).zip(owners.windows(2)) {
        let src = format!("10.0.0.{}:4000", flow + 1);
        let mut sender = TestLog::with_id(flow + 10, Side::Sender, "a");
        sender.flow_of(0, &spec, ["a", "b"], "c0ffee", &src);
        receiver.flow_of(flow, &spec, ["a", "b"], "c0ffee", &src);
        let (packets, dice) = (&due[part[0]..part[1]], &mut *dice);
        let counts = carry(packets, (dice, shares), &mut sender, (&mut receiver, flow));
        let told = match planted {
            _ if part[1] != end => EndCause::SessionOver("moved".to_owned()),
            Planted::RestForgotten => EndCause::ScheduleDone,
            _ => cause.clone(),
        };
        let [here, there] = ends(&counts, (logs, planted), flow, &told);
        receiver.end_flow(there);
        senders.push(if logs == Logs::KilledSender {
            sender.killed()
        } else {
            sender.end_flow(here);
            sender.finish()
        });
        truth.add(&counts);
    }
    let receiver = receiver.finish_lacking(truth.not_logged);
    let given = senders.iter().filter(|_| logs != Logs::Receiver);
    let given = given.chain(Some(&receiver).filter(|_| logs != Logs::Sender));
    let mut analysis = Analysis::new(Options::default());
    given.for_each(|log| analysis.add_log(log, "log").expect("a log"));
    (truth, (*analysis.finish().flows[0].metrics).clone())
}

/// What is wrong with an account, by the truth: no part may be another number, and none unknown without a reason.
fn wrong(truth: &Truth, metrics: &Metrics) -> Option<String> {
    let PacketAccount { planned, sent, refused, left_out, not_reached, arrived, .. } =
        metrics.account;
    let account = &metrics.account;
    for (name, told, true_count) in [
        ("planned", planned, truth.planned),
        ("sent", sent, truth.sent),
        ("refused", refused, truth.refused),
        ("left_out", left_out, truth.left_out),
        ("not_reached", not_reached, truth.not_reached),
        ("arrived", arrived, truth.arrived),
    ] {
        match told {
            Some(told) if told != true_count => return Some(format!("{name}: {told}")),
            None if !account.why.contains_key(name) => return Some(format!("{name}: no reason")),
            _ => {}
        }
    }
    let value = serde_json::to_value(account).expect("JSON");
    let parts = value.as_object().expect("an object").iter();
    let places = value["lost"].as_object().expect("an object").iter();
    let places = places.map(|(place, count)| (format!("lost.{place}"), count));
    for (name, count) in parts.map(|(name, count)| (name.clone(), count)).chain(places) {
        if count.is_null() && !account.why.contains_key(&*name) {
            return Some(format!("{name}: no reason"));
        }
    }
    let by_error: u64 = account.refused_by.values().sum();
    if refused != Some(by_error) && !account.why.contains_key("refused_by") {
        return Some("refused_by: no reason".to_owned());
    }
    if let Some(lost) = metrics.lost {
        let parts = [account.lost.socket, account.lost.network, account.lost.unknown];
        let sum: u64 = parts.iter().flatten().sum();
        if lost != truth.sent - truth.arrived || sum != lost {
            return Some(format!("lost: {lost}, its parts {sum}"));
        }
    }
    let had_turn = truth.sent + truth.refused + truth.left_out;
    if let (Some(error), Some(_), Some(_)) = (metrics.fidelity.rate_error, refused, left_out) {
        // Packets leave at their times here.
        let want = truth.sent as f64 / had_turn as f64 - 1.0;
        if (error - want).abs() > 1e-9 {
            return Some(format!("rate_error: {error} for {want}"));
        }
    }
    let not_reached = if truth.interrupted { 0 } else { truth.not_reached };
    let (missing, plan) = (truth.refused + not_reached, truth.planned);
    let verdict = metrics.fidelity.verdict;
    if verdict == Verdict::Pass && missing * 100 > plan {
        return Some(format!("{verdict:?} with {missing} of {plan} missing"));
    }
    let cut = truth.interrupted && account.not_reached > Some(0);
    if metrics.fidelity.causes.contains(&Cause::Interrupted) != cut {
        return Some(format!("interrupted: {:?}", metrics.fidelity.causes));
    }
    let has_cause = metrics.fidelity.causes.contains(&Cause::Incomplete);
    (has_cause && missing == 0).then(|| "incomplete without a packet missing".to_owned())
}

#[test]
fn parts_add_up_to_the_plan_whatever_happens() {
    let kinds = [Logs::Both, Logs::Sender, Logs::Receiver, Logs::KilledSender, Logs::Older];
    let mut closed = 0;
    for seed in 0..SEEDS {
        let logs = kinds[usize::try_from(seed % 5).expect("small")];
        let (truth, metrics) = run(&mut Dice(seed), logs, Planted::None);
        let fault = wrong(&truth, &metrics);
        assert_eq!(fault, None, "seed {seed}, {logs:?}: {truth:?}, {:#?}", metrics.account);
        let account = metrics.account;
        let parts = [account.sent, account.refused, account.left_out, account.not_reached];
        if let (Some(planned), true) = (account.planned, parts.iter().all(Option::is_some)) {
            assert_eq!(planned, parts.iter().flatten().sum::<u64>(), "seed {seed}");
            closed += 1;
        }
    }
    // Of whole logs of this version each account is closed.
    assert!(closed >= SEEDS * 3 / 5, "{closed}");
}

#[test]
fn planted_faults_are_found() {
    for planted in [Planted::RefusedAsSent, Planted::RestForgotten, Planted::LeftOutTwice] {
        let found = (0..50).find_map(|seed| {
            let (truth, metrics) = run(&mut Dice(seed), Logs::Both, planted);
            wrong(&truth, &metrics)
        });
        assert!(found.is_some(), "{planted:?} is not found");
    }
}

/// Packets that are sent again are not lost in the network.
#[test]
fn packets_of_a_connection_that_broke_were_in_a_buffer() {
    for (proto, network, gone) in [(Proto::Tcp, 0, 3), (Proto::Udp, 3, 0)] {
        let spec = spec(1, "constant(1ms)", "constant(100)", 20).proto(proto);
        let mut log = TestLog::new(Side::Receiver, "b");
        log.flow(0, &spec, ["a", "b"]);
        log.records((0..7).map(|seq| {
            let at = EPOCH + seq;
            let (sent_ns, arrived_ns, read_ns) = (at, at, at);
            let packet = ReceivedPacket {
                flow: 0,
                seq,
                size: 100,
                sent_ns,
                arrived_ns,
                read_ns,
                ttl: 64,
                tos: 0,
            };
            Record::received(packet)
        }));
        log.end_flow(FlowEnd {
            sent_packets: Some(10),
            skipped_packets: Some(0),
            refused_packets: Some(0),
            received_packets: Some(7),
            received_unique: Some(7),
            socket_drops: Some(0).filter(|_| proto == Proto::Udp),
            ..FlowEnd::new(0, EndCause::ConnectionBroke("reset".to_owned()).to_string())
        });
        let (log, mut analysis) = (log.finish(), Analysis::new(Options::default()));
        analysis.add_log(&log, "log").expect("a log");
        let flow = &analysis.finish().flows[0];
        let lost = flow.metrics.account.lost;
        assert_eq!(
            (flow.metrics.lost, lost.network, lost.receiver_gone, lost.unknown),
            (Some(3), Some(network), Some(gone), Some(0))
        );
        let told =
            flow.notices.iter().any(|notice| notice.starts_with("3 packets were in a buffer"));
        assert_eq!(told, proto == Proto::Tcp, "{:?}", flow.notices);
    }
}
