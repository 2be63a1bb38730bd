//! One event of one transactional id: the decision, its append, and the markers that follow.
//!
//! Markers are written once the record that decides them is committed. If it is lost, the next
//! coordinator decides anew.
//! Threads: any. A shard's lock is held for one append.

use std::sync::Arc;

use crate::broker::requests::broker::Broker;
use crate::broker::state::coordinator::shard::AppendedAt;
use crate::broker::state::transactions::markers::{EndingTransaction, MarkerTask};
use crate::broker::state::transactions::shard::{AppliedStep, TransactionShard};
use crate::broker::state::waking::Wakes;
use crate::broker::transactions::step::{Event, Moment};
use crate::broker::transactions::transaction::Transaction;
use crate::protocol::ErrorCode;

impl Broker {
    /// Applies an event to a transactional id. The answer must wait until `at` of the result is
    /// committed. Errors: nothing has changed.
    pub(crate) fn step_transaction(
        &self,
        id: &str,
        event: &Event<'_>,
    ) -> Result<AppliedStep, ErrorCode> {
        let shard = self.transactions.shards.ready_of(id)?;
        self.step_in(&shard, id, event, |_| true)
    }

    /// Applies an event to a transactional id of a shard, if `may` still holds for it. Errors:
    /// nothing has changed; INVALID_TXN_STATE if `may` does not hold.
    pub(crate) fn step_in(
        &self,
        shard: &Arc<TransactionShard>,
        id: &str,
        event: &Event<'_>,
        may: impl FnOnce(Option<&Transaction>) -> bool,
    ) -> Result<AppliedStep, ErrorCode> {
        let (at, feature) = self.transaction_moment();
        let mut memory = shard.lock_ready()?;
        if !may(memory.kept.by_id.get(id)) {
            return Err(ErrorCode::InvalidTxnState);
        }
        let mut applied = shard.step(&mut memory, (id, event), (at, feature))?;
        drop(memory);
        if applied.is_changed {
            shard.partition.advance(&mut Wakes { here: None, waker: self });
        }
        if let Some((id, transaction)) = applied.prepared.take() {
            applied.ending = self.end_on_commit(shard, applied.at.clone(), (id, &transaction));
        }
        Ok(applied)
    }

    /// The time and the limits of a step, and the finalized feature `transaction.version`.
    pub(crate) fn transaction_moment(&self) -> (Moment, i16) {
        let settings = self.settings.load().transactions;
        let moment = Moment {
            now_ms: self.clock.wall_ms(),
            max_timeout_ms: settings.max_timeout_ms,
            expiration_ms: settings.id_expiration_ms,
        };
        (moment, settings.version)
    }

    /// Has the markers of a transaction written once the decision to end it is committed.
    pub(crate) fn end_on_commit(
        &self,
        shard: &Arc<TransactionShard>,
        at: AppendedAt,
        (id, transaction): (Arc<str>, &Transaction),
    ) -> Option<Arc<EndingTransaction>> {
        let commit = transaction.state.marker()?;
        let ending = EndingTransaction::new((id, Arc::clone(shard)), transaction, commit);
        let ending = Arc::new(ending);
        self.start_transaction_thread();
        self.transactions.markers.add(MarkerTask::Begin(Arc::clone(&ending), at));
        Some(ending)
    }
}
