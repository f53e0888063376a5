//! The example experiments that come with the program are good, and their numbers are pinned.

use std::path::Path;

use itg_experiment::sweep::Sweep;
use itg_experiment::{Experiment, Method, Plan, PlanInputs};

fn examples() -> Vec<(String, String)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../profiles");
    let mut found: Vec<_> = std::fs::read_dir(dir)
        .expect("profiles/")
        .map(|entry| entry.expect("entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .map(|path| {
            let name = path.file_name().expect("name").to_string_lossy().into_owned();
            (name, std::fs::read_to_string(path).expect("text"))
        })
        .filter(|(_, text)| text.lines().any(|line| line.starts_with("schema =")))
        .filter(|(name, text)| {
            Sweep::read(text, name).unwrap_or_else(|error| panic!("{error}")).is_none()
        })
        .collect();
    found.sort();
    found
}

fn plan(name: &str, text: &str) -> Plan {
    let experiment = Experiment::parse(text, name).unwrap_or_else(|error| panic!("{error}"));
    let seed = experiment.seed.unwrap_or_else(|| panic!("{name}: no seed")).0;
    let mut files = |name: &str| Err(format!("{name}: examples need no other file"));
    Plan::resolve(&experiment, PlanInputs::new(seed, &mut files))
        .unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn examples_can_be_run_and_say_how() {
    let examples = examples();
    assert!(examples.len() >= 7, "{} examples", examples.len());
    for (name, text) in &examples {
        assert!(text.starts_with("# "), "{name} starts with what it shows");
        assert!(
            text.contains(&format!("run profiles/{name} --local")),
            "{name} says how to run it"
        );
        assert!(text.contains(&format!("name = \"{}\"", name.trim_end_matches(".toml"))), "{name}");
        let plan = plan(name, text);
        plan.check_ends().unwrap_or_else(|error| panic!("{name}: {error}"));
        let estimate = plan.estimate();
        assert!(estimate.flows.iter().all(|flow| flow.method == Method::Walked), "{name}");
        assert!(estimate.total.end_ns <= 30e9, "{name} ends within 30 s");
        assert!(estimate.total.bit_rate <= 1e9, "{name} stays below 1 Gbit/s");
    }
}

#[test]
fn the_quickstart_has_udp_tcp_and_a_profile() {
    let (name, text) =
        examples().into_iter().find(|(name, _)| name == "quickstart.toml").expect("it");
    let plan = plan(&name, &text);
    let kinds = plan.flows.iter().map(|planned| {
        let spec = planned.flow.spec();
        (spec.proto.name(), spec.profile.as_deref())
    });
    let want = [("udp", None), ("tcp", None), ("udp", Some("voip-g711"))];
    assert_eq!(kinds.collect::<Vec<_>>(), want);
}

/// One table pinned whole; exact counts follow from the seed.
#[test]
fn a_plan_is_printed_as_a_table() {
    let text = "schema = 1\nname = \"two\"\n[[flow]]\nprofile = \"voip-g711\"\nduration = \"10s\"\n\
                [[flow]]\nname = \"flood\"\nfrom = \"a\"\nto = \"b\"\nrate = \"2Mpps\"\nsize = 1500\n";
    let experiment = Experiment::parse(text, "two.toml").expect("good");
    let mut files = |name: &str| Err(name.to_owned());
    let seed = itg_core::seed::RunSeed(1);
    let plan = Plan::resolve(&experiment, PlanInputs::new(seed, &mut files)).expect("good");
    let got = plan.render().replace(&plan.hash_text(), "HASH");
    let want = "\
two: 2 flows, seed 1, plan HASH

 flow  name       proto  path              packets      bytes  packets/s      bit rate        log     ends
    1  voip-g711  udp    local -> local       1000    92.0 kB        100  73.60 kbit/s    80.0 kB  9.990 s
    2  flood      udp    a -> b          unlimited  unlimited     2.00 M  24.00 Gbit/s  unlimited    never
total                                    unlimited  unlimited     2.00 M  24.00 Gbit/s  unlimited    never

Packets and bytes are counted from the schedule; those with ~ are expected from the means of the distributions.
Rates are the means that the distributions ask for, pauses included. Log: both sides together, two or (round trips) three records a packet.

Warnings:
  flow 2: 2.00 M packets/s: few hosts reach 1 M packets/s through sockets
  flow 2: no end: `run` refuses it: give the experiment a `duration`, or the flow `duration`, `packets` or `bytes`
  flow 2: all of the packets exceed 1472 bytes: where the path's MTU is 1500 they travel in fragments, or not at all
";
    assert_eq!(got, want);
    let json: serde_json::Value = serde_json::from_str(&plan.to_json()).expect("JSON");
    assert_eq!(json["flows"][0]["packets"], 1000.0);
    assert!(json["flows"][1]["packets"].is_null(), "what is unlimited is null");
    assert_eq!(json["flows"][1]["settings"]["idt"], "constant(500ns)");
    let lines: Vec<_> =
        ["duration 10s, meter owd", "flow 2, flood: udp a -> b, idt constant(500ns)"]
            .into_iter()
            .filter(|line| !plan.describe().contains(line))
            .collect();
    assert!(lines.is_empty(), "{lines:?} not in {}", plan.describe());
}

#[test]
fn the_sweep_has_six_cases_that_can_be_run() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../profiles/sweep-queue.toml");
    let text = std::fs::read_to_string(path).expect("text");
    assert!(text.starts_with("# "), "it starts with what it shows");
    let sweep = Sweep::read(&text, "sweep-queue.toml").unwrap_or_else(|error| panic!("{error}"));
    let sweep = sweep.expect("a sweep");
    assert_eq!((sweep.cases.len(), sweep.repetitions()), (6, (3, 12)));
    assert_eq!(sweep.cases[1].label, "gap=2ms network.queue=200");
    for case in &sweep.cases {
        let plan = plan(&case.label, &case.text);
        plan.check_ends().unwrap_or_else(|error| panic!("{}: {error}", case.label));
    }
}

/// The hashes of the first version, by which `replay` knows a plan again: no change may move them.
#[test]
fn plans_keep_their_hashes() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../itg-cluster/tests/golden/every-setting.toml");
    let text = std::fs::read_to_string(golden).expect("there");
    let mut files = examples();
    files.push(("every-setting.toml".to_owned(), text));
    let got: Vec<_> =
        files.iter().map(|(name, text)| (name.as_str(), plan(name, text).hash_text())).collect();
    let want = [
        ("dns-telnet.toml", "cd0afbf3642148fb"),
        ("gaming.toml", "6b270a8cf8c29fe9"),
        ("icmp-rtt.toml", "f035b94bb04d4a45"),
        ("many-flows.toml", "0816e8dd68c594e2"),
        ("on-off.toml", "ff59de831a94aafa"),
        ("quickstart.toml", "9b3428f9e826e535"),
        ("simulated-switch.toml", "0d3c503e0b0f97bb"),
        ("voip-beside-bulk.toml", "e6ed85fa7a7531e1"),
        ("every-setting.toml", "4847a0be235fa5f5"),
    ];
    for (name, hash) in want {
        let found = got.iter().find(|(file, _)| *file == name).expect("an example");
        assert_eq!(found.1, hash, "{name}");
    }
}
