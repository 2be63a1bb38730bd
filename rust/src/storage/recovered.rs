//! The request to a recovery and its result.
//!
//! Threads: plain values of the one thread that recovers a log.
//!     The files are read and changed in `recovery`.

use std::sync::Arc;

use super::epochs::Epochs;
use super::errors::StorageError;
use super::partition_dir::PartitionDir;
use super::producers::Producers;
use super::progress::LogCheck;
use super::segment::Segment;

/// The log to recover, and what is known of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecoveryRequest<'r> {
    pub clean: bool,
    pub dense: bool,
    pub interval: u64,
    pub recovery_point: i64,
    pub log_start: Option<i64>,
    pub high_watermark: Option<i64>,
    pub checking: Option<&'r LogCheck>,
}

/// The state of the log after the recovery.
#[derive(Default)]
pub(crate) struct Recovered {
    pub segments: Vec<Arc<Segment>>,
    pub log_start: i64,
    pub log_end: i64,
    pub flushed: i64,
    pub epochs: Epochs,
    pub epochs_saved: bool,
    pub producers: Producers,
    pub snapshot: Option<i64>,
    pub since_entry: u64,
    /// No batch that was read has a producer id.
    pub without_producers: bool,
    pub names_unsynced: bool,
    pub damage: Option<StorageError>,
}

impl Recovered {
    /// Notes damage at the end of the log.
    pub(crate) fn report_damage(&mut self, partition_dir: &PartitionDir, reason: &str) {
        self.damage = Some(StorageError::Damaged {
            log: Arc::clone(&partition_dir.name),
            offset: self.log_end,
            reason: reason.into(),
        });
    }
}
