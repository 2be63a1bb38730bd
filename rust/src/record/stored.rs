//! A batch as a log holds it: of magic 2, or a message of an older format ([`legacy`]).
//!
//! A log counts a message of magic 0 or 1 as one batch. A wrapper has the offset of its last inner
//! message. How many messages it holds is known only once it is inflated, so its first offset is
//! taken to be the same, as in a walk over a file.
//! Threads: borrowed values.
//! Not promised: [`StoredBatch::parse`] does not verify the checksum.

use super::RecordError;
use super::batch::{Batch, Header};
use super::legacy::{self, Message};

const MAGIC_AT: usize = 16;

/// A view of one batch or message.
#[derive(Clone, Copy, Debug)]
pub enum StoredBatch<'a> {
    /// A batch of magic 2.
    Batch(Batch<'a>),
    /// A message of magic 0 or 1, perhaps a wrapper.
    Message(Message<'a>),
}

impl<'a> StoredBatch<'a> {
    /// Views the batch or message at the start of `bytes`; more bytes may follow it.
    ///
    /// Errors: as those of [`Batch::parse`] and [`Message::parse`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, RecordError> {
        match bytes.get(MAGIC_AT) {
            Some(0 | 1) => Message::parse(bytes).map(Self::Message),
            _ => Batch::parse(bytes).map(Self::Batch),
        }
    }

    /// The header; that of a message says that no leader epoch and no producer is known.
    pub fn header(&self) -> Header {
        match self {
            Self::Batch(batch) => *batch.header(),
            Self::Message(message) => Header {
                base_offset: message.offset,
                batch_length: i32::try_from(message.size().saturating_sub(legacy::PREFIX_SIZE))
                    .unwrap_or(i32::MAX),
                leader_epoch: -1,
                magic: message.magic,
                base_timestamp: message.timestamp,
                max_timestamp: message.timestamp,
                producer_id: -1,
                producer_epoch: -1,
                base_sequence: -1,
                ..Header::default()
            },
        }
    }

    /// Size of the whole batch or message in bytes.
    pub const fn size(&self) -> usize {
        match self {
            Self::Batch(batch) => batch.size(),
            Self::Message(message) => message.size(),
        }
    }

    /// Whether the checksum is right.
    pub fn crc_ok(&self) -> bool {
        match self {
            Self::Batch(batch) => batch.crc_ok(),
            Self::Message(message) => message.crc_ok(),
        }
    }
}

/// Views each of several consecutive batches and messages. A cut or bad tail yields one last error.
pub const fn iter(bytes: &[u8]) -> StoredBatches<'_> {
    StoredBatches { rest: bytes }
}

/// See [`iter`].
#[derive(Clone, Copy, Debug)]
pub struct StoredBatches<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for StoredBatches<'a> {
    type Item = Result<StoredBatch<'a>, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let stored = StoredBatch::parse(self.rest);
        self.rest = match &stored {
            Ok(stored) => self.rest.get(stored.size()..).unwrap_or_default(),
            Err(_) => &[],
        };
        Some(stored)
    }
}
