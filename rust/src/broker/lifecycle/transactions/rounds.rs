//! Regular rounds over all transactional ids: transactions whose time is up are aborted, and ids
//! that were silent for `transactional.id.expiration.ms` are forgotten with a tombstone.
//!
//! Threads: the log scheduler's. A shard's lock is held while its ids are looked through, and for
//!     each append.
//! Not promised: that an id ends before the next round. One that cannot, because its record is
//!     larger than the topic allows, keeps no other back.

use std::sync::Arc;

use crate::broker::requests::broker::Broker;
use crate::broker::state::coordinator::shard::CoordinatorState;
use crate::broker::state::transactions::shard::TransactionShard;
use crate::broker::transactions::step::{Event, Next, step};
use crate::storage::ScheduledTask;

impl Broker {
    /// The rounds, for the log scheduler.
    pub(crate) fn transaction_rounds(&self) -> [ScheduledTask; 2] {
        let settings = self.settings.load().transactions;
        let round = |interval_ms, run: fn(&Self)| {
            let broker = self.me.clone();
            let run = Box::new(move || broker.upgrade().iter().for_each(|it| run(it)));
            ScheduledTask { interval_ms, run }
        };
        [
            round(settings.abort_interval_ms, Self::abort_timed_out_transactions),
            round(settings.expiration_interval_ms, Self::expire_transactional_ids),
        ]
    }

    /// Aborts the transactions whose time is up.
    pub fn abort_timed_out_transactions(&self) {
        self.each_due(&Event::TimedOut);
    }

    /// Forgets the transactional ids that were silent for too long.
    pub fn expire_transactional_ids(&self) {
        self.each_due(&Event::Expired);
    }

    fn each_due(&self, event: &Event<'_>) {
        for shard in self.transactions.shards.ready() {
            for id in self.due(&shard, event) {
                let Err(error) = self.step_in(&shard, &id, event, |_| true) else { continue };
                tracing::debug!(id = &*id, ?event, "not now: {}", error.name());
                if shard.state() != CoordinatorState::Ready || !shard.partition.can_commit() {
                    break;
                }
            }
        }
    }

    /// The ids of a shard that an event changes.
    fn due(&self, shard: &Arc<TransactionShard>, event: &Event<'_>) -> Vec<Arc<str>> {
        let (at, _) = self.transaction_moment();
        let Ok(memory) = shard.lock_ready() else { return Vec::new() };
        let is_due = |transaction: &_| {
            step(Some(transaction), event, at).is_ok_and(|step| step.next != Next::Unchanged)
        };
        let due = memory.kept.by_id.iter().filter(|(_, transaction)| is_due(transaction));
        due.map(|(id, _)| Arc::clone(id)).collect()
    }
}
