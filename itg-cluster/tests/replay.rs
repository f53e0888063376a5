//! Runs that anybody can check and repeat, from a shell: `verify` finds every change, `replay` does the same again.

#[cfg(feature = "mpi")]
mod launcher;

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use itg_testkit::child::said;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

const EXPERIMENT: &str = "schema = 1\nname = \"again\"\nseed = 9\nduration = \"3s\"\n[[flow]]\nidt = \
                          \"exp(5ms)\"\nsize = \"uniform(100,900)\"\nname = \"call\"\n[[flow]]\nproto = \"tcp\"\n\
                          rate = \"100pps\"\nsize = \"1kB\"\n[network]\nkind = \"switch\"\nrate = \"10Mbps\"\n";
const CRATE: &str = "ro-crate-metadata.json";

fn run(args: &[&str]) -> (Option<i32>, String, String) {
    said(Command::new(env!("CARGO_BIN_EXE_itg-cluster")).args(args))
}

/// A run of the experiment with these arguments, in a directory of its own.
struct Run(tempfile::TempDir);

impl Run {
    fn new(world: &[&str]) -> Self {
        let run = Self(tempfile::tempdir().expect("a directory"));
        let file = run.path("x.toml");
        fs::write(&file, EXPERIMENT).expect("written");
        let (code, _, err) =
            self::run(&[&["run", &file, "--out", &run.path("run")], world].concat());
        assert_eq!(code, Some(0), "{err}");
        run
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    /// A copy of the run's directory, to be changed.
    fn copy(&self) -> Copy {
        let copy = Copy(tempfile::tempdir().expect("a directory"));
        for name in self.files() {
            fs::copy(Path::new(&self.path("run")).join(&name), copy.0.path().join(&name))
                .expect("copied");
        }
        copy
    }

    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("run")).expect("the run");
        let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
        let mut names: Vec<_> = entries.map(|entry| name(entry.expect("an entry"))).collect();
        names.sort();
        names
    }
}

/// A copy of a run's directory.
struct Copy(tempfile::TempDir);

impl Copy {
    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn dir(&self) -> String {
        self.0.path().display().to_string()
    }

    /// Replaces a text in a file, where it must be.
    fn edit(&self, name: &str, from: &str, to: &str) {
        let text = fs::read_to_string(self.path(name)).expect("a text");
        assert!(text.contains(from), "{from} is in {name}");
        fs::write(self.path(name), text.replacen(from, to, 1)).expect("written");
    }

    fn flip(&self, name: &str, at: usize) {
        let mut bytes = fs::read(self.path(name)).expect("a file");
        bytes[at] ^= 1;
        fs::write(self.path(name), bytes).expect("written");
    }

    fn json(&self, name: &str) -> Value {
        serde_json::from_str(&fs::read_to_string(self.path(name)).expect("a text")).expect("JSON")
    }

    /// Gives a setting of the manifest another value.
    fn set(&self, key: &str, value: &str) {
        let mut manifest = self.json("manifest.json");
        manifest["settings"][key] = json!(value);
        fs::write(self.path("manifest.json"), format!("{manifest:#}\n")).expect("written");
    }

    /// Takes a file from the list of hashes.
    fn unlist(&self, name: &str) {
        let mut metadata = self.json(CRATE);
        let graph = metadata["@graph"].as_array_mut().expect("entities");
        graph.retain(|entity| entity["@id"] != name);
        for entity in graph {
            for key in ["hasPart", "result"] {
                if let Some(list) = entity[key].as_array_mut() {
                    list.retain(|part| part["@id"] != name);
                }
            }
        }
        fs::write(self.path(CRATE), format!("{metadata:#}\n")).expect("written");
    }

    /// Gives the list of hashes those of the files as they are now.
    fn hash_again(&self) {
        let mut metadata = self.json(CRATE);
        for entity in metadata["@graph"].as_array_mut().expect("entities") {
            if entity["@type"] == "File" {
                let path = self.path(entity["@id"].as_str().expect("an identifier"));
                let bytes = fs::read(path).expect("a file");
                let hash = digest(&SHA256, &bytes);
                let hash: String = hash.as_ref().iter().map(|b| format!("{b:02x}")).collect();
                entity["sha256"] = json!(hash);
                entity["contentSize"] = json!(bytes.len().to_string());
            }
        }
        fs::write(self.path(CRATE), format!("{metadata:#}\n")).expect("written");
    }

    /// Findings of `verify`: there must be some, and one of them must say this.
    fn is_found(&self, want: &str) {
        let (code, out, err) = run(&["verify", &self.dir()]);
        assert_eq!(code, Some(1), "{want}: {out}{err}");
        let found = out.lines().any(|line| line.contains(want) && !line.contains(": note: "));
        assert!(found, "`{want}` is not in:\n{out}{err}");
        assert!(err.contains("is not as it was left"), "{err}");
    }
}

#[test]
fn a_run_is_as_it_was_left_wherever_it_is_moved_and_every_change_is_found() {
    let run = Run::new(&["--sim"]);
    let files = run.files();
    assert_eq!(
        files,
        [
            "ARTIFACT.md",
            "manifest.json",
            "receiver.itg",
            "report.html",
            "report.json",
            "report.txt",
            CRATE,
            "sender.itg"
        ]
    );
    let (code, out, err) = self::run(&["verify", &run.copy().dir()]);
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(
        out.ends_with("8 files, as they were left; logs, manifest, plan and report agree\n"),
        "{out}"
    );
    for name in &files {
        let length = fs::read(run.copy().path(name)).expect("a file").len();
        for at in [0, length / 3, length - 1] {
            let copy = run.copy();
            copy.flip(name, at);
            copy.is_found(name);
        }
        let copy = run.copy();
        fs::remove_file(copy.path(name)).expect("removed");
        copy.is_found(name);
    }
    let copy = run.copy();
    fs::write(copy.path("more.itg"), "").expect("written");
    copy.is_found("more.itg: added");
    let copy = run.copy();
    fs::remove_file(copy.path("sender.itg")).expect("removed");
    std::os::unix::fs::symlink("/dev/zero", copy.path("sender.itg")).expect("a link");
    copy.is_found("sender.itg: a link, a device or the like");
    let copy = run.copy();
    let log = fs::read(copy.path("sender.itg")).expect("a log");
    fs::write(copy.path("sender.itg"), &log[..log.len() / 2]).expect("written");
    copy.is_found("sender.itg: ");
}

#[test]
fn changes_whose_hashes_were_mended_contradict_logs_manifest_or_report() {
    let run = Run::new(&["--sim"]);
    let changed = |change: &dyn Fn(&Copy), want: &[&str]| {
        let copy = run.copy();
        change(&copy);
        copy.hash_again();
        want.iter().for_each(|want| copy.is_found(want));
    };
    let seed = |copy: &Copy| copy.edit("manifest.json", "\"seed\": 9", "\"seed\": 10");
    changed(
        &seed,
        &["manifest.json: its experiment and its seed give plan", "sender.itg: of seed 9"],
    );
    let rate = |copy: &Copy| copy.edit("manifest.json", "100pps", "101pps");
    changed(
        &rate,
        &["manifest.json: its experiment and its seed give plan", "report.json: not what"],
    );
    let host = |copy: &Copy| copy.edit("manifest.json", "\"host\": \"", "\"host\": \"other-");
    changed(&host, &["report.json: not what", "ARTIFACT.md: not what"]);
    let command = |copy: &Copy| copy.edit("manifest.json", "--sim", "--SIM");
    changed(&command, &["`description` of `#run`"]);
    let figure = |copy: &Copy| copy.edit("report.json", "\"packets\": ", "\"packets\": 1");
    changed(&figure, &["report.json: not what follows from the logs"]);
    for name in ["report.txt", "report.html", "ARTIFACT.md"] {
        let word = |copy: &Copy| copy.edit(name, "again", "AGAIN");
        changed(&word, &[&format!("{name}: not what follows")]);
    }
    for name in ["sender.itg", "receiver.itg"] {
        let length = fs::read(run.copy().path(name)).expect("a log").len();
        changed(&|copy: &Copy| copy.flip(name, length / 2), &["report.json: not what"]);
        let cut = |copy: &Copy| {
            let log = fs::read(copy.path(name)).expect("a log");
            fs::write(copy.path(name), &log[..length / 2]).expect("written");
        };
        changed(&cut, &["report.json: not what"]);
    }
    let empty = |copy: &Copy| fs::write(copy.path("receiver.itg"), "").expect("written");
    changed(&empty, &["receiver.itg: an empty file, and no log: it was not fetched"]);
    // A manifest that names a log elsewhere, one that is not there, or none; and reports that were removed.
    let other = |copy: &Copy| copy.edit("manifest.json", "\\\"sender.itg", "\\\"../sender.itg");
    changed(&other, &["it names the log `../sender.itg`, which is not below its directory"]);
    let gone = |copy: &Copy| copy.edit("manifest.json", "\\\"sender.itg", "\\\"sinder.itg");
    changed(&gone, &["it names logs that the run has not left"]);
    for (logs, want) in [
        ("[]", "it names no logs, and receiver.itg is there"),
        ("none", "its setting `logs` is no list of paths"),
    ] {
        changed(&|copy: &Copy| copy.set("logs", logs), &[want]);
    }
    for name in ["report.txt", "report.json", "report.html", "ARTIFACT.md"] {
        let removed = |copy: &Copy| {
            fs::remove_file(copy.path(name)).expect("removed");
            copy.unlist(name);
        };
        changed(&removed, &[&format!("{name}: removed: it follows from")]);
    }
}

#[test]
fn licence_and_authors_are_for_those_who_publish_and_nothing_else_is() {
    let run = Run::new(&["--sim"]);
    let copy = run.copy();
    let change = |copy: &Copy, at: &str, key: &str, value: Value| {
        let mut metadata = copy.json(CRATE);
        let graph = metadata["@graph"].as_array_mut().expect("entities");
        let entity = graph.iter_mut().find(|entity| entity["@id"] == at).expect(at);
        entity[key] = value;
        fs::write(copy.path(CRATE), format!("{metadata:#}\n")).expect("written");
    };
    change(&copy, "./", "license", json!("https://spdx.org/licenses/CC-BY-4.0"));
    change(&copy, "./", "author", json!({ "@id": "https://orcid.org/0000-0002-1825-0097" }));
    let (code, out, err) = self::run(&["verify", &copy.dir()]);
    assert_eq!(code, Some(0), "{out}{err}");
    for key in ["license", "author"] {
        let note = format!("note: {CRATE}: `{key}` of `./` is not what the run wrote");
        assert!(out.contains(&note), "{out}");
    }
    for (at, key) in [("./", "hasPart"), ("#run", "startTime"), ("sender.itg", "encodingFormat")] {
        let copy = run.copy();
        change(&copy, at, key, json!("x"));
        copy.is_found(&format!("`{key}` of `{at}`"));
    }
    // The same words in another form are other bytes.
    let copy = run.copy();
    let metadata = copy.json(CRATE).to_string();
    fs::write(copy.path(CRATE), metadata).expect("written");
    copy.is_found("it says the same in other bytes");
    // Without the file there is nothing to check against.
    let dir = tempfile::tempdir().expect("a directory");
    let (code, _, err) = self::run(&["verify", &dir.path().display().to_string()]);
    assert!(code == Some(2) && err.contains("expected the directory of a run"), "{err}");
}

#[test]
fn the_directory_of_a_run_is_a_process_run_crate() {
    let run = Run::new(&["--sim"]);
    let copy = run.copy();
    let metadata = copy.json(CRATE);
    let graph = metadata["@graph"].as_array().expect("entities");
    let entity = |id: &str| {
        let mut found = graph.iter().filter(|entity| entity["@id"] == id);
        let one = found.next().unwrap_or_else(|| panic!("there is no {id}"));
        assert!(found.next().is_none(), "{id} is there once");
        one
    };
    assert_eq!(metadata["@context"][0], "https://w3id.org/ro/crate/1.1/context");
    let descriptor = entity(CRATE);
    assert_eq!(descriptor["conformsTo"]["@id"], "https://w3id.org/ro/crate/1.1");
    assert_eq!(descriptor["about"]["@id"], "./");
    let root = entity("./");
    let profile = root["conformsTo"]["@id"].as_str().expect("a profile");
    assert_eq!(profile, "https://w3id.org/ro/wfrun/process/0.5");
    assert_eq!(entity(profile)["@type"], "CreativeWork");
    for key in ["name", "description", "datePublished", "license"] {
        assert!(root[key].as_str().is_some_and(|text| !text.is_empty()), "{key}");
    }
    let action = entity(root["mentions"]["@id"].as_str().expect("an action"));
    assert_eq!(action["@type"], "CreateAction");
    assert_eq!(action["actionStatus"], "http://schema.org/CompletedActionStatus");
    assert_eq!(action["object"]["@id"], "manifest.json");
    assert!(action["startTime"].as_str() <= action["endTime"].as_str(), "{action}");
    let software = entity(action["instrument"]["@id"].as_str().expect("a program"));
    assert_eq!(software["@type"], "SoftwareApplication");
    assert_eq!(software["softwareVersion"], env!("CARGO_PKG_VERSION"));
    let ids = |list: &Value| -> Vec<String> {
        let ids = list.as_array().expect("a list").iter();
        ids.map(|one| one["@id"].as_str().expect("an identifier").to_owned()).collect()
    };
    let parts = ids(&root["hasPart"]);
    let mut there = run.files();
    there.retain(|name| name != CRATE);
    assert_eq!(parts, there);
    assert_eq!(parts.len(), ids(&action["result"]).len() + 1);
    for part in parts {
        let bytes = fs::read(copy.path(&part)).expect("a file");
        let file = entity(&part);
        assert_eq!(file["@type"], "File");
        assert_eq!(file["contentSize"], bytes.len().to_string());
        for key in ["encodingFormat", "description", "sha256"] {
            assert!(file[key].is_string(), "{key} of {part}");
        }
    }
}

/// The validator of RO-Crates, `pip install roc-validator`. It asks the network for the standard's vocabulary, or has it
/// from before.
#[test]
fn the_validator_accepts_the_directory_of_a_run() {
    let validate = |dir: &str| {
        let mut validator = Command::new("rocrate-validator");
        validator.args(["validate", "--no-paging", "-v", "-l", "required"]);
        validator.args(["-p", "process-run-crate", dir]).env("NO_COLOR", "1");
        validator.output()
    };
    let run = Run::new(&["--sim"]);
    let words = |output: &Output| {
        let both = [output.stdout.as_slice(), &output.stderr].concat();
        String::from_utf8_lossy(&both).into_owned()
    };
    let Ok(done) = validate(&run.path("run")) else {
        // Past the test harness, which keeps to itself what passing tests print.
        let text = "NOT RUN: needs rocrate-validator: a run as a Process Run Crate";
        return drop(writeln!(io::stderr(), "{text}"));
    };
    if words(&done).contains("URLError") {
        let text = "NOT RUN: rocrate-validator does not reach https://w3id.org: a run as a crate";
        return drop(writeln!(io::stderr(), "{text}"));
    }
    assert_eq!(done.status.code(), Some(0), "{}", words(&done));
    // It does look: without its action's program the crate is none.
    let copy = run.copy();
    copy.edit(CRATE, "\"instrument\"", "\"instruments\"");
    let done = validate(&copy.dir()).expect("the validator");
    assert_eq!(done.status.code(), Some(1), "{}", words(&done));
}

#[test]
fn the_runs_of_a_sweep_are_checked_with_their_records() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).display().to_string();
    let text =
        format!("{EXPERIMENT}[matrix]\nnetwork.queue = [10, 100]\n[sweep]\nrepetitions = 2\n");
    fs::write(path("x.toml"), text).expect("written");
    let (code, _, err) = run(&["run", &path("x.toml"), "--sim", "--out", &path("sweep")]);
    assert_eq!(code, Some(0), "{err}");
    let (code, out, err) = run(&["verify", &path("sweep")]);
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(out.contains(" files of 4 runs, as they were left"), "{out}");
    let cases =
        fs::read_dir(path("sweep")).expect("the sweep").map(|entry| entry.expect("it").path());
    let case = cases.into_iter().find(|path| path.is_dir()).expect("a case");
    let done = case.join("2/done.json");
    let record = fs::read_to_string(&done).expect("a record");
    fs::write(&done, record.replacen("\"seed\": ", "\"seed\": 1", 1)).expect("written");
    let (code, out, _) = run(&["verify", &path("sweep")]);
    assert!(code == Some(1) && out.contains("done.json: of another run: seed 1"), "{out}");
    fs::write(&done, &record).expect("written");
    let verified = |want: &str| {
        let (code, out, err) = run(&["verify", &path("sweep")]);
        if want.is_empty() {
            return assert_eq!(code, Some(0), "{out}{err}");
        }
        assert!(code == Some(1) && out.contains(want), "{want}: {out}{err}");
    };
    verified("");
    // A figure that the logs do not give.
    let mut changed: Value = serde_json::from_str(&record).expect("JSON");
    changed["figures"]["delay.mean"] = json!(1.0);
    fs::write(&done, changed.to_string()).expect("written");
    verified("done.json: delay.mean 1ns, and the logs give ");
    fs::write(&done, &record).expect("written");
    // Runs that were removed, exchanged, or added; a link to a run is none.
    let moved = |from: &Path, to: &Path| fs::rename(from, to).expect("moved");
    let aside = dir.path().join("aside");
    for (from, want) in [(case.join("1"), "/1: missing"), (case.join("2"), "/2: missing")] {
        moved(&from, &aside);
        verified(want);
        std::os::unix::fs::symlink(&aside, &from).expect("a link");
        verified(want);
        fs::remove_file(&from).expect("removed");
        moved(&aside, &from);
    }
    moved(&case, &aside);
    verified("/1: missing");
    moved(&aside, &case);
    moved(&case.join("1"), &aside);
    moved(&case.join("2"), &case.join("1"));
    moved(&aside, &case.join("2"));
    verified("done.json: of repetition `2`, and sweep.json wants `1` here");
    moved(&case.join("2"), &aside);
    moved(&case.join("1"), &case.join("2"));
    moved(&aside, &case.join("1"));
    moved(&case.join("2"), &case.join("3"));
    verified("a run that sweep.json does not ask for");
    moved(&case.join("3"), &case.join("2"));
    verified("");
    // A run of a sweep is a run: it is done again alone, by its manifest.
    let one = case.join("1").display().to_string();
    let (code, out, err) = run(&["replay", &one, "--out", &path("again")]);
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(out.contains("\nequal within intervals: "), "{out}");
}

#[test]
fn a_simulation_is_replayed_to_the_same_bytes_from_its_manifest_alone() {
    let run = Run::new(&["--sim", "--duration", "2s"]);
    // The experiment file is not needed any more.
    fs::remove_file(run.path("x.toml")).expect("removed");
    let (code, out, err) = self::run(&["replay", &run.path("run"), "--out", &run.path("again")]);
    assert_eq!(code, Some(0), "{out}{err}");
    for line in ["plan: equal: ", "logs: equal: the same bytes", "flow 1: delay.p99: equal: "] {
        assert!(out.lines().any(|found| found.starts_with(line)), "{line}: {out}");
    }
    assert!(out.contains("\nequal within intervals: ") && out.ends_with(" not known\n"), "{out}");
    for name in ["sender.itg", "receiver.itg"] {
        let [a, b] = ["run", "again"]
            .map(|dir| fs::read(run.path(&format!("{dir}/{name}"))).expect("a log"));
        assert!(a == b, "{name}");
    }
    let (code, out, err) = self::run(&["verify", &run.path("again")]);
    assert_eq!(code, Some(0), "{out}{err}");
    // A replay is replayed, by the manifest too; without logs beside it there is nothing to compare.
    let manifest = run.path("manifest.json");
    fs::copy(run.path("again/manifest.json"), &manifest).expect("copied");
    let (code, out, err) = self::run(&["replay", &manifest, "--out", &run.path("third")]);
    assert_eq!((code, out.as_str()), (Some(0), ""), "{err}");
    assert!(err.contains("not beside its manifest: nothing to compare"), "{err}");
}

/// The manifest and the logs were written when one form of a flow's description made the hash of the plan, the notes of
/// logs and the bytes on the wire.
#[test]
fn a_run_of_an_earlier_version_is_replayed_and_its_logs_are_read() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/earlier");
    let dir = tempfile::tempdir().expect("a directory");
    let again = dir.path().join("again").display().to_string();
    let (code, out, err) = run(&["replay", &golden.display().to_string(), "--out", &again]);
    assert_eq!(code, Some(0), "{out}{err}");
    for line in [
        "plan: equal: 4847a0be235fa5f5",
        "packets: equal: planned schedules are identical: 366 packets",
        "flow 1: delay.p99: equal: 154.72us",
        "flow 3: jitter.mean: equal: ",
    ] {
        assert!(out.lines().any(|found| found.starts_with(line)), "{line}: {out}");
    }
}

#[test]
fn a_replay_of_another_plan_is_refused_or_told_to_be_different() {
    let run = Run::new(&["--sim"]);
    let again =
        |copy: &Copy, out: &str| self::run(&["replay", &copy.dir(), "--out", &run.path(out)]);
    for (from, to) in [("\"seed\": 9", "\"seed\": 10"), ("100pps", "101pps"), ("exp(5ms)", "5ms")] {
        let copy = run.copy();
        copy.edit("manifest.json", from, to);
        let (code, out, err) = again(&copy, "refused");
        assert_eq!((code, out.as_str()), (Some(2), ""), "{err}");
        assert!(err.contains("gives plan ") && err.contains("the manifest was changed"), "{err}");
        assert!(!Path::new(&run.path("refused")).exists(), "nothing was sent");
        // The plan's hash is mended, too: then the packets tell.
        let given = err.split("gives plan ").nth(1).and_then(|rest| rest.split(',').next());
        let plan = copy.json("manifest.json")["plan"].as_str().expect("a plan").to_owned();
        copy.edit("manifest.json", &plan, given.expect("a plan"));
        let (code, out, err) = again(&copy, to);
        assert_eq!(code, Some(1), "{out}{err}");
        assert!(out.contains("packets: different: planned schedules differ: "), "{out}");
        assert!(err.contains("the replay differs from the original run"), "{err}");
    }
    // The plan knows no network: the figures tell.
    let copy = run.copy();
    copy.edit("manifest.json", "\\\"10Mbps\\\"", "\\\"2Mbps\\\"");
    let (code, out, err) = again(&copy, "slower");
    assert_eq!(code, Some(1), "{out}{err}");
    assert!(out.contains("packets: equal: planned schedules are identical"), "{out}");
    assert!(out.contains("flow 1: delay.mean: different: "), "{out}");
    // What differs is named before anything is sent.
    let copy = run.copy();
    for (key, value) in [("host", "elsewhere"), ("governor", "slow")] {
        let mut manifest = copy.json("manifest.json");
        manifest["settings"][key] = json!(value);
        fs::write(copy.path("manifest.json"), manifest.to_string()).expect("written");
    }
    let (code, out, err) = again(&copy, "named");
    assert_eq!(code, Some(0), "{out}{err}");
    for line in ["host: then elsewhere, now ", "governor: then slow, now "] {
        assert!(err.contains(&format!("differs from the original run: {line}")), "{err}");
    }
    assert!(!err.contains("run: os: "), "the kernel is the same: {err}");
    let (code, _, err) = self::run(&["replay", &run.path("x.toml")]);
    assert!(code == Some(2) && err.contains("x.toml: not a manifest"), "{err}");
}

#[test]
fn a_real_run_is_checked_and_replayed_with_its_own_options() {
    let run = Run::new(&["--local", "--duration", "1s", "--pacing", "sleep"]);
    let (code, out, err) = self::run(&["verify", &run.path("run")]);
    assert_eq!(code, Some(0), "{out}{err}");
    let again = |out: &str, more: &[&str]| {
        let (run_dir, out) = (run.path("run"), run.path(out));
        // A busy host may well give other delays: that is no failure of the replay.
        let (code, text, err) = self::run(&[&["replay", &run_dir, "--out", &out], more].concat());
        assert!(matches!(code, Some(0 | 1)), "{text}{err}");
        let manifest =
            fs::read_to_string(Path::new(&out).join("manifest.json")).expect("a manifest");
        (serde_json::from_str::<Value>(&manifest).expect("JSON"), text, err)
    };
    let (manifest, text, err) = again("again", &[]);
    let original: Value =
        serde_json::from_str(&fs::read_to_string(run.path("run/manifest.json")).expect("it"))
            .expect("JSON");
    assert_eq!(manifest["plan"], original["plan"]);
    assert_eq!(manifest["settings"]["world"], "local");
    assert_eq!(manifest["settings"]["options"], "--pacing=sleep");
    assert!(text.contains("packets: equal: planned schedules are identical: "), "{text}");
    assert!(!err.contains("options: then"), "{err}");
    // An option that is given goes before that of the original, and is named.
    let (manifest, _, err) = again("spinning", &["--pacing", "spin"]);
    assert_eq!(manifest["settings"]["options"], "--pacing=spin");
    assert!(err.contains("options: then --pacing=sleep, now --pacing=spin"), "{err}");
    // Another world sends the same packets.
    let (manifest, text, err) = again("simulated", &["--sim"]);
    assert_eq!(manifest["plan"], original["plan"]);
    assert!(text.contains("packets: equal: planned schedules are identical: "), "{text}");
    assert!(err.contains("world: then local, now sim"), "{err}");
}

#[test]
fn the_directory_of_a_stranger_writes_and_reads_nothing_elsewhere() {
    let run = Run::new(&["--sim"]);
    let precious = run.path("precious");
    fs::write(&precious, "words").expect("written");
    let victims = [
        format!("--events={precious}"),
        format!("--pacing=spin --out={}", run.path("elsewhere")),
        format!("--keys={precious}"),
        precious.clone(),
        "-v".to_owned(),
        "--help".to_owned(),
    ];
    for options in victims {
        let copy = run.copy();
        copy.set("options", &options);
        let (code, out, err) = self::run(&["replay", &copy.dir(), "--out", &run.path("again")]);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{options}: {err}");
        assert!(err.contains("the manifest has the option `"), "{options}: {err}");
        assert_eq!(fs::read_to_string(&precious).expect("it is there"), "words", "{options}");
        for name in ["elsewhere", "again"] {
            assert!(!Path::new(&run.path(name)).exists(), "{options}: {name}");
        }
    }
    // Logs elsewhere are refused before anything is sent.
    for log in ["../precious", "/dev/zero", "", "a/../b"] {
        let copy = run.copy();
        copy.set("logs", &json!([log]).to_string());
        let (code, _, err) = self::run(&["replay", &copy.dir(), "--out", &run.path("again")]);
        assert!(code == Some(2) && err.contains("not below its directory"), "{log}: {err}");
        assert!(!Path::new(&run.path("again")).exists(), "{log}");
    }
}

/// Each of these would block, never end, or follow a link.
#[test]
fn what_is_no_file_is_found_and_not_opened() {
    let run = Run::new(&["--sim"]);
    let pipe = |path: &Path| {
        let made = Command::new("mkfifo").arg(path).status().expect("mkfifo");
        assert!(made.success());
    };
    for name in run.files() {
        let copy = run.copy();
        fs::rename(copy.path(&name), run.path("moved")).expect("moved");
        pipe(&copy.path(&name));
        copy.is_found(&name);
        let copy = run.copy();
        fs::rename(copy.path(&name), run.path("moved")).expect("moved");
        std::os::unix::fs::symlink(run.path("moved"), copy.path(&name)).expect("a link");
        copy.is_found(&name);
    }
    for name in ["events.txt", "done.json", "more"] {
        let copy = run.copy();
        pipe(&copy.path(name));
        copy.is_found(name);
    }
    // A list of hashes that knows of the link.
    let copy = run.copy();
    std::os::unix::fs::symlink("/dev/zero", copy.path("more")).expect("a link");
    let mut metadata = copy.json(CRATE);
    metadata["@graph"].as_array_mut().expect("entities").push(json!({
        "@id": "more", "@type": "File", "name": "more", "contentSize": "0", "sha256": "no regular file",
    }));
    fs::write(copy.path(CRATE), format!("{metadata:#}\n")).expect("written");
    copy.is_found("more: a link, a device or the like");
    // Hashes of files elsewhere, and another name for one that is here.
    for (id, want) in [
        ("%2Fdev%2Fzero", "has no plain path"),
        ("../../x", "../../x: missing"),
        ("%6Dore", "plain path"),
    ] {
        let copy = run.copy();
        let mut metadata = copy.json(CRATE);
        metadata["@graph"].as_array_mut().expect("entities").push(json!({
            "@id": id, "@type": "File", "contentSize": "0", "sha256": "",
        }));
        fs::write(copy.path(CRATE), format!("{metadata:#}\n")).expect("written");
        copy.is_found(want);
    }
    // Files that are longer than any that a run writes: not a byte of theirs is on the disk.
    for name in [CRATE, "manifest.json", "report.json"] {
        let copy = run.copy();
        let file = fs::File::options().write(true).open(copy.path(name)).expect("a file");
        file.set_len(1 << 27).expect("a long file");
        copy.is_found(name);
    }
}

#[test]
fn a_run_whose_log_failed_is_kept_as_one_that_failed() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).display().to_string();
    let text =
        "schema = 1\nname = 'x'\nduration = '500ms'\n[[flow]]\nrate = '40000pps'\nsize = 100\n";
    fs::write(path("x.toml"), text).expect("written");
    let limited = "trap '' XFSZ; ulimit -f 512; exec \"$0\" \"$@\"";
    let mut command = Command::new("bash");
    command.args(["-c", limited, env!("CARGO_BIN_EXE_itg-cluster"), "run", &path("x.toml")]);
    let (code, _, err) = said(command.args(["--local", "--out", &path("run")]));
    assert!(code == Some(1) && err.contains(".itg: "), "{err}");
    let json = |name: &str| -> Value {
        serde_json::from_slice(&fs::read(path(&format!("run/{name}"))).expect("a file"))
            .expect("JSON")
    };
    assert_eq!(json("manifest.json")["settings"]["exit_code"], "1");
    let metadata = json(CRATE);
    let mut actions = metadata["@graph"].as_array().expect("entities").iter();
    let action = actions.find(|entity| entity["@id"] == "#run").expect("an action");
    assert_eq!(action["actionStatus"], "http://schema.org/FailedActionStatus");
    assert!(action["error"].as_str().is_some_and(|why| why.contains(".itg: ")), "{action}");
}

/// A run that is repeated stays as it was left.
#[test]
fn a_replay_adds_nothing_to_the_run_that_it_repeats() {
    let run = Run::new(&["--sim"]);
    let verified = || {
        let (code, out, err) = self::run(&["verify", &run.path("run")]);
        assert_eq!(code, Some(0), "{out}{err}");
    };
    fs::create_dir(run.path("beside")).expect("a directory");
    for out in ["run/again", "run", "run/a/b", "beside/../run/again"] {
        let (code, _, err) = self::run(&["replay", &run.path("run"), "--out", &run.path(out)]);
        assert!(code == Some(2) && err.contains(" is within "), "{out}: {err}");
        verified();
    }
    let (from, out, events) = (run.path("run"), run.path("again"), run.path("run/events"));
    let args = ["replay", &from, "--local", "--out", &out, "--events", &events];
    let (code, _, err) = self::run(&args);
    assert!(code == Some(2) && err.contains("run/events is within "), "{err}");
    // From within, the default lies beside the run.
    let mut command = Command::new(env!("CARGO_BIN_EXE_itg-cluster"));
    let (code, out, err) = said(command.args(["replay", "."]).current_dir(run.path("run")));
    assert_eq!(code, Some(0), "{out}{err}");
    verified();
    let entries = fs::read_dir(run.0.path()).expect("a directory");
    let replayed = |entry: io::Result<fs::DirEntry>| {
        entry.expect("an entry").file_name().to_string_lossy().starts_with("again-replay-")
    };
    assert_eq!(entries.map(replayed).filter(|replay| *replay).count(), 1);
}

#[test]
fn three_packets_are_too_few_to_be_equal() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).display().to_string();
    let text =
        "schema = 1\nname = 'x'\nseed = 9\nduration = '1s'\n[[flow]]\nidt = '10ms'\npackets = 3\n";
    fs::write(path("x.toml"), text).expect("written");
    let (code, _, err) = run(&["run", &path("x.toml"), "--local", "--out", &path("run")]);
    assert_eq!(code, Some(0), "{err}");
    let (code, out, err) = run(&["replay", &path("run"), "--out", &path("again")]);
    assert_eq!(code, Some(1), "{out}{err}");
    assert!(out.contains("packets: equal: planned schedules are identical: 3 packets"), "{out}");
    assert!(!out.contains("bitrate: equal"), "{out}");
    // The host may delay one of three packets by more than any tolerance.
    let different = out.contains(": different: ");
    assert!(different || out.contains("\nnot known: too few packets: "), "{out}");
}

/// The log rank keeps the logs of all ranks in one file, which is read once.
#[cfg(feature = "mpi")]
#[test]
fn a_run_under_mpi_with_a_log_rank_is_replayed() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).display().to_string();
    let text = EXPERIMENT.replace("\"3s\"", "\"500ms\"") + "[log]\nserver = \"mpi\"\n";
    fs::write(path("x.toml"), text).expect("written");
    let ranks = |args: &[&str]| said(launcher::mpirun(3, dir.path()).args(args));
    let (code, _, err) = ranks(&["run", &path("x.toml"), "--mpi", "--out", &path("run")]);
    assert_eq!(code, Some(0), "{err}");
    // A busy host may well give other delays; the packets are those that were planned.
    let (code, out, err) = ranks(&["replay", &path("run"), "--out", &path("again")]);
    assert!(matches!(code, Some(0 | 1)), "{out}{err}");
    assert!(out.contains("packets: equal: planned schedules are identical: "), "{out}{err}");
    assert!(out.contains("\ntotal: bitrate: "), "{out}{err}");
}
