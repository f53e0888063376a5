//! Latest figures of a rank on their way to rank 0: the latest alone, since they stand for all before.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use itg_mpi::{InFlight, Job, tag};

use crate::figures::Figures;

/// The latest figures that have not been taken yet; clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Latest(Arc<Mutex<Option<Figures>>>);

impl Latest {
    fn inner(&self) -> MutexGuard<'_, Option<Figures>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Newer ones.
    pub(super) fn put(&self, figures: Figures) {
        *self.inner() = Some(figures);
    }

    /// Takes them.
    pub(super) fn take(&self) -> Option<Figures> {
        self.inner().take()
    }
}

/// Sends them to rank 0, one after the other.
#[derive(Debug, Default)]
pub(super) struct Sharing(Option<InFlight<Bytes>>);

impl Sharing {
    /// Does what can be done now; whether that was anything.
    pub(super) fn step(&mut self, job: &Job, latest: &Latest) -> bool {
        self.0 = self.0.take().and_then(|sending| sending.test().err());
        if self.0.is_some() {
            return false;
        }
        let Some(figures) = latest.take() else { return false };
        self.0 = Some(job.send(0, tag::FIGURES, figures.to_bytes()));
        true
    }

    /// Returns true if all is sent.
    pub(super) fn is_over(&self, latest: &Latest) -> bool {
        self.0.is_none() && latest.inner().is_none()
    }
}
