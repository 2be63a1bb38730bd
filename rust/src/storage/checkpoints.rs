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

/// Below which offset the log is known to be on the disk.
pub const RECOVERY_POINT: &str = "recovery-point-offset-checkpoint";
/// The first offset that readers may see, where it is not the first segment's.
pub const LOG_START: &str = "log-start-offset-checkpoint";
/// The high watermarks.
pub const HIGH_WATERMARK: &str = "replication-offset-checkpoint";
/// Up to where compacted logs are clean.
pub const CLEANED: &str = "cleaner-offset-checkpoint";

/// The offsets of one checkpoint file.
pub type Offsets = BTreeMap<TopicPartition, Offset>;

/// Reads the text of a checkpoint; `None` if it is not one.
pub fn parse(text: &str) -> Option<Offsets> {
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
pub fn to_text(offsets: &Offsets) -> String {
    let mut text = format!("0\n{}\n", offsets.len());
    for (name, offset) in offsets {
        text.push_str(&format!("{} {} {offset}\n", name.topic, name.partition));
    }
    text
}

/// Reads a checkpoint file; one that is missing or torn is empty.
pub(crate) fn read(path: &Path) -> Offsets {
    let Ok(text) = std::fs::read_to_string(path) else { return Offsets::new() };
    parse(&text).unwrap_or_else(|| {
        tracing::warn!(path = %path.display(), "checkpoint is not readable, taken as empty");
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
