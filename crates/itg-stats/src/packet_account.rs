//! Account of a flow: what became of each packet of its plan.
//!
//! `planned = sent + refused + left out + not reached`, `sent = arrived + lost`, `arrived = logged + not logged`. A part
//! that cannot be known is unknown, with its reason; nothing is clamped.

use std::borrow::Cow;
use std::collections::BTreeMap;

use itg_core::flow::Flow;
use serde::Serialize;

use crate::fidelity::Cause;
use crate::figures::LossSplit;
use crate::metric::Metrics;

/// Outcomes of the packets of a plan; a part that is not known is `None`, and `why` says so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PacketAccount {
    /// Packets of the plan.
    pub planned: Option<u64>,
    /// Packets that the sender's kernel took.
    pub sent: Option<u64>,
    /// Packets that the sender's kernel refused.
    pub refused: Option<u64>,
    /// Number of them by the kernel's error, as `EPERM`, where the sender's log or program tells it.
    pub refused_by: BTreeMap<String, u64>,
    /// Packets that the sender left out: they were late, or its time was over.
    pub left_out: Option<u64>,
    /// Packets behind the early end of the flow.
    pub not_reached: Option<u64>,
    /// Different packets that arrived; of a round-trip flow at its sender those that came back.
    pub arrived: Option<u64>,
    /// Further arrivals of these; no part of any sum.
    pub duplicated: Option<u64>,
    /// Arrivals with another payload than their flow's; no part of any sum.
    pub corrupted: Option<u64>,
    /// Packets that were sent and did not arrive.
    pub lost: LostPackets,
    /// Lost ones that did not reach the receiver: all of a one-way flow.
    pub lost_there: Option<u64>,
    /// Lost ones that the receiver got, and whose answers did not come back: none of a one-way flow.
    pub lost_back: Option<u64>,
    /// Packets that arrived and are in the log of that side.
    pub logged: Option<u64>,
    /// Packets that arrived and are not in there.
    pub not_logged: Option<u64>,
    /// Reasons, by the part that is unknown; of `not_reached` the end of the flow.
    pub why: BTreeMap<&'static str, Cow<'static, str>>,
}

/// Lost packets by the place of their loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LostPackets {
    /// In the sender's host, below its sockets: by a queueing discipline, or its device.
    pub sender_host: Option<u64>,
    /// At the receiver's full socket.
    pub socket: Option<u64>,
    /// At the receiver's socket, since their checksum was wrong; `None` where it did not tell.
    pub checksum: Option<u64>,
    /// They arrived, but their receiver had counted the flow: so many as it saw; `None` where it saw none, or closed
    /// the port.
    pub too_late: Option<u64>,
    /// They came from another port of the sender's address, and were left out: a translator of addresses forgot the flow.
    pub rebound: Option<u64>,
    /// Their connection was over before its receiver had read them.
    pub receiver_gone: Option<u64>,
    /// In the network, or in the receiver's host below the socket; in the sender's, too, where that is not told.
    pub network: Option<u64>,
    /// Nobody knows where.
    pub unknown: Option<u64>,
}

/// The rest of a flow's account, beside its other figures.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// Packets of its plan.
    pub planned: Option<u64>,
    /// Packets that the kernel refused.
    pub refused: Option<u64>,
    /// Of them, those of each error.
    pub refused_by: BTreeMap<String, u64>,
    /// Planned time of the flow, in nanoseconds.
    pub planned_ns: Option<u64>,
    /// Different packets that arrived.
    pub arrived: Option<u64>,
    /// Arrivals with another payload than their flow's.
    pub corrupted: Option<u64>,
    /// True if its arrivals are answers.
    pub round_trip: bool,
    /// Of a round-trip flow the different packets that its receiver got.
    pub there: Option<u64>,
    /// Reason of the flow's end; `None` where no account of its sender tells it.
    pub end: Option<String>,
    /// True if the user ended it: what was not reached is no fault of the traffic.
    pub interrupted: bool,
    /// Reason why the plan has no number of packets, where it has none.
    pub no_plan: &'static str,
    /// Different packets in the logs: so many were sent at least.
    pub logged: u64,
    /// Reasons why parts are not known, where there are better ones than the usual.
    pub why: BTreeMap<&'static str, &'static str>,
}

impl Told {
    /// Reason why a part of the account is not known.
    fn why_not(&self, part: &str) -> &'static str {
        let usual = match part {
            "corrupted" => "payloads were not compared: itg-recv --check-payload",
            "arrived" | "duplicated" | "not_logged" => "the receiver told no account",
            "refused_by" if self.refused.is_some() => "the sender's log tells the errors",
            "logged" => "how many arrived, or are not in the log, is not known",
            "lost_there" | "lost_back" => "the receiver told no account",
            "lost" => "how many were sent, or arrived, is not known",
            "lost.checksum" => "the receiver did not tell it",
            "lost.sender_host" => "the sender did not tell it",
            "lost.rebound" | "lost.receiver_gone" => "the receiver did not tell it",
            "lost.too_late" => "the receiver saw none, or closed the port",
            _ if part.starts_with("lost.") => {
                "the receiver's drops are not known, or are more than were lost"
            }
            _ if self.end.is_none() => "no account of the sender's end",
            "not_reached" => "a part of the plan is not known",
            _ => "no side has told it, as in logs of an older version",
        };
        self.why.get(part).copied().unwrap_or(usual)
    }
}

/// Packets of a plan that are walked over at most to count them: some two seconds.
pub const MOST_WALKED: u64 = 1 << 25;

/// Packets that a flow plans, or why that is no number; `whole` had their turn where it ran to the end of its schedule,
/// otherwise at most `most` are walked over.
#[must_use]
pub fn planned(flow: &Flow, whole: Option<u64>, most: u64) -> (Option<u64>, &'static str) {
    if !flow.has_plan() {
        return (
            None,
            "as fast as possible, for a time or without an end: there is no such number",
        );
    }
    let most = if whole.is_some() { 0 } else { most.min(MOST_WALKED) };
    match flow.planned_packets(usize::try_from(most).unwrap_or(usize::MAX)).or(whole) {
        Some(planned) => (Some(planned), ""),
        None => (None, "the plan is too long to count"),
    }
}

/// Share of a plan that may be missing without the flow failing.
const MISSING_LIMIT: f64 = 0.01;

impl PacketAccount {
    /// Packets of the plan that were not sent, for whatever reason.
    #[must_use]
    pub fn unsent(&self) -> Option<u64> {
        self.planned?.checked_sub(self.sent?)
    }

    /// Their share of the plan; 0 of an empty one.
    #[must_use]
    pub fn unsent_share(&self) -> Option<f64> {
        let unsent = self.unsent()?;
        Some(if unsent == 0 { 0.0 } else { unsent as f64 / self.planned? as f64 })
    }

    /// Packets that did not leave and were not left out, in words.
    fn missing_words(&self, missing: u64) -> String {
        let of = self.planned.map_or_else(String::new, |planned| format!(" of {planned}"));
        let mut parts = Vec::new();
        if let Some(refused @ 1..) = self.refused {
            let errors: Vec<_> =
                self.refused_by.iter().map(|(error, n)| format!("{n} {error}")).collect();
            let errors =
                if errors.is_empty() { String::new() } else { format!(" ({})", errors.join(", ")) };
            parts.push(format!("{refused} were refused by the sender's kernel{errors}"));
        }
        if let Some(rest @ 1..) = self.not_reached {
            let why = self.why.get("not_reached").map_or("", |why| why.as_ref());
            parts.push(format!("{rest} were not reached ({why})"));
        }
        format!("{missing}{of} planned packets did not leave: {}", parts.join(", "))
    }
}

impl Metrics {
    /// Closes the account of a flow by its other figures and by what else is told of it, and judges by it.
    pub fn settle(&mut self, mut told: Told) {
        let mut account = PacketAccount {
            planned: told.planned,
            refused: told.refused,
            refused_by: std::mem::take(&mut told.refused_by),
            arrived: told.arrived,
            corrupted: told.corrupted,
            ..PacketAccount::default()
        };
        account.take(self);
        account.lost = self
            .lost
            .map_or_else(LostPackets::default, |lost| LostPackets::of(lost, &self.ledger.loss));
        (account.lost_there, account.lost_back) = match account.sent.zip(told.there) {
            _ if !told.round_trip => (self.lost, self.lost.map(|_| 0)),
            Some((sent, there)) => {
                let lost = sent.checked_sub(there);
                (lost, self.lost.zip(lost).and_then(|(all, there)| all.checked_sub(there)))
            }
            None => (self.lost.filter(|lost| *lost == 0), self.lost.filter(|lost| *lost == 0)),
        };
        self.bitrate_over_plan_bps =
            told.planned_ns.map(|ns| 8e9 * self.bytes as f64 / ns.max(1) as f64);
        let all_told =
            [account.sent, account.refused, account.left_out].iter().all(Option::is_some);
        // What arrived, or is in a log, was sent, whoever has told it.
        let sent = account.sent.or_else(|| account.arrived.max(Some(told.logged)));
        let parts = [sent, account.refused, account.left_out];
        let had_turn = parts.iter().flatten().fold(0, |sum: u64, part| sum.saturating_add(*part));
        if let (Some(error), Some(sent), 1..) = (self.fidelity.rate_error, account.sent, had_turn) {
            // That of the times alone; packets without a departure lower the rate, too.
            let share = sent as f64 / had_turn as f64;
            self.fidelity.rate_error = Some((1.0 + error) * share - 1.0);
        }
        let end = || told.end.clone().unwrap_or_else(|| "no account of its end".to_owned());
        match account.planned {
            None if told.no_plan.is_empty() => {
                account.note("planned", "how many packets it plans is not known");
            }
            None => account.note("planned", told.no_plan),
            Some(planned) if had_turn > planned => {
                account.planned = None;
                let why = "more packets had their turn than the description plans: its rate was changed, or \
                           several owners sent some";
                account.note("planned", why);
            }
            Some(planned) if all_told => {
                account.not_reached = Some(planned - had_turn);
                if planned > had_turn {
                    account.note("not_reached", end());
                }
            }
            Some(_) => {}
        }
        let dropped = self.ledger.loss.sender_host.filter(|n| *n > 0 && self.lost > Some(0));
        for part in account.unknown(self.lost) {
            let why = match dropped.filter(|_| part.starts_with("lost.")) {
                Some(n) => Cow::Owned(format!(
                    "the sender's host dropped {n} packets of all traffic of its device: whose is not known"
                )),
                None => told.why_not(part).into(),
            };
            account.note(part, why);
        }
        self.account = account;
        self.judge_account(told.interrupted, had_turn);
    }

    /// Notices on packets that were lost at the very end of a flow, came when nobody waited any more, or were changed,
    /// and on a rate that is not the path's.
    #[must_use]
    pub fn account_notices(&self) -> Vec<String> {
        // Of a flow of which nothing arrived the loss says it.
        let some = self.lost_at_end.filter(|count| *count > 0 && Some(*count) != self.sent_packets);
        let at_end = some.map(|count| match count {
            1 => "the last packet that was sent did not arrive".to_owned(),
            _ => format!("the last {count} packets that were sent did not arrive"),
        });
        let too_late = self.account.lost.too_late.filter(|count| *count > 0).map(|count| {
            format!("{count} packets came when the receiver had counted the flow, and are told as lost: --drain waits longer")
        });
        // They may be nobody's loss: another program of that host.
        let rebound = self.ledger.loss.rebound.filter(|count| *count > 0).map(|count| {
            format!("{count} packets came from another port of the sender's address and were left out, as behind an address translator that forgot the flow")
        });
        let corrupted = self.account.corrupted.filter(|count| *count > 0);
        let corrupted = corrupted
            .map(|count| format!("{count} packets arrived with another payload than their flow's"));
        let limited = self.limited_by.is_some().then(|| {
            "the rate is what its sender holds it to (--pacing-rate, or --reverse-rate of itg-recv), not the path's"
                .to_owned()
        });
        let here = self.ledger.loss.sender_host.filter(|n| *n > 0 && self.lost > Some(0)).map(|n| {
            format!("the sender's host dropped {n} packets of all traffic of its device; lost ones may be among them (tc -s qdisc)")
        });
        [at_end, here, too_late, rebound, corrupted, limited].into_iter().flatten().collect()
    }

    /// Adds the refusals of a flow, by error.
    pub fn add_refusals(&mut self, of: &Self) {
        for (error, count) in &of.account.refused_by {
            let sum = self.account.refused_by.entry(error.clone()).or_default();
            *sum = sum.saturating_add(*count);
        }
    }

    /// Takes the other parts of the account of all flows from their figures, behind the sums.
    pub fn close_account(&mut self) {
        let mut account = std::mem::take(&mut self.account);
        account.take(self);
        account.lost.unknown = self.lost.and_then(|lost| lost.checked_sub(account.lost.placed()));
        for part in account.unknown(self.lost) {
            account.note(part, "that of a flow is not known");
        }
        self.account = account;
    }

    /// Judges the flow by its account: packets of the plan that did not leave, and those of which nobody knows.
    fn judge_account(&mut self, interrupted: bool, had_turn: u64) {
        let account = &self.account;
        if interrupted && account.not_reached > Some(0) {
            self.fidelity.add_cause(Cause::Interrupted);
        }
        let cut_off = account.not_reached.filter(|_| !interrupted).unwrap_or(0);
        let missing = account.refused.unwrap_or(0).saturating_add(cut_off);
        let of = account.planned.unwrap_or(had_turn);
        if missing > 0 {
            let share = missing as f64 / of.max(missing) as f64;
            let words = account.missing_words(missing);
            self.fidelity.incomplete(share > MISSING_LIMIT, words);
        } else if let Some(planned) = account.planned
            && account.not_reached.is_none()
            && (planned - had_turn.min(planned)) as f64 > MISSING_LIMIT * planned as f64
        {
            let rest = planned - had_turn.min(planned);
            self.fidelity.not_beyond_log(rest, planned);
        }
    }
}

impl LostPackets {
    /// Places of so many lost packets; those that are told together only where they are no more than were lost.
    fn of(lost: u64, told: &LossSplit) -> Self {
        let LossSplit { socket, checksum, too_late, rebound, receiver_gone, network, .. } = *told;
        // The drops of the sender's host are those of all its traffic.
        let sender_host = told.sender_host.filter(|dropped| *dropped == 0);
        let all = Self {
            sender_host,
            socket,
            checksum,
            too_late,
            rebound,
            receiver_gone,
            network,
            unknown: None,
        };
        let none = Some(0);
        if lost == 0 {
            // Copies may have been dropped; of the packets none was lost anywhere.
            return Self {
                sender_host: none,
                socket: none,
                checksum: none,
                too_late: none,
                rebound: none,
                receiver_gone: none,
                network: none,
                unknown: none,
            };
        }
        match lost.checked_sub(all.placed()) {
            unknown @ Some(_) => Self { unknown, ..all },
            None => Self { sender_host, unknown: Some(lost), ..Self::default() },
        }
    }

    /// Packets whose place is known.
    fn placed(&self) -> u64 {
        let Self {
            sender_host, socket, checksum, too_late, rebound, receiver_gone, network, ..
        } = *self;
        [sender_host, socket, checksum, too_late, rebound, receiver_gone, network]
            .into_iter()
            .flatten()
            .fold(0, u64::saturating_add)
    }
}

impl PacketAccount {
    /// Takes the parts that other figures have.
    pub(crate) fn take(&mut self, metrics: &Metrics) {
        let loss = &metrics.ledger.loss;
        self.sent = metrics.sent_packets;
        self.left_out = metrics.skipped_packets;
        // Where it is not known how many arrived, nor is how many of them came again.
        self.duplicated = metrics.duplicated.filter(|_| self.arrived.is_some());
        self.not_logged = loss.log;
        self.logged = self.arrived.zip(loss.log).and_then(|(all, not)| all.checked_sub(not));
    }

    /// Parts that are not known.
    fn unknown(&self, lost: Option<u64>) -> impl Iterator<Item = &'static str> + use<> {
        let of = self.lost;
        let by_error = self.refused_by.values().fold(0, |sum: u64, n| sum.saturating_add(*n));
        let parts = [
            ("sent", self.sent),
            ("refused", self.refused),
            ("refused_by", self.refused.filter(|refused| *refused <= by_error)),
            ("left_out", self.left_out),
            ("not_reached", self.not_reached),
            ("arrived", self.arrived),
            ("duplicated", self.duplicated),
            ("corrupted", self.corrupted),
            ("lost", lost),
            ("lost_there", self.lost_there),
            ("lost_back", self.lost_back),
            ("lost.sender_host", of.sender_host),
            ("lost.socket", of.socket),
            ("lost.checksum", of.checksum),
            ("lost.too_late", of.too_late),
            ("lost.rebound", of.rebound),
            ("lost.receiver_gone", of.receiver_gone),
            ("lost.network", of.network),
            ("lost.unknown", of.unknown),
            ("logged", self.logged),
            ("not_logged", self.not_logged),
        ];
        parts.into_iter().filter_map(|(part, count)| count.is_none().then_some(part))
    }

    fn note(&mut self, part: &'static str, why: impl Into<Cow<'static, str>>) {
        self.why.entry(part).or_insert_with(|| why.into());
    }
}
