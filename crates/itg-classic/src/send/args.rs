//! The parser of ITGSend.

use std::iter::Peekable;
use std::slice::Iter;

use super::distribution::Distribution;
use super::flow::{
    FlowArgs, HeaderKind, LogProto, LogServer, LogSettings, SendError, Source, Transport,
};
use super::profile::{App, Call};
use crate::number::{integer, prefixed, real};

const GENERAL: &str = "General parser";
const PROTOCOL: &str = "Protocol Parser";
const FLOW: &str = "flowParser";

/// Text that `-h` prints.
pub const HELP: &str = include_str!("help.txt");

/// The option that lets data go elsewhere than the signalling; D-ITG has none such.
pub const THIRD_PARTY: &str = "--allow-third-party";

/// Takes [`THIRD_PARTY`] out of the arguments; returns true if it was there.
pub fn take_third_party(args: &mut Vec<String>) -> bool {
    let before = args.len();
    args.retain(|arg| arg != THIRD_PARTY);
    args.len() < before
}

/// Request to ITGSend.
#[derive(Clone, Debug, PartialEq)]
pub enum Mode {
    /// Print the help; exit code 1.
    Help,
    /// One flow.
    Single(Box<FlowArgs>, LogSettings),
    /// The flows of a script, to be read from this file with [`parse_script`].
    Script(String, LogSettings),
    /// Wait for a manager; requests are read with [`parse_request`].
    Daemon(LogSettings),
}

/// Reads the arguments that follow the program's name.
///
/// # Errors
/// [`SendError`]; without arguments D-ITG prints `Missing argument!!!`, and so does its text here.
pub fn parse(args: &[String]) -> Result<Mode, SendError> {
    let Some(first) = args.first() else {
        let reason = "Missing argument!!!".to_owned();
        return Err(SendError { flow: 0, parser: GENERAL, reason });
    };
    if first == "-gui" {
        return parse(&args[1..]);
    }
    if first.starts_with("-h") || first.starts_with("--h") {
        return Ok(Mode::Help);
    }
    let mut logs = LogSettings::default();
    if first.starts_with("-Q") {
        parse_global(&args[1..], &mut logs)?;
        return Ok(Mode::Daemon(logs));
    }
    if !first.starts_with('-') && App::named(first).is_none() {
        parse_global(&args[1..], &mut logs)?;
        return Ok(Mode::Script(first.clone(), logs));
    }
    let mut parser = Parser::new(1, args, &mut logs, false);
    parser.run()?;
    let flow = parser.flow;
    Ok(Mode::Single(Box::new(flow), logs))
}

/// Reads a script, one flow a line; `logs` takes the `-q` of its lines.
///
/// # Errors
/// The first line that is refused, and a script without flows.
pub fn parse_script(text: &str, logs: &mut LogSettings) -> Result<Vec<FlowArgs>, SendError> {
    let mut flows: Vec<FlowArgs> = Vec::new();
    for line in text.lines() {
        let words: Vec<String> = line.split_ascii_whitespace().map(str::to_owned).collect();
        if words.first().is_none_or(|word| word.starts_with(['#', '%'])) {
            continue;
        }
        let id = u32::try_from(flows.len() + 1).unwrap_or(u32::MAX);
        flows.push(parse_line(id, &words, logs, true)?);
    }
    if flows.is_empty() {
        return Err(SendError {
            flow: 0,
            parser: FLOW,
            reason: "the script has no flow".to_owned(),
        });
    }
    Ok(flows)
}

/// Reads the request of a manager, the line of flow `id`.
///
/// # Errors
/// A line that is refused; D-ITG's daemon ends then, ours answers and goes on.
pub fn parse_request(id: u32, text: &str, logs: &mut LogSettings) -> Result<FlowArgs, SendError> {
    let words: Vec<String> = text.split_ascii_whitespace().map(str::to_owned).collect();
    parse_line(id, &words, logs, false)
}

fn parse_line(
    id: u32,
    words: &[String],
    logs: &mut LogSettings,
    script: bool,
) -> Result<FlowArgs, SendError> {
    let mut parser = Parser::new(id, words, logs, true);
    parser.run()?;
    let flow = parser.flow;
    if script && flow.passive {
        let refused =
            |reason: &str| SendError { flow: id, parser: FLOW, reason: reason.to_owned() };
        if flow.dest_given {
            return Err(refused(r#""-a <address>" option not work on passive-multiflow mode"#));
        }
        if flow.source_port.is_none() || flow.dest_port.is_none() {
            return Err(refused(r#"Passive-multiflow mode requires "-sp" and "-rp" options"#));
        }
    }
    Ok(flow)
}

/// Reads the options that stand behind a script or `-Q`.
fn parse_global(args: &[String], logs: &mut LogSettings) -> Result<(), SendError> {
    let mut parser = Parser::new(0, args, logs, false);
    while let Some(option) = parser.rest.next() {
        match option.as_bytes() {
            [b'-', b'l' | b'L' | b'x' | b'X' | b'q', ..] => parser.log_option(option)?,
            _ => {
                let reason = format!(
                    "Option {option} can not be used as a global option in the multy flow mode !"
                );
                return Err(SendError { flow: 0, parser: GENERAL, reason });
            }
        }
    }
    Ok(())
}

/// The state of reading one flow.
struct Parser<'a> {
    flow: FlowArgs,
    logs: &'a mut LogSettings,
    rest: Peekable<Iter<'a, String>>,
    /// True for a line of a script or a request: logs are not theirs.
    line: bool,
}

impl<'a> Parser<'a> {
    fn new(id: u32, args: &'a [String], logs: &'a mut LogSettings, line: bool) -> Self {
        Self { flow: FlowArgs::new(id), logs, rest: args.iter().peekable(), line }
    }

    fn error(&self, parser: &'static str, reason: &str) -> SendError {
        SendError { flow: self.flow.id, parser, reason: reason.to_owned() }
    }

    /// An error that D-ITG reports for flow 0.
    fn early(reason: &str) -> SendError {
        SendError { flow: 0, parser: GENERAL, reason: reason.to_owned() }
    }

    fn run(&mut self) -> Result<(), SendError> {
        while let Some(word) = self.rest.next() {
            match word.as_bytes() {
                [b'-', b'l' | b'L' | b'x' | b'X' | b'q', ..] => self.log_option(word)?,
                [b'-', letters @ ..] if !letters.is_empty() => self.option(word, letters)?,
                _ => self.word(word)?,
            }
        }
        Ok(())
    }

    /// The next word, if it is no option.
    fn value(&mut self) -> Option<&'a str> {
        self.rest.next_if(|next| !next.starts_with('-')).map(String::as_str)
    }

    /// The next word, if it is a number; it may be negative.
    fn number(&mut self) -> Option<&'a str> {
        let numeric = |next: &&String| {
            let digits = next.trim_start_matches(['-', '+']);
            !next.starts_with('-') || digits.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        };
        self.rest.next_if(numeric).map(String::as_str)
    }

    /// The next word as an integer of a range.
    fn int(
        &mut self,
        range: std::ops::RangeInclusive<i64>,
        reason: &str,
    ) -> Result<i64, SendError> {
        let value = self.number().map(integer).filter(|value| range.contains(value));
        value.ok_or_else(|| self.error(GENERAL, reason))
    }

    fn positive(&mut self, reason: &str) -> Result<u32, SendError> {
        let value = self.int(1..=i64::from(u32::MAX), reason)?;
        Ok(u32::try_from(value).unwrap_or(u32::MAX))
    }

    /// A byte, with the prefixes of C.
    fn byte(&mut self, reason: &str) -> Result<u8, SendError> {
        let value = self.number().map(prefixed).and_then(|value| u8::try_from(value).ok());
        value.ok_or_else(|| self.error(GENERAL, reason))
    }

    /// A port, modulo 65536 as in D-ITG.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "modulo 65536")]
    fn any_port(&mut self) -> Result<u16, SendError> {
        let value = self.int(i64::MIN..=i64::MAX, "Invalid port number")?;
        Ok(value as u16)
    }

    fn port(&mut self) -> Result<u16, SendError> {
        let value = self.int(1..=65_535, "Invalid port number")?;
        Ok(u16::try_from(value).unwrap_or_default())
    }

    fn text(&mut self, reason: &str) -> Result<String, SendError> {
        self.value().map(str::to_owned).ok_or_else(|| self.error(GENERAL, reason))
    }

    fn unknown(&self, option: &str) -> SendError {
        self.error(GENERAL, &format!("What is {option} ?"))
    }

    fn log_option(&mut self, option: &str) -> Result<(), SendError> {
        let letter = option.as_bytes()[1];
        if letter == b'q' {
            let records = self.value().map_or(0, integer);
            self.logs.buffer =
                u16::try_from(records).ok().filter(|&n| n > 0).unwrap_or_else(|| {
                    let notice = format!("-q {records}: expected 1 to 65535 records, 50 used");
                    self.flow.notices.push(notice);
                    50
                });
            return Ok(());
        }
        if self.line {
            let reason = format!("{option} option not allowed into script file");
            return Err(self.error(GENERAL, &reason));
        }
        match letter {
            b'l' => self.logs.log = Some(self.value().unwrap_or("/tmp/ITGSend.log").to_owned()),
            b'x' => {
                self.logs.recv_log = Some(self.value().unwrap_or("/tmp/ITGRecv.log").to_owned());
            }
            b'L' => self.logs.log_server = Some(self.log_server()),
            _ => self.logs.recv_log_server = Some(self.log_server()),
        }
        Ok(())
    }

    /// Up to two words: a host, a protocol.
    fn log_server(&mut self) -> LogServer {
        let mut server = LogServer::default();
        for _ in 0..2 {
            let value = |next: &&String| !next.starts_with('-') && App::named(next).is_none();
            let Some(word) = self.rest.next_if(value) else { break };
            match word.to_ascii_uppercase().as_str() {
                "TCP" => server.proto = LogProto::Tcp,
                "UDP" => server.proto = LogProto::Udp,
                "ICMP" | "SCTP" | "DCCP" => {
                    let notice = format!("logs travel over TCP or UDP: {word} taken as UDP");
                    self.flow.notices.push(notice);
                }
                _ => server.host.clone_from(word),
            }
        }
        server
    }

    fn option(&mut self, option: &str, letters: &[u8]) -> Result<(), SendError> {
        match *letters {
            [b'S', ..] => self.signalling(option)?,
            [b'F', ..] => self.file(option)?,
            [b's'] => {
                let seed = self.number().map_or(0.0, real);
                if !(seed > 0.0 && seed < 1.0) {
                    return Err(self.error(GENERAL, "Invalid seed (0 < seed < 1)"));
                }
                self.flow.seed = Some(seed);
            }
            [b's', b'p', ..] => self.flow.source_port = Some(self.any_port()?),
            [b's', b'a', ..] => {
                let source = self.text("Invalid source address")?;
                self.flow.source = Some(source);
                self.one_source()?;
            }
            [b's', b'k', ..] => self.flow.send_serial = Some(self.text("Invalid Serial Port")?),
            [b'r', b'p', ..] => self.flow.dest_port = Some(self.any_port()?),
            [b'r', b'k', ..] => self.flow.recv_serial = Some(self.text("Invalid Serial Port")?),
            [b'a', ..] => {
                self.flow.dest = self.text("Invalid destination address")?;
                self.flow.dest_given = true;
            }
            [b'i', ..] => {
                self.flow.interface = Some(self.text("Invalid interface")?);
                self.one_source()?;
            }
            [b'm', ..] => {
                let meter = self.value().unwrap_or_default().to_ascii_lowercase();
                self.flow.round_trip = match meter.as_str() {
                    "owdm" => false,
                    "rttm" => true,
                    _ => return Err(Self::early("Invalid measure type")),
                };
                self.meter_and_header()?;
            }
            [b't', ..] => self.flow.duration_ms = self.positive("Invalid Duration")?,
            [b'z', ..] => self.flow.packets = Some(self.positive("Invalid number of packets")?),
            [b'k', ..] => self.flow.kibibytes = Some(self.positive("Invalid number of kbyte")?),
            [b'd', ..] => {
                let delay = self.int(0..=i64::from(u32::MAX), "Invalid Delay")?;
                self.flow.delay_ms = u32::try_from(delay).unwrap_or(u32::MAX);
                self.flow.delay_from_file = false;
            }
            [b'b', ..] => self.flow.tos = self.byte("Invalid DS Byte")?,
            [b'f', ..] => self.flow.ttl = self.byte("Invalid TTL")?,
            [b'p', b'o', ..] if letters == b"poll" => self.flow.poll = true,
            [b'p', b'o', ..] => {
                return Err(self.error(GENERAL, r#"Error in parsing "p" or "-poll" options"#));
            }
            [b'p', ..] => self.header()?,
            [b'T', ..] => self.transport()?,
            [b'D', ..] => self.flow.nodelay = true,
            [b'H', ..] => self.flow.passive = true,
            [b'j', ..] => match self.number().map(integer) {
                Some(value @ (0 | 1)) => self.flow.keep_rate = value == 1,
                _ => return Err(self.error(GENERAL, "j option needs either 1 or 0")),
            },
            [b'B', ..] => self.on_off()?,
            [letter, ..] if b"CUENOVYGW".contains(&letter) => {
                self.flow.idt = Source::Law(self.gap(letter)?);
            }
            [letter, ..] if b"cuenovygw".contains(&letter) => {
                self.flow.size = Source::Law(self.size(letter)?);
            }
            _ => return Err(self.unknown(option)),
        }
        Ok(())
    }

    fn one_source(&self) -> Result<(), SendError> {
        if self.flow.interface.is_some() && self.flow.source.is_some() {
            return Err(self.error(GENERAL, "use -i <interface> OR -sa <source_address>"));
        }
        Ok(())
    }

    fn meter_and_header(&self) -> Result<(), SendError> {
        if self.flow.round_trip && self.flow.header != HeaderKind::Standard {
            return Err(Self::early(
                "It is possible to use the RTT meter only with the standard payload type",
            ));
        }
        Ok(())
    }

    fn signalling(&mut self, option: &str) -> Result<(), SendError> {
        match option.as_bytes() {
            [_, _, b'd', b'a', ..] => {
                let dest = self.text("Invalid destination address for the signal channel")?;
                self.flow.signalling.dest = Some(dest);
            }
            [_, _, b'd', b'p', ..] => self.flow.signalling.port = Some(self.port()?),
            [_, _, b's', b'a', ..] => {
                let source = self.text("Invalid source address for the signal channel")?;
                self.flow.signalling.source = Some(source);
            }
            [_, _, b's', b'p', ..] => self.flow.signalling.source_port = Some(self.port()?),
            [_, _, b'i', ..] => {
                self.flow.signalling.interface = Some(self.text("Invalid interface")?);
            }
            _ => return Err(self.unknown(option)),
        }
        Ok(())
    }

    fn file(&mut self, option: &str) -> Result<(), SendError> {
        let Some(kind) = option.as_bytes().get(2).copied().filter(|kind| b"tsp".contains(kind))
        else {
            return Err(self.unknown(option));
        };
        let reason = format!("Invalid name file specified for {option} option");
        let name = self.text(&reason)?;
        match kind {
            b't' => {
                self.flow.idt = Source::File(name);
                self.flow.delay_from_file = true;
            }
            b's' => self.flow.size = Source::File(name),
            _ => self.flow.payload = Some(name),
        }
        Ok(())
    }

    fn header(&mut self) -> Result<(), SendError> {
        match self.number().map(integer) {
            Some(1) => (self.flow.header, self.flow.min_size) = (HeaderKind::Short, 8),
            Some(2) => (self.flow.header, self.flow.min_size) = (HeaderKind::None, 4),
            Some(0) => self.flow.header = HeaderKind::Standard,
            _ => {
                self.flow.header = HeaderKind::Standard;
                self.flow.lines.push(
                    "Warning !! Incorrect \"payload log type\" definition.Admissible values are: \n \
                     0 normal\n; 1 short\n; 2 none \n. Default value 0 assumed"
                        .to_owned(),
                );
            }
        }
        self.meter_and_header()
    }

    fn transport(&mut self) -> Result<(), SendError> {
        let name = self.value().unwrap_or_default().to_ascii_uppercase();
        self.flow.transport = match name.as_str() {
            "UDP" => Transport::Udp,
            "TCP" => Transport::Tcp,
            "DCCP" => Transport::Dccp,
            "ICMP" => {
                let number = |next: &&String| next.starts_with(|c: char| c.is_ascii_digit());
                let kind = self.rest.next_if(number).map_or(8, |kind| integer(kind));
                let kind = u8::try_from(kind)
                    .map_err(|_| self.error(GENERAL, "Invalid ICMP type: expected 0 to 255"))?;
                Transport::Icmp { kind }
            }
            "SCTP" => {
                let (association, streams) = (self.value(), self.value());
                let (Some(association), Some(streams)) = (association, streams) else {
                    return Err(self.error(
                        GENERAL,
                        "SCTP protocol needs parameters (syntax: -T SCTP <association_id> \
                         <max_streams>)",
                    ));
                };
                if integer(streams) > 1 {
                    return Err(self.error(
                        GENERAL,
                        "** SCTP multi-streaming support is not yet available **",
                    ));
                }
                Transport::Sctp { association: u32::try_from(integer(association)).unwrap_or(0) }
            }
            _ => return Err(self.error(GENERAL, "Invalid Protocol Type")),
        };
        self.flow.min_size = self.flow.min_size.saturating_add(4);
        Ok(())
    }

    /// Two real numbers, as far as they are there.
    fn pair(&mut self) -> Option<(f64, f64)> {
        let first = real(self.number()?);
        Some((first, real(self.number()?)))
    }

    /// A mean and a standard deviation, which is never below 0.
    fn normal(&mut self) -> Option<(f64, f64)> {
        self.pair().filter(|(_, sd)| *sd >= 0.0)
    }

    /// An inter-departure time in milliseconds.
    fn gap(&mut self, letter: u8) -> Result<Distribution, SendError> {
        const RATE: &str = "Invalid pkts per sec";
        let (distribution, reason) = match letter {
            b'C' => (self.rate().map(|rate| Distribution::Constant(1000.0 / rate)), RATE),
            b'E' => {
                (self.rate().map(|rate| Distribution::Exponential { mean: 1000.0 / rate }), RATE)
            }
            b'O' => (self.rate().map(|mean| Distribution::PoissonRate { mean }), RATE),
            b'U' => {
                let distribution = self.pair().filter(|(min, max)| *min > 0.0 && max > min);
                (
                    distribution.map(|(min, max)| Distribution::Uniform {
                        lo: 1000.0 / max,
                        hi: 1000.0 / min,
                    }),
                    RATE,
                )
            }
            b'N' => (self.normal().map(|(mean, sd)| Distribution::Normal { mean, sd }), RATE),
            _ => return self.shaped(letter, false),
        };
        distribution.filter(Distribution::is_finite).ok_or_else(|| self.error(PROTOCOL, reason))
    }

    fn rate(&mut self) -> Option<f64> {
        self.number().map(real).filter(|&rate| rate > 0.0 && rate.is_finite())
    }

    /// A size in bytes: parameters are whole numbers but for shapes and scales.
    fn size(&mut self, letter: u8) -> Result<Distribution, SendError> {
        #[allow(clippy::cast_precision_loss, reason = "sizes are small")]
        let whole = |text: &str| integer(text) as f64;
        let distribution = match letter {
            b'c' => {
                self.number().map(whole).filter(|&size| size >= 1.0).map(Distribution::Constant)
            }
            b'e' => {
                let mean = self.number().map(whole).filter(|&mean| mean >= 1.0);
                mean.map(|mean| Distribution::Exponential { mean })
            }
            b'o' => {
                let mean = self.number().map(whole).filter(|&mean| mean >= 0.0);
                mean.map(|mean| Distribution::Poisson { mean })
            }
            b'u' => {
                let pair = self.pair().map(|(lo, hi)| (lo.trunc(), hi.trunc()));
                pair.filter(|(lo, hi)| *lo >= 1.0 && hi > lo)
                    .map(|(lo, hi)| Distribution::Uniform { lo, hi })
            }
            b'n' => self
                .normal()
                .map(|(mean, sd)| Distribution::Normal { mean: mean.trunc(), sd: sd.trunc() }),
            _ => return self.shaped(letter, true),
        };
        distribution
            .filter(Distribution::is_finite)
            .ok_or_else(|| self.error(PROTOCOL, "Invalid pkt size"))
    }

    /// The distributions with two parameters that inter-departure times and sizes have in common.
    fn shaped(&mut self, letter: u8, sizes: bool) -> Result<Distribution, SendError> {
        let pair = self.pair();
        let both = pair.filter(|(a, b)| *a > 0.0 && *b > 0.0);
        let (distribution, reason) = match letter.to_ascii_uppercase() {
            b'V' => (
                both.map(|(shape, scale)| Distribution::Pareto { shape, scale }),
                "Invalid Pareto Distribution parameter values",
            ),
            b'G' => (
                both.map(|(shape, scale)| Distribution::Gamma { shape, scale }),
                "Invalid Gamma Distribution parameter values",
            ),
            // The scale comes first, whatever the manual says.
            b'W' => (
                both.map(|(scale, shape)| Distribution::Weibull { shape, scale }),
                if sizes {
                    "Invalid Weilbull Distribution Parameter values"
                } else {
                    "Invalid Weibull Distribution parameter values"
                },
            ),
            _ => (
                pair.filter(|(_, scale)| *scale > 0.0).map(|(location, scale)| {
                    if sizes {
                        Distribution::Cauchy { location: location.trunc(), scale: scale.trunc() }
                    } else {
                        Distribution::Cauchy { location, scale }
                    }
                }),
                "Invalid pkts per sec",
            ),
        };
        distribution.filter(Distribution::is_finite).ok_or_else(|| self.error(PROTOCOL, reason))
    }

    fn on_off(&mut self) -> Result<(), SendError> {
        let on = self.period();
        let periods = on.and_then(|on| Some((on, self.period()?)));
        let reason = "Invalid settings for the On/Off periods";
        self.flow.on_off = Some(periods.ok_or_else(|| self.error(PROTOCOL, reason))?);
        Ok(())
    }

    /// A distribution of periods, in milliseconds: its letter without a dash, its parameters.
    fn period(&mut self) -> Option<Distribution> {
        let letter = self.value()?.bytes().next()?;
        let above_0 = |value: &f64| *value > 0.0;
        let distribution = match letter {
            b'C' => Distribution::Constant(
                self.number().map(|text| real(text).trunc()).filter(above_0)?,
            ),
            b'E' => Distribution::Exponential { mean: self.number().map(real).filter(above_0)? },
            b'O' => Distribution::Poisson { mean: self.number().map(real).filter(above_0)? },
            b'U' => {
                let (lo, hi) = self.pair().filter(|(lo, hi)| *lo > 0.0 && hi > lo)?;
                Distribution::Uniform { lo, hi }
            }
            b'N' => {
                let (mean, sd) = self.normal()?;
                Distribution::Normal { mean, sd }
            }
            b'V' | b'Y' | b'G' | b'W' => self.shaped(letter, false).ok()?,
            _ => return None,
        };
        distribution.is_finite().then_some(distribution)
    }

    /// A word without a dash: an application.
    fn word(&mut self, word: &str) -> Result<(), SendError> {
        let Some(app) = App::named(word) else { return Err(self.unknown(word)) };
        match app {
            App::Aom => {
                let reason = "AoM has no traffic: D-ITG only knows its name";
                return Err(self.error(GENERAL, reason));
            }
            App::Voip => {
                let args: Vec<String> = self.rest.by_ref().cloned().collect();
                let call = Call::parse(&args).map_err(|why| self.error("VoIP parser", &why))?;
                let (idt, size) = call.traffic();
                (self.flow.idt, self.flow.size) = (Source::Law(idt), Source::Law(size));
                if self.flow.transport != Transport::Dccp {
                    self.flow.transport = Transport::Udp;
                }
                self.flow.lines.extend(call.lines());
            }
            _ => {
                if let Some((idt, size, transport)) = app.traffic() {
                    (self.flow.idt, self.flow.size) = (Source::Law(idt), Source::Law(size));
                    self.flow.transport = transport.unwrap_or(self.flow.transport);
                }
            }
        }
        self.flow.app = app;
        Ok(())
    }
}

impl Distribution {
    /// Returns true if every parameter is a number that can be computed with.
    fn is_finite(&self) -> bool {
        let values = match *self {
            Self::Constant(a)
            | Self::Exponential { mean: a }
            | Self::Poisson { mean: a }
            | Self::PoissonRate { mean: a } => [a, 0.0],
            Self::Uniform { lo: a, hi: b }
            | Self::Pareto { shape: a, scale: b }
            | Self::Weibull { shape: a, scale: b }
            | Self::Normal { mean: a, sd: b }
            | Self::Cauchy { location: a, scale: b }
            | Self::Gamma { shape: a, scale: b } => [a, b],
            Self::Student { .. } | Self::Discrete(_) | Self::Mix(_) | Self::Listed { .. } => {
                [0.0; 2]
            }
        };
        values.iter().all(|value| value.is_finite() && value.abs() < 1e15)
    }
}
