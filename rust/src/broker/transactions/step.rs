//! What an event does to a transactional id. These are Kafka 4's rules.
//!
//! ```text
//! state        InitProducerId     AddPartitions  EndTxn v0-4            EndTxn v5
//! none         new id, Empty      49             49                     49
//! Empty        next epoch, Empty  Ongoing        48                     abort: Prepare; commit: 48
//! Ongoing      PrepareAbort, 51   Ongoing        Prepare...             Prepare..., next epoch
//! Prepare...   51                 51             same: 51; other: 48    51; other result: 48
//! Complete...  next epoch, Empty  Ongoing        same: done; other: 48  retry: as v0-4; abort:
//!                                                                       Prepare; commit: 48
//! ```
//! Codes: 47 is what handlers send old clients for 90. 48 INVALID_TXN_STATE: the transaction ended
//!     otherwise, or there is none. 49 INVALID_PRODUCER_ID_MAPPING: another producer id, or an
//!     unknown transactional id. 50 INVALID_TRANSACTION_TIMEOUT: not positive, or above
//!     `transaction.max.timeout.ms`. 51 CONCURRENT_TRANSACTIONS: markers are still being written.
//!     90 PRODUCER_FENCED: another epoch. 120 TRANSACTION_ABORTABLE: a partition was not added.
//! Retries: EndTxn v5 bumps the epoch, so a repeated one comes with the epoch before. If the bump
//!     replaced the producer id, it comes with the id before and its last epoch.
//! Fencing: an open transaction of another producer, or one whose time is up, is aborted under the
//!     next epoch. No client gets that epoch from InitProducerId: the next call bumps it again.

use crate::broker::transactions::transaction::{
    ClientTransactionVersion, LAST_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerIdentity,
    Transaction, TransactionState,
};
use crate::ids::TopicPartition;
use crate::protocol::ErrorCode;

/// What happens to a transactional id.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// A producer begins, or goes on after an error (KIP-360).
    InitProducerId {
        /// How long its transactions may be open.
        timeout_ms: i32,
        /// The producer that it was, if it goes on.
        expected: Option<ProducerIdentity>,
        /// A fresh producer id, in the second step.
        new_id: Option<i64>,
    },
    /// The producer adds partitions to its transaction.
    AddPartitions {
        /// The producer.
        producer: ProducerIdentity,
        /// The partitions.
        partitions: &'a [TopicPartition],
    },
    /// A leader asks whether partitions belong to the open transaction.
    Verify {
        /// The producer.
        producer: ProducerIdentity,
        /// The partitions.
        partitions: &'a [TopicPartition],
    },
    /// The producer ends its transaction.
    EndTxn {
        /// The producer.
        producer: ProducerIdentity,
        /// Whether it commits.
        commit: bool,
        /// The protocol.
        version: ClientTransactionVersion,
        /// A fresh producer id, in the second step.
        new_id: Option<i64>,
    },
    /// The time of an open transaction may be up.
    TimedOut,
    /// All partitions have the marker.
    MarkersWritten,
    /// The id may have been silent for too long.
    Expired,
}

/// The time and the limits that hold.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Milliseconds since 1970.
    pub now_ms: i64,
    /// `transaction.max.timeout.ms`.
    pub max_timeout_ms: i32,
    /// `transactional.id.expiration.ms`.
    pub expiration_ms: i64,
}

/// What follows from an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The transactional id afterwards.
    pub next: Next,
    /// The answer.
    pub outcome: Outcome,
}

/// A transactional id after an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// As before.
    Unchanged,
    /// Append this, then apply it.
    Changed(Transaction),
    /// Append a tombstone, then remove it.
    Removed,
}

/// The answer to an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is done; the producer as it is now.
    Done(ProducerIdentity),
    /// Take a fresh producer id, and step again with it.
    NeedsProducerId,
    /// An open transaction is being aborted first: the client gets CONCURRENT_TRANSACTIONS.
    EndsFirst,
    /// Write markers once this is committed. The client gets this producer.
    WriteMarkers {
        /// Whether the markers commit.
        commit: bool,
        /// The producer that the client goes on with.
        producer: ProducerIdentity,
    },
    /// A code for each partition.
    Verified(Vec<ErrorCode>),
}

/// A step, or the code of a refusal, after which nothing has changed.
pub type StepResult = Result<Step, ErrorCode>;

/// Decides what an event does to a transactional id; `None`: it is not known.
pub fn step(transaction: Option<&Transaction>, event: &Event<'_>, at: Moment) -> StepResult {
    match *event {
        Event::InitProducerId { timeout_ms, expected, new_id } => {
            if timeout_ms <= 0 || timeout_ms > at.max_timeout_ms {
                return Err(ErrorCode::InvalidTransactionTimeout);
            }
            match transaction {
                None => Ok(begin(timeout_ms, new_id, at)),
                Some(old) => init(old, &InitRequest { timeout_ms, expected, new_id }, at),
            }
        }
        Event::AddPartitions { producer, partitions } => add(transaction, producer, partitions, at),
        Event::Verify { producer, partitions } => verify(transaction, producer, partitions),
        Event::EndTxn { producer, commit, version, new_id } => {
            let old = transaction.ok_or(ErrorCode::InvalidProducerIdMapping)?;
            match version {
                ClientTransactionVersion::V0 => end_v0(old, producer, commit, at),
                ClientTransactionVersion::V2 => end_v2(old, (producer, new_id), commit, at),
            }
        }
        Event::TimedOut => Ok(transaction.map_or_else(nothing, |old| time_out(old, at))),
        Event::MarkersWritten => Ok(transaction.map_or_else(nothing, |old| complete(old, at))),
        Event::Expired => Ok(transaction.map_or_else(nothing, |old| expire(old, at))),
    }
}

/// An InitProducerId of a known transactional id.
struct InitRequest {
    timeout_ms: i32,
    expected: Option<ProducerIdentity>,
    new_id: Option<i64>,
}

fn nothing() -> Step {
    unchanged(Outcome::Done(ProducerIdentity::NONE))
}

fn unchanged(outcome: Outcome) -> Step {
    Step { next: Next::Unchanged, outcome }
}

fn changed(transaction: Transaction, outcome: Outcome) -> Step {
    Step { next: Next::Changed(transaction), outcome }
}

impl Transaction {
    /// A copy that is changed now.
    fn at(&self, at: Moment) -> Self {
        Self { previous_producer_id: NO_PRODUCER_ID, last_update_ms: at.now_ms, ..self.clone() }
    }

    /// A copy without a transaction.
    fn emptied(&self, timeout_ms: i32, at: Moment) -> Self {
        Self {
            state: TransactionState::Empty,
            partitions: Default::default(),
            timeout_ms,
            start_ms: -1,
            next_producer_id: NO_PRODUCER_ID,
            ..self.at(at)
        }
    }

    /// An open transaction, aborted under an epoch that its producer does not have. That it is not
    /// of V2 tells this epoch from one that an EndTxn v5 gave, also after a load: see [`end_v2`].
    fn fenced(&self, at: Moment) -> Self {
        let epoch = self.producer.epoch.saturating_add(1);
        Self {
            producer: ProducerIdentity { epoch, ..self.producer },
            last_epoch: NO_PRODUCER_EPOCH,
            next_producer_id: NO_PRODUCER_ID,
            state: TransactionState::PrepareAbort,
            client_version: ClientTransactionVersion::V0,
            ..self.at(at)
        }
    }

    /// Whether a producer is the one that follows when the markers are written.
    fn is_next(&self, producer: ProducerIdentity) -> bool {
        self.state.marker().is_some()
            && self.next_producer_id != NO_PRODUCER_ID
            && self.next_producer() == producer
    }

    /// Errors: this is not the present producer, or markers are still being written.
    fn check_producer(&self, producer: ProducerIdentity) -> Result<(), ErrorCode> {
        if self.is_next(producer) {
            Err(ErrorCode::ConcurrentTransactions)
        } else if self.producer.id != producer.id {
            Err(ErrorCode::InvalidProducerIdMapping)
        } else if self.producer.epoch != producer.epoch {
            Err(ErrorCode::ProducerFenced)
        } else if self.state.marker().is_some() {
            Err(ErrorCode::ConcurrentTransactions)
        } else {
            Ok(())
        }
    }
}

/// The first InitProducerId of a transactional id.
fn begin(timeout_ms: i32, new_id: Option<i64>, at: Moment) -> Step {
    let Some(id) = new_id else { return unchanged(Outcome::NeedsProducerId) };
    let producer = ProducerIdentity { id, epoch: 0 };
    let transaction = Transaction {
        producer,
        previous_producer_id: NO_PRODUCER_ID,
        next_producer_id: NO_PRODUCER_ID,
        last_epoch: NO_PRODUCER_EPOCH,
        timeout_ms,
        state: TransactionState::Empty,
        partitions: Default::default(),
        start_ms: -1,
        last_update_ms: at.now_ms,
        client_version: ClientTransactionVersion::V0,
    };
    changed(transaction, Outcome::Done(producer))
}

fn init(old: &Transaction, request: &InitRequest, at: Moment) -> StepResult {
    // A producer that lost the answer to the call that replaced its exhausted id is still known.
    let is_known = |expected: ProducerIdentity| {
        expected.id == old.producer.id
            || (expected.id == old.previous_producer_id && expected.is_exhausted())
    };
    if !request.expected.is_none_or(is_known) {
        return Err(ErrorCode::ProducerFenced);
    }
    match old.state {
        TransactionState::Ongoing => Ok(changed(old.fenced(at), Outcome::EndsFirst)),
        state if state.is_settled() => renew(old, request, at),
        _ => Err(ErrorCode::ConcurrentTransactions),
    }
}

/// The next epoch or, after the last one, the next id.
fn renew(old: &Transaction, request: &InitRequest, at: Moment) -> StepResult {
    let present = old.producer;
    let next = old.emptied(request.timeout_ms, at);
    let expected_epoch = request.expected.map(|expected| expected.epoch);
    let next = match expected_epoch {
        Some(epoch) if epoch != present.epoch && epoch == old.last_epoch => {
            // It repeats a call that was done.
            Transaction { previous_producer_id: old.previous_producer_id, ..next }
        }
        Some(epoch) if epoch != present.epoch => return Err(ErrorCode::ProducerFenced),
        _ => {
            let last_epoch = expected_epoch.unwrap_or(NO_PRODUCER_EPOCH);
            if present.is_exhausted() {
                let Some(id) = request.new_id else {
                    return Ok(unchanged(Outcome::NeedsProducerId));
                };
                let producer = ProducerIdentity { id, epoch: 0 };
                Transaction { producer, previous_producer_id: present.id, last_epoch, ..next }
            } else {
                let producer = ProducerIdentity { epoch: present.epoch + 1, ..present };
                Transaction { producer, last_epoch, ..next }
            }
        }
    };
    let producer = next.producer;
    Ok(changed(next, Outcome::Done(producer)))
}

fn add(
    transaction: Option<&Transaction>,
    producer: ProducerIdentity,
    partitions: &[TopicPartition],
    at: Moment,
) -> StepResult {
    let old = transaction.ok_or(ErrorCode::InvalidProducerIdMapping)?;
    old.check_producer(producer)?;
    let is_ongoing = old.state == TransactionState::Ongoing;
    if is_ongoing && partitions.iter().all(|partition| old.partitions.contains(partition)) {
        return Ok(unchanged(Outcome::Done(producer)));
    }
    let mut next = old.at(at);
    if !is_ongoing {
        next.state = TransactionState::Ongoing;
        next.start_ms = at.now_ms;
    }
    next.partitions.extend(partitions.iter().cloned());
    Ok(changed(next, Outcome::Done(producer)))
}

fn verify(
    transaction: Option<&Transaction>,
    producer: ProducerIdentity,
    partitions: &[TopicPartition],
) -> StepResult {
    let old = transaction.ok_or(ErrorCode::InvalidProducerIdMapping)?;
    old.check_producer(producer)?;
    let code = |partition: &TopicPartition| match old.partitions.contains(partition) {
        true => ErrorCode::None,
        false => ErrorCode::TransactionAbortable,
    };
    Ok(unchanged(Outcome::Verified(partitions.iter().map(code).collect())))
}

/// What an EndTxn means if the transaction has ended already.
fn ended(state: TransactionState, commit: bool) -> Result<(), ErrorCode> {
    let (ended_by_commit, is_complete) = match state {
        TransactionState::CompleteCommit => (true, true),
        TransactionState::CompleteAbort => (false, true),
        TransactionState::PrepareCommit => (true, false),
        TransactionState::PrepareAbort | TransactionState::PrepareEpochFence => (false, false),
        _ => return Err(ErrorCode::InvalidTxnState),
    };
    match (ended_by_commit == commit, is_complete) {
        (false, _) => Err(ErrorCode::InvalidTxnState),
        (true, false) => Err(ErrorCode::ConcurrentTransactions),
        (true, true) => Ok(()),
    }
}

fn prepared(commit: bool) -> TransactionState {
    if commit { TransactionState::PrepareCommit } else { TransactionState::PrepareAbort }
}

fn end_v0(old: &Transaction, producer: ProducerIdentity, commit: bool, at: Moment) -> StepResult {
    if old.producer.id != producer.id {
        return Err(ErrorCode::InvalidProducerIdMapping);
    }
    if old.producer.epoch != producer.epoch {
        return Err(ErrorCode::ProducerFenced);
    }
    if old.state != TransactionState::Ongoing {
        ended(old.state, commit)?;
        return Ok(unchanged(Outcome::Done(producer)));
    }
    let next = Transaction {
        state: prepared(commit),
        next_producer_id: NO_PRODUCER_ID,
        client_version: ClientTransactionVersion::V0,
        ..old.at(at)
    };
    Ok(changed(next, Outcome::WriteMarkers { commit, producer }))
}

fn end_v2(
    old: &Transaction,
    (producer, new_id): (ProducerIdentity, Option<i64>),
    commit: bool,
    at: Moment,
) -> StepResult {
    let present = old.producer;
    // The answer to the call that bumped the epoch, or replaced the id, was lost.
    let is_before_bump = producer.id == present.id
        && old.client_version == ClientTransactionVersion::V2
        && producer.epoch != i16::MAX
        && present.epoch == producer.epoch + 1;
    let is_before_replacement = producer.id == old.previous_producer_id
        && producer.epoch == LAST_EPOCH
        && present.epoch == 0;
    if old.is_next(producer) {
        return Err(ErrorCode::ConcurrentTransactions);
    }
    if present.id != producer.id && !is_before_replacement {
        return Err(ErrorCode::InvalidProducerIdMapping);
    }
    let is_retry = is_before_bump || is_before_replacement;
    let is_present = producer == present;
    match old.state {
        TransactionState::Ongoing | TransactionState::Empty | TransactionState::Dead => {
            if !is_present {
                return Err(ErrorCode::ProducerFenced);
            }
            if old.state != TransactionState::Ongoing && commit {
                return Err(ErrorCode::InvalidTxnState);
            }
        }
        // The end of the next transaction, to which nothing was added.
        state
            if state.marker().is_some()
                && is_present
                && old.client_version == ClientTransactionVersion::V2
                && present.epoch != i16::MAX =>
        {
            return Err(ErrorCode::ConcurrentTransactions);
        }
        state if state.marker().is_some() => {
            // The epoch 32767 only fences: no client continues with it.
            if !is_before_bump || (present.epoch == i16::MAX && old.next_producer_id < 0) {
                return Err(ErrorCode::ProducerFenced);
            }
            return Err(ended(state, commit).err().unwrap_or(ErrorCode::InvalidTxnState));
        }
        state if is_retry && present.epoch != i16::MAX => {
            ended(state, commit)?;
            return Ok(unchanged(Outcome::Done(present)));
        }
        _ if !is_present => return Err(ErrorCode::ProducerFenced),
        _ if commit => return Err(ErrorCode::InvalidTxnState),
        _ => {}
    }
    Ok(bump(old, (commit, new_id), at))
}

/// Ends a transaction, or one without partitions, and bumps the epoch.
fn bump(old: &Transaction, (commit, new_id): (bool, Option<i64>), at: Moment) -> Step {
    let present = old.producer;
    let next_producer_id = match (present.is_exhausted(), new_id) {
        (false, _) => NO_PRODUCER_ID,
        (true, Some(id)) => id,
        (true, None) => return unchanged(Outcome::NeedsProducerId),
    };
    let is_ongoing = old.state == TransactionState::Ongoing;
    let next = Transaction {
        producer: ProducerIdentity { epoch: present.epoch.saturating_add(1), ..present },
        next_producer_id,
        last_epoch: present.epoch,
        state: prepared(commit),
        start_ms: if is_ongoing { old.start_ms } else { at.now_ms },
        client_version: ClientTransactionVersion::V2,
        ..old.at(at)
    };
    let producer = next.next_producer();
    changed(next, Outcome::WriteMarkers { commit, producer })
}

fn time_out(old: &Transaction, at: Moment) -> Step {
    let is_up = old.start_ms.saturating_add(old.timeout_ms.into()) < at.now_ms;
    if old.state != TransactionState::Ongoing || !is_up {
        return unchanged(Outcome::Done(old.producer));
    }
    let next = old.fenced(at);
    let producer = next.producer;
    changed(next, Outcome::WriteMarkers { commit: false, producer })
}

fn complete(old: &Transaction, at: Moment) -> Step {
    let Some(commit) = old.state.marker() else {
        return unchanged(Outcome::Done(old.producer));
    };
    let state =
        if commit { TransactionState::CompleteCommit } else { TransactionState::CompleteAbort };
    let producer = old.next_producer();
    let is_replaced = producer.id != old.producer.id;
    let next = Transaction {
        producer,
        previous_producer_id: if is_replaced { old.producer.id } else { NO_PRODUCER_ID },
        next_producer_id: NO_PRODUCER_ID,
        state,
        partitions: Default::default(),
        ..old.at(at)
    };
    changed(next, Outcome::Done(producer))
}

fn expire(old: &Transaction, at: Moment) -> Step {
    let is_due = old.last_update_ms.saturating_add(at.expiration_ms) <= at.now_ms;
    let next = if old.state.is_settled() && is_due { Next::Removed } else { Next::Unchanged };
    Step { next, outcome: Outcome::Done(old.producer) }
}
