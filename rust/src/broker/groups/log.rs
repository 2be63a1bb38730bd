//! The log of groups: which partition of `__consumer_offsets` a group lives in, and appends of its
//! records, each request's as one batch.
//!
//! A shard is one partition that this broker leads. Its lock is held from the check of a commit
//! over its append to the moment it is kept in memory, so that log and memory agree, and so that
//! what was checked against a fence is in the log before anybody reads behind a newer fence.
//! States of a shard:
//! ```text
//! Loading  requests are answered COORDINATOR_LOAD_IN_PROGRESS   replayed -> Ready, else -> Gone
//! Ready    requests are served; groups that the policy lost are read again meanwhile
//! Gone     NOT_COORDINATOR: the topic was deleted, or the disk is broken
//! ```
//! Threads: any; the lock is held for one append, never for a replay.
//! Not promised: that an append survives a power cut before the high watermark has passed it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::super::apis::Api;
use super::super::image::{PartitionImage, TopicImage};
use super::super::partition::{Acks, Partition, Wakes};
use super::super::policy::Event;
use super::super::{Broker, errors};
use super::offsets::{Key, Offsets};
use super::records::Pen;
use super::{AppendedAt, GroupRecord, GroupState, Groups};
use crate::ids::Offset;
use crate::protocol::ErrorCode;
use crate::protocol::value::Value;
use crate::record::batch::{Batch, Facts};

/// The topic of groups.
pub(crate) const TOPIC: &str = "__consumer_offsets";
/// The longest group id that a record's key can hold.
pub(crate) const GROUP_ID_MAX: usize = 0x7fff;

/// The partitions of the topic as they are in the image.
#[derive(Debug, Default)]
pub(super) struct Shards {
    /// By number; `None`: led elsewhere.
    all: Vec<Option<Arc<Shard>>>,
}

/// A partition of the topic that this broker leads.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(super) index: i32,
    partition: Arc<Partition>,
    /// A [`Phase`]; changed only under the lock.
    phase: AtomicU8,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    Loading,
    Ready,
    Gone,
}

/// What a shard keeps.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) offsets: Offsets,
    /// One past the last record of a group.
    pub(super) end: Offset,
    /// Groups that the policy lost, as when an append failed: they are read again.
    pub(super) lost: Vec<Box<str>>,
    /// Where the log ended when the last of them was lost.
    pub(super) lost_end: Offset,
    /// Whether somebody reads already.
    pub(super) reading: bool,
}

/// The partition of a group, of `count`: Java's hash of the id's UTF-16, without its sign.
pub(crate) fn partition_for(group_id: &str, count: usize) -> usize {
    let step = |hash: i32, unit: u16| hash.wrapping_mul(31).wrapping_add(i32::from(unit));
    let hash = group_id.encode_utf16().fold(0, step);
    usize::try_from(hash.checked_abs().unwrap_or(0)).unwrap_or(0).checked_rem(count).unwrap_or(0)
}

impl Groups {
    /// Follows the topic from now on. Returns the shards that have something to replay, and the
    /// groups that do not live here any more, or are to be read again.
    pub(crate) fn follow(
        &self,
        topic: Option<&TopicImage>,
        node: i32,
    ) -> (Vec<Arc<Shard>>, Vec<Arc<str>>) {
        let before = self.shards.load_full();
        let partitions = topic.map(|topic| topic.partitions.as_slice()).unwrap_or_default();
        // With another number of partitions each group lives elsewhere.
        let kept = if partitions.len() == before.all.len() { before.all.as_slice() } else { &[] };
        let mut loading = Vec::new();
        let shard = |(index, image): (i32, &PartitionImage)| {
            let partition = image.local.as_ref().filter(|_| image.state.leader == node)?;
            let is_its = |old: &&Arc<Shard>| Arc::ptr_eq(&old.partition, partition);
            if let Some(old) = kept.iter().flatten().find(is_its) {
                return Some(Arc::clone(old));
            }
            let shard = Arc::new(Shard::new(index, Arc::clone(partition)));
            if shard.phase() == Phase::Loading {
                loading.push(Arc::clone(&shard));
            }
            Some(shard)
        };
        let all: Vec<_> = (0..).zip(partitions).map(shard).collect();
        let stays = |old: &Arc<Shard>| all.iter().flatten().any(|new| Arc::ptr_eq(new, old));
        let gone: Vec<_> = before.all.iter().flatten().filter(|old| !stays(old)).collect();
        for gone in &gone {
            gone.leave(&mut gone.state.lock());
        }
        let mut left = if gone.is_empty() { Vec::new() } else { self.fences.groups() };
        left.retain(|group_id| {
            let place = partition_for(group_id, before.all.len());
            gone.iter().any(|gone| usize::try_from(gone.index) == Ok(place))
        });
        self.shards.store(Arc::new(Shards { all }));
        (loading, left)
    }

    fn shard_of(&self, group_id: &str) -> Option<Arc<Shard>> {
        let shards = self.shards.load();
        shards.all.get(partition_for(group_id, shards.all.len()))?.clone()
    }

    /// Whether a group lives in a shard.
    pub(super) fn is_of(&self, shard: &Arc<Shard>, group_id: &str) -> bool {
        self.shard_of(group_id).is_some_and(|other| Arc::ptr_eq(shard, &other))
    }

    /// The shard of a group that is ready, or the error that says why not.
    pub(crate) fn shard(&self, group_id: &str) -> Result<Arc<Shard>, ErrorCode> {
        let shard = self.shard_of(group_id).ok_or(ErrorCode::NotCoordinator)?;
        shard.usable().map(|()| shard)
    }

    /// All shards that are ready.
    pub(super) fn ready(&self) -> Vec<Arc<Shard>> {
        let shards = self.shards.load();
        let ready = shards.all.iter().flatten().filter(|shard| shard.phase() == Phase::Ready);
        ready.cloned().collect()
    }

    /// How far the partition of a group is.
    pub(super) fn state(&self, group_id: &str) -> GroupState {
        match self.shard_of(group_id).map(|shard| shard.phase()) {
            Some(Phase::Ready) => GroupState::Ready,
            Some(Phase::Loading) => GroupState::Loading,
            Some(Phase::Gone) | None => GroupState::NotHere,
        }
    }
}

impl Broker {
    /// See [`Broker::append_group_records`].
    pub(super) fn append_of_group(
        &self,
        group_id: &str,
        records: &[GroupRecord],
    ) -> Result<AppendedAt, ErrorCode> {
        let shard = self.groups.shard_of(group_id).ok_or(ErrorCode::NotCoordinator)?;
        let mut state = shard.state.lock();
        let outcome = match shard.usable() {
            Ok(()) if group_id.len() > GROUP_ID_MAX => Err(ErrorCode::InvalidGroupId),
            Ok(()) => shard.write(&mut state, (group_id, records), self.clock.wall_ms()),
            Err(error) => Err(error),
        };
        if outcome.is_err() {
            self.read_again(&shard, &mut state, group_id);
        }
        drop(state);
        if outcome.is_ok() && !records.is_empty() {
            shard.partition.advance(&mut Wakes { here: None, mailbox: self });
        }
        outcome
    }
}

impl Broker {
    /// Whether a group has committed anything.
    pub fn has_offsets(&self, group_id: &str) -> bool {
        let shard = self.groups.shard_of(group_id);
        shard.is_some_and(|shard| shard.state.lock().offsets.of(group_id).is_some())
    }

    /// The groups that have committed something.
    pub fn groups_with_offsets(&self) -> Vec<String> {
        let shards = self.groups.ready();
        let mut groups = Vec::new();
        for shard in shards {
            groups.extend(shard.state.lock().offsets.groups.keys().map(ToString::to_string));
        }
        groups
    }

    /// How many records a group has still to read: topic, partition, count. Only of partitions of
    /// `topics` that live here and that it has committed an offset of.
    pub fn lags(&self, group_id: &str, topics: &[String]) -> Vec<(String, i32, i64)> {
        let image = self.image.load();
        let mut lags = Vec::new();
        let Some(shard) = self.groups.shard_of(group_id) else { return lags };
        let state = shard.state.lock();
        let Some(offsets) = state.offsets.of(group_id) else { return lags };
        for name in topics {
            let Some(topic) = image.topic(name) else { continue };
            for (&index, stored) in offsets.topics.get(name.as_str()).into_iter().flatten() {
                if let Some(here) = topic.partition(index).and_then(|one| one.local.as_ref()) {
                    let end = here.log.high_watermark().0;
                    lags.push((name.clone(), index, end.saturating_sub(stored.offset).max(0)));
                }
            }
        }
        lags
    }

    /// Whether any partition is being replayed.
    pub fn groups_loading(&self) -> bool {
        let shards = self.groups.shards.load();
        shards.all.iter().flatten().any(|shard| shard.phase() == Phase::Loading)
    }

    /// Whether a request is to wait: it is on groups, and those that lay here at the start are
    /// still being read.
    pub(crate) fn waits_for_groups(&self, api: &Api) -> bool {
        let until_ms = self.groups.wait_until_ms.load(Ordering::Relaxed);
        if until_ms == 0 || !is_on_groups(api.key) {
            return false;
        }
        if self.clock.monotonic_ms() >= until_ms {
            self.groups.wait_until_ms.store(0, Ordering::Relaxed);
            return false;
        }
        self.groups_loading()
    }

    /// Reads groups again that the policy lost: `GroupsLoaded` names each of them, with null where
    /// the log has nothing. Those that live elsewhere are named by `GroupsUnloaded`.
    pub fn reload_groups(&self, group_ids: &[String]) {
        let mut elsewhere = Vec::new();
        for group_id in group_ids {
            match self.groups.shard_of(group_id).filter(|shard| shard.phase() != Phase::Gone) {
                Some(shard) => self.read_again(&shard, &mut shard.state.lock(), group_id),
                None => elsewhere.push(group_id.as_str()),
            }
        }
        self.unloaded(elsewhere.into_iter());
    }

    /// Tells the policy of groups that do not live here, or have to be read anew.
    pub(crate) fn unloaded<'g>(&self, groups: impl ExactSizeIterator<Item = &'g str>) {
        if groups.len() > 0 {
            let names = groups.map(|group_id| Value::Str(group_id.to_owned())).collect();
            let fields = vec![("groups".into(), Value::List(names))];
            self.policy.submit(Event::internal("GroupsUnloaded", Value::Map(fields)));
        }
    }

    fn read_again(&self, shard: &Arc<Shard>, state: &mut State, group_id: &str) {
        if shard.phase() == Phase::Gone {
            return;
        }
        if !state.lost.iter().any(|lost| **lost == *group_id) {
            state.lost.push(group_id.into());
        }
        state.lost_end = state.end;
        if !std::mem::replace(&mut state.reading, true) {
            self.load_groups(vec![Arc::clone(shard)]);
        }
    }
}

impl Groups {
    /// From now until then (monotonic) requests on groups wait while groups are being read.
    pub(crate) fn have_requests_wait(&self, until_ms: i64) {
        self.wait_until_ms.store(until_ms, Ordering::Relaxed);
    }
}

/// Whether an API asks for what lies in the offsets topic.
const fn is_on_groups(api_key: i16) -> bool {
    matches!(api_key, 8 | 9 | 11..=16 | 42 | 47 | 68 | 69)
}

impl Shard {
    fn new(index: i32, partition: Arc<Partition>) -> Self {
        let end = partition.log.log_end_offset();
        let is_empty = partition.log.log_start_offset() == end;
        let phase = if is_empty { Phase::Ready } else { Phase::Loading };
        let state = State { end, reading: !is_empty, ..State::default() };
        Self { index, partition, phase: AtomicU8::new(phase as u8), state: Mutex::new(state) }
    }

    /// The partition itself.
    pub(crate) fn partition(&self) -> &Partition {
        &self.partition
    }

    pub(super) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Loading,
            1 => Phase::Ready,
            _ => Phase::Gone,
        }
    }

    pub(super) fn set_phase(&self, _locked: &mut State, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Release);
    }

    /// Nothing is kept here any more.
    pub(super) fn leave(&self, state: &mut State) {
        self.set_phase(state, Phase::Gone);
        *state = State::default();
    }

    fn usable(&self) -> Result<(), ErrorCode> {
        match self.phase() {
            Phase::Loading => Err(ErrorCode::CoordinatorLoadInProgress),
            Phase::Ready if !self.partition.is_led_elsewhere() => Ok(()),
            _ => Err(ErrorCode::NotCoordinator),
        }
    }

    /// Whatever phase it is in.
    pub(super) fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// What it keeps, if it is ready.
    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, State>, ErrorCode> {
        let state = self.state.lock();
        self.usable().map(|()| state)
    }

    /// Where the groups' records end now.
    pub(crate) fn end(&self, state: &State) -> AppendedAt {
        AppendedAt { partition: Arc::clone(&self.partition), end: state.end }
    }

    /// Whether all that was appended so far is committed.
    pub(crate) fn is_committed(&self, state: &State) -> bool {
        self.partition.acknowledged(Acks::All) >= state.end
    }

    /// Appends what `pen` wrote. The caller keeps it in memory, lets go of the lock, and then
    /// calls [`Partition::advance`]. Errors: the codes that a commit answers with.
    pub(crate) fn append(
        &self,
        state: &mut State,
        pen: &mut Pen,
        now_ms: i64,
    ) -> Result<(), ErrorCode> {
        let log = &self.partition.log;
        let too_large = ErrorCode::InvalidCommitOffsetSize;
        let batch = Batch::parse(pen.finish().map_err(|_| too_large)?).map_err(|_| too_large)?;
        if batch.size() as u64 > log.config().max_message_bytes {
            return Err(too_large);
        }
        let header = batch.header();
        let facts = Facts {
            max_timestamp: header.max_timestamp,
            offset_of_max_timestamp: 0,
            record_count: header.record_count,
            last_offset_delta: header.last_offset_delta,
            inflated: 0,
        };
        let code = |code: ErrorCode| match code {
            ErrorCode::MessageTooLarge | ErrorCode::RecordListTooLarge => too_large,
            _ => ErrorCode::NotCoordinator,
        };
        let appended = log.stage(&batch, &facts, now_ms);
        let appended = appended.map_err(|error| code(errors::of_append(&error)))?;
        log.commit(appended.staged).map_err(|error| code(errors::of_storage(&error)))?;
        state.end = Offset(appended.last_offset.0 + 1);
        Ok(())
    }

    fn write(
        &self,
        state: &mut State,
        (group_id, records): (&str, &[GroupRecord]),
        now_ms: i64,
    ) -> Result<AppendedAt, ErrorCode> {
        let mut pen = Pen::default();
        pen.begin(now_ms);
        let mut gone = Vec::new();
        for record in records {
            match record {
                GroupRecord::Metadata(value) => pen.group(group_id, value.as_ref())?,
                GroupRecord::Consumer { kind, key, value } => {
                    pen.consumer(group_id, (*kind, key, value.as_ref()))?;
                }
                GroupRecord::DropOffsets => {
                    let keys = state.offsets.keys_of(group_id);
                    gone = self.bury(state, &mut pen, (keys, now_ms))?;
                }
            }
        }
        if !pen.is_empty() {
            self.append(state, &mut pen, now_ms)?;
        }
        state.offsets.remove_all(&gone);
        Ok(self.end(state))
    }

    /// Writes tombstones. Batches that are full are appended and their offsets forgotten; those
    /// that are still with the pen are returned, to be forgotten once they are appended.
    pub(super) fn bury(
        &self,
        state: &mut State,
        pen: &mut Pen,
        (keys, now_ms): (Vec<Key>, i64),
    ) -> Result<Vec<Key>, ErrorCode> {
        let mut written = Vec::new();
        for key in keys {
            let (group, topic, partition) = &key;
            pen.offset((group, topic, *partition), None);
            written.push(key);
            self.append_if_full(state, pen, now_ms)?;
            if pen.is_empty() {
                state.offsets.remove_all(&written);
                written.clear();
            }
        }
        Ok(written)
    }

    /// Appends what `pen` wrote where little more would fit into a batch.
    fn append_if_full(
        &self,
        state: &mut State,
        pen: &mut Pen,
        now_ms: i64,
    ) -> Result<(), ErrorCode> {
        let limit = usize::try_from(self.partition.log.config().max_message_bytes);
        if pen.size() > limit.unwrap_or(usize::MAX) / 2 {
            self.append(state, pen, now_ms)?;
            pen.begin(now_ms);
        }
        Ok(())
    }
}
