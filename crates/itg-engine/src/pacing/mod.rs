//! Pacing of the sending thread: the ladder of ways to wait for a deadline.
//!
//! Each level buys precision with processor time. `sleep` gives the thread up until the deadline and
//! takes the kernel's wake-up error (tens of µs). `hybrid` sleeps to a guard before the deadline and
//! spins the rest; the guard is learned from the wake-ups themselves. `spin` never sleeps. `txtime` leaves the
//! deadlines to the kernel (see [`itg_socket::txtime`]) and sleeps until some time before them.
//! Whatever the level, deadlines are absolute: an error moves one packet and no other.

mod calibrate;
mod host;
mod options;
mod waiter;

pub use self::calibrate::{PrecisionError, WakeErrors, calibrate, choose};
pub use self::host::{Grant, Prepared};
pub use self::options::{Level, PacingOptions};
pub use self::waiter::Waiter;
