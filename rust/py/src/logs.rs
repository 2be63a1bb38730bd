//! Log lines of the core. They are buffered until Python asks for them, so that a network thread
//! can log without the interpreter.
//!
//! When recovery truncates a log, its line and all buffered lines are written at once, before the
//! truncation. The threads that open logs may wait for the interpreter, because no thread that
//! holds it waits for them. Debug lines exist only while Python asks for them (`log_requests`).
//! Before that such a line costs a load and a branch.
//! Limit: 1,024 lines, half of them debug. While the buffer is full, lines are only counted.
//! Threads: any thread writes. A caller of `logs` takes all lines.

use std::collections::VecDeque;
use std::fmt::{Debug, Write};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use pyo3::prelude::*;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

const LINES_MAX: usize = 1024;
/// The target whose lines are written at once.
const IMMEDIATE_TARGET: &str = "krust::storage::cut";

/// Whether debug lines are wanted.
static DEBUG: AtomicBool = AtomicBool::new(false);
/// The only target with debug lines.
const REQUESTS_TARGET: &str = "krust::requests";

static BUFFER: LazyLock<Mutex<LogBuffer>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct LogBuffer {
    lines: VecDeque<LogLine>,
    dropped: usize,
}

/// Level as `logging` counts it, logger name, text.
type LogLine = (u8, String, String);

/// Collects all log lines of the core from now on. A second call does nothing.
pub(super) fn install() {
    let _ = tracing::subscriber::set_global_default(BufferSubscriber);
}

/// Starts or stops logging each request as a debug line.
#[pyfunction]
pub(super) fn log_requests(wanted: bool) {
    if DEBUG.swap(wanted, Ordering::Relaxed) != wanted {
        tracing::callsite::rebuild_interest_cache();
    }
}

/// The lines since the last call: `(level, logger, text)`, level as `logging` counts it.
#[pyfunction]
pub(super) fn logs() -> Vec<(u8, String, String)> {
    let LogBuffer { mut lines, dropped } = std::mem::take(&mut *BUFFER.lock());
    if dropped > 0 {
        lines.push_back((30, "krust".into(), format!("{dropped} log lines were dropped")));
    }
    lines.into()
}

struct BufferSubscriber;

impl Subscriber for BufferSubscriber {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let is_wanted = match *metadata.level() {
            Level::DEBUG => metadata.target() == REQUESTS_TARGET && DEBUG.load(Ordering::Relaxed),
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
        let mut text = MessageText::default();
        event.record(&mut text);
        let logger = event.metadata().target().replace("::", ".");
        let line = (level, logger, text.message + &text.fields);
        if event.metadata().target() == IMMEDIATE_TARGET {
            write_now(line);
            return;
        }
        let mut buffer = BUFFER.lock();
        let room = if level < 20 { LINES_MAX / 2 } else { LINES_MAX };
        if buffer.lines.len() < room {
            buffer.lines.push_back(line);
        } else {
            buffer.dropped += 1;
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

/// Writes the buffered lines and this one through Python's logging; buffers it if that fails.
fn write_now(line: LogLine) {
    let written = Python::try_attach(|py| -> PyResult<()> {
        let logging = py.import("logging")?;
        for (level, name, text) in logs().into_iter().chain([line.clone()]) {
            let logger = logging.call_method1("getLogger", (name,))?;
            logger.call_method1("log", (level, "%s", text))?;
        }
        Ok(())
    });
    if !matches!(written, Some(Ok(()))) {
        BUFFER.lock().lines.push_back(line);
    }
}

#[derive(Default)]
struct MessageText {
    message: String,
    fields: String,
}

impl Visit for MessageText {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}
