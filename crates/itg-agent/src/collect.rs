//! The logs of all nodes: fetched, and asked how well the start was kept.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use itg_record::{Item, Kind, LogReader, Note};
use tokio::time::Instant;

use crate::member::greet;
use crate::trust::{Line, Trust};
use crate::wire::{Call, Logs, Reply, ask};

/// Time between two questions to a node about its logs.
const AGAIN: Duration = Duration::from_millis(50);
/// An agent that was started again has this time to hear of the run.
const TOLD: Duration = Duration::from_secs(3);

/// Time that a node is waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Until it is done.
    pub(crate) limit: Duration,
    /// Until an agent that is not reached is there again.
    pub(crate) back: Duration,
}

/// Waits until a node sends nothing any more (`closed`: until its logs are complete), also while its agent is started
/// again.
pub(crate) async fn wait(
    trust: &Trust,
    address: &str,
    run: &str,
    closed: bool,
    patience: Patience,
) -> Result<()> {
    let began = Instant::now();
    let mut reached = began;
    loop {
        match wait_on_line(trust, address, run, closed, (began, patience.limit), &mut reached).await
        {
            Ok(done) => return done.map_err(anyhow::Error::msg),
            Err(error) if reached.elapsed() > patience.back => return Err(error),
            Err(error) if began.elapsed() > patience.limit => return Err(error),
            Err(_) => tokio::time::sleep(AGAIN).await,
        }
    }
}

/// The same on one connection; its failure is an error, what the agent says is not. Notes when it was reached.
async fn wait_on_line(
    trust: &Trust,
    address: &str,
    run: &str,
    closed: bool,
    (began, limit): (Instant, Duration),
    reached: &mut Instant,
) -> Result<Result<(), String>> {
    let mut line = trust.connect(address).await?;
    greet(&mut line).await?;
    let first = Instant::now();
    loop {
        let Reply::Files { state, trouble, .. } =
            ask(&mut line, &Call::List(run.to_owned())).await?
        else {
            bail!("no list of logs");
        };
        *reached = Instant::now();
        let why = match state {
            Logs::Closed => return Ok(trouble.map_or(Ok(()), Err)),
            Logs::Drained if !closed => return Ok(Ok(())),
            Logs::Abandoned => {
                "the agent has left the run: another one took it, or nobody was connected"
            }
            Logs::Unknown if first.elapsed() > TOLD => {
                "the agent does not know the run: it was started again, and nobody has told it"
            }
            _ if began.elapsed() > limit => {
                return Ok(Err(format!("not done after {} s", limit.as_secs())));
            }
            Logs::Open | Logs::Drained | Logs::Unknown => {
                tokio::time::sleep(AGAIN).await;
                continue;
            }
        };
        return Ok(Err(why.to_owned()));
    }
}

/// Fetches the logs of a node into a directory; returns their paths.
pub(crate) async fn fetch(
    trust: &Trust,
    address: &str,
    run: &str,
    dir: &Path,
) -> Result<Vec<PathBuf>> {
    let mut line = trust.connect(address).await?;
    greet(&mut line).await?;
    let Reply::Files { files, .. } = ask(&mut line, &Call::List(run.to_owned())).await? else {
        bail!("no list of logs");
    };
    fs::create_dir_all(dir).with_context(|| format!("directory {}", dir.display()))?;
    let mut paths = Vec::new();
    for name in files.keys() {
        // What comes from another host names nothing outside of the directory.
        let name = Path::new(name).file_name().context("a log without a name")?;
        let name = name.to_string_lossy().into_owned();
        if !is_log(&name) {
            bail!("it offers `{name}`, which is no log");
        }
        let path = dir.join(&name);
        let partial = Partial::create(&path)?;
        let fetched = partial.fetch(&mut line, run, &name).await?;
        if fetched > 0 {
            partial.keep(&path)?;
            paths.push(path);
        }
    }
    Ok(paths)
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
}

impl Partial {
    fn create(log: &Path) -> Result<Self> {
        let path = log.with_added_extension("fetching");
        let file = fs::OpenOptions::new().create_new(true).write(true).open(&path);
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { path, file })
    }

    /// Fetches the bytes; their number.
    async fn fetch(&self, line: &mut Line, run: &str, name: &str) -> Result<u64> {
        let mut offset = 0;
        loop {
            let call = Call::Fetch { run: run.to_owned(), name: name.to_owned(), offset };
            let Reply::Bytes(bytes) = ask(line, &call).await? else { bail!("no bytes") };
            if bytes.is_empty() {
                return Ok(offset);
            }
            let mut file = &self.file;
            let written = file.write_all(&bytes);
            written.with_context(|| format!("cannot write {}", self.path.display()))?;
            offset += bytes.len() as u64;
        }
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
