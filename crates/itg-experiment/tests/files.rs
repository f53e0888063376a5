//! Good and bad experiment files, with the exact words for what is wrong.

use itg_core::flow::{Late, Meter, Payload, Proto};
use itg_core::units::{BitRate, Rate};
use itg_experiment::{Experiment, ExperimentError, Position, Problem, SendRate};
use proptest::prelude::*;

fn parse(text: &str) -> Result<Experiment, String> {
    Experiment::parse(text, "x.toml").map_err(|error| error.to_string())
}

/// The file of a flow with these lines, from line 4 on.
fn flow(lines: &str) -> String {
    format!("schema = 1\nname = \"x\"\n[[flow]]\n{lines}\n")
}

#[test]
fn every_key_is_read() {
    let text = r#"
        schema = 1
        name = "everything"
        seed = 42
        duration = "20s"
        [nodes]
        a = { address = "10.0.0.4" }
        b = { address = "10.0.0.3" }
        [[flow]]
        name = "first"
        from = "a"
        to = "b"
        count = 3
        proto = "tcp"
        rate = "10Mbps"
        size = "uniform(500,1000)"
        on_off = ["exp(1s)", "exp(2s)"]
        start = "2s"
        duration = "1min"
        packets = "10k"
        bytes = "64KiB"
        meter = "rtt"
        ttl = 64
        dscp = "AF41"
        ecn = "ect0"
        source = "10.0.0.4"
        source_port = 4000
        dest_port = 8999
        interface = "eth0"
        nagle = true
        payload = "pattern:00ff"
        late = "drop"
        max_burst = 8
        [[flow]]
        profile = "voip-g711:vad=yes"
        size = 100
        packets = 5
        bytes = 1000
        dscp = 46
        ecn = 1
        start = 0
        [network]
        kind = "ethernet"
        rate = "100Mbps"
    "#;
    let experiment = parse(text).expect("good");
    assert_eq!(experiment.name, "everything");
    assert_eq!(experiment.seed.map(|seed| seed.0.0), Some(42));
    assert_eq!(experiment.duration.map(|time| time.0), Some(20_000_000_000));
    assert_eq!(experiment.nodes["a"].address, "10.0.0.4");
    assert_eq!(experiment.network.as_ref().map(|table| table.len()), Some(2));
    let [first, second] = &experiment.flows[..] else { panic!("two flows") };
    assert_eq!(first.count, Some(3));
    assert_eq!(first.proto.map(|proto| proto.0), Some(Proto::Tcp));
    assert_eq!(first.rate, Some(SendRate::Mean(Rate::Bits(BitRate(10_000_000)))));
    assert_eq!(first.duration.map(|time| time.0), Some(60_000_000_000));
    assert_eq!(first.packets.map(|count| count.0), Some(10_000));
    assert_eq!(first.bytes.map(|bytes| bytes.0), Some(65_536));
    assert_eq!(first.meter.map(|meter| meter.0), Some(Meter::Rtt));
    assert_eq!(first.dscp.map(|dscp| dscp.0), Some(34));
    assert_eq!(first.ecn.map(|ecn| ecn.0), Some(2));
    assert_eq!(first.late.map(|late| late.0), Some(Late::Drop));
    assert_eq!(first.payload.clone().map(|p| p.0), Some(Payload::Pattern(vec![0, 255])));
    assert_eq!(first.places.head, Some(Position { line: 9, column: 9 }));
    assert_eq!(first.places.key("size"), Some(Position { line: 16, column: 16 }));
    assert_eq!(first.places.key("profile"), first.places.head, "keys that are not there");
    assert_eq!(second.packets.map(|count| count.0), Some(5));
    assert_eq!(second.bytes.map(|bytes| bytes.0), Some(1000));
    assert_eq!(second.dscp.map(|dscp| dscp.0), Some(46));
    assert_eq!(second.start.map(|time| time.0), Some(0));
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn what_is_wrong_with_a_file_is_said_with_its_place() {
    for (text, want) in [
        (
            "",
            "x.toml: missing key `schema`: an experiment file says which version of the format it \
             is written in: schema = 1",
        ),
        ("schema = 2", "x.toml:1:10: schema 2 is not known: this program reads schema 1"),
        ("schema = '1'", "x.toml:1:10: schema is a number: schema = 1"),
        ("schema = 1", "x.toml: missing key `name`"),
        ("schema = 1\nname = 'x", "x.toml:2:10: not TOML: invalid literal string, expected `'`"),
        ("schema = 1\nname = 'x'\nname = 'y'", "x.toml:3:1: not TOML: duplicate key"),
        (
            "schema = 1\nname = 5",
            "x.toml:2:8: `name`: invalid type: integer `5`, expected a string",
        ),
        (
            "schema = 1\nname = 'x'\nflows = 1",
            "x.toml:3:1: unknown key `flows`: did you mean `flow`?",
        ),
        (
            "schema = 1\nname = 'x'\n[flow]\nidt = 'exp(1ms)'",
            "x.toml:3:1: `flow`: invalid type: table, expected tables, each under its own [[flow]]",
        ),
        (
            "schema = 1\nname = 'x'\n[nodes]\na = '10.0.0.4'",
            "x.toml:4:5: `a` in [nodes]: invalid type: string \"10.0.0.4\", expected a table such \
             as { address = \"10.0.0.4\" }",
        ),
        (
            "schema = 1\nname = 'x'\n[nodes.a]\nadress = '10.0.0.4'",
            "x.toml:4:1: unknown key `adress` in [nodes.a]: did you mean `address`?",
        ),
        ("schema = 1\nname = 'x'\n[nodes.a]\n", "x.toml:3:1: missing key `address`"),
        (
            "schema = 1\nname = 'x'\n[log]\nfile = 'y'",
            "x.toml:4:1: unknown key `file` in [log]: expected one of `server`",
        ),
        (
            "schema = 1\nname = 'x'\nseed = -1",
            "x.toml:3:8: `seed`: invalid value: integer `-1`, expected a seed: a whole number from \
             0 to 18446744073709551615",
        ),
        (
            "schema = 1\nname = 'x'\nduration = 20",
            "x.toml:3:12: `duration`: invalid type: integer `20`, expected a duration with its \
             unit, such as \"20s\", \"1.5ms\" or \"2min\"",
        ),
        (
            &flow("idd = 'exp(1ms)'"),
            "x.toml:4:1: unknown key `idd` in [[flow]]: did you mean `idt`?",
        ),
        (
            &flow("proto = 'upd'"),
            "x.toml:4:9: `proto` in [[flow]]: unknown protocol `upd`: expected udp, tcp, icmp, \
             sctp or dccp",
        ),
        (
            &flow("idt = 5"),
            "x.toml:4:7: `idt` in [[flow]]: invalid type: integer `5`, expected a distribution of time with \
             units inside, such as \"exp(10ms)\"",
        ),
        (
            &flow("on_off = ['exp(1s)']"),
            "x.toml:4:10: `on_off` in [[flow]]: invalid length 1, expected two distributions, ON and OFF: \
             [\"exp(1s)\", \"exp(1s)\"]",
        ),
        (
            &flow("ttl = 256"),
            "x.toml:4:7: `ttl` in [[flow]]: invalid value: integer `256`, expected a whole number \
             from 0 to 255",
        ),
        (
            &flow("nagle = 'yes'"),
            "x.toml:4:9: `nagle` in [[flow]]: invalid type: string \"yes\", expected true or false",
        ),
        (
            &flow("meter = 'owdm'"),
            "x.toml:4:9: `meter` in [[flow]]: unknown meter `owdm`: expected owd (one-way delay) \
             or rtt (round-trip time)",
        ),
        (
            &flow("payload = 'zeros'"),
            "x.toml:4:11: `payload` in [[flow]]: unknown payload `zeros`: expected random, \
             pattern:HEX or file:PATH",
        ),
        (
            &flow("dscp = 64"),
            "x.toml:4:8: `dscp` in [[flow]]: unknown DSCP `64`: expected EF, AF11 to AF43, CS0 to \
             CS7, LE, BE or a number from 0 to 63",
        ),
    ] {
        assert_eq!(parse(text).map(|_| ()), Err(want.to_owned()), "file:\n{text}");
    }
}

/// The words of itg-core are tested there; here it counts that they come with their place.
#[test]
fn wrong_units_name_their_line() {
    for (line, place, word) in [
        ("duration = '10'", "x.toml:4:12: `duration` in [[flow]]: ", "no unit"),
        ("duration = '10parsec'", "x.toml:4:12: `duration` in [[flow]]: ", "parsec"),
        ("rate = '10Mfoo'", "x.toml:4:8: `rate` in [[flow]]: ", "Mfoo"),
        ("idt = 'exp(10)'", "x.toml:4:7: `idt` in [[flow]]: ", "no unit"),
        ("idt = 'expo(10ms)'", "x.toml:4:7: `idt` in [[flow]]: ", "expo"),
        ("size = 'uniform(1ms,2ms)'", "x.toml:4:8: `size` in [[flow]]: ", "ms"),
        ("bytes = '1 foo'", "x.toml:4:9: `bytes` in [[flow]]: ", "foo"),
        ("packets = '10ms'", "x.toml:4:11: `packets` in [[flow]]: ", "ms"),
        ("on_off = ['exp(1s)', 'exp(1B)']", "x.toml:4:22: `on_off` in [[flow]]: ", "1B"),
    ] {
        let error = parse(&flow(line)).expect_err(line);
        assert!(error.starts_with(place) && error.contains(word), "{line}: {error}");
    }
}

#[test]
fn all_that_is_wrong_is_reported_in_the_order_of_the_file() {
    let text = "schema = 1\nname = 'x'\nfoo = 1\n[[flow]]\nsize = 'bla(3)'\nidd = 'exp(1ms)'\n\
                [[flow]]\nttl = 256\n[nodes.a]\nadress = '10.0.0.4'\n";
    let ExperimentError { problems } = Experiment::parse(text, "x.toml").expect_err("bad");
    let lines: Vec<_> =
        problems.iter().filter_map(|problem| problem.place).map(|p| p.line).collect();
    assert_eq!(lines, [3, 5, 6, 8, 10]);
    assert!(problems.iter().all(|Problem { origin, .. }| origin == "x.toml"));
}

#[test]
fn a_file_of_rubbish_does_not_fill_the_screen() {
    let text = format!("schema = 1\nname = 'x'\n{}", "[[flow]]\nttl = 'x'\n".repeat(1000));
    let ExperimentError { problems } = Experiment::parse(&text, "x.toml").expect_err("bad");
    assert_eq!(problems.len(), 50);
}

const GOOD: &str = include_str!("../../../profiles/voip-beside-bulk.toml");

proptest! {
    /// A file with a piece taken out, doubled or replaced is read or refused, with places inside it.
    #[test]
    fn damaged_files_are_read_or_refused(
        cut in 0..GOOD.len(), len in 0usize..40, piece in "[\\[\\]{}\"'=a-z0-9.\n#é-]{0,8}", twice: bool,
    ) {
        let end = (cut + len).min(GOOD.len());
        let middle = if twice { format!("{0}{0}", &GOOD[cut..end]) } else { piece };
        let text = format!("{}{middle}{}", &GOOD[..cut], &GOOD[end..]);
        if let Err(error) = Experiment::parse(&text, "x.toml") {
            prop_assert!(!error.problems.is_empty());
            for problem in error.problems {
                let lines = text.matches('\n').count() + 1;
                prop_assert!(problem.place.is_none_or(|place| place.line <= lines), "{problem}");
            }
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,60}|(schema = 1\n)?[\\[\\]a-z ='\"\n0-9]{0,60}") {
        prop_assert!(Experiment::parse(&text, "").is_err(), "no name, no experiment");
    }
}
