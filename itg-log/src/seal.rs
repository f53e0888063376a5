//! `itg-log seal`: rewrites logs with their records in column blocks, or back.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Args;
use itg_cli::{WordArgs, say};
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
        let bytes = fs::read(path).with_context(|| format!("log {name}"))?;
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
