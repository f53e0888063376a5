//! Programs whose messages differ do not work together, and say which versions they have.

mod agents;
mod stranger;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use agents::{agent, words};
use serde_json::json;
use stranger::{Stranger, hear, hello, say, version};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

const LIMIT: Duration = Duration::from_secs(60);

fn program(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_itg-cluster"));
    command.args(args).stdin(Stdio::null());
    command
}

/// Both versions of the messages are named, and what to do.
fn names_both(text: &str, here: u64, there: u64) {
    for word in [
        format!("(messages {here},"),
        format!("(messages {there},"),
        "install the same version on all nodes".to_owned(),
    ] {
        assert!(text.contains(&word), "{word} is not in: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_with_other_messages_refuse_each_other_and_name_both_versions() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).display().to_string();
    let keys = path("keys");
    assert!(program(&["keys", &keys]).output().expect("keys").status.success());
    let stranger = Stranger::new(Path::new(&keys));

    // A program with the next version of the messages calls an agent; what that speaks is learnt with a good hello.
    let (_agent, address) = agent(&keys, &path("agent"), |_| {});
    let calling = async {
        let mut line = stranger.call(&address).await;
        say(&mut line, &hello(0)).await;
        let ours = version(&hear(&mut line).await);
        let mut line = stranger.call(&address).await;
        say(&mut line, &hello(ours + 1)).await;
        let why = hear(&mut line).await["Refused"].as_str().expect("refused").to_owned();
        assert!(why.starts_with("at the agent: "), "{why}");
        names_both(&why, ours, ours + 1);
        ours
    };
    let ours = tokio::time::timeout(LIMIT, calling).await;
    let ours = ours.unwrap_or_else(|late| panic!("{late}: {}", words(&path("agent"))));

    // A console calls an agent with the next version.
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let text = format!(
        "schema = 1\nname = 'x'\nduration = '1s'\n[nodes]\na = {{ address = '{address}' }}\n\
         [[flow]]\nfrom = 'a'\nto = 'a'\nrate = '100pps'\n"
    );
    fs::write(path("x.toml"), text).expect("written");
    let (file, out) = (path("x.toml"), path("out"));
    let run = program(&["run", &file, "--keys", &keys, "--out", &out])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let run = run.expect("a console");
    let answering = async {
        let (stream, _) = listener.accept().await.expect("a call");
        let mut line = stranger.answer(stream).await;
        assert_eq!(hear(&mut line).await["protocol"], ours);
        let hello = hello(ours + 1);
        say(&mut line, &json!({ "Welcome": { "hello": hello, "host": "there", "boot_id": "b" } }))
            .await;
        // It hangs up.
        drop(line.read_u8().await);
    };
    tokio::time::timeout(LIMIT, answering).await.expect("in time");
    let ended = tokio::task::spawn_blocking(move || run.wait_with_output().expect("its end"));
    let Output { status, stderr, .. } = ended.await.expect("no panic");
    let err = String::from_utf8(stderr).expect("UTF-8");
    assert_eq!(status.code(), Some(3), "{err}");
    names_both(&err, ours, ours + 1);
    assert!(err.contains("comparing versions"), "{err}");
}
