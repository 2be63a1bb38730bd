//! The lines that the code under test logs on this thread, warnings and errors.

use std::fmt::{Debug, Write};
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::span;
use tracing::{Event, Level, Metadata, Subscriber};

/// CapturedLines, shared with the subscriber that collects them.
#[derive(Clone, Default)]
pub struct CapturedLines(Arc<Mutex<Vec<String>>>);

impl CapturedLines {
    /// Runs `f`; what it logs is kept.
    pub fn collect<R>(&self, f: impl FnOnce() -> R) -> R {
        tracing::subscriber::with_default(LineCollector(self.clone()), f)
    }

    /// All lines so far.
    pub fn all(&self) -> Vec<String> {
        self.0.lock().clone()
    }

    /// One more, as from an error that the caller was given.
    pub fn add(&self, line: String) {
        self.0.lock().push(line);
    }
}

struct LineCollector(CapturedLines);

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, "{}={value:?} ", field.name());
    }
}

impl Subscriber for LineCollector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        self.0.add(text.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}
