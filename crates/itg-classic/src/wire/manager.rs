//! The manager's datagrams, and both their ends: a request is the text of a line, answered when it is
//! read and when its flow has ended.

use std::collections::{BTreeMap, VecDeque};

use crate::send::{FlowArgs, LogSettings, Source, parse_request};

/// Longest request in bytes.
pub const REQUEST_MAX: usize = 1457;
/// Most requests that a manager keeps in mind.
const PENDING_MAX: usize = 4096;

/// The first answer, of three bytes more than the request. What the type and the length do not
/// cover is the request's own bytes, as with D-ITG.
#[must_use]
pub fn reply_started(request: &[u8]) -> Vec<u8> {
    let request = &request[..request.len().min(REQUEST_MAX)];
    let len = request.len() + 3;
    // The answer is written over the request: type, length, then the text from byte 8 on.
    let mut reply = request.to_vec();
    reply.resize(len.max(8), 0);
    reply[0] = 1;
    reply[2..4].copy_from_slice(&u16::try_from(request.len()).unwrap_or(u16::MAX).to_le_bytes());
    reply.truncate(8);
    reply.extend_from_slice(request);
    reply.truncate(len);
    reply
}

/// The second answer, of eight bytes more than the request.
#[must_use]
pub fn reply_ended(request: &[u8]) -> Vec<u8> {
    second(ReplyKind::Ended, request)
}

/// Instead of the second answer: the request was not carried out, and why. D-ITG's daemon ends then.
#[must_use]
pub fn reply_refused(reason: &str) -> Vec<u8> {
    second(ReplyKind::Refused, reason.as_bytes())
}

fn second(kind: ReplyKind, text: &[u8]) -> Vec<u8> {
    let text = &text[..text.len().min(REQUEST_MAX)];
    let mut reply = u32::from(kind as u8).to_le_bytes().to_vec();
    reply.extend_from_slice(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
    reply.extend_from_slice(text);
    reply
}

/// What an answer is about, with its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ReplyKind {
    /// The request has come. Its text follows, without its last five bytes.
    Started = 1,
    /// Its flow has ended. Its text follows.
    Ended = 2,
    /// It is not carried out, or its flow failed. The reason follows.
    Refused = 3,
}

/// What an answer tells a manager, and its text. D-ITG's own manager misreads the layout and
/// crashes.
#[must_use]
pub fn reply_text(reply: &[u8]) -> Option<(ReplyKind, &[u8])> {
    let (head, text) = reply.split_at_checked(8)?;
    let kind = match head[0] {
        1 => ReplyKind::Started,
        2 => ReplyKind::Ended,
        3 => ReplyKind::Refused,
        _ => return None,
    };
    Some((kind, text))
}

/// Limits of a daemon.
#[derive(Clone, Copy, Debug)]
pub struct DaemonConfig {
    /// Most flows at a time.
    pub flows_max: usize,
    /// Whether requests may name files (`-Ft`, `-Fs`, `-Fp`): who may send them may then read every
    /// file that the daemon can read.
    pub files: bool,
}

/// What a daemon wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum DaemonOutput<A> {
    /// Send this datagram.
    Send {
        /// The manager.
        to: A,
        /// The datagram.
        bytes: Vec<u8>,
    },
    /// Run this flow; then say [`Daemon::ended`].
    Start(Box<FlowArgs>),
    /// Tell the user.
    Say(String),
}

/// A sender that waits for requests; `A` is the address of a manager.
///
/// Flows are numbered for the life of the daemon. Each manager hears of its own requests, while
/// D-ITG answers the one that spoke last. A request that is refused ends nothing.
#[derive(Clone, Debug)]
pub struct Daemon<A> {
    config: DaemonConfig,
    logs: LogSettings,
    last_flow: u32,
    running: BTreeMap<u32, (A, Vec<u8>)>,
}

impl<A: Clone + std::fmt::Display> Daemon<A> {
    /// A daemon without flows. `logs` is what stood behind `-Q`.
    #[must_use]
    pub const fn new(config: DaemonConfig, logs: LogSettings) -> Self {
        Self { config, logs, last_flow: 0, running: BTreeMap::new() }
    }

    /// Where logs go; requests may change how many records are written at a time (`-q`).
    #[must_use]
    pub const fn logs(&self) -> &LogSettings {
        &self.logs
    }

    /// Flows that run.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Takes a datagram; appends what is to be done.
    pub fn request(&mut self, from: A, datagram: &[u8], out: &mut Vec<DaemonOutput<A>>) {
        out.push(DaemonOutput::Send { to: from.clone(), bytes: reply_started(datagram) });
        match self.flow(datagram) {
            Ok(flow) => {
                self.last_flow = flow.id;
                self.running.insert(flow.id, (from, datagram.to_vec()));
                out.push(DaemonOutput::Start(Box::new(flow)));
            }
            Err(reason) => {
                out.push(DaemonOutput::Send { to: from.clone(), bytes: reply_refused(&reason) });
                out.push(DaemonOutput::Say(format!("a request of {from} is refused: {reason}")));
            }
        }
    }

    fn flow(&mut self, datagram: &[u8]) -> Result<FlowArgs, String> {
        if datagram.len() > REQUEST_MAX {
            return Err(format!("a request has at most {REQUEST_MAX} bytes"));
        }
        if self.running.len() >= self.config.flows_max {
            return Err(format!("{} flows run already, the limit", self.config.flows_max));
        }
        let text =
            std::str::from_utf8(datagram).map_err(|_| "the request is no text".to_owned())?;
        // Managers written in C may send the end of their string along.
        let text = text.trim_end_matches('\0');
        let id = self.last_flow.checked_add(1).ok_or("no more flow numbers")?;
        let mut logs = self.logs.clone();
        let flow = parse_request(id, text, &mut logs).map_err(|error| error.reason)?;
        let from_file = |source: &Source| matches!(source, Source::File(_));
        let files = from_file(&flow.idt) || from_file(&flow.size) || flow.payload.is_some();
        if files && !self.config.files {
            return Err("requests may not name files (-Ft, -Fs, -Fp)".to_owned());
        }
        self.logs = logs;
        Ok(flow)
    }

    /// A flow has ended, or failed for this reason; its manager is told.
    pub fn ended(&mut self, flow: u32, failed: Option<&str>, out: &mut Vec<DaemonOutput<A>>) {
        if let Some((to, request)) = self.running.remove(&flow) {
            let bytes = failed.map_or_else(|| reply_ended(&request), reply_refused);
            out.push(DaemonOutput::Send { to, bytes });
        }
    }
}

/// A manager of one daemon: which of its requests are answered, and which flows have ended.
#[derive(Clone, Debug, Default)]
pub struct Manager {
    /// Requests without an answer, oldest first.
    unanswered: VecDeque<Vec<u8>>,
    /// Flows that run.
    running: usize,
    /// Requests that were refused, and flows that failed.
    refused: usize,
}

impl Manager {
    /// A request was sent. Of very many at a time the oldest are forgotten.
    pub fn sent(&mut self, request: &[u8]) {
        self.unanswered.push_back(request.to_vec());
        if self.unanswered.len() > PENDING_MAX {
            self.unanswered.pop_front();
        }
    }

    /// Takes an answer; `None` when it is none.
    pub fn reply<'a>(&mut self, reply: &'a [u8]) -> Option<(ReplyKind, &'a [u8])> {
        let (kind, text) = reply_text(reply)?;
        match kind {
            ReplyKind::Started => {
                // The request whose beginning it is; datagrams may have changed places.
                let at = self.unanswered.iter().position(|request| request.starts_with(text));
                self.unanswered.remove(at.unwrap_or(0))?;
                self.running += 1;
            }
            ReplyKind::Ended => self.running = self.running.saturating_sub(1),
            ReplyKind::Refused => {
                self.running = self.running.saturating_sub(1);
                self.refused += 1;
            }
        }
        Some((kind, text))
    }

    /// Whether every request is answered.
    #[must_use]
    pub fn answered(&self) -> bool {
        self.unanswered.is_empty()
    }

    /// Whether every request is answered and every flow has ended.
    #[must_use]
    pub fn settled(&self) -> bool {
        self.answered() && self.running == 0
    }

    /// Requests that were refused, and flows that failed.
    #[must_use]
    pub const fn refused(&self) -> usize {
        self.refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn daemon() -> Daemon<&'static str> {
        Daemon::new(DaemonConfig { flows_max: 2, files: false }, LogSettings::default())
    }

    #[test]
    fn each_manager_hears_of_its_own_requests() {
        let mut daemon = daemon();
        let (first, second) = (&b" -a 127.0.0.1 -z 5"[..], &b"-C 20 -q 7\n\0"[..]);
        let mut out = Vec::new();
        daemon.request("m1", first, &mut out);
        daemon.request("m2", second, &mut out);
        let ids: Vec<u32> = out
            .iter()
            .filter_map(|o| match o {
                DaemonOutput::Start(flow) => Some(flow.id),
                _ => None,
            })
            .collect();
        assert_eq!((ids, daemon.running(), daemon.logs().buffer), (vec![1, 2], 2, 7));
        assert_eq!(out[0], DaemonOutput::Send { to: "m1", bytes: reply_started(first) });
        out.clear();
        daemon.ended(1, None, &mut out);
        daemon.ended(2, Some("the receiver has gone"), &mut out);
        daemon.ended(2, None, &mut out);
        let refused = reply_refused("the receiver has gone");
        let want = [
            DaemonOutput::Send { to: "m1", bytes: reply_ended(first) },
            DaemonOutput::Send { to: "m2", bytes: refused },
        ];
        assert_eq!((out.as_slice(), daemon.running()), (&want[..], 0));
    }

    #[test]
    fn s15_a_request_that_is_refused_ends_nothing() {
        let long = [b'-'; REQUEST_MAX + 1];
        for (request, want) in [
            (&b"-C nothing"[..], "Invalid pkts per sec"),
            (b"-l x", "-l"),
            (b"-a \xff", "no text"),
            (b"-Fp /etc/passwd", "may not name files"),
            (b"-Ft gaps", "may not name files"),
            (b"-Fs sizes", "may not name files"),
            (&long, "at most 1457"),
        ] {
            let (mut daemon, mut out) = (daemon(), Vec::new());
            daemon.request("m", request, &mut out);
            let Some(DaemonOutput::Send { bytes, .. }) = out.get(1) else { panic!("{out:?}") };
            let (kind, text) = reply_text(bytes).expect("an answer");
            let text = String::from_utf8_lossy(text);
            assert_eq!(kind, ReplyKind::Refused, "{text}");
            assert!(text.contains(want), "{text}");
            out.clear();
            daemon.request("m", b"-z 5", &mut out);
            assert!(matches!(&out[1], DaemonOutput::Start(flow) if flow.id == 1), "{out:?}");
        }
    }

    #[test]
    fn a_daemon_runs_so_many_flows_and_no_more() {
        let (mut daemon, mut out) = (daemon(), Vec::new());
        for _ in 0..3 {
            daemon.request("m", b"-z 5", &mut out);
        }
        let Some(DaemonOutput::Say(words)) = out.last() else { panic!("{out:?}") };
        assert!(words.contains("2 flows run already"), "{words}");
        daemon.ended(1, None, &mut out);
        daemon.request("m", b"-z 5", &mut out);
        assert!(matches!(out.last(), Some(DaemonOutput::Start(flow)) if flow.id == 3), "{out:?}");
    }

    #[test]
    fn a_manager_knows_what_is_still_to_come() {
        let mut manager = Manager::default();
        assert!(manager.settled());
        manager.sent(b"-C 10 -z 500");
        manager.sent(b"-C 20 -z 500");
        assert_eq!(manager.reply(b"rubbish in no known layout"), None);
        // In the other order.
        let started = reply_started(b"-C 20 -z 500");
        assert_eq!(manager.reply(&started), Some((ReplyKind::Started, &b"-C 20 -"[..])));
        assert!(!manager.answered());
        manager.reply(&reply_started(b"-C 10 -z 500"));
        assert!(manager.answered() && !manager.settled());
        manager.reply(&reply_ended(b"-C 10 -z 500"));
        manager.reply(&reply_refused("the receiver has gone"));
        assert!(manager.settled() && manager.refused() == 1);
        assert_eq!(manager.reply(&reply_started(b"-C 10 -z 500")), None, "asked for nothing");
    }
}
