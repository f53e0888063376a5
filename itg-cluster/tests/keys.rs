//! Keys of single nodes: what each role may ask for, revoked and renewed keys, and what a thief of a node's keys cannot
//! do. Attackers are programs of this test.

mod agents;
mod stranger;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use agents::{agent, words};
use itg_testkit::child::Kept;
use serde_json::{Value, json};
use stranger::{Stranger, hear, say};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

const LIMIT: Duration = Duration::from_secs(60);
const RUN: &str = "00112233445566778899aabbccddeeff";

fn program(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_itg-cluster"));
    command.args(args).stdin(Stdio::null());
    command
}

/// A directory with an authority.
struct Authority(tempfile::TempDir);

impl Authority {
    fn new() -> Self {
        let made = Self(tempfile::tempdir().expect("a directory"));
        made.keys(&["init"]);
        made
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// The result of `keys` with these arguments.
    fn asked(&self, args: &[&str]) -> Output {
        let mut command = program(&["keys"]);
        command.args(args).arg("--authority").arg(self.path("ca"));
        command.output().expect("keys")
    }

    fn keys(&self, args: &[&str]) {
        let Output { status, stderr, .. } = self.asked(args);
        assert!(status.success(), "{args:?}: {}", String::from_utf8_lossy(&stderr));
    }

    /// The keys of a new node.
    fn add(&self, node: &str, role: &str) -> PathBuf {
        self.keys(&["add", node, "--role", role]);
        self.path("ca").join(node)
    }

    /// An agent with keys of its own, and its address.
    fn agent(&self, node: &str) -> (Kept, String) {
        let keys = self.add(node, "agent").display().to_string();
        agent(&keys, &self.text(node), |_| {})
    }
}

/// The end of a command: its exit code and its words.
fn done(command: &mut Command) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = command.output().expect("a program");
    (status.code(), String::from_utf8(stderr).expect("UTF-8"))
}

fn status(keys: &Path, at: &str) -> (Option<i32>, String) {
    done(program(&["status", "--at", at, "--keys"]).arg(keys))
}

/// Asks one thing on a connection of its own.
async fn ask(stranger: &Stranger, address: &str, call: &Value) -> Value {
    let asking = async {
        let mut line = stranger.greet(address).await;
        say(&mut line, call).await;
        hear(&mut line).await
    };
    tokio::time::timeout(LIMIT, asking).await.expect("an answer")
}

/// A call to take part in a run.
fn join(from: u32, addresses: &[&str], warrant: &Value) -> Value {
    json!({ "Join": {
        "run": RUN, "start": 1, "slot": 1, "from": from, "addresses": addresses, "offset_ns": 0,
        "uncertainty_ns": 0, "begin": true, "warrant": warrant
    } })
}

fn refusal(answer: &Value) -> &str {
    answer["Refused"].as_str().unwrap_or_else(|| panic!("not refused: {answer}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thief_of_a_nodes_keys_has_no_agent_call_hosts_of_his_choice() {
    let authority = Authority::new();
    let (_agent, at) = authority.agent("a");
    let thief = Stranger::new(&authority.add("b", "agent"));
    let console = Stranger::new(&authority.add("desk", "console"));
    let victim = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let victims = victim.local_addr().expect("an address").to_string();
    let addresses = [victims.as_str(), &at, "127.0.0.1:1", ""];
    let members = ["127.0.0.1:2", &at, "127.0.0.1:1", ""];
    let none = json!({ "chain": [], "signature": [] });
    let forged = json!({ "chain": console.vouch(RUN, &addresses)["chain"], "signature": [1, 2] });
    for (name, warrant, why) in [
        ("nobody vouches", none, "there is no certificate"),
        ("the thief vouches", thief.vouch(RUN, &addresses), "node `b` (agent) is no console"),
        ("for other members", console.vouch(RUN, &members), "not that of these members"),
        ("for another run", console.vouch("another", &addresses), "not that of these members"),
        ("a forged signature", forged, "not that of these members"),
    ] {
        let answer = ask(&thief, &at, &join(2, &addresses, &warrant)).await;
        let said = refusal(&answer);
        assert!(said.contains("no console vouches for the addresses"), "{name}: {said}");
        assert!(said.contains(why), "{name}: {said}");
    }
    // Nor does he pass for the console.
    let answer = ask(&thief, &at, &join(3, &addresses, &thief.vouch(RUN, &addresses))).await;
    assert!(refusal(&answer).contains("node `b` (agent) is no console"), "{answer}");
    // What a console vouches for is done: then, and only then, the other host is called.
    let good = join(2, &addresses, &console.vouch(RUN, &addresses));
    let answer = ask(&thief, &at, &good).await;
    assert_eq!(answer, json!("Joined"), "{}", words(&authority.text("a")));
    tokio::time::timeout(LIMIT, victim.accept()).await.expect("a call").expect("a call");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_role_asks_for_its_own_things() {
    let authority = Authority::new();
    let (_agent, at) = authority.agent("a");
    let rows = [
        ("reader", "b", [true, true, false, false, false, false]),
        ("agent", "c", [true, false, false, false, false, true]),
        ("console", "d", [true, true, true, true, true, false]),
    ];
    let addresses = ["127.0.0.1:1", &at, "127.0.0.1:2", ""];
    for (role, node, allowed) in rows {
        let keys = authority.add(node, role);
        let caller = Stranger::new(&keys);
        let calls = [
            json!("Clock"),
            json!("Status"),
            json!({ "Command": { "Stop": { "flow": null } } }),
            json!({ "Rate": { "flow": 1, "rate": { "Times": 2.0 } } }),
            json!({ "Forget": "f".repeat(32) }),
            // It knows nothing of the run, and shall not begin.
            join(2, &addresses, &json!({ "chain": [], "signature": [] })),
        ];
        for (call, allowed) in calls.iter().zip(allowed) {
            let answer = ask(&caller, &at, call).await;
            let said = answer["Refused"].as_str().unwrap_or_default();
            assert_eq!(
                !said.contains(&format!("node `{node}` ({role}) is no ")),
                allowed,
                "{call}: {answer}"
            );
        }
        // Programs look at their own keys first.
        if role != "agent" {
            let args =
                ["agent", "--listen", "127.0.0.1:0", "--dir", &authority.text("x"), "--keys"];
            let (code, said) = done(program(&args).arg(&keys));
            assert!(code == Some(2) && said.contains("is no agent"), "{role}: {said}");
        }
        if role != "console" {
            let file = authority.path("x.toml");
            fs::write(&file, EXPERIMENT.replace("AT", &at)).expect("written");
            let mut run = program(&["run"]);
            run.arg(file).arg("--keys").arg(&keys).arg("--out").arg(authority.path("out"));
            let (code, said) = done(&mut run);
            assert!(code == Some(2) && said.contains("is no console"), "{role}: {said}");
        }
    }
}

const EXPERIMENT: &str = "schema = 1\nname = 'x'\nseed = 1\n[nodes]\na = { address = 'AT' }\n\
     [[flow]]\nfrom = 'a'\nto = 'a'\nrate = '100pps'\npackets = 20\n";

/// A node with the keys of a reader does not pass for an agent.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_is_not_believed_to_be_an_agent() {
    let authority = Authority::new();
    let reader = Stranger::new(&authority.add("b", "reader"));
    let desk = authority.add("desk", "console");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let at = listener.local_addr().expect("an address").to_string();
    let asked = tokio::task::spawn_blocking(move || status(&desk, &at));
    let (stream, _) =
        tokio::time::timeout(LIMIT, listener.accept()).await.expect("a call").expect("a call");
    drop(reader.answer(stream).await.read_u8().await);
    let (code, said) = asked.await.expect("no panic");
    assert!(code == Some(3) && said.contains("node `b` (reader) is no agent"), "{said}");
}

/// Asks until the answer is this one: an agent looks at its files once a second.
fn until(what: &str, mut asked: impl FnMut() -> (Option<i32>, String), code: i32, word: &str) {
    let deadline = Instant::now() + LIMIT;
    loop {
        let (got, said) = asked();
        if got == Some(code) && said.contains(word) {
            return;
        }
        assert!(Instant::now() < deadline, "{what}: exit code {got:?}, {said}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn revoked_keys_open_nothing_and_renewed_ones_need_no_restart() {
    let authority = Authority::new();
    let (_agent, at) = authority.agent("a");
    let [desk, lost] = ["desk", "lost"].map(|node| authority.add(node, "console"));
    let mut open =
        tokio::time::timeout(LIMIT, Stranger::new(&lost).greet(&at)).await.expect("greeted");
    assert_eq!(status(&lost, &at).0, Some(0));

    // A list of another authority is not obeyed; the agent goes on as before.
    let other = Authority::new();
    other.add("lost", "console");
    other.keys(&["revoke", "lost"]);
    fs::copy(other.path("ca/revoked.pem"), authority.path("ca/a/revoked.pem")).expect("copied");
    until("a list of strangers", || status(&desk, &at), 0, "");
    let said = || (Some(0), words(&authority.text("a")));
    let asked = || {
        drop(status(&desk, &at));
        said()
    };
    until("a list of strangers", asked, 0, "keys stay as they were");
    assert_eq!(status(&lost, &at).0, Some(0), "{}", words(&authority.text("a")));

    // The thief still has the files as they were when he took them.
    let stolen = authority.path("stolen");
    fs::create_dir(&stolen).expect("made");
    for name in ["ca.pem", "node.pem", "node.key", "revoked.pem"] {
        fs::copy(lost.join(name), stolen.join(name)).expect("copied");
    }
    authority.keys(&["revoke", "lost"]);
    until("revoked", || status(&stolen, &at), 3, "revoked");
    let ended = tokio::time::timeout(LIMIT, open.read_u8()).await.expect("it ends");
    assert!(ended.is_err(), "the open connection ends, too");
    until("others", || status(&desk, &at), 0, "");
    let (code, said) = status(&lost, &at);
    assert!(code == Some(2) && said.contains("the keys have been revoked"), "{said}");

    // Keys that were renewed are taken while the agent runs; its old ones are not revoked with them.
    let before = fs::read(authority.path("ca/a/node.pem")).expect("a certificate");
    authority.keys(&["renew", "a"]);
    assert_ne!(before, fs::read(authority.path("ca/a/node.pem")).expect("a certificate"));
    until("renewed", || status(&desk, &at), 0, "");
    for (args, why) in [
        (["renew", "lost"], "has no keys of this authority that are good"),
        (["revoke", "nobody"], "has no keys of this authority that are good"),
        (["add", "a"], "node `a` has keys already"),
        (["add", "../b"], "use letters, digits"),
    ] {
        let Output { status, stderr, .. } = authority.asked(&args);
        let said = String::from_utf8_lossy(&stderr);
        assert!(status.code() == Some(2) && said.contains(why), "{args:?}: {said}");
    }
    // Without its list no node starts: what is revoked would be good again.
    fs::remove_file(desk.join("revoked.pem")).expect("removed");
    let (code, said) = status(&desk, &at);
    assert!(code == Some(2) && said.contains("revoked.pem: not there"), "{said}");
}

#[test]
fn a_run_over_nodes_with_keys_of_their_own() {
    let authority = Authority::new();
    let (_agent, at) = authority.agent("a");
    let desk = authority.add("desk", "console");
    let file = authority.path("x.toml");
    fs::write(&file, EXPERIMENT.replace("AT", &at)).expect("written");
    let mut run = program(&["run"]);
    run.arg(file).arg("--keys").arg(&desk).arg("--out").arg(authority.path("out"));
    let (code, said) = done(&mut run);
    assert_eq!(code, Some(0), "{said}\n{}", words(&authority.text("a")));
}
