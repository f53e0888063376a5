//! SIGINT and SIGTERM: the first one drains and reports, the second one ends at once.

use std::io::{self, Read as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Watches for the signals that end a program.
#[derive(Clone, Debug)]
pub struct Signals {
    /// Holds a reason once the program should end.
    pub stop: watch::Receiver<Option<String>>,
    code: Arc<AtomicU8>,
}

impl Signals {
    /// The same signals, with another place that holds a reason to end.
    #[must_use]
    pub fn ended_by(&self, stop: watch::Receiver<Option<String>>) -> Self {
        Self { stop, code: Arc::clone(&self.code) }
    }

    /// Starts watching; must be called within a tokio runtime.
    ///
    /// # Errors
    /// When the system refuses to tell about signals.
    pub fn watch() -> io::Result<Self> {
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
        Ok(Self { stop, code })
    }

    /// The exit code of a program that was ended by a signal: 130 or 143.
    #[must_use]
    pub fn exit_code(&self) -> Option<u8> {
        match self.code.load(Ordering::Relaxed) {
            0 => None,
            code => Some(code),
        }
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
