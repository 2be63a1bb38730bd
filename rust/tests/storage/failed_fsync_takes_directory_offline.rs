//! After a failed sync the kernel counts the page as clean: nothing from that directory may be
//! acknowledged again.

use std::sync::Arc;

use krust::storage::recording::{Call, InjectedFault, RecordingDisk};
use krust::storage::{AppendError, StorageError};

use crate::support::{Home, append, batch, expected, fill, read_all};

const EIO: i32 = 5;

fn offline_after(call: Call, code: i32) {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(RecordingDisk::new(dir.path()).unwrap());
    let home = Home::on(dir.path(), Arc::clone(&disk) as _);
    let log = home.open();
    fill(&log, 3);
    let before = log.flushed_offset();
    disk.inject(InjectedFault { call, code, skip: 0, times: 1 });
    if call == Call::Write {
        assert!(append(&log, &batch(&[b"x"])).is_err());
    } else {
        assert!(log.flush().is_err());
    }
    assert!(home.dir.is_offline());
    assert_eq!(log.flushed_offset(), before);
    disk.heal();
    let refused = append(&log, &batch(&[b"x"]));
    assert!(matches!(refused, Err(AppendError::Storage(StorageError::Offline(_)))));
    assert!(log.flush().is_err());
    assert!(home.dir.close().is_err(), "no clean-shutdown marker");
    drop((log, home));
    let home = Home::new(dir.path());
    assert!(!home.dir.was_clean());
    assert_eq!(read_all(&home.open()), expected(0..3));
}

#[test]
fn a_failed_sync_of_data() {
    offline_after(Call::SyncData, EIO);
}

#[test]
fn a_failed_sync_of_data_even_if_the_disk_was_only_full() {
    offline_after(Call::SyncData, 28);
}

#[test]
fn a_failed_sync_of_the_directory() {
    offline_after(Call::SyncDir, EIO);
}

#[test]
fn an_error_of_the_medium_on_write() {
    offline_after(Call::Write, EIO);
}
