//! After a failed sync the kernel counts the page as clean: nothing from that directory may be
//! acknowledged again.

use std::sync::Arc;

use krust::storage::recording::{DiskCall, InjectedFault, RecordingDisk};
use krust::storage::{AppendError, StorageError};

use crate::support::{LogFixture, append, batch, expected, fill, read_all};

const EIO: i32 = 5;

fn offline_after(call: DiskCall, code: i32) {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(RecordingDisk::new(dir.path()).unwrap());
    let fixture = LogFixture::on(dir.path(), Arc::clone(&disk) as _);
    let log = fixture.open();
    fill(&log, 3);
    let before = log.flushed_offset();
    disk.inject(InjectedFault { call, code, skip: 0, times: 1 });
    if call == DiskCall::Write {
        assert!(append(&log, &batch(&[b"x"])).is_err());
    } else {
        assert!(log.flush().is_err());
    }
    assert!(fixture.dir.is_offline());
    assert_eq!(log.flushed_offset(), before);
    disk.heal();
    let refused = append(&log, &batch(&[b"x"]));
    assert!(matches!(refused, Err(AppendError::Storage(StorageError::Offline(_)))));
    assert!(log.flush().is_err());
    assert!(fixture.dir.close().is_err(), "no clean-shutdown marker");
    drop((log, fixture));
    let fixture = LogFixture::new(dir.path());
    assert!(!fixture.dir.was_clean());
    assert_eq!(read_all(&fixture.open()), expected(0..3));
}

#[test]
fn a_failed_sync_of_data_takes_the_directory_offline() {
    offline_after(DiskCall::SyncData, EIO);
}

#[test]
fn a_failed_sync_on_a_full_disk_takes_the_directory_offline() {
    offline_after(DiskCall::SyncData, 28);
}

#[test]
fn a_failed_directory_sync_takes_the_directory_offline() {
    offline_after(DiskCall::SyncDir, EIO);
}

#[test]
fn a_media_error_on_write_takes_the_directory_offline() {
    offline_after(DiskCall::Write, EIO);
}
