//! When keys expire, told before they do.

use std::time::Duration;

use itg_socket::clock;
use rustls::CertificateError;
use rustls::pki_types::{CertificateDer, UnixTime};

use crate::keys::{KeyDir, Keys};

/// Days before the end on which it is told.
const WARN_DAYS: u64 = 14;
/// Seconds of a day.
const DAY: u64 = 86_400;
/// Seconds in which an end is looked for: 100 years.
const HORIZON: u64 = 100 * 365 * DAY;

impl Keys {
    /// Seconds from this Unix time until a certificate of our own chain, or its authority's, expires; `None` beyond a
    /// century.
    ///
    /// The check that other nodes make is asked by bisection: it has seen the whole chain.
    fn seconds_left(&self, now: u64) -> Option<u64> {
        let expired = |seconds: u64| {
            let at = UnixTime::since_unix_epoch(Duration::from_secs(now.saturating_add(seconds)));
            let (own, above): (_, &[CertificateDer<'_>]) = self.chain().split_first()?;
            Some(matches!(
                self.verify(own, above, at),
                Err(rustls::Error::InvalidCertificate(
                    CertificateError::Expired | CertificateError::ExpiredContext { .. }
                ))
            ))
        };
        let (mut good, mut bad) = (0, HORIZON);
        if expired(good)? {
            return Some(0);
        }
        if !expired(bad)? {
            return None;
        }
        while bad - good > 1 {
            let middle = good + (bad - good) / 2;
            match expired(middle)? {
                true => bad = middle,
                false => good = middle,
            }
        }
        Some(bad)
    }
}

impl KeyDir {
    /// Whole days until our own keys, or their authority's, expire; `None` beyond a century.
    #[must_use]
    pub fn days_left(&self) -> Option<u64> {
        let left = self.keys().seconds_left(clock::unix_ns() / 1_000_000_000)?;
        Some(left / DAY)
    }

    /// Says that the keys expire soon, from 14 days before on.
    pub fn warn_of_expiry(&self) {
        let Some(days) = self.days_left().filter(|days| *days < WARN_DAYS) else { return };
        let when = match days {
            0 => "in less than a day".to_owned(),
            1 => "in 1 day".to_owned(),
            days => format!("in {days} days"),
        };
        tracing::warn!(
            "keys in {} expire {when}: `itg-cluster keys renew`, or new ones of the cluster, go on",
            self.dir().display()
        );
    }
}
