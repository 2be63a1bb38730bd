//! One broker: a log on a recording disk, its role, and what it does with a message.

use std::path::PathBuf;
use std::sync::Arc;

use krust::broker::replica::follower::{
    FollowerEffect, FollowerReplica, FollowerRequest, LeaderAnswer,
};
use krust::broker::replica::leader::{
    FollowerFetch, LeaderEffects, LeaderReplica, Leadership, Moment, ReplicationSettings,
};
use krust::clock::ManualClock;
use krust::ids::{Epoch, Offset, TopicPartition};
use krust::protocol::ErrorCode;
use krust::record::batch::{self, Batch, BatchBuilder, BatchFields, NewRecord, ValidationRules};
use krust::storage::files::{Disk, RealDisk};
use krust::storage::recording::{Crash, RecordingDisk};
use krust::storage::{Descriptors, DirOptions, Log, LogConfig, LogDir, LogReadRequest, Open};

use super::controller::node_id;
use super::messages::{Assignment, CONTROLLER, Message, Records};

const FETCH_BYTES: usize = 400;

/// A batch of one record, as the checks know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendedRecord {
    pub offset: i64,
    pub epoch: i32,
    /// The record's value, unique in a run.
    pub value: u64,
}

pub enum Role {
    None,
    /// `waiting`: appends with acks=all that the high watermark has not passed.
    Leader {
        replica: Box<LeaderReplica>,
        waiting: Vec<AppendedRecord>,
    },
    Follower {
        replica: FollowerReplica,
        leader: usize,
    },
}

pub struct Broker {
    pub node: usize,
    /// It runs.
    pub is_up: bool,
    /// Rises with each start: what was sent to an earlier run does not arrive.
    pub run: u64,
    /// Its present registration; -1: it is not registered.
    pub broker_epoch: i64,
    pub role: Role,
    /// What its log holds, as far as the simulation knows.
    pub records_held: Vec<AppendedRecord>,
    /// It lost synced or unsynced records in a power cut since it last said so to the controller.
    pub may_have_lost: bool,
    pub settings: ReplicationSettings,
    pub flushes: bool,
    controller_epoch: i32,
    /// The live brokers, by the newest UpdateMetadata.
    alive: Vec<i32>,
    metadata_serial: u64,
    place: tempfile::TempDir,
    machine: Option<Machine>,
    clock: ManualClock,
}

/// What ends with a crash.
struct Machine {
    disk: Option<Arc<RecordingDisk>>,
    dir: Arc<LogDir>,
    log: Arc<Log>,
}

/// What a broker wants done after a step.
#[derive(Debug, Default)]
pub struct BrokerEffects {
    pub sends: Vec<(usize, Message)>,
    pub acknowledged: Vec<AppendedRecord>,
    /// What could not be acknowledged and never will be, by this leader.
    pub failed: usize,
}

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

impl Broker {
    pub fn new(node: usize, settings: ReplicationSettings, flushes: bool) -> Self {
        Self {
            node,
            is_up: false,
            run: 0,
            broker_epoch: -1,
            role: Role::None,
            records_held: Vec::new(),
            may_have_lost: false,
            settings,
            flushes,
            controller_epoch: 0,
            alive: Vec::new(),
            metadata_serial: 0,
            place: scratch(),
            machine: None,
            clock: ManualClock::at(1_700_000_000_000),
        }
    }

    /// Starts, and recovers the log. `records`: the disk is recorded, so that its power can be cut.
    pub fn start(&mut self, records: bool) {
        let path: PathBuf = self.place.path().to_owned();
        let recording =
            records.then(|| Arc::new(RecordingDisk::new(&path).expect("a recording disk")));
        let disk: Arc<dyn Disk> = match &recording {
            Some(disk) => Arc::clone(disk) as _,
            None => Arc::new(RealDisk),
        };
        let options = DirOptions { disk, descriptors: Descriptors::new(16), ..Default::default() };
        let dir = LogDir::open(&path, &options).unwrap();
        let config = LogConfig { segment_bytes: 1500, ..LogConfig::default() };
        let open = Open {
            config: Arc::new(config),
            topic_id: None,
            leader_epoch: Some(Epoch(0)),
            clean: dir.was_clean(),
            dense: true,
            clock: Arc::new(self.clock.clone()),
            syncer: None,
            checking: None,
        };
        let log = Log::open(&dir, &TopicPartition::new("t", 0), open).unwrap();
        assert!(log.damage().is_none(), "broker {}: {:?}", self.node, log.damage());
        let found = records_held_of(&log);
        if !self.may_have_lost {
            assert_eq!(found, self.records_held, "broker {}: a kill lost records", self.node);
        }
        self.records_held = found;
        self.machine = Some(Machine { disk: recording, dir, log });
        self.is_up = true;
        self.run += 1;
        self.role = Role::None;
        self.controller_epoch = 0;
    }

    /// The process ends at once. The page cache keeps what was written.
    pub fn kill(&mut self) {
        self.machine = None;
        self.end();
    }

    /// The machine loses its power: of what was not synced, `seed` chooses what is left.
    pub fn cut_power(&mut self, seed: u64) {
        let machine = self.machine.take().unwrap();
        let disk = machine.disk.expect("the disk is recorded");
        let image = scratch();
        disk.crash(disk.ops(), Crash::PowerCut { seed }, image.path()).unwrap();
        drop((machine.log, machine.dir));
        self.place = image;
        self.may_have_lost = true;
        self.end();
    }

    fn end(&mut self) {
        self.is_up = false;
        self.broker_epoch = -1;
        self.role = Role::None;
    }

    pub fn log(&self) -> &Log {
        &self.machine.as_ref().unwrap().log
    }

    /// The record at an offset, if the log holds it.
    pub fn record_at(&self, offset: i64) -> Option<&AppendedRecord> {
        let first = self.records_held.first()?.offset;
        self.records_held.get(usize::try_from(offset - first).ok()?)
    }

    pub fn high_watermark(&self) -> i64 {
        self.log().high_watermark().0
    }

    pub fn leader(&self) -> Option<&LeaderReplica> {
        match &self.role {
            Role::Leader { replica, .. } => Some(replica),
            _ => None,
        }
    }

    /// Writes the checkpoints, as the log scheduler does now and then.
    pub fn checkpoint(&mut self) {
        let machine = self.machine.as_ref().unwrap();
        machine.log.flush().unwrap();
        machine.dir.checkpoint().unwrap();
    }

    fn moment(&self, now_ms: i64) -> Moment {
        Moment { log_end: self.log().log_end_offset(), now_ms }
    }

    /// The controller tells of the partition.
    pub fn assigned(
        &mut self,
        assignment: &Assignment,
        now_ms: i64,
        by_fetch: bool,
    ) -> BrokerEffects {
        let mut effects_of_step = BrokerEffects::default();
        if assignment.broker_epoch != self.broker_epoch
            || assignment.controller_epoch < self.controller_epoch
        {
            return effects_of_step;
        }
        self.controller_epoch = assignment.controller_epoch;
        if assignment.serial > self.metadata_serial {
            self.metadata_serial = assignment.serial;
            self.alive.clone_from(&assignment.alive);
        }
        let moment = self.moment(now_ms);
        let epoch = assignment.leadership.leader_epoch;
        let current = match &self.role {
            Role::None => None,
            Role::Leader { replica, .. } => Some(replica.leadership().leader_epoch),
            Role::Follower { replica, .. } => Some(replica.leader_epoch()),
        };
        if current.is_some_and(|current| epoch < current) {
            return effects_of_step;
        }
        if current == Some(epoch) {
            if let Role::Leader { replica, .. } = &mut self.role {
                let mut effects = replica.assigned(assignment.leadership.clone(), moment);
                self.carry_out(&mut effects, &mut effects_of_step);
                if let Role::Leader { replica, .. } = &mut self.role {
                    let mut effects = replica.brokers_changed(&self.alive, moment);
                    self.carry_out(&mut effects, &mut effects_of_step);
                }
            }
            return effects_of_step;
        }
        if let Role::Leader { waiting, .. } = &self.role {
            effects_of_step.failed += waiting.len();
        }
        self.role = Role::None;
        if assignment.leader == node_id(self.node) {
            self.lead(assignment.leadership.clone(), moment, &mut effects_of_step);
        } else if let Ok(leader) = usize::try_from(assignment.leader) {
            let replica = FollowerReplica::new(epoch, by_fetch);
            self.role = Role::Follower { replica, leader };
        }
        effects_of_step
    }

    fn lead(
        &mut self,
        leadership: Leadership,
        moment: Moment,
        effects_of_step: &mut BrokerEffects,
    ) {
        self.log().begin_leader_epoch(leadership.leader_epoch);
        let high_watermark = self.log().high_watermark();
        let (mut replica, mut effects) = LeaderReplica::new(
            node_id(self.node),
            leadership,
            self.settings,
            high_watermark,
            moment,
        );
        let more = replica.brokers_changed(&self.alive, moment);
        self.role = Role::Leader { replica: Box::new(replica), waiting: Vec::new() };
        self.carry_out(&mut effects, effects_of_step);
        self.carry_out(&mut { more }, effects_of_step);
    }

    fn carry_out(&mut self, effects: &mut LeaderEffects, effects_of_step: &mut BrokerEffects) {
        if let Some(offset) = effects.high_watermark.take() {
            self.log().raise_high_watermark(offset);
        }
        let high_watermark = self.high_watermark();
        let broker_epoch = self.broker_epoch;
        if let Some(proposed) = effects.propose.take() {
            let message = Message::AlterPartition { broker_epoch, proposed };
            effects_of_step.sends.push((CONTROLLER, message));
        }
        if let Role::Leader { waiting, replica } = &mut self.role {
            let is_enough = replica.has_enough_in_sync();
            waiting.retain(|it| {
                let is_committed = it.offset < high_watermark;
                if is_committed && is_enough {
                    effects_of_step.acknowledged.push(*it);
                } else if is_committed {
                    effects_of_step.failed += 1;
                }
                !is_committed
            });
        }
    }

    /// A client writes a record with acks=all; `None` if it is refused.
    pub fn produce(&mut self, value: u64, now_ms: i64) -> Option<BrokerEffects> {
        let leader = self.leader()?;
        if !leader.has_enough_in_sync() {
            return None;
        }
        let bytes = record(value);
        let batch = Batch::parse(&bytes).unwrap();
        let facts = batch::check(&batch, &ValidationRules::default()).unwrap();
        let appended = self.log().stage(&batch, &facts, 1_700_000_000_000).unwrap();
        self.log().commit(appended.staged).unwrap();
        if self.flushes {
            self.log().flush().unwrap();
        }
        let epoch = self.log().leader_epoch().0;
        let appended_record = AppendedRecord { offset: appended.base_offset.0, epoch, value };
        self.records_held.push(appended_record);
        let moment = self.moment(now_ms);
        let mut effects_of_step = BrokerEffects::default();
        if let Role::Leader { waiting, replica } = &mut self.role {
            waiting.push(appended_record);
            let mut effects = replica.tick(moment);
            self.carry_out(&mut effects, &mut effects_of_step);
        }
        Some(effects_of_step)
    }

    /// Time passed: a leader looks after its in-sync set, a follower asks its leader.
    pub fn tick(&mut self, now_ms: i64) -> BrokerEffects {
        let mut effects_of_step = BrokerEffects::default();
        let moment = self.moment(now_ms);
        match &mut self.role {
            Role::None => {}
            Role::Leader { replica, .. } => {
                let mut effects = replica.tick(moment);
                self.carry_out(&mut effects, &mut effects_of_step);
            }
            Role::Follower { replica, leader } => {
                let (replica, leader) = (*replica, *leader);
                if let Some(request) = replica.request(self.log()) {
                    let message = Message::Ask { broker_epoch: self.broker_epoch, request };
                    effects_of_step.sends.push((leader, message));
                }
            }
        }
        effects_of_step
    }

    pub fn receive(&mut self, from: usize, message: Message, now_ms: i64) -> BrokerEffects {
        let mut effects_of_step = BrokerEffects::default();
        match message {
            Message::Ask { broker_epoch, request } => {
                let fetched = (from, broker_epoch, request);
                let (answer, records) = self.answer(fetched, now_ms, &mut effects_of_step);
                effects_of_step
                    .sends
                    .push((from, Message::Answer { request, answer, records: Records(records) }));
            }
            Message::Answer { request, answer, records } => {
                self.answered(from, request, answer, &records.0);
            }
            Message::Altered { proposed, outcome } => {
                let moment = self.moment(now_ms);
                if let Role::Leader { replica, .. } = &mut self.role {
                    let mut effects = replica.proposal_ended(&proposed, outcome, moment);
                    self.carry_out(&mut effects, &mut effects_of_step);
                }
            }
            Message::LeaderAndIsr(_) | Message::AlterPartition { .. } => {
                unreachable!("the run handles these")
            }
        }
        effects_of_step
    }

    /// The leader's side of a follower's question.
    fn answer(
        &mut self,
        (from, broker_epoch, request): (usize, i64, FollowerRequest),
        now_ms: i64,
        effects_of_step: &mut BrokerEffects,
    ) -> (LeaderAnswer, Vec<u8>) {
        let refused = |error| (LeaderAnswer::Refused(error), Vec::new());
        let moment = self.moment(now_ms);
        let current = match request {
            FollowerRequest::Fetch { current_leader_epoch, .. }
            | FollowerRequest::EndOfEpoch { current_leader_epoch, .. }
            | FollowerRequest::LogBounds { current_leader_epoch } => current_leader_epoch,
        };
        let Some(leader) = self.leader() else { return refused(ErrorCode::NotLeaderOrFollower) };
        let epoch = leader.leadership().leader_epoch;
        if current < epoch {
            return refused(ErrorCode::FencedLeaderEpoch);
        } else if current > epoch {
            return refused(ErrorCode::UnknownLeaderEpoch);
        }
        let (start, end) = (self.log().log_start_offset(), self.log().log_end_offset());
        match request {
            FollowerRequest::EndOfEpoch { epoch, .. } => {
                let (epoch, end_offset) = self.log().end_offset_for_epoch(epoch);
                (LeaderAnswer::EpochEnds { epoch, end_offset }, Vec::new())
            }
            FollowerRequest::LogBounds { .. } => {
                (LeaderAnswer::LogBounds { log_start: start, log_end: end }, Vec::new())
            }
            FollowerRequest::Fetch { fetch_offset, last_fetched_epoch, log_start, .. } => {
                if last_fetched_epoch > Epoch::NONE {
                    let (epoch, end_offset) = self.log().end_offset_for_epoch(last_fetched_epoch);
                    if end_offset == Offset::NONE {
                        return refused(ErrorCode::OffsetOutOfRange);
                    }
                    if epoch < last_fetched_epoch || end_offset < fetch_offset {
                        return (LeaderAnswer::EpochEnds { epoch, end_offset }, Vec::new());
                    }
                }
                if fetch_offset < start || fetch_offset > end {
                    return refused(ErrorCode::OffsetOutOfRange);
                }
                let replica = node_id(from);
                let fetch = FollowerFetch { replica, broker_epoch, fetch_offset, log_start };
                let Role::Leader { replica, .. } = &mut self.role else { unreachable!() };
                match replica.follower_fetched(&fetch, moment) {
                    Err(error) => return refused(error),
                    Ok(mut effects) => self.carry_out(&mut effects, effects_of_step),
                }
                let read = LogReadRequest {
                    offset: fetch_offset,
                    max_bytes: FETCH_BYTES,
                    upper: end,
                    min_one: true,
                };
                let records = self.log().read(read).unwrap().to_vec().unwrap();
                let high_watermark = self.log().high_watermark();
                (LeaderAnswer::Fetched { high_watermark, log_start: start }, records)
            }
        }
    }

    /// The follower's side of its leader's answer.
    fn answered(
        &mut self,
        from: usize,
        request: FollowerRequest,
        answer: LeaderAnswer,
        records: &[u8],
    ) {
        let machine = self.machine.as_ref().unwrap();
        let log = Arc::clone(&machine.log);
        let Role::Follower { replica, leader } = &mut self.role else { return };
        if *leader != from {
            return;
        }
        match replica.answered(&*log, request, answer) {
            FollowerEffect::None | FollowerEffect::RetryLater | FollowerEffect::Stop => {}
            FollowerEffect::Append { high_watermark, .. } => {
                log.append_as_follower(records).unwrap();
                if self.flushes {
                    log.flush().unwrap();
                }
                log.raise_high_watermark(high_watermark);
                let end = log.log_end_offset().0;
                self.records_held.extend(parse(records).into_iter().filter(|it| it.offset < end));
            }
            FollowerEffect::TruncateTo(offset) => {
                let end = log.truncate_to(offset).unwrap();
                self.records_held.retain(|it| it.offset < end.0);
            }
            FollowerEffect::TruncateFullyAndStartAt(offset) => {
                log.truncate_fully(offset).unwrap();
                self.records_held.clear();
            }
        }
    }
}

fn record(value: u64) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    let value = value.to_be_bytes();
    let timestamp = 1_700_000_000_000;
    builder.add(&NewRecord { timestamp, key: None, value: Some(&value), headers: &[] });
    builder.to_bytes(&BatchFields::default()).unwrap()
}

/// The whole batches in `bytes`.
fn parse(bytes: &[u8]) -> Vec<AppendedRecord> {
    let mut found = Vec::new();
    for batch in batch::iter(bytes).map_while(Result::ok) {
        let record = batch.records().next().unwrap().unwrap();
        found.push(AppendedRecord {
            offset: record.offset,
            epoch: batch.header().leader_epoch,
            value: u64::from_be_bytes(record.value.unwrap().try_into().unwrap()),
        });
    }
    found
}

/// Everything that a log holds.
pub fn records_held_of(log: &Log) -> Vec<AppendedRecord> {
    let (mut found, end) = (Vec::new(), log.log_end_offset());
    let mut next = log.log_start_offset();
    while next < end {
        let read = LogReadRequest { offset: next, max_bytes: 1 << 20, upper: end, min_one: true };
        found.extend(parse(&log.read(read).unwrap().to_vec().unwrap()));
        next = Offset(found.last().map_or(end.0, |last: &AppendedRecord| last.offset + 1));
    }
    found
}
