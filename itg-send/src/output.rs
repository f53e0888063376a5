//! Text on stdout.

use anyhow::Result;
use itg_core::text::visible_lines;

pub(crate) fn print(text: &str) -> Result<()> {
    use std::io::Write as _;
    match std::io::stdout().write_all(visible_lines(text).as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
