//! Retention deletes segments by time, size and log start. The active segment and records above the
//! high watermark stay. Files are removed after a delay.

use std::sync::Arc;

use krust::ids::Offset;
use krust::storage::LogConfig;

use crate::support::{
    LogFixture, NOW_MS, append, batch_at, expected, fill, read_all, stage, value,
};

fn files(fixture: &LogFixture, suffix: &str) -> usize {
    let all = std::fs::read_dir(fixture.partition()).unwrap();
    all.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().ends_with(suffix))
        .count()
}

#[test]
fn retention_by_size_deletes_the_oldest_segments() {
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = LogFixture::new(dir.path());
    fixture.config.segment_bytes = 500;
    fixture.config.retention_bytes = 1000;
    let log = fixture.open();
    fill(&log, 40);
    assert!(log.retain(NOW_MS).unwrap() > 0);
    assert!(log.size() >= 1000 && log.size() < 1500);
    let start = log.log_start_offset().0;
    assert_eq!(read_all(&log), expected(start..40));
    assert!(files(&fixture, ".log.deleted") > 0);
    fixture.clock.advance(60_000);
    log.retain(NOW_MS).unwrap();
    assert_eq!(files(&fixture, ".deleted"), 0);
    drop(log);
    assert_eq!(fixture.open().log_start_offset().0, start);
}

#[test]
fn retention_by_time_deletes_even_the_last_segment() {
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = LogFixture::new(dir.path());
    fixture.config.segment_bytes = 500;
    fixture.config.retention_ms = 1000;
    let log = fixture.open();
    for n in 0..20 {
        append(&log, &batch_at(NOW_MS + n * 100, &[&value(n)])).unwrap();
    }
    assert_eq!(log.retain(NOW_MS + 1000).unwrap(), 0);
    assert!(log.retain(NOW_MS + 2000).unwrap() > 0);
    let start = log.log_start_offset().0;
    assert!(start > 0 && start <= 10);
    log.retain(NOW_MS + 10_000).unwrap();
    assert_eq!(log.log_start_offset(), Offset(20));
    assert_eq!(log.size(), 0);
    fill(&log, 2);
    drop(log);
    assert_eq!(read_all(&fixture.open()), expected(20..22));
}

#[test]
fn retention_stops_at_the_high_watermark_and_needs_the_delete_policy() {
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = LogFixture::new(dir.path());
    fixture.config.segment_bytes = 500;
    fixture.config.retention_ms = 0;
    fixture.config.delete = false;
    let log = fixture.open();
    for n in 0..20 {
        let appended = stage(&log, &batch_at(NOW_MS, &[&value(n)])).unwrap();
        log.commit(appended.staged).unwrap();
    }
    log.raise_high_watermark(Offset(7));
    assert_eq!(log.retain(NOW_MS + 10_000).unwrap(), 0);
    log.reconfigure(Arc::new(LogConfig { delete: true, ..fixture.config.clone() }));
    log.retain(NOW_MS + 10_000).unwrap();
    assert!(log.log_start_offset() <= Offset(7));
    assert_eq!(read_all(&log), expected(log.log_start_offset().0..20));
}

#[test]
fn deleted_records_are_invisible_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = LogFixture::new(dir.path());
    fixture.config.segment_bytes = 500;
    let log = fixture.open();
    fill(&log, 20);
    assert!(log.delete_records(Offset(21)).is_err());
    assert_eq!(log.delete_records(Offset(13)).unwrap(), Offset(13));
    assert_eq!(read_all(&log), expected(13..20));
    assert!(log.retain(NOW_MS).unwrap() > 0);
    assert_eq!(log.log_start_offset(), Offset(13));
    fixture.dir.checkpoint().unwrap();
    drop((log, fixture));
    let fixture = LogFixture::new(dir.path());
    let log = fixture.open();
    assert_eq!(log.log_start_offset(), Offset(13));
    assert_eq!(log.delete_records(Offset(-1)).unwrap(), log.high_watermark());
}

#[test]
fn segments_roll_by_time_and_index() {
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = LogFixture::new(dir.path());
    fixture.config.segment_ms = 1000;
    let log = fixture.open();
    for n in 0..4 {
        append(&log, &batch_at(NOW_MS + n * 600, &[&value(n)])).unwrap();
    }
    assert_eq!(log.segment_summaries().unwrap().len(), 2);
    log.reconfigure(Arc::new(LogConfig {
        index_interval_bytes: 0,
        segment_index_bytes: 24,
        ..LogConfig::default()
    }));
    fill(&log, 20);
    assert!(log.segment_summaries().unwrap().len() > 5);
    assert_eq!(krust::storage::inspect::verify(&fixture.partition()).unwrap(), []);
}

#[test]
fn offsets_of_deleted_records_are_not_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = LogFixture::new(dir.path());
    let log = fixture.open();
    fill(&log, 20);
    log.delete_records(Offset(15)).unwrap();
    fixture.dir.checkpoint().unwrap();
    let path = fixture.file(0, "log");
    std::fs::File::options().write(true).open(path).unwrap().set_len(500).unwrap();
    drop((log, fixture));
    let log = LogFixture::new(dir.path()).open();
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (Offset(15), Offset(15)));
    fill(&log, 2);
    assert_eq!(read_all(&log), expected(15..17));
}
