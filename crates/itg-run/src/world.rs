//! A world: where an experiment runs.
//!
//! This host, agents, the ranks of a job and virtual time differ in how flows are sent and received, and in where the
//! logs are made. A world does that and no more: it hands over logs and accounts, and knows nothing of the report. The
//! steps that are the same in all of them stand in [`crate::steps`].

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Result;
use itg_cli::{Loaded, WordArgs, refuse};
use itg_experiment::Manifest;

use crate::events::Events;
use crate::options::GateOptions;

/// World in which experiments run.
pub trait World {
    /// Name of the world, as manifests and sweeps keep it.
    fn name(&self) -> &'static str;

    /// Options that decide how it carries out runs, beside the experiment, as words of a command line: a sweep goes on
    /// only where they are equal, and a replay takes them over.
    fn options(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns true if a run of the same plan is the same run, so that there is no sense in repeating one that failed.
    fn is_deterministic(&self) -> bool {
        false
    }

    /// Refuses an experiment that cannot run there, as far as that is known before it begins.
    ///
    /// # Errors
    /// A reason against it.
    fn check(&self, loaded: &Loaded) -> Result<()> {
        loaded.plan.check_ends().map_err(refuse)
    }

    /// Makes ready for one run. Nothing is written yet.
    ///
    /// # Errors
    /// Something is missing.
    fn prepare<'a>(&'a self, loaded: &'a mut Loaded) -> Result<Box<dyn Prepared + 'a>>;
}

/// Run that its world is ready for.
pub trait Prepared {
    /// The experiment.
    fn loaded(&self) -> &Loaded;

    /// Address of the receiver of all flows, where there is one that this host sends to.
    fn receiver(&self) -> Option<SocketAddr> {
        None
    }

    /// Manifest with which the run began, where that was before and elsewhere.
    fn begun(&self) -> Option<&Manifest> {
        None
    }

    /// Facts about the world for the manifest, beside its name.
    fn settings(&self) -> Vec<(&'static str, String)>;

    /// Returns true if the manifest is written at the beginning, so that a run that fails occupies its directory; else it is
    /// written at the end.
    fn writes_manifest_first(&self) -> bool {
        true
    }

    /// Sends and receives, and leaves the logs in the directory of the run.
    ///
    /// # Errors
    /// The run has left nothing to report.
    fn carry_out(
        self: Box<Self>,
        output: &Output,
        manifest: &Manifest,
        words: WordArgs,
    ) -> Result<Outcome>;
}

/// Destination of the results of a run.
#[derive(Clone, Debug)]
pub struct Output {
    /// The directory of the run.
    pub dir: PathBuf,
    /// True if the report is printed, too.
    pub print: bool,
    /// Destination of the events.
    pub events: Events,
    /// True if the run is shown on a terminal.
    pub live: bool,
    /// Gates of the command line, and the form of the report.
    pub gates: GateOptions,
}

/// Outcome of a run in its world.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The logs, of all sides.
    pub logs: Vec<PathBuf>,
    /// The exit code that the run asks for; where that is 0 a gate may ask for another one.
    pub code: u8,
    /// Reason that the run did not end well; none when it did.
    pub interrupted: Option<String>,
    /// Facts about the run for the manifest.
    pub settings: BTreeMap<String, String>,
    /// First lines of the report's text.
    pub heading: String,
    /// Events of the run in words: the end of the report's text, and a file of its own.
    pub story: Option<String>,
    /// Failures, a line each: said in any case.
    pub failures: Vec<String>,
    /// Accounts of packets sent and received.
    pub accounts: Vec<String>,
    /// The same of many flows in few lines, for those who have not asked for all.
    pub accounts_in_short: Vec<String>,
    /// Reason that the logs lack records: the run has failed then.
    pub log_error: Option<String>,
}

/// Reason that a run did not end well: it was stopped, one of these errors, or its exit code; none
/// when it did.
pub fn why(
    stopped: Option<String>,
    mut errors: impl Iterator<Item = String>,
    code: u8,
) -> Option<String> {
    stopped.or_else(|| errors.next()).or_else(|| (code != 0).then(|| format!("exit code {code}")))
}

/// Facts about this host that a run may depend on, for the manifest.
pub(crate) fn host_settings() -> [(&'static str, String); 5] {
    use itg_socket::host;
    [
        ("host", host::name()),
        ("os", host::os()),
        ("processors", host::processors()),
        ("governor", host::governors()),
        ("qdisc", host::queueing_disciplines()),
    ]
}

#[cfg(test)]
mod tests {
    use super::why;

    #[test]
    fn a_run_that_fails_says_why() {
        let text = |text: &str| Some(text.to_owned());
        for (stopped, errors, code, want) in [
            (None, &[][..], 0, None),
            (text("SIGINT"), &["a log"], 130, text("SIGINT")),
            (None, &["a log", "a flow"], 0, text("a log")),
            (None, &[], 4, text("exit code 4")),
        ] {
            let errors = errors.iter().map(|error| (*error).to_owned());
            assert_eq!(why(stopped, errors, code), want);
        }
    }
}
