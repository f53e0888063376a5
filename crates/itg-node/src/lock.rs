//! Locks whose holder may have panicked.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex; what a task that panicked has left in it is used as it is.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
