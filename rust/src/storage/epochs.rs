//! The leader epochs of one partition and the offset where each began (`leader-epoch-checkpoint`).
//! Format: text; line 1 version `0`, line 2 the count n, then n lines `epoch start_offset`. A Kafka
//!     creates the file empty and first writes it when an epoch begins.
//! Invariant: epoch[i] < epoch[i+1], start_offset[i] < start_offset[i+1] <= log_end_offset.
//! Threads: guarded by the partition's lock; reads of the log do not use it.
//! Not promised: that the file is up to date after a crash. Recovery rebuilds it from batches.

use crate::ids::{Epoch, Offset};

/// The epochs of one log, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Epochs {
    entries: Vec<(Epoch, Offset)>,
}

impl Epochs {
    /// Reads the file's text; `None` if it is malformed. Without its last newline it was cut, and
    /// the last number may be cut too. An empty text holds no epoch.
    pub fn parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Some(Self::default());
        }
        let mut lines = text.strip_suffix('\n')?.lines();
        if lines.next()?.trim() != "0" {
            return None;
        }
        let count: usize = lines.next()?.trim().parse().ok()?;
        let mut epochs = Self::default();
        for line in lines {
            let mut words = line.split_ascii_whitespace();
            let epoch = Epoch(words.next()?.parse().ok()?);
            let start = Offset(words.next()?.parse().ok()?);
            let follows = epochs.entries.last().is_none_or(|last| last.0 < epoch && last.1 < start);
            if words.next().is_some() || epoch.0 < 0 || start.0 < 0 || !follows {
                return None;
            }
            epochs.entries.push((epoch, start));
        }
        (epochs.entries.len() == count).then_some(epochs)
    }

    /// The file's text.
    pub fn to_text(&self) -> String {
        let mut text = format!("0\n{}\n", self.entries.len());
        for (epoch, start) in &self.entries {
            text.push_str(&format!("{} {}\n", epoch.0, start.0));
        }
        text
    }

    /// The entries, oldest first.
    pub fn entries(&self) -> &[(Epoch, Offset)] {
        &self.entries
    }

    /// The newest epoch, or [`Epoch::NONE`].
    pub fn latest(&self) -> Epoch {
        self.entries.last().map_or(Epoch::NONE, |entry| entry.0)
    }

    /// The newest epoch that began before `end`, or [`Epoch::NONE`].
    pub fn latest_before(&self, end: Offset) -> Epoch {
        let last = self.entries.iter().rev().find(|entry| entry.1 < end);
        last.map_or(Epoch::NONE, |entry| entry.0)
    }

    /// Notes that `epoch` begins at `start`. Returns whether that was new.
    pub fn assign(&mut self, epoch: Epoch, start: Offset) -> bool {
        if epoch.0 < 0 || epoch <= self.latest() {
            return false;
        }
        self.entries.retain(|entry| entry.1 < start);
        self.entries.push((epoch, start));
        true
    }

    /// The largest epoch up to `asked` and the offset where it ended (KIP-101, KIP-279), in a log
    /// that ends at `log_end`. (-1, -1): unknown.
    pub fn end_offset(&self, asked: Epoch, log_end: Offset) -> (Epoch, Offset) {
        if asked.0 >= 0 && asked == self.latest() {
            return (asked, log_end);
        }
        let above = self.entries.partition_point(|entry| entry.0 <= asked);
        match self.entries.get(above) {
            None => (Epoch::NONE, Offset::NONE),
            Some(_) if asked.0 < 0 => (Epoch::NONE, Offset::NONE),
            Some(next) => {
                let floor = above.checked_sub(1).and_then(|index| self.entries.get(index));
                (floor.map_or(asked, |entry| entry.0), next.1)
            }
        }
    }

    /// The epoch that wrote `offset`.
    pub fn epoch_at(&self, offset: Offset) -> Epoch {
        let above = self.entries.partition_point(|entry| entry.1 <= offset);
        let entry = above.checked_sub(1).and_then(|index| self.entries.get(index));
        entry.map_or(Epoch::NONE, |entry| entry.0)
    }

    /// Forgets epochs that began at `end` or later; true if there were any.
    pub fn truncate_to(&mut self, end: Offset) -> bool {
        let count = self.entries.len();
        self.entries.retain(|entry| entry.1 < end);
        self.entries.len() != count
    }

    /// Forgets epochs that ended before `start`; the one that covers it begins there now.
    pub fn truncate_from_start(&mut self, start: Offset) -> bool {
        let covering = self.entries.partition_point(|entry| entry.1 <= start);
        let Some(first) = covering.checked_sub(1) else { return false };
        let changed = first > 0 || self.entries.first().is_some_and(|entry| entry.1 < start);
        self.entries.drain(..first);
        if let Some(entry) = self.entries.first_mut() {
            entry.1 = start;
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epochs(entries: &[(i32, i64)]) -> Epochs {
        let mut epochs = Epochs::default();
        for &(epoch, start) in entries {
            epochs.assign(Epoch(epoch), Offset(start));
        }
        epochs
    }

    #[test]
    fn text_survives_the_round_trip() {
        let some = epochs(&[(0, 0), (3, 17), (4, 99)]);
        assert_eq!(some.to_text(), "0\n3\n0 0\n3 17\n4 99\n");
        assert_eq!(Epochs::parse(&some.to_text()), Some(some));
        for torn in ["0\n2\n0 0\n", "1\n0\n", "0\n1\n0\n", "0\n2\n1 5\n0 9\n"] {
            assert_eq!(Epochs::parse(torn), None, "{torn:?}");
        }
        let whole = "0\n1\n0 120\n";
        (1..whole.len()).for_each(|len| assert_eq!(Epochs::parse(&whole[..len]), None, "{len}"));
    }

    #[test]
    fn a_file_that_a_kafka_has_not_written_yet_holds_no_epoch() {
        assert_eq!(Epochs::parse(""), Some(Epochs::default()));
        assert_eq!(Epochs::parse("0\n0\n"), Some(Epochs::default()));
    }

    #[test]
    fn end_offset_is_the_start_of_the_next_epoch() {
        let some = epochs(&[(1, 5), (3, 17), (4, 99)]);
        let end = |epoch| some.end_offset(Epoch(epoch), Offset(120));
        assert_eq!(end(4), (Epoch(4), Offset(120)));
        assert_eq!(end(5), (Epoch::NONE, Offset::NONE));
        assert_eq!(end(3), (Epoch(3), Offset(99)));
        assert_eq!(end(2), (Epoch(1), Offset(17)));
        assert_eq!(end(0), (Epoch(0), Offset(5)));
        assert_eq!(some.epoch_at(Offset(20)), Epoch(3));
    }

    #[test]
    fn cuts_keep_the_epoch_that_covers_the_edge() {
        let mut some = epochs(&[(1, 5), (3, 17), (4, 99)]);
        assert!(some.truncate_from_start(Offset(20)));
        assert_eq!(some.entries(), [(Epoch(3), Offset(20)), (Epoch(4), Offset(99))]);
        assert!(some.truncate_to(Offset(99)));
        assert_eq!(some.entries(), [(Epoch(3), Offset(20))]);
        assert!(!some.truncate_to(Offset(99)));
    }
}
