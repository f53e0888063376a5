//! The logs of all nodes: fetched, and asked how well the start was kept.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use itg_record::{Item, Kind, LogReader, Note};
use tokio::io::AsyncReadExt as _;
use tokio::time::Instant;

use crate::member::greet;
use crate::trust::{Line, Trust};
use crate::wire::{CHUNK, Call, Logs, Reply, answered, ask, hear, say};

/// Time between two questions to a node about its logs.
const AGAIN: Duration = Duration::from_millis(50);
/// An agent that was started again has this time to hear of the run.
const TOLD: Duration = Duration::from_secs(3);

/// Least time for a connection to a node of which no byte has come.
const ANSWER: Duration = Duration::from_secs(5);
/// Time without a byte after which logs that are being fetched are given up.
const STILL: Duration = Duration::from_secs(20);
/// Slowest fetch that is borne, in bytes a second, beside some time for all.
const SLOWEST: u64 = 1 << 10;
const SLACK: Duration = Duration::from_secs(60);
/// Bytes that are received at once.
const PIECE: usize = 64 << 10;

/// A node whose logs are wanted; the connection to its agent is kept from one question to the next.
pub(crate) struct Source {
    trust: Trust,
    address: String,
    run: String,
    line: Option<Line>,
}

impl Source {
    pub(crate) const fn new(trust: Trust, address: String, run: String) -> Self {
        Self { trust, address, run, line: None }
    }

    /// Takes the connection that was kept, or makes one. Who has no error on it gives it back.
    async fn connection(&mut self) -> Result<Line> {
        if let Some(line) = self.line.take() {
            return Ok(line);
        }
        let mut line = self.trust.connect(&self.address).await?;
        greet(&mut line).await?;
        Ok(line)
    }
}

/// Time that a node is waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Until it is done.
    pub(crate) until: Instant,
    /// Until an agent that is not reached is there again.
    pub(crate) back: Duration,
}

/// Waits until a node sends nothing any more (`closed`: until its logs are complete), also while its agent is started
/// again.
pub(crate) async fn wait(source: &mut Source, closed: bool, patience: Patience) -> Result<()> {
    let began = Instant::now();
    let mut reached = began;
    loop {
        match wait_on_line(source, closed, (began, patience.until), &mut reached).await {
            Ok(done) => return done.map_err(anyhow::Error::msg),
            Err(error) if reached.elapsed() > patience.back => return Err(error),
            Err(error) if Instant::now() > patience.until => return Err(error),
            Err(_) => tokio::time::sleep(AGAIN).await,
        }
    }
}

/// The same on one connection; its failure is an error, what the agent says is not. Notes when it was reached.
async fn wait_on_line(
    source: &mut Source,
    closed: bool,
    (began, until): (Instant, Instant),
    reached: &mut Instant,
) -> Result<Result<(), String>> {
    let mut line = source.connection().await?;
    let first = Instant::now();
    let done = loop {
        let Reply::Files { state, trouble, .. } =
            ask(&mut line, &Call::List(source.run.clone())).await?
        else {
            bail!("no list of logs");
        };
        *reached = Instant::now();
        let why = match state {
            Logs::Closed => break trouble.map_or(Ok(()), Err),
            Logs::Drained if !closed => break Ok(()),
            Logs::Abandoned => {
                "the agent has left the run: another one took it, or nobody was connected"
            }
            Logs::Unknown if first.elapsed() > TOLD => {
                "the agent does not know the run: it was started again, and nobody has told it"
            }
            _ if *reached > until => {
                break Err(format!("not done after {} s", began.elapsed().as_secs()));
            }
            Logs::Open | Logs::Drained | Logs::Unknown => {
                tokio::time::sleep(AGAIN).await;
                continue;
            }
        };
        break Err(why.to_owned());
    };
    source.line = Some(line);
    Ok(done)
}

/// Fetches the logs of a node into a directory; returns their paths. Where a connection breaks, another one goes on with
/// the byte at which it broke.
///
/// # Errors
/// The node is not reached until `until`, or no byte has come for [`STILL`], or too few in all: less than [`SLOWEST`].
pub(crate) async fn fetch(source: &mut Source, dir: &Path, until: Instant) -> Result<Vec<PathBuf>> {
    let mut fetching = Fetching { dir, logs: BTreeMap::new(), until: None, local: false };
    loop {
        // One that was kept may have ended meanwhile.
        let kept = source.line.is_some();
        match fetching.attempt(source, until).await {
            Ok(()) => return fetching.keep(),
            Err(error) if fetching.local || !kept && fetching.is_over(until) => return Err(error),
            Err(error) => {
                tracing::debug!("logs of {}: {error:#}; asked for again", source.address);
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

/// Logs of a node that are being fetched.
struct Fetching<'a> {
    dir: &'a Path,
    /// By name: what has come of it, and whether it is whole.
    logs: BTreeMap<String, (Partial, bool)>,
    /// Deadlines: of the next byte, and of all; none before the first byte.
    until: Option<(Instant, Instant)>,
    /// True after a failure of this host.
    local: bool,
}

impl Fetching<'_> {
    /// Returns true if the time for another attempt is over; `first` is that of the first byte.
    fn is_over(&self, first: Instant) -> bool {
        let now = Instant::now();
        self.until.map_or(now >= first, |(still, all)| now >= still || now >= all)
    }

    /// Fetches over one connection what has not come yet; `first` is the time of the first byte.
    async fn attempt(&mut self, source: &mut Source, first: Instant) -> Result<()> {
        let connecting = source.connection();
        let mut line = match self.until {
            // One whose host is there and says nothing is not waited for as long as others are.
            None => {
                let until = first.max(Instant::now() + ANSWER);
                match tokio::time::timeout_at(until, connecting).await {
                    Ok(connected) => connected?,
                    Err(_) => bail!("no answer in time"),
                }
            }
            Some(_) => connecting.await?,
        };
        let run = &source.run;
        let Reply::Files { files, .. } = ask(&mut line, &Call::List(run.clone())).await? else {
            bail!("no list of logs");
        };
        let began = Instant::now();
        let bytes = files.values().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
        for name in files.keys() {
            // What comes from another host names nothing outside of the directory.
            let name = Path::new(name).file_name().context("a log without a name")?;
            let name = name.to_string_lossy().into_owned();
            if !is_log(&name) {
                bail!("it offers `{name}`, which is no log");
            }
            if !self.logs.contains_key(&name) {
                let partial = Partial::create(self.dir, &name);
                self.local = partial.is_err();
                self.logs.insert(name.clone(), (partial?, false));
            }
            let Some((partial, whole)) = self.logs.get_mut(&name) else { continue };
            while !*whole {
                let mut left = partial.ask(&mut line, run, &name).await?;
                *whole = left == 0;
                while left > 0 {
                    let bytes_come = receive(&mut line, left).await?;
                    let written = partial.write(&bytes_come);
                    self.local = written.is_err();
                    written?;
                    left -= bytes_come.len();
                    let all = began + SLACK + Duration::from_secs(bytes / SLOWEST);
                    let all = self.until.map_or(all, |(_, all)| all);
                    self.until = Some((Instant::now() + STILL, all));
                }
            }
        }
        source.line = Some(line);
        Ok(())
    }

    /// Gives those that have something in them their names; returns their paths.
    fn keep(self) -> Result<Vec<PathBuf>> {
        let logs = self.logs.into_iter().filter(|(_, (partial, _))| partial.offset > 0);
        let keep = |(name, (partial, _)): (String, (Partial, bool))| {
            let path = self.dir.join(name);
            partial.keep(&path).map(|()| path)
        };
        logs.map(keep).collect()
    }
}

/// Receives bytes, as many as have come, at most `most`.
async fn receive(line: &mut Line, most: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; most.min(PIECE)];
    let read = answered(async { Ok(line.read(&mut bytes).await?) }).await?;
    if read == 0 {
        bail!("the connection was closed");
    }
    bytes.truncate(read);
    Ok(bytes)
}

/// Returns true if a name may be that of a log, or of a part of one that was rotated: `NAME.itg`, `NAME.itg.1`.
pub(crate) fn is_log(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    let whole = match name.rsplit_once('.') {
        Some((whole, part)) if part.bytes().all(|byte| byte.is_ascii_digit()) => whole,
        _ => name,
    };
    name.chars().all(plain) && Path::new(whole).extension().is_some_and(|what| what == "itg")
}

/// A log that is being fetched: it has its name when all of it is there. Until then it has another one, under which it
/// is removed if it does not come.
struct Partial {
    path: PathBuf,
    file: fs::File,
    /// Bytes that have come.
    offset: u64,
}

impl Partial {
    fn create(dir: &Path, name: &str) -> Result<Self> {
        fs::create_dir_all(dir).with_context(|| format!("directory {}", dir.display()))?;
        let path = dir.join(name).with_added_extension("fetching");
        let file = fs::OpenOptions::new().create_new(true).write(true).open(&path);
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { path, file, offset: 0 })
    }

    /// Asks for what comes next; the number of bytes that follow, none at the end.
    async fn ask(&self, line: &mut Line, run: &str, name: &str) -> Result<usize> {
        let (run, name) = (run.to_owned(), name.to_owned());
        let call = Call::Fetch { run, name, offset: self.offset };
        let heard = answered(async {
            say(line, &call).await?;
            hear(line).await
        });
        match heard.await? {
            Reply::Refused(why) => bail!("{why}"),
            Reply::Follows(len) if usize::try_from(len)? <= CHUNK => Ok(usize::try_from(len)?),
            _ => bail!("no bytes"),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let written = self.file.write_all(bytes);
        written.with_context(|| format!("cannot write {}", self.path.display()))?;
        self.offset += bytes.len() as u64;
        Ok(())
    }

    /// Gives it its name, which an earlier attempt may have given already.
    fn keep(&self, log: &Path) -> Result<()> {
        fs::rename(&self.path, log).with_context(|| format!("cannot write {}", log.display()))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // It has its name, and is not there under this one.
        fs::remove_file(&self.path).unwrap_or_default();
    }
}

/// Largest lateness of the first packets of those flows of a log that began with the run, in
/// nanoseconds, and the number of these flows.
pub(crate) fn start_lateness(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut epochs = BTreeMap::new();
    let mut first: BTreeMap<u32, u64> = BTreeMap::new();
    for item in LogReader::new(bytes) {
        match item {
            Item::Note { note: Note::Flow(info), .. } => {
                epochs.insert(info.index, info.epoch_unix_ns);
            }
            Item::Records { records, .. } => {
                for record in records.packed().records() {
                    if record.kind != Kind::Sent || record.seq != 0 {
                        continue;
                    }
                    if let Some(epoch) = epochs.get(&record.flow) {
                        let due = epoch.saturating_add(record.a);
                        let late = record.b.saturating_sub(due);
                        first.entry(record.flow).or_insert(late);
                    }
                }
                if first.len() == epochs.len() && !first.is_empty() {
                    break;
                }
            }
            _ => {}
        }
    }
    Some((*first.values().max()?, first.len()))
}
