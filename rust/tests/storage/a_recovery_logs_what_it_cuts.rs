//! Recovery logs everything that it cuts from the end of a log, before it changes a file.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use krust::storage::recording::RecordingDisk;
use krust::storage::{RecoveryCuts, StartProgress, log_cuts};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::support::{LogFixture, expected, fill, read_all};

/// Keeps warnings, each with how many changes the disk had seen by then.
#[derive(Clone)]
struct CapturedLines {
    disk: Arc<RecordingDisk>,
    kept: Arc<Mutex<Vec<(usize, String)>>>,
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            write!(self.0, "{value:?}").unwrap();
        }
    }
}

impl Subscriber for CapturedLines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        self.kept.lock().unwrap().push((self.disk.ops(), text.0));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// 100 records in segments of about ten, of which `spoil` has spoilt some; what the start that
/// follows says, and where the log ends then.
fn reported(spoil: impl Fn(&LogFixture)) -> (Vec<(usize, String)>, i64, RecoveryCuts) {
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = LogFixture::new(dir.path());
    fixture.config.segment_bytes = 1200;
    fill(&fixture.open(), 100);
    spoil(&fixture);
    drop(fixture);
    let disk = Arc::new(RecordingDisk::new(dir.path()).unwrap());
    let fixture = LogFixture::on(dir.path(), Arc::clone(&disk) as _);
    let lines = CapturedLines { disk, kept: Arc::default() };
    let progress = Arc::new(StartProgress::default());
    let end = tracing::subscriber::with_default(lines.clone(), || {
        let log = fixture.open_watched(&progress);
        let end = log.log_end_offset().0;
        assert_eq!(read_all(&log), expected(0..end));
        end
    });
    let kept = lines.kept.lock().unwrap().clone();
    (kept, end, progress.take_cuts())
}

/// Base offset and size of each segment.
fn segments(fixture: &LogFixture) -> Vec<(i64, u64)> {
    let log = fixture.open();
    log.segment_summaries().unwrap().iter().map(|it| (it.base_offset.0, it.size)).collect()
}

fn flip(fixture: &LogFixture, base: i64, at: usize) {
    let path = fixture.file(base, "log");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[at] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_recovery_logs_the_loss_in_all_segments_before_it_removes_them() {
    let sizes = Mutex::new(Vec::new());
    let (lines, end, cuts) = reported(|fixture| {
        *sizes.lock().unwrap() = segments(fixture);
        flip(fixture, sizes.lock().unwrap()[1].0, 500);
    });
    let sizes = sizes.into_inner().unwrap();
    let [(ops, line)] = lines.as_slice() else { panic!("{lines:?}") };
    assert_eq!(*ops, 0, "nothing was changed before it was reported");
    assert!(end > sizes[1].0 && end < sizes[2].0, "{end}");
    let batch = sizes[0].1 / sizes[1].0.unsigned_abs();
    let bytes = batch * (100 - end).unsigned_abs();
    let count = 100 - end;
    for part in [
        format!("cuts t-0 at offset {end}"),
        "wrong checksum".into(),
        format!("offsets {end} to 99 (at most {count} records)"),
        format!("{bytes} bytes in {} segments", sizes.len() - 1),
    ] {
        assert!(line.contains(&part), "{part}: {line}");
    }
    assert_eq!(cuts, RecoveryCuts { logs: 1, bytes, offsets: count.unsigned_abs() });
}

#[test]
fn a_recovery_logs_the_loss_of_a_torn_batch() {
    let (lines, end, cuts) = reported(|fixture| {
        let (base, size) = *segments(fixture).last().unwrap();
        let file = std::fs::File::options().write(true).open(fixture.file(base, "log")).unwrap();
        file.set_len(size - 9).unwrap();
    });
    assert_eq!((end, cuts.logs, cuts.offsets), (99, 1, 0));
    assert!(lines[0].1.contains("what follows offset 98, no whole batch"), "{lines:?}");
}

#[test]
fn a_recovery_that_cuts_nothing_logs_nothing() {
    let (lines, end, cuts) = reported(|_| ());
    assert_eq!((lines, end, cuts), (vec![], 100, RecoveryCuts::default()));
    log_cuts(&cuts);
}
