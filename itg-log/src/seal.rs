//! `itg-log seal`: rewrites logs with their records in column blocks, or back.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Args;
use itg_cli::{WordArgs, refuse, say};
use itg_engine::open_locked;
use itg_record::{Cause, Item, LogReader, compact, expand};

/// Arguments of `seal`.
#[derive(Debug, Args)]
pub(crate) struct SealArgs {
    /// Logs that have their end; each is replaced when its new form is complete on the disk, and keeps its rights.
    /// One that a program is writing is refused
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
        let (file, bytes) = read(path).with_context(|| format!("log {name} stays as it was"))?;
        let (before, records, after) = rewrite(path, (&file, &bytes), args.undo)
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

/// First bytes of each log.
const MAGIC: &[u8] = b"XPC1";
/// Bytes of a hole that a log has in no case: 1 MiB.
const HOLE: u64 = 1 << 20;

/// A file, locked, and its bytes; neither a pipe, which might let wait, nor space that was never written, nor a log that
/// has no end yet.
fn read(path: &Path) -> Result<(File, Vec<u8>)> {
    // Who may not write to it may not replace it either.
    let open = || File::options().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path);
    let mut file = open_locked(path, open).map_err(|error| match error.kind() {
        io::ErrorKind::ResourceBusy => refuse(error),
        _ => error.into(),
    })?;
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
    if let Some(why) = unended(&bytes) {
        return Err(refuse(why));
    }
    Ok((file, bytes))
}

/// The reason why a log is not complete, if it is not.
fn unended(bytes: &[u8]) -> Option<String> {
    LogReader::new(bytes).find_map(|item| match item {
        Item::Damage(damage) if damage.cause == Cause::NotClosed => Some(damage.reason),
        _ => None,
    })
}

/// A new file beside a log, with its rights; what a killed `seal` left there is removed.
fn scratch_file(scratch: &Path, log: &File) -> io::Result<File> {
    let create =
        || File::options().create_new(true).read(true).write(true).mode(0o600).open(scratch);
    let made = match create() {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && is_ours(scratch)? => {
            fs::remove_file(scratch)?;
            create()
        }
        made => made,
    };
    let made = made
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", scratch.display())))?;
    let there = log.metadata()?;
    // Only root may give a file away.
    drop(std::os::unix::fs::fchown(&made, Some(there.uid()), Some(there.gid())));
    made.set_permissions(there.permissions())?;
    Ok(made)
}

/// Returns true if a file is empty or begins as a log does.
fn is_ours(path: &Path) -> io::Result<bool> {
    let mut head = Vec::new();
    let file =
        File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW).open(path)?;
    file.take(MAGIC.len() as u64).read_to_end(&mut head)?;
    Ok(head.is_empty() || head == MAGIC)
}

fn rewrite(path: &Path, (log, bytes): (&File, &[u8]), undo: bool) -> Result<(u64, u64, u64)> {
    // Where the name is a link, what it leads to is replaced.
    let path = &fs::canonicalize(path)?;
    let mut name = path.as_os_str().to_owned();
    name.push(".sealing");
    let scratch = PathBuf::from(name);
    let made = scratch_file(&scratch, log)?;
    let done = (|| {
        let mut out = BufWriter::with_capacity(1 << 20, made);
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
        out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        fs::rename(&scratch, path)?;
        Ok((bytes.len() as u64, records, after))
    })();
    if done.is_err() {
        // Nothing is there when it could not be created.
        fs::remove_file(&scratch).unwrap_or_default();
    }
    done
}
