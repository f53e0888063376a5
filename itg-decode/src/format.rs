//! Formats of the output.

use clap::ValueEnum;

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A table of the flows, and what a reader has to know beside it; with -v all details.
    Text,
    /// All details, as ITGDec lays them out.
    Itgdec,
    /// A table in Markdown with what the gates found, for the summaries of CI systems.
    Markdown,
    /// One JSON object.
    Json,
    /// One JSON object a line: flows, windows, damage, total.
    Ndjson,
    /// One line a flow; with --interval one a window.
    Csv,
    /// Columns of packets or windows (Apache Parquet); needs --output, and --packets or --interval.
    Parquet,
    /// A script of GNU Octave and MATLAB that defines matrices: flows; with --interval windows; with
    /// --packets packets.
    Octave,
    /// Rate and delay of each flow over time as a data file of flent; needs --interval (flent's own is 200ms).
    Flent,
    /// A binary log of D-ITG, one record a packet, for ITGDec; of one run.
    Ditg,
}
