//! The directory that is damaged: a log of every kind, left in order or killed, and what is true of
//! each: its records, producers, epochs, aborted transactions, and what times find.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use krust::clock::ManualClock;
use krust::ids::{Epoch, Offset, TopicId, TopicPartition};
use krust::record::batch::{BatchBuilder, BatchFields, NewRecord};
use krust::record::compression::Codec;
use krust::record::convert::each_record;
use krust::storage::{
    AbortedTxn, ActiveProducer, CleanerOptions, DirOptions, Log, LogConfig, LogDir, Open,
};

use crate::support::{NOW_MS, append, bytes_from, keyed_at, marker};

/// The cluster that the directory belongs to.
pub const CLUSTER: &str = "abcdefghijklmnopqrstuv";
/// How many batches a log of records gets.
const BATCHES: i32 = 60;
const LEADER_EPOCH: Epoch = Epoch(0);

/// A record: timestamp, key, value.
pub type Content = (i64, Option<Vec<u8>>, Option<Vec<u8>>);

/// What is true of a partition.
#[derive(Debug, PartialEq)]
pub struct ExpectedLog {
    pub id: TopicId,
    pub start: i64,
    pub end: i64,
    pub records: BTreeMap<i64, Content>,
    pub producers: Vec<ActiveProducer>,
    pub epochs: Vec<(Epoch, Offset)>,
    pub aborted: Vec<AbortedTxn>,
    /// The offset that each of some times finds.
    pub times: Vec<(i64, Option<i64>)>,
}

/// The partitions of the image.
pub const TOPICS: [&str; 8] =
    ["plain", "gzip", "snappy", "lz4", "zstd", "compacted", "transactions", "trimmed"];

pub fn dir_options() -> DirOptions {
    DirOptions { cluster_id: Some(CLUSTER.to_owned()), ..DirOptions::default() }
}

pub fn topic_id(topic: &str) -> TopicId {
    let index = TOPICS.iter().position(|known| *known == topic).unwrap();
    format!("AbCdEfGhIjKlMnOpQrSt{}A", char::from(b'a' + u8::try_from(index).unwrap()))
        .parse()
        .unwrap()
}

/// Opens a log as a broker does that leads the partition alone.
pub fn open(dir: &Arc<LogDir>, topic: &str) -> Result<Arc<Log>, krust::storage::StorageError> {
    let name = TopicPartition::new(topic, 0);
    dir.mark_unopened_stray(&name, Some(topic_id(topic)))?;
    let compact = topic == "compacted";
    let config = LogConfig {
        segment_bytes: 4000,
        index_interval_bytes: 300,
        compact,
        delete: !compact,
        min_cleanable_dirty_ratio: 0.0,
        file_delete_delay_ms: 0,
        retention_ms: -1,
        ..LogConfig::default()
    };
    let options = Open {
        config: Arc::new(config),
        topic_id: Some(topic_id(topic)),
        leader_epoch: Some(LEADER_EPOCH),
        clean: dir.was_clean(),
        dense: !compact,
        clock: Arc::new(ManualClock::at(NOW_MS)),
        syncer: None,
        checking: None,
    };
    let log = Log::open(dir, &name, options)?;
    log.raise_high_watermark(log.log_end_offset());
    Ok(log)
}

/// Makes the directory. `copy` gets what a kill leaves, `root` what a shutdown in order does.
pub fn build(root: &Path, copy: &Path) {
    let dir = LogDir::open(root, &dir_options()).unwrap();
    let logs: Vec<_> = TOPICS.iter().map(|topic| open(&dir, topic).unwrap()).collect();
    for (topic, log) in TOPICS.iter().zip(&logs) {
        fill(topic, log, 0..BATCHES * 2 / 3);
        if *topic == "compacted" {
            log.compact(NOW_MS, &CleanerOptions::default()).unwrap();
        }
        log.flush().unwrap();
    }
    let trimmed = logs.last().unwrap();
    trimmed.delete_records(Offset(57)).unwrap();
    trimmed.retain(NOW_MS).unwrap();
    trimmed.retain(NOW_MS).unwrap();
    dir.checkpoint().unwrap();
    for (topic, log) in TOPICS.iter().zip(&logs) {
        fill(topic, log, BATCHES * 2 / 3..BATCHES);
    }
    copy_tree(root, copy);
    logs.iter().for_each(|log| log.close().unwrap());
    drop(logs);
    dir.close().unwrap();
}

fn fill(topic: &str, log: &Log, batches: std::ops::Range<i32>) {
    let codec = match topic {
        "gzip" => Codec::Gzip,
        "snappy" => Codec::Snappy,
        "lz4" => Codec::Lz4,
        "zstd" => Codec::Zstd,
        _ => Codec::None,
    };
    for number in batches {
        log.set_leader_epoch(Epoch(number / 20));
        let time = NOW_MS + i64::from(number) * 10;
        let fields = BatchFields {
            codec,
            producer_id: 1000 + i64::from(number % 3),
            producer_epoch: 0,
            base_sequence: number / 3 * 3,
            transactional: topic == "transactions",
            ..BatchFields::default()
        };
        let bytes = if topic == "compacted" {
            let (one, two) = (format!("k{}", number % 7), format!("k{}", number % 5));
            let value = format!("{number}-{}", "compacted ".repeat(6));
            let fields = BatchFields { base_sequence: number / 3 * 2, ..fields };
            keyed_at(time, &[(&one, Some(&value)), (&two, Some(&value))], &fields)
        } else {
            values(time, topic, number, &fields)
        };
        append(log, &bytes).unwrap();
        if topic == "transactions" && number % 3 == 2 {
            let ends = |id| marker(1000 + id, (i64::from(number) + id) % 4 == 0);
            for id in 0..3 {
                append(log, &ends(id)).unwrap();
            }
        }
    }
}

fn values(time: i64, topic: &str, number: i32, fields: &BatchFields) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for index in 0..3 {
        let key = format!("{topic}-{number}-{index}").into_bytes();
        let value: Vec<u8> = key.iter().cycle().take(70).copied().collect();
        let timestamp = time + i64::from(index);
        builder.add(&NewRecord { timestamp, key: Some(&key), value: Some(&value), headers: &[] });
    }
    builder.to_bytes(fields).unwrap()
}

/// What is true of the partitions of an unharmed directory.
pub fn expected_logs(root: &Path) -> BTreeMap<&'static str, ExpectedLog> {
    let dir = LogDir::open(root, &dir_options()).unwrap();
    let truth = |topic: &'static str| {
        let log = open(&dir, topic).unwrap();
        let (start, end) = (log.log_start_offset(), log.log_end_offset());
        let mut records = BTreeMap::new();
        let bytes = bytes_from(&log, start);
        for batch in krust::record::batch::iter(&bytes) {
            let batch = batch.unwrap();
            if !batch.is_control() {
                each_record(&batch, |record| {
                    let pair = (record.key.map(<[u8]>::to_vec), record.value.map(<[u8]>::to_vec));
                    records.insert(record.offset, (record.timestamp, pair.0, pair.1));
                    Ok(())
                })
                .unwrap();
            }
        }
        records.retain(|offset, _| *offset >= start.0);
        let times = (-2..BATCHES + 2).map(|number| NOW_MS + i64::from(number) * 10 + 1);
        let find = |time| (time, log.offset_for_timestamp(time).unwrap().map(|it| it.offset.0));
        let truth = ExpectedLog {
            id: topic_id(topic),
            start: start.0,
            end: end.0,
            producers: producers(&log),
            epochs: log.epochs(),
            aborted: log.aborted(start, end).unwrap(),
            times: times.map(find).collect(),
            records,
        };
        (topic, truth)
    };
    TOPICS.into_iter().map(truth).collect()
}

/// The producers in the order of their ids.
pub fn producers(log: &Log) -> Vec<ActiveProducer> {
    let mut states = log.producers();
    states.sort_by_key(|states| states.producer_id);
    states
}

/// Copies a directory.
pub fn copy_tree(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&entry.path(), &target);
        } else if entry.file_name() != ".lock" {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}
