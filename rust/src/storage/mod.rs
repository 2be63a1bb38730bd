//! The log on disk: partitions as directories of segments, byte for byte as Apache Kafka 3.9
//! writes them. A directory can move between krust and Kafka in either direction.
//!
//! Layers, top first. A file imports only from its own layer and from lower ones.
//!
//! ```text
//! threads      log_scheduler retention, checkpoints and room on the disk, at intervals
//!              cleaner      compaction               future_replicas  logs that change directory
//!              closing      the end of all logs, in order
//! tools        inspect      read-only dump and verify
//!              reader       a partition's files, beside a broker
//! log          log          one partition: stage, commit, read, truncate, retention
//!              group_commit when appends that wait are worth a sync
//!              sync         the threads that call fdatasync, for any log
//! recovery     recovery     from whatever a crash left to a log that ends in a whole batch
//!              recovered    what a recovery is asked and finds
//!              listing      the files of a partition's directory, leftovers cleared
//!              consistency  checkpoints and epochs against the log
//!              cut          what a recovery takes off the end, reported before it goes
//!              aborted      each .txnindex against what was written
//!              producer_replay, markers              producers and transactions from batches
//! segment      segment      one .log file with its indexes
//!              times        offsets by time          order        whether old batches are in order
//!              indexing     indexes rebuilt from batches
//! directories  partition_dir one partition's directory
//!              dirs         one entry of log.dirs: clean marker, checkpoints, offline
//!              dir_lock     its lock
//!              sync_times   number and duration of its syncs
//!              stray        directories of partitions that are not served
//!              progress     how far the opening of logs is
//! state        producers    .snapshot                epochs       leader-epoch-checkpoint
//!              checkpoints  offsets, in small files  meta         meta.properties
//! indexes      segment_index   one index of one segment
//!              active_index the tail in memory       pages        of files, in pieces
//!              index_cache  the pages of all, bounded
//!              index        .index and .timeindex    txnindex     .txnindex
//! files        files        the disk behind a trait  recording    its double: crash images, faults
//!              scan, cold   headers of a file, one by one
//!              descriptors  open files as a bounded cache
//!              names, file_names                     the names of directories and of files
//!              config, errors, panics                settings, faults, what follows a bug
//! ```
//!
//! Lower layers know a log only as a trait: `dirs` by what it checkpoints, `sync` by what it
//! flushes.
//!
//! Invariants: log_start <= high_watermark <= log_end; flushed <= log_end; what is read at an
//! offset is the same bytes for ever. Three watermarks, one owner each: appends own log_end,
//! whoever syncs owns flushed, the replica protocol owns high_watermark.
//! Not promised: that an append survives a power failure before it was flushed.

mod aborted;
mod active_index;
mod checkpoints;
mod cleaner;
mod closing;
pub mod cold;
mod config;
mod consistency;
mod cut;
mod deletion;
mod descriptors;
mod dir_lock;
mod dirs;
pub mod epochs;
mod errors;
mod file_names;
pub mod files;
mod future_replicas;
mod group_commit;
pub mod index;
mod index_cache;
mod indexing;
pub mod inspect;
mod listing;
mod log;
mod log_scheduler;
mod markers;
mod meta;
mod names;
mod order;
mod pages;
pub(crate) mod panics;
mod partition_dir;
mod producer_replay;
pub mod producers;
mod progress;
pub mod reader;
pub mod recording;
mod recovered;
mod recovery;
mod scan;
mod segment;
mod segment_index;
mod stray;
pub mod sync;
mod sync_times;
mod temporary;
mod times;
pub mod txnindex;
mod verification;

pub use cleaner::{Cleaner, CleanerOptions, CleaningResult, DirtyRange};
pub use closing::close_all;
pub use config::LogConfig;
pub use cut::log_cuts;
pub use deletion::{DeletedLog, Deletions};
pub use descriptors::Descriptors;
pub use dirs::{DirOptions, LogDir};
pub use errors::{AppendError, ReadError, StorageError};
pub use files::FileRange;
pub use future_replicas::{FutureReplica, FutureReplicas, settle};
pub use index_cache::{INDEX_CACHE_BYTES, IndexCache};
pub use log::{
    Appended, FoundOffset, Log, LogReadRequest, LogSlice, NewBatch, Open, RecentBytes,
    SegmentSummary, Stage, StagedMarker,
};
pub use log_scheduler::{Intervals, LogScheduler, ScheduledTask, SchedulerJob};
pub use names::{DirKind, FoundPartition};
pub use producers::{ActiveProducer, AppendOrigin};
pub use progress::{LogCheck, OpeningProgress, RecoveryCuts, StartProgress};
pub use sync::Syncer;
pub use sync_times::SyncStats;
pub use temporary::TemporaryDisk;
pub use txnindex::AbortedTxn;
pub use verification::{Verification, VerificationGuard};
