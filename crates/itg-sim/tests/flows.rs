//! Flows through simulated networks: ordinary logs, the same schedules as ever, the same bytes each
//! time.

use itg_core::distribution::Distribution;
use itg_core::flow::{Flow, FlowSpec, Meter, Proto};
use itg_core::seed::RunSeed;
use itg_process::{MS, Params, SECOND};
use itg_record::{Item, Kind, LogReader, Note, Record};
use itg_sim::flows::{LogTransfer, Logs, Network, RunInfo, SimFlow, Summary, simulate};

fn flow(id: u32, set: impl FnOnce(&mut FlowSpec)) -> Flow {
    let mut spec = FlowSpec::new(id);
    spec.stop.duration_ns = Some(2 * SECOND);
    set(&mut spec);
    Flow::resolve(spec, RunSeed(42)).expect("can be run")
}

/// Runs flows from host 0 to host 1 and back in turn: summary, sender's log, receiver's log.
fn run(flows: &[Flow], network: &str) -> (Summary, Vec<u8>, Vec<u8>) {
    let table: toml::Table = network.parse().expect("TOML");
    let mut params = Params::of_table(&table, "[network]", "", None);
    let network = Network::read(&mut params, RunSeed(42), 3, |name| (name == "logs").then_some(2))
        .expect("a network");
    let flows: Vec<_> = (0..)
        .zip(flows)
        .map(|(k, flow)| {
            let (from, to) = (k % 2, (k + 1) % 2);
            SimFlow { flow, from, to, name: "flow", names: ("a", "b") }
        })
        .collect();
    let (mut sender, mut receiver) = (Vec::new(), Vec::new());
    let info = RunInfo { program: "test".to_owned(), ..RunInfo::default() };
    let logs = Logs { sender: &mut sender, receiver: &mut receiver };
    let summary =
        simulate(&flows, 3, network, RunSeed(42), &info, logs).expect("a vector takes everything");
    (summary, sender, receiver)
}

/// Records and notes of a log, which must be undamaged.
fn read(log: &[u8]) -> (Vec<Record>, Vec<Note>) {
    let (mut records, mut notes) = (Vec::new(), Vec::new());
    for item in LogReader::new(log) {
        match item {
            Item::Records { records: found, .. } => records.extend(found),
            Item::Note { note, .. } => notes.push(note),
            other => panic!("{other:?}"),
        }
    }
    (records, notes)
}

#[test]
fn planned_schedules_are_those_of_every_other_world() {
    let flows = [
        flow(1, |spec| {
            spec.idt = Distribution::parse("exp(3ms)", itg_core::distribution::Unit::Time)
                .expect("a distribution")
        }),
        flow(2, |spec| {
            spec.size = Distribution::parse("uniform(50,1400)", itg_core::distribution::Unit::Size)
                .expect("a distribution");
            spec.start_ns = 300 * MS;
            spec.stop.duration_ns = Some(SECOND);
        }),
        flow(3, |spec| spec.proto = Proto::Tcp),
    ];
    for network in [
        "kind = \"ethernet\"\nrate = \"100Mbps\"",
        "kind = \"random\"\nmean = \"20ms\"\nloss = 0.1",
        "kind = \"fixed\"\nlateness = \"100us\"",
    ] {
        let (_, sender, receiver) = run(&flows, network);
        let (records, notes) = read(&sender);
        for flow in &flows {
            let id = flow.spec().id;
            let want: Vec<_> = flow.schedule().map(|p| (p.seq, p.size, p.due_ns)).collect();
            let got = records.iter().filter(|r| r.flow == id && r.kind == Kind::Sent);
            let got: Vec<_> = got.map(|r| (r.seq, r.size, r.a)).collect();
            assert_eq!(got, want, "flow {id} on {network}");
        }
        let Some(Note::Log(info)) = notes.first() else { panic!("{:?}", notes.first()) };
        assert!(info.settings.contains_key("simulated"), "{:?}", info.settings);
        let (records, notes) = read(&receiver);
        assert!(
            matches!(notes.last(), Some(Note::End(end)) if end.records == records.len() as u64)
        );
    }
}

#[test]
fn two_runs_write_the_same_bytes_and_another_seed_others() {
    let flows = [flow(1, |_| {}), flow(2, |spec| spec.proto = Proto::Tcp)];
    let network = "kind = \"random\"\nmean = \"5ms\"\nloss = 0.02\nclock_offset = \"3ms\"\n\
                   clock_drift_ppm = 40\nlateness = \"10us\"";
    let (first, second) = (run(&flows, network), run(&flows, network));
    assert!(first == second);
    assert_ne!(run(&flows, &network.replace("0.02", "0.03")).0.hash, first.0.hash);
}

#[test]
fn delays_are_those_of_the_network() {
    // 1000 bytes and 28 of headers at 8.224 Mbit/s: 1 ms, then 10 ms.
    let flows = [flow(1, |spec| spec.size = Distribution::Constant(1000.0))];
    let network = "kind = \"fixed\"\ndelay = \"10ms\"\nrate = \"8.224Mbps\"";
    let (summary, sender, receiver) = run(&flows, network);
    let (records, _) = read(&receiver);
    assert_eq!(records.len(), 2000);
    assert!(records.iter().all(|r| r.b - r.a == 11 * MS));
    assert_eq!(summary.packets, (2000, 2000));
    assert_eq!(read(&sender).0.len(), 2000);
    // There and back again.
    let flows = [flow(1, |spec| {
        spec.size = Distribution::Constant(1000.0);
        spec.meter = Meter::Rtt;
    })];
    let (_, sender, receiver) = run(&flows, network);
    assert!(read(&receiver).0.is_empty());
    let (records, _) = read(&sender);
    let echoed: Vec<_> = records.iter().filter(|r| r.kind == Kind::Echoed).collect();
    assert_eq!(echoed.len(), 2000);
    assert!(echoed.iter().all(|r| r.b - r.a == 22 * MS));
}

#[test]
fn loss_is_accounted_for() {
    let flows = [flow(1, |spec| spec.idt = Distribution::Constant(1e5))];
    let (summary, _, receiver) = run(&flows, "kind = \"fixed\"\nloss = 0.25");
    let (sent, got) = summary.packets;
    assert_eq!((sent, read(&receiver).0.len() as u64), (20_000, got));
    assert_eq!(summary.dropped.values().sum::<u64>(), sent - got);
    assert!((4_700..5_300).contains(&(sent - got)), "{}", sent - got);
}

/// Goodput of a saturating TCP flow of ten seconds, in bit/s, and segments sent again.
fn bulk(network: &str) -> (f64, u64) {
    let flows = [flow(1, |spec| {
        spec.proto = Proto::Tcp;
        spec.size = Distribution::Constant(10_000.0);
        // 200 Mbit/s, far beyond the link.
        spec.idt = Distribution::Constant(400_000.0);
        spec.stop.duration_ns = Some(20 * SECOND);
    })];
    let (summary, _, receiver) = run(&flows, network);
    let (records, _) = read(&receiver);
    assert!(records.windows(2).all(|pair| pair[0].seq + 1 == pair[1].seq), "once and in order");
    // The second half, when the window has settled.
    let start = records[0].b + 10 * SECOND;
    let bytes: u64 = records
        .iter()
        .filter(|r| (start..start + 10 * SECOND).contains(&r.b))
        .map(|r| u64::from(r.size))
        .sum();
    (bytes as f64 * 8.0 / 10.0, summary.retransmissions)
}

#[test]
fn tcp_fills_a_link_and_gives_way_to_loss() {
    for window in ["reno", "cubic"] {
        // A queue of about one bandwidth-delay product: the link stays busy.
        let link = format!(
            "kind = \"fixed\"\ndelay = \"10ms\"\nrate = \"10Mbps\"\nqueue = 30000\ntcp = \"{window}\""
        );
        let (rate, again) = bulk(&link);
        let most = 10e6 * 1460.0 / 1500.0;
        assert!(rate <= most * 1.001, "{window}: {rate}");
        assert!(rate > 0.85 * most, "{window}: {rate}");
        assert!(again > 0, "{window}: the queue never overflowed");
    }
    // Mathis, Semke, Mahdavi, Ott (1997): MSS/RTT · C/√p, with C = √1.5 for an acknowledgement for each
    // segment. Holds for Reno within a third or so at this loss.
    let (rate, _) = bulk("kind = \"fixed\"\ndelay = \"20ms\"\nloss = 0.002\ntcp = \"reno\"");
    // The model's loss hits both directions; acknowledgements are cumulative.
    let model = 1460.0 * 8.0 / 0.040 * (1.5_f64 / 0.002).sqrt();
    assert!((0.6..1.4).contains(&(rate / model)), "{rate} instead of {model}");
}

#[test]
fn small_tcp_packets_arrive_at_once() {
    let flows = [flow(1, |spec| {
        spec.proto = Proto::Tcp;
        spec.size = Distribution::Constant(100.0);
        spec.idt = Distribution::Constant(20e6);
    })];
    let (summary, _, receiver) = run(&flows, "kind = \"fixed\"\ndelay = \"5ms\"");
    let (records, _) = read(&receiver);
    assert_eq!((records.len(), summary.retransmissions), (100, 0));
    assert!(records.iter().all(|r| r.b - r.a == 5 * MS));
}

#[test]
fn the_decoder_reads_simulated_logs() {
    let flows = [flow(1, |_| {}), flow(2, |spec| spec.proto = Proto::Tcp)];
    let (_, sender, receiver) = run(&flows, "kind = \"switch\"\nrate = \"100Mbps\"");
    let mut analysis = itg_stats::Analysis::new(itg_stats::Options::default());
    analysis.add_log(&sender, "sender").expect("a log");
    analysis.add_log(&receiver, "receiver").expect("a log");
    let report = analysis.finish();
    let json = report.to_json();
    assert!(json.contains("\"simulated\""), "the model is named in the report");
    for flow in report.flows.iter().filter(|flow| flow.side == "receiver") {
        assert_eq!(flow.metrics.packets, 2000, "flow {}", flow.flow);
    }
}

#[test]
fn logs_travel_to_a_log_server_when_asked_for() {
    // 4000 records on either side, 40 bytes each: 160 kB and headers beside 3.2 Mbit/s of traffic.
    let flows = [flow(1, |spec| {
        spec.idt = Distribution::parse("500us", itg_core::distribution::Unit::Time)
            .expect("a distribution");
        spec.size =
            Distribution::parse("200", itg_core::distribution::Unit::Size).expect("a distribution");
    })];
    let network = "kind = \"ethernet\"\nrate = \"10Mbps\"";
    let (without, sender, _) = run(&flows, network);
    assert_eq!(without.logs, LogTransfer::default());
    let (with, logged, _) = run(&flows, &format!("{network}\nlog_server = \"logs\""));
    let [records, _] = [sender, logged].map(|log| {
        let records = read(&log).0;
        assert_eq!(records.len(), 4000, "the schedule is the same");
        records
    });
    let bytes = 2 * records.len() as u64 * 40;
    let LogTransfer { blocks, stored, bytes: moved, waiting_most } = with.logs;
    assert_eq!((blocks, stored), (8, 8), "three full blocks and the rest, from either side");
    assert_eq!(moved, bytes + blocks * 96);
    assert!(waiting_most >= 1024 * 40, "a whole block waits: {waiting_most}");
    // The bus carries it: each byte at least once, with headers.
    let more = with.usage.busy_ns - without.usage.busy_ns;
    assert!(more >= moved * 8 * 100, "{more} ns more for {moved} bytes at 10 Mbit/s");
    // The host of the log server keeps its log at home.
    let table: toml::Table = format!("{network}\nlog_server = \"x\"").parse().expect("TOML");
    let params = Params::of_table(&table, "[network]", "", None);
    let read = |number: Option<u32>| {
        let mut params = params.clone();
        Network::read(&mut params, RunSeed(1), 2, |_| number).map(|network| network.describe(false))
    };
    let text = read(Some(1)).expect("a network");
    assert!(text.ends_with("; logs travel to x over TCP, CUBIC (RFC 9438)"), "{text}");
    let error = read(None).expect_err("nobody").to_string();
    assert_eq!(error, "[network]: log_server: `x` is no node of the experiment");
}
