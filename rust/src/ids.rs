//! Newtypes for the numbers that must never be mixed up: an offset, a position in a file, an epoch,
//! a topic's id. Each is one machine word (the topic id two) and `Copy`.

use std::fmt;

/// A record's offset in a partition's log, counted from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offset(pub i64);

/// A position in a segment file, in bytes from its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

/// A partition's leader epoch; -1: unknown.
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

/// As Kafka prints ids: base64 with `-` and `_`, without padding, 22 characters.
impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = u128::from_be_bytes(self.0);
        for place in (0..21).rev() {
            let six = (bits >> (place * 6 + 2)) & 63;
            write!(f, "{}", digit(six))?;
        }
        write!(f, "{}", digit((bits & 3) << 4))
    }
}

impl std::str::FromStr for TopicId {
    type Err = NotAnId;

    fn from_str(text: &str) -> Result<Self, NotAnId> {
        if text.len() != 22 {
            return Err(NotAnId);
        }
        let mut bits = 0u128;
        for (place, byte) in text.bytes().enumerate() {
            let six = u128::from(value(byte).ok_or(NotAnId)?);
            bits = if place < 21 { bits << 6 | six } else { bits << 2 | six >> 4 };
        }
        Ok(Self(bits.to_be_bytes()))
    }
}

/// A text that is no topic id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a topic id: 22 characters of base64 were expected")]
pub struct NotAnId;

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

fn digit(six: u128) -> char {
    usize::try_from(six).ok().and_then(|at| DIGITS.get(at)).map_or('A', |byte| char::from(*byte))
}

fn value(byte: u8) -> Option<u8> {
    DIGITS.iter().position(|digit| *digit == byte).and_then(|at| u8::try_from(at).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topic_ids_are_written_as_kafka_writes_them() {
        let text = "HU4EiLaBTBOFeJpput3BfA";
        let id: TopicId = text.parse().unwrap();
        assert_eq!(id.0[..4], [0x1d, 0x4e, 0x04, 0x88]);
        assert_eq!(id.to_string(), text);
        assert_eq!(TopicId::ZERO.to_string(), "A".repeat(22));
        assert!("HU4EiLaBTBOFeJpput3Bf".parse::<TopicId>().is_err());
        assert!("HU4EiLaBTBOFeJpput3B=A".parse::<TopicId>().is_err());
    }
}
