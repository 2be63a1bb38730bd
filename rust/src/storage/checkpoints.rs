//! The small text files of a log directory that name an offset for each partition:
//! `recovery-point-offset-checkpoint`, `log-start-offset-checkpoint`,
//! `replication-offset-checkpoint`, `cleaner-offset-checkpoint`.
//! Format: line 1 version `0`, line 2 the count n, then n lines `topic partition offset`.
//! Written so that a crash leaves the old or the new file; a torn or foreign one counts as empty.
//! Not promised: a checkpoint may lag behind its log by any amount; it never runs ahead of it,
//! except in the file of a directory that somebody else wrote.

use std::collections::BTreeMap;
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

/// What the files say of one partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Points {
    pub recovery: Option<Offset>,
    pub log_start: Option<Offset>,
    pub high_watermark: Option<Offset>,
    pub cleaned: Option<Offset>,
}

/// The checkpoint files of a log directory.
#[derive(Debug)]
pub(crate) struct Table {
    /// Below which offset the log is known to be on the disk.
    pub recovery: Kept,
    /// The first offset that readers may see, where it is not the first segment's.
    pub log_start: Kept,
    pub high_watermark: Kept,
    /// Up to where a compacted log is clean.
    pub cleaned: Kept,
}

/// A checkpoint file's content, and whether the file is behind it.
#[derive(Debug)]
pub(crate) struct Kept {
    file: &'static str,
    offsets: Offsets,
    changed: bool,
}

impl Table {
    /// Reads the files in the log directory at `path`.
    pub(crate) fn read(path: &Path) -> Self {
        let kept = |file| Kept { file, offsets: read(&path.join(file)), changed: false };
        Self {
            recovery: kept(RECOVERY),
            log_start: kept(LOG_START),
            high_watermark: kept(HIGH_WATERMARK),
            cleaned: kept(CLEANED),
        }
    }

    pub(crate) fn points(&self, name: &TopicPartition) -> Points {
        Points {
            recovery: self.recovery.offset(name),
            log_start: self.log_start.offset(name),
            high_watermark: self.high_watermark.offset(name),
            cleaned: self.cleaned.offset(name),
        }
    }

    pub(crate) const fn files(&mut self) -> [&mut Kept; 4] {
        [&mut self.recovery, &mut self.log_start, &mut self.high_watermark, &mut self.cleaned]
    }
}

impl Kept {
    pub(crate) fn set(&mut self, name: &TopicPartition, offset: Option<Offset>) {
        let before = match offset {
            Some(offset) => self.offsets.insert(name.clone(), offset),
            None => self.offsets.remove(name),
        };
        self.changed |= before != offset;
    }

    /// Sets a partition's offset to `point` if it is above that.
    pub(crate) fn lower(&mut self, name: &TopicPartition, point: Offset) {
        if self.offset(name).is_some_and(|known| known > point) {
            self.set(name, Some(point));
        }
    }

    /// Has `write` write name and text of the file, if that is behind.
    pub(crate) fn write<E>(
        &mut self,
        write: impl FnOnce(&str, &str) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.changed {
            write(self.file, &to_text(&self.offsets))?;
            self.changed = false;
        }
        Ok(())
    }

    fn offset(&self, name: &TopicPartition) -> Option<Offset> {
        self.offsets.get(name).copied()
    }
}

/// Reads the text of a checkpoint; `None` if it is not one.
pub(crate) fn parse(text: &str) -> Option<Offsets> {
    let mut lines = text.lines();
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

/// Reads a checkpoint file; one that is missing or torn is empty.
fn read(path: &Path) -> Offsets {
    let parsed = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Offsets::new(),
        Err(error) => Err(error.to_string()),
        Ok(text) => parse(&text).ok_or_else(|| "it is none".to_owned()),
    };
    parsed.unwrap_or_else(|error| {
        tracing::error!(
            path = %path.display(),
            "the checkpoint is not readable and counts as empty: {error}; logs are checked from \
             their beginning, deleted records that lie in kept segments may be seen again"
        );
        Offsets::new()
    })
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
    }
}
