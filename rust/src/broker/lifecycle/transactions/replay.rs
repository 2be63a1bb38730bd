//! Replays a partition of `__transaction_state`. The newest record of an id wins. A transaction
//! whose end was decided gets its markers once more; a partition that has its marker already stays
//! as it is. Markers begin when the end of the log is committed, because the record that decided
//! the end may be one that the former leader had not committed.
//!
//! A malformed record is skipped with a warning.

use std::sync::Arc;

use crate::broker::lifecycle::coordinator::{ReplayedRecord, ShardReplay};
use crate::broker::requests::broker::Broker;
use crate::broker::state::transactions::shard::{
    ShardTransactions, TransactionShard, TransactionShardMemory,
};
use crate::broker::transactions::records::{self, TransactionRecord};

/// The records of a partition of the topic.
#[derive(Debug, Default)]
pub(crate) struct TransactionReplay {
    replayed: ShardTransactions,
    /// Malformed records.
    skipped: u64,
}

impl ShardReplay for TransactionReplay {
    type Kept = ShardTransactions;
    const THREAD: &'static str = "krust-txn-load";

    fn record(&mut self, record: &ReplayedRecord<'_>) {
        if record.transaction_of.is_some() {
            // No coordinator writes its records in a transaction.
            self.skipped += 1;
            return;
        }
        let ShardTransactions { by_id, topics } = &mut self.replayed;
        match records::read(record.key, record.value, topics) {
            Ok(TransactionRecord::Updated(id, transaction)) => {
                if let Some(known) = by_id.get_mut(id) {
                    *known = transaction;
                } else {
                    by_id.insert(id.into(), transaction);
                }
            }
            Ok(TransactionRecord::Removed(id)) => drop(by_id.remove(id)),
            Ok(TransactionRecord::Other) => {}
            Err(_) => self.skipped += 1,
        }
    }

    fn take_over(
        self,
        broker: &Broker,
        shard: &Arc<TransactionShard>,
        memory: &mut TransactionShardMemory,
    ) {
        if self.skipped > 0 {
            let (partition, skipped) = (&shard.partition.name, self.skipped);
            tracing::warn!(%partition, skipped, "records that make no sense were left out");
        }
        memory.kept = self.replayed;
        let at = shard.end(memory);
        for (id, transaction) in &memory.kept.by_id {
            if transaction.state.marker().is_some() {
                broker.end_on_commit(shard, at.clone(), (Arc::clone(id), transaction));
            }
        }
    }
}
