//! Indexes have no checksum. Whichever byte of them is damaged, a search by time and the list of
//! aborted transactions are right, or an error. A log line names what is rebuilt.

use std::path::{Path, PathBuf};

use krust::storage::txnindex::ENTRY_SIZE;
use krust::storage::{AbortedTxn, LogDir, StorageError};

use crate::corruption::captured_lines::CapturedLines;
use crate::corruption::image;
use crate::support::{LogFixture, NOW_MS, append, append_after_roll, batch_at, scratch, value};

/// The first offset that a time finds.
fn find(fixture: &LogFixture, time: i64) -> Result<Option<i64>, StorageError> {
    let found = fixture.open_with(true).offset_for_timestamp(time)?;
    Ok(found.map(|found| found.offset.0))
}

/// A log of two segments with a record every ten milliseconds, closed in order.
fn timed(path: &Path) -> LogFixture {
    let fixture = LogFixture::new(path);
    let log = fixture.open();
    for number in 0..30 {
        let bytes = batch_at(NOW_MS + number * 10, &[value(number).as_slice()]);
        if number == 20 {
            append_after_roll(&log, &bytes);
        } else {
            append(&log, &bytes).unwrap();
        }
    }
    log.close().unwrap();
    fixture.dir.close().unwrap();
    drop((log, fixture));
    LogFixture::new(path)
}

/// Each file of a kind in the partition's directory.
fn files(partition: &Path, kind: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(partition).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|it| it == kind)).collect();
    found.sort();
    found
}

/// Runs `f` with each byte of a file damaged, one after the other; the file is as before then.
fn each_byte(path: &Path, mut f: impl FnMut(usize)) {
    let whole = std::fs::read(path).unwrap();
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        std::fs::write(path, bytes).unwrap();
        f(at);
        std::fs::write(path, &whole).unwrap();
    }
}

#[test]
fn damaged_time_indexes_find_the_right_record() {
    let dir = scratch();
    let fixture = timed(dir.path());
    let indexes = files(&fixture.partition(), "timeindex");
    assert!(indexes.len() == 2 && std::fs::metadata(&indexes[0]).unwrap().len() > 36);
    let mut named = 0;
    for path in indexes {
        each_byte(&path, |at| {
            let lines = CapturedLines::default();
            lines.collect(|| {
                for number in [0, 9, 19, 20, 29, 30] {
                    let due = (number < 30).then_some(number);
                    let found = find(&fixture, NOW_MS + number * 10);
                    assert_eq!(found.unwrap(), due, "byte {at} of {path:?}");
                }
            });
            named += usize::from(lines.all().iter().any(|it| it.contains("time index is wrong")));
        });
    }
    assert!(named > 20, "{named} named");
}

#[test]
fn a_search_reports_a_damaged_batch() {
    let dir = scratch();
    let fixture = timed(dir.path());
    let path = fixture.file(0, "log");
    let size = std::fs::read(&path).unwrap().len() / 20;
    let time = NOW_MS + 60;
    assert_eq!(find(&fixture, time).unwrap(), Some(6));
    let whole = std::fs::read(&path).unwrap();
    // Its largest timestamp, a record, its magic.
    for at in [40, size - 1, 16] {
        let mut bytes = whole.clone();
        bytes[size * 6 + at] ^= 0x40;
        std::fs::write(&path, bytes).unwrap();
        assert!(matches!(find(&fixture, time), Err(StorageError::Damaged { .. })), "byte {at}");
        assert_eq!(find(&fixture, NOW_MS + 250).unwrap(), Some(25), "another segment");
    }
}

#[test]
fn damaged_transaction_indexes_name_the_right_transactions() {
    let place = scratch();
    let [root, killed] = ["clean", "killed"].map(|name| place.path().join(name));
    image::build(&root, &killed);
    let partition = root.join("transactions-0");
    let marker = root.join(".kafka_cleanshutdown");
    let aborted = || {
        std::fs::write(&marker, br#"{"version":0,"brokerEpoch":-1}"#).unwrap();
        let dir = LogDir::open(&root, &image::dir_options()).unwrap();
        let log = image::open(&dir, "transactions").unwrap();
        let found = log.aborted(log.log_start_offset(), log.log_end_offset()).unwrap();
        let states = |it: &AbortedTxn| (it.producer_id, it.first_offset, it.last_offset);
        found.iter().map(states).collect::<Vec<_>>()
    };
    let due = aborted();
    assert!(due.len() > 8);
    let mut named = 0;
    for path in files(&partition, "txnindex") {
        each_byte(&path, |at| {
            let lines = CapturedLines::default();
            assert_eq!(lines.collect(aborted), due, "byte {at} of {path:?}");
            named += usize::from(
                lines.all().iter().any(|it| it.contains("aborted transactions are rebuilt")),
            );
        });
    }
    assert!(named > 100, "{named} named");
    // Gone, or cut between two entries: what is left is a list.
    for path in files(&partition, "txnindex") {
        let whole = std::fs::read(&path).unwrap();
        for left in (0..whole.len()).step_by(ENTRY_SIZE) {
            match left {
                0 => std::fs::remove_file(&path).unwrap(),
                _ => std::fs::write(&path, &whole[..left]).unwrap(),
            }
            let lines = CapturedLines::default();
            assert_eq!(lines.collect(aborted), due, "{left} bytes of {path:?}");
            assert!(
                lines.all().iter().any(|it| it.contains("aborted transactions are rebuilt")),
                "{left} of {path:?}"
            );
            assert_eq!(std::fs::read(&path).unwrap(), whole, "the file is there again");
        }
    }
    // The list and a marker of it are damaged: nobody can tell any more.
    let path = files(&partition, "txnindex").remove(0);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[9] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let path = path.with_extension("log");
    let mut bytes = std::fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let dir = LogDir::open(&root, &image::dir_options()).unwrap();
    std::fs::write(&marker, b"").unwrap();
    let log = image::open(&dir, "transactions").unwrap();
    let found = log.aborted(log.log_start_offset(), log.log_end_offset());
    assert!(matches!(found, Err(StorageError::Damaged { .. })), "{found:?}");
}
