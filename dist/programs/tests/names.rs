//! One file under the names of all programs.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use itg_testkit::child::{Running, said};
use itg_testkit::host::{temp_dir, two_ports};

const ITG: &str = env!("CARGO_BIN_EXE_itg");
const OURS: [&str; 5] = ["itg-send", "itg-recv", "itg-log", "itg-decode", "itg-cluster"];
const CLASSIC: [&str; 5] = ["ITGSend", "ITGRecv", "ITGLog", "ITGDec", "ITGManager"];
const LIMIT: Duration = Duration::from_secs(60);

/// Links in a directory.
fn link(dir: &Path, name: &str) -> PathBuf {
    let link = dir.join(name);
    symlink(ITG, &link).expect("a link");
    link
}

#[test]
fn a_name_is_a_program() {
    let dir = temp_dir();
    for name in OURS {
        let path = link(dir.path(), name);
        let (code, out, _) = said(Command::new(&path).arg("-V"));
        assert!(code == Some(0) && out.starts_with(&format!("{name} ")), "{name}: {out}");
        let (code, out, _) = said(Command::new(ITG).args([name, "-V"]));
        assert!(code == Some(0) && out.starts_with(&format!("{name} ")), "itg {name}: {out}");
    }
    for name in CLASSIC {
        let path = link(dir.path(), name);
        let (_, out, err) = said(Command::new(&path).arg("-h").current_dir(dir.path()));
        assert!(out.starts_with(&format!("{name} version 2.8.1 ")), "{name}: {out}{err}");
        let (_, out, err) = said(Command::new(ITG).args([name, "-h"]).current_dir(dir.path()));
        assert!(out.starts_with(&format!("{name} version 2.8.1 ")), "itg {name}: {out}{err}");
    }
    for args in [&[][..], &["-V"], &["itg"], &["no-program", "-V"]] {
        let (code, out, err) = said(Command::new(ITG).args(args));
        assert!(code == Some(2) && out.is_empty() && err.contains("itg-recv"), "{args:?}: {err}");
    }
    let (code, _, err) = said(Command::new(ITG).arg0("").arg("-V"));
    assert!(code == Some(2) && err.contains("itg-recv"), "{err}");
}

#[test]
fn what_it_starts_of_itself_has_its_name() {
    let dir = temp_dir();
    let cluster = link(dir.path(), "itg-cluster");
    let farm = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../profiles/farm.toml");
    let farm = fs::read_to_string(farm).expect("a profile");
    let file = dir.path().join("farm.toml");
    fs::write(&file, farm.replace("tasks = 1000", "tasks = 10")).expect("written");
    let mut process = Command::new(&cluster);
    process.arg("process").arg(&file).args(["--local", "--network", "tcp"]);
    let (code, out, err) = said(&mut process);
    assert!(code == Some(0) && out.contains("10 messages sent"), "processes: {out}{err}");

    let keys = dir.path().join("keys");
    let (code, _, err) = said(Command::new(&cluster).arg("keys").arg(&keys));
    assert_eq!(code, Some(0), "{err}");
    let addresses = [two_ports(), two_ports()].map(|port| format!("127.0.0.1:{port}"));
    let agents = addresses.each_ref().map(|address| {
        let mut agent = Command::new(&cluster);
        agent.args(["agent", "--listen", address]).arg("--keys").arg(&keys);
        agent.arg("--dir").arg(dir.path().join(address));
        let agent = Running::start(&mut agent);
        drop(agent.line_with("listening on", LIMIT));
        agent
    });
    let [a, b] = addresses;
    let experiment = format!(
        "schema = 1\nname = \"two\"\nduration = \"200ms\"\n[nodes]\na = {{ address = \"{a}\" }}\n\
         b = {{ address = \"{b}\" }}\n[[flow]]\nfrom = \"a\"\nto = \"b\"\nrate = \"100pps\"\n"
    );
    let file = dir.path().join("two.toml");
    fs::write(&file, experiment).expect("written");
    let mut run = Command::new(&cluster);
    run.arg("run").arg(&file).arg("--keys").arg(&keys).arg("--out").arg(dir.path().join("out"));
    drop(Running::start(&mut run).finish(LIMIT).exits(0));
    drop(agents);
}
