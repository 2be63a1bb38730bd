//! A broker's replica of the partition: its role, and what it does with a message. The decisions
//! are those of the real step functions, on the real log.

use crate::replica::follower::{
    FollowerEffect, FollowerReplica, FollowerRequest, LeaderAnswer, restart_offset,
};
use crate::replica::leader::{
    FollowerFetch, LeaderEffects, LeaderReplica, Moment, ProposalOutcome, ProposedIsr,
};
use krust::ids::{Epoch, Offset};
use krust::protocol::ErrorCode;
use krust::record::batch::Batch;
use krust::storage::AppendError;

use super::broker::{Broker, Effects};
use super::clients::NewBatch;
use super::machine::{StoredRecord, encode, parse};
use super::messages::{Assignment, CLIENTS, Message, Records};
use super::serving::{self, Checked};
use super::zookeeper::node_id;

const FETCH_BYTES: usize = 400;
/// A follower asks again when no answer came for so long.
const PATIENCE_MS: i64 = 20;

pub enum Role {
    /// It knows of no leader.
    None,
    Leader {
        replica: Box<LeaderReplica>,
        /// Batches with acks=all that the high watermark has not passed, and their records.
        waiting: Vec<(NewBatch, Vec<StoredRecord>)>,
    },
    Follower {
        replica: FollowerReplica,
        leader: usize,
        /// When it asked last, while it waits for the answer.
        asked_ms: Option<i64>,
    },
}

/// A record that a leader acknowledged, and what the leader knew then.
#[derive(Clone, Copy, Debug)]
pub struct Acknowledged {
    pub record: StoredRecord,
    pub leader_epoch: i32,
    pub in_sync: usize,
    pub replicas: usize,
}

/// A follower's truncation, for the checks.
#[derive(Clone, Copy, Debug)]
pub struct TruncatedLog {
    pub to: i64,
    /// What was there.
    pub dropped: Option<StoredRecord>,
    pub high_watermark: i64,
    pub leader: usize,
    pub leader_epoch: i32,
}

impl Broker {
    /// The record at an offset, if the log holds it.
    pub fn record_at(&self, offset: i64) -> Option<&StoredRecord> {
        let first = self.held.first()?.offset;
        self.held.get(usize::try_from(offset - first).ok()?)
    }

    pub fn log_end(&self) -> i64 {
        self.machine.log().log_end_offset().0
    }

    pub fn log_start(&self) -> i64 {
        self.machine.log().log_start_offset().0
    }

    pub fn high_watermark(&self) -> i64 {
        self.machine.log().high_watermark().0
    }

    pub fn leader(&self) -> Option<&LeaderReplica> {
        match &self.role {
            Role::Leader { replica, .. } => Some(replica),
            _ => None,
        }
    }

    fn moment(&self, clock_ms: i64) -> Moment {
        Moment { log_end: self.machine.log().log_end_offset(), now_ms: clock_ms }
    }

    /// The controller tells of the partition. `by_fetch`: the leader knows Fetch v12.
    pub fn assigned(
        &mut self,
        assignment: &Assignment,
        (clock_ms, by_fetch): (i64, bool),
        effects: &mut Effects,
    ) {
        let Assignment { controller_epoch, serial, leadership, .. } = assignment;
        if assignment.broker_epoch < self.broker_epoch || *controller_epoch < self.controller_epoch
        {
            return;
        }
        if *controller_epoch > self.controller_epoch || *serial > self.metadata_serial {
            self.metadata_serial = *serial;
            self.alive.clone_from(&assignment.alive);
            self.known_controller = Some(assignment.controller);
        }
        self.controller_epoch = *controller_epoch;
        let epoch = leadership.leader_epoch;
        if self.leader_epoch.is_some_and(|known| epoch < known) {
            return;
        }
        if self.leader_epoch != Some(epoch) {
            self.leader_epoch = Some(epoch);
            self.begin_epoch(assignment, (clock_ms, by_fetch));
        }
        self.step(clock_ms, effects, |replica, moment| {
            replica.assigned(leadership.clone(), moment);
            LeaderEffects::default()
        });
        let alive = self.alive.clone();
        self.step(clock_ms, effects, |replica, moment| replica.brokers_changed(&alive, moment));
    }

    fn begin_epoch(&mut self, assignment: &Assignment, (clock_ms, by_fetch): (i64, bool)) {
        let (epoch, me) = (assignment.leadership.leader_epoch, node_id(self.node));
        if !assignment.leadership.replicas.contains(&me) {
            self.role = Role::None;
            if self.log_end() > 0 {
                self.machine.wipe();
                self.held.clear();
            }
            return;
        }
        self.role = if assignment.leader == me {
            self.machine.log().begin_leader_epoch(epoch);
            let high_watermark = self.machine.log().high_watermark();
            let (replica, _) = LeaderReplica::new(
                me,
                assignment.leadership.clone(),
                self.settings,
                high_watermark,
                self.moment(clock_ms),
            );
            Role::Leader { replica: Box::new(replica), waiting: Vec::new() }
        } else {
            self.machine.log().stop_leading();
            match usize::try_from(assignment.leader) {
                Ok(leader) => Role::Follower {
                    replica: FollowerReplica::new(epoch, by_fetch),
                    leader,
                    asked_ms: None,
                },
                Err(_) => Role::None,
            }
        };
    }

    /// Runs a step of the leader, and carries out its effects.
    fn step(
        &mut self,
        clock_ms: i64,
        effects: &mut Effects,
        run: impl FnOnce(&mut LeaderReplica, Moment) -> LeaderEffects,
    ) {
        let (moment, broker_epoch) = (self.moment(clock_ms), self.broker_epoch);
        let Role::Leader { replica, waiting } = &mut self.role else { return };
        let wanted = run(replica, moment);
        let high_watermark = self.machine.log().raise_high_watermark(replica.high_watermark()).0;
        if let Some(proposed) = wanted.propose {
            // Without a known controller the proposal gets lost, and is repeated.
            let controller = self.known_controller.unwrap_or(self.node);
            let message = Message::AlterPartition { broker_epoch, proposed };
            effects.sends.push((controller, message));
        }
        let (leadership, is_enough) = (replica.leadership(), replica.has_enough_in_sync());
        waiting.retain(|(batch, stored)| {
            if stored.last().is_some_and(|last| last.offset >= high_watermark) {
                return true;
            }
            let outcome = if is_enough {
                effects.acknowledged.extend(stored.iter().map(|record| Acknowledged {
                    record: *record,
                    leader_epoch: leadership.leader_epoch.0,
                    in_sync: leadership.isr.len(),
                    replicas: leadership.replicas.len(),
                }));
                Ok(stored[0].offset)
            } else {
                Err(ErrorCode::NotEnoughReplicasAfterAppend)
            };
            effects.sends.push((CLIENTS, Message::Produced { batch: *batch, outcome }));
            false
        });
    }

    /// A client writes a batch: idempotent ones with acks=all, others with acks=1.
    pub fn produce(&mut self, batch: NewBatch, clock_ms: i64, effects: &mut Effects) {
        match self.append(&batch) {
            Ok(stored) if batch.producer_id >= 0 => {
                if let Role::Leader { waiting, .. } = &mut self.role {
                    waiting.push((batch, stored));
                }
            }
            other => {
                let outcome = other.map(|stored| stored[0].offset);
                effects.sends.push((CLIENTS, Message::Produced { batch, outcome }));
            }
        }
        self.step(clock_ms, effects, LeaderReplica::log_end_moved);
    }

    fn append(&mut self, batch: &NewBatch) -> Result<Vec<StoredRecord>, ErrorCode> {
        let leader = self.leader().ok_or(ErrorCode::NotLeaderOrFollower)?;
        if batch.producer_id >= 0 && !leader.has_enough_in_sync() {
            return Err(ErrorCode::NotEnoughReplicas);
        }
        let appended = self.machine.append(&encode(batch));
        let (offset, is_duplicate) = appended.map_err(|error| match error {
            AppendError::OutOfOrderSequence { .. } => ErrorCode::OutOfOrderSequenceNumber,
            AppendError::InvalidProducerEpoch { .. } => ErrorCode::InvalidProducerEpoch,
            AppendError::NotLeader => ErrorCode::NotLeaderOrFollower,
            _ => ErrorCode::KafkaStorageError,
        })?;
        let epoch = self.machine.log().leader_epoch().0;
        let stored: Vec<_> =
            (0..batch.records).map(|at| record_of(batch, (offset, epoch), at)).collect();
        if is_duplicate {
            // The original, unless it was deleted meanwhile.
            let known = |it: &StoredRecord| self.record_at(it.offset).copied().unwrap_or(*it);
            return Ok(stored.iter().map(known).collect());
        }
        self.held.extend_from_slice(&stored);
        self.machine.flush_if_asked();
        Ok(stored)
    }

    /// Time passed: a leader looks after its in-sync set, a follower asks its leader. In flush mode
    /// a follower tells its leader of nothing that is not on its disk.
    pub fn tick_replica(&mut self, clock_ms: i64, effects: &mut Effects) {
        let is_durable = self.machine.flush_if_asked();
        self.step(clock_ms, effects, LeaderReplica::tick);
        let log = self.machine.log();
        if let Role::Follower { replica, leader, asked_ms } = &mut self.role
            && is_durable
            && asked_ms.is_none_or(|at| clock_ms - at > PATIENCE_MS)
            && let Some(request) = replica.request(&**log)
        {
            *asked_ms = Some(clock_ms);
            let message = Message::Ask { broker_epoch: self.broker_epoch, request };
            effects.sends.push((*leader, message));
        }
    }

    /// The controller answered a proposal, or its answer did not come.
    pub fn proposal_ended(
        &mut self,
        proposed: &ProposedIsr,
        outcome: ProposalOutcome,
        (clock_ms, effects): (i64, &mut Effects),
    ) {
        self.step(clock_ms, effects, |replica, moment| {
            replica.proposal_ended(proposed, outcome, moment)
        });
    }

    /// A follower asks.
    pub fn asked(
        &mut self,
        (from, broker_epoch): (usize, i64),
        request: FollowerRequest,
        (clock_ms, effects): (i64, &mut Effects),
    ) {
        let answered = self.answer((from, broker_epoch), request, (clock_ms, effects));
        let (answer, records) =
            answered.unwrap_or_else(|error| (LeaderAnswer::Refused(error), Vec::new()));
        let records = Records(records);
        effects.sends.push((from, Message::Answer { request, answer, records }));
    }

    fn answer(
        &mut self,
        (from, broker_epoch): (usize, i64),
        request: FollowerRequest,
        (clock_ms, effects): (i64, &mut Effects),
    ) -> Result<(LeaderAnswer, Vec<u8>), ErrorCode> {
        let leader = self.leader().ok_or(ErrorCode::NotLeaderOrFollower)?;
        serving::check_epoch(serving::epoch_of(&request), leader.leadership().leader_epoch)?;
        let (from_offset, log_start) = match serving::check(&**self.machine.log(), &request)? {
            Checked::Answer(answer) => return Ok((answer, Vec::new())),
            Checked::Read { from, log_start } => (from, log_start),
        };
        let replica = node_id(from);
        let fetch = FollowerFetch { replica, broker_epoch, fetch_offset: from_offset, log_start };
        let mut refused = None;
        self.step(clock_ms, effects, |replica, moment| {
            replica.follower_fetched(&fetch, moment).unwrap_or_else(|error| {
                refused = Some(error);
                LeaderEffects::default()
            })
        });
        refused.map_or(Ok(()), Err)?;
        let read = self.machine.read(from_offset, FETCH_BYTES);
        let records = read.ok_or(ErrorCode::KafkaStorageError)?;
        let (log, high_watermark) = (self.machine.log(), self.high_watermark());
        let answer = LeaderAnswer::Fetched {
            high_watermark: Offset(high_watermark),
            log_start: log.log_start_offset(),
        };
        Ok((answer, records))
    }

    /// The leader answered.
    pub fn answered(
        &mut self,
        from: usize,
        (request, answer, records): (FollowerRequest, LeaderAnswer, &[u8]),
        (clock_ms, effects): (i64, &mut Effects),
    ) {
        let Role::Follower { replica, leader, asked_ms } = &mut self.role else { return };
        if *leader != from {
            return;
        }
        let is_late = replica.request(&**self.machine.log()) != Some(request);
        let effect = replica.answered(&**self.machine.log(), request, answer);
        let leader_epoch = replica.leader_epoch().0;
        if !is_late && effect != FollowerEffect::RetryLater {
            *asked_ms = None;
        }
        let high_watermark = self.high_watermark();
        match effect {
            FollowerEffect::None | FollowerEffect::RetryLater | FollowerEffect::Stop => {}
            FollowerEffect::Append { high_watermark, log_start } => {
                let is_appended = self.append_fetched(records, (high_watermark, log_start));
                if !is_appended && let Role::Follower { asked_ms, .. } = &mut self.role {
                    *asked_ms = Some(clock_ms);
                }
            }
            FollowerEffect::TruncateTo(offset) => {
                let (to, dropped) = (offset.0, self.record_at(offset.0).copied());
                let cut = TruncatedLog { to, dropped, high_watermark, leader: from, leader_epoch };
                effects.truncated = Some(cut);
                let outcome = self.machine.log().truncate_to(offset);
                if outcome.is_ok() || !self.machine.is_offline() {
                    let end = self.log_end();
                    self.held.retain(|it| it.offset < end);
                }
            }
            FollowerEffect::TruncateFullyAndStartAt(offset) => {
                if self.machine.log().truncate_fully(offset).is_ok() {
                    self.held.clear();
                    self.log_restarts += 1;
                }
            }
        }
        // Where there is more to fetch, or something to ask, it does not wait for the next tick.
        if !is_late && !records.is_empty() {
            self.tick_replica(clock_ms, effects);
        }
    }

    /// Whether all was appended. If not, the follower pauses.
    fn append_fetched(
        &mut self,
        records: &[u8],
        (high_watermark, start): (Offset, Offset),
    ) -> bool {
        let first = Batch::parse(records).ok();
        let first = first.map(|it| (Offset(it.base_offset()), Offset(it.last_offset())));
        if let Some(offset) = restart_offset(&**self.machine.log(), start, first)
            && self.machine.log().truncate_fully(offset).is_ok()
        {
            self.held.clear();
            self.log_restarts += 1;
        }
        let log = self.machine.log();
        let outcome = log.append_as_follower(records);
        let end = log.log_end_offset().0;
        let known = self.held.last().map_or(i64::MIN, |it| it.offset);
        let new = parse(records).into_iter().filter(|it| known < it.offset && it.offset < end);
        self.held.extend(new);
        if outcome.is_err() {
            self.append_failed = true;
            return false;
        }
        let reached = log.raise_high_watermark(high_watermark);
        if start > log.log_start_offset() && log.delete_records(start.min(reached)).is_ok() {
            self.forget_deleted();
        }
        true
    }

    /// An operator deletes records below an offset, at most the high watermark.
    pub fn delete_records(&mut self, before: i64) {
        let log = self.machine.log();
        if self.leader().is_some() && log.delete_records(Offset(before)).is_ok() {
            self.forget_deleted();
        }
    }

    fn forget_deleted(&mut self) {
        let start = self.machine.log().log_start_offset().0;
        self.held.retain(|it| it.offset >= start);
    }

    /// The leader epoch of the term in which it leads.
    pub fn leads_in(&self) -> Option<Epoch> {
        self.leader().map(|it| it.leadership().leader_epoch)
    }
}

/// The record of this number in a batch that was appended at an offset.
fn record_of(batch: &NewBatch, (offset, epoch): (i64, i32), number: i32) -> StoredRecord {
    let is_idempotent = batch.producer_id >= 0;
    StoredRecord {
        offset: offset + i64::from(number),
        epoch,
        value: batch.value + u64::from(number.unsigned_abs()),
        producer_id: batch.producer_id,
        producer_epoch: batch.producer_epoch,
        sequence: if is_idempotent { batch.sequence + number } else { -1 },
    }
}
