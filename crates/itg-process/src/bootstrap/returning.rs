//! Return of a process that runs again: the facts that it has kept, and the checks of the processes
//! that run.

use std::fmt;
use std::str::FromStr;

use crate::bootstrap::{Boot, Diagnosis, PROTOCOL, Step};

/// First word of a ticket.
const TICKET: &str = "itg-ticket-1";

/// Facts that a process keeps outside itself to be able to return: its own, and the addresses of
/// the others.
///
/// As text: one line for itself, one line for each process with its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The run.
    pub run: u64,
    /// Its slot.
    pub slot: u32,
    /// Its incarnation when it got the ticket: the next incarnation has a higher number.
    pub incarnation: u64,
    /// Addresses by slot.
    pub addresses: Vec<Vec<String>>,
}

/// A text that is no ticket.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the ticket is `{text}`: expected {expected}")]
pub struct TicketError {
    /// Number of the line, from 1.
    pub line: usize,
    /// The line.
    pub text: String,
    /// Content expected at this place.
    pub expected: &'static str,
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{TICKET} {:016x} {} {}", self.run, self.slot, self.incarnation)?;
        self.addresses.iter().try_for_each(|its| writeln!(f, "{}", its.join(",")))
    }
}

impl FromStr for Ticket {
    type Err = TicketError;

    fn from_str(text: &str) -> Result<Self, TicketError> {
        let mut lines = text.lines();
        let first = lines.next().unwrap_or_default();
        let words: Vec<_> = first.split(' ').collect();
        let read = || match words[..] {
            [TICKET, run, slot, incarnation] => Some(Self {
                run: u64::from_str_radix(run, 16).ok()?,
                slot: slot.parse().ok()?,
                incarnation: incarnation.parse().ok()?,
                addresses: Vec::new(),
            }),
            _ => None,
        };
        let error =
            |line, text: &str, expected| TicketError { line, text: text.to_owned(), expected };
        let mut ticket =
            read().ok_or_else(|| error(1, first, "`itg-ticket-1 RUN SLOT INCARNATION`"))?;
        let split =
            |line: &str| line.split(',').filter(|at| !at.is_empty()).map(str::to_owned).collect();
        ticket.addresses = lines.map(split).collect();
        if ticket.slot as usize >= ticket.addresses.len() {
            let line = ticket.addresses.len() + 2;
            return Err(error(line, "", "addresses of each process, a line for each"));
        }
        Ok(ticket)
    }
}

/// Facts that a running process checks on one that returns, and hands out to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Its own slot.
    pub slot: u32,
    /// Number of processes.
    pub processes: u32,
    /// The run.
    pub run: u64,
    /// Hash of the program.
    pub build: u64,
    /// Hash of the types in the graph.
    pub schema: u64,
    /// Hash of the resolved configuration.
    pub config: u64,
    /// The experiment as bytes.
    pub graph: Vec<u8>,
}

impl Terms {
    /// The slot that this message asks for.
    ///
    /// # Errors
    /// The first fact that does not fit, with its values.
    pub fn admit(&self, message: &Boot) -> Result<u32, Diagnosis> {
        let Boot::Return { protocol, build, schema, run, slot, facts } = message else {
            let reason = "it does not say who it is".to_owned();
            return Err(Diagnosis { host: "a caller".to_owned(), step: Step::Hello, reason });
        };
        let refusal = [
            ("protocol version", u64::from(*protocol), u64::from(PROTOCOL)),
            ("build", *build, self.build),
            ("schema", *schema, self.schema),
            ("run", *run, self.run),
        ]
        .into_iter()
        .find(|(_, theirs, ours)| theirs != ours)
        .map(|(what, theirs, ours)| format!("{what} {theirs:#x} there, {ours:#x} here"));
        let wrong = || match *slot {
            slot if slot == self.slot => Some(format!("slot {slot} is this process itself")),
            slot if slot >= self.processes => {
                Some(format!("slot {slot} of {} processes", self.processes))
            }
            _ => None,
        };
        match refusal.or_else(wrong) {
            Some(reason) => Err(Diagnosis { host: facts.host.clone(), step: Step::Hello, reason }),
            None => Ok(*slot),
        }
    }

    /// Messages to a process that has been admitted: its place, and the experiment.
    #[must_use]
    pub fn place(&self, slot: u32, incarnation: u64, addresses: Vec<Vec<String>>) -> [Boot; 2] {
        let config = Boot::Config {
            slot,
            processes: self.processes,
            incarnation,
            addresses,
            config: self.config,
            run: self.run,
        };
        [config, Boot::Graph(self.graph.clone())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bootstrap::HostFacts;

    #[test]
    fn tickets_are_read_as_they_are_written() {
        let ticket = Ticket {
            run: 0xfeed,
            slot: 1,
            incarnation: 3,
            addresses: vec![vec!["tcp 10.0.0.1:5".to_owned(), "unix 00a".to_owned()], Vec::new()],
        };
        assert_eq!(ticket.to_string().parse(), Ok(ticket.clone()), "{ticket}");
        for (text, line) in [
            ("", 1),
            ("itg-ticket-2 1 1 1", 1),
            ("itg-ticket-1 xyz 1 1", 1),
            ("itg-ticket-1 1 1 1\ntcp 1.1.1.1:1", 3),
        ] {
            let error = text.parse::<Ticket>().expect_err(text);
            assert_eq!(error.line, line, "{text:?}: {error}");
        }
    }

    #[test]
    fn who_does_not_fit_is_told_why() {
        let terms =
            Terms { slot: 0, processes: 3, run: 7, build: 1, schema: 2, config: 9, graph: vec![1] };
        let asks = |protocol, build, schema, run, slot| {
            let facts = HostFacts { host: "h".to_owned(), ..HostFacts::default() };
            let asks = Boot::Return { protocol, build, schema, run, slot, facts };
            terms.admit(&asks).map_err(|refused| refused.reason)
        };
        for (got, want) in [
            (asks(PROTOCOL, 1, 2, 7, 1), Ok(1)),
            (asks(1, 1, 2, 7, 1), Err("protocol version 0x1 there, 0x2 here")),
            (asks(PROTOCOL, 8, 2, 7, 1), Err("build 0x8 there, 0x1 here")),
            (asks(PROTOCOL, 1, 8, 7, 1), Err("schema 0x8 there, 0x2 here")),
            (asks(PROTOCOL, 1, 2, 8, 1), Err("run 0x8 there, 0x7 here")),
            (asks(PROTOCOL, 1, 2, 7, 0), Err("slot 0 is this process itself")),
            (asks(PROTOCOL, 1, 2, 7, 3), Err("slot 3 of 3 processes")),
        ] {
            assert_eq!(got, want.map_err(str::to_owned));
        }
        assert!(terms.admit(&Boot::Ready).is_err());
    }
}
