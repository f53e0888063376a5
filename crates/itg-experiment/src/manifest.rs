//! Manifest of a run, with which it can be done again: the experiment as it was written, every file
//! and profile it used, the seed, and the hash that the repeated plan must have.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::plan::Plan;

/// Version of the manifest.
pub const MANIFEST_SCHEMA: u32 = 1;

/// The manifest of a run, a JSON document.
///
/// [`Plan::resolve`] on `experiment` with `seed`, `duration_ns`, `profiles` and `files` gives a plan
/// of hash `plan` again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Version of the manifest, 1.
    pub schema: u32,
    /// Name of the experiment.
    pub name: String,
    /// The run seed in force.
    pub seed: u64,
    /// Hash of the plan, 16 hexadecimal digits.
    pub plan: String,
    /// Name of the experiment file.
    pub origin: String,
    /// Text of the experiment file.
    pub experiment: String,
    /// Duration from the command line that replaced the file's, in nanoseconds.
    pub duration_ns: Option<u64>,
    /// Files that the experiment names, by name.
    pub files: BTreeMap<String, String>,
    /// Profiles that were used, by name.
    pub profiles: BTreeMap<String, String>,
    /// Version of the program.
    pub version: String,
    /// Start of the run, Unix time in nanoseconds.
    pub started_unix_ns: u64,
    /// Settings of the program and facts about the host, for readers.
    pub settings: BTreeMap<String, String>,
}

impl Manifest {
    /// The manifest of a plan that was made of an experiment file `text` named `origin`, with the
    /// duration from the command line if one was given.
    #[must_use]
    pub fn new(plan: &Plan, origin: &str, text: &str, duration_ns: Option<u64>) -> Self {
        Self {
            schema: MANIFEST_SCHEMA,
            name: plan.name.clone(),
            seed: plan.seed.0,
            plan: plan.hash_text(),
            origin: origin.to_owned(),
            experiment: text.to_owned(),
            duration_ns,
            files: plan.files.clone(),
            profiles: plan.profiles.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_unix_ns: 0,
            settings: BTreeMap::new(),
        }
    }

    /// Adds when the run started (Unix time in nanoseconds).
    #[must_use]
    pub fn started(mut self, unix_ns: u64) -> Self {
        self.started_unix_ns = unix_ns;
        self
    }

    /// Adds a setting.
    #[must_use]
    pub fn setting(mut self, key: &str, value: impl Into<String>) -> Self {
        self.settings.insert(key.to_owned(), value.into());
        self
    }

    /// The JSON document, with a newline at its end.
    #[must_use]
    #[expect(clippy::missing_panics_doc, reason = "texts and numbers always have a JSON form")]
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("texts and numbers");
        text.push('\n');
        text
    }

    /// Reads a manifest.
    ///
    /// # Errors
    /// The text is not a manifest, or one of another version.
    pub fn parse(text: &str) -> Result<Self, ManifestError> {
        #[derive(Deserialize)]
        struct Version {
            schema: u32,
        }
        let Version { schema } = serde_json::from_str(text)?;
        if schema != MANIFEST_SCHEMA {
            return Err(ManifestError::Version(schema));
        }
        Ok(serde_json::from_str(text)?)
    }
}

/// A manifest that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// Not JSON, or keys are missing, unknown or of the wrong kind.
    #[error("not a manifest: {0}")]
    Json(#[from] serde_json::Error),
    /// Written by another version of the program.
    #[error("manifest of schema {0} is not known: this program reads schema {MANIFEST_SCHEMA}")]
    Version(u32),
}
