//! `itg-log seal`: rewrites logs with their records in column blocks, or back.

use std::fs::{self, File};
use std::io::{BufWriter, Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Args;
use itg_cli::{WordArgs, refuse, say};
use itg_record::{compact, expand};

/// Arguments of `seal`.
#[derive(Debug, Args)]
pub(crate) struct SealArgs {
    /// Logs; each is replaced when its new form is complete on the disk
    #[arg(required = true, value_name = "LOG")]
    logs: Vec<PathBuf>,
    /// The other way: back to plain records
    #[arg(long)]
    undo: bool,
}

/// Rewrites each log next to itself, then puts the new file in its place.
pub(crate) fn run(args: &SealArgs, words: WordArgs) -> Result<ExitCode> {
    for path in &args.logs {
        let name = path.display();
        let bytes = read(path).with_context(|| format!("log {name}"))?;
        let (before, records, after) = rewrite(path, &bytes, args.undo)
            .with_context(|| format!("log {name} stays as it was"))?;
        if !words.quiet {
            let each = if records > 0 { after.checked_div(records).unwrap_or(0) } else { 0 };
            say(format_args!(
                "{name}: {records} records, {before} bytes before, {after} after (about {each} a record)"
            ));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Bytes of a hole that a log has in no case: 1 MiB.
const HOLE: u64 = 1 << 20;

/// The bytes of a file; neither a pipe, which might let wait, nor space that was never written.
fn read(path: &Path) -> Result<Vec<u8>> {
    let mut file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(refuse("it is no log of ITG: it is no file"));
    }
    if let Some(hole) = itg_socket::first_hole(&file, HOLE) {
        return Err(refuse(format!(
            "{} bytes from byte {} on were never written: `itg-decode` tells what is there",
            hole.end - hole.start,
            hole.start
        )));
    }
    // Where the file was looked at.
    file.rewind()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn rewrite(path: &Path, bytes: &[u8], undo: bool) -> Result<(u64, u64, u64)> {
    let mut name = path.as_os_str().to_owned();
    name.push(".sealing");
    let scratch = PathBuf::from(name);
    let done = (|| {
        let mut out = BufWriter::with_capacity(1 << 20, File::create(&scratch)?);
        let mut pieces = if undo { expand(bytes) } else { compact(bytes) };
        let mut after = 0;
        for piece in &mut pieces {
            out.write_all(&piece)?;
            after += piece.len() as u64;
        }
        if pieces.blocks() == 0 {
            return Err(refuse("it is no log of ITG: there is no block in it"));
        }
        let records = pieces.records();
        out.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_all()?;
        fs::rename(&scratch, path)?;
        Ok((bytes.len() as u64, records, after))
    })();
    if done.is_err() {
        // Nothing is there when it could not be created.
        fs::remove_file(&scratch).unwrap_or_default();
    }
    done
}
