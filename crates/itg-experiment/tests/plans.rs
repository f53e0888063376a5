//! From files to plans: precedence, rules between keys, and the words for what cannot be done.
#![allow(missing_docs, clippy::float_cmp, reason = "exact values are meant")]

use std::collections::BTreeMap;

use itg_core::distribution::Unit;
use itg_core::flow::Proto;
use itg_core::seed::RunSeed;
use itg_experiment::{Experiment, FlowEntry, Manifest, Plan, PlanInputs};

fn files(name: &str) -> Result<String, String> {
    match name {
        "gaps.txt" => Ok("10ms\n20ms\n".to_owned()),
        "sizes.txt" => Ok("# bytes\n100\n300\n".to_owned()),
        _ => Err(format!("cannot read `{name}`: no such file")),
    }
}

fn plan(text: &str) -> Result<Plan, String> {
    let experiment = Experiment::parse(text, "x.toml").expect("well written");
    Plan::resolve(&experiment, PlanInputs::new(RunSeed(42), &mut files)).map_err(|e| e.to_string())
}

/// A file with these lines from line 3 on.
fn file(lines: &str) -> String {
    format!("schema = 1\nname = \"x\"\n{lines}\n")
}

/// The plan of a file with one flow with these lines.
fn one(lines: &str) -> Plan {
    plan(&file(&format!("[[flow]]\n{lines}"))).expect(lines)
}

#[test]
fn keys_go_before_the_profile_and_the_profile_before_the_defaults() {
    let rows = [
        ("", Proto::Udp, "constant(1ms)", "constant(512)"),
        ("profile = 'voip-g711'", Proto::Udp, "constant(10ms)", "constant(92)"),
        ("profile = 'voip-g711:header=crtp,vad=yes'", Proto::Udp, "constant(10ms)", "constant(54)"),
        ("profile = 'voip-g711'\nproto = 'dccp'", Proto::Dccp, "constant(10ms)", "constant(92)"),
        ("profile = 'voip-g711'\nidt = 'exp(20ms)'", Proto::Udp, "exp(20ms)", "constant(92)"),
        ("profile = 'voip-g711'\nsize = 60", Proto::Udp, "constant(10ms)", "constant(60)"),
        ("profile = 'voip-g711'\nrate = '50pps'", Proto::Udp, "constant(20ms)", "constant(92)"),
        ("rate = '1Mbps'\nsize = 125", Proto::Udp, "constant(1ms)", "constant(125)"),
        (
            "rate = '1Mbps'\nsize = 'uniform(50,200)'",
            Proto::Udp,
            "constant(1ms)",
            "uniform(50, 200)",
        ),
        ("rate = '100kpps'", Proto::Udp, "constant(10us)", "constant(512)"),
        ("rate = 'max'", Proto::Udp, "constant(0s)", "constant(512)"),
    ];
    for (lines, proto, idt, size) in rows {
        let plan = one(lines);
        let flow = &plan.flows[0].flow;
        let got = (
            flow.spec().proto,
            flow.idt().distribution().display(Unit::Time),
            flow.size().distribution().display(Unit::Size),
        );
        assert_eq!(got, (proto, idt.to_owned(), size.to_owned()), "flow:\n{lines}");
    }
}

#[test]
fn what_was_decided_for_the_user_is_told() {
    for (lines, want) in [
        ("[[flow]]", vec![]),
        (
            "[[flow]]\nprofile = 'voip-g711'\nproto = 'tcp'\nrate = '10pps'\ncount = 2",
            vec!["flows 1-2: the flow's proto, rate go before profile voip-g711"],
        ),
        (
            "duration = '20s'\n[[flow]]\n[[flow]]\nstart = '5s'\nduration = '30s'",
            vec!["flow 2: duration 30s is cut to 15s: the run ends at 20s"],
        ),
        (
            "[[flow]]\nrate = '1Mbps'\non_off = ['exp(1s)', 'exp(1s)']",
            vec![
                "flow 1: the rate holds during ON periods; over a long time it is that share less",
            ],
        ),
        (
            "[[flow]]\n[network]\nkind = 'ethernet'",
            vec![
                "[network] describes a simulated network: it is used only with --sim, and ignored \
                 here",
            ],
        ),
    ] {
        assert_eq!(plan(&file(lines)).expect("good").notices, want, "file:\n{lines}");
    }
    let plan = one("count = 3\nidt = 'pareto(0.9,1ms)'\nduration = '1s'");
    let [notice] = &plan.notices[..] else { panic!("one notice: {:?}", plan.notices) };
    assert!(notice.starts_with("flows 1-3: idt: pareto(0.9, 1ms) has no finite mean"), "{notice}");
    assert!(notice.contains("60"), "the rule is printed: {notice}");
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn what_cannot_be_done_is_refused_with_its_place() {
    for (lines, want) in [
        ("", "x.toml: no flow: add at least one [[flow]]"),
        ("duration = '0s'\n[[flow]]", "x.toml:3:12: a run of duration 0 sends nothing"),
        (
            "[[flow]]\nrate = '1Mbps'\nidt = 'exp(1ms)'",
            "x.toml:4:8: flow 1: `rate` and `idt` exclude each other: leave one out",
        ),
        (
            "duration = '10s'\n[[flow]]\nstart = '10s'",
            "x.toml:5:9: flow 1: starts at 10s, but the run ends at 10s",
        ),
        (
            "[[flow]]\nduration = '0s'",
            "x.toml:4:12: flow 1: a duration of 0 sends nothing: leave the flow out",
        ),
        ("[[flow]]\ncount = 0", "x.toml:4:9: flow 1: a count of 0 is no flow"),
        (
            "[[flow]]\n[[flow]]\ncount = 100000",
            "x.toml:5:9: flow 2: 100000 more flows exceed the limit of 100000",
        ),
        (
            "[[flow]]\nprofile = 'voip-g711:vad'",
            "x.toml:4:11: flow 1: profile `voip-g711`: `vad` is not of the form key=value",
        ),
        (
            "[[flow]]\nprofile = 'my/app.toml'",
            "x.toml:4:11: flow 1: cannot read `my/app.toml`: no such file",
        ),
        (
            "[[flow]]\nsize = 'empirical(none.txt)'",
            "x.toml:4:8: flow 1: size: cannot read `none.txt`: no such file",
        ),
        (
            "[nodes]\nalpha = { address = '10.0.0.4' }\n[[flow]]\nfrom = 'alpa'\nto = 'alpha'",
            "x.toml:6:8: flow 1: from: `alpa` is not in [nodes]: did you mean `alpha`?",
        ),
        (
            "[nodes]\na = { address = '10.0.0.4' }\n[[flow]]\nfrom = 'a'",
            "x.toml:5:1: flow 1: `to` is missing: name one of the nodes `a`",
        ),
        (
            "[[flow]]\n[log]\nserver = 'b:9003'",
            "x.toml:4:1: log server `b:9003`: write tcp://HOST:PORT, udp://HOST:PORT, tls://HOST:PORT, or mpi",
        ),
        (
            "[[flow]]\nproto = 'icmp'\ndest_port = 7",
            "x.toml:5:13: flow 1: dest_port: ICMP has no ports: leave it out",
        ),
        ("[[flow]]\nnagle = true", "x.toml:4:9: flow 1: nagle is a setting of TCP: leave it out"),
        (
            "[[flow]]\nsource = 'localhost'",
            "x.toml:4:10: flow 1: source `localhost` is not an IP address: expected one such as \
             10.0.0.4, 2001:db8::4 or fe80::1%eth0",
        ),
        (
            "[[flow]]\nsource_port = 4000\n[[flow]]\nsource_port = 4000",
            "x.toml:6:15: flow 2: source_port 4000 is taken by flow 1",
        ),
        (
            "[[flow]]\nsource_port = 4000\ncount = 3",
            "x.toml:4:15: flow 1: source_port 4000 serves one flow, not 3: leave it out, or give \
             each flow its own entry",
        ),
        (
            "[[flow]]\nstagger = '1s'",
            "x.toml:4:11: flow 1: stagger spreads the starts of several flows: give a count, or use \
             start",
        ),
        (
            "duration = '1s'\n[[flow]]\ncount = 2\nstagger = '2s'",
            "x.toml:6:11: flow 2: starts at 1s, but the run ends at 1s",
        ),
        (
            "[[flow]]\nttl = 0",
            "x.toml:3:1: flow 1: a time to live of 0 never leaves the host: use 1 to 255",
        ),
        (
            "[[flow]]\npackets = 0",
            "x.toml:3:1: flow 1: a limit of 0 packets or bytes sends nothing: leave it out",
        ),
    ] {
        assert_eq!(plan(&file(lines)).map(|_| ()), Err(want.to_owned()), "file:\n{lines}");
    }
}

/// The words of itg-core are tested there; here it counts that they come with their place.
#[test]
fn laws_that_do_not_fit_are_refused_with_their_place() {
    for (lines, want) in [
        ("[[flow]]\nsize = 70000", "x.toml:4:8: flow 1: size: "),
        ("[[flow]]\nproto = 'tcp'\nsize = 12", "x.toml:5:8: flow 1: size: "),
        ("[[flow]]\nrate = '1Mbps'\nsize = 5", "x.toml:5:8: flow 1: size: "),
        ("[[flow]]\nidt = 'trunc(exp(1ms),1s,2s)'", "x.toml:4:7: flow 1: idt: "),
        ("[[flow]]\non_off = ['exp(1s)', 'trunc(exp(1ms),1s,2s)']", "x.toml:4:10: flow 1: off: "),
        ("[[flow]]\nprofile = 'quake4'", "x.toml:4:11: flow 1: unknown profile `quake4`"),
    ] {
        let error = plan(&file(lines)).map(|_| ()).expect_err(lines);
        assert!(error.starts_with(want), "{lines}: {error}");
        assert_eq!(error.lines().count(), 1, "{lines}: {error}");
    }
}

#[test]
fn all_problems_of_all_flows_are_reported_once_in_the_order_of_the_file() {
    let text = file(
        "duration = '5s'\n[[flow]]\nrate = '1Mbps'\nidt = 'exp(1ms)'\nnagle = true\nsize = 70000\n\
         [[flow]]\nstart = '9s'\ncount = 10\n[[flow]]\nprofile = 'quake4'\n[log]\nserver = 'x'",
    );
    let error = plan(&text).map(|_| ()).expect_err("bad");
    let places: Vec<_> = error.lines().map(|line| line.split(' ').next().unwrap_or("")).collect();
    let want = [
        "x.toml:5:8:",
        "x.toml:7:9:",
        "x.toml:8:8:",
        "x.toml:10:9:",
        "x.toml:13:11:",
        "x.toml:14:1:",
    ];
    assert_eq!(places, want, "{error}");
}

#[test]
fn entries_stand_for_several_flows_with_streams_of_their_own() {
    let plan = plan(&file(
        "duration = '1s'\n[[flow]]\nname = 'web'\ncount = 2\nidt = 'exp(1ms)'\n[[flow]]\nprofile = \
         'voip-g711:vad=yes'\n[[flow]]\nproto = 'tcp'",
    ))
    .expect("good");
    let names: Vec<_> = plan.flows.iter().map(|planned| planned.name.as_str()).collect();
    assert_eq!(names, ["web-1", "web-2", "voip-g711", "tcp"]);
    let ids: Vec<_> = plan.flows.iter().map(|planned| planned.flow.spec().id).collect();
    assert_eq!(ids, [1, 2, 3, 4]);
    let dues = |k: usize| plan.flows[k].flow.schedule().map(|d| d.due_ns).collect::<Vec<_>>();
    assert_ne!(dues(0), dues(1));
    assert_eq!((plan.flows[0].from.as_str(), plan.flows[0].to.as_str()), ("local", "local"));
}

#[test]
fn starts_are_spread_evenly_and_every_flow_ends_with_the_run() {
    let lines = "duration = '1s'\n[[flow]]\ncount = 4\nstart = '100ms'\nstagger = '800ms'";
    let times = |lines: &str| -> Vec<_> {
        let flows = plan(&file(lines)).expect(lines).flows;
        flows
            .iter()
            .map(|flow| flow.flow.spec())
            .map(|s| (s.start_ns, s.stop.duration_ns))
            .collect()
    };
    let ms = |ms: u64| ms * 1_000_000;
    let want = [(100, 900), (300, 700), (500, 500), (700, 300)];
    assert_eq!(times(lines), want.map(|(start, long)| (ms(start), Some(ms(long)))));
    let own = format!("{lines}\nduration = '400ms'");
    let want = [(100, 400), (300, 400), (500, 400), (700, 300)];
    assert_eq!(times(&own), want.map(|(start, long)| (ms(start), Some(ms(long)))));
}

#[test]
fn a_flow_at_the_end_changes_no_other() {
    let few = plan(&file("duration = '1s'\n[[flow]]\nidt = 'exp(1ms)'")).expect("good");
    let more = file("duration = '1s'\n[[flow]]\nidt = 'exp(1ms)'\n[[flow]]\nidt = 'exp(2ms)'");
    let more = plan(&more).expect("good");
    let packets = |plan: &Plan| plan.flows[0].flow.schedule().collect::<Vec<_>>();
    assert_eq!(packets(&few), packets(&more));
    assert_ne!(few.hash, more.hash);
}

#[test]
fn durations_end_with_the_run_and_can_be_replaced() {
    let experiment = Experiment::parse(
        &file("duration = '20s'\n[[flow]]\n[[flow]]\nstart = '5s'\n[[flow]]\nduration = '3s'"),
        "x.toml",
    )
    .expect("good");
    let mut files = files;
    for (replaced, want) in [(None, [20, 15, 3]), (Some(10), [10, 5, 3])] {
        let duration_ns = replaced.map(|seconds: u64| seconds * 1_000_000_000);
        let inputs = PlanInputs { duration_ns, ..PlanInputs::new(RunSeed(1), &mut files) };
        let plan = Plan::resolve(&experiment, inputs).expect("good");
        let stops = plan.flows.iter().map(|planned| planned.flow.spec().stop.duration_ns);
        let want = want.map(|seconds: u64| Some(seconds * 1_000_000_000));
        assert_eq!(stops.collect::<Vec<_>>(), want);
    }
}

#[test]
fn the_traffic_class_is_made_of_dscp_and_ecn() {
    for (lines, want) in [
        ("", None),
        ("dscp = 'EF'", Some(0xb8)),
        ("ecn = 'ect0'", Some(2)),
        ("dscp = 'AF41'\necn = 'ce'", Some(0x8b)),
    ] {
        assert_eq!(one(lines).flows[0].flow.spec().socket.tos, want, "flow:\n{lines}");
    }
}

#[test]
fn the_hash_tells_plans_apart() {
    let lines = "duration = '1s'\n[[flow]]\nidt = 'empirical(gaps.txt)'";
    let experiment = Experiment::parse(&file(lines), "x.toml").expect("good");
    let hash = |seed: u64, table: &str| {
        let mut files = |_: &str| Ok(table.to_owned());
        Plan::resolve(&experiment, PlanInputs::new(RunSeed(seed), &mut files)).expect("good").hash
    };
    let first = hash(42, "1ms\n2ms\n");
    assert_eq!(first, hash(42, "1ms\n2ms\n"));
    assert_ne!(first, hash(43, "1ms\n2ms\n"), "another seed");
    assert_ne!(first, hash(42, "1ms\n3ms\n"), "another table");
    let renamed = format!("schema = 1\nname = 'y' # other words\n{lines}");
    assert_eq!(first, {
        let experiment = Experiment::parse(&renamed, "y.toml").expect("good");
        let mut files = |_: &str| Ok("1ms\n2ms\n".to_owned());
        Plan::resolve(&experiment, PlanInputs::new(RunSeed(42), &mut files)).expect("good").hash
    });
}

#[test]
fn profiles_of_the_user_go_before_the_built_in_ones() {
    let own = "name = 'dns'\ntitle = 'Own'\nsource = 'measured'\nidt = 'constant(5ms)'\n\
               size = 'constant(77)'\n";
    let experiment = Experiment::parse(&file("[[flow]]\nprofile = 'dns'"), "x.toml").expect("good");
    let mut files = files;
    let profiles = BTreeMap::from([("dns".to_owned(), own.to_owned())]);
    let inputs = PlanInputs { profiles, ..PlanInputs::new(RunSeed(1), &mut files) };
    let plan = Plan::resolve(&experiment, inputs).expect("good");
    assert_eq!(plan.flows[0].flow.size().is_constant(), Some(77.0));
    assert_eq!(plan.profiles["dns"], own);
}

#[test]
fn a_manifest_is_enough_to_plan_again() {
    let text = file(
        "[[flow]]\nidt = 'empirical(gaps.txt)'\nsize = 'empirical(sizes.txt)'\n[[flow]]\n\
         profile = 'voip-g711:vad=yes'",
    );
    let experiment = Experiment::parse(&text, "x.toml").expect("good");
    let mut files = files;
    let duration_ns = Some(2_000_000_000);
    let inputs = PlanInputs { duration_ns, ..PlanInputs::new(RunSeed(7), &mut files) };
    let first = Plan::resolve(&experiment, inputs).expect("good");
    let written = Manifest::new(&first, "x.toml", &text, duration_ns)
        .started(1_800_000_000_000_000_000)
        .setting("out", "here")
        .to_json();

    let manifest = Manifest::parse(&written).expect("good");
    assert_eq!(manifest.settings["out"], "here");
    let experiment = Experiment::parse(&manifest.experiment, &manifest.origin).expect("good");
    let mut stored = |name: &str| manifest.files.get(name).cloned().ok_or_else(String::new);
    let inputs = PlanInputs {
        seed: RunSeed(manifest.seed),
        duration_ns: manifest.duration_ns,
        profiles: manifest.profiles.clone(),
        sizes: None,
        files: &mut stored,
    };
    let again = Plan::resolve(&experiment, inputs).expect("good");
    assert_eq!(again.hash_text(), manifest.plan);
}

#[test]
fn manifests_of_other_versions_are_refused() {
    let error = Manifest::parse("{\"schema\": 2}").expect_err("other");
    assert_eq!(error.to_string(), "manifest of schema 2 is not known: this program reads schema 1");
    let error = Manifest::parse("rubbish").expect_err("rubbish").to_string();
    assert!(error.starts_with("not a manifest: "), "{error}");
}

#[test]
fn experiments_can_be_made_without_a_file() {
    let experiment = Experiment {
        name: "made".to_owned(),
        flows: vec![FlowEntry {
            rate: Some("1pps".parse().expect("rate")),
            ..FlowEntry::default()
        }],
        ..Experiment::default()
    };
    let plan = Plan::resolve(&experiment, PlanInputs::new(RunSeed(1), &mut files)).expect("good");
    assert_eq!(
        plan.check_ends().map_err(|error| error.to_string()),
        Err("flow 1: no end: give the experiment a `duration`, or the flow `duration`, `packets` \
             or `bytes`"
            .to_owned())
    );
}
