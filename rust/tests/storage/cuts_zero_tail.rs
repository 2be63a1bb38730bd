//! Zeros or garbage behind the last batch, as a file system leaves them after a power cut, are cut.

use crate::support::{LogFixture, expected, fill, read_all};

fn with_tail(tail: &[u8]) {
    let dir = tempfile::tempdir().unwrap();
    let fixture = LogFixture::new(dir.path());
    fill(&fixture.open(), 7);
    let path = fixture.file(0, "log");
    let mut bytes = std::fs::read(&path).unwrap();
    let size = bytes.len();
    bytes.extend_from_slice(tail);
    std::fs::write(&path, bytes).unwrap();
    let log = fixture.open();
    assert_eq!(read_all(&log), expected(0..7));
    assert_eq!(std::fs::metadata(&path).unwrap().len(), size as u64);
}

#[test]
fn zeros_are_cut() {
    for len in [1, 11, 60, 61, 4096, 100_000] {
        with_tail(&vec![0; len]);
    }
}

#[test]
fn garbage_is_cut() {
    let mut state = 7u32;
    for len in [1, 30, 61, 5000] {
        let mut noise = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        with_tail(&(0..len).map(|_| noise()).collect::<Vec<u8>>());
    }
}
