//! A batch of `__consumer_offsets` whose checksum is wrong is left out of what a start reads, and
//! the log says so: what groups committed before counts again.

use std::fmt::{Debug, Write};
use std::path::Path;

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::groups::{
    GROUP, GROUPS, ask, commit, committed, create_topics, fixture, offsets, wait_until_loaded,
};

/// The errors of the whole process: groups are read on a thread of their own.
static ERRORS: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Errors;

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, "{}={value:?} ", field.name());
    }
}

impl Subscriber for Errors {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::ERROR
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        ERRORS.lock().push(text.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Flips a bit in the last byte of the last batch.
fn damage(root: &Path) {
    let path = root.join(format!("{GROUPS}-{}/{:020}.log", GROUP.1, 0));
    let mut bytes = std::fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&path, bytes).unwrap();
}

#[test]
fn damaged_commits_are_logged_with_the_offsets_they_cost() {
    tracing::subscriber::set_global_default(Errors).unwrap();
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    for offset in [3, 4] {
        let wanted = [(0, offset, -1, None)];
        assert_eq!(committed(&mut fixture, &mut conn, &commit(8, GROUP.0, &wanted)), [0]);
    }
    let mut fixture = fixture.again_after(damage);
    create_topics(&mut fixture);
    wait_until_loaded(&fixture);
    let mut conn = fixture.connect();
    let (_, rows) = ask(&mut fixture, &mut conn, (8, GROUP.0, None));
    assert_eq!(offsets(&rows), [(0, 3)]);
    let name = format!("{GROUPS}-{}", GROUP.1);
    let errors = ERRORS.lock();
    let reported = errors.iter().find(|line| line.contains(&name) && line.contains("left out"));
    let reported = reported.unwrap_or_else(|| panic!("{errors:?}"));
    assert!(reported.contains("from=1 to=1"), "{reported}");
}
