//! The sparse indexes of a segment: `.index` (offset to position) and `.timeindex` (time to
//! offset).
//! Format: `.index` entries of 8 bytes, `offset - base_offset int32, position int32`: the batch at
//! `position` ends at that offset. `.timeindex` entries of 12 bytes, `timestamp int64, offset -
//! base_offset int32`: the largest timestamp so far, and the last offset of its batch.
//! Invariant: keys rise strictly. A tail of zeros (Kafka preallocates, and leaves it when killed)
//! and a half entry do not belong to an index.
//! Threads: pure functions over the bytes of an index.
//! Not promised: that an index is right, because it is derived. The reader checks the batch at the
//! position, and requests a rebuild if it does not fit.

/// One kind of entry.
pub trait IndexEntry: Copy + PartialEq + std::fmt::Debug + Send + Sync {
    /// Bytes on disk.
    const SIZE: usize;
    /// What entries are sorted by.
    type Key: Ord + Copy;
    /// Reads an entry from `SIZE` bytes.
    fn read(bytes: &[u8]) -> Option<Self>;
    /// Appends the entry's bytes.
    fn write(&self, out: &mut Vec<u8>);
    /// What entries are sorted by.
    fn key(&self) -> Self::Key;
    /// Whether an index could hold it, after `before`.
    fn may_follow(&self, before: Option<&Self>) -> bool;
}

/// Two neighbouring entries; one is missing at the ends of an index.
pub(crate) type NeighbourEntries<E> = (Option<E>, Option<E>);

/// An entry of `.index`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetEntry {
    /// Last offset of the batch, less the segment's base offset.
    pub delta: i32,
    /// Where the batch begins.
    pub position: i32,
}

/// An entry of `.timeindex`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeEntry {
    /// The largest timestamp in the segment so far.
    pub timestamp: i64,
    /// Last offset of the batch that has it, less the segment's base offset.
    pub delta: i32,
}

impl IndexEntry for OffsetEntry {
    const SIZE: usize = 8;
    type Key = i32;

    fn read(bytes: &[u8]) -> Option<Self> {
        let (delta, rest) = bytes.split_first_chunk()?;
        let position = rest.first_chunk()?;
        Some(Self { delta: i32::from_be_bytes(*delta), position: i32::from_be_bytes(*position) })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.delta.to_be_bytes());
        out.extend_from_slice(&self.position.to_be_bytes());
    }

    fn key(&self) -> i32 {
        self.delta
    }

    fn may_follow(&self, before: Option<&Self>) -> bool {
        let (delta, position) = before.map_or((-1, -1), |entry| (entry.delta, entry.position));
        self.delta > delta && self.position > position
    }
}

impl IndexEntry for TimeEntry {
    const SIZE: usize = 12;
    type Key = i64;

    fn read(bytes: &[u8]) -> Option<Self> {
        let (timestamp, rest) = bytes.split_first_chunk()?;
        let delta = rest.first_chunk()?;
        Some(Self { timestamp: i64::from_be_bytes(*timestamp), delta: i32::from_be_bytes(*delta) })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.timestamp.to_be_bytes());
        out.extend_from_slice(&self.delta.to_be_bytes());
    }

    fn key(&self) -> i64 {
        self.timestamp
    }

    fn may_follow(&self, before: Option<&Self>) -> bool {
        let (timestamp, delta) = before.map_or((-1, 0), |entry| (entry.timestamp, entry.delta));
        self.timestamp > timestamp && self.delta >= delta
    }
}

/// The size of the whole entries in `bytes` before the tail of zeros.
pub(crate) fn valid_len<E: IndexEntry>(bytes: &[u8]) -> usize {
    let whole = bytes.len() / E::SIZE * E::SIZE;
    let is_set = |entry: &[u8]| entry.iter().any(|byte| *byte != 0);
    let tail_is_set =
        whole.checked_sub(E::SIZE).and_then(|from| bytes.get(from..whole)).is_some_and(is_set);
    if tail_is_set {
        return whole;
    }
    let (mut low, mut high) = (0, whole / E::SIZE);
    while low < high {
        let middle = (low + high) / 2;
        if bytes.get(middle * E::SIZE..(middle + 1) * E::SIZE).is_some_and(is_set) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low * E::SIZE
}

/// The last entry, if all entries rise and follow `before`; otherwise `None`.
#[expect(clippy::option_option, reason = "whether they rise, and whether there are any")]
pub(crate) fn rises<E: IndexEntry>(bytes: &[u8], mut before: Option<E>) -> Option<Option<E>> {
    let rise = entries::<E>(bytes).all(|entry| {
        let fits = entry.may_follow(before.as_ref());
        before = Some(entry);
        fits
    });
    rise.then_some(before)
}

/// All entries of an index's bytes.
pub(crate) fn entries<'b, E: IndexEntry + 'b>(bytes: &'b [u8]) -> impl Iterator<Item = E> + 'b {
    bytes.chunks_exact(E::SIZE).filter_map(E::read)
}

/// The last entry.
pub(crate) fn last<E: IndexEntry>(bytes: &[u8]) -> Option<E> {
    bytes.len().checked_sub(E::SIZE).and_then(|from| E::read(bytes.get(from..)?))
}

/// The last entry for which `pred` holds, where it holds for a head of the entries.
pub(crate) fn floor<E: IndexEntry>(bytes: &[u8], pred: impl Fn(&E) -> bool) -> Option<E> {
    around(bytes, pred).0
}

/// The last entry for which `pred` holds and the one after it, where it holds for a head.
pub(crate) fn around<E: IndexEntry>(
    bytes: &[u8],
    pred: impl Fn(&E) -> bool,
) -> NeighbourEntries<E> {
    let count = partition::<E>(bytes, &pred);
    let at = |index: usize| E::read(bytes.get(index * E::SIZE..)?);
    (count.checked_sub(1).and_then(at), at(count))
}

/// How many entries `pred` holds for, where it holds for a head of them.
pub(crate) fn partition<E: IndexEntry>(bytes: &[u8], pred: &impl Fn(&E) -> bool) -> usize {
    let (mut low, mut high) = (0, bytes.len() / E::SIZE);
    while low < high {
        let middle = (low + high) / 2;
        if bytes.get(middle * E::SIZE..).and_then(E::read).is_some_and(|entry| pred(&entry)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}
