//! `itg-send run` of a file with several nodes: what starts at this host is sent, the rest is left out with a word.

use std::fs;
use std::path::Path;

use itg_tests::{Receiver, send, temp_dir};

/// Two nodes, `here` and one that is an address for documentation (RFC 5737), and a flow each way.
fn experiment(dir: &Path, here: &str) -> String {
    let file = dir.join("calls.toml");
    let text = format!(
        "schema = 1\nname = \"calls\"\nseed = 1\n[nodes]\na = {{ address = \"{here}\" }}\n\
         b = {{ address = \"203.0.113.1\" }}\n\
         [[flow]]\nname = \"echo\"\nfrom = \"a\"\nto = \"a\"\nrate = \"100pps\"\nsize = 100\npackets = 20\n\
         [[flow]]\nname = \"back\"\nfrom = \"b\"\nto = \"a\"\nrate = \"100pps\"\nsize = 100\npackets = 20\n"
    );
    fs::write(&file, text).expect("a file");
    file.display().to_string()
}

#[test]
fn what_starts_elsewhere_is_left_out_with_a_word() {
    let dir = temp_dir();
    let receiver = Receiver::start::<&str>(&[]);
    let file = experiment(dir.path(), &receiver.at());
    let done = send(&["run", &file]).exits(0).says(
        "left out: flow 2 of node b (203.0.113.1) (not addresses of this host; --node NAME sends those of a node",
    );
    assert!(done.out.contains("flow 1 (echo): ") && !done.out.contains("flow 2"), "{done}");
    let done = send(&["run", &file, "--node", "b"]).exits(0).says("left out: flow 1 of node a (");
    assert!(done.out.contains("flow 2 (back): ") && !done.out.contains("flow 1"), "{done}");
    receiver.stop();
}

#[test]
fn a_file_of_other_hosts_makes_no_sense_here() {
    let dir = temp_dir();
    let file = experiment(dir.path(), "203.0.113.2");
    let done = send(&["run", &file]).exits(2).says(
        "starts at this host, which has none of the addresses of a (203.0.113.2), b (203.0.113.1)",
    );
    assert_eq!(done.out, "", "{done}");
    send(&["run", &file, "--node", "c"]).exits(2).says("is sent by node `c`");
}
