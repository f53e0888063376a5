//! The flow of a command line: the settings of an experiment file, and a word of iperf3's.

use clap::Args;
use itg_experiment::{FlowEntry, TimeSpan, ValueError};

#[derive(Debug, Args)]
pub(crate) struct FlowArgs {
    #[command(flatten)]
    entry: FlowEntry,
    /// As --duration, in seconds where it has no unit
    #[arg(short = 't', long, help_heading = "Traffic", value_name = "SECONDS", value_parser = time_or_seconds, conflicts_with = "duration")]
    time: Option<TimeSpan>,
}

impl FlowArgs {
    /// The same flow as an entry of an experiment file.
    pub(crate) fn entry(self) -> FlowEntry {
        let Self { entry, time } = self;
        FlowEntry { count: entry.count.or(Some(1)), duration: entry.duration.or(time), ..entry }
    }
}

/// A time, or a number of seconds.
fn time_or_seconds(text: &str) -> Result<TimeSpan, String> {
    let seconds = text.parse::<f64>().is_ok().then(|| format!("{text}s"));
    seconds.as_deref().unwrap_or(text).parse().map_err(|error: ValueError| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_without_a_unit_are_seconds() {
        for (text, want) in
            [("10", Some(10_000)), ("0.5", Some(500)), ("20ms", Some(20)), ("x", None)]
        {
            let got = time_or_seconds(text).ok().map(|time| time.0 / 1_000_000);
            assert_eq!(got, want, "{text}");
        }
    }
}
