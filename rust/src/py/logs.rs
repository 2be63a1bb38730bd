//! Log lines of the core, kept until Python asks for them, so that a reactor thread's line needs no
//! interpreter.
//!
//! What a recovery cuts is handed over at once, with all that is kept, before the cut is made: the
//! threads that open logs may wait for the interpreter, which nobody holds meanwhile.
//! Lines at debug are made while Python asks for them (`log_requests`); until then such a line is a
//! load and a branch of its call site.
//! Limit: 1,024 lines, half of them at debug; of what comes while it is full only the number is
//! told.
//! Threads: any writes; whoever asks takes all.

use std::collections::VecDeque;
use std::fmt::{Debug, Write};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use pyo3::prelude::*;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

const LINES: usize = 1024;
/// Who logs what is handed over at once.
const AT_ONCE: &str = "krust::storage::cut";

/// Whether lines at debug are wanted.
static DEBUG: AtomicBool = AtomicBool::new(false);
/// What alone has such lines.
const REQUESTS: &str = "krust::requests";

static KEPT: LazyLock<Mutex<Kept>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Kept {
    lines: VecDeque<Line>,
    dropped: usize,
}

/// Level as `logging` counts it, logger name, text.
type Line = (u8, String, String);

/// Puts this in front of all log lines of the core; does nothing the second time.
pub(super) fn install() {
    let _ = tracing::subscriber::set_global_default(Queue);
}

/// Has each request be a line at debug, or not any more.
#[pyfunction]
pub(super) fn log_requests(wanted: bool) {
    if DEBUG.swap(wanted, Ordering::Relaxed) != wanted {
        tracing::callsite::rebuild_interest_cache();
    }
}

/// The lines since the last call: `(level, logger, text)`, level as `logging` counts it.
#[pyfunction]
pub(super) fn logs() -> Vec<(u8, String, String)> {
    let Kept { mut lines, dropped } = std::mem::take(&mut *KEPT.lock());
    if dropped > 0 {
        lines.push_back((30, "krust".into(), format!("{dropped} log lines were dropped")));
    }
    lines.into()
}

struct Queue;

impl Subscriber for Queue {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let is_wanted = match *metadata.level() {
            Level::DEBUG => metadata.target() == REQUESTS && DEBUG.load(Ordering::Relaxed),
            level => level <= Level::INFO,
        };
        is_wanted && metadata.target().starts_with("krust")
    }

    fn event(&self, event: &Event<'_>) {
        let level = match *event.metadata().level() {
            Level::ERROR => 40,
            Level::WARN => 30,
            Level::INFO => 20,
            _ => 10,
        };
        let mut text = Text::default();
        event.record(&mut text);
        let logger = event.metadata().target().replace("::", ".");
        let line = (level, logger, text.message + &text.fields);
        if event.metadata().target() == AT_ONCE {
            hand_over(line);
            return;
        }
        let mut kept = KEPT.lock();
        let room = if level < 20 { LINES / 2 } else { LINES };
        if kept.lines.len() < room {
            kept.lines.push_back(line);
        } else {
            kept.dropped += 1;
        }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Has Python's logging write what is kept and then this line; keeps it where there is none.
fn hand_over(line: Line) {
    let written = Python::try_attach(|py| -> PyResult<()> {
        let logging = py.import("logging")?;
        for (level, name, text) in logs().into_iter().chain([line.clone()]) {
            let logger = logging.call_method1("getLogger", (name,))?;
            logger.call_method1("log", (level, "%s", text))?;
        }
        Ok(())
    });
    if !matches!(written, Some(Ok(()))) {
        KEPT.lock().lines.push_back(line);
    }
}

#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}
