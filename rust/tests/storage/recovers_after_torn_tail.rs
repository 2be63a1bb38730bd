//! A log whose last file is cut at any byte ends in the last whole batch before the cut, and a
//! second recovery changes nothing.

use crate::support::{LogFixture, append, batch, expected, fill, read_all, snapshot};

#[test]
fn any_prefix_of_the_last_segment_recovers() {
    let source = tempfile::tempdir().unwrap();
    let fixture = LogFixture::new(source.path());
    let log = fixture.open();
    fill(&log, 4);
    let bytes = std::fs::read(fixture.file(0, "log")).unwrap();
    let size = bytes.len() / 4;
    for cut in 0..=bytes.len() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("t-0")).unwrap();
        let fixture = LogFixture::new(dir.path());
        std::fs::write(fixture.file(0, "log"), &bytes[..cut]).unwrap();
        let log = fixture.open();
        let whole = i64::try_from(cut / size).unwrap();
        assert_eq!(read_all(&log), expected(0..whole), "cut at {cut}");
        drop(log);
        let once = snapshot(dir.path());
        assert_eq!(fixture.open().log_end_offset().0, whole);
        assert_eq!(snapshot(dir.path()), once, "a second recovery changed something");
    }
}

#[test]
fn appends_continue_where_the_log_was_cut() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = LogFixture::new(dir.path());
    fill(&fixture.open(), 10);
    let path = fixture.file(0, "log");
    let len = std::fs::metadata(&path).unwrap().len();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(len - 1).unwrap();
    let log = fixture.open();
    assert_eq!(log.log_end_offset().0, 9);
    fill(&log, 3);
    assert_eq!(read_all(&log), expected(0..12));
    append(&log, &batch(&[b"a", b"b"])).unwrap();
    assert_eq!(fixture.open().log_end_offset().0, 14);
}

#[test]
fn a_batch_larger_than_one_read_is_checked_completely() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = LogFixture::new(dir.path());
    let log = fixture.open();
    let large = vec![7; 1_000_000];
    for values in [&[&large[..60 << 10]][..], &[&large[..70 << 10]], &[&large[..]], &[b"small"]] {
        append(&log, &batch(values)).unwrap();
    }
    drop(log);
    assert_eq!(fixture.open().log_end_offset().0, 4);
    let path = fixture.file(0, "log");
    let bytes = std::fs::read(&path).unwrap();
    let second = 61 << 10;
    for (wrong, end) in [(bytes.len() - 1000, 2), (second + (68 << 10), 1), (1000, 0)] {
        let mut bytes = bytes.clone();
        bytes[wrong] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(fixture.open().log_end_offset().0, end, "{wrong}");
    }
}
