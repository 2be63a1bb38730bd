//! The machine's disk for data that nobody needs after a power cut: no sync ever waits.
//!
//! For brokers in tests, whose directory is removed when they stop. Everything else is as on
//! [`RealDisk`]; a kill -9 loses nothing, a power cut may lose everything.

use std::fs::File;
use std::io;
use std::path::Path;

use super::files::{Disk, RealDisk};

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct TemporaryDisk;

impl Disk for TemporaryDisk {
    fn open(&self, path: &Path) -> io::Result<File> {
        RealDisk.open(path)
    }

    fn create(&self, path: &Path) -> io::Result<File> {
        RealDisk.create(path)
    }

    fn write_at(&self, file: &File, bufs: &[&[u8]], position: u64) -> io::Result<()> {
        RealDisk.write_at(file, bufs, position)
    }

    fn set_len(&self, file: &File, len: u64) -> io::Result<()> {
        RealDisk.set_len(file, len)
    }

    fn allocate(&self, file: &File, from: u64, len: u64) -> io::Result<()> {
        RealDisk.allocate(file, from, len)
    }

    fn sync_data(&self, _: &File) -> io::Result<()> {
        Ok(())
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove(path)
    }

    fn make_dir(&self, path: &Path) -> io::Result<()> {
        RealDisk.make_dir(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove_dir(path)
    }
}
