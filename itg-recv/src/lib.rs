//! `itg-recv`: receives the flows of any number of senders and logs every packet.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Parser;
use itg_cli::{
    Failure, Help, IntervalArgs, IntervalCuts, IntervalLines, Intervals, LogArgs, MetricsArgs,
    PeerArgs, Program, ReceivedFlows, ReceiverView, RotationArgs, Signals, WordArgs, finish,
    log_failure, nothing_sent, print, read_secret, received, refuse, result_text, say,
    serve_receiver,
};
use itg_core::text::from_peer;
use itg_core::units::{
    BitRate, Rate, format_bytes, format_duration_ns, parse_bytes, parse_duration_ns,
};
use itg_engine::{LEAST_LOG_BYTES, LogLimits, LogQuota};
use itg_node::{
    BindError, Receiver, ReceiverOptions, ReverseLimits, SENDERS_PER_ADDRESS, ServedSession,
};
use itg_session::logs::Role;
use itg_socket::PacketEngine;
use itg_socket::socket::RECEIVE_BUFFER;
use itg_socket::xdp::{FrameInputOptions, XdpMode, device_of};
use tokio::task::JoinHandle;

/// Port of the signalling channel.
const CONTROL_PORT: u16 = 9000;
/// Time for the last words about senders that have left.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// Largest receive buffer that may be asked for: 1 GiB.
const MOST_BUFFER: u32 = 1 << 30;
/// Memory for frames of each queue of a device, in bytes.
const FRAME_BUFFER: usize = 8 << 20;

/// Receive the flows of any number of senders and log every packet.
///
/// Runs until SIGINT or SIGTERM, then writes what it holds and prints a summary. On a terminal it shows the flows that
/// run, a line each.
///
/// SIGHUP has its log opened anew by its name, where its file was moved away.
///
/// Exit codes: 0 done, 1 the run failed (a log could not be written), 2 the request makes no sense
/// (a signalling port that is taken among them), 130 and 143 ended by SIGINT and SIGTERM.
#[derive(Debug, Parser)]
#[command(name = "itg-recv", version, long_version = itg_cli::version!())]
struct Cli {
    /// Address that senders connect to: ADDR, ADDR:PORT or [V6]:PORT; `::` stands for all
    /// addresses, IPv4 included
    #[arg(long, value_name = "ADDR[:PORT]", default_value = "[::]:9000")]
    listen: String,
    /// Port for the data of UDP and TCP flows that ask for no other one; 0: any free port. Opened with the first flow;
    /// one that is taken is warned about at the start. What firewalls have to let through: docs/ports.md
    #[arg(long, value_name = "PORT", default_value_t = 8999)]
    data_port: u16,
    /// Receive buffer to ask for at each data socket of UDP and ICMP; beyond the system's limit
    /// (net.core.rmem_max) only root gets it [default: 32MiB; 8MiB for the frames of each queue with --engine xdp]
    #[arg(long, help_heading = "Receiving", value_name = "SIZE", value_parser = buffer)]
    receive_buffer: Option<u32>,
    /// Receiving threads, 1 to 64: each flow of UDP belongs to one of them; worth it where there are more
    /// processors than the senders' packets keep busy
    #[arg(long, help_heading = "Receiving", value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    shards: u8,
    /// Path of packets: socket, or xdp (UDP one by one as Ethernet frames of --interface, before the network
    /// stack of this host and its firewall; everything else is left to the stack; needs root)
    #[arg(long, help_heading = "Receiving", value_name = "NAME", default_value_t)]
    engine: PacketEngine,
    /// Device for --engine xdp [default: the one that has the address of --listen]
    #[arg(long, help_heading = "Receiving", value_name = "DEV")]
    interface: Option<String>,
    /// Where the program of --engine xdp runs in the kernel: native (in the driver), generic (before the
    /// network stack, for every driver), or auto (native where the driver has it)
    #[arg(long, help_heading = "Receiving", value_name = "MODE", default_value_t)]
    xdp_mode: XdpMode,
    /// Let the kernel look for packets at the network card for up to this long before it sleeps
    /// (SO_BUSY_POLL), as 50us; costs processor time
    #[arg(long, help_heading = "Receiving", value_name = "T", value_parser = busy_poll)]
    busy_poll: Option<u32>,
    /// Compare the payload of each packet with the one that its flow's seed or pattern gives, and count those that
    /// differ (`corrupted`); costs some 50 ns a packet of 1472 bytes, and 1.1 MB a sender
    #[arg(long, help_heading = "Receiving")]
    check_payload: bool,
    #[command(flatten)]
    log: LogArgs,
    #[command(flatten)]
    rotation: RotationArgs,
    /// Directory for logs that senders ask for with --recv-log; without it they are refused. A log is
    /// always a new file: no name that is there already is taken
    #[arg(long, value_name = "DIR")]
    log_dir: Option<PathBuf>,
    /// Size of one log in --log-dir, 4Ki at least; records beyond are left out of the log and counted as lost at
    /// both sides, and the flow goes on [default: no limit]
    #[arg(long, help_heading = "Senders", value_name = "BYTES", requires = "log_dir", value_parser = quota)]
    max_log_size: Option<u64>,
    /// Size of all files in --log-dir together, those that are there already among them, each with 4Ki at
    /// least. Files that are removed make room for new logs within 10 s [default: no limit]
    #[arg(long, help_heading = "Senders", value_name = "BYTES", requires = "log_dir", value_parser = quota)]
    max_log_bytes: Option<u64>,
    /// Let a log in D-ITG's form in --log-dir be replaced by a new one of that name, as D-ITG does; other
    /// files never are
    #[arg(long, help_heading = "Senders")]
    replace_logs: bool,
    /// Let senders have their logs sent to log servers that they name with --recv-log-server
    #[arg(long, help_heading = "Senders")]
    allow_log_servers: bool,
    /// Secret that senders with --auth share: packets of their flows prove where they come from, and others are
    /// foreign, whatever address they bear. Other senders are served as without it
    #[arg(long, help_heading = "Senders", value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Connections of one address at the same time; those without a flow give way to newer ones
    #[arg(long, help_heading = "Senders", value_name = "N", default_value_t = SENDERS_PER_ADDRESS)]
    max_per_address: usize,
    /// Take packets of flows from this address, too, beside the one from where their sender signals: of a
    /// sender of D-ITG that binds another one (-sa), or behind a translator of addresses; may be repeated
    #[arg(long, help_heading = "Senders", value_name = "ADDR")]
    allow_source: Vec<IpAddr>,
    /// Send flows to those who ask for them (itg-send --reverse, --bidir, --under-load): whoever reaches the port may
    #[arg(long, help_heading = "Flows for those who ask (itg-send --reverse)")]
    allow_reverse: bool,
    /// Rate of all flows together that one asker is sent; TCP is held to it by the kernel
    #[arg(long, help_heading = "Flows for those who ask (itg-send --reverse)", value_name = "RATE", requires = "allow_reverse", default_value = "1Gbps", value_parser = bit_rate)]
    reverse_rate: BitRate,
    /// Time after which flows that were asked for end
    #[arg(long, help_heading = "Flows for those who ask (itg-send --reverse)", value_name = "T", requires = "allow_reverse", default_value = "5min", value_parser = reverse_time)]
    reverse_time: u64,
    /// Askers at the same time
    #[arg(
        long,
        help_heading = "Flows for those who ask (itg-send --reverse)",
        value_name = "N",
        requires = "allow_reverse",
        default_value_t = 4
    )]
    reverse_max: usize,
    #[command(flatten)]
    peer: PeerArgs,
    /// End after the first sender has left
    #[arg(long)]
    once: bool,
    /// Print what was received of each sender as one JSON object a line, with the keys of itg-decode's report
    #[arg(short = 'J', long)]
    json: bool,
    #[command(flatten)]
    interval: IntervalArgs,
    #[command(flatten)]
    metrics: MetricsArgs,
    #[command(flatten)]
    words: WordArgs,
}

/// A size that the kernel takes for a buffer.
fn buffer(text: &str) -> Result<u32, String> {
    let bytes = parse_bytes(text).map_err(|error| error.to_string())?.0;
    match u32::try_from(bytes) {
        Ok(bytes @ 1..=MOST_BUFFER) => Ok(bytes),
        _ => Err(format!("a buffer of {bytes} bytes: expected 1 byte to 1 GiB")),
    }
}

/// A size that a log fits in.
fn quota(text: &str) -> Result<u64, String> {
    match parse_bytes(text).map_err(|error| error.to_string())?.0 {
        bytes @ LEAST_LOG_BYTES.. => Ok(bytes),
        bytes => Err(format!("{bytes} bytes: no log is smaller than {LEAST_LOG_BYTES}")),
    }
}

/// A rate of bits.
fn bit_rate(text: &str) -> Result<BitRate, String> {
    match text.parse::<Rate>().map_err(|error| error.to_string())? {
        Rate::Bits(rate) => Ok(rate),
        Rate::Packets(_) => Err(format!("{text}: expected bits, as 100Mbps")),
    }
}

/// A time for flows that were asked for, in nanoseconds.
fn reverse_time(text: &str) -> Result<u64, String> {
    match parse_duration_ns(text).map_err(|error| error.to_string())? {
        0 => Err("no time: leave out --allow-reverse to send nothing".to_owned()),
        ns => Ok(ns),
    }
}

/// A time for the kernel, in whole microseconds.
fn busy_poll(text: &str) -> Result<u32, String> {
    let ns = parse_duration_ns(text).map_err(|error| error.to_string())?;
    match u32::try_from(ns / 1_000) {
        Ok(us @ 1..=10_000) => Ok(us),
        _ => Err(format!("{text} of busy polling: expected 1us to 10ms")),
    }
}

const HELP: Help = Help {
    examples: &[
        "itg-recv",
        "itg-recv --log recv.itg --interval 1s",
        "itg-recv --log-dir logs --max-log-bytes 10G",
        "itg-recv --log-server tcp://10.0.0.2",
    ],
};

/// The program's command line, for man pages and completions.
#[must_use]
pub fn command() -> clap::Command {
    itg_cli::command::<Cli>(Some(&HELP))
}

/// Runs the program with the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    let cli = itg_cli::parse::<Cli>(Some(&HELP));
    cli.words.start();
    finish("itg-recv", run(&cli))
}

/// Bytes that are asked for, or else those of the standard.
fn buffer_or(asked: Option<u32>, standard: usize) -> usize {
    asked.map_or(standard, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
}

/// Every resolved setting, for the words at the start and for the log.
fn settings(cli: &Cli, listen: SocketAddr) -> BTreeMap<String, String> {
    let mut settings = BTreeMap::new();
    settings.insert("listen".to_owned(), listen.to_string());
    settings.insert("data-port".to_owned(), cli.data_port.to_string());
    let buffer = buffer_or(cli.receive_buffer, RECEIVE_BUFFER);
    settings.insert("receive-buffer".to_owned(), buffer.to_string());
    settings.insert("shards".to_owned(), cli.shards.to_string());
    if let Some(us) = cli.busy_poll {
        settings.insert("busy-poll".to_owned(), format!("{us}us"));
    }
    if cli.check_payload {
        settings.insert("check-payload".to_owned(), "true".to_owned());
    }
    settings.insert("engine".to_owned(), cli.engine.to_string());
    settings.insert("once".to_owned(), cli.once.to_string());
    let log_dir =
        cli.log_dir.as_ref().map_or_else(|| "none".to_owned(), |d| d.display().to_string());
    settings.insert("log-dir".to_owned(), log_dir);
    for (name, limit) in [("max-log-size", cli.max_log_size), ("max-log-bytes", cli.max_log_bytes)]
    {
        if let Some(bytes) = limit {
            settings.insert(name.to_owned(), format_bytes(bytes));
        }
    }
    let reverse = match cli.allow_reverse {
        false => "none".to_owned(),
        true => format!(
            "{} for {} to {}",
            cli.reverse_rate,
            format_duration_ns(cli.reverse_time),
            cli.reverse_max
        ),
    };
    settings.insert("reverse".to_owned(), reverse);
    if !cli.allow_source.is_empty() {
        let sources: Vec<_> = cli.allow_source.iter().map(ToString::to_string).collect();
        settings.insert("allow-source".to_owned(), sources.join(" "));
    }
    if let Some(file) = &cli.secret_file {
        settings.insert("secret-file".to_owned(), file.display().to_string());
    }
    settings.extend(cli.peer.settings());
    settings.extend(cli.log.settings());
    settings.extend(cli.rotation.settings());
    settings
}

/// The device whose frames are taken, where they are.
fn frames(cli: &Cli, listen: SocketAddr) -> Result<Option<FrameInputOptions>> {
    if cli.engine == PacketEngine::Socket {
        if cli.interface.is_some() || cli.xdp_mode != XdpMode::Auto {
            return Err(refuse("--interface and --xdp-mode are for --engine xdp"));
        }
        return Ok(None);
    }
    let named = cli.interface.clone().or_else(|| device_of(listen.ip()));
    let Some(interface) = named else {
        return Err(refuse(
            "--engine xdp takes the frames of one device: name it with --interface",
        ));
    };
    let buffer = buffer_or(cli.receive_buffer, FRAME_BUFFER);
    Ok(Some(FrameInputOptions { interface, mode: cli.xdp_mode, buffer }))
}

/// Directories that logs are written to.
fn dirs(cli: &Cli) -> Vec<PathBuf> {
    let parent = |file: &Path| match file.parent() {
        Some(dir) if dir.components().next().is_some() => dir.to_owned(),
        _ => PathBuf::from("."),
    };
    cli.log_dir.iter().cloned().chain(cli.log.file().map(parent)).collect()
}

/// Limits of what those who ask for flows are sent.
const fn reverse_limits(cli: &Cli) -> ReverseLimits {
    ReverseLimits {
        rate: cli.reverse_rate,
        time: Duration::from_nanos(cli.reverse_time),
        askers: cli.reverse_max,
    }
}

fn run(cli: &Cli) -> Result<ExitCode> {
    let listen = itg_socket::resolve(&cli.listen, CONTROL_PORT).map_err(refuse)?;
    let frames = frames(cli, listen)?;
    let settings = settings(cli, listen);
    let run = format!("receiver-{}-{}", itg_socket::host::name(), std::process::id());
    if !cli.words.quiet {
        let text: Vec<_> = settings.iter().map(|(key, value)| format!("{key} {value}")).collect();
        say(format_args!("itg-recv {}: {}", env!("CARGO_PKG_VERSION"), text.join(", ")));
    }
    let quota = cli.log_dir.as_deref().map_or_else(LogQuota::default, |dir| {
        LogQuota::new(dir, cli.max_log_size, cli.max_log_bytes)
    });
    let options = ReceiverOptions::new(listen)
        .data_port(cli.data_port)
        .shards(usize::from(cli.shards))
        .check_payload(cli.check_payload)
        .busy_poll_us(cli.busy_poll)
        .frames(frames)
        .receive_buffer_bytes(buffer_or(cli.receive_buffer, RECEIVE_BUFFER))
        .log(cli.log.target(&run, Role::Receiver)?)
        .log_limits(LogLimits { rotation: cli.rotation.rotation(), ..cli.log.limits()? })
        .log_dir(cli.log_dir.clone(), quota)
        .replace_logs(cli.replace_logs)
        .allow_log_servers(cli.allow_log_servers)
        .log_server_access(cli.log.secret()?, cli.log.keys()?)
        .allow_sources(cli.allow_source.clone())
        .packet_secret(cli.secret_file.as_deref().map(read_secret).transpose()?)
        .reverse(cli.allow_reverse.then(|| reverse_limits(cli)))
        .max_per_address(cli.max_per_address)
        .peer_timeout_ns(cli.peer.timeout_ns())
        .once(cli.once)
        .program("itg-recv", env!("CARGO_PKG_VERSION"))
        .settings(settings);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let ended = runtime.block_on(async {
        let signals = Signals::watch_serving()?;
        let metrics = cli.metrics.bind(cli.words.quiet).await?;
        let receiver = Receiver::bind(options).map_err(|error| match error {
            BindError::Log(error) => log_failure(error),
            BindError::Socket(_) => refuse(error),
        })?;
        if !cli.words.quiet {
            tell_where(&receiver);
        }
        if let Some(metrics) = metrics {
            let program = Program::started("itg-recv", env!("CARGO_PKG_VERSION"));
            drop(serve_receiver(metrics.writing_to(dirs(cli)), program, &receiver));
        }
        signals.at_hangup(receiver.reopen_log());
        let lines = cli.interval.interval.map(|every| intervals(&receiver, every, cli.json));
        let telling = Telling::start(&receiver, cli, lines.as_ref().map(Intervals::cuts));
        let outcome = receiver.serve(signals.stop.clone()).await;
        if let Some(lines) = lines {
            lines.end().await;
        }
        telling.end().await?;
        let foreign = match outcome.foreign {
            0 => String::new(),
            1 => ", 1 foreign one left out".to_owned(),
            count => format!(", {count} foreign ones left out"),
        };
        say(format_args!(
            "served {} senders, {} packets received{foreign}",
            outcome.sessions, outcome.packets
        ));
        if let Some(log) = outcome.log {
            say(&log);
            if let Some(error) = log.error {
                let lost = log.lost_records;
                return Err(Failure::new(1, format!("{error} ({lost} records lost)")).into());
            }
        }
        Ok(ExitCode::from(signals.exit_code().unwrap_or(0)))
    });
    // A thread may wait for the reader of stdout, for ever.
    runtime.shutdown_background();
    ended
}

/// Says where senders are waited for.
fn tell_where(receiver: &Receiver) {
    if let Some(trouble) = receiver.data_port_trouble() {
        say(format_args!(
            "warning: {trouble}: flows of that port will be refused as long as another program has it; \
             --data-port PORT takes another one"
        ));
    }
    if let Some(frames) = receiver.frames() {
        say(format_args!(
            "UDP of {frames}; this host's firewall and its counters of UDP see nothing of it"
        ));
    }
    let addresses: Vec<_> = receiver.addresses().map(|a| a.to_string()).collect();
    say(format_args!("waiting for senders on {}; end with Ctrl-C", addresses.join(" and ")));
}

/// Words about senders that have left, and a view of the flows that run.
struct Telling {
    view: Option<ReceiverView>,
    task: JoinHandle<Result<()>>,
}

impl Telling {
    /// Starts them; `lines` are told of the packets of a sender before the words about it.
    fn start(receiver: &Receiver, cli: &Cli, lines: Option<IntervalCuts>) -> Self {
        let (json, words) = (cli.json, cli.words);
        let plain = json || words.quiet || cli.interval.interval.is_some();
        let view = if plain { None } else { ReceiverView::start(receiver.observe()) };
        let drawn = view.as_ref().map(ReceiverView::drawn).unwrap_or_default();
        let mut left = receiver.tell_of_senders();
        let task = tokio::spawn(async move {
            while let Some(session) = left.recv().await {
                if let Some(lines) = &lines {
                    lines.cut().await;
                }
                // A reader of stdout that stands still must not hold up senders.
                tokio::task::block_in_place(|| drawn.above(|| tell(&session, json, words)))?;
            }
            Ok(())
        });
        Self { view, task }
    }

    async fn end(self) -> Result<()> {
        if let Some(view) = self.view {
            view.end().await;
        }
        // Those who have left are told of by then, but where stdout takes nothing.
        match tokio::time::timeout(LAST_WORDS, self.task).await {
            Ok(told) => told.context("the words about senders stopped on a bug")?,
            Err(_) => Ok(()),
        }
    }
}

/// Prints a line for each interval of what is received.
fn intervals(receiver: &Receiver, every: Duration, on_stderr: bool) -> Intervals {
    let lines = IntervalLines { every, on_stderr, way: None };
    Intervals::received(lines, ReceivedFlows::new(receiver.watch()))
}

/// Prints what was received of a sender that has left.
fn tell(session: &ServedSession, json: bool, words: WordArgs) -> Result<()> {
    let report = received(session);
    if json {
        return print(&(serde_json::to_string(&report)? + "\n"));
    }
    if words.quiet {
        return Ok(());
    }
    let (peer, host, run) = (session.peer, from_peer(&session.host), &session.run);
    let told = session.flows.values().all(|flow| flow.totals.is_some());
    if told && nothing_sent(&report) {
        return print(&format!("sender {peer} ({host}), run {run}: it sent nothing\n"));
    }
    print(&format!("sender {peer} ({host}), run {run}\n{}", result_text(&report, &[], words)))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_consistent() {
        let command = super::command();
        let lines = command.clone().term_width(100).render_help().to_string().lines().count();
        assert!(lines <= 48, "-h fits a screen: {lines} lines");
        command.debug_assert();
    }
}
