//! The account that `itg-send -v` prints on stdout below its table, one line a flow.

/// Contents of one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Number of the flow.
    pub flow: u32,
    /// Packets sent.
    pub sent: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Packets received, when the receiver told.
    pub received: Option<u64>,
    /// Bytes received.
    pub received_bytes: Option<u64>,
    /// True if both sides agree.
    pub agreed: bool,
    /// The whole line.
    pub line: String,
}

/// Reads all lines about flows that were sent.
#[track_caller]
#[must_use]
pub fn accounts(out: &str) -> Vec<Account> {
    let is_account = |line: &&str| line.starts_with("flow ") && line.contains("): ");
    out.lines().filter(is_account).map(account).collect()
}

#[track_caller]
fn account(line: &str) -> Account {
    let bad = || panic!("not an account of a flow: {line:?}");
    let flow = line[5..].split(' ').next().and_then(|n| n.parse().ok()).unwrap_or_else(bad);
    let (_, text) = line.split_once("): ").unwrap_or_else(|| panic!("no name: {line:?}"));
    let agreed = text.starts_with("both sides agree on ");
    let (sent, sent_bytes) = amount(text).unwrap_or_else(|| panic!("no packets in {line:?}"));
    let told = text.split_once(" sent, ").and_then(|(_, rest)| amount(rest));
    let told = if agreed { Some((sent, sent_bytes)) } else { told };
    Account {
        flow,
        sent,
        sent_bytes,
        received: told.map(|(packets, _)| packets),
        received_bytes: told.map(|(_, bytes)| bytes),
        agreed,
        line: line.to_owned(),
    }
}

/// The first `N packets (M bytes)` or `N (M bytes)` of a text.
fn amount(text: &str) -> Option<(u64, u64)> {
    let (before, rest) = text.split_once(" (")?;
    let bytes = rest.split(' ').next()?.parse().ok()?;
    let mut words = before.rsplit(' ');
    let last = words.next()?;
    let packets = last.parse().ok().or_else(|| words.next()?.parse().ok())?;
    Some((packets, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        for (line, flow, sent, received) in [
            ("flow 3 (udp): both sides agree on 1 packet (512 bytes)", 3, (1, 512), Some((1, 512))),
            (
                "flow 1 (a b): 20 packets (200 bytes) sent, 18 (180 bytes) received: 2 packets lost",
                1,
                (20, 200),
                Some((18, 180)),
            ),
            (
                "flow 2 (udp): sent 7 packets (70 bytes); the receiver's count did not come",
                2,
                (7, 70),
                None,
            ),
        ] {
            let got = account(line);
            assert_eq!((got.flow, (got.sent, got.sent_bytes)), (flow, sent), "{line}");
            assert_eq!(got.received.zip(got.received_bytes), received, "{line}");
        }
    }
}
