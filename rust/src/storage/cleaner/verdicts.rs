//! Decisions about whole batches, made while the dirty part of a log is mapped. If every record is
//! the last of its key, the batch is kept unchanged. If none is, the batch is dropped. Neither is
//! opened again. A segment whose records all stay is not read again.
//!
//! Two bits for each offset from `base` on: the record there is the last of its key; a batch begins
//! there whose records all have a key and a value and are in no transaction.
//! Invariant: `known` <= base + bits. Batches and segments that begin below `base` or end above
//! `known` have no verdict.
//! Threads: a plain value of one cleaner.
//! Not promised: verdicts for the whole dirty part. The memory is a sixteenth of the key map's;
//! beyond it batches are opened. A segment of plain batches takes 24 bytes more.

use super::keymap::KeyMap;

const WORD: usize = u64::BITS as usize;

/// Decisions about whole batches (see the module).
#[derive(Debug)]
pub(super) struct Verdicts {
    base: i64,
    /// The last offset that was mapped and has bits.
    known: i64,
    last: Vec<u64>,
    plain: Vec<u64>,
    segments: Vec<PlainSegment>,
}

/// A segment of plain batches.
#[derive(Clone, Copy, Debug)]
struct PlainSegment {
    base_offset: i64,
    last_offset: i64,
    records: usize,
}

/// The decision about a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BatchVerdict {
    /// Every record stays.
    Stays,
    /// Every record is dropped.
    Goes,
    /// The records for which [`Verdicts::is_last`] is true stay.
    Mixed,
    /// There is none.
    Unknown,
}

impl Verdicts {
    /// Verdicts for the offsets from `base` on: for `wanted` offsets, or as many as `memory`
    /// allows.
    pub(super) fn new(memory: usize, base: i64, wanted: u64) -> Self {
        let most = memory / 16 / (2 * size_of::<u64>());
        let words = usize::try_from(wanted.div_ceil(WORD as u64)).unwrap_or(usize::MAX).min(most);
        let (last, plain) = (vec![0; words], vec![0; words]);
        Self { base, known: base - 1, last, plain, segments: Vec::new() }
    }

    /// Memory it takes.
    pub(super) const fn bytes(&self) -> usize {
        (self.last.len() + self.plain.len()) * size_of::<u64>()
    }

    /// Notes a plain batch at `base_offset`: all its records have a key and a value, and are in no
    /// transaction.
    pub(super) fn note_plain(&mut self, base_offset: i64) {
        set(&mut self.plain, base_offset.checked_sub(self.base));
    }

    /// Notes a segment that has only plain batches, none of them empty, and that was mapped
    /// completely.
    pub(super) fn note_segment(&mut self, base_offset: i64, last_offset: i64, records: usize) {
        self.segments.push(PlainSegment { base_offset, last_offset, records });
    }

    /// Makes the decisions when the map is complete.
    pub(super) fn settle(&mut self, map: &KeyMap) {
        let bits = i64::try_from(self.last.len().saturating_mul(WORD)).unwrap_or(i64::MAX);
        self.known = map.latest().min(self.base.saturating_add(bits) - 1);
        for offset in map.offsets().filter(|offset| *offset <= self.known) {
            set(&mut self.last, offset.checked_sub(self.base));
        }
    }

    /// The verdict for the batch with `count` records from `base_offset` to `last_offset`.
    pub(super) fn of(&self, base_offset: i64, last_offset: i64, count: usize) -> BatchVerdict {
        if !is_set(&self.plain, base_offset.checked_sub(self.base)) {
            return BatchVerdict::Unknown;
        }
        match self.lasts(base_offset, last_offset) {
            None => BatchVerdict::Unknown,
            Some(0) => BatchVerdict::Goes,
            Some(stay) if stay == count => BatchVerdict::Stays,
            Some(_) => BatchVerdict::Mixed,
        }
    }

    /// Whether the record at an offset of a batch that is known is the last of its key.
    pub(super) fn is_last(&self, offset: i64) -> bool {
        is_set(&self.last, offset.checked_sub(self.base))
    }

    /// How many records a segment has, if all of them stay.
    pub(super) fn untouched(&self, base_offset: i64) -> Option<usize> {
        let at = self.segments.binary_search_by_key(&base_offset, |one| one.base_offset).ok()?;
        let segment = self.segments.get(at)?;
        let stay = self.lasts(base_offset, segment.last_offset)?;
        (stay == segment.records).then_some(stay)
    }

    /// How many of these offsets, the last one included, are the last of their keys; `None` if that
    /// is unknown for some.
    fn lasts(&self, first: i64, last: i64) -> Option<usize> {
        let from = usize::try_from(first.checked_sub(self.base)?).ok()?;
        let count = usize::try_from(last.checked_sub(first)?).ok()? + 1;
        (last <= self.known).then(|| self.count(from, from + count))
    }

    /// How many offsets of the bits `from..end` are the last of their keys.
    fn count(&self, from: usize, end: usize) -> usize {
        let words = self.last.iter().enumerate().take(end.div_ceil(WORD)).skip(from / WORD);
        let ones = words.map(|(at, word)| {
            let low = u64::MAX << from.saturating_sub(at * WORD).min(WORD - 1);
            let high = u64::MAX >> ((at + 1) * WORD).saturating_sub(end).min(WORD - 1);
            (word & low & high).count_ones() as usize
        });
        ones.sum()
    }
}

fn is_set(bits: &[u64], bit: Option<i64>) -> bool {
    let bit = bit.and_then(|bit| usize::try_from(bit).ok()).unwrap_or(usize::MAX);
    bits.get(bit / WORD).is_some_and(|word| word >> (bit % WORD) & 1 == 1)
}

fn set(bits: &mut [u64], bit: Option<i64>) {
    let Some(bit) = bit.and_then(|bit| usize::try_from(bit).ok()) else { return };
    if let Some(word) = bits.get_mut(bit / WORD) {
        *word |= 1 << (bit % WORD);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys of batches of ten records each from offset 1000 on; batch 2 has something else too.
    fn settled(keys: &[i64], memory: usize) -> Verdicts {
        let wanted = keys.len() as u64;
        let mut map = KeyMap::new(1 << 20, 0.9, 1000, wanted);
        let mut verdicts = Verdicts::new(memory, 1000, wanted);
        for (offset, key) in (1000..).zip(keys) {
            let hashed = map.hash(&key.to_be_bytes());
            assert!(map.put(hashed, offset));
            map.set_latest(offset);
            if offset % 10 == 0 && offset != 1020 {
                verdicts.note_plain(offset);
            }
        }
        verdicts.settle(&map);
        verdicts
    }

    #[test]
    fn verdicts_agree_with_each_record() {
        let keys: Vec<i64> = (0..2000).map(|n| n * n * 7919 / 64 % 1301 / (1 + n / 400)).collect();
        let verdicts = settled(&keys, 1 << 20);
        let mut found = std::collections::HashSet::new();
        for (number, batch) in keys.chunks(10).enumerate() {
            let later = &keys[number * 10 + 10..];
            let stays =
                |at: usize| !batch[at + 1..].contains(&batch[at]) && !later.contains(&batch[at]);
            let stay = (0..10).filter(|at| stays(*at)).count();
            let base = 1000 + number as i64 * 10;
            let verdict = verdicts.of(base, base + 9, 10);
            found.insert(format!("{verdict:?}"));
            let wanted = match stay {
                _ if number == 2 => BatchVerdict::Unknown,
                0 => BatchVerdict::Goes,
                10 => BatchVerdict::Stays,
                _ => BatchVerdict::Mixed,
            };
            assert_eq!(verdict, wanted, "batch {number}");
            assert!((0..10).all(|at| verdicts.is_last(base + at as i64) == stays(at)));
        }
        assert_eq!(found.len(), 4);
    }

    #[test]
    fn batches_outside_the_map_are_unknown() {
        let keys: Vec<i64> = (0..200).collect();
        let verdicts = settled(&keys, 16 * 16);
        assert_eq!(verdicts.bytes(), 16);
        assert_eq!(verdicts.of(1000, 1009, 10), BatchVerdict::Stays);
        assert_eq!(verdicts.of(1000, 1009, 9), BatchVerdict::Mixed);
        assert_eq!(verdicts.of(990, 1009, 10), BatchVerdict::Unknown);
        assert_eq!(verdicts.of(1050, 1063, 14), BatchVerdict::Stays);
        assert_eq!(verdicts.of(1060, 1069, 10), BatchVerdict::Unknown);
        assert_eq!(verdicts.of(1190, 1199, 10), BatchVerdict::Unknown);
        assert_eq!(verdicts.of(1005, 1009, 5), BatchVerdict::Unknown);
    }
}
