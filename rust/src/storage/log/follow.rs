//! Appending as a follower: what the leader sent, as it sent it.
//!
//! A follower changes no byte, so consecutive batches are written from where they were received,
//! with one call. Messages of magic 0 and 1 are copied as batches are: a Kafka that led long ago
//! left them. They name no leader epoch.
//! Threads: all under the writer's mutex.

use super::super::config::LogConfig;
use super::super::errors::{AppendError, StorageError};
use super::append::{corrupt, note_producer};
use super::room::IncomingBatch;
use super::{Log, LogWriter};
use crate::ids::Offset;
use crate::record::RecordError;
use crate::record::stored::{self, StoredBatch};

/// What a leader sent: batches up to `noted` are in the indexes, those up to `written` in the file.
struct Received<'b> {
    bytes: &'b [u8],
    written: usize,
    noted: usize,
}

impl Log {
    /// Appends batches as a leader sent them: offsets and epochs stay, and must continue the log.
    /// A last batch that is cut is left out, and so is what follows a batch that is refused.
    /// An epoch that this log began as a leader, and appended nothing in, is forgotten.
    /// Returns the new log end.
    pub fn append_as_follower(&self, bytes: &[u8]) -> Result<Offset, AppendError> {
        let config = self.config.load();
        let mut writer = self.writer.lock();
        self.appendable()?;
        self.write_and_publish(&mut writer)?;
        let log_end = Offset(writer.next_offset);
        if writer.epochs.truncate_to(log_end) {
            writer.epochs_saved = false;
        }
        let mut received = Received { bytes, written: 0, noted: 0 };
        let outcome = stored::iter(bytes)
            .take_while(|batch| !matches!(batch, Err(RecordError::Truncated { .. })))
            .try_for_each(|batch| {
                let batch = batch.map_err(corrupt)?;
                self.follow(&mut writer, &config, (&batch, &mut received))
            });
        self.write_received(&mut writer, &mut received)?;
        self.write_and_publish(&mut writer)?;
        outcome.map(|()| Offset(writer.next_offset))
    }

    fn follow(
        &self,
        writer: &mut LogWriter,
        config: &LogConfig,
        (batch, received): (&StoredBatch<'_>, &mut Received<'_>),
    ) -> Result<(), AppendError> {
        let header = batch.header();
        if !batch.crc_ok() {
            return Err(AppendError::Corrupt("checksum".into()));
        }
        if header.base_offset < writer.next_offset {
            let (found, log_end) = (header.base_offset, writer.next_offset);
            return Err(AppendError::WrongOffset { found, log_end });
        }
        let current = writer.epochs.latest().0;
        if matches!(batch, StoredBatch::Batch(_)) && header.leader_epoch < current {
            return Err(AppendError::OldEpoch { found: header.leader_epoch, current });
        }
        let next = IncomingBatch {
            last_offset: header.base_offset + i64::from(header.last_offset_delta),
            timestamp: header.max_timestamp,
            size: batch.size(),
            now_ms: self.clock.wall_ms(),
        };
        if self.must_roll(writer, config, &next)? {
            self.write_received(writer, received)?;
            self.roll(writer, next.now_ms)?;
        }
        let aborted = match batch {
            StoredBatch::Batch(batch) => note_producer(writer, batch, &header),
            StoredBatch::Message(_) => None,
        };
        self.note_batch(writer, config, (batch.size(), &header, aborted))?;
        received.noted += batch.size();
        Ok(())
    }

    /// Writes the batches of a leader that are noted and not written yet.
    fn write_received(
        &self,
        writer: &mut LogWriter,
        received: &mut Received<'_>,
    ) -> Result<(), StorageError> {
        let run = received.bytes.get(received.written..received.noted).unwrap_or_default();
        received.written = received.noted;
        match self.segments.load().last() {
            Some(active) if !run.is_empty() => self.write_staged(writer, active, &[run]),
            _ => Ok(()),
        }
    }
}
