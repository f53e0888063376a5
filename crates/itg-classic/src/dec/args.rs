//! The command line of ITGDec: the first letter after the dash selects an option.

use crate::log::{Address, LogRecord};
use crate::number::{integer, real};

/// Text that `-h` prints.
pub const HELP: &str = "
ITGDec - decodes logs of D-ITG

  ITGDec LOG [options]          the log comes first

  -v                 print the summary (the default when nothing else is asked for)
  -i                 print no summary
  -t                 LOG is a text log
  -l FILE            write a text log
  -o FILE            write a numeric log for Octave or Matlab
  -r LOG [FILE]      take the times of sending from the sender's log; write a combined
                     log to FILE (reconstructed.dat)
  -d MS [FILE]       mean delay in windows of MS milliseconds (delay.dat), seconds
  -j MS [FILE]       mean jitter in windows (jitter.dat), seconds
  -b MS [FILE]       bit rate in windows (bitrate.dat), kbit/s
  -p MS [FILE]       packets lost in windows (packetloss.dat)
  -c MS [FILE]       the four in one file (combined_stats.dat), over all flows
  -s [SUFFIX]        one binary log a flow, ID-SRC-DST.SUFFIX.dat (log)
  -f N | -f t        flows 1 to N only | all packets as one flow
  -P                 print the size of every packet
  -I                 print the time between arrivals
  -x [NAME]          every delay and jitter to eachdelay_NAME.dat, eachjitter_NAME.dat
  -h, --help         this text

What the figures mean, and where they mislead: docs/d-itg.md. itg-decode reads the
same logs with better ones.
";

/// Selection of the records that the figures count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flows {
    /// All.
    All,
    /// Those of flows up to this number.
    UpTo(u32),
    /// All, as one flow.
    AsOne,
}

/// A series of windows: their length and the file they go to.
#[derive(Clone, Debug, PartialEq)]
pub struct Windows {
    /// Length in milliseconds, above 0.
    pub length_ms: f64,
    /// Name of the file.
    pub file: String,
}

/// Request to ITGDec.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Name of the log.
    pub log: String,
    /// The log is a text log.
    pub text: bool,
    /// The summary is printed.
    pub summary: bool,
    /// Text log to write.
    pub text_log: Option<String>,
    /// Octave log to write.
    pub octave: Option<String>,
    /// The sender's log, and the combined log to write.
    pub combine: Option<(String, String)>,
    /// Delay, jitter, bit rate and loss in windows.
    pub series: [Option<Windows>; 4],
    /// All four in one file.
    pub combined_series: Option<Windows>,
    /// Suffix of the logs of single flows.
    pub split: Option<String>,
    /// Records that count.
    pub flows: Flows,
    /// Sizes are printed.
    pub sizes: bool,
    /// Inter-departure times are printed.
    pub gaps: bool,
    /// Names of the files of every delay and every jitter.
    pub each: Option<[String; 2]>,
    /// Lines to print before everything else: options that lacked their value.
    pub complaints: Vec<String>,
}

/// A command line that is not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgsError {
    /// Help was asked for.
    #[error("help")]
    Help,
    /// No log.
    #[error("\nMissing filename!!!\nTry ITGDec -h or --help for more informations")]
    NoLog,
    /// Something else; with everything there is to print.
    #[error("{0}")]
    Refused(String),
}

/// Letter, name in messages and default file of each series, in the order of `Options::series`.
const SERIES: [(u8, &str, &str); 4] = [
    (b'd', "delay time", "delay.dat"),
    (b'j', "jitter time", "jitter.dat"),
    (b'b', "bitrate time", "bitrate.dat"),
    (b'p', "packet loss time", "packetloss.dat"),
];

/// The arguments that are left.
struct Rest<'a> {
    args: std::iter::Peekable<std::slice::Iter<'a, String>>,
}

impl Rest<'_> {
    /// The next argument unless it is an option.
    fn value(&mut self) -> Option<String> {
        self.args.next_if(|next| !next.starts_with('-')).cloned()
    }
}

impl Options {
    /// Reads the arguments that follow the program's name.
    ///
    /// # Errors
    /// See [`ArgsError`]; the exit code is 1 for all.
    pub fn parse(args: &[String]) -> Result<Self, ArgsError> {
        let log = args.first().ok_or(ArgsError::NoLog)?;
        if log.starts_with("-h") || log.starts_with("--") {
            return Err(ArgsError::Help);
        }
        let mut options = Self::new(log);
        let mut rest = Rest { args: args[1..].iter().peekable() };
        let mut asked = None;
        let mut quiet = false;
        while let Some(option) = rest.args.next() {
            let letter = match option.as_bytes() {
                [b'-', b'-', ..] => return Err(ArgsError::Help),
                [b'-', letter, ..] => *letter,
                _ => b'?',
            };
            match letter {
                b'v' => asked = Some(true),
                b'i' => asked = Some(false),
                _ => quiet |= options.take(letter, &mut rest)?,
            }
        }
        options.summary = asked.unwrap_or(!quiet);
        Ok(options)
    }

    fn new(log: &str) -> Self {
        Self {
            log: log.to_owned(),
            text: false,
            summary: true,
            text_log: None,
            octave: None,
            combine: None,
            series: [const { None }; 4],
            combined_series: None,
            split: None,
            flows: Flows::All,
            sizes: false,
            gaps: false,
            each: None,
            complaints: Vec::new(),
        }
    }

    /// Takes one option; true when it silences the summary.
    fn take(&mut self, letter: u8, rest: &mut Rest<'_>) -> Result<bool, ArgsError> {
        match letter {
            b'h' => return Err(ArgsError::Help),
            b't' => self.text = true,
            b'w' => {}
            b'P' => self.sizes = true,
            b'I' => self.gaps = true,
            b'l' => {
                let name = rest.value();
                self.text_log = Some(self.needed(name, "Error on output log file name")?);
            }
            b'o' => {
                let name = rest.value();
                self.octave = Some(self.needed(name, "Error on output octave file name")?);
            }
            b'r' => {
                let name = rest.value();
                let sender = self.needed(name, "Error on sender log file name")?;
                let file = rest.value().unwrap_or_else(|| "reconstructed.dat".to_owned());
                self.combine = Some((sender, file));
            }
            b's' => self.split = Some(rest.value().unwrap_or_else(|| "log".to_owned())),
            b'x' => {
                let name = rest.value().map_or_else(String::new, |name| format!("_{name}"));
                self.each = Some(["delay", "jitter"].map(|what| format!("each{what}{name}.dat")));
            }
            b'c' => {
                match self.windows("interval value", "combined_stats.dat", rest)? {
                    Some(windows) => self.combined_series = Some(windows),
                    None => return Ok(false),
                };
            }
            b'f' => match rest.value() {
                None => self.complaints.push("Error 1 flow number".to_owned()),
                Some(text) if text.starts_with('t') => self.flows = Flows::AsOne,
                Some(text) => match u32::try_from(integer(&text)) {
                    Ok(last) if last > 0 => self.flows = Flows::UpTo(last),
                    _ => return Err(self.refused("Error 2 on flow number")),
                },
            },
            _ => {
                let Some(series) = SERIES.iter().position(|(own, _, _)| *own == letter) else {
                    return Err(self.refused("Invalid option!!\nUse -h or --help for usage"));
                };
                let (_, what, file) = SERIES[series];
                match self.windows(what, file, rest)? {
                    Some(windows) => self.series[series] = Some(windows),
                    None => return Ok(false),
                }
            }
        }
        Ok(!b"txfw".contains(&letter))
    }

    /// The length of windows and their file; `None`, with a complaint, when the length is missing.
    fn windows(
        &mut self,
        what: &str,
        file: &str,
        rest: &mut Rest<'_>,
    ) -> Result<Option<Windows>, ArgsError> {
        let Some(length) = rest.value() else {
            self.complaints.push(format!("Error 1 on {what}"));
            return Ok(None);
        };
        let length_ms = real(&length);
        // Windows of less than a picosecond would not be distinguishable.
        if !(length_ms >= 1e-9 && length_ms.is_finite()) {
            return Err(self.refused(&format!("Error 2 on {what}")));
        }
        let file = rest.value().unwrap_or_else(|| file.to_owned());
        Ok(Some(Windows { length_ms, file }))
    }

    fn needed(&self, value: Option<String>, complaint: &str) -> Result<String, ArgsError> {
        value.ok_or_else(|| self.refused(complaint))
    }

    fn refused(&self, last: &str) -> ArgsError {
        let mut lines = self.complaints.clone();
        lines.push(last.to_owned());
        ArgsError::Refused(lines.join("\n"))
    }
}

/// The record as the figures see it: `None` for an error line.
pub(super) fn counted(record: LogRecord, flows: Flows) -> Option<LogRecord> {
    let good = record.is_good();
    match flows {
        Flows::All => good.then_some(record),
        Flows::UpTo(last) => (good && record.flow <= last).then_some(record),
        Flows::AsOne => good.then(|| LogRecord {
            flow: 1,
            src: Address::new(b"127.0.0.1"),
            src_port: 9999,
            dst: Address::new(b"127.0.0.1"),
            dst_port: 8999,
            ..record
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, ArgsError> {
        Options::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    fn refused(text: &str) -> Result<Options, ArgsError> {
        Err(ArgsError::Refused(text.to_owned()))
    }

    /// The messages are those of the real program.
    #[test]
    fn refusals_are_those_of_the_real_program() {
        let invalid = "Invalid option!!\nUse -h or --help for usage";
        for (line, want) in [
            ("", Err(ArgsError::NoLog)),
            ("-h", Err(ArgsError::Help)),
            ("--help", Err(ArgsError::Help)),
            ("a -h", Err(ArgsError::Help)),
            ("a --v", Err(ArgsError::Help)),
            ("a -Z", refused(invalid)),
            ("a b", refused(invalid)),
            ("a -", refused(invalid)),
            ("a -d 0", refused("Error 2 on delay time")),
            ("a -d abc", refused("Error 2 on delay time")),
            ("a -d -5", refused(&format!("Error 1 on delay time\n{invalid}"))),
            ("a -j 0", refused("Error 2 on jitter time")),
            ("a -b 0", refused("Error 2 on bitrate time")),
            ("a -p 0", refused("Error 2 on packet loss time")),
            ("a -c 0", refused("Error 2 on interval value")),
            ("a -l", refused("Error on output log file name")),
            ("a -o", refused("Error on output octave file name")),
            ("a -r", refused("Error on sender log file name")),
            ("a -f x", refused("Error 2 on flow number")),
            ("a -f 0", refused("Error 2 on flow number")),
            ("a -f -1", refused(&format!("Error 1 flow number\n{invalid}"))),
        ] {
            assert_eq!(parse(line), want, "`{line}`");
        }
    }

    #[test]
    fn options_are_read_as_the_real_program_reads_them() {
        let base = || Options::new("a");
        let quiet = || Options { summary: false, ..base() };
        let windows = |length_ms, file: &str| Some(Windows { length_ms, file: file.to_owned() });
        let series = |at: usize, windows: Option<Windows>| {
            let mut options = quiet();
            options.series[at] = windows;
            options
        };
        let name = |text: &str| Some(text.to_owned());
        for (line, want) in [
            ("a", base()),
            ("a -v", base()),
            ("a -i", quiet()),
            ("a -i -v", base()),
            ("a -v -i", quiet()),
            ("a -w", base()),
            ("a -tt", Options { text: true, ..base() }),
            ("a -d 500", series(0, windows(500.0, "delay.dat"))),
            ("a -dxx 500abc y", series(0, windows(500.0, "y"))),
            ("a -d 1 -d 0.5 q", series(0, windows(0.5, "q"))),
            ("a -j 1e3", series(1, windows(1000.0, "jitter.dat"))),
            ("a -b 1", series(2, windows(1.0, "bitrate.dat"))),
            ("a -p 1", series(3, windows(1.0, "packetloss.dat"))),
            ("a -c 1", Options { combined_series: windows(1.0, "combined_stats.dat"), ..quiet() }),
            (
                "a -c 1 -v",
                Options { combined_series: windows(1.0, "combined_stats.dat"), ..base() },
            ),
            ("a -l f", Options { text_log: name("f"), ..quiet() }),
            ("a -o f", Options { octave: name("f"), ..quiet() }),
            ("a -r s", Options { combine: name("s").zip(name("reconstructed.dat")), ..quiet() }),
            ("a -r s c", Options { combine: name("s").zip(name("c")), ..quiet() }),
            ("a -s", Options { split: name("log"), ..quiet() }),
            ("a -s q -v", Options { split: name("q"), ..base() }),
            ("a -P -I", Options { sizes: true, gaps: true, ..quiet() }),
            (
                "a -x",
                Options {
                    each: Some(["eachdelay.dat", "eachjitter.dat"].map(str::to_owned)),
                    ..base()
                },
            ),
            (
                "a -x q",
                Options {
                    each: Some(["eachdelay_q.dat", "eachjitter_q.dat"].map(str::to_owned)),
                    ..base()
                },
            ),
            ("a -f 2x", Options { flows: Flows::UpTo(2), ..base() }),
            ("a -f tt", Options { flows: Flows::AsOne, ..base() }),
            ("a -d", Options { complaints: vec!["Error 1 on delay time".to_owned()], ..base() }),
        ] {
            assert_eq!(parse(line), Ok(want), "`{line}`");
        }
    }
}
