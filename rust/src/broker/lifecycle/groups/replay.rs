//! Replays a partition of `__consumer_offsets`. Offsets are kept in memory; the records of groups
//! go to the policy (`GroupsLoaded`): the metadata of a classic group, and all live records of a
//! consumer group in the order of the log. The newest record of a key wins. Offsets of
//! a transaction that is open at the end of the log are pending; a later marker ends them.
//!
//! A group that the policy has lost is read again in the same way, without its offsets. Other
//! groups are not delayed by that.
//! A malformed record is skipped with a warning.

use std::collections::HashMap;
use std::sync::Arc;

use crate::broker::lifecycle::coordinator::{ReplayedRecord, ShardReplay};
use crate::broker::policy::Event;
use crate::broker::requests::broker::Broker;
use crate::broker::state::coordinator::shard::CoordinatorState;
use crate::broker::state::groups::kinds;
use crate::broker::state::groups::records::{self, GroupRecordView as Record};
use crate::broker::state::groups::shard::{GroupShard, GroupShardMemory};
use crate::broker::state::groups::shard_groups::ShardGroups;
use crate::protocol::value::Value;

/// The records of a partition of the offsets topic.
#[derive(Debug, Default)]
pub(crate) struct GroupReplay {
    kept: ShardGroups,
    /// The newest metadata of each classic group.
    groups: HashMap<Box<str>, Box<[u8]>>,
    /// The newest record of each key of each consumer group.
    consumers: HashMap<Box<str>, HashMap<Box<[u8]>, NumberedValue>>,
    /// The number of records of consumer groups read so far.
    count: u64,
    /// Malformed records.
    skipped: u64,
}

/// A record's number among those of consumer groups, and its value.
type NumberedValue = (u64, Box<[u8]>);

impl ShardReplay for GroupReplay {
    type Kept = ShardGroups;
    const THREAD: &'static str = "krust-groups";

    fn record(&mut self, record: &ReplayedRecord<'_>) {
        match records::read(record.key, record.value) {
            Ok(Record::Offset(key, value)) => {
                let at = (record.transaction_of, record.offset);
                self.kept.replay(at, &key, value.as_ref());
            }
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

    fn end_transaction(&mut self, producer_id: i64, commit: bool) {
        self.kept.end_transaction(producer_id, commit);
    }

    fn take_over(
        mut self,
        broker: &Broker,
        shard: &Arc<GroupShard>,
        memory: &mut GroupShardMemory,
    ) {
        if self.skipped > 0 {
            let (partition, skipped) = (&shard.partition.name, self.skipped);
            tracing::warn!(%partition, skipped, "records that make no sense were left out");
        }
        let lost = std::mem::take(&mut memory.kept.lost);
        let mut loaded = Vec::new();
        for group in &lost {
            loaded.push(broker.loaded(group, self.groups.get(group).map(|value| &**value)));
        }
        if shard.state() == CoordinatorState::Loading {
            for (group, value) in self.groups.iter().filter(|(it, _)| !lost.contains(it)) {
                loaded.push(broker.loaded(group, Some(value)));
            }
            memory.kept = self.kept;
        } else {
            self.consumers.retain(|group, _| lost.contains(group));
        }
        let records = broker.records(&self.consumers);
        if !loaded.is_empty() || !records.is_empty() {
            // This precedes all requests for these groups.
            let fields = vec![
                ("partition".into(), Value::Int(i64::from(shard.index))),
                ("groups".into(), Value::List(loaded)),
                ("records".into(), Value::List(records)),
            ];
            broker.policy.submit(Event::internal("GroupsLoaded", Value::Map(fields)));
        }
    }
}

impl Broker {
    /// A classic group as the policy receives it. If it has metadata, its snapshot is expected.
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

    /// The records of consumer groups as the policy receives them: lists of group, kind, key and
    /// value. The snapshots of live groups are expected.
    fn records(&self, groups: &HashMap<Box<str>, HashMap<Box<[u8]>, NumberedValue>>) -> Vec<Value> {
        let mut in_order: Vec<(u64, &str, &[u8], &[u8])> = Vec::new();
        for (group, records) in groups {
            in_order.extend(
                records.iter().map(|(key, (number, value))| (*number, &**group, &**key, &**value)),
            );
        }
        in_order.sort_unstable_by_key(|(number, ..)| *number);
        let mut records = Vec::with_capacity(in_order.len());
        for (_, group, key, value) in in_order {
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
