//! The disk behind a trait: every call of storage that changes a file system. A test double can
//! record the calls, drop unsynced changes, and fail on demand (`recording`).
//! Both implementations use real files: `sendfile` sends leased ranges, and logs are read as files.
//! Derived files are read with `read_at`, so that a double can count the reads, and fail.
//! Threads: shared by all; no state.
//! Not promised: that a change is durable before `sync_data` of the file and `sync_dir` of its
//! directory, or `sync_all`.

use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Everything that changes a disk, and opening files, which needs descriptors. The default methods
/// use the machine's disk.
pub trait Disk: Send + Sync + Debug {
    /// Opens an existing file to read and write.
    fn open(&self, path: &Path) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).open(path)
    }

    /// Opens a file to read and write; creates an empty one if there is none.
    fn create(&self, path: &Path) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
    }

    /// Reads into `buf` from `position` on. Returns the number of bytes; 0 at the file's end.
    fn read_at(&self, file: &File, buf: &mut [u8], position: u64) -> io::Result<usize> {
        super::cold::read_at(file, buf, position)
    }

    /// Writes all of `bufs`, one after the other, at `position`.
    fn write_at(&self, file: &File, bufs: &[&[u8]], position: u64) -> io::Result<()> {
        match bufs {
            [one] => file.write_all_at(one, position),
            many => crate::sys::write_vectored_at(file, many, position),
        }
    }

    /// Cuts or extends the file (with zeros), and gives back space reserved beyond `len`.
    fn set_len(&self, file: &File, len: u64) -> io::Result<()> {
        file.set_len(len)
    }

    /// Reserves space without changing the size. Any system may refuse it.
    fn allocate(&self, file: &File, from: u64, len: u64) -> io::Result<()> {
        crate::sys::allocate_ahead(file, from, len)
    }

    /// Makes the file's data and size durable (`fdatasync`).
    fn sync_data(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }

    /// Makes the directory's entries durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    /// Makes everything durable that was written to the file system of `handle` since that was
    /// opened: data and entries. `Unsupported`: the system has no reliable call for that.
    fn sync_all(&self, handle: &File) -> io::Result<()> {
        crate::sys::sync_file_system(handle)
    }

    /// Renames a file or directory; replaces an existing one of the new name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    /// Makes one directory; fine if it is there.
    fn make_dir(&self, path: &Path) -> io::Result<()> {
        match std::fs::create_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        }
    }

    /// Removes an empty directory.
    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_dir(path)
    }
}

/// The machine's disk.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

impl Disk for RealDisk {}

/// The distance between the bytes that [`FileRange::is_cached`] probes.
const PROBE: usize = 512 << 10;

/// A range of bytes of a file, to be sent as they are. The file stays readable while this exists,
/// even if it is deleted.
#[derive(Clone, Debug)]
pub struct FileRange {
    /// The open file; its cursor has no meaning.
    pub file: Arc<File>,
    /// Where the bytes begin.
    pub position: u64,
    /// How many there are.
    pub len: usize,
}

impl FileRange {
    /// Reads the bytes into memory, for readers that cannot take a file.
    pub fn to_vec(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.read_into(&mut bytes)?;
        Ok(bytes)
    }

    /// Whether the page cache has the bytes, as far as probes at every [`PROBE`] bytes show.
    pub fn is_cached(&self) -> bool {
        let last = (self.len as u64).saturating_sub(1);
        let mut at = (0..last).step_by(PROBE).skip(1).chain([last]);
        at.all(|at| {
            let found = crate::sys::read_cached(&self.file, &mut [0], self.position + at);
            found.map_or_else(|error| error.kind() != io::ErrorKind::WouldBlock, |_| true)
        })
    }

    /// Reads the bytes, so that the page cache has them; through `piece`.
    pub fn warm(&self, piece: &mut [u8]) -> io::Result<()> {
        let (mut at, end) = (self.position, self.position + self.len as u64);
        while at < end {
            let left = usize::try_from(end - at).unwrap_or(piece.len()).min(piece.len());
            match self.file.read_at(piece.get_mut(..left).unwrap_or_default(), at)? {
                0 => return Ok(()),
                count => at += count as u64,
            }
        }
        Ok(())
    }

    /// Appends the bytes to `out`; after an error `out` is as before.
    pub fn read_into(&self, out: &mut Vec<u8>) -> io::Result<()> {
        let start = out.len();
        out.resize(start + self.len, 0);
        let room = out.get_mut(start..).unwrap_or_default();
        let outcome = self.file.read_exact_at(room, self.position);
        if outcome.is_err() {
            out.truncate(start);
        }
        outcome
    }
}

/// Reads all of `buf` from `position` on. `UnexpectedEof`: the file ends before.
pub(crate) fn read_exact_at(
    disk: &dyn Disk,
    file: &File,
    mut buf: &mut [u8],
    mut position: u64,
) -> io::Result<()> {
    while !buf.is_empty() {
        match disk.read_at(file, buf, position) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                buf = buf.get_mut(count..).unwrap_or_default();
                position += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads a whole small file.
pub(crate) fn read(disk: &dyn Disk, path: &Path) -> io::Result<Vec<u8>> {
    let file = disk.open(path)?;
    let len = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
    let mut bytes = vec![0; len];
    read_exact_at(disk, &file, &mut bytes, 0)?;
    Ok(bytes)
}

/// Writes a derived file: a new file and a rename, without a sync, because a file that a crash
/// damages is rebuilt. A thread that has the old file open keeps it.
pub(crate) fn replace_derived(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = with_suffix(path, ".tmp");
    let file = disk.create(&temporary)?;
    disk.set_len(&file, 0)?;
    disk.write_at(&file, &[bytes], 0)?;
    disk.rename(&temporary, path)
}

/// Makes a directory, and those above it that are not there; each is durable in the one above.
pub(crate) fn make_dirs(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    if path.as_os_str().is_empty() || path.is_dir() {
        return Ok(());
    }
    let parent = path.parent().unwrap_or_else(|| Path::new(""));
    make_dirs(disk, parent)?;
    disk.make_dir(path)?;
    disk.sync_dir(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })
}

/// Removes a file; fine if it is not there.
pub(crate) fn remove_if_there(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    match disk.remove(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Renames a file; false if it is not there.
pub(crate) fn rename_if_there(disk: &dyn Disk, from: &Path, to: &Path) -> io::Result<bool> {
    match disk.rename(from, to) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removes a directory and the plain files in it. It fails if there is a directory inside.
pub(crate) fn remove_tree(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(path)? {
        remove_if_there(disk, &entry?.path())?;
    }
    disk.remove_dir(path)
}

/// `path` with `suffix` appended.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
