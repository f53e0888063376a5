//! Logs of runs that an agent keeps: listed, and handed out.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use super::Agent;
use crate::collect::is_log;
use crate::description::Description;
use crate::run_dir::{DESCRIPTION, LogState, kept_runs, run_dir};
use crate::wire::{CHUNK, KeptRun, Logs, Reply};

impl Agent {
    /// State of the logs of a run in this directory.
    async fn logs(&self, run: &str, dir: &Path) -> Logs {
        match (self.handle().await.filter(|(id, _)| id == run), LogState::read(dir)) {
            (Some((_, handle)), _) => handle.seen().logs(),
            (None, Some(LogState::Closed)) => Logs::Closed,
            (None, Some(LogState::Abandoned)) => Logs::Abandoned,
            (None, Some(LogState::Open) | None) => Logs::Unknown,
        }
    }

    /// The runs whose descriptions are kept here.
    pub(super) async fn runs(&self) -> Result<Vec<KeptRun>> {
        let mut kept = Vec::new();
        for (run, dir) in kept_runs(&self.dir)? {
            let Ok(bytes) = fs::read(dir.join(DESCRIPTION)) else { continue };
            let Ok(Description { manifest, .. }) = Description::read(&bytes) else { continue };
            let state = self.logs(&run, &dir).await;
            let (name, started_unix_ns) = (manifest.name, manifest.started_unix_ns);
            kept.push(KeptRun { run, name, started_unix_ns, state });
        }
        Ok(kept)
    }

    /// The logs of a run, and their state; those of earlier incarnations are among them.
    pub(super) async fn list(&self, run: &str) -> Reply {
        let Some(dir) = run_dir(&self.dir, run) else {
            return Reply::Refused("the name of the run makes no sense".to_owned());
        };
        let present = self.handle().await.filter(|(id, _)| id == run);
        let trouble = present.as_ref().and_then(|(_, handle)| handle.seen().trouble.clone());
        let state = self.logs(run, &dir).await;
        let mut files = BTreeMap::new();
        if let Ok(entries) = fs::read_dir(dir) {
            for entry in entries.flatten() {
                if let (Ok(name), Ok(facts)) = (entry.file_name().into_string(), entry.metadata())
                    && is_log(&name)
                {
                    files.insert(name, facts.len());
                }
            }
        }
        Reply::Files { files, state, trouble }
    }

    /// Some bytes of a log, or of the description.
    pub(super) fn fetch(&self, run: &str, name: &str, offset: u64) -> Result<Vec<u8>> {
        let dir = run_dir(&self.dir, run).context("the name of the run makes no sense")?;
        if !is_log(name) && name != DESCRIPTION {
            bail!("`{name}` is no log");
        }
        let mut file = fs::File::open(dir.join(name))?;
        file.seek(SeekFrom::Start(offset))?;
        let mut bytes = Vec::new();
        file.take(CHUNK as u64).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}
