//! `itg-recv` as it is seen from a shell: help, version, and requests that make no sense.

use std::net::TcpListener;
use std::process::Command;

use itg_testkit::child::said;

fn run(args: &[&str]) -> (Option<i32>, String, String) {
    said(Command::new(env!("CARGO_BIN_EXE_itg-recv")).args(args))
}

#[test]
fn help_and_version_go_to_stdout() {
    let (code, out, err) = run(&["--help"]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    for words in ["Exit codes", "--listen <ADDR[:PORT]>", "9000", "8999", "--once"] {
        assert!(out.contains(words), "{words:?} is not in the help:\n{out}");
    }
    let (code, out, err) = run(&["--version"]);
    let version = concat!("itg-recv ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(out.starts_with(&format!("{version}commit: ")), "{out}");
    assert!(out.contains("\ntarget: ") && out.contains("\nfeatures: "), "{out}");
    assert_eq!(run(&["-V"]).1, version);
}

#[test]
fn requests_that_make_no_sense_end_with_2_and_say_why() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = listener.local_addr().expect("an address").to_string();
    for (args, words) in [
        (&["--listen", taken.as_str()][..], "another receiver runs there"),
        (&["--listen", "127.0.0.1:x"], "is not a port"),
        (&["--listen", "127.0.0.1:70000"], "0 to 65535"),
        (&["--listen", "fe80::1%nope0"], "there is no interface"),
        (&["--listen", "192.0.2.1:0"], "192.0.2.1"),
        (&["--data-port", "70000"], "65535"),
        (&["--log-dir", "/does/not/exist", "--listen", "127.0.0.1:0"], "create it first"),
        (&["--fsync", "sometimes"], "never, interval or block"),
        (&["--engine", "dpdk"], "expected socket or xdp"),
        (&["--engine", "xdp"], "name it with --interface"),
        (&["--interface", "lo"], "are for --engine xdp"),
        (
            &["--engine", "xdp", "--interface", "lo", "--xdp-mode", "fast"],
            "auto, native or generic",
        ),
        (&["--engine", "xdp", "--listen", "127.0.0.1:0"], "lo is not an Ethernet device"),
        (&["--frobnicate"], "--frobnicate"),
        (&["-q", "-v"], "cannot be used with"),
        (&["unexpected"], "unexpected"),
    ] {
        let (code, out, err) = run(args);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{args:?}: {err}");
        assert!(err.contains(words), "{args:?} does not say {words:?}: {err}");
        assert!(!err.contains("panicked"), "{args:?}: {err}");
    }
}
