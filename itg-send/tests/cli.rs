//! `itg-send` as it is seen from a shell: help, version, and requests that make no sense.

use std::fs;
use std::process::Command;

use itg_testkit::child::said;

fn run(args: &[&str]) -> (Option<i32>, String, String) {
    said(Command::new(env!("CARGO_BIN_EXE_itg-send")).args(args))
}

#[test]
fn help_and_version_go_to_stdout() {
    let (code, out, err) = run(&["--help"]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    for words in ["Exit codes", "--idt <DIST>", "--seed <N>", "exp(1s),constant(500ms)", "Units"] {
        assert!(out.contains(words), "{words:?} is not in the help:\n{out}");
    }
    let (code, out, err) = run(&["--version"]);
    let version = concat!("itg-send ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(out.starts_with(&format!("{version}commit: ")), "{out}");
    assert!(out.contains("\ntarget: ") && out.contains("\nfeatures: "), "{out}");
    assert_eq!(run(&["-V"]).1, version);
    let (code, out, _) = run(&["run", "--help"]);
    assert!(code == Some(0) && out.contains("--node <NODE>"), "{out}");
}

#[test]
fn requests_that_make_no_sense_end_with_2_and_say_why() {
    for (args, words) in [
        (&[][..], "Usage"),
        (&["--packets", "3"], "name a receiver"),
        (&["127.0.0.1", "--idt", "10ms", "--rate", "5pps"], "cannot be used with"),
        (&["127.0.0.1", "--engine", "dpdk"], "expected socket or xdp"),
        (&["127.0.0.1", "--engine", "xdp", "--proto", "tcp"], "UDP only"),
        (&["127.0.0.1", "--engine", "xdp", "--classic"], "through sockets"),
        (&["doctor", "--engine", "xdp"], "leave --engine out"),
        (&["127.0.0.1", "--idt", "constant(10)"], "unit"),
        (&["127.0.0.1", "--idt", "exp(10MB)"], "MB"),
        (&["127.0.0.1", "--idt", "exp()"], "exp"),
        (&["127.0.0.1", "--idt", "exp(-1ms)"], "mean"),
        (&["127.0.0.1", "--idt", "gauss(1ms,1ms)"], "gauss"),
        (&["127.0.0.1", "--size", "uniform(10ms,20ms)"], "ms"),
        (&["127.0.0.1", "--size", "3"], "12"),
        (&["127.0.0.1", "--rate", "10"], "unit"),
        (&["127.0.0.1", "--duration", "10"], "unit"),
        (&["127.0.0.1", "--duration=-1s"], "-1s"),
        (&["127.0.0.1", "--packets", "many"], "many"),
        (&["127.0.0.1", "--bytes", "10s"], "10s"),
        (&["127.0.0.1", "--on-off", "exp(1s)"], "two with a comma"),
        (&["127.0.0.1", "--ttl", "256"], "255"),
        (&["127.0.0.1", "--dscp", "gold"], "gold"),
        (&["127.0.0.1", "--ecn", "4"], "4"),
        (&["127.0.0.1", "--proto", "quic"], "udp, tcp, icmp, sctp or dccp"),
        (&["127.0.0.1", "--meter", "both"], "owd"),
        (&["127.0.0.1", "--late", "never"], "keep"),
        (&["127.0.0.1", "--payload", "pattern:xyz"], "pattern"),
        (&["127.0.0.1", "--seed", "lucky"], "lucky"),
        (&["127.0.0.1", "--flows", "0"], "0"),
        (&["127.0.0.1", "--profile", "quake4"], "quake3"),
        (&["127.0.0.1", "--profile", "voip-g711:codec=x"], "codec"),
        (&["127.0.0.1:http"], "is not a port"),
        (&["fe80::1%nope0"], "there is no interface"),
        (&["127.0.0.1", "--packet", "3"], "--packets"),
        (&["127.0.0.1", "-q", "-v"], "cannot be used with"),
        (&["127.0.0.1", "--recv-log", "a", "--recv-log-server", "tcp://h"], "exclude each other"),
        (&["127.0.0.1", "--classic", "--size", "15"], "16..64000"),
        (&["127.0.0.1", "--classic", "--proto", "tcp", "--size", "20"], "21..64000"),
        (&["127.0.0.1", "--classic", "--size", "64001"], "16..64000"),
        (&["127.0.0.1", "--classic", "--packets", "4294967296"], "32 bits"),
        (&["127.0.0.1", "--classic", "--recv-log-server", "tcp://127.0.0.1:9400"], "9001"),
        (&["127.0.0.1", "--classic", "--recv-log-server", "127.0.0.1"], "tcp://HOST"),
        (&["127.0.0.1", "--classic", "--recv-log", ""], "1 to 199"),
        (&["run"], "FILE"),
        (&["127.0.0.1", "run", "x.toml"], ""),
    ] {
        let (code, out, err) = run(args);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{args:?}: {err}");
        assert!(err.contains(words), "{args:?} does not say {words:?}: {err}");
        assert!(!err.contains("panicked"), "{args:?}: {err}");
    }
}

#[test]
fn unknown_keys_of_an_experiment_name_line_and_nearest_key() {
    let dir = std::env::temp_dir().join(format!("itg-send-cli-{}", std::process::id()));
    fs::create_dir_all(&dir).expect("a temporary directory");
    let file = dir.join("wrong.toml");
    for (body, line, words) in [
        ("durations = \"1s\"\n[[flow]]\n", 3, "duration"),
        ("[[flow]]\nsise = 100\n", 4, "size"),
        ("[[flow]]\nidt = \"exp(10)\"\n", 4, "unit"),
        ("[[flow]]\nproto = \"tpc\"\n", 4, "tcp"),
        ("[[flow]]\nto = \"b\"\n[nodes]\na = { adress = \"::1\" }\n", 6, "address"),
    ] {
        let text = format!("schema = 1\nname = \"x\"\n{body}");
        fs::write(&file, &text).expect("a file");
        let (code, out, err) = run(&["run", file.to_str().expect("UTF-8")]);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{text}: {err}");
        assert!(err.contains(&format!("wrong.toml:{line}")), "{text}: no line {line}: {err}");
        assert!(err.contains(words), "{text} does not say {words:?}: {err}");
    }
    fs::remove_dir_all(&dir).expect("the temporary directory");
}
