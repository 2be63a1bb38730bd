//! A disk for data that is not needed after a power cut: syncs return at once.
//!
//! For brokers in tests, whose directory is removed when they stop. Everything else is as on
//! [`RealDisk`](super::files::RealDisk). A kill -9 loses nothing; a power cut may lose everything.

use std::fs::File;
use std::io;
use std::path::Path;

use super::files::Disk;

/// A disk whose syncs return at once (see the module).
#[derive(Clone, Copy, Debug, Default)]
pub struct TemporaryDisk;

impl Disk for TemporaryDisk {
    fn sync_data(&self, _: &File) -> io::Result<()> {
        Ok(())
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn sync_all(&self, _: &File) -> io::Result<()> {
        Ok(())
    }
}
