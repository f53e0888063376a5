//! Sizes drawn with a seed, against those the real ITGSend logged; and distributions against their
//! moments.

use itg_classic::send::{Departures, FlowArgs, Mode, Source, parse};
use itg_core::distribution::Unit;

fn flow(line: &str) -> FlowArgs {
    let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    match parse(&args) {
        Ok(Mode::Single(flow, _)) => *flow,
        other => panic!("`{line}`: {other:?}"),
    }
}

fn departures(flow: &FlowArgs) -> Departures {
    Departures::new(flow, flow.seed.expect("a seed")).expect("good laws")
}

#[test]
fn golden_sequences_come_out_again() {
    let mut compared = 0;
    for line in include_str!("golden/random.txt").lines().filter(|line| !line.starts_with('#')) {
        let (options, want) = line.split_once(" | ").expect("options | sizes");
        let want: Vec<u32> = want.split(' ').map(|size| size.parse().expect("a size")).collect();
        let line =
            if options.contains("-z") { options.to_owned() } else { format!("-z 60 {options}") };
        let flow = flow(&line);
        let got: Vec<u32> = departures(&flow).map(|packet| packet.size - flow.unlogged()).collect();
        assert_eq!(got[..want.len().min(got.len())], want, "{options}");
        compared += 1;
    }
    assert_eq!(compared, 48);
}

#[test]
fn on_off_periods_are_drawn_between_packets() {
    // 20 packets a second, ON for 190 ms, OFF for 1 s: four packets a burst.
    let flow = flow("-s 0.5 -C 20 -z 12 -B C 190 C 1000");
    let due: Vec<u64> = departures(&flow).map(|packet| packet.due_ns / 1_000_000).collect();
    assert_eq!(due, [0, 50, 100, 150, 1200, 1250, 1300, 1350, 2400, 2450, 2500, 2550]);
}

#[test]
fn limits_end_a_flow() {
    for (line, packets) in [
        ("-s 0.5 -C 1000 -z 7", 7),
        ("-s 0.5 -C 10 -t 1000", 10),
        ("-s 0.5 -C 10 -t 1000 -z 3", 3),
        // The packet that crosses the limit is sent.
        ("-s 0.5 -C 10 -c 100 -k 1", 11),
        // 10000 by hand is no limit when there is another one.
        ("-s 0.5 -C 10 -t 10000 -z 150", 150),
        ("-s 0.5 -C 10 -t 9999 -z 150", 100),
        ("-s 0.5 -C 10", 100),
    ] {
        assert_eq!(departures(&flow(line)).count(), packets, "`{line}`");
    }
}

/// A Poisson number of 0 stops the real sender for good.
#[test]
fn small_poisson_rates_go_on() {
    let flow = flow("-s 0.1 -O 2 -z 1000");
    assert_eq!(departures(&flow).count(), 1000);
}

/// The distribution in ITG's terms has the mean of what is drawn.
#[test]
fn laws_agree_with_their_translation() {
    for options in [
        "-C 200",
        "-U 100 400",
        "-E 200",
        "-N 5 1",
        "-O 200",
        "-V 3 4",
        "-G 2 3",
        "-W 5 3",
        "-W 5 0.9",
        "Quake3",
        "CSi",
    ] {
        let flow = flow(&format!("-s 0.37 -z 40001 {options}"));
        let Source::Law(distribution) = &flow.idt else { panic!("a law") };
        let mean = distribution.to_core(Unit::Time).resolve(Unit::Time, 0.0, f64::INFINITY);
        let mean = mean.expect("a law of ITG").mean();
        let last = departures(&flow).last().expect("packets").due_ns as f64 / 40_000.0;
        // Negative inter-departure times count as none, and Student's tails are long.
        let tolerance = if options == "CSi" { 0.2 } else { 0.03 };
        assert!((last / mean - 1.0).abs() < tolerance, "{options}: {last} is not about {mean}");
    }
}

#[test]
fn files_of_values_are_played_in_order() {
    let mut flow = flow("-s 0.5 -z 7 -Ft gaps -Fs sizes");
    assert_eq!(flow.value_files(), [Some("gaps"), Some("sizes")]);
    assert!(Departures::new(&flow, 0.5).is_err(), "not loaded");
    flow.load("250\n10\n\n20\n", false).expect("good gaps");
    flow.load("100\n200\n5\n", true).expect("good sizes");
    assert_eq!(flow.delay_ms, 250);
    let packets: Vec<_> =
        departures(&flow).map(|packet| (packet.due_ns / 1_000_000, packet.size)).collect();
    assert_eq!(
        packets,
        [(0, 100), (10, 200), (30, 16), (280, 100), (290, 200), (310, 16), (560, 100)]
    );
    assert!(flow.load("10\nx\n", false).is_err());
    assert!(flow.load("0\n", true).is_err());
    assert!(flow.load("\n\n", true).is_err());
}
