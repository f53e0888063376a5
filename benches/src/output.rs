//! Lines on stdout.

/// A line about a bar.
pub(crate) fn verdict(good: bool, what: &str) -> String {
    format!("{}  {what}", if good { "HOLDS  " } else { "DIFFERS" })
}

/// Writes a line (or several) to stdout; a reader that has gone is no failure.
pub(crate) fn print(text: impl std::fmt::Display) {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).unwrap_or_default();
}
