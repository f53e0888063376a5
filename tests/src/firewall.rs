//! Packets as a host's own kernel counts, drops and refuses them; needs root, and nft.

use std::path::Path;

use serde_json::Value;

use crate::namespace::Namespace;

/// Program that sets the rules.
pub const NFT: &str = "/usr/sbin/nft";

/// Counters of packets: those that a rule refused or dropped, those that left the host or came to it.
const COUNTERS: [&str; 6] = ["refused", "dropped", "left", "came", "segments", "arriving"];
/// Headers of a segment of a stream: IPv4, and TCP with a time stamp.
const HEADERS: u64 = 20 + 32;
/// Packets of flows: no opening of a way, which is shorter, and no signalling.
const DATA: [&str; 3] = [
    "udp length > 150",
    "icmp type { echo-request, echo-reply } meta length > 150",
    "icmpv6 type { echo-request, echo-reply } meta length > 150",
];

impl Namespace {
    /// Runs a program within it, which must do what it is asked; its stdout.
    #[track_caller]
    pub fn run(&self, name: &str, words: &str) -> String {
        let done = self.command(Path::new(name)).args(words.split(' ')).output();
        let done = done.unwrap_or_else(|error| panic!("{name}: {error}"));
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{name} {words}: {said}");
        String::from_utf8(done.stdout).expect("text")
    }

    /// Counts the data packets that leave it (behind what [`refuse`](Self::refuse) takes away) and come to it (before
    /// what [`lose`](Self::lose) does), and segments of streams.
    #[track_caller]
    pub fn count(&self) {
        self.nft("add table inet a");
        for counter in COUNTERS {
            self.nft(&format!("add counter inet a {counter}"));
        }
        for (chain, hook, priority) in [
            ("refuse", "output", 0),
            ("out", "output", 10),
            ("in", "input", -10),
            ("lose", "input", 0),
        ] {
            let hook = format!("{{ type filter hook {hook} priority {priority}; }}");
            self.nft(&format!("add chain inet a {chain} {hook}"));
        }
        for data in DATA {
            self.nft(&format!("add rule inet a out {data} counter name left"));
            self.nft(&format!("add rule inet a in {data} counter name came"));
        }
        for (chain, counter) in [("out", "segments"), ("in", "arriving")] {
            for signalling in ["tcp dport 9000", "tcp sport 9000"] {
                self.nft(&format!("add rule inet a {chain} {signalling} accept"));
            }
            let segments = "meta l4proto tcp meta length > 150";
            self.nft(&format!("add rule inet a {chain} {segments} counter name {counter}"));
        }
    }

    #[track_caller]
    fn nft(&self, words: &str) {
        self.run(NFT, words);
    }

    /// Refuses packets that it sends, those of this match: its kernel says EPERM.
    #[track_caller]
    pub fn refuse(&self, packets: &str) {
        self.nft(&format!("add rule inet a refuse {packets} counter name refused drop"));
    }

    /// Drops packets that come to it, those of this match.
    #[track_caller]
    pub fn lose(&self, packets: &str) {
        self.nft(&format!("add rule inet a lose {packets} counter name dropped drop"));
    }

    /// Packets of a counter.
    #[track_caller]
    #[must_use]
    pub fn counted(&self, counter: &str) -> u64 {
        self.count_of(counter).0
    }

    /// Packets of so many bytes in the segments of a counter.
    #[track_caller]
    #[must_use]
    pub fn streamed(&self, counter: &str, size: u64) -> u64 {
        let (segments, bytes) = self.count_of(counter);
        (bytes - HEADERS * segments) / size
    }

    #[track_caller]
    fn count_of(&self, counter: &str) -> (u64, u64) {
        let text = self.run(NFT, &format!("-j list counter inet a {counter}"));
        let json: Value = serde_json::from_str(&text).expect("JSON");
        let entries = json["nftables"].as_array().expect("a list");
        let number = |entry: &Value, key: &str| entry["counter"][key].as_u64();
        let count =
            entries.iter().find_map(|entry| number(entry, "packets").zip(number(entry, "bytes")));
        count.expect("a counter")
    }

    /// A counter of the kernel for UDP or TCP over IPv4, such as `Udp: RcvbufErrors` (datagrams that found a full
    /// socket).
    #[track_caller]
    #[must_use]
    pub fn kernel_counter(&self, protocol: &str, counter: &str) -> u64 {
        let text = self.run("cat", "/proc/net/snmp");
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(protocol));
        let names = lines.next().expect("names").split(' ');
        let mut both = names.zip(lines.next().expect("numbers").split(' '));
        let (_, count) = both.find(|(name, _)| *name == counter).expect("a counter");
        count.parse().expect("a number")
    }
}
