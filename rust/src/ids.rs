//! Newtypes for the numbers that must never be mixed up: an offset, a position in a file, an epoch,
//! a topic's id. Each is one machine word (the topic id two) and `Copy`.

use std::fmt;

/// The place of a record in a partition's log, counted in records from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offset(pub i64);

/// A place in a segment file, in bytes from its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

/// The term of one partition leader; -1 where unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub i32);

/// A topic's identity over deletion and re-creation (KIP-516); all zero where a topic has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicId(pub [u8; 16]);

/// A topic's name and a partition's number: the name of a log directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    /// The topic's name, 1-249 characters of `[a-zA-Z0-9._-]`.
    pub topic: std::sync::Arc<str>,
    /// The partition's number, from 0.
    pub partition: i32,
}

impl Offset {
    /// No offset: Kafka's -1.
    pub const NONE: Self = Self(-1);
}

impl Epoch {
    /// No epoch: Kafka's -1.
    pub const NONE: Self = Self(-1);
}

impl TopicId {
    /// The id of a topic that has none.
    pub const ZERO: Self = Self([0; 16]);
}

impl TopicPartition {
    /// Names the partition `partition` of `topic`.
    pub fn new(topic: impl Into<std::sync::Arc<str>>, partition: i32) -> Self {
        Self { topic: topic.into(), partition }
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}
