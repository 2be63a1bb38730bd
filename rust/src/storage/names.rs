//! The names of partitions' directories in a log directory, and the topic id in
//! `partition.metadata`.
//! Formats: directories `topic-N`, `topic-N.<32 hex>-delete`, `-future`, `-stray`, 255 bytes at
//! most; `partition.metadata`, text: line 1 `version: 0`, line 2 `topic_id: ` and the id.
//! Threads: pure functions, except those that read.
//! Directories with other names are not listed.

use std::io;
use std::path::{Path, PathBuf};

use crate::ids::{TopicId, TopicPartition};

/// The file of the topic's id.
pub(crate) const METADATA: &str = "partition.metadata";

/// The state of a partition's directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirKind {
    /// In use.
    Live,
    /// It is being deleted.
    Delete,
    /// A copy that is being built to replace one in another directory.
    Future,
    /// Kept as a stray, because the cluster does not know it.
    Stray,
}

/// A partition's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundPartition {
    /// The partition.
    pub name: TopicPartition,
    /// The topic's id, if `partition.metadata` has one.
    pub topic_id: Option<TopicId>,
    /// Its state.
    pub kind: DirKind,
    /// Its path.
    pub path: PathBuf,
}

/// The partitions in the log directory at `path`, by name.
pub(crate) fn list(path: &Path) -> io::Result<Vec<FoundPartition>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some((name, kind)) = name.to_str().and_then(parse_name) else { continue };
        if !entry.file_type()?.is_dir() {
            continue;
        }
        let path = entry.path();
        found.push(FoundPartition { topic_id: read_topic_id(&path), name, kind, path });
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// The name of a partition's directory while it is deleted: 255 bytes at most.
pub(crate) fn delete_name(name: &TopicPartition) -> String {
    name_aside(name, "delete")
}

/// The name of a stray directory: its partition is no longer on this broker.
pub(crate) fn stray_name(name: &TopicPartition) -> String {
    name_aside(name, "stray")
}

/// The name of a copy that will replace the partition's directory in another log directory.
pub(crate) fn future_name(name: &TopicPartition) -> String {
    name_aside(name, "future")
}

fn name_aside(name: &TopicPartition, kind: &str) -> String {
    use std::hash::{BuildHasher, RandomState};
    let half = |salt: u8| RandomState::new().hash_one((salt, name));
    let suffix = format!(".{:016x}{:016x}-{kind}", half(1), half(2));
    let partition = format!("-{}", name.partition);
    let room = 255 - suffix.len() - partition.len();
    format!("{}{partition}{suffix}", name.topic.get(..room).unwrap_or(&name.topic))
}

/// The topic's id in the `partition.metadata` of `path`.
pub(crate) fn read_topic_id(path: &Path) -> Option<TopicId> {
    let text = std::fs::read_to_string(path.join(METADATA)).ok()?;
    let value = |key: &str| {
        text.lines()
            .filter_map(|l| l.split_once(':'))
            .find(|(k, _)| *k == key)
            .map(|(_, v)| v.trim())
    };
    if value("version") != Some("0") {
        return None;
    }
    value("topic_id")?.parse().ok().filter(|id| *id != TopicId::ZERO)
}

/// Whether an id differs from the expected one in a single letter. The ids of two topics are never
/// so similar.
pub(crate) fn is_misread(found: TopicId, due: TopicId) -> bool {
    let (found, due) = (found.to_string(), due.to_string());
    found.bytes().zip(due.bytes()).filter(|(one, other)| one != other).count() == 1
}

/// The text of `partition.metadata`.
pub(crate) fn topic_id_text(id: TopicId) -> String {
    format!("version: 0\ntopic_id: {id}")
}

/// Reads a directory's name; `None` if it is not a partition's.
fn parse_name(name: &str) -> Option<(TopicPartition, DirKind)> {
    let kinds =
        [("-delete", DirKind::Delete), ("-future", DirKind::Future), ("-stray", DirKind::Stray)];
    for (suffix, kind) in kinds {
        if let Some((head, id)) = name.strip_suffix(suffix).and_then(|head| head.rsplit_once('.'))
            && id.len() == 32
        {
            return Some((parse_partition(head)?, kind));
        }
    }
    Some((parse_partition(name)?, DirKind::Live))
}

/// Reads the name of the directory of a partition that is served.
pub(crate) fn parse_live(name: &str) -> Option<TopicPartition> {
    parse_name(name).filter(|(_, kind)| *kind == DirKind::Live).map(|(name, _)| name)
}

fn parse_partition(name: &str) -> Option<TopicPartition> {
    let (topic, partition) = name.rsplit_once('-')?;
    let digits = !partition.is_empty() && partition.bytes().all(|b| b.is_ascii_digit());
    let legal = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    if !digits || topic.is_empty() || !topic.bytes().all(legal) {
        return None;
    }
    Some(TopicPartition::new(topic, partition.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_partitions_are_read_as_kafka_reads_them() {
        let live = |topic: &str, n| Some((TopicPartition::new(topic, n), DirKind::Live));
        assert_eq!(parse_name("a-b.c-12"), live("a-b.c", 12));
        assert_eq!(parse_name("__consumer_offsets-0"), live("__consumer_offsets", 0));
        let out = "gone-0.5eba921ef6314005a5efe6a2a22c01d7-delete";
        assert_eq!(parse_name(out), Some((TopicPartition::new("gone", 0), DirKind::Delete)));
        for strange in ["lost+found", "x", "-1", "a-", "a-b", "a b-1"] {
            assert_eq!(parse_name(strange), None, "{strange}");
        }
        let long = TopicPartition::new("x".repeat(249), 123_456);
        let name = delete_name(&long);
        assert_eq!(name.len(), 255);
        assert_eq!(parse_name(&name).map(|found| found.1), Some(DirKind::Delete));
    }
}
