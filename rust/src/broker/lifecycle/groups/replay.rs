//! Replay: a partition of `__consumer_offsets` from its first record to its last, offsets into
//! memory, what groups are made of to the policy (`GroupsLoaded`): of a classic group its metadata,
//! of a consumer group all its records that live, in the order of the log.
//!
//! Records are read in place, chunk by chunk; a compressed batch is inflated as it is read. The
//! newest record of a key wins. Records of a transaction wait for its marker: committed, they
//! count from there; aborted or never ended, they do not.
//! A group that the policy lost is read again in the same way, but for the offsets, which memory
//! has: nothing else is held up by that.
//! Threads: one of its own, which ends with the last partition; the shard's lock is taken at the
//! end only.
//! A panic is logged and costs that partition its coordinator, as an error does.
//! Not promised: a record that makes no sense is left out with a warning, not a reason to stop.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::broker::policy::Event;
use crate::broker::requests::broker::Broker;
use crate::broker::state::groups::kinds;
use crate::broker::state::groups::offsets::Offsets;
use crate::broker::state::groups::records::{self, Read as Record};
use crate::broker::state::groups::shard::{Phase, Shard, State};
use crate::ids::Offset;
use crate::protocol::value::Value;
use crate::record::batch::{self, Batch};
use crate::record::compression::Codec;
use crate::record::control::Control;
use crate::record::legacy::{self, Message};
use crate::record::{RecordError, convert};
use crate::storage::panics::caught;
use crate::storage::{Log, Read, ReadError};

/// Bytes read at a time, as `offsets.load.buffer.size`.
const CHUNK: usize = 5 << 20;
/// The most that a compressed message of an older format may grow to.
const INFLATED: usize = 64 << 20;

/// Why a partition could not be replayed.
#[derive(Debug, thiserror::Error)]
enum Stopped {
    #[error("{0}")]
    Read(#[from] ReadError),
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("{0}")]
    Record(#[from] RecordError),
    #[error("the broker stops")]
    Closing,
}

/// What a partition holds.
#[derive(Default)]
struct Replayed {
    /// One past the last record read.
    next: Offset,
    offsets: Offsets,
    /// The newest metadata of each group.
    groups: HashMap<Box<str>, Box<[u8]>>,
    /// The newest record of each key of each consumer group.
    consumers: HashMap<Box<str>, HashMap<Box<[u8]>, Live>>,
    /// How many of those there were.
    count: u64,
    /// Keys and values of transactions that are open, by producer.
    open: HashMap<i64, Vec<Pending>>,
    skipped: u64,
    /// First and last offsets of batches with a wrong checksum, until they are logged.
    damaged: Vec<(i64, i64)>,
}

/// A record's place among those of consumer groups, and its value.
type Live = (u64, Box<[u8]>);

type Pending = (Option<Box<[u8]>>, Option<Box<[u8]>>);

impl Broker {
    /// Replays shards on a thread of its own.
    pub(crate) fn load_groups(&self, shards: Vec<Arc<Shard>>) {
        let Some(broker) = self.me.upgrade().filter(|_| !shards.is_empty()) else { return };
        let spawned = std::thread::Builder::new().name("krust-groups".into()).spawn(move || {
            for shard in shards {
                let name = &shard.partition().name;
                let load = || broker.load_shard(&shard);
                if caught(&format_args!("the replay of {name}"), load).is_none() {
                    shard.leave(&mut shard.locked());
                }
            }
        });
        if let Err(error) = spawned {
            tracing::error!("groups cannot be loaded: {error}");
        }
    }

    fn load_shard(&self, shard: &Shard) {
        let mut replayed = Replayed::default();
        loop {
            let outcome = replayed.read(&shard.partition().log, &self.groups.stopping);
            let mut state = shard.locked();
            match outcome {
                _ if shard.phase() == Phase::Gone => return,
                // A group was lost after its part was read.
                Ok(()) if replayed.next < state.lost_end => {}
                Ok(()) => return self.take_over(shard, &mut state, replayed),
                Err(error) => {
                    if !matches!(error, Stopped::Closing) {
                        tracing::error!(partition = %shard.partition().name, "replay: {error}");
                    }
                    return shard.leave(&mut state);
                }
            }
        }
    }

    fn take_over(&self, shard: &Shard, state: &mut State, mut replayed: Replayed) {
        if replayed.skipped > 0 {
            let (partition, skipped) = (&shard.partition().name, replayed.skipped);
            tracing::warn!(%partition, skipped, "records that make no sense were left out");
        }
        let lost = std::mem::take(&mut state.lost);
        state.reading = false;
        let mut loaded = Vec::new();
        for group in &lost {
            loaded.push(self.loaded(group, replayed.groups.get(group).map(|value| &**value)));
        }
        if shard.phase() == Phase::Loading {
            for (group, value) in replayed.groups.iter().filter(|(it, _)| !lost.contains(it)) {
                loaded.push(self.loaded(group, Some(value)));
            }
            state.offsets = replayed.offsets;
            state.end = replayed.next;
        } else {
            replayed.consumers.retain(|group, _| lost.contains(group));
        }
        let records = self.records(&replayed.consumers);
        if !loaded.is_empty() || !records.is_empty() {
            // Before anybody can ask for these groups.
            let fields = vec![
                ("partition".into(), Value::Int(i64::from(shard.index))),
                ("groups".into(), Value::List(loaded)),
                ("records".into(), Value::List(records)),
            ];
            self.policy.submit(Event::internal("GroupsLoaded", Value::Map(fields)));
        }
        shard.set_phase(state, Phase::Ready);
    }

    /// A group as the policy hears of it; its fence is to come, where it has metadata.
    fn loaded(&self, group: &str, value: Option<&[u8]>) -> Value {
        let value = match value.map(records::metadata).transpose() {
            Ok(value) => value.flatten(),
            Err(error) => {
                tracing::warn!(group, "metadata that makes no sense: {error}");
                None
            }
        };
        if value.is_some() {
            self.groups.snapshots.expect(group);
        }
        let group_id = Value::Str(group.to_owned());
        let value = value.unwrap_or_default();
        Value::Map(vec![("group_id".into(), group_id), ("value".into(), value)])
    }
}

impl Broker {
    /// What consumer groups are made of, as the policy hears of it: lists of group, kind, key and
    /// value. The fences of those that live are to come.
    fn records(&self, groups: &HashMap<Box<str>, HashMap<Box<[u8]>, Live>>) -> Vec<Value> {
        let mut places: Vec<(u64, &str, &[u8], &[u8])> = Vec::new();
        for (group, records) in groups {
            places
                .extend(records.iter().map(|(key, (at, value))| (*at, &**group, &**key, &**value)));
        }
        places.sort_unstable_by_key(|(at, ..)| *at);
        let mut records = Vec::with_capacity(places.len());
        for (_, group, key, value) in places {
            match kinds::read(key, value) {
                Ok(Some((kind, key, value))) => {
                    if kind == kinds::GROUP_EPOCH {
                        self.groups.snapshots.expect(group);
                    }
                    let (name, kind) = (Value::Str(group.to_owned()), Value::Int(kind.into()));
                    records.push(Value::List(vec![name, kind, key, value]));
                }
                Ok(None) => tracing::warn!(group, "a record of a version not known"),
                Err(error) => tracing::warn!(group, "a record that makes no sense: {error}"),
            }
        }
        records
    }
}

impl Replayed {
    /// Reads on to the log's end.
    fn read(&mut self, log: &Log, stop: &AtomicBool) -> Result<(), Stopped> {
        let mut bytes = Vec::new();
        self.next = self.next.max(log.log_start_offset());
        loop {
            if stop.load(Ordering::Acquire) {
                return Err(Stopped::Closing);
            }
            let upper = log.log_end_offset();
            let read = Read { offset: self.next, max_bytes: CHUNK, upper, min_one: true };
            bytes.clear();
            log.read(read)?.read_into(&mut bytes)?;
            let outcome = self.chunk(&bytes);
            for (from, to) in self.damaged.drain(..) {
                tracing::error!(
                    partition = %log.name(), from, to,
                    "a batch has a wrong checksum and is left out: what groups wrote with it is \
                     lost, and what they committed before counts again"
                );
            }
            match outcome? {
                Some(next) if next > self.next => self.next = next,
                _ => {
                    self.next = self.next.max(upper);
                    return Ok(());
                }
            }
        }
    }

    /// Takes over the batches of a chunk, whose last one may be cut. Returns the offset after them.
    fn chunk(&mut self, bytes: &[u8]) -> Result<Option<Offset>, Stopped> {
        let mut next = None;
        for batch in batch::iter(bytes) {
            match batch {
                Ok(batch) => {
                    if batch.crc_ok() {
                        self.batch(&batch)?;
                    } else {
                        self.damaged.push((batch.header().base_offset, batch.last_offset()));
                    }
                    next = Some(Offset(batch.last_offset() + 1));
                }
                Err(RecordError::Truncated { .. }) => break,
                Err(RecordError::Magic(_)) if next.is_none() => return self.older(bytes),
                // Read again from here, as the first of a chunk.
                Err(RecordError::Magic(_)) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(next)
    }

    /// The same, of the older formats.
    fn older(&mut self, bytes: &[u8]) -> Result<Option<Offset>, Stopped> {
        let (mut next, mut rest, mut held) = (None, bytes, Vec::new());
        loop {
            let message = match Message::parse(rest) {
                Ok(message) => message,
                Err(RecordError::Truncated { .. } | RecordError::Magic(_)) => return Ok(next),
                Err(error) => return Err(error.into()),
            };
            if message.codec == Codec::None {
                self.record(message.key, message.value);
            } else {
                legacy::records(&message, INFLATED, &mut held)?
                    .for_each(|record| self.record(record.key, record.value));
            }
            next = Some(Offset(message.offset + 1));
            rest = rest.get(message.size()..).unwrap_or_default();
        }
    }

    fn batch(&mut self, batch: &Batch<'_>) -> Result<(), RecordError> {
        let producer = batch.header().producer_id;
        if batch.is_control() {
            return convert::each_record(batch, |record| {
                if let Ok(Control::EndTransaction { commit, .. }) = Control::parse(record) {
                    self.end_transaction(producer, commit);
                }
                Ok(())
            });
        }
        let transactional = batch.is_transactional();
        convert::each_record(batch, |record| {
            if transactional {
                let pending = (record.key.map(Into::into), record.value.map(Into::into));
                self.open.entry(producer).or_default().push(pending);
            } else {
                self.record(record.key, record.value);
            }
            Ok(())
        })
    }

    fn end_transaction(&mut self, producer: i64, commit: bool) {
        let records = self.open.remove(&producer).unwrap_or_default();
        for (key, value) in records.iter().filter(|_| commit) {
            self.record(key.as_deref(), value.as_deref());
        }
    }

    fn record(&mut self, key: Option<&[u8]>, value: Option<&[u8]>) {
        match records::read(key, value) {
            Ok(Record::Offset(key, value)) => self.offsets.replay(&key, value.as_ref()),
            Ok(Record::Group(group, Some(value))) => {
                self.groups.insert(group.into(), value.into());
            }
            Ok(Record::Group(group, None)) => drop(self.groups.remove(group)),
            Ok(Record::Consumer(group, key, Some(value))) => {
                self.count += 1;
                let records = self.consumers.entry(group.into()).or_default();
                records.insert(key.into(), (self.count, value.into()));
            }
            Ok(Record::Consumer(group, key, None)) => {
                if let Some(records) = self.consumers.get_mut(group) {
                    records.remove(key);
                }
            }
            Ok(Record::Other) => {}
            Err(_) => self.skipped += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::compression::deflate;
    use crate::record::legacy::Plain;

    fn message(codec: Codec, value: &[u8]) -> Vec<u8> {
        let (mut bytes, value) = (Vec::new(), Some(value));
        let attributes = codec as i8;
        legacy::put(&mut bytes, &Plain { magic: 1, attributes, value, ..Plain::default() });
        bytes
    }

    #[test]
    fn a_message_of_an_older_format_inflates_no_further_than_it_may() {
        let mut replayed = Replayed::default();
        let most = INFLATED - 34; // the message around the value
        for (size, fits) in [(most, true), (most + 1, false)] {
            let (inside, mut value) = (message(Codec::None, &vec![0; size]), Vec::new());
            deflate(Codec::Gzip, None, &inside, &mut value).unwrap();
            let outcome = replayed.chunk(&message(Codec::Gzip, &value));
            assert_eq!(outcome.is_ok(), fits, "{outcome:?}");
        }
    }
}
