//! The generators that are compared, and how each is asked for the same traffic.

use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use itg_testkit::child::{Output, Running};
use nix::sys::signal::Signal;

use crate::programs::{Location, Programs, READY, installed};

/// Processors of the two sides.
pub(super) const SENDER: &[usize] = &[0];
pub(super) const RECEIVER: &[usize] = &[1];
/// Time over which the starts of many flows are spread, in milliseconds. In less time, more packets are due than a host
/// can send.
pub(super) const SPREAD_MS: u64 = 500;
/// A rate beyond what any host does, for programs that have no word for flat out.
const FLAT_OUT: &str = "5000000";

/// A generator, with the options that make it comparable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tool {
    /// A raw loop that logs nothing.
    Raw,
    /// The same with stamps and records.
    RawLog,
    /// A raw loop of segments.
    RawSegments,
    /// The same with the content, stamps and records of ours.
    RawSegmentsLog,
    /// A raw loop of AF_XDP that logs nothing.
    RawFrames,
    /// The same with the content, checks, stamps and records of ours.
    RawFramesLog,
    /// Its sender, to the receiver of the raw loop of sockets.
    RawFramesOut,
    /// The same with the content, stamps and records of ours.
    RawFramesOutLog,
    /// A raw loop that sends on time and looks at the clock without pause.
    RawSpin,
    Ditg,
    DitgPoll,
    Mgen,
    MgenPrecise,
    Iperf,
    Sockperf,
    Itg,
    /// Many flows through few sockets.
    ItgSockets,
    /// With real-time priority.
    ItgRealtime,
    /// It looks at the clock without pause, as the peers that spin do.
    ItgSpin,
    /// In bursts of 64.
    ItgBurst,
    /// With a proof in each packet.
    ItgAuth,
    /// Past the network stack at both ends.
    ItgFrames,
    /// The same at the sender alone.
    ItgFramesOut,
}

/// Distribution of inter-departure times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Distribution {
    Constant,
    Exponential,
    /// Pareto, of shape 3.
    Pareto,
    /// Between half and three halves of the mean.
    Uniform,
}

impl Distribution {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Constant => "constant",
            Self::Exponential => "exponential",
            Self::Pareto => "pareto",
            Self::Uniform => "uniform",
        }
    }

    /// Probability of an inter-departure time of at most `x` times the mean.
    pub(crate) fn cumulative(self, x: f64) -> f64 {
        match self {
            Self::Constant => f64::from(u8::from(x >= 1.0)),
            Self::Exponential => 1.0 - (-x.max(0.0)).exp(),
            Self::Pareto if x <= PARETO_SCALE => 0.0,
            Self::Pareto => 1.0 - (PARETO_SCALE / x).powf(PARETO_SHAPE),
            Self::Uniform => (x - 0.5).clamp(0.0, 1.0),
        }
    }
}

pub(crate) const PARETO_SHAPE: f64 = 3.0;
/// Of a mean of 1.
pub(crate) const PARETO_SCALE: f64 = (PARETO_SHAPE - 1.0) / PARETO_SHAPE;

/// Requested traffic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Packets a second of each flow; `None`: as many as can be.
    pub(crate) rate: Option<f64>,
    pub(crate) distribution: Distribution,
    pub(crate) size: usize,
    pub(crate) seconds: u64,
    pub(crate) flows: u32,
    pub(crate) tcp: bool,
}

/// Places of the two sides, and the programs to run there.
#[derive(Clone, Debug)]
pub(crate) struct Stage {
    pub(crate) name: &'static str,
    pub(crate) sender: Location,
    pub(crate) receiver: Location,
    pub(crate) address: &'static str,
    pub(crate) programs: Programs,
}

impl Tool {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw loop",
            Self::RawLog => "raw loop, logging",
            Self::RawSegments => "raw GSO and GRO loop",
            Self::RawSegmentsLog => "raw GSO and GRO loop, logging",
            Self::RawFrames => "raw AF_XDP loop",
            Self::RawFramesLog => "raw AF_XDP loop, logging",
            Self::RawFramesOut => "raw AF_XDP loop to raw sockets",
            Self::RawFramesOutLog => "raw AF_XDP loop to raw sockets, logging",
            Self::RawSpin => "raw loop, spinning",
            Self::Ditg => "D-ITG",
            Self::DitgPoll => "D-ITG -poll",
            Self::Mgen => "mgen",
            Self::MgenPrecise => "mgen precise",
            Self::Iperf => "iperf3",
            Self::Sockperf => "sockperf",
            Self::Itg => "itg-send",
            Self::ItgSockets => "itg-send --sockets 64",
            Self::ItgRealtime => "itg-send --realtime",
            Self::ItgSpin => "itg-send --pacing spin",
            Self::ItgBurst => "itg-send --burst 64",
            Self::ItgAuth => "itg-send --auth",
            Self::ItgFrames => "--engine xdp at both ends",
            Self::ItgFramesOut => "--engine xdp to sockets",
        }
    }

    pub(crate) const fn is_ours(self) -> bool {
        matches!(
            self,
            Self::Itg
                | Self::ItgSockets
                | Self::ItgRealtime
                | Self::ItgSpin
                | Self::ItgBurst
                | Self::ItgAuth
                | Self::ItgFrames
                | Self::ItgFramesOut
        )
    }

    /// Returns true for a generator of others.
    pub(crate) const fn is_peer(self) -> bool {
        self.needs().is_some()
    }

    /// Kind of the loops of sender and receiver, if it is a pair of raw loops.
    const fn loops(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Raw | Self::RawLog => Some(("batches", "batches")),
            Self::RawSegments | Self::RawSegmentsLog => Some(("segments", "segments")),
            Self::RawFrames | Self::RawFramesLog => Some(("frames", "frames")),
            Self::RawFramesOut | Self::RawFramesOutLog => Some(("frames", "batches")),
            Self::RawSpin => Some(("spin", "batches")),
            _ => None,
        }
    }

    /// Programs of others that it needs, and the Debian package that has them.
    const fn needs(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Ditg | Self::DitgPoll => Some(("ITGSend", "d-itg")),
            Self::Mgen | Self::MgenPrecise => Some(("mgen", "mgen")),
            Self::Iperf => Some(("iperf3", "iperf3")),
            Self::Sockperf => Some(("sockperf", "sockperf")),
            _ => None,
        }
    }

    /// The package that is missing here, if one is.
    pub(crate) fn missing(self) -> Option<&'static str> {
        // Ours of the same name lies elsewhere.
        let (program, package) = self.needs()?;
        let there = match self {
            Self::Ditg | Self::DitgPoll => Path::new(THEIRS).join(program).is_file(),
            _ => installed(program),
        };
        (!there).then_some(package)
    }

    /// Returns true if it can send inter-departure times of this distribution.
    pub(crate) const fn knows(self, distribution: Distribution) -> bool {
        match distribution {
            Distribution::Constant => true,
            Distribution::Exponential | Distribution::Uniform => {
                self.is_ours()
                    || matches!(self, Self::Ditg | Self::DitgPoll | Self::Mgen | Self::MgenPrecise)
            }
            Distribution::Pareto => self.is_ours() || matches!(self, Self::Ditg | Self::DitgPoll),
        }
    }
}

/// File with the secret of both sides.
const SECRET: &str = "secret";
/// Directory of Debian's package of D-ITG.
const THEIRS: &str = "/usr/bin";

/// A receiver that waits.
pub(crate) struct Ready {
    tool: Tool,
    receiver: Running,
    control: u16,
    pub(crate) data: u16,
    dir: PathBuf,
}

/// Starts the receiving side; logs go to `dir`.
pub(crate) fn ready(tool: Tool, load: &Load, stage: &Stage, dir: &Path) -> Result<Ready> {
    // Free in this host's own namespace; in those made for the measurement no other program runs.
    let free = || -> Result<u16> { Ok(UdpSocket::bind("0.0.0.0:0")?.local_addr()?.port()) };
    let (control, data) = (free()?, free()?);
    let address = stage.address;
    let theirs = |name: &str| stage.receiver.command(&Path::new(THEIRS).join(name));
    let mut command = match tool {
        _ if let Some((_, receiving)) = tool.loops() => {
            let mut command = stage.receiver.command(&stage.programs.path("itg-bench"));
            command.args(["raw-loop", receiving, "--listen", &format!("{address}:{data}")]);
            command.args(log_of(tool, "r.raw"));
            command
        }
        Tool::Ditg | Tool::DitgPoll => {
            let mut command = theirs("ITGRecv");
            command.args(["-Sp", &control.to_string(), "-l", "r.dat"]);
            command
        }
        Tool::Mgen | Tool::MgenPrecise => {
            let mut command = theirs("mgen");
            command.args(["event", &format!("listen udp {data}"), "binary", "output", "r.mgn"]);
            command
        }
        Tool::Iperf => {
            let mut command = theirs("iperf3");
            command.args(["-s", "-1", "-p", &data.to_string()]);
            command
        }
        Tool::Sockperf => {
            let mut command = theirs("sockperf");
            command.args(["server", "-i", address, "-p", &data.to_string()]);
            command
        }
        _ => {
            let mut command = stage.receiver.command(&stage.programs.path("itg-recv"));
            command.args(["--listen", &format!("{address}:{control}")]);
            command.args(["--data-port", &data.to_string(), "-q", "--log", "r.itg"]);
            if load.flows > 1 {
                command.args(["--receive-buffer", "64MiB"]);
            }
            if tool == Tool::ItgAuth {
                itg_testkit::host::write_secret(dir.join(SECRET), "a secret");
                command.args(["--secret-file", SECRET]);
            }
            if tool == Tool::ItgFrames {
                command.args(["--engine", "xdp"]);
            }
            command
        }
    };
    let receiver = Running::spawn(command.current_dir(dir), RECEIVER)?;
    let waits_at = match tool {
        Tool::Ditg | Tool::DitgPoll => control,
        _ if tool.is_ours() => control,
        _ => data,
    };
    receiver.wait_for_port(waits_at)?;
    Ok(Ready { tool, receiver, control, data, dir: dir.to_owned() })
}

/// Options of one side of a raw loop for its log, where it keeps one.
fn log_of(tool: Tool, name: &str) -> Vec<&str> {
    let logs = matches!(
        tool,
        Tool::RawLog | Tool::RawSegmentsLog | Tool::RawFramesLog | Tool::RawFramesOutLog
    );
    if logs { vec!["--log", name] } else { Vec::new() }
}

impl Ready {
    /// Sends, and returns what the sender says and takes.
    pub(crate) fn send(&self, load: &Load, stage: &Stage) -> Result<Output> {
        let mut command = self.command(load, stage)?;
        let limit = READY + Duration::from_secs(load.seconds);
        let running = Running::spawn(command.current_dir(&self.dir), SENDER)?;
        let mgen = matches!(self.tool, Tool::Mgen | Tool::MgenPrecise);
        let done = if mgen {
            // It waits for further events after the last one, and flat out it hears no other signal.
            thread::sleep(Duration::from_secs(load.seconds) + Duration::from_millis(300));
            running.stop(Signal::SIGKILL, READY)?
        } else {
            running.wait(limit)?
        };
        // The observer tells whether it sent.
        if mgen { Ok(done) } else { done.ended_with(&[0]) }
    }

    fn command(&self, load: &Load, stage: &Stage) -> Result<Command> {
        let (address, data, control) = (stage.address, self.data, self.control);
        let (size, seconds) = (load.size.to_string(), load.seconds.to_string());
        let theirs = |name: &str| stage.sender.command(&Path::new(THEIRS).join(name));
        ensure!(
            self.tool.knows(load.distribution),
            "{} has no such distribution",
            self.tool.name()
        );
        let rate = load.rate.unwrap_or(0.0);
        Ok(match self.tool {
            _ if let Some((sending, _)) = self.tool.loops() => {
                let mut command = stage.sender.command(&stage.programs.path("itg-bench"));
                command.args(["raw-loop", sending, "--to", &format!("{address}:{data}")]);
                command
                    .args(["--size", &size, "--seconds", &seconds])
                    .args(["--flows", &load.flows.to_string()])
                    .args(load.rate.map(|rate| format!("--rate={rate}")))
                    .args(log_of(self.tool, "s.raw"));
                command
            }
            Tool::Ditg | Tool::DitgPoll => {
                let mut command = theirs("ITGSend");
                command.args([
                    "-a",
                    address,
                    "-Sdp",
                    &control.to_string(),
                    "-rp",
                    &data.to_string(),
                ]);
                self.add_ditg(&mut command, load);
                command
            }
            Tool::Mgen | Tool::MgenPrecise => {
                let mut command = theirs("mgen");
                if self.tool == Tool::MgenPrecise {
                    command.args(["precise", "on"]);
                }
                let pattern = match (load.rate, load.distribution) {
                    (None, _) => format!("periodic [-1 {size}]"),
                    (_, Distribution::Exponential) => format!("poisson [{rate} {size}]"),
                    (_, Distribution::Uniform) => format!("jitter [{rate} {size} 0.5]"),
                    _ => format!("periodic [{rate} {size}]"),
                };
                command.args(["binary", "txlog", "output", "s.mgn"]);
                command.args(["event", &format!("0.0 on 1 udp dst {address}/{data} {pattern}")]);
                command.args(["event", &format!("{seconds}.0 off 1")]);
                command
            }
            Tool::Iperf => {
                let mut command = theirs("iperf3");
                command.args(["-c", address, "-p", &data.to_string(), "-t", &seconds]);
                if load.tcp {
                    return Ok(command);
                }
                let bits = (rate * 8.0 * load.size as f64).round();
                command.args(["-u", "-l", &size, "-b", &bits.to_string()]);
                command
            }
            Tool::Sockperf => {
                let mut command = theirs("sockperf");
                command.args(["throughput", "-i", address, "-p", &data.to_string()]);
                command.args(["-m", &size, "-t", &seconds]);
                let rate = load.rate.map_or_else(|| "max".to_owned(), |rate| format!("{rate:.0}"));
                command.arg(format!("--mps={rate}"));
                command
            }
            _ => {
                let mut command = stage.sender.command(&stage.programs.path("itg-send"));
                command.arg(format!("{address}:{control}"));
                self.add_itg(&mut command, load);
                command
            }
        })
    }

    /// Adds the load as D-ITG's sender is told it.
    fn add_ditg(&self, command: &mut Command, load: &Load) {
        let rate = load.rate.unwrap_or(0.0);
        let number = |x: f64| format!("{x:.9}");
        let time = (load.seconds * 1000).to_string();
        command.args(["-t", &time, "-c", &load.size.to_string(), "-l", "s.dat"]);
        let mean_ms = 1e3 / rate;
        match (load.rate, load.distribution) {
            (None, _) => command.args(["-C", FLAT_OUT]),
            (_, Distribution::Constant) => command.args(["-C", &number(rate)]),
            (_, Distribution::Exponential) => command.args(["-E", &number(rate)]),
            (_, Distribution::Uniform) => {
                command.args(["-U", &number(rate / 1.5), &number(rate / 0.5)])
            }
            (_, Distribution::Pareto) => {
                command.args(["-V", &number(PARETO_SHAPE), &number(mean_ms * PARETO_SCALE)])
            }
        };
        if self.tool == Tool::DitgPoll {
            command.arg("-poll");
        }
    }

    /// Adds the load as ours is told it.
    fn add_itg(&self, command: &mut Command, load: &Load) {
        let rate = load.rate.unwrap_or(0.0);
        let gap_ns = if rate > 0.0 { 1e9 / rate } else { 0.0 };
        command.args(["--idt", &distribution_of(load.distribution, gap_ns)]);
        command.args(["--size", &format!("constant({})", load.size), "--seed", SEED]);
        command.args(["--duration", &format!("{}s", load.seconds), "--log", "s.itg", "-q"]);
        command.args(["--flows", &load.flows.to_string()]);
        if load.flows > 1 && gap_ns > 0.0 {
            // Their first packets are not due at one instant.
            command.args(["--stagger", &format!("{SPREAD_MS}ms")]);
        }
        if load.tcp {
            command.args(["--proto", "tcp"]);
        }
        match self.tool {
            Tool::ItgSockets => drop(command.args(["--sockets", "64"])),
            Tool::ItgRealtime => drop(command.arg("--realtime")),
            Tool::ItgSpin => drop(command.args(["--pacing", "spin"])),
            Tool::ItgBurst => drop(command.args(["--burst", "64"])),
            Tool::ItgAuth => drop(command.args(["--auth", "--secret-file", SECRET])),
            Tool::ItgFrames | Tool::ItgFramesOut => drop(command.args(["--engine", "xdp"])),
            _ => {}
        }
    }

    /// Ends the receiver, and returns what it says and took.
    pub(crate) fn end(self) -> Result<Output> {
        let done = match self.tool {
            // They end by themselves.
            Tool::Iperf => self.receiver.wait(READY)?,
            _ if self.tool.loops().is_some() => self.receiver.wait(READY)?.ended_with(&[0])?,
            Tool::Mgen | Tool::MgenPrecise => self.receiver.stop(Signal::SIGTERM, READY)?,
            _ => self.receiver.stop(Signal::SIGINT, READY)?,
        };
        if self.tool.is_ours() { done.ended_with(&[130]) } else { Ok(done) }
    }
}

/// Seed of our runs.
pub(crate) const SEED: &str = "1";

/// A distribution of inter-departure times as our programs read it.
pub(crate) fn distribution_of(distribution: Distribution, gap_ns: f64) -> String {
    match distribution {
        Distribution::Constant => format!("constant({gap_ns:.6}ns)"),
        Distribution::Exponential => format!("exp({gap_ns:.6}ns)"),
        Distribution::Pareto => format!("pareto({PARETO_SHAPE},{:.6}ns)", gap_ns * PARETO_SCALE),
        Distribution::Uniform => format!("uniform({:.6}ns,{:.6}ns)", gap_ns * 0.5, gap_ns * 1.5),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn laws_have_the_mean_one() {
        for distribution in [Distribution::Exponential, Distribution::Pareto, Distribution::Uniform]
        {
            // The mean of a positive value is the area above its distribution function.
            let step = 1e-3;
            let mean: f64 = (0..2_000_000)
                .map(|i| step * (1.0 - distribution.cumulative(f64::from(i) * step)))
                .sum();
            assert!((mean - 1.0).abs() < 2e-3, "{distribution:?}: {mean}");
            let text = distribution_of(distribution, 1e6);
            let parsed = itg_core::distribution::Distribution::parse(
                &text,
                itg_core::distribution::Unit::Time,
            );
            assert!(parsed.is_ok(), "{text}");
        }
    }
}
