//! Agents on this host, as children of a test.

use std::fs::{self, File};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use itg_testkit::child::Kept;
use itg_testkit::host::two_ports;

/// Time that an agent may take until it listens.
const LIMIT: Duration = Duration::from_secs(60);
/// Attempts with another port.
const TRIES: u32 = 20;

/// Starts an agent; returns it once it listens, with its address. `more` adds arguments. Its words
/// go to a file beside its directory. Another program may take a port between the draw and the
/// agent: then another one is tried.
pub(crate) fn agent(keys: &str, dir: &str, mut more: impl FnMut(&mut Command)) -> (Kept, String) {
    let words = format!("{dir}.err");
    for _ in 0..TRIES {
        let at = format!("127.0.0.1:{}", two_ports());
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

/// Text that an agent in this directory has printed, for a failure to print.
pub(crate) fn words(dir: &str) -> String {
    fs::read_to_string(format!("{dir}.err")).unwrap_or_default()
}
