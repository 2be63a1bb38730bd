//! The log on disk: partitions as directories of segments, byte for byte as Apache Kafka 3.9
//! writes them. A directory can move between krust and Kafka in either direction.
//!
//! ```text
//! dirs         one entry of log.dirs: lock, meta.properties, clean marker, checkpoints, offline
//! names        the directories of partitions in it
//! log          one partition: stage, commit, read, truncate, retention
//! recovery     from whatever a crash left to a log that ends in a whole batch
//! listing      the files of a partition's directory, leftovers cleared
//! cut          what a recovery takes off the end, told before it goes
//! segment      one .log file with its indexes      scan        headers of a file, one by one
//! index        .index and .timeindex               txnindex    .txnindex
//! pages        an index read in pages              index_cache the pages of all, bounded
//! aborted      what each .txnindex held when it was written
//! producers    .snapshot                           epochs      leader-epoch-checkpoint
//! files        the disk behind a trait             recording   its double: crash images, faults
//! descriptors  open files as a bounded cache       sync        the thread that calls fdatasync
//! checkpoints  offsets, in small files             keeper      retention and checkpoints, in time
//! indexing     indexes made anew from batches
//! group        when appends that wait are worth a sync
//! panics       what follows a bug in one of the threads
//! progress     how far the opening of logs is
//! inspect      read-only dump and verify           cleaner     compaction
//! closing      the end of all logs, in order
//! reader       a partition's files, beside a broker  mover    to another log directory
//! ```
//!
//! Invariants: log_start <= high_watermark <= log_end; flushed <= log_end; what is read at an
//! offset is the same bytes for ever. Three watermarks, one owner each: appends own log_end, the
//! sync thread owns flushed, the replica protocol owns high_watermark.
//! Not promised: an append that was not flushed may be gone after a power cut.

mod aborted;
mod checkpoints;
mod cleaner;
mod closing;
pub mod cold;
mod config;
mod consistency;
mod cut;
mod descriptors;
mod dirs;
pub mod epochs;
mod errors;
pub mod files;
mod group_commit;
pub mod index;
mod index_cache;
mod indexing;
pub mod inspect;
mod keeper;
mod listing;
mod log;
mod markers;
mod meta;
mod mover;
mod names;
mod order;
mod pages;
pub(crate) mod panics;
pub mod producers;
mod progress;
pub mod reader;
pub mod recording;
mod recovery;
mod scan;
mod segment;
mod stray;
pub mod sync;
mod temporary;
mod times;
pub mod txnindex;

pub use cleaner::{Cleaned, Cleaner, CleanerOptions, Dirty};
pub use closing::close_all;
pub use config::{LogConfig, TimestampType};
pub use cut::tell_all as tell_cuts;
pub use descriptors::Descriptors;
pub use dirs::{DirOptions, LogDir, Syncs};
pub use errors::{AppendError, ReadError, StorageError};
pub use files::FileRange;
pub use index_cache::{INDEX_CACHE_BYTES, IndexCache};
pub use keeper::{Chore, Intervals, Keeper};
pub use log::{Appended, Found as FoundOffset, Held, Log, Open, Read, SegmentFacts, Slice, Stage};
pub use mover::{Move, Mover, settle};
pub use names::{Found, Kind};
pub use producers::ProducerFacts;
pub use progress::{Checking, Cuts, Progress, SoFar};
pub use sync::Syncer;
pub use temporary::TemporaryDisk;
pub use txnindex::Aborted;
