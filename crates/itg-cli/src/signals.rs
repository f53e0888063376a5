//! SIGINT and SIGTERM: the first one drains and reports, the second one ends at once. SIGHUP is one more of them, unless
//! it was ignored when the program was started (`nohup`); to programs that serve it says that their logs may have been
//! moved away.

use std::io::{self, Read as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// Watches for the signals that end a program.
#[derive(Clone, Debug)]
pub struct Signals {
    /// Holds a reason once the program should end.
    pub stop: watch::Receiver<Option<String>>,
    /// Number of times that logs were to be opened anew.
    hangups: watch::Receiver<u64>,
    code: Arc<AtomicU8>,
}

/// Bit of SIGHUP in the mask of signals that a process ignores.
const HANGUP_BIT: u64 = 1;

/// Returns true if this process was started with SIGHUP ignored.
fn hangup_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & HANGUP_BIT != 0)
}

impl Signals {
    /// The same signals, with another place that holds a reason to end.
    #[must_use]
    pub fn ended_by(&self, stop: watch::Receiver<Option<String>>) -> Self {
        Self { stop, ..self.clone() }
    }

    /// Starts watching; must be called within a tokio runtime.
    ///
    /// # Errors
    /// When the system refuses to tell about signals.
    pub fn watch() -> io::Result<Self> {
        Self::start(false)
    }

    /// The same for a program that serves, which opens its logs anew at SIGHUP ([`Self::at_hangup`]).
    ///
    /// # Errors
    /// As [`Self::watch`].
    pub fn watch_serving() -> io::Result<Self> {
        Self::start(true)
    }

    /// Calls `reopen` at each SIGHUP, on a thread that may wait, until it returns false.
    pub fn at_hangup(&self, reopen: impl Fn() -> bool + Send + Sync + 'static) {
        let mut hangups = self.hangups.clone();
        let reopen = Arc::new(reopen);
        tokio::spawn(async move {
            while hangups.changed().await.is_ok() {
                let reopen = Arc::clone(&reopen);
                if !tokio::task::spawn_blocking(move || reopen()).await.unwrap_or(false) {
                    return;
                }
            }
        });
    }

    fn start(serves: bool) -> io::Result<Self> {
        let ends = !serves && !hangup_is_ignored();
        let mut hangup = (serves || ends).then(|| signal(SignalKind::hangup())).transpose()?;
        let (hung_up, hangups) = watch::channel(0);
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let (tell, stop) = watch::channel(None);
        let code = Arc::new(AtomicU8::new(0));
        let seen = Arc::clone(&code);
        tokio::spawn(async move {
            loop {
                let (name, number) = tokio::select! {
                    Some(()) = interrupt.recv() => ("SIGINT", 130),
                    Some(()) = terminate.recv() => ("SIGTERM", 143),
                    Some(()) = next(&mut hangup) => {
                        if serves {
                            hung_up.send_modify(|count| *count += 1);
                            continue;
                        }
                        ("SIGHUP", 129)
                    }
                    else => return,
                };
                if seen.swap(number, Ordering::Relaxed) != 0 {
                    std::process::exit(i32::from(number));
                }
                if tell.send(Some(format!("interrupted by {name}"))).is_err() {
                    std::process::exit(i32::from(number));
                }
            }
        });
        Ok(Self { stop, hangups, code })
    }

    /// The exit code of a program that was ended by a signal: 129, 130 or 143.
    #[must_use]
    pub fn exit_code(&self) -> Option<u8> {
        match self.code.load(Ordering::Relaxed) {
            0 => None,
            code => Some(code),
        }
    }
}

/// The next signal of a kind that may not be watched.
async fn next(signals: &mut Option<Signal>) -> Option<()> {
    match signals {
        Some(signals) => signals.recv().await,
        None => std::future::pending().await,
    }
}

/// A request to end that the letter `C` on stdin gives too, as D-ITG's programs have it with
/// `-gui`.
#[must_use]
pub fn stop_on_letter(stop: &watch::Receiver<Option<String>>) -> watch::Receiver<Option<String>> {
    let (tell, told) = watch::channel(None);
    let mut signals = stop.clone();
    let tell = Arc::new(tell);
    let letter = Arc::clone(&tell);
    std::thread::spawn(move || {
        let mut bytes = io::stdin().lock().bytes();
        // The end of stdin is no letter.
        if bytes.any(|byte| matches!(byte, Ok(b'C'))) {
            drop(letter.send(Some("ended by the letter C".to_owned())));
        }
    });
    tokio::spawn(async move {
        if let Ok(reason) = signals.wait_for(Option::is_some).await {
            drop(tell.send(reason.clone()));
        }
    });
    told
}
