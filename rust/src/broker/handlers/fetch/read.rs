//! Reads the partitions of a Fetch: selects the ranges that each one returns within the limits.
//!
//! No bytes are read here: a partition's records are file ranges. Conversion for old versions comes
//! later, when the reply is written. At most as many bytes are selected as one reply may convert.
//! Invariant: the selected bytes are at most `max_bytes`, except for the first batch.

use crate::broker::errors;
use crate::broker::handlers::fetch::convert;
use crate::broker::handlers::fetch::reader::{FetchReader, FollowerReport, ReaderRole};
use crate::broker::state::fetch_sessions::{CachedPartition, FetchContext};
use crate::broker::state::lookup::check_leader_epoch;
use crate::broker::state::partition::Partition;
use crate::ids::{Epoch, Offset};
use crate::protocol::ErrorCode;
use crate::protocol::fetch::FetchRequest;
use crate::storage::files::FileRange;
use crate::storage::{AbortedTxn, Log, LogReadRequest, LogSlice, ReadError};

/// The most bytes of a reply that come from memory. The rest are file ranges.
const HELD_BYTES: usize = 1 << 20;

/// How often a follower's fetches report the partitions that they do not read. A session may have
/// thousands of them, and a busy one fetches thousands of times a second.
const REPORT_MS: i64 = 100;

/// How much a worker reads at once to have it in the page cache.
const WARM_PIECE: usize = 128 << 10;

/// The parameters of the request that apply to all its partitions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadRules {
    version: i16,
    max_bytes: usize,
    read_committed: bool,
    pub(crate) reader: FetchReader,
    /// The reader is a follower with a session. The reply leaves as soon as the high watermark or
    /// the log start has moved, so that the follower's own values lag little.
    pub(crate) hurries: bool,
    /// The reader is a follower, and throttled leaders have used up their quota for now (KIP-73).
    pub(crate) is_over_quota: bool,
    /// When the request arrived, in monotonic milliseconds.
    pub(crate) arrived_ms: i64,
    /// The format of old versions.
    pub(crate) magic: Option<i8>,
}

/// The read result of one partition.
#[derive(Debug)]
pub(crate) struct ReadResult {
    pub(crate) number: u32,
    pub(crate) error: ErrorCode,
    pub(crate) high_watermark: i64,
    pub(crate) last_stable_offset: i64,
    pub(crate) log_start_offset: i64,
    pub(crate) aborted: Option<Vec<AbortedTxn>>,
    pub(crate) diverging: Option<(Epoch, Offset)>,
    /// The replica that the consumer should read instead.
    pub(crate) preferred: Option<i32>,
    pub(crate) slice: LogSlice,
    /// The read request, if the range is to be converted.
    pub(crate) read: Option<LogReadRequest>,
    /// Converted records for old versions, instead of the range.
    pub(crate) converted: Option<Vec<u8>>,
    /// There are records, but the first batch did not fit beside those of other partitions, or a
    /// quota withholds them.
    is_cut: bool,
    /// Its bytes count for the quota of throttled leaders.
    is_throttled: bool,
}

/// The read results of all partitions.
#[derive(Debug, Default)]
pub(crate) struct ReadResults {
    pub(crate) partitions: Vec<ReadResult>,
    bytes: usize,
    urgent: bool,
    /// Some bytes are not in the page cache, and there is no other result.
    pub(super) is_cold: bool,
}

impl ReadRules {
    pub(crate) fn of(request: &FetchRequest<'_>, version: i16, most: i32) -> Self {
        let asked = if version >= 3 { request.max_bytes.min(most) } else { most };
        Self {
            version,
            max_bytes: usize::try_from(asked).unwrap_or(0),
            read_committed: request.isolation_level == 1,
            reader: FetchReader::of(request),
            hurries: false,
            is_over_quota: false,
            arrived_ms: 0,
            magic: match version {
                0 | 1 => Some(0),
                2 | 3 => Some(1),
                _ => None,
            },
        }
    }

    /// Whether a quota withholds the partition's records: it is throttled, and the reader is out of
    /// sync.
    fn hold_back(&self, partition: &Partition) -> bool {
        let FetchReader::Follower { replica, .. } = self.reader else { return false };
        self.is_over_quota && partition.is_leader_throttled() && !partition.has_in_sync(replica)
    }

    /// The same rules with at most `max_bytes`.
    pub(crate) fn at_most(self, max_bytes: usize) -> Self {
        Self { max_bytes: self.max_bytes.min(max_bytes), ..self }
    }
}

impl ReadResults {
    /// Whether this is enough to reply before the deadline.
    pub(crate) fn is_enough(&self, min_bytes: usize) -> bool {
        self.urgent || self.bytes >= min_bytes
    }
}

/// The bytes of throttled partitions.
pub(crate) fn throttled_bytes(found: &[ReadResult]) -> usize {
    found.iter().filter(|found| found.is_throttled).map(ReadResult::bytes).sum()
}

/// Reads the active partitions, or all. Those with nothing new become inactive.
pub(crate) fn read_partitions(
    context: &mut FetchContext,
    (rules, all): (&ReadRules, bool),
    mut role: ReaderRole<'_, '_>,
) -> ReadResults {
    if let (ReaderRole::Reports(report), false) = (&mut role, all)
        && rules.arrived_ms >= context.reported_ms + REPORT_MS
    {
        context.reported_ms = rules.arrived_ms;
        report_inactive(context, report);
    }
    let mut numbers = if all {
        (0..u32::try_from(context.entries.len()).unwrap_or(u32::MAX)).collect()
    } else {
        std::mem::take(&mut context.active)
    };
    if !all {
        numbers.sort_unstable();
        // A number that was released and assigned again is in the list twice.
        numbers.dedup();
        let turn = numbers.partition_point(|number| *number < context.next);
        numbers.rotate_left(turn);
    }
    let mut results =
        ReadResults { partitions: Vec::with_capacity(numbers.len()), ..ReadResults::default() };
    let mut budget = ReplyBudget {
        left: rules.max_bytes,
        limit: convert::LIMIT,
        held: HELD_BYTES,
        first: true,
        is_cold: false,
    };
    let mut still_active = Vec::with_capacity(numbers.len());
    for number in numbers.iter().copied() {
        let Some(entry) = context.entry(number) else { continue };
        let found = result_of(number, entry, (rules, &mut budget, &mut role));
        if budget.is_cold {
            // All active partitions stay active: they are read again.
            context.set_active(numbers);
            return ReadResults { is_cold: true, ..ReadResults::default() };
        }
        let bytes = found.bytes();
        results.bytes += bytes;
        let is_turned_away = found.error != ErrorCode::None || found.is_turned_away();
        results.urgent |= is_turned_away || (rules.hurries && found.has_new_marks(entry));
        let is_changed = bytes > 0 || is_turned_away || found.has_new_marks(entry);
        let exhausted = !budget.first && (budget.left == 0 || budget.limit == 0);
        entry.is_active = is_changed || exhausted || found.is_cut;
        if entry.is_active {
            still_active.push(number);
        }
        if bytes > 0 {
            context.next = number + 1;
        }
        if all || is_changed {
            results.partitions.push(found);
        }
    }
    context.active = still_active;
    results
}

/// Reports a follower's progress to the partitions that are not read, because the follower has all
/// of their records.
fn report_inactive(context: &FetchContext, report: &mut FollowerReport<'_, '_>) {
    for entry in context.entries.iter().flatten().filter(|entry| !entry.is_active) {
        let Ok((_, epoch)) = &entry.local else { continue };
        if check_leader_epoch(entry.request.current_leader_epoch, *epoch).is_ok() {
            // A partition that refuses has changed its role; the next image makes it active.
            let _ = report.report(entry);
        }
    }
}

/// Whether all ranges are in the page cache.
pub(super) fn is_cached(found: &[ReadResult]) -> bool {
    found.iter().flat_map(|found| &found.slice.ranges).all(FileRange::is_cached)
}

/// Reads the ranges into the page cache, and the bytes that the next Fetch will read.
pub(super) fn warm(found: &[ReadResult]) {
    let mut piece = vec![0; WARM_PIECE];
    for range in found.iter().flat_map(|found| &found.slice.ranges) {
        let range = FileRange { len: range.len.saturating_add(WARM_PIECE), ..range.clone() };
        if let Err(error) = range.warm(&mut piece) {
            // The thread that sends the bytes gets the error again.
            tracing::debug!("cannot read ahead: {error}");
        }
    }
}

/// Whether any result has records or an error.
pub(crate) fn is_something(found: &[ReadResult]) -> bool {
    found.iter().any(|found| found.error != ErrorCode::None || found.bytes() > 0)
}

/// The bytes that may still be added.
struct ReplyBudget {
    left: usize,
    /// Stored bytes that may still be converted.
    limit: usize,
    /// Bytes that may still come from memory.
    held: usize,
    /// No partition has returned records yet.
    first: bool,
    /// A read would have waited for the disk.
    is_cold: bool,
}

impl ReplyBudget {
    /// Subtracts the bytes of a partition's result.
    fn spend(&mut self, found: &ReadResult) {
        let bytes = found.bytes();
        if found.slice.held.is_some() {
            self.held = self.held.saturating_sub(bytes);
        }
        if found.read.is_some() {
            self.limit = self.limit.saturating_sub(bytes);
        }
        self.first &= bytes == 0;
        self.left = self.left.saturating_sub(bytes);
    }
}

fn result_of(
    number: u32,
    entry: &CachedPartition,
    reading: (&ReadRules, &mut ReplyBudget, &mut ReaderRole<'_, '_>),
) -> ReadResult {
    let mut found = ReadResult::empty(number);
    if let Err(error) = read_partition(&mut found, entry, reading) {
        found = ReadResult::failed(number, error);
    }
    found
}

fn read_partition(
    found: &mut ReadResult,
    entry: &CachedPartition,
    (rules, budget, role): (&ReadRules, &mut ReplyBudget, &mut ReaderRole<'_, '_>),
) -> Result<(), ErrorCode> {
    let (partition, epoch) = match &entry.local {
        Ok((partition, epoch)) => (partition, *epoch),
        Err(error) => return Err(*error),
    };
    let asked = &entry.request;
    check_leader_epoch(asked.current_leader_epoch, epoch)?;
    if entry.zstd && rules.version < 10 {
        return Err(ErrorCode::UnsupportedCompressionType);
    }
    let log = &*partition.log;
    if let ReaderRole::Chooses(choice) = role {
        found.preferred = choice.preferred(partition, Offset(asked.fetch_offset));
    }
    if found.preferred.is_none() {
        found.diverging = diverging(log, asked.last_fetched_epoch, asked.fetch_offset)?;
    }
    if found.is_turned_away() {
        found.marks(log);
        return Ok(());
    }
    if let ReaderRole::Reports(report) = role {
        report.report(entry)?;
    }
    // The marks are read before the log, so that they are never ahead of the records.
    found.marks(log);
    let upper = match rules.reader.reads_to_log_end() {
        true => log.log_end_offset().0,
        false if rules.read_committed => found.last_stable_offset,
        false => found.high_watermark,
    };
    if rules.hold_back(partition) {
        found.is_cut = asked.fetch_offset < upper;
        return Ok(());
    }
    found.is_throttled = rules.reader.is_follower() && partition.is_leader_throttled();
    let mut most = usize::try_from(asked.max_bytes).unwrap_or(0).min(budget.left);
    if rules.magic.is_some() {
        most = most.min(budget.limit);
    }
    let (offset, upper) = (Offset(asked.fetch_offset), Offset(upper));
    let read = LogReadRequest { offset, max_bytes: most, upper, min_one: budget.first };
    let slice = if budget.held == 0 { log.read(read) } else { log.read_recent(read) };
    let slice = slice.map_err(|error| {
        budget.is_cold |= matches!(&error, ReadError::Storage(error) if error.would_wait());
        refusal(&error, partition)
    })?;
    if rules.read_committed && rules.version >= 4 {
        let aborted = if slice.size > 0 { log.aborted(offset, upper) } else { Ok(vec![]) };
        found.aborted = Some(aborted.map_err(|error| {
            budget.is_cold |= error.would_wait();
            errors::of_storage(&error)
        })?);
    }
    // No reader can use a first batch that is cut.
    found.is_cut = (slice.size as u64) < slice.first_size;
    if found.is_cut {
        return Ok(());
    }
    found.slice = slice;
    found.read = rules.magic.map(|_| read);
    budget.spend(found);
    Ok(())
}

/// The error code of a refused read. A follower may receive the records at the offset soon.
fn refusal(error: &ReadError, partition: &Partition) -> ErrorCode {
    match error {
        ReadError::OutOfRange { offset, log_end, .. }
            if offset > log_end && partition.may_get(Offset(*offset)) =>
        {
            ErrorCode::OffsetNotAvailable
        }
        error => errors::of_read(error),
    }
}

/// Where the log diverges from the reader's (KIP-595); `None` if it does not.
fn diverging(
    log: &Log,
    last_epoch: i32,
    fetch_offset: i64,
) -> Result<Option<(Epoch, Offset)>, ErrorCode> {
    if last_epoch < 0 {
        return Ok(None);
    }
    let (epoch, end) = log.end_offset_for_epoch(Epoch(last_epoch));
    if epoch == Epoch::NONE || end == Offset::NONE {
        return Err(ErrorCode::OffsetOutOfRange);
    }
    Ok((epoch.0 < last_epoch || end.0 < fetch_offset).then_some((epoch, end)))
}

impl ReadResult {
    /// The partition cannot be read.
    pub(crate) fn failed(number: u32, error: ErrorCode) -> Self {
        Self { error, ..Self::empty(number) }
    }

    fn empty(number: u32) -> Self {
        Self {
            number,
            error: ErrorCode::None,
            high_watermark: -1,
            last_stable_offset: -1,
            log_start_offset: -1,
            aborted: None,
            diverging: None,
            preferred: None,
            slice: LogSlice::default(),
            read: None,
            converted: None,
            is_cut: false,
            is_throttled: false,
        }
    }

    fn marks(&mut self, log: &Log) {
        self.log_start_offset = log.log_start_offset().0;
        self.last_stable_offset = log.last_stable_offset().0;
        self.high_watermark = log.high_watermark().0;
    }

    /// Whether the reader must use another replica or another offset.
    fn is_turned_away(&self) -> bool {
        self.preferred.is_some() || self.diverging.is_some()
    }

    /// Whether the marks differ from those that the reader was last sent.
    fn has_new_marks(&self, entry: &CachedPartition) -> bool {
        self.high_watermark != entry.sent_high_watermark
            || self.log_start_offset != entry.sent_log_start
    }

    /// Bytes of records.
    pub(crate) fn bytes(&self) -> usize {
        self.converted.as_ref().map_or(self.slice.size, Vec::len)
    }
}
