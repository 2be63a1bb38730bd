//! The small text files of a log directory that hold an offset for each partition:
//! `recovery-point-offset-checkpoint`, `log-start-offset-checkpoint`,
//! `replication-offset-checkpoint`, `cleaner-offset-checkpoint`.
//! Format: line 1 version `0`, line 2 the count n, then n lines `topic partition offset`.
//! A crash leaves the old or the new file. A damaged file counts as empty, and a log line says what
//! that costs.
//! Not promised: that a checkpoint is up to date. It may be behind its log by any amount, and is
//! ahead of it only if another program wrote the file.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use crate::ids::{Offset, TopicPartition};

/// The files' names.
pub(crate) const RECOVERY: &str = "recovery-point-offset-checkpoint";
pub(crate) const LOG_START: &str = "log-start-offset-checkpoint";
pub(crate) const HIGH_WATERMARK: &str = "replication-offset-checkpoint";
pub(crate) const CLEANED: &str = "cleaner-offset-checkpoint";
/// All of them.
pub(crate) const FILES: [&str; 4] = [RECOVERY, LOG_START, HIGH_WATERMARK, CLEANED];

/// The offsets of one checkpoint file.
type Offsets = BTreeMap<TopicPartition, Offset>;

/// The offsets of one partition in the checkpoint files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CheckpointedOffsets {
    pub recovery: Option<Offset>,
    pub log_start: Option<Offset>,
    pub high_watermark: Option<Offset>,
    pub cleaned: Option<Offset>,
}

/// The checkpoint files of a log directory.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    /// The recovery points: below this offset the log is known to be on the disk.
    pub recovery: CheckpointFile,
    /// The log start offsets that are not the first segment's base offset.
    pub log_start: CheckpointFile,
    pub high_watermark: CheckpointFile,
    /// The offsets up to which compacted logs are clean.
    pub cleaned: CheckpointFile,
    /// The cleaner's checkpoint was not readable: it is unknown up to where logs are clean.
    pub lost_cleaned: bool,
}

/// The content of a checkpoint file, and whether the file must be written.
#[derive(Debug)]
pub(crate) struct CheckpointFile {
    file: &'static str,
    offsets: Offsets,
    changed: bool,
    /// Partitions that the file still names and that were removed.
    removed: HashSet<TopicPartition>,
}

impl Checkpoints {
    /// Reads the files in the log directory at `path`.
    pub(crate) fn read(path: &Path) -> Self {
        let mut lost = Vec::new();
        let mut kept = |file| {
            let offsets = read(path, file).unwrap_or_else(|| {
                lost.push(file);
                Offsets::new()
            });
            CheckpointFile { file, offsets, changed: false, removed: HashSet::new() }
        };
        let (recovery, log_start) = (kept(RECOVERY), kept(LOG_START));
        let (high_watermark, cleaned) = (kept(HIGH_WATERMARK), kept(CLEANED));
        let lost_cleaned = lost.contains(&CLEANED);
        Self { recovery, log_start, high_watermark, cleaned, lost_cleaned }
    }

    pub(crate) fn points(&self, name: &TopicPartition) -> CheckpointedOffsets {
        CheckpointedOffsets {
            recovery: self.recovery.offset(name),
            log_start: self.log_start.offset(name),
            high_watermark: self.high_watermark.offset(name),
            cleaned: self.cleaned.offset(name),
        }
    }

    pub(crate) const fn files(&mut self) -> [&mut CheckpointFile; 4] {
        [&mut self.recovery, &mut self.log_start, &mut self.high_watermark, &mut self.cleaned]
    }
}

impl CheckpointFile {
    pub(crate) fn set(&mut self, name: &TopicPartition, offset: Option<Offset>) {
        let before = match offset {
            Some(offset) => self.offsets.insert(name.clone(), offset),
            None => self.offsets.remove(name),
        };
        self.changed |= before != offset;
        if before.is_some() && offset.is_none() {
            self.removed.insert(name.clone());
        }
    }

    /// Whether the file still names a partition that was removed.
    pub(crate) fn names_removed(&self, name: &TopicPartition) -> bool {
        self.removed.contains(name)
    }

    /// Sets a partition's offset to `point` if it is above that.
    pub(crate) fn lower(&mut self, name: &TopicPartition, point: Offset) {
        if self.offset(name).is_some_and(|known| known > point) {
            self.set(name, Some(point));
        }
    }

    /// Calls `write` with the name and text of the file, if it must be written.
    pub(crate) fn write<E>(
        &mut self,
        write: impl FnOnce(&str, &str) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.changed {
            write(self.file, &to_text(&self.offsets))?;
            self.changed = false;
            self.removed.clear();
        }
        Ok(())
    }

    fn offset(&self, name: &TopicPartition) -> Option<Offset> {
        self.offsets.get(name).copied()
    }
}

/// Reads the text of a checkpoint; `None` if it is malformed. Without its last newline it was cut,
/// and the last number may be cut too.
pub(crate) fn parse(text: &str) -> Option<Offsets> {
    let mut lines = text.strip_suffix('\n')?.lines();
    if lines.next()?.trim() != "0" {
        return None;
    }
    let count: usize = lines.next()?.trim().parse().ok()?;
    let mut offsets = Offsets::new();
    for line in lines {
        let mut words = line.split_ascii_whitespace();
        let topic = words.next()?;
        let name = TopicPartition::new(topic, words.next()?.parse().ok()?);
        let offset = Offset(words.next()?.parse().ok()?);
        if words.next().is_some() || offset.0 < 0 {
            return None;
        }
        offsets.insert(name, offset);
    }
    (offsets.len() == count).then_some(offsets)
}

/// The text of a checkpoint.
fn to_text(offsets: &Offsets) -> String {
    let mut text = format!("0\n{}\n", offsets.len());
    for (name, offset) in offsets {
        text.push_str(&format!("{} {} {offset}\n", name.topic, name.partition));
    }
    text
}

/// Reads a checkpoint file; a missing one is empty. `None`, and a log line, if it cannot be read or
/// is malformed.
fn read(directory: &Path, file: &str) -> Option<Offsets> {
    let path = directory.join(file);
    let parsed = match std::fs::read(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Some(Offsets::new()),
        // Kafka leaves it empty before its first compaction.
        Ok(bytes) if bytes.is_empty() && file == CLEANED => return Some(Offsets::new()),
        Err(error) => Err(error.to_string()),
        Ok(bytes) => std::str::from_utf8(&bytes).ok().and_then(parse).ok_or("it is none".into()),
    };
    parsed
        .inspect_err(|error| {
            let path = path.display();
            tracing::error!("{path} is not readable and counts as empty: {error}; {}", cost(file));
        })
        .ok()
}

/// The cost of a start without the file.
fn cost(file: &str) -> &'static str {
    match file {
        RECOVERY => {
            "nothing is lost: logs are checked from their beginning; but one whose end was lost is \
             not told from one that was never longer"
        }
        LOG_START => {
            "records that were deleted may be seen again where no leader epoch tells the start of \
             the log (a line names each log): delete them once more"
        }
        HIGH_WATERMARK => {
            "nothing is lost: high watermarks begin where their logs do, and rise as soon as a \
             partition is led"
        }
        _ => "nothing is lost: compaction reads the logs from their beginning",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_survives_the_round_trip() {
        let text = "0\n2\na-b 3 17\norders 0 0\n";
        let offsets = parse(text).expect("parses");
        assert_eq!(to_text(&offsets), text);
        assert_eq!(offsets.get(&TopicPartition::new("a-b", 3)), Some(&Offset(17)));
    }

    #[test]
    fn a_torn_file_counts_as_none() {
        for torn in ["", "0\n", "0\n2\na 0 1\n", "1\n0\n", "0\n1\na 0\n", "0\n1\na 0 -1\n"] {
            assert_eq!(parse(torn), None, "{torn:?}");
        }
        let whole = "0\n1\na 0 120\n";
        (0..whole.len()).for_each(|len| assert_eq!(parse(&whole[..len]), None, "{len} bytes"));
    }
}
