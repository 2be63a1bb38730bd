//! TxnOffsetCommit (28), v0-5: stores a group's offsets as part of a producer's transaction. They
//! are pending until the transaction ends (see `state::groups::pending_offsets`).
//! Behaviour: the group is fenced as in OffsetCommit (KIP-447). Then the transaction's coordinator
//!     must have the group's partition of `__consumer_offsets` (KIP-890), unless the transaction
//!     has committed offsets there already. All offsets of a request are one batch, and the reply
//!     leaves when it is committed. Later requests of the connection are handled after one that
//!     waits for the coordinator.
//! Errors of the group, repeated for each partition: COORDINATOR_LOAD_IN_PROGRESS (14),
//!     COORDINATOR_NOT_AVAILABLE (15), NOT_COORDINATOR (16), INVALID_GROUP_ID (24),
//!     INVALID_COMMIT_OFFSET_SIZE (28). Of the member: ILLEGAL_GENERATION (22): another generation
//!     or epoch. UNKNOWN_MEMBER_ID (25). FENCED_INSTANCE_ID (82): another member has the instance
//!     id. Of the transaction: INVALID_PRODUCER_EPOCH (47): another epoch.
//!     INVALID_PRODUCER_ID_MAPPING (49): another producer id. INVALID_TXN_STATE (48) or
//!     TRANSACTION_ABORTABLE (120): the partition does not belong to it.
//! Errors of a partition: UNKNOWN_TOPIC_OR_PARTITION (3), OFFSET_METADATA_TOO_LARGE (12).
//! Authorization: Write on the transactional id, else TRANSACTIONAL_ID_AUTHORIZATION_FAILED (53);
//!     Read on the group, else GROUP_AUTHORIZATION_FAILED (30); Read on a topic, else its
//!     partitions are TOPIC_AUTHORIZATION_FAILED (29).
//! Version notes: below v2 COORDINATOR_LOAD_IN_PROGRESS, of which old clients know nothing, is sent
//!     as COORDINATOR_NOT_AVAILABLE. v2 adds leader epochs, v3 the member. v4 returns
//!     TRANSACTION_ABORTABLE instead of INVALID_TXN_STATE. From v5 on the partition need not be
//!     added before (AddOffsetsToTxn): the coordinator adds it now, or answers
//!     CONCURRENT_TRANSACTIONS (51) while the last transaction is being ended.

use std::sync::Arc;

use crate::broker::handlers::group_reply;
use crate::broker::handlers::verify_or_add::{self, CoordinatorAnswers, VerifyOrAddRequest};
use crate::broker::requests::access::Access;
use crate::broker::requests::broker::Broker;
use crate::broker::requests::call::{Call, HandlerResult};
use crate::broker::requests::delayed::{
    DelayedContext, DelayedOperation, OperationProgress, ThreadState,
};
use crate::broker::requests::head::Head;
use crate::broker::requests::reply::Output;
use crate::broker::requests::service::Flow;
use crate::broker::state::acls::Operation::{Read, Write};
use crate::broker::state::acls::ResourceType::{Group, TransactionalId};
use crate::broker::state::coordinator::shard::{AppendedAt, NotAppendedInTransaction};
use crate::broker::state::groups::offsets::{OffsetKey, StoredOffset, fits_metadata};
use crate::broker::state::groups::published::MemberIdentity;
use crate::broker::state::groups::shard::{GROUP_ID_MAX, commit_error};
use crate::broker::state::image::ClusterImage;
use crate::broker::state::lookup::NamedTopic;
use crate::broker::state::transactions::verify_or_add::VerifyOrAdd;
use crate::broker::state::waking::DelayedId;
use crate::broker::transactions::transaction::ProducerIdentity;
use crate::ids::TopicPartition;
use crate::protocol::ErrorCode;
use crate::protocol::offset_commit_value::OffsetCommitValue;
use crate::protocol::txn_offset_commit::{
    TxnOffsetCommitRequest, TxnOffsetCommitRequestPartition, TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use crate::storage::{Verification, VerificationGuard};
use crate::wire::Reader;

/// The first version whose clients know COORDINATOR_LOAD_IN_PROGRESS.
const LOADING_FROM: i16 = 2;
/// The first version with TRANSACTION_ABORTABLE.
const ABORTABLE_FROM: i16 = 4;
/// The first version that adds the partition to the transaction.
const ADDS_FROM: i16 = 5;

/// A request while it is handled.
struct TxnCommit<'r, 'f> {
    request: &'r TxnOffsetCommitRequest<'f>,
    version: i16,
    now_ms: i64,
    image: &'r ClusterImage,
    access: &'r Access,
}

/// The coordinator must have this partition in the transaction first.
struct Unverified {
    guard: VerificationGuard,
    partition: TopicPartition,
}

/// Why nothing was committed.
enum TxnCommitRefusal {
    Code(ErrorCode),
    Unverified(Unverified),
}

/// A request that waits for the transaction's coordinator.
#[derive(Debug)]
struct DelayedTxnCommit {
    access: Access,
    body: Box<[u8]>,
    guard: VerificationGuard,
    answers: Arc<CoordinatorAnswers>,
}

pub(crate) fn handle(call: &mut Call<'_, '_>) -> HandlerResult {
    let version = call.version();
    let request = TxnOffsetCommitRequest::decode(&mut call.reader(), version)?;
    let image = call.image();
    let now_ms = call.broker.clock.wall_ms();
    let access = &call.access();
    let commit = TxnCommit { request: &request, version, now_ms, image: &image, access };
    if let Some(error) = commit.refused() {
        let response = respond(&request, version, std::iter::repeat(error));
        call.reply(|writer, version| response.encode(writer, version));
        return Ok(Flow::Go);
    }
    let mut codes = Vec::new();
    let at = match commit.begin((call.broker, call.thread), &mut codes) {
        Ok(at) => at,
        Err(Unverified { guard, partition }) => {
            let answers = commit.verify_or_add(call.broker, partition);
            let Some(answered) = answers.codes() else {
                return Ok(delay(call, guard, answers));
            };
            let answer = answered.first().copied().unwrap_or(ErrorCode::None);
            commit.go_on((call.broker, call.thread), &mut codes, (guard, answer))
        }
    };
    let response = respond(&request, version, codes.iter().copied());
    group_reply::answer(call, at.into_iter().collect(), refuse, |writer, version| {
        response.encode(writer, version);
    })
}

/// Delays the request until the coordinator has answered.
fn delay(
    call: &mut Call<'_, '_>,
    guard: VerificationGuard,
    answers: Arc<CoordinatorAnswers>,
) -> Flow {
    let (access, body) = (call.access(), call.request.body.into());
    let delayed = DelayedTxnCommit { access, body, guard, answers };
    let lease = call.lease.take();
    call.wait(Box::new(delayed), (verify_or_add::WAIT_MS, lease));
    Flow::Hold
}

/// The reply if nothing was committed.
fn refuse(head: Head, body: &[u8], error: ErrorCode) -> Output {
    let request = TxnOffsetCommitRequest::decode(&mut Reader::new(body), head.version);
    let request = request.unwrap_or_default();
    let response = respond(&request, head.version, std::iter::repeat(error));
    head.output(|writer, version| response.encode(writer, version))
}

/// A code for each partition, in the request's order.
fn respond<'f>(
    request: &TxnOffsetCommitRequest<'f>,
    version: i16,
    mut codes: impl Iterator<Item = ErrorCode>,
) -> TxnOffsetCommitResponse<'f> {
    let topics = request.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().zip(codes.by_ref());
        let partition = |(partition, code): (&TxnOffsetCommitRequestPartition<'_>, ErrorCode)| {
            let code = match code {
                ErrorCode::CoordinatorLoadInProgress if version < LOADING_FROM => {
                    ErrorCode::CoordinatorNotAvailable
                }
                code => code,
            };
            let partition_index = partition.partition_index;
            TxnOffsetCommitResponsePartition { partition_index, error_code: code.code() }
        };
        let partitions = partitions.map(partition).collect();
        TxnOffsetCommitResponseTopic { name: topic.name, partitions }
    });
    TxnOffsetCommitResponse { topics: topics.collect(), ..Default::default() }
}

impl TxnCommit<'_, '_> {
    /// The error of the whole request if the client may not use its transactional id or group.
    fn refused(&self) -> Option<ErrorCode> {
        if !self.access.check(Write, TransactionalId, self.request.transactional_id) {
            return Some(ErrorCode::TransactionalIdAuthorizationFailed);
        }
        let may_read = self.access.check(Read, Group, self.request.group_id);
        (!may_read).then_some(ErrorCode::GroupAuthorizationFailed)
    }

    /// Commits the offsets, unless the coordinator must be asked first. `codes` gets an error code
    /// for each partition. Returns the end of the append.
    fn begin(
        &self,
        at: (&Broker, &mut ThreadState),
        codes: &mut Vec<ErrorCode>,
    ) -> Result<Option<AppendedAt>, Unverified> {
        let is_required =
            self.version >= ADDS_FROM || at.0.settings.load().transactions.verifies_partitions;
        let verification =
            if is_required { Verification::Required } else { Verification::NotRequired };
        match self.commit(at, codes, verification) {
            Ok(at) => Ok(at),
            Err(TxnCommitRefusal::Unverified(unverified)) => Err(unverified),
            Err(TxnCommitRefusal::Code(error)) => {
                refuse_accepted(codes, error);
                Ok(None)
            }
        }
    }

    /// Asks the coordinator of the transaction.
    fn verify_or_add(&self, broker: &Broker, partition: TopicPartition) -> Arc<CoordinatorAnswers> {
        let (id, epoch) = (self.request.producer_id, self.request.producer_epoch);
        let is_added = self.version >= ADDS_FROM;
        CoordinatorAnswers::begin(
            broker,
            VerifyOrAddRequest {
                transactional_id: self.request.transactional_id,
                producer: ProducerIdentity { id, epoch },
                partitions: vec![partition],
                mode: if is_added { VerifyOrAdd::Add } else { VerifyOrAdd::Verify },
            },
        )
    }

    /// Goes on after the coordinator's answer.
    fn go_on(
        &self,
        at: (&Broker, &mut ThreadState),
        codes: &mut Vec<ErrorCode>,
        (guard, answer): (VerificationGuard, ErrorCode),
    ) -> Option<AppendedAt> {
        let has_own_epoch = self.version >= ADDS_FROM;
        let confirmed = Verification::ConfirmedBy { guard, has_own_epoch };
        let outcome = match answer {
            ErrorCode::None => self.commit(at, codes, confirmed),
            refusal => {
                self.find_partitions(codes);
                Err(TxnCommitRefusal::Code(self.of_coordinator(refusal)))
            }
        };
        let error = match outcome {
            Ok(at) => return at,
            Err(TxnCommitRefusal::Code(error)) => error,
            Err(TxnCommitRefusal::Unverified(_)) => ErrorCode::InvalidTxnState,
        };
        refuse_accepted(codes, error);
        None
    }

    /// The code that a client gets for an answer of the coordinator.
    fn of_coordinator(&self, answer: ErrorCode) -> ErrorCode {
        match answer {
            ErrorCode::ProducerFenced => ErrorCode::InvalidProducerEpoch,
            ErrorCode::TransactionAbortable if self.version < ABORTABLE_FROM => {
                ErrorCode::InvalidTxnState
            }
            ErrorCode::NetworkException => ErrorCode::CoordinatorLoadInProgress,
            ErrorCode::ConcurrentTransactions if self.version < ADDS_FROM => {
                ErrorCode::CoordinatorLoadInProgress
            }
            code => code,
        }
    }

    /// Notes for each partition whether it exists and the client may read it.
    fn find_partitions(&self, codes: &mut Vec<ErrorCode>) {
        codes.clear();
        for topic in &self.request.topics {
            let named = NamedTopic { topic: topic.name, id: None };
            let found = self.access.topic(Read, named, self.image);
            codes.extend(topic.partitions.iter().map(|partition| {
                let index = partition.partition_index;
                match found.map(|topic| topic.partition(index)) {
                    Ok(Some(_)) => ErrorCode::None,
                    Ok(None) => ErrorCode::UnknownTopicOrPartition,
                    Err(error) => error,
                }
            }));
        }
    }

    /// Commits the partitions without an error.
    fn commit(
        &self,
        (broker, thread): (&Broker, &mut ThreadState),
        codes: &mut Vec<ErrorCode>,
        verification: Verification,
    ) -> Result<Option<AppendedAt>, TxnCommitRefusal> {
        self.find_partitions(codes);
        if !codes.contains(&ErrorCode::None) {
            return Ok(None);
        }
        let request = self.request;
        if request.group_id.is_empty() || request.group_id.len() > GROUP_ID_MAX {
            return Err(ErrorCode::InvalidGroupId.into());
        }
        let shard = broker.groups.shards.ready_of(request.group_id)?;
        let mut memory = shard.lock_ready()?;
        let fenced = broker.groups.snapshots.check_transactional_commit(&MemberIdentity {
            group_id: request.group_id,
            member_id: request.member_id,
            instance_id: request.group_instance_id,
            generation: request.generation_id,
        });
        if fenced != ErrorCode::None {
            return Err(fenced.into());
        }
        self.measure(codes, broker.settings.load().offset_metadata_max_bytes);
        let offsets = self.offsets(codes);
        if offsets.is_empty() {
            return Ok(None);
        }
        let record_builder = &mut thread.groups.record_builder;
        record_builder.begin(self.now_ms);
        for ((group, topic, partition), value) in &offsets {
            record_builder.offset((group, topic, *partition), Some(value));
        }
        let count = i64::from(record_builder.count());
        let producer = (request.producer_id, request.producer_epoch);
        let appended = shard.append_in_transaction(
            &mut memory,
            (record_builder, producer),
            (verification, self.now_ms),
        );
        appended.map_err(|error| refusal(error, &shard.partition.name))?;
        let first = memory.end.0 - count;
        for (number, (key, value)) in (0..).zip(offsets) {
            let stored = StoredOffset::of(&value, first + number);
            memory.kept.pending.put(request.producer_id, key, stored);
        }
        let at = shard.end(&memory);
        drop(memory);
        shard.partition.advance(&mut broker.wakes(thread));
        Ok(Some(at))
    }

    /// Refuses the partitions with too much metadata.
    fn measure(&self, codes: &mut [ErrorCode], limit: usize) {
        let partitions = self.request.topics.iter().flat_map(|topic| &topic.partitions);
        for (partition, code) in partitions.zip(codes) {
            let metadata = partition.committed_metadata.unwrap_or_default();
            if *code == ErrorCode::None && !fits_metadata(metadata, limit) {
                *code = ErrorCode::OffsetMetadataTooLarge;
            }
        }
    }

    /// The offsets of the partitions without an error.
    fn offsets(&self, codes: &[ErrorCode]) -> Vec<(OffsetKey, OffsetCommitValue<'_>)> {
        let group: Arc<str> = self.request.group_id.into();
        let mut codes = codes.iter();
        let mut offsets = Vec::new();
        for topic in &self.request.topics {
            let found = self.image.topic(topic.name);
            for (partition, code) in topic.partitions.iter().zip(codes.by_ref()) {
                let Some(found) = found.filter(|_| *code == ErrorCode::None) else { continue };
                let key = (Arc::clone(&group), Arc::clone(&found.name), partition.partition_index);
                let value = OffsetCommitValue {
                    offset: partition.committed_offset,
                    leader_epoch: partition.committed_leader_epoch,
                    metadata: partition.committed_metadata.unwrap_or_default(),
                    commit_timestamp: self.now_ms,
                    expire_timestamp: -1,
                    ..Default::default()
                };
                offsets.push((key, value));
            }
        }
        offsets
    }
}

/// Gives the partitions without an error this one.
fn refuse_accepted(codes: &mut [ErrorCode], error: ErrorCode) {
    let accepted = codes.iter_mut().filter(|code| **code == ErrorCode::None);
    accepted.for_each(|code| *code = error);
}

fn refusal(error: NotAppendedInTransaction, partition: &TopicPartition) -> TxnCommitRefusal {
    match error {
        NotAppendedInTransaction::NotVerified(guard) => {
            TxnCommitRefusal::Unverified(Unverified { guard, partition: partition.clone() })
        }
        NotAppendedInTransaction::InvalidProducerEpoch => ErrorCode::InvalidProducerEpoch.into(),
        NotAppendedInTransaction::InvalidTxnState => ErrorCode::InvalidTxnState.into(),
        NotAppendedInTransaction::Other(error) => commit_error(error).into(),
    }
}

impl From<ErrorCode> for TxnCommitRefusal {
    fn from(error: ErrorCode) -> Self {
        Self::Code(error)
    }
}

impl DelayedOperation for DelayedTxnCommit {
    fn try_complete(
        self: Box<Self>,
        at: &mut DelayedContext<'_>,
        is_late: bool,
    ) -> OperationProgress {
        let answers = self.answers.codes();
        let answer = match answers.as_ref().and_then(|codes| codes.first()) {
            Some(code) => *code,
            None if is_late => ErrorCode::CoordinatorNotAvailable,
            None => return OperationProgress::Waits(self),
        };
        let Self { access, body, guard, .. } = *self;
        let version = at.head.version;
        let Ok(request) = TxnOffsetCommitRequest::decode(&mut Reader::new(&body), version) else {
            return OperationProgress::Fails;
        };
        let image = Arc::clone(&at.thread.image);
        let now_ms = at.broker.clock.wall_ms();
        let access = &access;
        let commit = TxnCommit { request: &request, version, now_ms, image: &image, access };
        let mut codes = Vec::new();
        let appended = commit.go_on((at.broker, at.thread), &mut codes, (guard, answer));
        let response = respond(&request, version, codes.into_iter());
        let appended = appended.into_iter().collect();
        group_reply::continue_with(at, appended, (body.clone(), refuse), |writer, version| {
            response.encode(writer, version);
        })
    }

    fn begin(&mut self, thread: usize, id: DelayedId) -> bool {
        self.answers.wait(thread, id)
    }

    fn cancel(&self, _: &Broker, _: usize, _: DelayedId) {}
}
