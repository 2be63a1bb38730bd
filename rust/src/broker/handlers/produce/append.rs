//! Turns the records that a client sent for one partition into staged batches.
//!
//! Order of checks: as in Kafka. The whole request, the partition and its leader, in-sync replicas,
//!     the format, then the batch.
//! Threads: a network thread, or a worker for long checks. Appends hold the partition's lock.

use std::sync::Arc;

use crate::broker::errors;
use crate::broker::handlers::produce::faults::RecordErrors;
use crate::broker::handlers::produce::inflation_budget::InflationBudget;
use crate::broker::handlers::produce::partition_result::{PartitionResult, named};
use crate::broker::requests::access::Access;
use crate::broker::state::acls::Operation::Write;
use crate::broker::state::image::{ClusterImage, TopicImage};
use crate::broker::state::lookup::find_led;
use crate::broker::state::partition::{CommitState, Partition};
use crate::broker::transactions::transaction::ProducerIdentity;
use crate::ids::{Offset, TopicPartition};
use crate::protocol::ErrorCode;
use crate::protocol::produce::{PartitionProduceData, TopicProduceData};
use crate::record::batch::{
    self, Batch, TimestampBounds, TimestampType, ValidationResult, ValidationRules,
};
use crate::record::compression::Codec;
use crate::record::faults::RecordFaults;
use crate::record::walk::NO_KEY;
use crate::record::{RecordError, convert};
use crate::storage::{
    AppendError, AppendOrigin, Appended, Log, LogConfig, NewBatch, Verification, VerificationGuard,
};
use crate::work;

/// The first version that must bring exactly one batch of magic 2.
const ONE_BATCH_FROM: i16 = 3;
/// The first version that may bring zstd.
const ZSTD_FROM: i16 = 7;
/// The largest capacity that the buffer for recompressed batches keeps.
const KEPT: usize = 1 << 20;

/// The parameters of the request that apply to all its partitions.
#[derive(Debug)]
pub(crate) struct AppendRules {
    pub(crate) node: i32,
    pub(crate) version: i16,
    pub(crate) now_ms: i64,
    /// The error of the whole request.
    pub(crate) refused: Option<ErrorCode>,
    /// Acknowledgements wait for all in-sync replicas.
    pub(crate) needs_isr: bool,
    pub(crate) may_write_internal: bool,
    /// Whether the request has a transactional id.
    pub(crate) has_transaction: bool,
    /// What is known of the transaction of the batch that is staged next.
    pub(crate) verification: Verification,
    /// What the client is allowed.
    pub(crate) access: Access,
    /// The bytes that the request may still inflate.
    pub(crate) budget: InflationBudget,
}

/// Why the records of a partition have no result yet. Nothing was staged.
pub(crate) enum NotStaged {
    /// They take too long for a network thread.
    TakesLong,
    /// The coordinator must confirm their transaction first.
    Unverified(UnverifiedBatch),
}

/// A batch that begins a transaction in its partition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnverifiedBatch {
    pub(crate) producer: ProducerIdentity,
    pub(crate) guard: VerificationGuard,
}

/// A partition of a request whose transaction must be verified.
#[derive(Clone, Debug)]
pub(crate) struct UnverifiedPartition {
    /// The index of its result.
    pub(crate) at: usize,
    pub(crate) partition: TopicPartition,
    pub(crate) batch: UnverifiedBatch,
}

/// Why records were not staged.
enum Refusal {
    NotStaged(NotStaged),
    /// The leader is cut off from its followers and the controller.
    CutOff,
    Code(ErrorCode),
    /// The batch is refused.
    Record(RecordError),
    /// Some of its records are refused.
    Records(Box<PartitionResult>),
    Append(AppendError),
}

const TAKES_LONG: Refusal = Refusal::NotStaged(NotStaged::TakesLong);

impl From<RecordError> for Refusal {
    fn from(error: RecordError) -> Self {
        Self::Record(error)
    }
}

impl AppendRules {
    /// The same rules on a worker.
    pub(crate) fn on_a_worker(self) -> Self {
        Self { budget: self.budget.on_a_worker(), ..self }
    }

    /// A topic of the request, if the client may write to it.
    pub(crate) fn topic<'i>(
        &self,
        topic: &TopicProduceData<'_>,
        image: &'i ClusterImage,
    ) -> Result<&'i Arc<TopicImage>, ErrorCode> {
        match self.refused {
            Some(refused @ ErrorCode::TransactionalIdAuthorizationFailed) => Err(refused),
            _ => self.access.topic(Write, named(topic, self.version), image),
        }
    }

    /// Stages the records for one partition of `topic`.
    pub(crate) fn partition(
        &self,
        topic: &TopicImage,
        data: &PartitionProduceData<'_>,
        scratch: &mut Vec<u8>,
    ) -> Result<PartitionResult, NotStaged> {
        let refused = match self.stage(topic, data, scratch) {
            Ok(result) => return Ok(result),
            Err(refused) => refused,
        };
        Ok(match refused {
            Refusal::NotStaged(not_staged) => return Err(not_staged),
            Refusal::CutOff => PartitionResult {
                is_cut_off: true,
                ..PartitionResult::refused(ErrorCode::NotLeaderOrFollower)
            },
            Refusal::Code(error) => PartitionResult::refused(error),
            Refusal::Append(error) => PartitionResult::refused(errors::of_append(&error)),
            Refusal::Records(result) => *result,
            Refusal::Record(error) => {
                let record_errors = match error {
                    RecordError::Invalid { index, reason } => {
                        Some(RecordErrors::one(index, reason))
                    }
                    RecordError::Timestamp { index, .. } => {
                        Some(RecordErrors::one(index, "the timestamp is out of the topic's bounds"))
                    }
                    RecordError::Corrupt(reason) => Some(RecordErrors::one(-1, reason)),
                    _ => None,
                };
                PartitionResult {
                    record_errors: record_errors.map(Box::new),
                    ..PartitionResult::refused(errors::of_record(&error))
                }
            }
        })
    }

    fn stage(
        &self,
        topic: &TopicImage,
        data: &PartitionProduceData<'_>,
        scratch: &mut Vec<u8>,
    ) -> Result<PartitionResult, Refusal> {
        if let Some(error) = self.refused {
            return Err(Refusal::Code(error));
        }
        if topic.internal && !self.may_write_internal {
            return Err(Refusal::Code(ErrorCode::InvalidTopicException));
        }
        let (_, partition) = find_led(topic, data.index, self.node).map_err(Refusal::Code)?;
        match partition.commit_state() {
            CommitState::TooFewInSync if self.needs_isr => {
                return Err(Refusal::Code(ErrorCode::NotEnoughReplicas));
            }
            CommitState::CutOff if self.needs_isr => return Err(Refusal::CutOff),
            _ => {}
        }
        let config = &topic.settings.log;
        let bytes = data.records.bytes().unwrap_or_default();
        if self.version >= ONE_BATCH_FROM {
            let batch = self.only_batch(bytes)?;
            let validated = self.check(&batch, (topic, partition))?;
            return self.keep(partition, config, (&batch, &validated, scratch));
        }
        self.older((topic, partition), (bytes, scratch))
    }

    /// Stages the one batch of v3 and later.
    fn only_batch<'b>(&self, bytes: &'b [u8]) -> Result<Batch<'b>, Refusal> {
        let batch = Batch::parse(bytes).map_err(|error| match error {
            RecordError::Truncated { .. } => {
                RecordError::Invalid { index: -1, reason: "there must be exactly one whole batch" }
            }
            error => error,
        })?;
        if batch.size() != bytes.len() {
            let reason = "there must be exactly one batch";
            return Err(RecordError::Invalid { index: -1, reason }.into());
        }
        if batch.codec() == Codec::Zstd && self.version < ZSTD_FROM {
            return Err(Refusal::Code(ErrorCode::UnsupportedCompressionType));
        }
        Ok(batch)
    }

    /// Stages the records of v0-v2. They may have any magic and are converted to magic 2. All are
    /// checked before the first is staged.
    fn older(
        &self,
        (topic, partition): (&TopicImage, &Arc<Partition>),
        (bytes, scratch): (&[u8], &mut Vec<u8>),
    ) -> Result<PartitionResult, Refusal> {
        let config = &topic.settings.log;
        let limit = usize::try_from(config.segment_bytes).unwrap_or(usize::MAX);
        let mut converted = Vec::new();
        let is_compressed = convert::check_single_compressed(bytes)?;
        if self.budget.is_long_to_convert(bytes, is_compressed) {
            return Err(TAKES_LONG);
        }
        self.may_inflate()?;
        let before = work::done();
        convert::to_v2(bytes, limit, &mut converted)?;
        self.budget.inflated(work::since(before));
        let mut checked = Vec::new();
        for batch in batch::iter(&converted) {
            let batch = batch?;
            let validated = self.check(&batch, (topic, partition))?;
            checked.push((batch, validated));
        }
        // A network thread may stage the first and not the second.
        if checked.len() > 1 && self.budget.is_here() {
            return Err(TAKES_LONG);
        }
        let mut whole: Option<PartitionResult> = None;
        for (batch, validated) in &checked {
            let result = self.keep(partition, config, (batch, validated, scratch))?;
            whole = Some(match whole {
                None => result,
                Some(first) => PartitionResult {
                    stage: result.stage,
                    term: result.term,
                    end: result.end,
                    ..first
                },
            });
        }
        let nothing = RecordError::Invalid { index: -1, reason: "there are no records" };
        whole.ok_or(Refusal::Record(nothing))
    }

    /// Checks a batch against the topic's rules.
    fn check(
        &self,
        batch: &Batch<'_>,
        (topic, partition): (&TopicImage, &Partition),
    ) -> Result<ValidationResult, Refusal> {
        let settings = &topic.settings;
        let config = &settings.log;
        if batch.is_transactional() && !self.has_transaction {
            return Err(Refusal::Code(ErrorCode::TransactionalIdAuthorizationFailed));
        }
        if batch.size() as u64 > config.max_message_bytes {
            return Err(Refusal::Code(ErrorCode::MessageTooLarge));
        }
        let create_time = config.timestamp_type == TimestampType::CreateTime;
        let rules = ValidationRules {
            need_keys: config.compact,
            bounds: create_time.then_some(TimestampBounds {
                now_ms: self.now_ms,
                before_max_ms: config.before_max_ms,
                after_max_ms: config.after_max_ms,
            }),
            trusts_compressed: settings.trusts_compressed,
            inflated_max: Some(self.budget.inflatable()),
        };
        if batch.codec() != Codec::None {
            self.may_inflate()?;
        }
        if !settings.trusts_compressed && self.budget.is_large(batch) {
            return Err(TAKES_LONG);
        }
        let validated =
            batch::check(batch, &rules).map_err(|error| match self.budget.ended(&error) {
                true => TAKES_LONG,
                false => self.refuse(error, (batch, &rules), (&topic.name, partition)),
            })?;
        self.budget.inflated(validated.inflated);
        let is_recompressed = recompressed(batch, config).is_some();
        if is_recompressed && self.budget.is_long_to_recompress(batch, validated.inflated) {
            return Err(TAKES_LONG);
        }
        Ok(validated)
    }

    /// The refusal of a batch with bad records: it names all of them.
    #[cold]
    fn refuse(
        &self,
        error: RecordError,
        (batch, rules): (&Batch<'_>, &ValidationRules),
        (topic, partition): (&str, &Partition),
    ) -> Refusal {
        let is_of_record = match error {
            RecordError::Invalid { index, reason } => index >= 0 && reason == NO_KEY,
            RecordError::Timestamp { index, .. } => index >= 0,
            _ => false,
        };
        if !is_of_record {
            return Refusal::Record(error);
        }
        if batch.codec() != Codec::None && self.budget.is_here() {
            return TAKES_LONG;
        }
        let faults = RecordFaults::of(batch, rules, self.budget.nameable());
        self.budget.named(faults.listed.len());
        let (error, record_errors) = RecordErrors::all(&faults, (topic, partition.name.partition));
        let log_start_offset = partition.log.log_start_offset().0;
        let record_errors = Some(Box::new(record_errors));
        Refusal::Records(Box::new(PartitionResult {
            record_errors,
            log_start_offset,
            ..PartitionResult::refused(error)
        }))
    }

    /// Refuses a batch if the request's batches have used up their inflation budget. Producers then
    /// send smaller requests.
    fn may_inflate(&self) -> Result<(), Refusal> {
        match self.budget.is_used_up() {
            true => Err(Refusal::Code(ErrorCode::MessageTooLarge)),
            false => Ok(()),
        }
    }

    /// Stages a batch. It is recompressed if the topic requires another codec.
    fn keep(
        &self,
        partition: &Arc<Partition>,
        config: &LogConfig,
        (batch, validated, scratch): (&Batch<'_>, &ValidationResult, &mut Vec<u8>),
    ) -> Result<PartitionResult, Refusal> {
        let term = partition.term();
        let appended = match recompressed(batch, config) {
            None => self.stage_in(&partition.log, batch, validated)?,
            Some(codec) => {
                scratch.clear();
                let codec = Codec::from_bits(i16::from(codec))?;
                let limit = usize::try_from(config.segment_bytes).unwrap_or(usize::MAX);
                convert::recompress(batch, codec.into(), limit, scratch)?;
                let recompressed = Batch::parse(scratch)?;
                let appended = self.stage_in(&partition.log, &recompressed, validated)?;
                scratch.clear();
                scratch.shrink_to(KEPT);
                appended
            }
        };
        Ok(PartitionResult {
            partition: Some(Arc::clone(partition)),
            stage: Some(appended.staged),
            error: ErrorCode::None,
            record_errors: None,
            base_offset: appended.base_offset.0,
            log_append_time: appended.log_append_time,
            log_start_offset: appended.log_start_offset.0,
            term,
            end: Offset(appended.last_offset.0 + 1),
            is_cut_off: false,
        })
    }

    /// Stages a batch in a log. A worker does what needs a new segment, or waits.
    fn stage_in(
        &self,
        log: &Log,
        batch: &Batch<'_>,
        validated: &ValidationResult,
    ) -> Result<Appended, Refusal> {
        let origin = AppendOrigin::Client(self.verification);
        let new = NewBatch::new(batch, validated, self.now_ms).from(origin);
        let staged = match self.budget.is_here() {
            true => log.stage_at_once(&new).transpose().ok_or(TAKES_LONG)?,
            false => log.stage(&new),
        };
        staged.map_err(|error| match error {
            AppendError::NotVerified(guard) => {
                let header = batch.header();
                let producer =
                    ProducerIdentity { id: header.producer_id, epoch: header.producer_epoch };
                Refusal::NotStaged(NotStaged::Unverified(UnverifiedBatch { producer, guard }))
            }
            error => Refusal::Append(error),
        })
    }
}

/// The codec with which a batch must be recompressed; `None`: it is stored as it is.
fn recompressed(batch: &Batch<'_>, config: &LogConfig) -> Option<u8> {
    config.compression_type.filter(|codec| *codec != batch.codec() as u8)
}
