//! The test double of [`RealDisk`]: it changes real files, records every change, builds each image
//! that a crash may leave, and fails on demand. For tests and simulators.
//!
//! Model: names and contents are separate. A directory's changes become durable in order, with
//! `sync_dir`, or by chance earlier. A file's unsynced writes become durable in blocks of 512
//! bytes, in any subset; its size in order. Bytes that no block filled read as zeros, or, in
//! some crashes, as old bytes of the disk. `sync_all` makes everything durable.
//! Threads: one mutex; the order of the record is the order of the calls.
//! Not promised: hard links, directories below a partition's, or files opened without this disk.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use super::files::{Disk, RealDisk};

const BLOCK: usize = 512;
const ROOT: usize = 0;

/// A kind of call that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskCall {
    /// `write_at`; half of the bytes arrive before the error.
    Write,
    /// `sync_data`.
    SyncData,
    /// `sync_dir`.
    SyncDir,
    /// `sync_all`.
    SyncAll,
    /// `rename`.
    Rename,
    /// `create`.
    Create,
    /// `set_len`.
    SetLen,
}

/// A failure to inject.
#[derive(Clone, Copy, Debug)]
pub struct InjectedFault {
    /// Which calls fail.
    pub call: DiskCall,
    /// The `errno` they fail with.
    pub code: i32,
    /// The number of such calls that succeed first.
    pub skip: usize,
    /// The number of calls that then fail; `usize::MAX`: all.
    pub times: usize,
}

/// What a crash keeps of the first `ops` recorded changes.
#[derive(Clone, Copy, Debug)]
pub enum Crash {
    /// The process died: all changes are kept, of the last write only the first `torn` bytes.
    Kill {
        /// How many bytes of the last change were written, if it was a write.
        torn: usize,
    },
    /// The power failed: synced changes are kept, and of the others a choice made by `seed`.
    PowerCut {
        /// Reproduces the choice.
        seed: u64,
    },
    /// The power failed: synced changes are kept, and of the others those whose bit is set, counted
    /// from the first (see [`RecordingDisk::unsynced`]); of a directory's, the first ones.
    Chosen {
        /// Which unsynced changes are kept, whole.
        mask: u64,
    },
}

/// A disk that records its changes.
#[derive(Debug)]
pub struct RecordingDisk {
    root: PathBuf,
    state: Mutex<RecordingState>,
}

#[derive(Debug, Default)]
struct RecordingState {
    ops: Vec<Change>,
    /// A description of each change.
    labels: Vec<String>,
    /// The last name of each file.
    names: HashMap<usize, String>,
    start: Image,
    now: Image,
    inodes: HashMap<u64, usize>,
    faults: Vec<InjectedFault>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inode {
    File(usize),
    Dir(usize),
}

#[derive(Clone, Debug)]
enum Change {
    Name { dir: usize, changes: Vec<(OsString, Option<Inode>)> },
    Write { file: usize, position: usize, bytes: Vec<u8> },
    SetLen { file: usize, len: usize },
    SyncData { file: usize },
    SyncDir { dir: usize },
    SyncAll,
}

#[derive(Clone, Debug, Default)]
struct Image {
    dirs: Vec<BTreeMap<OsString, Inode>>,
    files: Vec<Vec<u8>>,
}

impl RecordingDisk {
    /// Records changes below `root`, whose present content counts as durable.
    pub fn new(root: &Path) -> io::Result<Self> {
        let mut state = RecordingState::default();
        state.start.dirs.push(BTreeMap::new());
        load(&mut state, root, ROOT)?;
        state.now = state.start.clone();
        Ok(Self { root: root.to_owned(), state: Mutex::new(state) })
    }

    /// How many changes were recorded.
    pub fn ops(&self) -> usize {
        self.state.lock().ops.len()
    }

    /// How many calls of `sync_data`, `sync_dir` and `sync_all` were recorded.
    pub fn syncs(&self) -> usize {
        use Change::{SyncAll, SyncData, SyncDir};
        let is_sync = |op: &&Change| matches!(op, SyncData { .. } | SyncDir { .. } | SyncAll);
        self.state.lock().ops.iter().filter(is_sync).count()
    }

    /// How many writes were recorded.
    pub fn writes(&self) -> usize {
        self.state.lock().ops.iter().filter(|op| matches!(op, Change::Write { .. })).count()
    }

    /// The description of the `number`th change, counted from 0: `write 00.log`, `rename a.tmp a`.
    pub fn label(&self, number: usize) -> String {
        self.state.lock().labels.get(number).cloned().unwrap_or_default()
    }

    /// How many of the first `ops` changes were not synced by then.
    pub fn unsynced(&self, ops: usize) -> usize {
        let state = self.state.lock();
        pending(state.ops.get(..ops).unwrap_or(&state.ops)).iter().filter(|held| **held).count()
    }

    /// Makes calls fail from now on.
    pub fn inject(&self, fault: InjectedFault) {
        self.state.lock().faults.push(fault);
    }

    /// Removes all remaining faults.
    pub fn heal(&self) {
        self.state.lock().faults.clear();
    }

    /// Writes what a crash after the first `ops` changes leaves to the empty directory `target`.
    pub fn crash(&self, ops: usize, crash: Crash, target: &Path) -> io::Result<()> {
        let state = self.state.lock();
        let ops = state.ops.get(..ops).unwrap_or(&state.ops);
        let tree = match crash {
            Crash::Kill { torn } => killed(&state.start, ops, torn),
            Crash::PowerCut { seed } => power_cut(&state.start, ops, seed),
            Crash::Chosen { mask } => chosen(&state.start, ops, mask),
        };
        write_out(&tree, ROOT, target)
    }

    fn fault(&self, call: DiskCall) -> io::Result<()> {
        let mut state = self.state.lock();
        for fault in &mut state.faults {
            if fault.call != call || fault.times == 0 {
                continue;
            }
            if fault.skip > 0 {
                fault.skip -= 1;
                continue;
            }
            if fault.times != usize::MAX {
                fault.times -= 1;
            }
            return Err(io::Error::from_raw_os_error(fault.code));
        }
        Ok(())
    }

    fn record(&self, file: &File, op: impl FnOnce(usize) -> Change) -> io::Result<()> {
        let inode = file.metadata()?.ino();
        let mut state = self.state.lock();
        if let Some(&id) = state.inodes.get(&inode) {
            state.push(op(id));
        }
        Ok(())
    }

    fn record_names(&self, parent: &Path, changes: Vec<(OsString, Option<Inode>)>) {
        let mut state = self.state.lock();
        if let Some(dir) = find_dir(&state.now, &self.root, parent) {
            state.push(Change::Name { dir, changes });
        }
    }

    fn node(&self, path: &Path) -> Option<Inode> {
        let state = self.state.lock();
        let dir = find_dir(&state.now, &self.root, path.parent()?)?;
        state.now.dirs.get(dir)?.get(path.file_name()?).copied()
    }
}

impl RecordingState {
    fn push(&mut self, op: Change) {
        let name = |file: &usize| self.names.get(file).map_or("?", String::as_str);
        let label = match &op {
            Change::Write { file, .. } => format!("write {}", name(file)),
            Change::SetLen { file, .. } => format!("resize {}", name(file)),
            Change::SyncData { file } => format!("sync {}", name(file)),
            Change::SyncDir { .. } => String::from("sync names"),
            Change::SyncAll => String::from("sync all"),
            Change::Name { changes, .. } => {
                let names: Vec<_> = changes.iter().map(|it| it.0.to_string_lossy()).collect();
                let what = match changes.as_slice() {
                    [(_, None)] => "remove",
                    [_] => "create",
                    _ => "rename",
                };
                format!("{what} {}", names.join(" "))
            }
        };
        if let Change::Name { changes, .. } = &op {
            for (name, node) in changes {
                if let Some(Inode::File(id)) = node {
                    self.names.insert(*id, name.to_string_lossy().into_owned());
                }
            }
        }
        apply(&mut self.now, &op);
        self.ops.push(op);
        self.labels.push(label);
    }
}

impl Disk for RecordingDisk {
    fn open(&self, path: &Path) -> io::Result<File> {
        RealDisk.open(path)
    }

    fn create(&self, path: &Path) -> io::Result<File> {
        self.fault(DiskCall::Create)?;
        let file = RealDisk.create(path)?;
        let inode = file.metadata()?.ino();
        if self.node(path).is_none() {
            let id = {
                let mut state = self.state.lock();
                let id = state.now.files.len();
                state.now.files.push(Vec::new());
                state.inodes.insert(inode, id);
                id
            };
            let (parent, name) = split(path)?;
            self.record_names(parent, vec![(name, Some(Inode::File(id)))]);
        }
        Ok(file)
    }

    fn write_at(&self, file: &File, bufs: &[&[u8]], position: u64) -> io::Result<()> {
        let mut bytes = bufs.concat();
        let outcome = self.fault(DiskCall::Write);
        if outcome.is_err() {
            bytes.truncate(bytes.len() / 2);
        }
        RealDisk.write_at(file, &[&bytes], position)?;
        let position = usize::try_from(position).map_err(io::Error::other)?;
        self.record(file, |file| Change::Write { file, position, bytes })?;
        outcome
    }

    fn set_len(&self, file: &File, len: u64) -> io::Result<()> {
        self.fault(DiskCall::SetLen)?;
        RealDisk.set_len(file, len)?;
        let len = usize::try_from(len).map_err(io::Error::other)?;
        self.record(file, |file| Change::SetLen { file, len })
    }

    fn allocate(&self, _file: &File, _from: u64, _len: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync_data(&self, file: &File) -> io::Result<()> {
        self.fault(DiskCall::SyncData)?;
        self.record(file, |file| Change::SyncData { file })
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.fault(DiskCall::SyncDir)?;
        let mut state = self.state.lock();
        if let Some(dir) = find_dir(&state.now, &self.root, path) {
            state.push(Change::SyncDir { dir });
        }
        Ok(())
    }

    fn sync_all(&self, _handle: &File) -> io::Result<()> {
        self.fault(DiskCall::SyncAll)?;
        self.state.lock().push(Change::SyncAll);
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.fault(DiskCall::Rename)?;
        let node = self.node(from);
        RealDisk.rename(from, to)?;
        let ((parent, old), (_, new)) = (split(from)?, split(to)?);
        if node.is_some() {
            self.record_names(parent, vec![(old, None), (new, node)]);
        }
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove(path)?;
        let (parent, name) = split(path)?;
        self.record_names(parent, vec![(name, None)]);
        Ok(())
    }

    fn make_dir(&self, path: &Path) -> io::Result<()> {
        RealDisk.make_dir(path)?;
        if self.node(path).is_none() {
            let id = {
                let mut state = self.state.lock();
                state.now.dirs.push(BTreeMap::new());
                state.now.dirs.len() - 1
            };
            let (parent, name) = split(path)?;
            self.record_names(parent, vec![(name, Some(Inode::Dir(id)))]);
        }
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove_dir(path)?;
        let (parent, name) = split(path)?;
        self.record_names(parent, vec![(name, None)]);
        Ok(())
    }
}

fn split(path: &Path) -> io::Result<(&Path, OsString)> {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => Ok((parent, name.to_owned())),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
}

fn find_dir(tree: &Image, root: &Path, path: &Path) -> Option<usize> {
    let mut at = ROOT;
    for part in path.strip_prefix(root).ok()?.components() {
        match tree.dirs.get(at)?.get(part.as_os_str())? {
            Inode::Dir(id) => at = *id,
            Inode::File(_) => return None,
        }
    }
    Some(at)
}

fn load(state: &mut RecordingState, path: &Path, dir: usize) -> io::Result<()> {
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        let node = if metadata.is_dir() {
            state.start.dirs.push(BTreeMap::new());
            let id = state.start.dirs.len() - 1;
            load(state, &entry.path(), id)?;
            Inode::Dir(id)
        } else {
            state.start.files.push(std::fs::read(entry.path())?);
            let id = state.start.files.len() - 1;
            state.inodes.insert(metadata.ino(), id);
            state.names.insert(id, entry.file_name().to_string_lossy().into_owned());
            Inode::File(id)
        };
        if let Some(names) = state.start.dirs.get_mut(dir) {
            names.insert(entry.file_name(), node);
        }
    }
    Ok(())
}

fn grow(tree: &mut Image, node: Option<Inode>) {
    match node {
        Some(Inode::File(id)) if tree.files.len() <= id => tree.files.resize(id + 1, Vec::new()),
        Some(Inode::Dir(id)) if tree.dirs.len() <= id => tree.dirs.resize(id + 1, BTreeMap::new()),
        _ => {}
    }
}

fn put(content: &mut Vec<u8>, position: usize, bytes: &[u8]) {
    let end = position + bytes.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    if let Some(place) = content.get_mut(position..end) {
        place.copy_from_slice(bytes);
    }
}

fn apply(tree: &mut Image, op: &Change) {
    match op {
        Change::Name { dir, changes } => {
            grow(tree, Some(Inode::Dir(*dir)));
            for (name, node) in changes {
                grow(tree, *node);
                let Some(names) = tree.dirs.get_mut(*dir) else { continue };
                match node {
                    Some(node) => names.insert(name.clone(), *node),
                    None => names.remove(name),
                };
            }
        }
        Change::Write { file, position, bytes } => {
            grow(tree, Some(Inode::File(*file)));
            if let Some(content) = tree.files.get_mut(*file) {
                put(content, *position, bytes);
            }
        }
        Change::SetLen { file, len } => {
            grow(tree, Some(Inode::File(*file)));
            if let Some(content) = tree.files.get_mut(*file) {
                content.resize(*len, 0);
            }
        }
        Change::SyncData { .. } | Change::SyncDir { .. } | Change::SyncAll => {}
    }
}

fn apply_all<'o>(tree: &mut Image, ops: impl IntoIterator<Item = Vec<&'o Change>>) {
    ops.into_iter().flatten().for_each(|op| apply(tree, op));
}

fn killed(start: &Image, ops: &[Change], torn: usize) -> Image {
    let mut tree = start.clone();
    for (index, op) in ops.iter().enumerate() {
        match op {
            Change::Write { file, position, bytes } if index + 1 == ops.len() => {
                let bytes = bytes.get(..torn).unwrap_or(bytes).to_vec();
                apply(&mut tree, &Change::Write { file: *file, position: *position, bytes });
            }
            op => apply(&mut tree, op),
        }
    }
    tree
}

fn power_cut(start: &Image, ops: &[Change], seed: u64) -> Image {
    let mut tree = start.clone();
    let mut rng = Rng(seed | 1);
    let mut names: BTreeMap<usize, Vec<&Change>> = BTreeMap::new();
    let mut data: BTreeMap<usize, Vec<&Change>> = BTreeMap::new();
    for op in ops {
        match op {
            Change::Name { dir, .. } => names.entry(*dir).or_default().push(op),
            Change::Write { file, .. } | Change::SetLen { file, .. } => {
                data.entry(*file).or_default().push(op);
            }
            Change::SyncData { file } => apply_all(&mut tree, data.remove(file)),
            Change::SyncDir { dir } => apply_all(&mut tree, names.remove(dir)),
            Change::SyncAll => {
                apply_all(&mut tree, std::mem::take(&mut names).into_values());
                apply_all(&mut tree, std::mem::take(&mut data).into_values());
            }
        }
    }
    for pending in names.values() {
        let kept = rng.below(pending.len() + 1);
        pending.iter().take(kept).for_each(|op| apply(&mut tree, op));
    }
    for (file, pending) in &data {
        grow(&mut tree, Some(Inode::File(*file)));
        if let Some(content) = tree.files.get_mut(*file) {
            keep_some(content, pending, &mut rng);
        }
    }
    tree
}

/// The changes that no later one has made durable.
fn pending(ops: &[Change]) -> Vec<bool> {
    let mut held = vec![false; ops.len()];
    let mut files: HashMap<usize, Vec<usize>> = HashMap::new();
    let mut dirs: HashMap<usize, Vec<usize>> = HashMap::new();
    for (index, op) in ops.iter().enumerate() {
        match op {
            Change::Name { dir, .. } => dirs.entry(*dir).or_default().push(index),
            Change::Write { file, .. } | Change::SetLen { file, .. } => {
                files.entry(*file).or_default().push(index);
            }
            Change::SyncData { file } => drop(files.remove(file)),
            Change::SyncDir { dir } => drop(dirs.remove(dir)),
            Change::SyncAll => {
                files.clear();
                dirs.clear();
            }
        }
    }
    let left = files.into_values().chain(dirs.into_values()).flatten();
    left.for_each(|index| held.iter_mut().skip(index).take(1).for_each(|held| *held = true));
    held
}

fn chosen(start: &Image, ops: &[Change], mask: u64) -> Image {
    let mut tree = start.clone();
    let mut bit = 0;
    let mut stopped = HashMap::new();
    for (op, held) in ops.iter().zip(pending(ops)) {
        let mut keep = true;
        if held {
            keep = mask >> bit & 1 == 1;
            bit += 1;
        }
        if let Change::Name { dir, .. } = op {
            let stop = stopped.entry(*dir).or_insert(false);
            *stop |= !keep;
            keep = !*stop;
        }
        if keep {
            apply(&mut tree, op);
        }
    }
    tree
}

fn keep_some(content: &mut Vec<u8>, pending: &[&Change], rng: &mut Rng) {
    let sizes_kept = rng.below(pending.len() + 1);
    let odds = rng.below(5);
    let stale = rng.below(6) == 0;
    for (index, op) in pending.iter().enumerate() {
        let size = match op {
            Change::SetLen { len, .. } => Some(*len),
            Change::Write { position: at, bytes, .. } => Some(content.len().max(at + bytes.len())),
            _ => None,
        };
        if let Some(size) = size.filter(|_| index < sizes_kept) {
            let before = content.len();
            content.resize(size, 0);
            let fill = |place: &mut u8| *place = u8::try_from(rng.below(256)).unwrap_or(0);
            content.iter_mut().skip(before).take(if stale { size } else { 0 }).for_each(fill);
        }
        let Change::Write { position, bytes, .. } = op else { continue };
        let mut at = 0;
        while at < bytes.len() {
            let end = ((position + at) / BLOCK * BLOCK + BLOCK - position).min(bytes.len());
            if rng.below(4) < odds && position + at < content.len() {
                let end = end.min(content.len() - position);
                put(content, position + at, bytes.get(at..end).unwrap_or_default());
            }
            at = end.max(at + 1);
        }
    }
}

fn write_out(tree: &Image, dir: usize, target: &Path) -> io::Result<()> {
    for (name, node) in tree.dirs.get(dir).into_iter().flatten() {
        let path = target.join(name);
        match node {
            Inode::Dir(id) => {
                RealDisk.make_dir(&path)?;
                write_out(tree, *id, &path)?;
            }
            Inode::File(id) => {
                let file = RealDisk.create(&path)?;
                file.write_all_at(tree.files.get(*id).map_or(&[], Vec::as_slice), 0)?;
            }
        }
    }
    Ok(())
}

/// Xorshift: small, and the same on every machine.
struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let limit = u64::try_from(limit.max(1)).unwrap_or(u64::MAX);
        usize::try_from(self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % limit).unwrap_or(0)
    }
}
