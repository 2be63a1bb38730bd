//! A call on a thread of its own, so that its caller can do other work until the result is there.
//!
//! Threads: the thread ends with the call. It is not joined: a call that is dropped ends at the
//! next check of its [`Wait`], within 100 ms.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use super::error::{Error, Result};
use super::options::{Interrupt, Wait};

/// A call that runs, or whose result nobody has taken.
pub(super) struct BackgroundCall<T> {
    results: Receiver<T>,
    result: Option<T>,
    dropped: Arc<Dropped>,
}

/// Ends the waits of a call whose result nobody wants any more.
#[derive(Default)]
struct Dropped(AtomicBool);

impl Interrupt for Dropped {
    fn interrupted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl<T: Send + 'static> BackgroundCall<T> {
    /// Begins a call that may wait for `timeout`.
    pub(super) fn begin(
        timeout: Duration,
        call: impl FnOnce(&Wait) -> T + Send + 'static,
    ) -> Result<Self> {
        let dropped = Arc::new(Dropped::default());
        let interrupt: Arc<dyn Interrupt> = Arc::clone(&dropped) as _;
        let (sender, results) = channel();
        std::thread::Builder::new()
            .name("krust-call".to_owned())
            .spawn(move || drop(sender.send(call(&Wait::new(timeout, interrupt)))))
            .map_err(|error| Error::Connect {
                address: "a broker".to_owned(),
                reason: format!("no thread can be started ({error})"),
                advertised: false,
            })?;
        Ok(Self { results, result: None, dropped })
    }

    /// Whether the call has ended. Waits for that, `patience` at most.
    pub(super) fn has_ended(&mut self, patience: Duration) -> bool {
        if self.result.is_some() {
            return true;
        }
        match self.results.recv_timeout(patience) {
            Ok(result) => {
                self.result = Some(result);
                true
            }
            Err(RecvTimeoutError::Disconnected) => true,
            Err(RecvTimeoutError::Timeout) => false,
        }
    }

    /// The result; waits for it. `None`: the thread panicked.
    pub(super) fn result(mut self) -> Option<T> {
        self.result.take().or_else(|| self.results.recv().ok())
    }
}

impl<T> Drop for BackgroundCall<T> {
    fn drop(&mut self) {
        self.dropped.0.store(true, Ordering::Relaxed);
    }
}
