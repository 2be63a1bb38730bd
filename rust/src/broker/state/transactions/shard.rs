//! One partition of `__transaction_state` that this broker leads: its transactional ids, and steps
//! on them. `state::coordinator` has what all coordinators share.
//!
//! Invariant: an event is decided, its record appended and the change applied under one hold of the
//!     shard's lock. Whoever answers, or writes markers, first waits until the append is committed.
//! Limits: a batch of tombstones has at most half of the topic's `max.message.bytes`.

use std::collections::HashMap;
use std::sync::Arc;

use crate::broker::state::coordinator::shard::{
    AppendedAt, CoordinatorShard, NotAppended, ShardMemory,
};
use crate::broker::state::transactions::markers::EndingTransaction;
use crate::broker::transactions::records::{self, TopicNames};
use crate::broker::transactions::step::{Event, Moment, Next, Outcome, step};
use crate::broker::transactions::transaction::Transaction;
use crate::protocol::ErrorCode;
use crate::record::batch::{BatchBuilder, BatchFields, NewRecord};
use crate::wire::Writer;

/// The topic of transactional ids.
pub(crate) const TOPIC: &str = "__transaction_state";
/// The longest transactional id that a record's key can hold.
pub(crate) const TRANSACTIONAL_ID_MAX: usize = 0x7fff;

/// A shard of the transaction coordinator.
pub(crate) type TransactionShard = CoordinatorShard<ShardTransactions>;
/// The state that a shard's lock guards.
pub(crate) type TransactionShardMemory = ShardMemory<ShardTransactions>;

/// The transactional ids of a shard.
#[derive(Debug, Default)]
pub(crate) struct ShardTransactions {
    pub(crate) by_id: HashMap<Arc<str>, Transaction>,
    pub(crate) topics: TopicNames,
}

/// The effects of an event.
#[derive(Debug)]
pub(crate) struct AppliedStep {
    pub(crate) outcome: Outcome,
    /// The answer waits for this.
    pub(crate) at: AppendedAt,
    /// Whether a record was appended.
    pub(crate) is_changed: bool,
    /// The id and its transaction, if markers must be written once `at` is committed.
    pub(crate) prepared: Option<(Arc<str>, Transaction)>,
    /// The same, once the markers are on their way.
    pub(crate) ending: Option<Arc<EndingTransaction>>,
}

impl TransactionShard {
    /// Decides an event, appends what changed, and applies it. `feature`: the finalized feature
    /// `transaction.version`. Errors: nothing has changed.
    pub(crate) fn step(
        &self,
        memory: &mut TransactionShardMemory,
        (id, event): (&str, &Event<'_>),
        (at, feature): (Moment, i16),
    ) -> Result<AppliedStep, ErrorCode> {
        if id.len() > TRANSACTIONAL_ID_MAX {
            return Err(ErrorCode::InvalidRequest);
        }
        let decided = step(memory.kept.by_id.get(id), event, at)?;
        let (mut is_changed, mut prepared) = (true, None);
        match decided.next {
            Next::Unchanged => is_changed = false,
            Next::Changed(next) => {
                let mut value = Writer::new();
                records::write_value(&next, records::value_version(feature), &mut value);
                self.append_record(memory, (id, Some(&value.buf)), at.now_ms)?;
                prepared = memory.kept.put(id, next);
            }
            Next::Removed => {
                self.append_record(memory, (id, None), at.now_ms)?;
                memory.kept.by_id.remove(id);
            }
        }
        let at = self.end(memory);
        Ok(AppliedStep { outcome: decided.outcome, at, is_changed, prepared, ending: None })
    }

    fn append_record(
        &self,
        memory: &mut TransactionShardMemory,
        (id, value): (&str, Option<&[u8]>),
        now_ms: i64,
    ) -> Result<(), ErrorCode> {
        let mut key = Writer::new();
        records::write_key(id, &mut key);
        let mut builder = BatchBuilder::new();
        builder.add(&NewRecord { timestamp: now_ms, key: Some(&key.buf), value, headers: &[] });
        let batch = builder.to_bytes(&BatchFields::default());
        let batch = batch.map_err(|_| ErrorCode::MessageTooLarge)?;
        self.append(memory, &batch, now_ms).map_err(|error| match error {
            NotAppended::TooLarge => ErrorCode::MessageTooLarge,
            NotAppended::NotCoordinator => ErrorCode::NotCoordinator,
            NotAppended::NotEnoughReplicas => ErrorCode::CoordinatorNotAvailable,
        })
    }
}

impl ShardTransactions {
    /// Stores an id's state. Returns it if markers must be written.
    fn put(&mut self, id: &str, next: Transaction) -> Option<(Arc<str>, Transaction)> {
        let is_prepared = next.state.marker().is_some();
        let id: Arc<str> = match self.by_id.get_key_value(id) {
            Some((id, _)) => Arc::clone(id),
            None => id.into(),
        };
        let prepared = is_prepared.then(|| (Arc::clone(&id), next.clone()));
        self.by_id.insert(id, next);
        prepared
    }
}
