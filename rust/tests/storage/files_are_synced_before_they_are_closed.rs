//! The system may report an error of the disk only to the thread that has the file open. So files
//! are not closed to make room before they are synced, and directories do not count as created
//! before.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use krust::ids::TopicPartition;
use krust::storage::files::{Disk, RealDisk};
use krust::storage::recording::{Crash, RecordingDisk};
use krust::storage::{Descriptors, DirOptions, Syncer};

use crate::support::{LogFixture, append, batch, expected, fill, read_all, scratch};

/// A disk that knows which files were written and not synced, and which of them were opened again.
#[derive(Debug, Default)]
struct Watched {
    unsynced: Mutex<HashSet<u64>>,
    reopened: Mutex<Vec<String>>,
}

impl Disk for Watched {
    fn open(&self, path: &Path) -> io::Result<File> {
        let file = RealDisk.open(path)?;
        let is_log = path.extension().is_some_and(|kind| kind == "log");
        if is_log && self.unsynced.lock().unwrap().contains(&file.metadata()?.ino()) {
            self.reopened.lock().unwrap().push(path.display().to_string());
        }
        Ok(file)
    }

    fn write_at(&self, file: &File, bufs: &[&[u8]], position: u64) -> io::Result<()> {
        RealDisk.write_at(file, bufs, position)?;
        self.unsynced.lock().unwrap().insert(file.metadata()?.ino());
        Ok(())
    }

    fn sync_data(&self, file: &File) -> io::Result<()> {
        file.sync_data()?;
        self.unsynced.lock().unwrap().remove(&file.metadata()?.ino());
        Ok(())
    }
}

/// Appends to more logs by turns than may have files open.
fn write_to_many(syncer: Option<&Arc<Syncer>>) {
    const LIMIT: usize = 4;
    let dir = tempfile::tempdir().unwrap();
    let (disk, descriptors) = (Arc::new(Watched::default()), Descriptors::new(LIMIT));
    if let Some(syncer) = syncer {
        syncer.sync_files_of(&descriptors);
    }
    let options = DirOptions {
        disk: Arc::clone(&disk) as _,
        descriptors: Arc::clone(&descriptors),
        ..DirOptions::default()
    };
    let fixture = LogFixture::with(dir.path(), &options);
    let logs: Vec<_> =
        (0..20).map(|number| fixture.open_named(&TopicPartition::new("t", number))).collect();
    for _ in 0..5 {
        for log in &logs {
            append(log, &batch(&[b"x"])).unwrap();
            assert!(descriptors.len() <= LIMIT * 3 / 2 + 1, "{}", descriptors.len());
        }
    }
    assert_eq!(*disk.reopened.lock().unwrap(), Vec::<String>::new());
    assert!(logs.iter().all(|log| read_all(log).len() == 5));
}

#[test]
fn the_opener_of_another_file_syncs_the_evicted_one() {
    write_to_many(None);
}

#[test]
fn the_sync_threads_sync_evicted_files() {
    let syncer = Syncer::start(Box::new(|_| ())).unwrap();
    write_to_many(Some(&syncer));
    syncer.stop();
}

#[test]
fn a_new_log_directory_is_synced_in_its_parent() {
    let root = scratch();
    let disk = Arc::new(RecordingDisk::new(root.path()).unwrap());
    let fixture = LogFixture::on(&root.path().join("volume/data"), Arc::clone(&disk) as _);
    let log = fixture.open();
    fill(&log, 3);
    log.flush().unwrap();
    let image = scratch();
    disk.crash(disk.ops(), Crash::Chosen { mask: 0 }, image.path()).unwrap();
    let fixture = LogFixture::new(&image.path().join("volume/data"));
    assert_eq!(read_all(&fixture.open_with(false)), expected(0..3));
}
