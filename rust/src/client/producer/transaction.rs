//! The transaction of a producer with a `transactional.id` (KIP-98, KIP-360, KIP-447, KIP-890).
//!
//! ```text
//! Uninitialized --init--> Ready --begin--> Open --prepare(commit)--> Committing --end--> Ready
//! Open, Abortable --prepare(abort)--> Aborting --end--> Ready
//! Open, Committing --a batch or a request failed--> Abortable      any --fenced, refused--> Fatal
//! ```
//! The cluster chooses the version. With version 2 a Produce request adds its partitions, and each
//! end returns the epoch of the next transaction. Before that, the coordinator is told of each
//! partition before its first batch, and the epoch stays. After an abort that left a gap in the
//! sequence numbers, the producer asks for a new epoch (KIP-360).
//! Invariant: no batch of a transaction is sent in the states Ready, Abortable, Aborting and Fatal.
//! Not promised: an end that got no answer in time may or may not have happened. The state stays
//!     Committing or Aborting, and the same end can be requested again.

use std::collections::HashSet;
use std::time::Duration;

use super::Producer;
use super::batches::ProducerConfig;
use super::coordinator::{CoordinatorRequest, CoordinatorType, Coordinators};
use super::written::WrittenRecords;
use crate::client::connection::newest;
use crate::client::metadata::PartitionKey;
use crate::client::options::{ClientOptions, Wait};
use crate::client::{Error, Result};
use crate::protocol::end_txn::{self, EndTxnRequest, EndTxnResponse};
use crate::protocol::init_producer_id::{self, InitProducerIdRequest, InitProducerIdResponse};
use crate::wire::Writer;

const INVALID_PRODUCER_EPOCH: i16 = 47;
const INVALID_TXN_STATE: i16 = 48;
const INVALID_PRODUCER_ID_MAPPING: i16 = 49;
const UNKNOWN_PRODUCER_ID: i16 = 59;
const PRODUCER_FENCED: i16 = 90;
const TRANSACTION_ABORTABLE: i16 = 120;

/// The state of a transaction (see the module).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TransactionState {
    /// The transactional id has not been claimed yet.
    Uninitialized,
    /// No transaction is open.
    Ready,
    /// Records may be added.
    Open,
    /// The remaining records are sent, then the coordinator is asked to commit.
    Committing,
    /// Nothing more is sent. The coordinator is asked to abort.
    Aborting,
    /// It can only be aborted, because of this.
    Abortable(Error),
    /// This producer cannot have transactions any more, because of this.
    Fatal(Error),
}

/// What a producer knows of its transactions.
pub(super) struct TransactionManager {
    pub(super) id: String,
    timeout: Duration,
    pub(super) coordinators: Coordinators,
    pub(super) state: TransactionState,
    /// Whether the transaction has version 2.
    pub(super) is_v2: bool,
    /// The partitions that the coordinator knows of; unused with version 2.
    pub(super) partitions: HashSet<PartitionKey>,
    /// The groups that the coordinator knows of; unused with version 2.
    pub(super) groups: HashSet<String>,
    /// Where its acknowledged records are.
    pub(super) written: WrittenRecords,
    /// The coordinator may have this transaction, so it has to end it.
    pub(super) started: bool,
    /// Sequence numbers are missing or unsure: the next transaction needs a new epoch.
    pub(super) needs_epoch: bool,
}

impl TransactionManager {
    /// The transactions of `transactional.id`, if the configuration has one.
    pub(super) fn of(options: &ClientOptions, config: &ProducerConfig) -> Option<Self> {
        Some(Self {
            id: config.transactional_id.clone()?,
            timeout: config.transaction_timeout,
            coordinators: Coordinators::new(options.clone()),
            state: TransactionState::Uninitialized,
            is_v2: false,
            partitions: HashSet::new(),
            groups: HashSet::new(),
            written: WrittenRecords::default(),
            started: false,
            needs_epoch: false,
        })
    }

    /// The newest version of Produce: before version 2, one that does not add partitions.
    pub(super) fn produce_version(&self) -> i16 {
        if self.is_v2 { newest(crate::protocol::produce::KEY) } else { 11 }
    }

    /// Why records cannot be added now.
    pub(super) fn refusal(&self) -> Option<Error> {
        match &self.state {
            TransactionState::Open => None,
            TransactionState::Uninitialized | TransactionState::Ready => Some(Error::Invalid(
                "no transaction is open: a producer with a transactional.id writes in transactions"
                    .to_owned(),
            )),
            TransactionState::Committing | TransactionState::Aborting => {
                Some(Error::Invalid("the transaction is being ended".to_owned()))
            }
            TransactionState::Abortable(error) | TransactionState::Fatal(error) => {
                Some(error.clone())
            }
        }
    }

    /// Records the failure of a batch or of a request. Returns the error for the caller.
    pub(super) fn fail(&mut self, cause: Error, by_coordinator: bool) -> Error {
        if let TransactionState::Fatal(error) = &self.state {
            return error.clone();
        }
        self.needs_epoch |= loses_identity(&cause);
        let fatal = is_fatal(&cause, by_coordinator);
        let error =
            Error::Transaction { id: self.id.clone(), is_fatal: fatal, cause: Box::new(cause) };
        if fatal {
            self.state = TransactionState::Fatal(error.clone());
        } else if let TransactionState::Open | TransactionState::Committing = self.state {
            self.state = TransactionState::Abortable(error.clone());
        }
        error
    }

    /// Records the failure of a request, unless the request may simply be made again.
    pub(super) fn refuse(&mut self, error: Error) -> Error {
        if error.retriable() || matches!(error, Error::Interrupted | Error::Invalid(_)) {
            return error;
        }
        self.fail(error, true)
    }

    /// Whether batches are sent and repeated.
    pub(super) fn may_retry(&self) -> bool {
        matches!(self.state, TransactionState::Open | TransactionState::Committing)
    }

    fn init_producer_id(&mut self, expected: (i64, i16), wait: &Wait) -> Result<(i64, i16)> {
        let Self { id, timeout, coordinators, .. } = self;
        let body = InitProducerIdRequest {
            transactional_id: Some(id),
            transaction_timeout_ms: i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX),
            producer_id: expected.0,
            producer_epoch: expected.1,
        };
        let request = CoordinatorRequest {
            name: "InitProducerId",
            api: init_producer_id::KEY,
            last: newest(init_producer_id::KEY),
            encode: &|writer: &mut Writer, version: i16| body.encode(writer, version),
            decode: &|reply| {
                let answer = InitProducerIdResponse::decode(&mut reply.body(), reply.version)?;
                Ok((answer.error_code, (answer.producer_id, answer.producer_epoch)))
            },
        };
        coordinators.call((CoordinatorType::Transaction, id), &request, wait)
    }

    /// Ends the transaction; the producer's identity after it.
    fn end(
        &mut self,
        identity: (i64, i16),
        committed: bool,
        wait: &Wait,
    ) -> Result<Option<(i64, i16)>> {
        let Self { id, coordinators, is_v2, .. } = self;
        let body = EndTxnRequest {
            transactional_id: id,
            producer_id: identity.0,
            producer_epoch: identity.1,
            committed,
        };
        let request = CoordinatorRequest {
            name: "EndTxn",
            api: end_txn::KEY,
            last: if *is_v2 { 5 } else { 4 },
            encode: &|writer: &mut Writer, version: i16| body.encode(writer, version),
            decode: &|reply| {
                let answer = EndTxnResponse::decode(&mut reply.body(), reply.version)?;
                let next = (answer.producer_id, answer.producer_epoch);
                Ok((answer.error_code, Some(next).filter(|next| next.0 >= 0)))
            },
        };
        coordinators.call((CoordinatorType::Transaction, id), &request, wait)
    }
}

impl Producer {
    /// Claims the transactional id: ends what an earlier producer of it left open, and fences it.
    /// Does nothing if that is done.
    pub fn init_transactions(&mut self, wait: &Wait) -> Result<()> {
        let manager = self.transaction.as_mut().ok_or_else(without_id)?;
        match &manager.state {
            TransactionState::Uninitialized => {}
            TransactionState::Fatal(error) => return Err(error.clone()),
            _ => return Ok(()),
        }
        let claimed =
            manager.init_producer_id((-1, -1), wait).map_err(|error| manager.refuse(error))?;
        manager.state = TransactionState::Ready;
        self.set_identity(claimed);
        Ok(())
    }

    /// Begins a transaction.
    pub fn begin_transaction(&mut self, wait: &Wait) -> Result<()> {
        self.init_transactions(wait)?;
        let manager = self.transaction.as_mut().ok_or_else(without_id)?;
        match &manager.state {
            TransactionState::Ready => {}
            TransactionState::Open => {
                return Err(Error::Invalid("a transaction is open already".to_owned()));
            }
            _ => return Err(manager.refusal().unwrap_or_else(without_id)),
        }
        let key = (CoordinatorType::Transaction, manager.id.as_str());
        manager.is_v2 = manager.coordinators.has_version_2(key, wait)?;
        manager.partitions.clear();
        manager.groups.clear();
        manager.written = WrittenRecords::default();
        (manager.started, manager.needs_epoch) = (false, false);
        manager.state = TransactionState::Open;
        Ok(())
    }

    /// Accepts no more records. Before an abort, drops all records that are not sent yet.
    pub fn prepare_end(&mut self, commit: bool) -> Result<()> {
        let manager = self.transaction.as_mut().ok_or_else(without_id)?;
        let next = match (&manager.state, commit) {
            (TransactionState::Open | TransactionState::Committing, true) => {
                TransactionState::Committing
            }
            (
                TransactionState::Open
                | TransactionState::Abortable(_)
                | TransactionState::Aborting,
                false,
            ) => TransactionState::Aborting,
            (TransactionState::Uninitialized | TransactionState::Ready, _) => {
                return Err(Error::Invalid("no transaction is open".to_owned()));
            }
            (TransactionState::Committing, false) => {
                let text = "the transaction may be committed already: ask for the commit again";
                return Err(Error::Invalid(text.to_owned()));
            }
            _ => return Err(manager.refusal().unwrap_or_else(without_id)),
        };
        manager.state = next;
        if !commit {
            self.drop_unsent();
        }
        Ok(())
    }

    /// Commits or aborts, as it was prepared. The caller has delivered all records.
    pub fn end_transaction(&mut self, wait: &Wait) -> Result<()> {
        let identity = self.identity.unwrap_or((-1, -1));
        let manager = self.transaction.as_mut().ok_or_else(without_id)?;
        let commit = match &manager.state {
            TransactionState::Committing => true,
            TransactionState::Aborting => false,
            _ => return Err(manager.refusal().unwrap_or_else(without_id)),
        };
        let mut next = None;
        if manager.started {
            next = match manager.end(identity, commit, wait) {
                Ok(next) => next,
                Err(error) if !commit && loses_identity(&error) => {
                    manager.needs_epoch = true;
                    None
                }
                // The coordinator never got a partition of this transaction.
                Err(error) if !commit && error.code() == INVALID_TXN_STATE => None,
                Err(error) => return Err(manager.refuse(error)),
            };
        }
        if let Some(next) = next {
            (manager.started, manager.needs_epoch) = (false, false);
            self.set_identity(next);
        } else if manager.needs_epoch {
            let bumped =
                manager.init_producer_id(identity, wait).map_err(|error| manager.refuse(error))?;
            manager.needs_epoch = false;
            self.set_identity(bumped);
        }
        if let Some(manager) = self.transaction.as_mut() {
            manager.state = TransactionState::Ready;
        }
        Ok(())
    }

    /// Sends what remains and commits.
    pub fn commit_transaction(&mut self, wait: &Wait) -> Result<()> {
        self.prepare_end(true)?;
        self.flush()?;
        self.end_transaction(wait)
    }

    /// Drops what is not sent, and aborts what was sent.
    pub fn abort_transaction(&mut self, wait: &Wait) -> Result<()> {
        self.prepare_end(false)?;
        self.flush()?;
        self.end_transaction(wait)
    }

    /// How long a call on the transaction may take without another limit: the delivery time.
    pub fn transaction_wait(&self) -> Wait {
        self.wait(self.config.delivery_timeout)
    }

    /// Why no record can be added now; `None`: one can.
    pub fn refusal(&self) -> Option<Error> {
        self.transaction.as_ref().and_then(TransactionManager::refusal)
    }

    /// Whether a transaction is open or its end is unfinished.
    pub fn in_transaction(&self) -> bool {
        use TransactionState::{Abortable, Aborting, Committing, Open};
        let state = self.transaction.as_ref().map(|manager| &manager.state);
        matches!(state, Some(Open | Committing | Aborting | Abortable(_)))
    }

    /// Fails the transaction after a batch of it failed for good, and drops what is not sent yet.
    pub(super) fn fail_transaction(&mut self, error: &Error) {
        let Some(manager) = self.transaction.as_mut() else { return };
        manager.needs_epoch = true;
        manager.fail(error.clone(), false);
        self.drop_unsent();
    }

    /// Reports all records as failed that are not sent yet.
    fn drop_unsent(&mut self) {
        let ended = || Error::Invalid("the transaction is aborted".to_owned());
        let error = self.refusal().unwrap_or_else(ended);
        let keys: Vec<PartitionKey> = self.accumulator.keys().cloned().collect();
        for key in keys {
            let Some(partition_batches) = self.accumulator.get_mut(&key) else { continue };
            let size = partition_batches.builder.size();
            partition_batches.builder.clear();
            let unsealed = size.saturating_sub(partition_batches.builder.size());
            partition_batches.opened = None;
            let queue = std::mem::take(&mut partition_batches.queue);
            self.held_bytes = self.held_bytes.saturating_sub(unsealed);
            if let Some(manager) = self.transaction.as_mut() {
                manager.needs_epoch |= queue.iter().any(|batch| batch.identity.is_some());
            }
            for batch in queue {
                self.report_delivery(&key, &batch, (-1, Some(error.clone())));
            }
        }
    }

    /// The identity for a batch of the open transaction.
    pub(super) fn transaction_identity(&self) -> Result<(i64, i16)> {
        match &self.transaction {
            Some(manager) if manager.may_retry() => self.identity.ok_or_else(without_id),
            Some(manager) => Err(manager.refusal().unwrap_or_else(without_id)),
            None => Err(without_id()),
        }
    }

    fn set_identity(&mut self, identity: (i64, i16)) {
        if self.identity.replace(identity) == Some(identity) {
            return;
        }
        for partition_batches in self.accumulator.values_mut() {
            (partition_batches.next_sequence, partition_batches.first_acknowledged) = (0, false);
        }
    }
}

/// Whether no transaction can follow after this error.
fn is_fatal(cause: &Error, by_coordinator: bool) -> bool {
    match cause {
        Error::Refused { code, .. } => match *code {
            PRODUCER_FENCED => true,
            INVALID_PRODUCER_EPOCH => by_coordinator,
            INVALID_PRODUCER_ID_MAPPING | UNKNOWN_PRODUCER_ID | TRANSACTION_ABORTABLE => false,
            // Not authorized for the transactional id or the cluster, or not supported.
            31 | 35 | 53 => true,
            // The group has rebalanced without this member, or refuses it.
            22 | 25 | 27 | 30 | 82 | 113 => false,
            12 | 29 => false, // metadata too large; not authorized for the topic
            _ => by_coordinator,
        },
        Error::Unsupported { .. } => true,
        _ => false,
    }
}

/// Whether the coordinator does not know this producer id: a new one is requested.
fn loses_identity(error: &Error) -> bool {
    matches!(error, Error::Refused { code: INVALID_PRODUCER_ID_MAPPING | UNKNOWN_PRODUCER_ID, .. })
}

fn without_id() -> Error {
    Error::Invalid("transactions need a transactional.id".to_owned())
}
