//! Gates: what they know, how they judge, what they refuse.

use itg_stats::delay::Delay;
use itg_stats::fidelity::{Fidelity, Verdict};
use itg_stats::figures::Percents;
use itg_stats::gate::{Figure, Gate, Judgement, Outcome, exit_code};
use itg_stats::report::{FlowReport, Metrics, REPORT_SCHEMA, TotalReport};
use itg_stats::{Analysis, Options, Report};
use serde_json::Value;

fn flow(number: u32, side: &'static str, p99: Option<i64>, lost: u64) -> FlowReport {
    let delay = |p99| Delay {
        min: 1,
        mean: 2.5,
        max: 40_000_000,
        stddev: 1.0,
        p50: 2,
        p90: 3,
        p99,
        p999: p99 + 1,
    };
    FlowReport {
        flow: number,
        name: number.to_string(),
        proto: Some("udp"),
        src: String::new(),
        dst: String::new(),
        side,
        run: "c0ffee".to_owned(),
        seed: None,
        meter: Some("owd"),
        profile: None,
        metrics: Box::new(Metrics {
            packets: 1_000 - lost,
            bitrate_bps: Some(5e6),
            packet_rate_pps: Some(100.0),
            lost: Some(lost),
            sent_packets: Some(1_000),
            delay_ns: p99.map(delay),
            delay_percents_ns: p99
                .map(|_| Percents::of(std::array::from_fn(|place| 1_000 * (place as i64 + 1)))),
            fidelity: Fidelity { verdict: Verdict::Pass, ..Fidelity::default() },
            ..Metrics::default()
        }),
        clock: None,
        host_buffer_errors: None,
        receive_buffer_bytes: None,
        foreign_packets: None,
        marks: None,
        tcp: None,
        departures: None,
        end: None,
        notices: Vec::new(),
    }
}

fn report(flows: Vec<FlowReport>) -> Report {
    let metrics = flows.first().map(|flow| (*flow.metrics).clone()).unwrap_or_default();
    Report {
        schema: REPORT_SCHEMA,
        manifest: serde_json::Map::new(),
        promises: Vec::new(),
        total: TotalReport { flows: flows.len() as u64, metrics, unmatched: None },
        flows,
        groups: None,
        intervals: None,
        plots: None,
        damage: Vec::new(),
        errors: Vec::new(),
        notices: Vec::new(),
    }
}

#[test]
fn gates_judge() {
    let all = report(vec![
        flow(1, "receiver", Some(20_000_000), 0),
        flow(1, "sender", None, 999),
        flow(2, "receiver", Some(23_500_000), 1),
        flow(3, "receiver", None, 10),
        FlowReport { name: "call".to_owned(), ..flow(4, "receiver", Some(5000), 0) },
        FlowReport { name: "a.b".to_owned(), ..flow(5, "receiver", Some(6000), 0) },
    ]);
    for (gate, want) in [
        ("delay.p99 > 20ms", "FAILED: flow 2: delay.p99 is 23.5ms; holds for 1 of 5 flows"),
        ("delay.p99 >= 20ms", "FAILED: flow 2: delay.p99 is 23.5ms; holds for 2 of 5 flows"),
        ("total.delay.p99>20ms", "passed: total: delay.p99 is 20ms"),
        ("delay.p99 > 1s", "cannot be judged: flow 3: delay.p99 is not known"),
        ("flow.2.delay.p99 > 1s", "passed: flow 2: delay.p99 is 23.5ms"),
        ("flow.9.loss > 1%", "cannot be judged: there is no such flow"),
        ("flow.x.loss > 1%", "cannot be judged: there is no such flow"),
        ("flow.call.delay.p99 > 1s", "passed: flow 4 (call): delay.p99 is 5us"),
        ("call.delay.p99 > 1s", "passed: flow 4 (call): delay.p99 is 5us"),
        ("a.b.delay.p99 > 1s", "passed: flow 5 (a.b): delay.p99 is 6us"),
        ("5.delay.p99 > 1s", "passed: flow 5 (a.b): delay.p99 is 6us"),
        ("loss > 0.1%", "FAILED: flow 3: loss is 1%; holds for 1 of 5 flows"),
        ("lost > 10", "passed: flow 3: lost is 10"),
        ("packets < 1k", "FAILED: flow 3: packets is 990; holds for 2 of 5 flows"),
        ("total.bitrate < 4.9Mbps", "passed: total: bitrate is 5.00 Mbit/s"),
        ("packet_rate != 100pps", "passed: flow 1: packet_rate is 100pps"),
        ("fidelity != pass", "passed: flow 1: fidelity is pass"),
        ("fidelity == pass", "FAILED: flow 1: fidelity is pass; holds for 5 of 5 flows"),
        ("jitter.mean > 0", "cannot be judged: flow 1: jitter.mean is not known"),
        ("flow.2.delay_ns.p99 > 20ms", "FAILED: flow 2: delay_ns.p99 is 23.5ms"),
        ("sent_packets < 1k", "passed: flow 1: sent_packets is 1000"),
        ("flow.2.delay.p95 > 95us", "passed: flow 2: delay.p95 is 95us"),
        ("flow.2.delay.p05 > 5us", "passed: flow 2: delay.p05 is 5us"),
        ("flow.2.delay.p96 > 95us", "FAILED: flow 2: delay.p96 is 96us"),
        ("flow.3.delay.p95 > 1s", "cannot be judged: flow 3: delay.p95 is not known"),
        ("clock.offset_ns > 1ms", "cannot be judged: flow 1: clock.offset_ns is not known"),
        ("fidelity.stall_gaps > 3", "cannot be judged: flow 1: fidelity.stall_gaps is not known"),
        ("ledger.loss.network > 10k", "cannot be judged: flow 1: ledger.loss.network is not known"),
        ("duration == 0s", "FAILED: flow 1: duration is 0s; holds for 5 of 5 flows"),
    ] {
        let outcome = Gate::parse(gate).expect(gate).judge(&all);
        let got = outcome.to_string();
        let got = got.strip_prefix(&format!("gate `{gate}` ")).expect("its name").to_owned();
        assert_eq!(got, want, "{gate}");
        assert_eq!(outcome.fidelity, gate.starts_with("fidelity"), "{gate}");
    }
    let none = Gate::parse("loss > 1%").expect("a gate").judge(&report(Vec::new()));
    assert!(none.is_unknown());
}

/// What has no unit is shown in the one in which figures are told.
#[test]
fn shares_are_repeated_in_percent() {
    for (gate, shown) in [
        ("loss > 0.1", "loss > 10%"),
        ("flow.3.loss>=0.001", "flow.3.loss >= 0.1%"),
        ("rate_error > 1", "rate_error > 100%"),
        ("loss > 0.007", "loss > 0.7%"),
        ("loss > 0.1%", "loss > 0.1%"),
        ("loss > 0", "loss > 0"),
        ("loss > 1e-12", "loss > 1e-12"),
        ("idt_ks > 0.1", "idt_ks > 0.1"),
    ] {
        assert_eq!(Gate::parse(gate).expect(gate).to_string(), shown);
    }
}

/// The keys that gates know are those of the published schema.
#[test]
fn every_number_of_the_report_can_be_judged() {
    fn walk(node: &Value, defs: &Value, path: &str, out: &mut Vec<String>) {
        if let Some(name) = node["$ref"].as_str().and_then(|name| name.rsplit('/').next()) {
            return walk(&defs[name], defs, path, out);
        }
        for key in ["anyOf", "oneOf", "allOf"] {
            for part in node[key].as_array().into_iter().flatten() {
                walk(part, defs, path, out);
            }
        }
        for (key, part) in node["properties"].as_object().into_iter().flatten() {
            let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            walk(part, defs, &below, out);
        }
        let number = |kind: &Value| kind == "integer" || kind == "number";
        let kinds = node["type"].as_array().map_or(&[][..], Vec::as_slice);
        if number(&node["type"]) || kinds.iter().any(number) {
            out.push(path.to_owned());
        }
    }
    let schema = itg_testkit::published::schema("report");
    let mut found = Vec::new();
    walk(&schema["$defs"]["FlowReport"], &schema["$defs"], "", &mut found);
    found.retain(|path| path != "flow" && path != "seed");
    found.sort();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/gate/numbers.txt");
    let new = found.join("\n") + "\n";
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, new).expect("written");
        return;
    }
    let known = std::fs::read_to_string(path).expect("the list");
    assert!(known == new, "{path}, against docs/report.schema.json: run this test with UPDATE=1");
}

#[test]
fn gates_decide_the_exit_code() {
    let outcome = |fidelity, judgement| Outcome { gate: String::new(), fidelity, judgement };
    let passed = || Judgement::Passed { closest: String::new() };
    let failed = || Judgement::Failed { worst: String::new(), times: 1, of: 1 };
    let unknown = || Judgement::Unknown { reason: String::new() };
    for (gates, allow, want) in [
        (vec![], false, None),
        (vec![outcome(false, passed()), outcome(true, passed())], false, None),
        (vec![outcome(false, passed()), outcome(true, failed())], false, Some(98)),
        (vec![outcome(false, failed()), outcome(true, failed())], false, Some(99)),
        (vec![outcome(false, unknown())], false, Some(99)),
        (vec![outcome(false, unknown())], true, None),
        (vec![outcome(true, unknown()), outcome(false, failed())], true, Some(99)),
    ] {
        assert_eq!(exit_code(&gates, allow), want, "{gates:?} {allow}");
    }
}

#[test]
fn mistakes_are_named() {
    for (text, want) in [
        (
            "",
            "`` is no gate: expected METRIC OP VALUE, such as `delay.p99 > 20ms` or `loss > 0.1%`",
        ),
        (
            "loss",
            "`loss` is no gate: expected METRIC OP VALUE, such as `delay.p99 > 20ms` or `loss > 0.1%`",
        ),
        (
            "loss = 3",
            "`loss = 3` is no gate: expected METRIC OP VALUE, such as `delay.p99 > 20ms` or `loss > 0.1%`",
        ),
        (
            "flow..loss > 1",
            "`flow..loss` names no flow: expected flow.NAME.METRIC or flow.NUMBER.METRIC, such as flow.3.loss",
        ),
        ("fidelity > pass", "fidelity has no order: compare with == or !="),
        (
            "fidelity != good",
            "`good` does not fit fidelity: expected pass, warn, fail, network-limited, unresolved or unknown",
        ),
        ("bitrate < 5pps", "`5pps` does not fit bitrate: expected bits per second, such as 10Mbps"),
        ("loss > nan", "`nan` does not fit loss: no number in `nan`"),
    ] {
        assert_eq!(Gate::parse(text).map_err(|e| e.to_string()), Err(want.to_owned()), "{text}");
    }
    for (text, part) in [
        ("delay.p101 > 1ms", "unknown metric `delay.p101`: did you mean `delay.p"),
        ("delay_ns.p98 > 1ms", "unknown metric `delay_ns.p98`: did you mean `delay_ns.p9"),
        (
            "delay.p9 > 1ms",
            "unknown metric `delay.p9`: did you mean `delay.p90` or `delay.p99`? (`delay.p09` is percentile 9)",
        ),
        ("total.delay.p5 > 1ms", "unknown metric `delay.p5`: did you mean `delay.p50`?"),
        ("call.delay.p5 > 1ms", "unknown metric `call.delay.p5`: did you mean `delay.p50`?"),
        ("call.los > 1", "unknown metric `call.los`: did you mean `call.los"),
        ("los > 1", "unknown metric `los`: did you mean `los"),
        ("performance > 1", "unknown metric `performance`: gates know packets, bytes"),
        ("delay.p99 > 20", "`20` does not fit delay.p99"),
    ] {
        let error = Gate::parse(text).expect_err(text).to_string();
        assert!(error.starts_with(part), "{error}");
    }
}

#[test]
fn figures_are_known_by_the_names_of_gates() {
    for (name, want) in [
        ("delay.p99", None),
        ("flow.3.loss", None),
        ("total.bitrate", None),
        ("speed", Some("unknown metric `speed`")),
        ("flow..loss", Some("names no flow")),
        ("fidelity", Some("fidelity has no order")),
    ] {
        let got = Figure::parse(name).map(|figure| figure.name().to_owned());
        match (got, want) {
            (Ok(got), None) => assert_eq!(got, name),
            (Err(error), Some(want)) => assert!(error.to_string().contains(want), "{error}"),
            (got, want) => panic!("{name}: {got:?}, {want:?}"),
        }
    }
    let nothing = Analysis::new(Options::default()).finish();
    assert_eq!(Figure::parse("flow.3.loss").expect("known").of(&nothing), None);
    assert_eq!(Figure::parse("packets").expect("known").of(&nothing), Some(0.0));
}
