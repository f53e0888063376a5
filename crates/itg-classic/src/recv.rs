//! The command lines of `ITGRecv`, `ITGLog` and `ITGManager`.

use std::fmt;
use std::net::IpAddr;

use itg_core::units::parse_bytes;

use crate::number::integer;
use crate::send::{LogProto, LogServer, THIRD_PARTY};
use crate::wire::PORT_SIGNALLING;

/// Text that `ITGRecv -h` prints.
pub const RECV_HELP: &str = "
ITGRecv - receives the traffic of D-ITG's senders

  -a HOST         address for data (default: the one the sender names)
  -i INTERFACE    interface for data        -Si INTERFACE   for signalling
  -Sp PORT        signalling port (9000)
  -l [FILE]       log (/tmp/ITGRecv.log)
  -L [a:HOST] [p:PORT] [P:TCP|UDP]          log at a log server (127.0.0.1, 9001, UDP)
  -q N            records written at a time (50)
  -H HOST         passive mode: connect to this ITGSend
  -n N            passive mode over UDP: opening datagrams (1)
  --log-dir DIR   take the logs that senders ask for (-x): by their last name, in DIR; each is a
                  new file. Without it they are refused
  --max-log-size BYTES    size of one such log, as 100Mi; records beyond are left out and counted
  --max-log-bytes BYTES   size of all files in that directory together, those there already included
  --replace-logs  let such a log replace an older one of its name, as D-ITG does; no file but a
                  log of D-ITG is replaced
  --allow-log-servers   let senders have their logs sent to log servers that they name (-X)
  --allow-source ADDRESS    take packets from there, too, of senders that bind another address (-sa)
                  than the one they signal from
  --allow-third-party   passive mode: a sender may name an address for data (its -sa) other than
                  the one of its signalling
  --trust-peers   what D-ITG's receiver does for anybody: --log-dir . --replace-logs
                  --allow-log-servers --allow-third-party
  --max-per-address N   connections of one address at the same time (256)
  -h, --help      this text

Where this program differs from D-ITG's: docs/d-itg.md.
";

/// Text that `ITGLog -h` prints.
pub const LOG_HELP: &str = "
ITGLog - takes the logs of D-ITG's senders and receivers on TCP port 9001

  -q N            records a client sends at a time (50); any number is taken here
  --log-dir DIR   directory of the logs (the one where it is started); each is a new file
  --replace-logs  let a log replace an older one of its name, as D-ITG does
  --max-per-address N   connections of one address at the same time (128)
  -h, --help      this text

Logs are written into that directory alone, under the last part of the name that a client asks for.
Where this program differs from D-ITG's: docs/d-itg.md.
";

/// Text that `ITGManager -h` prints.
pub const MANAGER_HELP: &str = "
ITGManager - asks senders that wait as daemons (ITGSend -Q) for flows

  ITGManager [HOST [OPTIONS OF ITGSend]]    host of the daemon (localhost)

Lines on stdin that start with - are further requests, a line that starts with C ends. When stdin has
ended, the program ends with the last flow; exit code 1 when a request was refused.
Where this program differs from D-ITG's: docs/d-itg.md.
";

/// Request to ITGRecv.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecvArgs {
    /// Address for data (`-a`); `None`: the one in the sender's message.
    pub bind: Option<String>,
    /// Interface for data (`-i`).
    pub interface: Option<String>,
    /// Interface for signalling (`-Si`).
    pub signalling_interface: Option<String>,
    /// Signalling port (`-Sp`), to listen on or, in passive mode, to connect to.
    pub port: u16,
    /// Log (`-l`).
    pub log: Option<String>,
    /// Log server (`-L`).
    pub log_server: Option<LogServer>,
    /// Records written at a time (`-q`), 1 to 65535.
    pub buffer: u16,
    /// The sender to connect to in passive mode (`-H`).
    pub passive: Option<String>,
    /// Opening datagrams in passive mode (`-n`).
    pub opening: u32,
    /// Folder for the logs that senders ask for (`--log-dir`, not D-ITG's); they are refused when `None`.
    pub log_dir: Option<String>,
    /// Bytes of one such log (`--max-log-size`, not D-ITG's).
    pub max_log_size: Option<u64>,
    /// Bytes of all files in that folder together (`--max-log-bytes`, not D-ITG's).
    pub max_log_bytes: Option<u64>,
    /// Connections of one address at the same time (`--max-per-address`, not D-ITG's).
    pub per_address: Option<usize>,
    /// True if a sender in passive mode may name another address for data than its own
    /// (`--allow-third-party`, not D-ITG's).
    pub third_party: bool,
    /// True if senders may have their logs sent to log servers that they name (`--allow-log-servers`, not
    /// D-ITG's).
    pub allow_log_servers: bool,
    /// True if such logs replace older ones of the same name (`--replace-logs`, D-ITG's way).
    pub replace_logs: bool,
    /// Addresses from which packets may come beside where their senders signal from (`--allow-source`, not
    /// D-ITG's).
    pub allow_sources: Vec<IpAddr>,
    /// Differences from D-ITG's behaviour, for stderr.
    pub notices: Vec<String>,
}

impl Default for RecvArgs {
    fn default() -> Self {
        Self {
            bind: None,
            interface: None,
            signalling_interface: None,
            port: PORT_SIGNALLING,
            log: None,
            log_server: None,
            buffer: 50,
            passive: None,
            opening: 1,
            log_dir: None,
            max_log_size: None,
            max_log_bytes: None,
            per_address: None,
            third_party: false,
            allow_log_servers: false,
            replace_logs: false,
            allow_sources: Vec::new(),
            notices: Vec::new(),
        }
    }
}

/// A command line that is not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecvError {
    /// Help was asked for; exit code 1.
    #[error("help")]
    Help,
    /// The text goes to stdout, the help follows; exit code 1.
    #[error("{0}\n")]
    Usage(String),
    /// The text goes to stderr. D-ITG exits with 0 here, we with 1.
    #[error("{0}")]
    Fatal(Fatal),
}

/// D-ITG's form of an error that ends the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fatal {
    /// D-ITG's name of the function that ends the program.
    pub function: &'static str,
    /// Text of the error.
    pub reason: String,
}

impl fmt::Display for Fatal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { function, reason } = self;
        write!(
            f,
            "\n** ERROR_TERMINATE **\nFunction {function} aborted caused by general parser \n** \
             {reason} ** "
        )
    }
}

/// The option of ITGRecv that lets its peers do what D-ITG's lets them do.
pub const TRUST_PEERS: &str = "--trust-peers";
/// Words of a sender whose receiver keeps no log for it; the protocol has no room for the reason.
pub const LOG_REFUSED: &str = "the receiver refuses to keep the log that was asked for; its stderr says why \
     (itg-recv and ITGRecv need --log-dir DIR, or --allow-log-servers for a log server; ITGRecv --trust-peers for both)";
/// The option for the connections of one address.
const PER_ADDRESS: &str = "--max-per-address";

fn per_address(text: &str) -> Option<usize> {
    text.parse().ok().filter(|&count: &usize| count > 0)
}

fn buffer(text: &str, notices: &mut Vec<String>) -> u16 {
    u16::try_from(integer(text)).ok().filter(|&n| n > 0).unwrap_or_else(|| {
        notices.push(format!("-q {text}: expected 1 to 65535 records, 50 used"));
        50
    })
}

/// Reads the arguments of ITGRecv that follow the program's name.
///
/// # Errors
/// See [`RecvError`].
pub fn parse_recv(args: &[String]) -> Result<RecvArgs, RecvError> {
    let usage = |text: String| RecvError::Usage(text);
    let fatal =
        |function, reason: &str| RecvError::Fatal(Fatal { function, reason: reason.to_owned() });
    let mut recv = RecvArgs::default();
    let mut rest = args.iter().peekable();
    while let Some(option) = rest.next() {
        if own_option(option, || rest.next_if(|next| !next.starts_with('-')), &mut recv)? {
            continue;
        }
        let mut value = || rest.next_if(|next| !next.starts_with('-')).cloned();
        let missing = || usage(format!("Missing parameter : option {option}"));
        match option.as_bytes() {
            [b'-', b'h', ..] | [b'-', b'-', b'h', ..] => return Err(RecvError::Help),
            [b'-', b'g', ..] if option == "-gui" => {}
            [b'-', b'S', b'i', ..] => {
                let name = value().ok_or_else(|| fatal("main", "Invalid interface"))?;
                recv.signalling_interface = Some(name);
            }
            [b'-', b'S', b'p', ..] => {
                let text = value().ok_or_else(missing)?;
                recv.port = match u16::try_from(integer(&text)) {
                    Ok(port) if port > 0 => port,
                    _ => return Err(usage(format!("Invalid port : {text}"))),
                };
            }
            [b'-', b'a', ..] => {
                let reason = "Invalid address for \"-a\" option";
                recv.bind = Some(value().ok_or_else(|| fatal("parserRecv", reason))?);
            }
            [b'-', b'i', ..] => recv.interface = Some(value().ok_or_else(missing)?),
            [b'-', b'l', ..] => {
                recv.log = Some(value().unwrap_or_else(|| "/tmp/ITGRecv.log".to_owned()));
            }
            [b'-', b'q', ..] => {
                recv.buffer = buffer(&value().ok_or_else(missing)?, &mut recv.notices);
            }
            [b'-', b'H', ..] => {
                let host = value();
                recv.passive = Some(
                    host.ok_or_else(|| usage("Invalid ITGSend address or protocol ".to_owned()))?,
                );
            }
            [b'-', b'n', ..] => {
                let count = value().map(|text| integer(&text));
                let count = count.and_then(|count| u32::try_from(count).ok());
                let reason = "Invalid number of \"Hole Punching\" packets";
                recv.opening = count.ok_or_else(|| fatal("parserRecv", reason))?;
            }
            [b'-', b'L', ..] => {
                let mut server = LogServer::default();
                while let Some(part) = value() {
                    log_option(&part, &mut server).map_err(usage)?;
                }
                recv.log_server = Some(server);
            }
            [b'-', ..] => return Err(usage(format!("parserRecv: Unknow option : {option}"))),
            _ => return Err(usage(format!("Unknow option : {option}"))),
        }
    }
    Ok(recv)
}

/// Reads an option that D-ITG does not have; false when it is none of these.
fn own_option<'a>(
    option: &str,
    value: impl FnOnce() -> Option<&'a String>,
    recv: &mut RecvArgs,
) -> Result<bool, RecvError> {
    let value =
        || value().ok_or_else(|| RecvError::Usage(format!("Missing parameter : option {option}")));
    let invalid = |what: &str, text: &str| RecvError::Usage(format!("Invalid {what} : {text}"));
    match option {
        "--log-dir" => recv.log_dir = Some(value()?.clone()),
        "--max-log-size" | "--max-log-bytes" => {
            let text = value()?;
            let bytes = parse_bytes(text).map_err(|_| invalid("size", text))?.0;
            let limit = match option {
                "--max-log-size" => &mut recv.max_log_size,
                _ => &mut recv.max_log_bytes,
            };
            *limit = Some(bytes);
        }
        "--replace-logs" => recv.replace_logs = true,
        "--allow-log-servers" => recv.allow_log_servers = true,
        "--allow-source" => {
            let text = value()?;
            recv.allow_sources.push(text.parse().map_err(|_| invalid("address", text))?);
        }
        THIRD_PARTY => recv.third_party = true,
        TRUST_PEERS => {
            recv.log_dir.get_or_insert_with(|| ".".to_owned());
            (recv.replace_logs, recv.allow_log_servers, recv.third_party) = (true, true, true);
        }
        PER_ADDRESS => {
            let text = value()?;
            recv.per_address = Some(per_address(text).ok_or_else(|| invalid("number", text))?);
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// One of `a:HOST`, `p:PORT`, `P:PROTOCOL`.
fn log_option(part: &str, server: &mut LogServer) -> Result<(), String> {
    let Some((letter, value)) = part.split_once(':').filter(|(letter, _)| letter.len() == 1) else {
        return Err(format!("Invalid sub-option format: {part}"));
    };
    match letter {
        "a" => value.clone_into(&mut server.host),
        "p" => match u16::try_from(integer(value)) {
            Ok(port) if port > 0 => server.port = port,
            _ => return Err(format!("Invalid log-server port : {value}")),
        },
        "P" => {
            server.proto = match value.to_ascii_uppercase().as_str() {
                "TCP" => LogProto::Tcp,
                "UDP" => LogProto::Udp,
                _ => return Err(format!("Invalid transport protocol : {value}")),
            }
        }
        _ => return Err(format!("Unknow sub-option : {part}")),
    }
    Ok(())
}

/// Request to ITGLog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogArgs {
    /// Records a client sends at a time (`-q`): D-ITG's server cuts larger datagrams.
    pub buffer: u16,
    /// Directory of the logs (`--log-dir`, which D-ITG does not have).
    pub dir: Option<String>,
    /// Connections of one address at the same time (`--max-per-address`, not D-ITG's).
    pub per_address: Option<usize>,
    /// True if logs replace older ones of the same name (`--replace-logs`, D-ITG's way).
    pub replace: bool,
    /// Differences from D-ITG's behaviour, for stderr.
    pub notices: Vec<String>,
}

/// Reads the arguments of ITGLog.
///
/// # Errors
/// [`RecvError::Help`], or an unknown option.
pub fn parse_log(args: &[String]) -> Result<LogArgs, RecvError> {
    let fatal = |reason: String| RecvError::Fatal(Fatal { function: "parserLog", reason });
    let mut log =
        LogArgs { buffer: 50, dir: None, per_address: None, replace: false, notices: Vec::new() };
    let mut rest = args.iter();
    while let Some(option) = rest.next() {
        match option.as_str() {
            "--log-dir" => {
                let missing = || fatal("--log-dir names no directory".to_owned());
                log.dir = Some(rest.next().ok_or_else(missing)?.clone());
            }
            PER_ADDRESS => {
                let count = rest.next().and_then(|text| per_address(text));
                let missing = || fatal(format!("{PER_ADDRESS} needs a number from 1"));
                log.per_address = Some(count.ok_or_else(missing)?);
            }
            "--replace-logs" => log.replace = true,
            help if help.starts_with("-h") || help.starts_with("--h") => {
                return Err(RecvError::Help);
            }
            size if size.starts_with("-q") => {
                let text = rest.next().map_or("", String::as_str);
                log.buffer = buffer(text, &mut log.notices);
            }
            _ => return Err(fatal(format!("Unknow option : {option}"))),
        }
    }
    Ok(log)
}

/// Reads the arguments of ITGManager: the host and the text of the request, if any.
#[must_use]
pub fn parse_manager(args: &[String]) -> (String, Option<String>) {
    let host = args.first().cloned().unwrap_or_else(|| "localhost".to_owned());
    let request = args.get(1..).filter(|rest| !rest.is_empty());
    (host, request.map(|rest| format!(" {}", rest.join(" "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn receivers_refuse_in_the_words_of_the_real_program() {
        let usage = |text: &str| RecvError::Usage(text.to_owned());
        let fatal = |function, reason: &str| {
            RecvError::Fatal(Fatal { function, reason: reason.to_owned() })
        };
        let punching = "Invalid number of \"Hole Punching\" packets";
        for (line, want) in [
            ("-h", RecvError::Help),
            ("--help", RecvError::Help),
            ("-Z", usage("parserRecv: Unknow option : -Z")),
            ("-Sx", usage("parserRecv: Unknow option : -Sx")),
            ("foo", usage("Unknow option : foo")),
            ("-a", fatal("parserRecv", "Invalid address for \"-a\" option")),
            ("-Sp", usage("Missing parameter : option -Sp")),
            ("-Sp 0", usage("Invalid port : 0")),
            ("-Sp 99999", usage("Invalid port : 99999")),
            ("-q", usage("Missing parameter : option -q")),
            ("-i", usage("Missing parameter : option -i")),
            ("-Si", fatal("main", "Invalid interface")),
            ("-n", fatal("parserRecv", punching)),
            ("-H", usage("Invalid ITGSend address or protocol ")),
            ("-L foo", usage("Invalid sub-option format: foo")),
            ("-L P:FOO", usage("Invalid transport protocol : FOO")),
            ("-L x:1", usage("Unknow sub-option : x:1")),
            ("-L p:0", usage("Invalid log-server port : 0")),
        ] {
            assert_eq!(parse_recv(&words(line)), Err(want), "`{line}`");
        }
    }

    #[test]
    fn receivers_are_told_what_to_do() {
        let base = RecvArgs::default;
        let server =
            |host: &str, port, proto| Some(LogServer { host: host.to_owned(), port, proto });
        for (line, want) in [
            ("", base()),
            ("-aa 127.0.0.1", RecvArgs { bind: Some("127.0.0.1".to_owned()), ..base() }),
            ("-Spx 19001", RecvArgs { port: 19001, ..base() }),
            ("-l", RecvArgs { log: Some("/tmp/ITGRecv.log".to_owned()), ..base() }),
            ("-l a -q 7", RecvArgs { log: Some("a".to_owned()), buffer: 7, ..base() }),
            ("-L", RecvArgs { log_server: Some(LogServer::default()), ..base() }),
            (
                "-L P:tcp a:h p:9009 -n 3",
                RecvArgs { log_server: server("h", 9009, LogProto::Tcp), opening: 3, ..base() },
            ),
            (
                "--log-dir d --trust-peers",
                RecvArgs {
                    log_dir: Some("d".to_owned()),
                    replace_logs: true,
                    allow_log_servers: true,
                    third_party: true,
                    ..base()
                },
            ),
            (
                "--log-dir d --max-log-size 4Mi --max-log-bytes 1G",
                RecvArgs {
                    log_dir: Some("d".to_owned()),
                    max_log_size: Some(4 << 20),
                    max_log_bytes: Some(1_000_000_000),
                    ..base()
                },
            ),
            ("--allow-log-servers", RecvArgs { allow_log_servers: true, ..base() }),
            ("-H h", RecvArgs { passive: Some("h".to_owned()), ..base() }),
            (
                "-Si lo -i lo",
                RecvArgs {
                    interface: Some("lo".to_owned()),
                    signalling_interface: Some("lo".to_owned()),
                    ..base()
                },
            ),
        ] {
            assert_eq!(parse_recv(&words(line)), Ok(want), "`{line}`");
        }
    }

    #[test]
    fn servers_and_managers() {
        let log = |buffer, dir: Option<&str>| {
            let dir = dir.map(str::to_owned);
            Ok(LogArgs { buffer, dir, per_address: None, replace: false, notices: Vec::new() })
        };
        assert_eq!(parse_log(&[]), log(50, None));
        assert_eq!(parse_log(&words("-q 5")), log(5, None));
        assert_eq!(parse_log(&words("-qx 5 --log-dir d")), log(5, Some("d")));
        assert_eq!(
            parse_log(&words("-q 0")).map(|log| (log.buffer, log.notices.len())),
            Ok((50, 1))
        );
        assert!(parse_log(&words("--log-dir")).is_err());
        assert_eq!(parse_log(&words("-h")), Err(RecvError::Help));
        assert!(parse_log(&words("foo")).is_err_and(|e| e.to_string().contains("option : foo")));
        assert_eq!(parse_manager(&[]), ("localhost".to_owned(), None));
        let request = Some(" -a 127.0.0.1 -z 5".to_owned());
        assert_eq!(parse_manager(&words("h -a 127.0.0.1 -z 5")), ("h".to_owned(), request));
    }
}
