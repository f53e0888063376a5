//! Experiment that the master sends in step 3 when processes are made of layers: the configuration.

use itg_core::seed::RunSeed;
use itg_core::text::ConfigError;
use serde::{Deserialize, Serialize};

use crate::bootstrap::{BootError, decode, encode};
use crate::config::Config;

/// A configuration on its way, with everything that is not in its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Application {
    /// Name of the file, for messages.
    pub origin: String,
    /// The file.
    pub text: String,
    /// The seed of the run, whether the file names one or not.
    pub seed: u64,
    /// Kind of all networks instead of those of the file.
    pub network: Option<String>,
}

impl Application {
    /// The configuration, with all networks of another kind when that was asked for.
    ///
    /// # Errors
    /// The first error of the text, with file, line and key.
    pub fn config(&self) -> Result<Config, ConfigError> {
        let mut config = Config::parse(&self.text, &self.origin)?;
        if let Some(kind) = &self.network {
            config.set_networks(kind);
        }
        Ok(config)
    }

    /// The seed.
    #[must_use]
    pub const fn seed(&self) -> RunSeed {
        RunSeed(self.seed)
    }

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// Reads the bytes that [`Application::encode`] wrote.
    ///
    /// # Errors
    /// Bytes that are not exactly one application.
    pub fn decode(bytes: &[u8]) -> Result<Self, BootError> {
        decode(bytes)
    }
}
