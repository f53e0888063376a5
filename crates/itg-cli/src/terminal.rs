//! The terminal at stderr, for what is drawn there.

use std::io::{IsTerminal as _, stderr};

/// Columns of the terminal at stderr, where something can be drawn: not in a file or a pipe, not where the environment
/// says that it is `dumb`, and not on one without any size, as `script` makes it.
#[must_use]
pub fn drawing_columns() -> Option<usize> {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    if dumb || !stderr().is_terminal() {
        return None;
    }
    terminal_size::terminal_size_of(stderr()).map(|(columns, _)| usize::from(columns.0))
}
