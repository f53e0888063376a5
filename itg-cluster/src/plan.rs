//! `itg-cluster plan FILE`: what an experiment will send and log, and which wishes cannot be met.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use itg_cli::LoadArgs;

use crate::print;

/// Arguments of `plan`.
#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    load: LoadArgs,
    /// Form of the answer
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Form of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A table
    Text,
    /// One JSON object; keys carry their units, what is unlimited is null
    Json,
}

/// Prints the plan on stdout.
pub(crate) fn run(args: &PlanArgs) -> Result<ExitCode> {
    let plan = itg_cli::load(&args.load)?.plan;
    let answer = match args.format {
        Format::Text => plan.render(),
        Format::Json => {
            let json = serde_json::to_string_pretty(&plan.to_json()).context("plan as JSON")?;
            json + "\n"
        }
    };
    print(&answer)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_estimate_knows_the_length_of_a_record() {
        assert_eq!(itg_experiment::LOG_BYTES_PER_RECORD as usize, itg_record::RECORD_LEN);
    }
}
