//! Tickets on disk: the incarnation of a ticket is written, and lasts, before it is used.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Result;
use itg_cli::{read_text, refuse};
use itg_process::bootstrap::Ticket;

/// A ticket with which a process returns.
#[derive(Debug)]
pub(crate) struct TicketFile {
    path: PathBuf,
    /// The incarnation that this process has written.
    taken: Option<u64>,
}

impl TicketFile {
    /// Reads a ticket.
    pub(crate) fn open(path: &Path) -> Result<(Self, Ticket)> {
        let origin = path.display();
        let text = read_text(path)
            .map_err(|error| refuse(format!("cannot read ticket `{origin}`: {error}")))?;
        let ticket = text.parse().map_err(|error| refuse(format!("{origin}: {error}")))?;
        Ok((Self { path: path.to_owned(), taken: None }, ticket))
    }

    /// Writes the ticket of a later incarnation, or of the one that this process has.
    ///
    /// # Errors
    /// Another process has taken this incarnation or a later one; the file cannot be written.
    pub(crate) fn advance(&mut self, ticket: &Ticket) -> io::Result<()> {
        let dir = directory(&self.path)?;
        // Two processes may return with one ticket at once.
        dir.lock()?;
        let there = fs::read_to_string(&self.path)?.parse::<Ticket>().ok();
        let there = there.filter(|there| (there.run, there.slot) == (ticket.run, ticket.slot));
        if let Some(there) = there
            && there.incarnation >= ticket.incarnation
            && Some(there.incarnation) != self.taken
        {
            let reason = format!("another process has taken incarnation {}", there.incarnation);
            return Err(io::Error::new(ErrorKind::AlreadyExists, reason));
        }
        write(&self.path, ticket)?;
        self.taken = Some(ticket.incarnation);
        Ok(())
    }
}

/// Writes a ticket in one step that lasts: the old one or the new one is there, also after a loss of power.
pub(crate) fn write(path: &Path, ticket: &Ticket) -> io::Result<()> {
    let mut fresh = OsString::from(path);
    fresh.push(".new");
    let mut file = File::create(&fresh)?;
    if let Ok(old) = fs::metadata(path) {
        file.set_permissions(old.permissions())?;
    }
    file.write_all(ticket.to_string().as_bytes())?;
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    directory(path)?.sync_all()
}

fn directory(path: &Path) -> io::Result<File> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or_else(|| Path::new(".")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incarnation_is_taken_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("ticket");
        let first = Ticket { run: 7, slot: 1, incarnation: 1, addresses: vec![Vec::new(); 2] };
        write(&path, &first).expect("written");
        let (mut one, read) = TicketFile::open(&path).expect("read");
        let (mut other, _) = TicketFile::open(&path).expect("read");
        assert_eq!(read, first);
        let later = |incarnation| Ticket { incarnation, ..first.clone() };
        one.advance(&later(2)).expect("taken");
        let taken = other.advance(&later(2)).expect_err("it is taken");
        assert_eq!(taken.to_string(), "another process has taken incarnation 2");
        other.advance(&later(3)).expect("a later one");
        assert!(one.advance(&later(2)).is_err(), "it has been replaced");
        assert_eq!(TicketFile::open(&path).expect("read").1, later(3));
        // Nothing is left beside it.
        assert_eq!(fs::read_dir(dir.path()).expect("a directory").count(), 1);
    }
}
