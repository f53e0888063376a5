//! Logs of a sender whose clock was set while it sent: the plan is kept, and the verdict says so.
#![allow(missing_docs, reason = "tests")]

use itg_record::{ClockPair, ClockProbe, Note, ReceivedPacket, Record, SentPacket, Side};
use itg_stats::report::{FlowReport, Report};
use itg_stats::{Analysis, Options};
use itg_testkit::logs::{EPOCH, TestLog, end, plan, spec};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
/// Monotonic time of the start.
const MONOTONIC: u64 = 77 * SECOND;
/// The clock is set so long after the start, and the sender sees it up to a second later.
const SET_AT: u64 = 4_200 * MS;
const SEEN_AT: u64 = 4_900 * MS;

/// What a log knows of the sender's clock.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Knows {
    Nothing,
    /// Looks at both clocks, once a second; one of them was interrupted.
    Looks,
    /// Probes, four times a second.
    Probes,
}

/// A run of 9 s in which the sender's clock is set by so much.
#[derive(Clone, Copy)]
struct Run<'a> {
    idt: &'a str,
    by_ns: i64,
    knows: Knows,
    /// When a packet leaves that is due so long after the start.
    leaves: &'a dyn Fn(u64) -> u64,
}

/// The clock so long after the start when it shows what it showed before it was set, or behind that.
fn shows(at_ns: u64, set: bool, by_ns: i64) -> u64 {
    (EPOCH + at_ns).saturating_add_signed(if set { by_ns } else { 0 })
}

impl Run<'_> {
    fn looks(&self, log: &mut TestLog) {
        for second in 0..10 {
            let at_ns = second * SECOND;
            let unix_ns = shows(at_ns, at_ns >= SET_AT, self.by_ns);
            let late_ns = if second == 7 { 3 * MS } else { second * 37 % 400 };
            let monotonic_ns = MONOTONIC + at_ns + late_ns;
            let (max_error_ns, synchronised) = (None, None);
            log.note(&Note::Clock(ClockPair { unix_ns, monotonic_ns, max_error_ns, synchronised }));
        }
    }

    /// Probes to a receiver on the same host.
    fn probes(&self, log: &mut TestLog) {
        for quarter in 0..37 {
            let at_ns = quarter * SECOND / 4;
            let unix = |at_ns| shows(at_ns, at_ns >= SET_AT, self.by_ns);
            log.note(&Note::Probe(ClockProbe {
                run: "c0ffee".to_owned(),
                sender_boot_id: "a".to_owned(),
                receiver_boot_id: "a".to_owned(),
                sent_unix_ns: unix(at_ns),
                sent_monotonic_ns: MONOTONIC + at_ns,
                received_unix_ns: unix(at_ns + 40_000),
                replied_unix_ns: unix(at_ns + 50_000),
                replied_monotonic_ns: MONOTONIC + at_ns + 50_000,
                arrived_unix_ns: unix(at_ns + 90_000),
            }));
        }
    }

    /// The logs of both sides.
    fn logs(&self) -> [Vec<u8>; 2] {
        let packets = if self.idt == "constant(20ms)" { 450 } else { 9_000 };
        let spec = spec(1, self.idt, "constant(100)", packets);
        let mut sender = TestLog::new(Side::Sender, "a");
        let mut receiver = TestLog::new(Side::Receiver, "a");
        for log in [&mut sender, &mut receiver] {
            log.flow(0, &spec, ["a", "a"]);
            match self.knows {
                Knows::Nothing => {}
                Knows::Looks => self.looks(log),
                Knows::Probes => self.probes(log),
            }
        }
        let mut last = 0;
        for d in plan(&spec) {
            last = (self.leaves)(d.due_ns).max(last);
            let sent_ns = shows(last + d.seq * 7_919 % 5_000, last >= SEEN_AT, self.by_ns);
            let arrived_ns = shows(last + 60_000, last >= SET_AT, self.by_ns);
            let (flow, seq, size, planned_ns) = (0, d.seq, d.size, d.due_ns);
            sender.records([Record::sent(SentPacket { flow, seq, size, planned_ns, sent_ns })]);
            receiver.records([Record::received(ReceivedPacket {
                flow,
                seq,
                size,
                sent_ns,
                arrived_ns,
                read_ns: arrived_ns + 700,
                ttl: 64,
                tos: 0,
            })]);
        }
        [sender, receiver].map(|mut log| {
            log.end_flow(end(0));
            log.finish()
        })
    }
}

fn report(logs: &[&[u8]]) -> Report {
    let mut analysis = Analysis::new(Options::default());
    for (number, log) in logs.iter().enumerate() {
        analysis.add_log(log, &format!("{number}.itg")).expect("a log");
    }
    analysis.finish()
}

fn verdict(flow: &FlowReport) -> (&'static str, String) {
    (flow.metrics.fidelity.verdict.name(), format!("{:?}", flow.metrics.fidelity))
}

const STEPS_MS: [i64; 8] = [50, -50, 2_000, -2_000, 300, -300, 3_600_000, -3_600_000];

#[test]
fn sound_traffic_passes_when_the_senders_clock_is_set() {
    for (idt, by_ms) in STEPS_MS.iter().flat_map(|by| [("constant(20ms)", by), ("exp(1ms)", by)]) {
        for knows in [Knows::Looks, Knows::Probes] {
            let run = Run { idt, by_ns: by_ms * 1_000_000, knows, leaves: &|due| due };
            let [sender, receiver] = run.logs();
            let logs: &[&[&[u8]]] = match knows {
                // What a receiver looks at is its own clock.
                Knows::Looks => &[&[&sender], &[&sender, &receiver]],
                _ => &[&[&sender], &[&sender, &receiver], &[&receiver]],
            };
            for logs in logs {
                let report = report(logs);
                for flow in &report.flows {
                    let (verdict, said) = verdict(flow);
                    assert_eq!(verdict, "pass", "{idt}, {by_ms} ms, {knows:?}: {said}");
                    let shared = flow.clock.as_ref().is_none_or(|clock| clock.shared);
                    assert!(shared, "{by_ms} ms: {:?}", flow.clock);
                    let late = flow.metrics.lateness_ns.expect("known");
                    assert!(late.max < 10_000, "{idt}, {by_ms} ms, {knows:?}: {late:?}");
                    let told =
                        flow.notices.iter().any(|n| n.contains("the sender's clock was set"));
                    assert!(told, "{:?}", flow.notices);
                }
            }
        }
    }
}

#[test]
fn a_step_that_no_log_knows_of_and_a_stall_beside_one_fail() {
    let stall = |due: u64| if (8 * SECOND..8_300 * MS).contains(&due) { 8_300 * MS } else { due };
    for by_ms in STEPS_MS {
        let run = Run {
            idt: "constant(1ms)",
            by_ns: by_ms * 1_000_000,
            knows: Knows::Nothing,
            leaves: &|d| d,
        };
        let [sender, _] = run.logs();
        let report_of = report(&[&sender]);
        assert_ne!(verdict(&report_of.flows[0]).0, "pass", "{by_ms} ms");
        for knows in [Knows::Looks, Knows::Probes] {
            let [sender, _] = Run { knows, leaves: &stall, ..run }.logs();
            let report = report(&[&sender]);
            let (verdict, said) = verdict(&report.flows[0]);
            assert_eq!(verdict, "fail", "{by_ms} ms, {knows:?}: {said}");
            let told = said.contains("still for 299ms") || said.contains("still for 300ms");
            assert!(told, "{by_ms} ms, {knows:?}: {said}");
        }
    }
}

#[test]
fn a_flow_that_begins_behind_a_step_counts_from_the_clock_as_it_was_then() {
    // Set back by as much as it has run on since: each time was shown twice.
    let mut log = TestLog::new(Side::Sender, "a");
    let look = |at_ns: u64, set: bool| {
        let unix_ns = shows(at_ns, set, -(SECOND.cast_signed()) * 6);
        let monotonic_ns = MONOTONIC + at_ns;
        Note::Clock(ClockPair { unix_ns, monotonic_ns, max_error_ns: None, synchronised: None })
    };
    (0..6).for_each(|second| log.note(&look(second * SECOND, second >= 5)));
    let spec = spec(1, "constant(10ms)", "constant(100)", 300);
    log.flow(0, &spec, ["a", "a"]);
    log.records(plan(&spec).iter().map(|d| {
        let sent_ns = EPOCH + d.due_ns + d.seq * 7_919 % 5_000;
        let (seq, size, planned_ns) = (d.seq, d.size, d.due_ns);
        Record::sent(SentPacket { flow: 0, seq, size, planned_ns, sent_ns })
    }));
    (6..10).for_each(|second| log.note(&look(second * SECOND, true)));
    log.end_flow(end(0));
    let bytes = log.finish();
    let (verdict, said) = verdict(&report(&[&bytes]).flows[0]);
    assert_eq!(verdict, "pass", "{said}");
}
