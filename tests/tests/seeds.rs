//! The same seed gives the same packets, and the packets are those that the distributions ask for.
#![allow(missing_docs, reason = "tests")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use itg_tests::{Receiver, in_parallel, lists, packets, send, temp_dir};

/// Packets sent, by flow: sequence number, size in bytes and planned time in nanoseconds of each.
type Plan = BTreeMap<u32, Vec<(u64, u64, u64)>>;

/// Sends with these arguments, which need a receiver's address in front; the plan and stderr.
fn sent(receiver: &Receiver, args: &[&str]) -> (Plan, String) {
    let dir = temp_dir();
    let log = dir.path().join("send.itg");
    let at = receiver.at();
    let mut all = vec![at.as_str()];
    all.extend(args);
    all.extend(["--log", log.to_str().expect("UTF-8")]);
    let done = send(&all).exits(0);
    (lists(&packets(&[&log])), done.err)
}

#[test]
fn the_same_seed_gives_the_same_packets_and_another_one_others() {
    let receiver = Receiver::start::<&str>(&[]);
    let random = ["--idt", "exp(1ms)", "--size", "uniform(64,1400)", "--packets", "300"];
    let bursts = ["--idt", "exp(1ms)", "--on-off", "exp(20ms),exp(30ms)", "--packets", "200"];
    let tcp = ["--proto", "tcp", "--idt", "pareto(1.5,300us)", "--flows", "3", "--packets", "200"];
    let game = ["--profile", "quake3", "--packets", "20"];
    in_parallel(
        &[("udp", &random[..]), ("on-off", &bursts), ("tcp", &tcp), ("profile", &game)],
        |args| {
            let with = |seed| sent(&receiver, &[*args, &["--seed", seed]].concat()).0;
            let (first, again, other) = (with("7"), with("7"), with("8"));
            assert_eq!(first, again, "the same seed");
            assert_ne!(first, other, "another seed");
            assert!(first.keys().eq(other.keys()));
        },
    );
}

#[test]
fn a_drawn_seed_is_printed_and_repeats_the_run() {
    let receiver = Receiver::start::<&str>(&[]);
    let args = ["--idt", "exp(1ms)", "--size", "uniform(64,1400)", "--packets", "50"];
    let (first, words) = sent(&receiver, &args);
    let (_, rest) = words.split_once("seed ").unwrap_or_else(|| panic!("no seed in {words}"));
    let seed: String = rest.chars().take_while(char::is_ascii_digit).collect();
    let (again, _) = sent(&receiver, &[&args[..], &["--seed", &seed]].concat());
    assert_eq!(first, again, "seed {seed}");
    let (other, _) = sent(&receiver, &args);
    assert_ne!(first, other, "a fresh seed is drawn each time");
}

#[test]
fn one_more_flow_changes_no_other() {
    let receiver = Receiver::start::<&str>(&[]);
    let dir = temp_dir();
    let two = format!(
        "schema = 1\nname = \"x\"\nseed = 42\n\
         [nodes]\na = {{ address = \"127.0.0.1\" }}\nb = {{ address = \"{}\" }}\n\
         [[flow]]\nfrom = \"a\"\nto = \"b\"\nidt = \"exp(1ms)\"\nsize = \"uniform(64,1400)\"\n\
         packets = 200\n\
         [[flow]]\nfrom = \"a\"\nto = \"b\"\nproto = \"tcp\"\nidt = \"gamma(2,1ms)\"\n\
         size = \"normal(500,100)\"\ncount = 2\npackets = 100\n",
        receiver.at()
    );
    let one_more = "[[flow]]\nfrom = \"a\"\nto = \"b\"\nidt = \"exp(1ms)\"\npackets = 100\n\
                    on_off = [\"exp(10ms)\", \"exp(10ms)\"]\n";
    let sent = |name: &str, text: &str| {
        let (file, log) = (dir.path().join(name), dir.path().join(name).with_extension("itg"));
        fs::write(&file, text).expect("a temporary file");
        let words = [Path::new("run"), &file, Path::new("--log"), &log];
        let done = send(&words).exits(0);
        assert!(done.out.contains("both sides agree"), "{done}");
        lists(&packets(&[&log]))
    };
    let before = sent("two.toml", &two);
    let after = sent("three.toml", &(two + one_more));
    assert!(before.keys().eq(&[1, 2, 3]) && after.keys().eq(&[1, 2, 3, 4]));
    for (flow, list) in &before {
        assert_eq!(*list, after[flow], "flow {flow}");
    }
    assert_ne!(before[&2], before[&3], "equal flows have their own random streams");
}

#[test]
fn packets_are_those_that_the_laws_ask_for() {
    let receiver = Receiver::start::<&str>(&[]);
    let flow = |args: &[&str]| {
        let (mut plan, _) = sent(&receiver, &[args, &["--seed", "3"]].concat());
        plan.remove(&1).expect("one flow")
    };
    let list = flow(&["--idt", "constant(1.5ms)", "--size", "constant(200)", "--packets", "100"]);
    let want: Vec<_> = (0..100).map(|k| (k, 200, k * 1_500_000)).collect();
    assert_eq!(list, want);

    let list = flow(&["--rate", "1Mbps", "--size", "500", "--duration", "500ms"]);
    assert!(list.iter().all(|&(k, size, due)| size == 500 && due == k * 4_000_000), "{list:?}");

    let uniform = ["--idt", "uniform(500us,1500us)", "--size", "uniform(100,300)"];
    let list = flow(&[&uniform[..], &["--packets", "600"]].concat());
    let gaps: Vec<u64> = list.windows(2).map(|two| two[1].2 - two[0].2).collect();
    assert!(gaps.iter().all(|gap| (500_000..=1_500_000).contains(gap)));
    // Five standard errors: 1 ms / √12 / √600 each.
    let mean = gaps.iter().sum::<u64>() / gaps.len() as u64;
    assert!(mean.abs_diff(1_000_000) < 59_000, "mean gap {mean} ns");
    let sizes: Vec<u64> = list.iter().map(|row| row.1).collect();
    let mean = sizes.iter().sum::<u64>() / sizes.len() as u64;
    assert!(mean.abs_diff(200) < 13, "mean size {mean}");
    assert!(sizes.iter().min() < Some(&110) && sizes.iter().max() > Some(&290));
}
