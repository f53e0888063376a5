//! The manager's datagrams, and both their ends: a request is the text of a line, answered when its flow
//! begins and when it has ended.
//!
//! The source of a datagram can be forged. So nothing that does not parse is answered, a refusal
//! goes only to a source that cannot be forged, and no other answer is longer than the request by
//! more than its head.

use std::collections::{BTreeMap, VecDeque};

use crate::send::{FlowArgs, LogSettings, Source, parse_request};

/// Longest request in bytes.
pub const REQUEST_MAX: usize = 1457;
/// Most requests that a manager keeps in mind.
const PENDING_MAX: usize = 4096;
/// Refusals that are told one by one; after them each power of two is.
const REFUSALS_TOLD: u64 = 16;

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

/// Subject of an answer, with its number.
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

/// Returns the subject of an answer to a manager, and its text. D-ITG's own manager misreads the
/// layout and crashes.
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
    /// True if requests may name files (`-Ft`, `-Fs`, `-Fp`): every host that may send requests can
    /// then read every file that the daemon can read.
    pub files: bool,
}

/// Actions that a daemon asks of its driver.
#[derive(Clone, Debug, PartialEq)]
pub enum DaemonOutput<A> {
    /// Send this datagram.
    Send {
        /// The manager.
        to: A,
        /// The datagram.
        bytes: Vec<u8>,
    },
    /// Begin this flow; then say [`Daemon::begun`] or [`Daemon::refused`], at last [`Daemon::ended`].
    Start(Box<FlowArgs>),
    /// Tell the user.
    Say(String),
}

/// A sender that waits for requests; `A` is the address of a manager.
///
/// Flows are numbered for as long as the daemon runs. Each manager hears of its own requests, while
/// D-ITG answers the one that spoke last. A request that is refused ends nothing.
#[derive(Clone, Debug)]
pub struct Daemon<A> {
    config: DaemonConfig,
    logs: LogSettings,
    last_flow: u32,
    running: BTreeMap<u32, Requested<A>>,
    /// Requests that were refused.
    refusals: u64,
}

/// A request whose flow runs.
#[derive(Clone, Debug)]
struct Requested<A> {
    from: A,
    certain: bool,
    text: Vec<u8>,
}

/// A request that is not carried out, and why.
enum Denial {
    /// It is no line of options.
    Unreadable(String),
    /// It asks for what may not be.
    Forbidden(String),
}

impl<A: Clone + std::fmt::Display> Daemon<A> {
    /// A daemon without flows. `logs` is what stood behind `-Q`.
    #[must_use]
    pub const fn new(config: DaemonConfig, logs: LogSettings) -> Self {
        Self { config, logs, last_flow: 0, running: BTreeMap::new(), refusals: 0 }
    }

    /// Destinations of logs; requests may change how many records are written at a time (`-q`).
    #[must_use]
    pub const fn logs(&self) -> &LogSettings {
        &self.logs
    }

    /// Flows that run.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Takes a datagram; appends what is to be done. `certain`: no other host can have sent it
    /// under the address `from`.
    pub fn request(
        &mut self,
        from: A,
        certain: bool,
        datagram: &[u8],
        out: &mut Vec<DaemonOutput<A>>,
    ) {
        match self.flow(datagram) {
            Ok(flow) => {
                self.last_flow = flow.id;
                let requested = Requested { from, certain, text: datagram.to_vec() };
                self.running.insert(flow.id, requested);
                out.push(DaemonOutput::Start(Box::new(flow)));
            }
            Err(Denial::Unreadable(reason)) => self.tell_refusal(&from, &reason, out),
            Err(Denial::Forbidden(reason)) => {
                self.refuse(Requested { from, certain, text: datagram.to_vec() }, &reason, out);
            }
        }
    }

    fn flow(&mut self, datagram: &[u8]) -> Result<FlowArgs, Denial> {
        let unreadable = |reason: &str| Denial::Unreadable(reason.to_owned());
        if datagram.len() > REQUEST_MAX {
            let reason = format!("a request has at most {REQUEST_MAX} bytes");
            return Err(Denial::Unreadable(reason));
        }
        let text = std::str::from_utf8(datagram).map_err(|_| unreadable("it is no text"))?;
        // Managers written in C may send the end of their string along.
        let text = text.trim_end_matches('\0');
        if text.trim().is_empty() {
            return Err(unreadable("it is empty"));
        }
        let forbidden = |reason: &str| Denial::Forbidden(reason.to_owned());
        let id = self.last_flow.checked_add(1).ok_or_else(|| forbidden("no more flow numbers"))?;
        let mut logs = self.logs.clone();
        let flow =
            parse_request(id, text, &mut logs).map_err(|error| Denial::Unreadable(error.reason))?;
        if self.running.len() >= self.config.flows_max {
            let most = self.config.flows_max;
            return Err(Denial::Forbidden(format!("{most} flows run already, the limit")));
        }
        let from_file = |source: &Source| matches!(source, Source::File(_));
        let files = from_file(&flow.idt) || from_file(&flow.size) || flow.payload.is_some();
        if files && !self.config.files {
            return Err(forbidden("requests may not name files (-Ft, -Fs, -Fp)"));
        }
        self.logs = logs;
        Ok(flow)
    }

    /// A flow begins; its manager is told.
    pub fn begun(&self, flow: u32, out: &mut Vec<DaemonOutput<A>>) {
        if let Some(Requested { from, text, .. }) = self.running.get(&flow) {
            out.push(DaemonOutput::Send { to: from.clone(), bytes: reply_started(text) });
        }
    }

    /// A flow that was to begin is refused for this reason.
    pub fn refused(&mut self, flow: u32, reason: &str, out: &mut Vec<DaemonOutput<A>>) {
        if let Some(requested) = self.running.remove(&flow) {
            self.refuse(requested, reason, out);
        }
    }

    fn refuse(&mut self, to: Requested<A>, reason: &str, out: &mut Vec<DaemonOutput<A>>) {
        if to.certain {
            for bytes in [reply_started(&to.text), reply_refused(reason)] {
                out.push(DaemonOutput::Send { to: to.from.clone(), bytes });
            }
        }
        self.tell_refusal(&to.from, reason, out);
    }

    /// Tells the user of a refusal, of very many only some: any host can send requests.
    fn tell_refusal(&mut self, from: &A, reason: &str, out: &mut Vec<DaemonOutput<A>>) {
        self.refusals += 1;
        let count = self.refusals;
        // The reason may hold the request's own bytes.
        let reason = reason.replace(char::is_control, "?");
        if count <= REFUSALS_TOLD {
            out.push(DaemonOutput::Say(format!("a request of {from} is refused: {reason}")));
        } else if count.is_power_of_two() {
            let text = format!("{count} requests were refused, the last of {from}: {reason}");
            out.push(DaemonOutput::Say(text));
        }
    }

    /// A flow has ended, or failed for this reason; its manager is told.
    pub fn ended(&mut self, flow: u32, failed: Option<&str>, out: &mut Vec<DaemonOutput<A>>) {
        if let Some(Requested { from, certain, text }) = self.running.remove(&flow) {
            let bytes = match failed {
                None => reply_ended(&text),
                Some(reason) if certain => reply_refused(reason),
                // As long as the answer to a flow that went well, at most.
                Some(reason) => reply_refused(&reason[..reason.floor_char_boundary(text.len())]),
            };
            out.push(DaemonOutput::Send { to: from, bytes });
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

    /// Returns true if every request is answered.
    #[must_use]
    pub fn answered(&self) -> bool {
        self.unanswered.is_empty()
    }

    /// Returns true if every request is answered and every flow has ended.
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

    /// Datagrams to managers among the outputs.
    fn answers(out: &[DaemonOutput<&'static str>]) -> Vec<(&'static str, Vec<u8>)> {
        out.iter()
            .filter_map(|output| match output {
                DaemonOutput::Send { to, bytes } => Some((*to, bytes.clone())),
                _ => None,
            })
            .collect()
    }

    /// The flows that are to begin.
    fn starts(out: &[DaemonOutput<&'static str>]) -> Vec<u32> {
        out.iter()
            .filter_map(|output| match output {
                DaemonOutput::Start(flow) => Some(flow.id),
                _ => None,
            })
            .collect()
    }

    #[test]
    fn each_manager_hears_of_its_own_requests() {
        let mut daemon = daemon();
        let (first, second) = (&b" -a 127.0.0.1 -z 5"[..], &b"-C 20 -q 7\n\0"[..]);
        let mut out = Vec::new();
        daemon.request("m1", false, first, &mut out);
        daemon.request("m2", true, second, &mut out);
        assert_eq!((starts(&out), answers(&out)), (vec![1, 2], vec![]));
        assert_eq!((daemon.running(), daemon.logs().buffer), (2, 7));
        out.clear();
        daemon.begun(1, &mut out);
        daemon.begun(2, &mut out);
        let want = [("m1", reply_started(first)), ("m2", reply_started(second))];
        assert_eq!(answers(&out), want);
        out.clear();
        daemon.ended(1, None, &mut out);
        daemon.ended(2, Some("the receiver has gone"), &mut out);
        daemon.ended(2, None, &mut out);
        let want = [("m1", reply_ended(first)), ("m2", reply_refused("the receiver has gone"))];
        assert_eq!((answers(&out), daemon.running()), (want.to_vec(), 0));
    }

    #[test]
    fn what_is_no_request_has_no_answer_and_ends_nothing() {
        let long = [b'-'; REQUEST_MAX + 1];
        for (request, want) in [
            (&b""[..], "empty"),
            (b"\0", "empty"),
            (b" \t\r\n\0\0", "empty"),
            (b"-C nothing", "Invalid pkts per sec"),
            (b"-N 5 -1", "Invalid pkts per sec"),
            (b"hello", "What is hello"),
            (b"\x1b[2J", "What is ?[2J"),
            (b"-l x", "-l"),
            (b"-a 127.0.0.1 --allow-third-party", "allow-third-party"),
            (b"-a \xff", "no text"),
            (&long, "at most 1457"),
        ] {
            for certain in [false, true] {
                let (mut daemon, mut out) = (daemon(), Vec::new());
                daemon.request("m", certain, request, &mut out);
                let [DaemonOutput::Say(words)] = &out[..] else { panic!("{request:?}: {out:?}") };
                assert!(words.contains(want), "{words}");
                out.clear();
                daemon.request("m", certain, b"-z 5", &mut out);
                assert_eq!(starts(&out), [1]);
            }
        }
    }

    #[test]
    fn s15_refusals_go_to_sources_that_nobody_can_forge() {
        for (request, want) in [
            (&b"-Fp /etc/passwd"[..], "may not name files"),
            (b"-Ft gaps", "may not name files"),
            (b"-Fs sizes", "may not name files"),
        ] {
            let (mut daemon, mut out) = (daemon(), Vec::new());
            daemon.request("m", false, request, &mut out);
            assert!(matches!(&out[..], [DaemonOutput::Say(words)] if words.contains(want)));
            out.clear();
            daemon.request("m", true, request, &mut out);
            let [(_, started), (_, refused)] = &answers(&out)[..] else { panic!("{out:?}") };
            assert_eq!(started, &reply_started(request));
            let (kind, text) = reply_text(refused).expect("an answer");
            assert_eq!(kind, ReplyKind::Refused);
            assert!(String::from_utf8_lossy(text).contains(want));
            out.clear();
            daemon.request("m", true, b"-z 5", &mut out);
            assert_eq!(starts(&out), [1]);
            out.clear();
            daemon.refused(1, "no such host", &mut out);
            assert_eq!((answers(&out).len(), daemon.running()), (2, 0));
        }
    }

    #[test]
    fn answers_to_sources_that_may_be_forged_are_as_long_as_the_request_and_a_head() {
        let (mut daemon, mut out) = (daemon(), Vec::new());
        daemon.request("m", false, b"-z 5", &mut out);
        daemon.request("m", false, b"-z 6", &mut out);
        out.clear();
        daemon.refused(1, "data would go elsewhere", &mut out);
        assert_eq!(answers(&out), [], "a refusal");
        daemon.begun(2, &mut out);
        daemon.ended(2, Some("äöü: nobody listens there"), &mut out);
        let lens: Vec<usize> = answers(&out).iter().map(|(_, bytes)| bytes.len()).collect();
        assert_eq!(lens, [7, 12]);
    }

    #[test]
    fn many_refusals_are_few_words() {
        let (mut daemon, mut out) = (daemon(), Vec::new());
        for _ in 0..100_000 {
            daemon.request("m", true, b"", &mut out);
        }
        assert_eq!(out.len(), 16 + 12, "16 and each power of two up to 65 536");
    }

    #[test]
    fn a_daemon_runs_so_many_flows_and_no_more() {
        let (mut daemon, mut out) = (daemon(), Vec::new());
        for _ in 0..3 {
            daemon.request("m", true, b"-z 5", &mut out);
        }
        let Some(DaemonOutput::Say(words)) = out.last() else { panic!("{out:?}") };
        assert!(words.contains("2 flows run already"), "{words}");
        daemon.ended(1, None, &mut out);
        daemon.request("m", true, b"-z 5", &mut out);
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
