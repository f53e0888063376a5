//! Agents on this host, as children of a test.

use std::fs::{self, File};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long an agent may take until it listens.
const LIMIT: Duration = Duration::from_secs(60);
/// How often another port is tried.
const TRIES: u32 = 20;

/// A process that ends with the test.
pub(crate) struct Kept(pub(crate) Child);

impl Drop for Kept {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A port that is free, and the next one, too. Below those that the system gives to whoever calls: the agents' own
/// connections would take them.
pub(crate) fn port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = u16::try_from(std::process::id() % 900).expect("small") * 20;
    for _ in 0..9_000 {
        let port = 12_000 + (first + NEXT.fetch_add(2, Ordering::Relaxed)) % 18_000;
        let free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
        if free(port) && free(port + 1) {
            return port;
        }
    }
    panic!("no two ports beside each other");
}

/// An agent that listens, and where; `more` adds arguments. Its words go to a file beside its directory. Another program
/// may take a port between the draw and the agent: then it is another one's turn.
pub(crate) fn agent(keys: &str, dir: &str, mut more: impl FnMut(&mut Command)) -> (Kept, String) {
    let words = format!("{dir}.err");
    for _ in 0..TRIES {
        let at = format!("127.0.0.1:{}", port());
        let mut command = Command::new(env!("CARGO_BIN_EXE_itg-cluster"));
        command.args(["agent", "--listen", &at, "--keys", keys, "--dir", dir]);
        more(&mut command);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(File::create(&words).expect("a file"));
        let mut agent = Kept(command.spawn().expect("an agent"));
        let deadline = Instant::now() + LIMIT;
        loop {
            let ended = agent.0.try_wait().expect("a child");
            let said = fs::read_to_string(&words).unwrap_or_default();
            if let Some(status) = ended {
                assert!(said.contains("in use"), "the agent at {at} has ended ({status}): {said}");
                break;
            }
            if said.contains("listening on 127") {
                return (agent, at);
            }
            assert!(Instant::now() < deadline, "the agent at {at} does not listen: {said}");
            sleep(Duration::from_millis(10));
        }
    }
    panic!("no port stays free: {}", fs::read_to_string(&words).unwrap_or_default());
}

/// What an agent in this directory has said, for a failure to print.
pub(crate) fn words(dir: &str) -> String {
    fs::read_to_string(format!("{dir}.err")).unwrap_or_default()
}
