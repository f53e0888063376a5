//! Complaints on stderr, under the name of the program.

use std::fmt::Display;

use itg_cli::say;
use itg_files::Bytes;

/// Name of the program, before its words.
pub(crate) const PROGRAM: &str = "itg-decode";

/// Reports an error, also with `-q`.
pub(crate) fn complain(what: impl Display) {
    say(format_args!("{PROGRAM}: {what}"));
}

/// Names the files that were shortened while they were read; returns true if there are any.
pub(crate) fn complain_of_lost(files: &[(String, Bytes)]) -> bool {
    let lost = files.iter().filter_map(|(name, bytes)| Some((name, bytes.lost()?)));
    lost.map(|(name, at)| {
        complain(format_args!(
            "{name}: it was shortened, or could not be read, while it was decoded: nothing is known from byte {at} on"
        ));
    })
    .count()
        > 0
}
