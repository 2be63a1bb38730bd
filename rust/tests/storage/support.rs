//! A log in a temporary directory, and batches to put into it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use krust::clock::{Clock, ManualClock};
use krust::ids::{Epoch, Offset, TopicPartition};
use krust::record::RecordError;
use krust::record::batch::{
    self, Batch, BatchBuilder, BatchFields, NewRecord, ValidationResult, ValidationRules,
};
use krust::storage::files::{Disk, RealDisk};
use krust::storage::{
    AppendError, Appended, CleanerOptions, CleaningResult, DeletedLog, Deletions, Descriptors,
    DirOptions, Log, LogConfig, LogDir, LogReadRequest, NewBatch, Open, StartProgress, Syncer,
};

/// The time at the start of each test.
pub const NOW_MS: i64 = 1_700_000_000_000;

/// A log directory and how logs in it are opened.
pub struct LogFixture {
    pub path: PathBuf,
    pub dir: Arc<LogDir>,
    pub clock: ManualClock,
    pub config: LogConfig,
    pub dense: bool,
    pub name: TopicPartition,
}

impl LogFixture {
    pub fn new(path: &Path) -> Self {
        Self::on(path, Arc::new(RealDisk))
    }

    pub fn on(path: &Path, disk: Arc<dyn Disk>) -> Self {
        let descriptors = Descriptors::new(16);
        Self::with(path, &DirOptions { disk, descriptors, ..DirOptions::default() })
    }

    pub fn with(path: &Path, options: &DirOptions) -> Self {
        Self {
            path: path.to_owned(),
            dir: LogDir::open(path, options).unwrap(),
            clock: ManualClock::at(NOW_MS),
            config: LogConfig { index_interval_bytes: 200, ..LogConfig::default() },
            dense: true,
            name: TopicPartition::new("t", 0),
        }
    }

    /// Opens the log; unclean unless the directory was shut down in order.
    pub fn open(&self) -> Arc<Log> {
        self.open_with(self.dir.was_clean())
    }

    pub fn open_with(&self, clean: bool) -> Arc<Log> {
        Log::open(&self.dir, &self.name, self.options(clean, None)).unwrap()
    }

    /// Opens another partition's log.
    pub fn open_named(&self, name: &TopicPartition) -> Arc<Log> {
        Log::open(&self.dir, name, self.options(false, None)).unwrap()
    }

    /// Recovers the log, and tells `progress` how far it is.
    pub fn open_watched(&self, progress: &Arc<StartProgress>) -> Arc<Log> {
        let checking = Some(Arc::new(progress.expect(self.name.to_string().into(), 0)));
        let options = Open { checking, ..self.options(false, None) };
        Log::open(&self.dir, &self.name, options).unwrap()
    }

    /// Opens the log, or another partition's, with a syncer that makes it durable.
    pub fn open_synced(&self, name: &TopicPartition, syncer: &Arc<Syncer>) -> Arc<Log> {
        Log::open(&self.dir, name, self.options(false, Some(Arc::clone(syncer)))).unwrap()
    }

    fn options(&self, clean: bool, syncer: Option<Arc<Syncer>>) -> Open {
        Open {
            config: Arc::new(self.config.clone()),
            topic_id: None,
            leader_epoch: Some(Epoch(0)),
            clean,
            dense: self.dense,
            clock: Arc::new(self.clock.clone()),
            syncer,
            checking: None,
        }
    }

    pub fn partition(&self) -> PathBuf {
        self.path.join(self.name.to_string())
    }

    pub fn file(&self, base_offset: i64, kind: &str) -> PathBuf {
        self.partition().join(format!("{base_offset:020}.{kind}"))
    }
}

/// A batch of records with these values, timestamps rising from `timestamp`.
pub fn batch_at(timestamp: i64, values: &[&[u8]]) -> Vec<u8> {
    build(timestamp, values, &BatchFields::default())
}

pub fn batch(values: &[&[u8]]) -> Vec<u8> {
    batch_at(NOW_MS, values)
}

/// A batch of an idempotent producer.
pub fn batch_of(producer_id: i64, base_sequence: i32, values: &[&[u8]]) -> Vec<u8> {
    let fields =
        BatchFields { producer_id, producer_epoch: 0, base_sequence, ..BatchFields::default() };
    build(NOW_MS, values, &fields)
}

pub fn build(timestamp: i64, values: &[&[u8]], fields: &BatchFields) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for (index, value) in values.iter().enumerate() {
        let timestamp = timestamp + i64::try_from(index).unwrap();
        builder.add(&NewRecord { timestamp, key: None, value: Some(value), headers: &[] });
    }
    builder.to_bytes(fields).unwrap()
}

/// A control batch that ends a transaction.
pub fn marker(producer_id: i64, commit: bool) -> Vec<u8> {
    let key = [0, 0, 0, u8::from(commit)];
    let mut builder = BatchBuilder::new();
    let value = [0u8; 6];
    builder.add(&NewRecord {
        timestamp: NOW_MS,
        key: Some(&key),
        value: Some(&value),
        headers: &[],
    });
    let fields = BatchFields {
        producer_id,
        producer_epoch: 0,
        transactional: true,
        control: true,
        ..BatchFields::default()
    };
    builder.to_bytes(&fields).unwrap()
}

pub fn stage(log: &Log, bytes: &[u8]) -> Result<Appended, AppendError> {
    let batch = Batch::parse(bytes).unwrap();
    let states: ValidationResult = if batch.is_control() {
        let timestamp = batch.header().max_timestamp;
        ValidationResult {
            max_timestamp: timestamp,
            offset_of_max_timestamp: 0,
            record_count: 1,
            last_offset_delta: 0,
            inflated: 0,
        }
    } else {
        batch::check(&batch, &ValidationRules::default()).unwrap()
    };
    log.stage(&NewBatch::new(&batch, &states, NOW_MS))
}

/// Stages, commits, and lets the high watermark follow.
pub fn append(log: &Log, bytes: &[u8]) -> Result<Appended, AppendError> {
    let appended = stage(log, bytes)?;
    log.commit(appended.staged)?;
    log.raise_high_watermark(log.log_end_offset());
    Ok(appended)
}

/// The records of one fetch from `offset` on, and the offset of the next; the same one: none.
pub fn fetch(log: &Log, offset: i64, max_bytes: usize) -> (Vec<(i64, Vec<u8>)>, i64) {
    let upper = log.log_end_offset();
    let read = LogReadRequest { offset: Offset(offset), max_bytes, upper, min_one: true };
    let bytes = log.read(read).unwrap().to_vec().unwrap();
    let (mut found, mut next) = (Vec::new(), offset);
    for batch in batch::iter(&bytes) {
        let Ok(batch) = batch else { break };
        assert!(batch.crc_ok());
        for record in batch.records() {
            let record = record.unwrap();
            if record.offset >= next {
                found.push((record.offset, record.value.unwrap_or_default().to_vec()));
            }
        }
        next = batch.last_offset() + 1;
    }
    (found, next)
}

/// Every record that a reader gets from `offset` on, a fetch of `max_bytes` at a time.
pub fn read_from(log: &Log, offset: i64, max_bytes: usize) -> Vec<(i64, Vec<u8>)> {
    let mut found = Vec::new();
    let mut at = offset;
    while at < log.log_end_offset().0 {
        let (records, next) = fetch(log, at, max_bytes);
        assert!(next > at, "no progress at {at}");
        found.extend(records);
        at = next;
    }
    found
}

pub fn read_all(log: &Log) -> Vec<(i64, Vec<u8>)> {
    read_from(log, log.log_start_offset().0, 1 << 20)
}

/// Deletes a log, with its files.
pub fn delete(log: &Log) {
    let mut deletions = Deletions::default();
    log.delete(&mut deletions).unwrap();
    let (deleted, outcome) = deletions.sync();
    outcome.unwrap();
    deleted.iter().for_each(DeletedLog::remove);
}

/// Appends `count` batches of one record each, whose value tells the offset.
pub fn fill(log: &Log, count: usize) {
    for _ in 0..count {
        append(log, &batch(&[value(log.log_end_offset().0).as_slice()])).unwrap();
    }
}

pub fn value(offset: i64) -> Vec<u8> {
    let mut value = offset.to_string().into_bytes();
    value.resize(40, b'.');
    value
}

/// The records that `fill` wrote.
pub fn expected(offsets: std::ops::Range<i64>) -> Vec<(i64, Vec<u8>)> {
    offsets.map(|offset| (offset, value(offset))).collect()
}

/// An empty directory, in memory where there is such a place: crash images are many.
pub fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// How much a test does: the value of an environment variable, or the default.
pub fn wanted(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// All files below `path`, by name, with their content.
pub fn snapshot(path: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(snapshot(&path));
        } else if path.file_name().unwrap() != ".lock" {
            found.push((path.clone(), std::fs::read(&path).unwrap()));
        }
    }
    found.sort();
    found
}

/// Runs a command of the machine; its standard output.
pub fn run(program: &str, arguments: &[&str]) -> Vec<u8> {
    let output = std::process::Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Where a file about Kafka's directories is.
pub fn kafka_data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/kafka-dirs").join(name)
}

/// Unpacks a log directory that a Kafka wrote; where it is.
pub fn unpack_kafka(name: &str, into: &Path) -> PathBuf {
    let archive = kafka_data(&format!("{name}.tar.xz"));
    run("tar", &["xf", archive.to_str().unwrap(), "-C", into.to_str().unwrap()]);
    into.join(name)
}

/// A record as tests of compaction see it: key and value, each perhaps null.
pub type Pair = (Option<Vec<u8>>, Option<Vec<u8>>);

/// A batch of keyed records, all of one time.
pub fn keyed_at(timestamp: i64, pairs: &[(&str, Option<&str>)], fields: &BatchFields) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for (key, value) in pairs {
        let key = Some(key.as_bytes());
        let value = value.map(str::as_bytes);
        builder.add(&NewRecord { timestamp, key, value, headers: &[("h", Some(b"v"))] });
    }
    builder.to_bytes(fields).unwrap()
}

pub fn keyed(pairs: &[(&str, Option<&str>)]) -> Vec<u8> {
    keyed_at(NOW_MS, pairs, &BatchFields::default())
}

/// All bytes below the end of a log, a fetch at a time.
pub fn bytes_of(log: &Log) -> Vec<u8> {
    bytes_from(log, log.log_start_offset())
}

/// The bytes from an offset on.
pub fn bytes_from(log: &Log, offset: Offset) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut next = offset.0;
    while next < log.log_end_offset().0 {
        let read = LogReadRequest {
            offset: Offset(next),
            max_bytes: 1 << 20,
            upper: log.log_end_offset(),
            min_one: true,
        };
        let found = log.read(read).unwrap().to_vec().unwrap();
        if found.is_empty() {
            break;
        }
        for batch in batch::iter(&found) {
            let batch = match batch {
                Err(RecordError::Truncated { .. }) => break,
                whole => whole.unwrap(),
            };
            next = batch.last_offset() + 1;
            bytes.extend_from_slice(batch.bytes());
        }
    }
    bytes
}

/// Every record of batches of magic 2, control records left out.
pub fn pairs_in(bytes: &[u8]) -> Vec<(i64, i64, Pair)> {
    let mut found = Vec::new();
    for batch in batch::iter(bytes) {
        let batch = batch.unwrap();
        assert!(batch.crc_ok());
        if batch.is_control() {
            continue;
        }
        krust::record::convert::each_record(&batch, |record| {
            let pair = (record.key.map(<[u8]>::to_vec), record.value.map(<[u8]>::to_vec));
            found.push((record.offset, record.timestamp, pair));
            Ok(())
        })
        .unwrap();
    }
    found
}

/// Cleans all that can be cleaned now.
pub fn compact(fixture: &LogFixture, log: &Log) -> Option<CleaningResult> {
    log.compact(fixture.clock.wall_ms(), &CleanerOptions::default()).unwrap()
}

/// Appends to a new segment, whatever the size of the present one.
pub fn append_after_roll(log: &Log, bytes: &[u8]) -> Appended {
    let config = log.config();
    log.reconfigure(Arc::new(LogConfig { segment_ms: i64::MIN, ..(*config).clone() }));
    let appended = append(log, bytes).unwrap();
    log.reconfigure(config);
    appended
}
