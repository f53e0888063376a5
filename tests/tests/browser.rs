//! The HTML report in a real browser, opened from disk and without network: it shows its verdict,
//! its script runs, and nothing is complained of.
#![allow(missing_docs, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use itg_tests::{Output, Receiver, Running, decode, leave_out, send, temp_dir};

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
        .args(["--enable-logging=stderr", "--v=0", "--virtual-time-budget=5000", "--dump-dom"])
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
        return leave_out("Chromium");
    };
    let dir = temp_dir();
    let [page, comparison] = pages(dir.path());
    opens(
        browser,
        &page,
        &[
            "The traffic sent",
            "The 8 flows that look worst",
            "class=\"verdict",
            "aria-label=\"Table of flows\"",
            // The script has made the heads of the table into buttons.
            "<button type=\"button\">Throughput</button>",
        ],
    );
    opens(browser, &comparison, &["NO CLEAR DIFFERENCE"]);
    let found = read(browser, &page, &dir.path().join("used.html"));
    let list = |key: &str| found[key].as_array().expect(key).clone();
    assert!(list("tips").len() > 20, "{found}");
    for tip in list("tips") {
        let [title, shown] = [0, 1].map(|place| tip[place].as_str().expect("a text"));
        assert!(is_tip(shown), "{title}: {shown:?}");
    }
    // The check sees what it is for: nothing shown, no number, no unit.
    for fault in ["", "flow 1: median", "time NaN ms", "time 3, 5", "ms: time 3"] {
        assert!(!is_tip(fault), "{fault}");
    }
    tables(&list("tables"));
    assert_eq!(found["cut"], true, "a table that is wider than the window says so: {found}");
}

/// Writes the page of a run of 12 flows, and the comparison of one side of it with itself.
fn pages(dir: &Path) -> [PathBuf; 2] {
    let [sent, received, page, comparison] =
        ["send.itg", "recv.itg", "report.html", "comparison.html"].map(|name| dir.join(name));
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
    decode(&[
        "compare".into(),
        path(&received),
        path(&received),
        "--html".into(),
        path(&comparison),
    ])
    .exits(0);
    [page, comparison]
}

/// Opens a page in both colours: it shows these marks, and nothing is complained of.
fn opens(browser: &str, page: &Path, marks: &[&str]) {
    for dark in [false, true] {
        let seen = open(browser, page, dark);
        for mark in marks {
            assert!(seen.out.contains(mark), "{mark} is not in {}", page.display());
        }
        let complaints: Vec<_> = seen.err.lines().filter(|line| line.contains("CONSOLE")).collect();
        assert!(complaints.is_empty(), "{complaints:?}");
    }
}

/// Findings of a reader who points at each plot, copies all values, and has a narrow window.
fn read(browser: &str, page: &Path, used: &Path) -> Value {
    let text = fs::read_to_string(page).expect("the page");
    let reader = format!("<script>{READER}</script></body>");
    fs::write(used, text.replacen("</body>", &reader, 1)).expect("a page with a reader");
    let seen = open(browser, used, false);
    let found = seen.out.split_once("FOUND ").and_then(|(_, rest)| rest.split_once(" END"));
    serde_json::from_str(&found.expect("findings").0.replace("&gt;", ">")).expect("JSON")
}

/// Returns true if a tip has a number with its unit.
fn is_tip(shown: &str) -> bool {
    const UNITS: [&str; 10] =
        ["s", "ms", "µs", "ns", "%", "bit/s", "kbit/s", "Mbit/s", "Gbit/s", "bytes"];
    let words: Vec<&str> =
        shown.split_whitespace().map(|word| word.trim_end_matches([',', ':'])).collect();
    let with_unit =
        |pair: &[&str]| pair[0].ends_with(|c: char| c.is_ascii_digit()) && UNITS.contains(&pair[1]);
    words.windows(2).any(with_unit) && !shown.contains("NaN") && !shown.contains("undefined")
}

/// Checks that the copied tables have their columns and rows.
fn tables(tables: &[Value]) {
    for (name, columns) in [
        ("series,time_ns,throughput_bps\n", 3),
        ("series,delay_ns,share_of_packets_at_most\n", 3),
        ("flow,name,fidelity,proto,packets,bitrate_bps,loss_share,delay_p50_ns,", 14),
    ] {
        let of = |table: &&Value| table.as_str().is_some_and(|text| text.starts_with(name));
        let table = tables.iter().find(of).unwrap_or_else(|| panic!("{name}: {tables:?}"));
        let rows: Vec<&str> = table.as_str().unwrap_or_default().lines().collect();
        assert!(rows.len() > 10, "{name}: {rows:?}");
        assert!(rows.iter().all(|row| row.split(',').count() == columns), "{name}: {rows:?}");
    }
}

/// Points at every plot and presses every button, as a reader would, and writes down what is shown and copied.
const READER: &str = r#"
const copied = [];
Object.defineProperty(navigator, "clipboard", { value: { writeText: async (text) => { copied.push(text); } } });
document.querySelector("main").style.width = "400px";
for (const fold of document.querySelectorAll("details")) fold.open = true;
const tips = [];
for (const figure of document.querySelectorAll("figure")) {
  const svg = figure.querySelector("svg");
  const box = svg.getBoundingClientRect();
  const tip = figure.querySelector(".tip");
  let shown = "";
  for (let x = 70; x < 506 && !shown; x += 2) for (let y = 28; y < 236 && !shown; y += 4) {
    const at = { clientX: box.left + x * box.width / 520, clientY: box.top + y * box.width / 520 };
    svg.dispatchEvent(new PointerEvent("pointermove", at));
    if (!tip.hidden) shown = tip.textContent;
  }
  tips.push([figure.querySelector("figcaption").firstChild.textContent, shown]);
}
for (const button of document.querySelectorAll("button.copy")) button.click();
setTimeout(() => {
  const cut = [...document.querySelectorAll(".scroll.cut")].length > 0
    && [...document.querySelectorAll(".tools .more")].some((more) => !more.hidden);
  const pre = document.createElement("pre");
  pre.textContent = "FOUN" + "D " + JSON.stringify({ tips, tables: copied, cut }) + " EN" + "D";
  document.body.append(pre);
}, 300);
"#;
