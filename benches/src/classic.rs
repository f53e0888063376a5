//! Our ITGSend and ITGRecv beside D-ITG's, in one table.
//!
//! Rate and inter-departure times are judged by an observer that is neither: it plays D-ITG's
//! receiver and takes the kernel's stamp of every packet. Loss and CPU are those of the pairs, both
//! sides logging.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use itg_classic::log::RECORD_LEN;
use itg_socket::mmsg::{BATCH, RecvBatch};
use itg_testkit::child::Running;
use itg_trials::{Estimate, Lines, order, print, with_interval};
use nix::sys::signal::Signal;
use nix::sys::socket::{setsockopt, sockopt};

use crate::gaps::GapFigures;
use crate::programs::{Programs, READY, memory};

/// Directory of Debian's package of D-ITG.
const THEIRS: &str = "/usr/bin";
/// Size of the packets in bytes.
const SIZE: &str = "64";
/// Receive buffer of the observer in bytes.
const BUFFER: usize = 8 << 20;

/// Options of `classic`.
#[derive(Debug, Args)]
pub(crate) struct ClassicArgs {
    /// Packet rates to ask for with -C
    #[arg(long, value_delimiter = ',', default_value = "100,1000,10000,100000")]
    rates: Vec<u32>,
    /// Packet rates at which the pairs are tried for loss
    #[arg(long, value_delimiter = ',', default_value = "10000,20000,50000,100000,200000,400000")]
    flat_out: Vec<u32>,
    /// Length of a trial in seconds
    #[arg(long, default_value_t = 2)]
    seconds: u32,
    /// Trials of each setting
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Two rates of each kind, two trials of one second: under a minute, to see that all works
    #[arg(long, conflicts_with_all = ["rates", "flat_out", "seconds", "runs"])]
    quick: bool,
}

impl ClassicArgs {
    const QUICK: ([u32; 2], [u32; 2]) = ([1000, 10_000], [20_000, 200_000]);

    fn in_force(&self) -> Self {
        let (rates, flat_out) = (self.rates.clone(), self.flat_out.clone());
        let Self { seconds, runs, quick, .. } = *self;
        if quick {
            let (rates, flat_out) = Self::QUICK;
            let (rates, flat_out) = (rates.to_vec(), flat_out.to_vec());
            Self { rates, flat_out, seconds: 1, runs: 2, quick }
        } else {
            Self { rates, flat_out, seconds, runs, quick }
        }
    }
}

/// Programs of one side: D-ITG's or ours.
struct Side {
    name: &'static str,
    dir: PathBuf,
}

impl Side {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

pub(crate) fn run(args: &ClassicArgs) -> Result<()> {
    let ours = Programs::find()?.path("ITGSend");
    let ours = ours.parent().context("the directory of this program")?.to_owned();
    let sides =
        [Side { name: "D-ITG", dir: PathBuf::from(THEIRS) }, Side { name: "ITG", dir: ours }];
    for side in &sides {
        for name in ["ITGSend", "ITGRecv"] {
            let path = side.path(name);
            ensure!(
                path.is_file(),
                "{} is not there: apt-get install d-itg, and cargo build --release --workspace",
                path.display()
            );
        }
    }
    let args = args.in_force();
    rates(&args, &sides)?;
    flat_out(&args, &sides)
}

fn rates(args: &ClassicArgs, sides: &[Side]) -> Result<()> {
    let mut lines = Lines::new([
        "sender, -C",
        "mean rate error %",
        "gap error p50 µs",
        "gap error p99 µs",
        "CPU % of a processor",
    ]);
    for &rate in &args.rates {
        let mut seen = vec![Vec::new(); sides.len()];
        for round in 0..args.runs {
            for place in order(sides.len(), round) {
                seen[place].push(observed(&sides[place], rate, args.seconds)?);
            }
        }
        for (side, seen) in sides.iter().zip(&seen) {
            let of = |value: fn(&GapFigures) -> f64, digits| {
                let values: Vec<_> = seen.iter().map(value).collect();
                with_interval(Estimate::of(&values), digits)
            };
            lines.row([
                format!("{} {rate}", side.name),
                of(|seen| 100.0 * seen.rate_error, 3),
                of(|seen| seen.gap_p50_us, 1),
                of(|seen| seen.gap_p99_us, 1),
                of(|seen| 100.0 * seen.cpu, 1),
            ]);
        }
    }
    print(format_args!(
        "\nUDP, {SIZE} bytes, {} s, {} runs each in turn; an observer's kernel stamps\n\n{lines}",
        args.seconds, args.runs
    ));
    Ok(())
}

/// Lets a sender send to the observer.
fn observed(side: &Side, rate: u32, seconds: u32) -> Result<GapFigures> {
    let signalling = TcpListener::bind("127.0.0.1:0")?;
    let data = UdpSocket::bind("127.0.0.1:0")?;
    setsockopt(&data, sockopt::ReceiveTimestampns, &true)?;
    // Beyond the system's limit only root gets it.
    if setsockopt(&data, sockopt::RcvBufForce, &BUFFER).is_err() {
        setsockopt(&data, sockopt::RcvBuf, &BUFFER)?;
    }
    let port = signalling.local_addr()?.port().to_string();
    let data_port = data.local_addr()?.port();
    let limit = READY + Duration::from_secs(u64::from(seconds));
    let talking = thread::spawn(move || -> Result<()> {
        let (mut talk, _) = signalling.accept()?;
        talk.set_read_timeout(Some(limit))?;
        talk.read_exact(&mut [0; 1])?;
        talk.write_all(&[2])?;
        talk.read_exact(&mut [0; 27])?;
        let [high, low] = data_port.to_be_bytes();
        talk.write_all(&[5, 0, 0, 0, 1, high, low])?;
        talk.read_exact(&mut [0; 5])?;
        talk.write_all(&[6, 0, 0, 0, 1])?;
        talk.read_exact(&mut [0; 1])?;
        talk.write_all(&[7])?;
        Ok(())
    });
    let (time, rate_text) = ((seconds * 1000).to_string(), rate.to_string());
    let mut command = Command::new(side.path("ITGSend"));
    command.args(["-a", "127.0.0.1", "-Sdp", &port, "-t", &time, "-C", &rate_text, "-c", SIZE]);
    let started = Instant::now();
    let sending = Running::spawn(&mut command, &[])?;
    let mut stamps = Vec::with_capacity((rate * seconds) as usize + 16);
    let mut batch = RecvBatch::new(BATCH, 32);
    loop {
        match batch.recv(data.as_fd()) {
            Ok(count) => stamps.extend((0..count).filter_map(|i| batch.get(i).arrived_ns)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if talking.is_finished() {
                    break;
                }
                thread::sleep(Duration::from_micros(200));
            }
            Err(error) => return Err(error.into()),
        }
        ensure!(started.elapsed() < limit, "`{}` does not end", side.path("ITGSend").display());
    }
    talking.join().map_err(|_| anyhow::anyhow!("the observer stopped on a bug"))??;
    let done = sending.wait(READY)?.ended_with(&[0])?;
    let cpu = done.cpu.as_secs_f64() / f64::from(seconds);
    Ok(GapFigures { cpu, ..GapFigures::of_rate(&stamps, f64::from(rate)) })
}

/// Result of a pair in a run: packets sent and received, processor time of each program.
#[derive(Clone, Copy, Debug)]
struct Carried {
    sent: u64,
    received: u64,
    cpu_sender: f64,
    cpu_receiver: f64,
}

fn flat_out(args: &ClassicArgs, sides: &[Side]) -> Result<()> {
    let mut lines = Lines::new([
        "pair, -C",
        "sent a second",
        "records missing %",
        "CPU of the sender %",
        "CPU of the receiver %",
    ]);
    let mut best = vec![0.0_f64; sides.len()];
    for &rate in &args.flat_out {
        let mut carried = vec![Vec::new(); sides.len()];
        for round in 0..args.runs {
            for place in order(sides.len(), round) {
                carried[place].push(pair(&sides[place], rate, args.seconds)?);
            }
        }
        let seconds = f64::from(args.seconds);
        for (place, runs) in carried.iter().enumerate() {
            let of = |value: &dyn Fn(&Carried) -> f64| {
                Estimate::of(&runs.iter().map(value).collect::<Vec<_>>())
            };
            let a_second = of(&|run| run.sent as f64 / seconds);
            let missing =
                |run: &Carried| 100.0 * (1.0 - run.received as f64 / run.sent.max(1) as f64);
            if runs.iter().all(|run| run.received == run.sent) {
                best[place] = best[place].max(a_second.mid);
            }
            lines.row([
                format!("{} {rate}", sides[place].name),
                with_interval(a_second, 0),
                with_interval(of(&missing), 3),
                with_interval(of(&|run| 100.0 * run.cpu_sender), 1),
                with_interval(of(&|run| 100.0 * run.cpu_receiver), 1),
            ]);
        }
    }
    print(format_args!("\nthe pairs, both sides logging\n\n{lines}\n"));
    for (side, best) in sides.iter().zip(&best) {
        print(format_args!("{}: {best:.0} packets a second without loss in every run", side.name));
    }
    if let [theirs, ours] = best[..]
        && theirs > 0.0
    {
        print(format_args!("ratio: {:.2}", ours / theirs));
    }
    Ok(())
}

/// One run of a pair.
fn pair(side: &Side, rate: u32, seconds: u32) -> Result<Carried> {
    let dir = tempfile::Builder::new().prefix("itg-bench-").tempdir_in(memory())?;
    let port = TcpListener::bind("[::]:0")?.local_addr()?.port();
    let data = UdpSocket::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
    let port_text = port.to_string();
    let mut command = Command::new(side.path("ITGRecv"));
    command.current_dir(dir.path()).args(["-Sp", &port_text, "-l", "r"]);
    let receiving = Running::spawn(&mut command, &[])?;
    receiving.wait_for_port(port)?;
    let (time, rate_text) = ((seconds * 1000).to_string(), rate.to_string());
    let mut command = Command::new(side.path("ITGSend"));
    command.current_dir(dir.path());
    command.args(["-a", "127.0.0.1", "-Sdp", &port_text, "-rp", &data, "-t", &time]);
    command.args(["-C", &rate_text, "-c", SIZE, "-l", "s"]);
    let limit = READY + Duration::from_secs(u64::from(seconds));
    let sent = Running::spawn(&mut command, &[])?.wait(limit)?.ended_with(&[0])?;
    let received = receiving.stop(Signal::SIGINT, READY)?.ended_with(&[0])?;
    let records = |name: &str| -> Result<u64> {
        Ok(std::fs::metadata(dir.path().join(name))?.len() / RECORD_LEN as u64)
    };
    Ok(Carried {
        sent: records("s")?,
        received: records("r")?,
        cpu_sender: sent.cpu.as_secs_f64() / f64::from(seconds),
        cpu_receiver: received.cpu.as_secs_f64() / f64::from(seconds),
    })
}
