//! Waiting of the sending thread, and path of its packets: flags, over what the experiment file
//! says.

use std::num::NonZeroU32;
use std::time::Duration;

use clap::Args;
use itg_core::units::parse_duration_ns;
use itg_engine::pacing::{Level, PacingOptions};
use itg_experiment::{PacingEntry, TimeSpan};
use itg_socket::PacketEngine;

/// Arguments about pacing.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct PacingArgs {
    /// Way to wait for the time of a packet: sleep, hybrid (sleep, then spin), spin, or txtime (the
    /// kernel keeps it: UDP in exact mode through devices whose queueing discipline is fq or etf;
    /// refused elsewhere) [default: hybrid, or the cheapest that keeps --max-error]
    #[arg(long, help_heading = "Timing", value_name = "LEVEL")]
    pacing: Option<Level>,
    /// Declare that 99 % of wake-ups are at most this late (20us); the host is measured before the run,
    /// and the run refused where it does not keep that
    #[arg(long, help_heading = "Timing", value_name = "T", value_parser = precision)]
    max_error: Option<Precision>,
    /// Real-time priority (SCHED_FIFO) and locked memory for the sending thread, where allowed
    #[arg(long, help_heading = "Timing")]
    realtime: bool,
    /// Processor that the sending thread stays on, from 0
    #[arg(long, help_heading = "Timing", value_name = "N")]
    cpu: Option<u16>,
    /// Path of packets: socket, or xdp (UDP in exact mode as Ethernet frames past the network stack
    /// of this host, its firewall and its queues, through AF_XDP; needs root and an Ethernet
    /// device; some 1.5 times the packets a second)
    #[arg(long, help_heading = "Network", value_name = "NAME", default_value_t)]
    engine: PacketEngine,
    /// Log when one of N packets left the network stack of this host (the kernel's transmit stamps; one-way
    /// UDP in exact mode through sockets) [default: none; with --pacing txtime: 16]
    #[arg(long, help_heading = "Timing", value_name = "N")]
    tx_stamps: Option<NonZeroU32>,
    /// Let one-way UDP flows to one destination share N sockets, and so N source ports, in turn: for more flows than
    /// this host has ports or may have open files [default: each flow has its own]
    #[arg(long, help_heading = "Network", value_name = "N", conflicts_with = "tx_stamps")]
    sockets: Option<NonZeroU32>,
}

#[derive(Clone, Copy, Debug)]
struct Precision(u64);

fn precision(text: &str) -> Result<Precision, String> {
    match parse_duration_ns(text) {
        Ok(0) => Err("no host is exact: declare more than 0, such as 20us".to_owned()),
        Ok(ns) => Ok(Precision(ns)),
        Err(error) => Err(error.to_string()),
    }
}

impl PacingArgs {
    /// The flags that were given, as words of a command line: what parses them gets these arguments again.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        let mut flag = |name: &str, value: Option<String>| {
            words.extend(value.map(|value| format!("--{name}={value}")));
        };
        flag("pacing", self.pacing.map(|level| level.to_string()));
        flag("max-error", self.max_error.map(|precision| format!("{}ns", precision.0)));
        flag("cpu", self.cpu.map(|cpu| cpu.to_string()));
        let engine = (self.engine != PacketEngine::default()).then(|| self.engine.to_string());
        flag("engine", engine);
        flag("tx-stamps", self.tx_stamps.map(|every| every.to_string()));
        flag("sockets", self.sockets.map(|count| count.to_string()));
        words.extend(self.realtime.then(|| "--realtime".to_owned()));
        words
    }

    /// The flags, and where they say nothing the file's `[pacing]`.
    #[must_use]
    pub fn options(&self, file: &PacingEntry) -> PacingOptions {
        let level = file.level.map(|level| level.0);
        let declared = self.max_error.map(|most| Duration::from_nanos(most.0));
        PacingOptions {
            level: self.pacing.or(level),
            realtime: self.realtime || file.realtime.unwrap_or(false),
            cpu: self.cpu.or(file.cpu),
            max_error_p99: declared.or_else(|| file.max_error_p99.map(TimeSpan::duration)),
            engine: self.engine,
            tx_stamps: self.tx_stamps,
            sockets: self.sockets,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::PacingArgs;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        pacing: PacingArgs,
    }

    #[test]
    fn words_are_parsed_to_the_same_arguments() {
        for line in [
            &[][..],
            &["--pacing", "spin", "--cpu", "1", "--realtime"],
            &["--max-error", "20us", "--engine", "xdp", "--tx-stamps", "16"],
            &["--sockets", "4"],
        ] {
            let parse = |words: &[String]| {
                let words = ["x".to_owned()].into_iter().chain(words.iter().cloned());
                Line::try_parse_from(words).expect("a command line").pacing
            };
            let given = parse(&line.iter().map(|&word| word.to_owned()).collect::<Vec<_>>());
            let again = parse(&given.words());
            assert_eq!(format!("{given:?}"), format!("{again:?}"), "{line:?}");
        }
    }
}
