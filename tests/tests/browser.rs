//! The HTML report in a real browser, opened from disk and without network: it shows its verdict,
//! its script runs, and nothing is complained of.
#![allow(missing_docs, reason = "tests")]

use std::io::{self, Write as _};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use itg_tests::{Output, Receiver, Running, decode, send, temp_dir};

/// Names of headless browsers that take Chromium's options.
const BROWSERS: [&str; 4] =
    ["chromium", "chromium-browser", "google-chrome", "chromium-headless-shell"];

/// The first browser that is installed.
fn browser() -> Option<&'static str> {
    BROWSERS.into_iter().find(|name| {
        Command::new(name).arg("--version").output().is_ok_and(|done| done.status.success())
    })
}

/// Opens a page and gives its document after the script has run on stdout, the console on stderr.
fn open(browser: &str, page: &Path, dark: bool) -> Output {
    let profile = temp_dir();
    let mut command = Command::new(browser);
    command
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"])
        .args(["--enable-logging=stderr", "--v=0", "--dump-dom"])
        // No network: every name resolves to nothing, and there is no proxy.
        .args(["--host-resolver-rules=MAP * ~NOTFOUND", "--no-proxy-server"])
        .arg(format!("--blink-settings=preferredColorScheme={}", u8::from(!dark)))
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("file://{}", page.display()));
    Running::start(&mut command).finish(Duration::from_secs(120)).exits(0)
}

#[test]
fn the_report_opens_without_network_and_without_a_word_on_the_console() {
    let Some(browser) = browser() else {
        assert!(
            std::env::var_os("CI").is_none(),
            "under CI this test must run, and it needs Chromium"
        );
        // Past the test harness, which keeps to itself what passing tests print.
        return drop(writeln!(io::stderr(), "NOT RUN: needs Chromium: the report in a browser"));
    };
    let dir = temp_dir();
    let [sent, received, page, plain] = ["send.itg", "recv.itg", "report.html", "comparison.html"]
        .map(|name| dir.path().join(name));
    let receiver = Receiver::listening("127.0.0.1:0", &["--log".as_ref(), received.as_os_str()]);
    let at = receiver.at();
    let log = sent.display().to_string();
    send(&[
        at.as_str(),
        "--flows",
        "12",
        "--packets",
        "200",
        "--idt",
        "exp(2ms)",
        "--seed",
        "7",
        "--log",
        log.as_str(),
    ])
    .exits(0);
    receiver.stop();
    let path = |path: &Path| path.as_os_str().to_owned();
    decode(&[
        path(&sent),
        path(&received),
        "--html".into(),
        path(&page),
        "--fail-if".into(),
        "loss > 90%".into(),
    ])
    .exits(0);
    decode(&["compare".into(), path(&received), path(&received), "--html".into(), path(&plain)])
        .exits(0);
    for (page, marks) in [
        (
            &page,
            vec![
                "The traffic sent",
                "The 8 flows that look worst",
                "class=\"verdict",
                "aria-label=\"Table of flows\"",
            ],
        ),
        (&plain, vec!["NO CLEAR DIFFERENCE"]),
    ] {
        for dark in [false, true] {
            let seen = open(browser, page, dark);
            for mark in &marks {
                assert!(seen.out.contains(mark), "{mark} is not in {}", page.display());
            }
            let complaints: Vec<_> =
                seen.err.lines().filter(|line| line.contains("CONSOLE")).collect();
            assert!(complaints.is_empty(), "{complaints:?}");
        }
        // The script has made the heads of the table into buttons.
        let seen = open(browser, page, false);
        assert_eq!(
            seen.out.contains("<button type=\"button\">Throughput</button>"),
            marks.len() > 1
        );
    }
}
