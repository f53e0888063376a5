//! `itg-bench mpi`: a log rank beside the log server. The same flows, each sent by a process of its own, log
//! every packet to rank 0 of an MPI job, and to `itg-log` over UDP and TCP.
//!
//! Source: section 3 of the D-ITG paper, where MPI and the log server over UDP reach the same rate.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use itg_cli::refuse;
use itg_record::{Item, Kind, LogReader, Note};
use itg_testkit::child::{Output, Running};
use itg_trials::{Claim, Estimate, Lines, order, print, ratio, with_interval};

use crate::programs::{Location, Programs, READY, clear, installed, memory};

/// MPI reaches at least this part of the rate with the log server over UDP.
const BAR: f64 = 0.95;
/// Time that a trial may take beyond its packets: ranks take turns on few processors.
const LIMIT: Duration = Duration::from_secs(90);
/// Variables with which Open MPI starts more ranks than there are processors, also for root, and
/// leaves them where the system puts them; other implementations do not know these variables.
const LAUNCHER: [(&str, &str); 4] = [
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
    ("OMPI_MCA_hwloc_base_binding_policy", "none"),
];

#[derive(Debug, Args)]
pub(crate) struct MpiArgs {
    /// Flows; each is sent by a process of its own
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    flows: u32,
    /// Trials of each
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=100))]
    trials: u32,
    /// Length of a trial
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: u32,
    /// Packets a second that each flow is asked for, some after the other; 0: flat out
    #[arg(long, value_name = "PPS,…", default_value = "0,10000", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    rates: Vec<u32>,
    /// Payload bytes a packet
    #[arg(long, value_name = "BYTES", default_value_t = 512, value_parser = clap::value_parser!(u32).range(16..=1472))]
    size: u32,
    /// The launcher of the MPI that itg-cluster was built with
    #[arg(long, value_name = "PROGRAM", default_value = "mpirun")]
    mpirun: PathBuf,
    /// An itg-cluster with the feature `mpi` [default: beside this program]
    #[arg(long, value_name = "FILE")]
    cluster: Option<PathBuf>,
}

/// Destination of the senders' logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// To rank 0.
    Mpi,
    /// To `itg-log`, by this scheme.
    Server(&'static str),
    /// To a file of each sender.
    File,
}

const WAYS: [(Way, &str); 4] = [
    (Way::Mpi, "MPI, log rank"),
    (Way::Server("udp"), "LS-UDP"),
    (Way::Server("tcp"), "LS-TCP"),
    (Way::File, "local file"),
];

/// Sums over the logs of one side.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Side {
    /// Packets that were sent, and those of which there is a record.
    sent: u64,
    logged: u64,
    /// Packets without a record, and records beyond one a packet; of each flow, added up.
    missing: u64,
    twice: u64,
    /// Of each flow by its own time, added up: packets a second that were sent, and that were logged.
    sent_pps: f64,
    logged_pps: f64,
}

/// A trial.
#[derive(Clone, Copy, Debug, Default)]
struct Trial {
    senders: Side,
    /// Packets in the receiver's log.
    received: u64,
    /// Processor time of all processes, in nanoseconds a packet that was sent.
    cpu_ns: f64,
}

/// One flow of a log.
#[derive(Clone, Debug)]
struct Tally {
    /// Number of each packet that was logged.
    seqs: Vec<u64>,
    /// As its end says, or the last number that was logged where that is missing.
    sent: u64,
    first_ns: u64,
    last_ns: u64,
}

impl Default for Tally {
    fn default() -> Self {
        Self { seqs: Vec::new(), sent: 0, first_ns: u64::MAX, last_ns: 0 }
    }
}

/// Adds up the flows of a log whose records are of this kind.
fn read(bytes: &[u8], kind: Kind) -> Side {
    let mut flows: BTreeMap<(u32, u32), Tally> = BTreeMap::new();
    for item in LogReader::new(bytes) {
        match item {
            Item::Records { log, records, .. } => {
                for record in records.filter(|record| record.kind == kind) {
                    let tally = flows.entry((log, record.flow)).or_default();
                    tally.seqs.push(record.seq);
                    tally.sent = tally.sent.max(record.seq + 1);
                    tally.first_ns = tally.first_ns.min(record.b);
                    tally.last_ns = tally.last_ns.max(record.b);
                }
            }
            Item::Note { log, note: Note::FlowEnd(end), .. } if kind == Kind::Sent => {
                let tally = flows.entry((log, end.index)).or_default();
                tally.sent = tally.sent.max(end.sent_packets.unwrap_or(0));
            }
            _ => {}
        }
    }
    let mut side = Side::default();
    for mut tally in flows.into_values() {
        let records = tally.seqs.len() as u64;
        tally.seqs.sort_unstable();
        tally.seqs.dedup();
        let logged = tally.seqs.len() as u64;
        side.sent += tally.sent;
        side.logged += logged;
        // No number is beyond what was sent.
        side.missing += tally.sent - logged;
        side.twice += records - logged;
        let seconds = tally.last_ns.saturating_sub(tally.first_ns) as f64 / 1e9;
        if let (Some(first), Some(last)) = (tally.seqs.first(), tally.seqs.last())
            && seconds > 0.0
        {
            // What was sent before the first record and after the last has no times.
            side.sent_pps += (last - first + 1) as f64 / seconds;
            side.logged_pps += logged as f64 / seconds;
        }
    }
    side
}

/// Sums over the logs in these files.
fn read_all(paths: &[PathBuf], kind: Kind) -> Result<Side> {
    let mut all = Side::default();
    for path in paths {
        let bytes = fs::read(path).with_context(|| format!("log {}", path.display()))?;
        let side = read(&bytes, kind);
        all.sent += side.sent;
        all.logged += side.logged;
        all.missing += side.missing;
        all.twice += side.twice;
        all.sent_pps += side.sent_pps;
        all.logged_pps += side.logged_pps;
    }
    Ok(all)
}

/// An `itg-cluster` that knows MPI, and its launcher.
#[derive(Clone, Debug)]
pub(crate) struct MpiCluster {
    program: PathBuf,
    launcher: PathBuf,
}

impl MpiCluster {
    /// The one of this path, or that beside this program.
    pub(crate) fn find(
        programs: &Programs,
        program: Option<&Path>,
        launcher: &Path,
    ) -> Result<Self> {
        let program = program.map_or_else(|| programs.path("itg-cluster"), Path::to_owned);
        let mut asked = Command::new(&program);
        asked.args(["run", "--mpi", "--help"]);
        let knows = Running::spawn(&mut asked, &[])?.wait(READY)?.code == Some(0);
        if !knows {
            return Err(refuse(format!(
                "{} was built without MPI: cargo build --release -p itg-cluster --features mpi (and see \
                 docs/mpi.md), or name another one with --cluster",
                program.display()
            )));
        }
        if launcher.components().count() == 1 && !installed(&launcher.to_string_lossy()) {
            return Err(refuse(format!("{} is not installed", launcher.display())));
        }
        Ok(Self { program, launcher: launcher.to_owned() })
    }

    /// Runs the experiment of a file with so many ranks; its logs go to a directory.
    pub(crate) fn run(
        &self,
        ranks: u32,
        file: &Path,
        out: &Path,
        limit: Duration,
    ) -> Result<Output> {
        let mut job = Command::new(&self.launcher);
        job.envs(LAUNCHER).args(["-n", &ranks.to_string()]).arg(&self.program);
        job.args(["-q", "run"]).arg(file).arg("--mpi").arg("--out").arg(out);
        // A log that is not whole is a failure of the run, and what a trial is to find.
        Running::spawn(&mut job, &[])?.wait(limit)?.ended_with(&[0, 1])
    }
}

struct Bench<'a> {
    args: &'a MpiArgs,
    programs: Programs,
    mpi: MpiCluster,
    work: tempfile::TempDir,
}

impl<'a> Bench<'a> {
    fn new(args: &'a MpiArgs) -> Result<Self> {
        let programs = Programs::with(&["itg-send", "itg-recv", "itg-log"])?;
        let mpi = MpiCluster::find(&programs, args.cluster.as_deref(), &args.mpirun)?;
        let work = tempfile::Builder::new().prefix("itg-bench-").tempdir_in(memory())?;
        Ok(Self { args, programs, mpi, work })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.work.path().join(name)
    }

    /// Time that one trial may take.
    fn limit(&self) -> Duration {
        LIMIT + Duration::from_secs(u64::from(self.args.seconds))
    }

    fn idt(rate: u32) -> String {
        // Flat out where nothing is asked for.
        format!("constant({}ns)", 1_000_000_000_u32.checked_div(rate).unwrap_or(0))
    }

    fn trial(&self, way: Way, rate: u32) -> Result<Trial> {
        let trial = match way {
            Way::Mpi => self.job(rate),
            _ => self.processes(way, rate),
        }?;
        ensure!(trial.senders.logged > 0, "no packet was logged");
        clear(self.work.path())?;
        Ok(trial)
    }

    /// A rank for each flow, and one for the receiver and all logs.
    fn job(&self, rate: u32) -> Result<Trial> {
        let MpiArgs { flows, seconds, size, .. } = self.args;
        let mut text = format!(
            "schema = 1\nname = \"bench\"\nseed = 7\nduration = \"{seconds}s\"\n[log]\nserver = \"mpi\"\n"
        );
        for _ in 0..*flows {
            let idt = Self::idt(rate);
            text += &format!("[[flow]]\nidt = \"{idt}\"\nsize = \"constant({size})\"\n");
        }
        let (file, out) = (self.path("experiment.toml"), self.path("out"));
        fs::write(&file, text)?;
        let done = self.mpi.run(flows + 1, &file, &out, self.limit())?;
        let senders = read_all(&[out.join("sender.itg")], Kind::Sent)
            .with_context(|| format!("{}{}", done.out, done.err))?;
        let received = read_all(&[out.join("receiver.itg")], Kind::Received)?.logged;
        fs::remove_dir_all(&out)?;
        Ok(Trial { senders, received, cpu_ns: a_packet(done.cpu, senders.sent) })
    }

    /// A process for each flow, one for the receiver, and one for the log server.
    fn processes(&self, way: Way, rate: u32) -> Result<Trial> {
        let MpiArgs { flows, seconds, size, .. } = self.args;
        let store = self.path("store");
        fs::create_dir(&store)?;
        let server = match way {
            Way::Server(_) => Some(self.programs.log_server(&store, &[], &[])?),
            _ => None,
        };
        let log = self.path("receiver.itg");
        let args = ["--log".to_owned(), log.display().to_string()];
        let receiver = self.programs.receiver(&Location::Here, "127.0.0.1", &args, &[])?;
        let mut senders = Vec::new();
        for flow in 0..*flows {
            let mut send = Command::new(self.programs.path("itg-send"));
            send.args([&receiver.address, "-q", "--seed", "7", "--idt", &Self::idt(rate)]);
            send.args([
                "--size",
                &format!("constant({size})"),
                "--duration",
                &format!("{seconds}s"),
            ]);
            match (way, &server) {
                (Way::Server(scheme), Some(server)) => {
                    send.args(["--log-server", &format!("{scheme}://{}", server.address)]);
                }
                _ => {
                    send.arg("--log").arg(store.join(format!("sender-{flow}.itg")));
                }
            }
            senders.push(Running::spawn(&mut send, &[])?);
        }
        let mut cpu = Duration::ZERO;
        for sender in senders {
            cpu += sender.wait(self.limit())?.ended_with(&[0, 1])?.cpu;
        }
        cpu += receiver.stop()?.cpu;
        if let Some(server) = server {
            cpu += server.stop()?.cpu;
        }
        let senders = read_all(&crate::agents::logs(&store)?, Kind::Sent)?;
        let received = read_all(&[log], Kind::Received)?.logged;
        fs::remove_dir_all(&store)?;
        Ok(Trial { senders, received, cpu_ns: a_packet(cpu, senders.sent) })
    }
}

fn a_packet(cpu: Duration, packets: u64) -> f64 {
    cpu.as_secs_f64() * 1e9 / packets.max(1) as f64
}

pub(crate) fn run(args: &MpiArgs) -> Result<()> {
    let bench = Bench::new(args)?;
    print(format_args!("MPI: {}", launcher(&args.mpirun)?));
    for rate in &args.rates {
        let asked = match rate {
            0 => "flat out".to_owned(),
            rate => format!("{rate} packets/s each"),
        };
        let mut found = WAYS.map(|_| Vec::new());
        // The first round warms up.
        for round in 0..=args.trials as usize {
            for which in order(WAYS.len(), round) {
                let (way, name) = WAYS[which];
                let trial = bench.trial(way, *rate).context(name)?;
                if round > 0 {
                    found[which].push(trial);
                }
            }
        }
        print(format_args!(
            "\n{} flows of {} bytes, {asked}, {} s, {} trials in turns; each flow a process of its own\n\n{}\n",
            args.flows,
            args.size,
            args.seconds,
            args.trials,
            table(&found)
        ));
        let of = |place: usize| -> Vec<f64> {
            found[place].iter().map(|trial: &Trial| trial.senders.logged_pps).collect()
        };
        for server in [1, 2] {
            let part = ratio(&of(0), &of(server));
            let what = format!(
                "MPI logs {} of the packets/s of {}, >= {BAR}",
                with_interval(part, 3),
                WAYS[server].1
            );
            print(Claim::new(part.mid >= BAR, &what));
        }
        let sum =
            |of: fn(&Side) -> u64| -> u64 { found[0].iter().map(|trial| of(&trial.senders)).sum() };
        let (missing, twice) = (sum(|side| side.missing), sum(|side| side.twice));
        let what =
            format!("no record of MPI's is missing, none is there twice: {missing}, {twice}");
        print(Claim::new(missing == 0 && twice == 0, &what));
    }
    Ok(())
}

/// The launcher's name and version.
fn launcher(program: &Path) -> Result<String> {
    let mut asked = Command::new(program);
    asked.arg("--version");
    let done = Running::spawn(&mut asked, &[])
        .map_err(|error| refuse(format!("--mpirun: {error:#}")))?
        .wait(READY)?;
    let line = done.out.lines().take(2).map(str::trim).collect::<Vec<_>>().join(", ");
    Ok(line)
}

fn table(found: &[Vec<Trial>; WAYS.len()]) -> Lines {
    let mut lines = Lines::new([
        "senders' log",
        "kpackets/s sent",
        "logged",
        "x LS-UDP",
        "records missing",
        "packets not received",
        "CPU ns a packet, all processes",
    ]);
    let all =
        |place: usize, of: fn(&Trial) -> f64| -> Vec<f64> { found[place].iter().map(of).collect() };
    let logged = |trial: &Trial| trial.senders.logged_pps / 1e3;
    for (place, (_, name)) in WAYS.iter().enumerate() {
        let sum = |of: fn(&Trial) -> u64| -> u64 { found[place].iter().map(of).sum() };
        let sent = sum(|trial| trial.senders.sent);
        let part = |missing: u64| {
            format!("{missing} ({:.2} %)", 100.0 * missing as f64 / sent.max(1) as f64)
        };
        lines.row([
            (*name).to_owned(),
            with_interval(Estimate::of(&all(place, |trial| trial.senders.sent_pps / 1e3)), 1),
            with_interval(Estimate::of(&all(place, logged)), 1),
            with_interval(ratio(&all(place, logged), &all(1, logged)), 3),
            part(sum(|trial| trial.senders.missing)),
            part(sum(|trial| trial.senders.sent.saturating_sub(trial.received))),
            with_interval(Estimate::of(&all(place, |trial| trial.cpu_ns)), 0),
        ]);
    }
    lines
}

#[cfg(test)]
mod tests {
    use itg_record::{BlockBuf, FlowEnd, LogBuilder, Record, SentPacket};

    use super::*;

    #[test]
    fn a_flow_is_counted_by_its_end_and_rated_by_its_own_time() {
        let mut bytes = Vec::new();
        for log_id in [1, 2] {
            let mut log = LogBuilder::new(log_id);
            let mut block = BlockBuf::new(8);
            // Packet 2 is missing, packet 1 is there twice; one each second.
            for seq in [0_u64, 1, 1, 3, 4] {
                block.push(&Record::sent(SentPacket {
                    flow: 0,
                    seq,
                    size: 100,
                    planned_ns: 0,
                    sent_ns: 1_000_000_000 * (seq + 5),
                }));
            }
            bytes.extend(log.seal(&mut block));
            if log_id == 1 {
                let end = FlowEnd { sent_packets: Some(6), ..FlowEnd::new(0, "end") };
                bytes.extend(log.note(&Note::FlowEnd(end)));
            }
        }
        let side = read(&bytes, Kind::Sent);
        assert_eq!((side.sent, side.logged), (6 + 5, 8));
        assert_eq!((side.missing, side.twice), (3, 2));
        assert!((side.sent_pps - (5.0 + 5.0) / 4.0).abs() < 1e-9, "{side:?}");
        assert!((side.logged_pps - 2.0).abs() < 1e-9, "{side:?}");
        assert_eq!(read(&bytes, Kind::Received), Side::default());
    }
}
