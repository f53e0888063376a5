//! The terminal of the live view: one thread draws on it, another one reads its keys.
//!
//! A terminal may stop taking bytes at any time, as when the connection to it stands still. Then
//! the drawing thread stands still and nothing else does: it locks the board only to copy it,
//! writes past the lock of stderr, and the end of the view waits for it for [`PATIENCE`] at most.
//! Nothing is asked of the terminal: not every terminal answers, and an answer would come to the
//! thread that reads the keys.

use std::fs::File;
use std::io::{BufWriter, IsTerminal as _, Read as _, stderr, stdin};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::signal::{Signal, raise};
use nix::unistd::{getpgrp, tcgetpgrp};
use ratatui::Terminal;
use ratatui::backend::{Backend, ClearType, CrosstermBackend};
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::Board;
use crate::events::Events;

/// Time between two draws of the view.
const EVERY: Duration = Duration::from_millis(250);
/// Draws after which everything is drawn anew: another program may have written on the terminal.
const ANEW: u32 = 40;
/// Time that the end of the view waits for the drawing thread.
const PATIENCE: Duration = Duration::from_millis(500);
/// Byte that a terminal sends for Ctrl-C while it is taken.
const CTRL_C: u8 = 3;

/// The drawing thread that the end of a view did not wait for; it says when it is done.
static LEFT_BEHIND: Mutex<Option<mpsc::Receiver<()>>> = Mutex::new(None);

/// Returns true if a terminal that takes no bytes has kept a view from its end: words for it would wait, too.
pub fn is_stuck() -> bool {
    let mut left = lock(&LEFT_BEHIND);
    let over =
        |done: &mpsc::Receiver<()>| !matches!(done.try_recv(), Err(mpsc::TryRecvError::Empty));
    if left.as_ref().is_some_and(over) {
        *left = None;
    }
    left.is_some()
}

/// Waits until a terminal that took no bytes at the end of the view has been given back. For the place before words
/// go to it, which would wait as long.
pub fn settle() {
    let left = lock(&LEFT_BEHIND).take();
    if let Some(done) = left {
        done.recv().unwrap_or_default();
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A terminal that a board is drawn on.
struct Drawing<B: Backend> {
    terminal: Terminal<B>,
    draws: u32,
}

impl<B: Backend> Drawing<B> {
    fn new(terminal: Terminal<B>) -> Self {
        Self { terminal, draws: 0 }
    }

    fn draw(&mut self, board: &Board) -> Result<(), B::Error> {
        self.draws = self.draws.wrapping_add(1);
        if self.draws.is_multiple_of(ANEW) {
            // `Terminal::clear` would ask for the place of the cursor first, and wait for the answer.
            self.terminal.backend_mut().clear_region(ClearType::All)?;
            self.terminal.swap_buffers();
        }
        self.terminal.draw(|frame| board.draw(frame)).map(|_| ())
    }

    /// Draws until a message ends it, or until none can come any more.
    fn follow(&mut self, board: &Mutex<Board>, end: &mpsc::Receiver<()>, every: Duration) {
        loop {
            let now = lock(board).clone();
            if let Err(error) = self.draw(&now) {
                tracing::debug!(%error, "the terminal is gone");
                return;
            }
            if end.recv_timeout(every) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }
}

/// Takes the terminal; `None` where there is none, and in the background: a process that touches
/// the terminal there is stopped.
fn take() -> Option<Drawing<CrosstermBackend<BufWriter<File>>>> {
    if !stderr().is_terminal() || !stdin().is_terminal() {
        return None;
    }
    if !tcgetpgrp(stdin()).is_ok_and(|foreground| foreground == getpgrp()) {
        return None;
    }
    // Not through `Stderr`: a thread that writes there waits for the one that holds its lock.
    let out = File::from(stderr().as_fd().try_clone_to_owned().ok()?);
    enable_raw_mode().ok()?;
    let terminal = execute!(stderr(), EnterAlternateScreen, Hide)
        .and_then(|()| Terminal::new(CrosstermBackend::new(BufWriter::new(out))));
    if terminal.is_err() {
        give_back();
    }
    terminal.map(Drawing::new).ok()
}

fn give_back() {
    // A terminal that is gone takes nothing.
    drop(disable_raw_mode());
    drop(execute!(stderr(), LeaveAlternateScreen, Show));
}

/// The thread that draws, as others see it.
struct Painter {
    end: mpsc::Sender<()>,
    done: mpsc::Receiver<()>,
    shown: Arc<AtomicBool>,
}

impl Painter {
    fn start<B>(mut drawing: Drawing<B>, board: Arc<Mutex<Board>>, restore: fn()) -> Self
    where
        B: Backend + Send + 'static,
    {
        let (end, ends) = mpsc::channel();
        let (finished, done) = mpsc::channel();
        let shown = Arc::new(AtomicBool::new(true));
        let is_shown = Arc::clone(&shown);
        std::thread::spawn(move || {
            drawing.follow(&board, &ends, EVERY);
            drop(drawing);
            restore();
            is_shown.store(false, Ordering::Release);
            drop(finished);
        });
        Self { end, done, shown }
    }

    /// Ends the view; what says when it is done, where the terminal does not take the last bytes.
    fn stop(self) -> Option<mpsc::Receiver<()>> {
        // No thread listens when it has ended by itself.
        self.end.send(()).unwrap_or_default();
        let stuck = self.done.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout);
        stuck.then_some(self.done)
    }
}

/// The view on the terminal, as long as it exists.
pub struct Live {
    painter: Option<Painter>,
    events: Events,
    task: JoinHandle<()>,
}

impl Live {
    /// Shows the events on the terminal until the run or a signal ends it; `None` without a terminal. Called within
    /// a tokio runtime.
    pub fn start(events: &Events, mut stop: watch::Receiver<Option<String>>) -> Option<Self> {
        let drawing = take()?;
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            give_back();
            usual(info);
        }));
        let board = Arc::new(Mutex::new(Board::default()));
        let seen = Arc::clone(&board);
        events.show(Some(Box::new(move |line| lock(&seen).take(line))));
        let painter = Painter::start(drawing, board, give_back);
        let shown = Arc::downgrade(&painter.shown);
        std::thread::spawn(move || {
            for byte in stdin().lock().bytes() {
                // The view has ended: the key is not for it.
                let Some(shown) = shown.upgrade() else { return };
                match byte {
                    Ok(b'q' | CTRL_C) if shown.load(Ordering::Acquire) => {
                        raise(Signal::SIGINT).unwrap_or_default();
                    }
                    Ok(_) => {}
                    Err(_) => return,
                }
            }
        });
        let end = painter.end.clone();
        let task = tokio::spawn(async move {
            if stop.wait_for(Option::is_some).await.is_ok() {
                end.send(()).unwrap_or_default();
            }
        });
        Some(Self { painter: Some(painter), events: events.clone(), task })
    }

    /// Returns true if it is shown: words have no place on the terminal then.
    pub fn is_shown(&self) -> bool {
        self.painter.as_ref().is_some_and(|painter| painter.shown.load(Ordering::Acquire))
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.task.abort();
        self.events.show(None);
        if let Some(done) = self.painter.take().and_then(Painter::stop) {
            // Keys are what they were, also while the rest waits.
            drop(disable_raw_mode());
            *lock(&LEFT_BEHIND) = Some(done);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Condvar;

    use ratatui::backend::{TestBackend, WindowSize};
    use ratatui::buffer::Cell;
    use ratatui::layout::{Position, Size};

    use super::*;
    use crate::events::{Line, What};

    /// A terminal that answers no question, and takes what is written only while it is open.
    struct Mute {
        screen: TestBackend,
        open: Arc<(Mutex<bool>, Condvar)>,
        flushing: mpsc::Sender<()>,
    }

    impl Backend for Mute {
        type Error = Infallible;

        fn draw<'a, I>(&mut self, content: I) -> Result<(), Infallible>
        where
            I: Iterator<Item = (u16, u16, &'a Cell)>,
        {
            self.screen.draw(content)
        }

        fn hide_cursor(&mut self) -> Result<(), Infallible> {
            Ok(())
        }

        fn show_cursor(&mut self) -> Result<(), Infallible> {
            Ok(())
        }

        fn get_cursor_position(&mut self) -> Result<Position, Infallible> {
            panic!("the terminal is asked for its cursor");
        }

        fn set_cursor_position<P: Into<Position>>(&mut self, at: P) -> Result<(), Infallible> {
            self.screen.set_cursor_position(at)
        }

        fn clear(&mut self) -> Result<(), Infallible> {
            self.screen.clear()
        }

        fn clear_region(&mut self, region: ClearType) -> Result<(), Infallible> {
            self.screen.clear_region(region)
        }

        fn size(&self) -> Result<Size, Infallible> {
            self.screen.size()
        }

        fn window_size(&mut self) -> Result<WindowSize, Infallible> {
            self.screen.window_size()
        }

        fn flush(&mut self) -> Result<(), Infallible> {
            self.flushing.send(()).unwrap_or_default();
            let (open, opened) = &*self.open;
            drop(opened.wait_while(lock(open), |open| !*open));
            Ok(())
        }
    }

    type Gate = Arc<(Mutex<bool>, Condvar)>;

    fn mute(open: bool) -> (Drawing<Mute>, Gate, mpsc::Receiver<()>) {
        let gate = Arc::new((Mutex::new(open), Condvar::new()));
        let (flushing, flushes) = mpsc::channel();
        let backend = Mute { screen: TestBackend::new(80, 24), open: Arc::clone(&gate), flushing };
        (Drawing::new(Terminal::new(backend).expect("a terminal")), gate, flushes)
    }

    fn word(text: &str) -> Line {
        let what = What::Word { text: text.to_owned() };
        Line { schema: 1, at_unix_ns: 0, since_ns: 0, what }
    }

    #[test]
    fn everything_is_drawn_anew_now_and_then_and_nothing_is_asked() {
        let (mut drawing, _gate, _flushes) = mute(true);
        let mut board = Board::default();
        board.take(&word("a word"));
        drawing.draw(&board).expect("drawn");
        let clean = drawing.terminal.backend().screen.buffer().clone();
        let mut ink = Cell::default();
        ink.set_symbol("X");
        for round in 0..3 {
            // Another program writes on the terminal, over words and where there are none.
            let foreign = [(0, 18, &ink), (9, 18, &ink), (70, 10, &ink)];
            drawing.terminal.backend_mut().draw(foreign.into_iter()).expect("written");
            assert_ne!(drawing.terminal.backend().screen.buffer(), &clean);
            for _ in 0..ANEW {
                drawing.draw(&board).expect("drawn");
            }
            assert_eq!(drawing.terminal.backend().screen.buffer(), &clean, "round {round}");
        }
    }

    #[test]
    fn a_terminal_that_takes_nothing_holds_up_neither_events_nor_the_end() {
        let (drawing, gate, flushes) = mute(false);
        let board = Arc::new(Mutex::new(Board::default()));
        let painter = Painter::start(drawing, Arc::clone(&board), || ());
        flushes.recv().expect("it draws");
        // The drawing thread stands still from here on.
        board.try_lock().expect("the board is free").take(&word("told meanwhile"));
        let shown = Arc::clone(&painter.shown);
        let done = painter.stop().expect("it stands still");
        assert_eq!(done.try_recv(), Err(mpsc::TryRecvError::Empty));
        assert!(shown.load(Ordering::Acquire), "words have no place on it");
        *lock(&LEFT_BEHIND) = Some(done);
        assert!(is_stuck());
        *lock(&gate.0) = true;
        gate.1.notify_all();
        settle();
        assert!(!is_stuck() && !shown.load(Ordering::Acquire));
    }
}
