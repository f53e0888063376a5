//! One trial: a flow with one end's log, and what the log says.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use itg_testkit::child::Running;
use tempfile::TempDir;

use crate::mpi::MpiCluster;
use crate::programs::{Location, Programs, READY, Server, clear, stored_log};

/// Destination of the log, in the paper's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Variant {
    /// A local file.
    Cv,
    /// A log server over TCP.
    LsTcp,
    /// A log server over UDP.
    LsUdp,
    /// The log rank of an MPI job: the sender's log alone, in blocks of a fixed size.
    Mpi,
}

impl Variant {
    /// Those whose D can be chosen.
    pub(crate) const BUFFERED: [Self; 3] = [Self::Cv, Self::LsTcp, Self::LsUdp];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Cv => "CV",
            Self::LsTcp => "LS-TCP",
            Self::LsUdp => "LS-UDP",
            Self::Mpi => "MPI",
        }
    }
}

/// End that logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum End {
    Sender,
    Receiver,
}

impl End {
    pub(crate) const BOTH: [Self; 2] = [Self::Sender, Self::Receiver];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sender => "sender",
            Self::Receiver => "receiver",
        }
    }
}

/// The parameters of a trial, in the paper's letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Setting {
    pub(crate) end: End,
    pub(crate) variant: Variant,
    /// D: records in a block of the log.
    pub(crate) buffer: u32,
    /// c: payload bytes a packet.
    pub(crate) size: u32,
    /// C: packets a second asked for.
    pub(crate) rate: u32,
}

/// Result of a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Trial {
    /// Logged packets a second.
    pub(crate) rate: f64,
    /// 1 − logged / expected.
    pub(crate) error: f64,
    /// CPU time of the process that logs, in nanoseconds a logged packet.
    pub(crate) cpu_ns: f64,
    /// 99 % of the packets left no later than this, in microseconds; known from a sender's log.
    pub(crate) late_us: Option<f64>,
}

impl Trial {
    /// From the log of a trial. A flow that could not keep up goes on for a moment after its end; what it
    /// does then is expected of it too.
    pub(crate) fn of(packets: f64, span_s: f64, asked_s: f64, rate: f64, cpu: Duration) -> Self {
        let span = span_s.max(asked_s);
        let expected = rate * span;
        Self {
            rate: packets / span,
            error: 1.0 - packets / expected,
            cpu_ns: if packets > 0.0 { cpu.as_secs_f64() * 1e9 / packets } else { 0.0 },
            late_us: None,
        }
    }
}

/// Two hosts, or one, on which trials run.
pub(crate) struct Bench {
    programs: Programs,
    work: TempDir,
    store: PathBuf,
    /// A log server, and a receiver without a log.
    server: Option<Server>,
    silent: Server,
    sender_at: Location,
    receiver_at: Location,
    listen: String,
    seconds: f64,
    /// Rate at which local files are written, with a unit; `None`: as fast as the disk takes it.
    slow_disk: Option<String>,
    /// An `itg-cluster` that knows MPI, and why there is none.
    mpi: Result<MpiCluster>,
}

impl Bench {
    /// On this host, over loopback.
    pub(crate) fn here(seconds: f64, slow_disk: Option<String>) -> Result<Self> {
        let mut bench =
            Self::between(Location::Here, Location::Here, "127.0.0.1", seconds, slow_disk)?;
        bench.server = Some(bench.programs.log_server(&bench.store, &[], &[])?);
        Ok(bench)
    }

    /// From one place to another, without a log server.
    pub(crate) fn between(
        sender_at: Location,
        receiver_at: Location,
        listen: &str,
        seconds: f64,
        slow_disk: Option<String>,
    ) -> Result<Self> {
        let programs = Programs::find()?;
        let work = tempfile::tempdir().context("a directory for logs")?;
        let store = work.path().join("server");
        fs::create_dir(&store)?;
        let silent = programs.receiver(&receiver_at, listen, &[], &[])?;
        let listen = listen.to_owned();
        let mpi = MpiCluster::find(&programs, None, Path::new("mpirun"));
        Ok(Self {
            programs,
            work,
            store,
            server: None,
            silent,
            sender_at,
            receiver_at,
            listen,
            seconds,
            slow_disk,
            mpi,
        })
    }

    /// Returns an error that says why if trials with MPI cannot be run.
    pub(crate) fn has_mpi(&self) -> Result<(), &anyhow::Error> {
        self.mpi.as_ref().map(drop)
    }

    /// Runs a trial of two ranks: the sender, and the receiver that takes the sender's log too.
    fn run_mpi(&self, setting: &Setting) -> Result<Trial> {
        let mpi = self.mpi.as_ref().map_err(|why| anyhow!("{why:#}"))?;
        let Setting { size, rate, .. } = setting;
        let (file, out) = (self.work.path().join("job.toml"), self.work.path().join("job"));
        let milliseconds = self.seconds * 1e3;
        fs::write(
            &file,
            format!(
                "schema = 1\nname = \"bench\"\nseed = 1\nduration = \"{milliseconds:.0}ms\"\n[log]\n\
                 server = \"mpi\"\n[[flow]]\nrate = \"{rate}pps\"\nsize = \"constant({size})\"\n"
            ),
        )?;
        let limit = Duration::from_secs_f64(self.seconds) + READY;
        // A flow that could not keep up fails, and its log says how far it came.
        let done = mpi.run(2, &file, &out, limit)?;
        let log = self.programs.decode(&out.join("sender.itg"))?;
        fs::remove_dir_all(&out)?;
        let trial = Trial::of(log.packets, log.seconds, self.seconds, f64::from(*rate), done.cpu);
        Ok(Trial { late_us: log.late_us, ..trial })
    }

    /// Runs a trial.
    pub(crate) fn run(&self, setting: &Setting) -> Result<Trial> {
        if setting.variant == Variant::Mpi {
            return self.run_mpi(setting);
        }
        let file = self.work.path().join("local.itg");
        let log = self.log_args(setting, &file)?;
        let receiver = match setting.end {
            End::Sender => None,
            End::Receiver => {
                let args = [log.as_slice(), &["--once".to_owned()]].concat();
                Some(self.programs.receiver(&self.receiver_at, &self.listen, &args, &[])?)
            }
        };
        let at = receiver.as_ref().map_or(&self.silent.address, |receiver| &receiver.address);
        let mut command = self.sender_at.command(&self.programs.path("itg-send"));
        command.args([at, "-q", "--seed", "1"]);
        command.args(["--rate", &format!("{}pps", setting.rate)]);
        command.args(["--size", &format!("constant({})", setting.size)]);
        command.args(["--duration", &format!("{:.0}ms", self.seconds * 1e3)]);
        if setting.end == End::Sender {
            command.args(&log);
        }
        let limit = Duration::from_secs_f64(self.seconds) + READY;
        // A flow that could not keep up fails, and its log says how far it came.
        let sent = Running::spawn(&mut command, &[])?.wait(limit)?.ended_with(&[0, 1])?;
        let done = match receiver {
            None => sent,
            Some(receiver) => receiver.finish()?.ended_with(&[0, 1])?,
        };
        let path = match setting.variant {
            Variant::Cv => file.clone(),
            _ => stored_log(&self.store)?,
        };
        let log = self.programs.decode(&path)?;
        clear(&self.store)?;
        if setting.variant == Variant::Cv {
            fs::remove_file(&file)?;
        }
        let rate = f64::from(setting.rate);
        let trial = Trial::of(log.packets, log.seconds, self.seconds, rate, done.cpu);
        Ok(Trial { late_us: log.late_us, ..trial })
    }

    fn log_args(&self, setting: &Setting, file: &Path) -> Result<Vec<String>> {
        let mut args = vec!["--log-block".to_owned(), setting.buffer.to_string()];
        let server = || {
            let server = self.server.as_ref().context("no log server there")?;
            Ok::<_, anyhow::Error>(server.address.clone())
        };
        match setting.variant {
            Variant::Cv => {
                args.extend(["--log".to_owned(), file.display().to_string()]);
                if let Some(rate) = &self.slow_disk {
                    args.extend(["--log-throttle".to_owned(), rate.clone()]);
                }
            }
            Variant::LsTcp => {
                args.extend(["--log-server".to_owned(), format!("tcp://{}", server()?)]);
            }
            Variant::LsUdp => {
                args.extend(["--log-server".to_owned(), format!("udp://{}", server()?)]);
            }
            Variant::Mpi => {}
        }
        Ok(args)
    }

    /// Ends what runs.
    pub(crate) fn end(self) -> Result<()> {
        self.silent.stop()?;
        self.server.map_or(Ok(()), |server| server.stop().map(drop))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_that_goes_on_after_its_end_is_expected_to() {
        for (packets, span, want_rate, want_error) in [
            (1000.0, 0.999, 1000.0, 0.0),
            (500.0, 1.0, 500.0, 0.5),
            // 550 packets in 1.1 s are no better than 500 in 1 s.
            (550.0, 1.1, 500.0, 0.5),
            (0.0, 0.0, 0.0, 1.0),
        ] {
            let got = Trial::of(packets, span, 1.0, 1000.0, Duration::from_millis(1));
            let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
            assert!(close(got.rate, want_rate) && close(got.error, want_error), "{got:?}");
        }
        let got = Trial::of(1000.0, 1.0, 1.0, 1000.0, Duration::from_millis(1));
        assert!((got.cpu_ns - 1000.0).abs() < 1e-9, "{got:?}");
    }
}
