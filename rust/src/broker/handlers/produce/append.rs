//! Turns the records that a client sent for one partition into staged batches.
//!
//! Order of checks: as in Kafka. The whole request, the partition and its leader, in-sync replicas,
//!     the format, then the batch.
//! Threads: a network thread, or a worker for long checks. Appends hold the partition's lock.

use std::sync::Arc;

use crate::broker::errors;
use crate::broker::handlers::produce::faults::RecordErrors;
use crate::broker::handlers::produce::parts::Part;
use crate::broker::handlers::produce::share::WorkerShare;
use crate::broker::state::image::TopicImage;
use crate::broker::state::lookup::led;
use crate::broker::state::partition::{CommitState, Partition};
use crate::ids::Offset;
use crate::protocol::ErrorCode;
use crate::protocol::produce::PartitionProduceData;
use crate::record::batch::{self, Batch, TimestampBounds, ValidationResult, ValidationRules};
use crate::record::compression::Codec;
use crate::record::faults::RecordFaults;
use crate::record::walk::NO_KEY;
use crate::record::{RecordError, convert};
use crate::storage::{AppendError, Appended, Log, LogConfig, TimestampType};
use crate::work;

/// The first version that must bring exactly one batch of magic 2.
const ONE_BATCH_FROM: i16 = 3;
/// The first version that may bring zstd.
const ZSTD_FROM: i16 = 7;
/// The largest capacity that the buffer for recompressed batches keeps.
const KEPT: usize = 1 << 20;

/// The parameters of the request that apply to all its partitions.
pub(crate) struct Append {
    pub(crate) node: i32,
    pub(crate) version: i16,
    pub(crate) now_ms: i64,
    /// The whole request is refused with this.
    pub(crate) refused: Option<ErrorCode>,
    /// The acknowledgement is one of all in-sync replicas.
    pub(crate) needs_isr: bool,
    pub(crate) may_write_internal: bool,
    /// What the request may still cost.
    pub(crate) share: WorkerShare,
}

/// Why records were not staged.
enum Refused {
    /// They take too long for a network thread; nothing was staged.
    TakesLong,
    Code(ErrorCode),
    /// The batch is refused.
    Record(RecordError),
    /// Some of its records are refused.
    Records(Box<Part>),
    Append(AppendError),
}

impl From<RecordError> for Refused {
    fn from(error: RecordError) -> Self {
        Self::Record(error)
    }
}

impl From<AppendError> for Refused {
    fn from(error: AppendError) -> Self {
        Self::Append(error)
    }
}

impl Append {
    /// The same, for a worker.
    pub(crate) fn on_a_worker(self) -> Self {
        Self { share: self.share.on_a_worker(), ..self }
    }

    /// Stages the records for one partition of `topic`; `None` where that takes this thread too
    /// long, and nothing was staged.
    pub(crate) fn partition(
        &self,
        topic: &TopicImage,
        data: &PartitionProduceData<'_>,
        scratch: &mut Vec<u8>,
    ) -> Option<Part> {
        let refused = match self.stage(topic, data, scratch) {
            Ok(part) => return Some(part),
            Err(refused) => refused,
        };
        Some(match refused {
            Refused::TakesLong => return None,
            Refused::Code(error) => Part::refused(error),
            Refused::Append(error) => Part::refused(errors::of_append(&error)),
            Refused::Records(part) => *part,
            Refused::Record(error) => {
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
                Part {
                    record_errors: record_errors.map(Box::new),
                    ..Part::refused(errors::of_record(&error))
                }
            }
        })
    }

    fn stage(
        &self,
        topic: &TopicImage,
        data: &PartitionProduceData<'_>,
        scratch: &mut Vec<u8>,
    ) -> Result<Part, Refused> {
        if let Some(error) = self.refused {
            return Err(Refused::Code(error));
        }
        if topic.internal && !self.may_write_internal {
            return Err(Refused::Code(ErrorCode::InvalidTopicException));
        }
        let (_, partition) = led(topic, data.index, self.node).map_err(Refused::Code)?;
        match partition.commit_state() {
            CommitState::TooFewInSync if self.needs_isr => {
                return Err(Refused::Code(ErrorCode::NotEnoughReplicas));
            }
            CommitState::CutOff if self.needs_isr => {
                return Err(Refused::Code(ErrorCode::NotLeaderOrFollower));
            }
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
    fn only_batch<'b>(&self, bytes: &'b [u8]) -> Result<Batch<'b>, Refused> {
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
            return Err(Refused::Code(ErrorCode::UnsupportedCompressionType));
        }
        Ok(batch)
    }

    /// Records of v0-v2: of any magic, converted where they are not of magic 2. All are checked
    /// before the first is staged.
    fn older(
        &self,
        (topic, partition): (&TopicImage, &Arc<Partition>),
        (bytes, scratch): (&[u8], &mut Vec<u8>),
    ) -> Result<Part, Refused> {
        let config = &topic.settings.log;
        let limit = usize::try_from(config.segment_bytes).unwrap_or(usize::MAX);
        let mut converted = Vec::new();
        let is_compressed = convert::check_single_compressed(bytes)?;
        if self.share.is_long_to_convert(bytes, is_compressed) {
            return Err(Refused::TakesLong);
        }
        self.may_inflate()?;
        let before = work::done();
        convert::to_v2(bytes, limit, &mut converted)?;
        self.share.inflated(work::since(before));
        let mut checked = Vec::new();
        for batch in batch::iter(&converted) {
            let batch = batch?;
            let validated = self.check(&batch, (topic, partition))?;
            checked.push((batch, validated));
        }
        // A network thread may stage the first and not the second.
        if checked.len() > 1 && self.share.is_here() {
            return Err(Refused::TakesLong);
        }
        let mut whole: Option<Part> = None;
        for (batch, validated) in &checked {
            let part = self.keep(partition, config, (batch, validated, scratch))?;
            whole = Some(match whole {
                None => part,
                Some(first) => {
                    Part { stage: part.stage, term: part.term, wanted: part.wanted, ..first }
                }
            });
        }
        let nothing = RecordError::Invalid { index: -1, reason: "there are no records" };
        whole.ok_or(Refused::Record(nothing))
    }

    /// Checks a batch against the topic's rules.
    fn check(
        &self,
        batch: &Batch<'_>,
        (topic, partition): (&TopicImage, &Partition),
    ) -> Result<ValidationResult, Refused> {
        let settings = &topic.settings;
        let config = &settings.log;
        if batch.is_transactional() {
            return Err(Refused::Code(ErrorCode::TransactionalIdAuthorizationFailed));
        }
        if batch.size() as u64 > config.max_message_bytes {
            return Err(Refused::Code(ErrorCode::MessageTooLarge));
        }
        let create_time = config.timestamp_type == TimestampType::Create;
        let rules = ValidationRules {
            need_keys: config.compact,
            bounds: create_time.then_some(TimestampBounds {
                now_ms: self.now_ms,
                before_max_ms: config.before_max_ms,
                after_max_ms: config.after_max_ms,
            }),
            trusts_compressed: settings.trusts_compressed,
            inflated_max: Some(self.share.inflatable()),
        };
        if batch.codec() != Codec::None {
            self.may_inflate()?;
        }
        if !settings.trusts_compressed && self.share.is_large(batch) {
            return Err(Refused::TakesLong);
        }
        let validated =
            batch::check(batch, &rules).map_err(|error| match self.share.ended(&error) {
                true => Refused::TakesLong,
                false => self.refuse(error, (batch, &rules), (&topic.name, partition)),
            })?;
        self.share.inflated(validated.inflated);
        let is_recompressed = recompressed(batch, config).is_some();
        if is_recompressed && self.share.is_long_to_recompress(batch, validated.inflated) {
            return Err(Refused::TakesLong);
        }
        Ok(validated)
    }

    /// The answer to a batch that was refused for one of its records: names all of them.
    #[cold]
    fn refuse(
        &self,
        error: RecordError,
        (batch, rules): (&Batch<'_>, &ValidationRules),
        (topic, partition): (&str, &Partition),
    ) -> Refused {
        let is_of_record = match error {
            RecordError::Invalid { index, reason } => index >= 0 && reason == NO_KEY,
            RecordError::Timestamp { index, .. } => index >= 0,
            _ => false,
        };
        if !is_of_record {
            return Refused::Record(error);
        }
        if batch.codec() != Codec::None && self.share.is_here() {
            return Refused::TakesLong;
        }
        let faults = RecordFaults::of(batch, rules, self.share.nameable());
        self.share.named(faults.listed.len());
        let (error, record_errors) = RecordErrors::all(&faults, (topic, partition.name.partition));
        let log_start_offset = partition.log.log_start_offset().0;
        let record_errors = Some(Box::new(record_errors));
        Refused::Records(Box::new(Part { record_errors, log_start_offset, ..Part::refused(error) }))
    }

    /// Refuses what comes when the request's batches have inflated to all that they may; producers
    /// send smaller requests then.
    fn may_inflate(&self) -> Result<(), Refused> {
        match self.share.is_used_up() {
            true => Err(Refused::Code(ErrorCode::MessageTooLarge)),
            false => Ok(()),
        }
    }

    /// Stages a batch, compressed anew where the topic asks for another codec.
    fn keep(
        &self,
        partition: &Arc<Partition>,
        config: &LogConfig,
        (batch, validated, scratch): (&Batch<'_>, &ValidationResult, &mut Vec<u8>),
    ) -> Result<Part, Refused> {
        let term = partition.term();
        let appended = match recompressed(batch, config) {
            None => self.stage_in(&partition.log, batch, validated)?,
            Some(codec) => {
                scratch.clear();
                let codec = Codec::from_bits(i16::from(codec))?;
                let limit = usize::try_from(config.segment_bytes).unwrap_or(usize::MAX);
                convert::recompress(batch, codec.into(), limit, scratch)?;
                let anew = Batch::parse(scratch)?;
                let appended = self.stage_in(&partition.log, &anew, validated)?;
                scratch.clear();
                scratch.shrink_to(KEPT);
                appended
            }
        };
        Ok(Part {
            partition: Some(Arc::clone(partition)),
            stage: Some(appended.staged),
            error: ErrorCode::None,
            record_errors: None,
            base_offset: appended.base_offset.0,
            log_append_time: appended.log_append_time,
            log_start_offset: appended.log_start_offset.0,
            term,
            wanted: Offset(appended.last_offset.0 + 1),
        })
    }

    /// Stages a batch in a log. A worker does what needs a new segment, or waits.
    fn stage_in(
        &self,
        log: &Log,
        batch: &Batch<'_>,
        validated: &ValidationResult,
    ) -> Result<Appended, Refused> {
        match self.share.is_here() {
            true => log.stage_at_once(batch, validated, self.now_ms)?.ok_or(Refused::TakesLong),
            false => Ok(log.stage(batch, validated, self.now_ms)?),
        }
    }
}

/// The codec that a batch is to be compressed with anew.
fn recompressed(batch: &Batch<'_>, config: &LogConfig) -> Option<u8> {
    config.compression_type.filter(|codec| *codec != batch.codec() as u8)
}
