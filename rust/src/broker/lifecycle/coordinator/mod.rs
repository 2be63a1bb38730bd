//! Loading of coordinators. When this broker becomes the leader of a partition of a coordinator's
//! topic, its whole log is replayed. The result is installed under the shard's lock.
//!
//! Threads: one thread for all shards of a delta; it ends with the last one. A panic or an error is
//!     logged, and the partition then has no coordinator: NOT_COORDINATOR.

mod log_replay;

use std::sync::Arc;

use crate::broker::lifecycle::coordinator::log_replay::LogReplay;
use crate::broker::requests::broker::Broker;
use crate::broker::state::coordinator::shard::{CoordinatorShard, CoordinatorState, ShardMemory};
use crate::storage::panics::caught;

pub(crate) use log_replay::ReplayError;

/// A record of a coordinator's log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplayedRecord<'a> {
    /// Its offset.
    pub(crate) offset: i64,
    /// The producer, if the record belongs to a transaction. It counts from the commit on.
    pub(crate) transaction_of: Option<i64>,
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) value: Option<&'a [u8]>,
}

/// Builds a shard's state from the records of its log. Each coordinator implements it.
pub(crate) trait ShardReplay: Default {
    /// The coordinator's state of a shard.
    type Kept: Default + Send + 'static;
    /// The name of the loading thread.
    const THREAD: &'static str;

    /// Applies the next record.
    fn record(&mut self, record: &ReplayedRecord<'_>);

    /// Applies the marker that ends a producer's transaction.
    fn end_transaction(&mut self, producer_id: i64, commit: bool) {
        let _ = (producer_id, commit);
    }

    /// Installs the replayed state in the shard. It is called at the end of the log, under the
    /// shard's lock; requests are served afterwards.
    fn take_over(
        self,
        broker: &Broker,
        shard: &Arc<CoordinatorShard<Self::Kept>>,
        memory: &mut ShardMemory<Self::Kept>,
    );
}

impl Broker {
    /// Replays shards on a new thread.
    pub(crate) fn load_shards<R: ShardReplay>(&self, shards: Vec<Arc<CoordinatorShard<R::Kept>>>) {
        let Some(broker) = self.me.upgrade().filter(|_| !shards.is_empty()) else { return };
        let spawned = std::thread::Builder::new().name(R::THREAD.into()).spawn(move || {
            for shard in shards {
                let name = &shard.partition.name;
                let load = || broker.load_shard::<R>(&shard);
                if caught(&format_args!("the replay of {name}"), load).is_none() {
                    shard.unload(&mut shard.lock());
                }
            }
        });
        if let Err(error) = spawned {
            tracing::error!("a coordinator cannot be loaded: {error}");
        }
    }

    /// Replays a shard again, for example after its coordinator lost a part of its state.
    pub(crate) fn reload_shard<R: ShardReplay>(
        &self,
        shard: &Arc<CoordinatorShard<R::Kept>>,
        memory: &mut ShardMemory<R::Kept>,
    ) {
        memory.replay_until = memory.end;
        if !std::mem::replace(&mut memory.is_replaying, true) {
            self.load_shards::<R>(vec![Arc::clone(shard)]);
        }
    }

    fn load_shard<R: ShardReplay>(&self, shard: &Arc<CoordinatorShard<R::Kept>>) {
        let mut log_replay = LogReplay::<R>::default();
        loop {
            let outcome = log_replay.read(&shard.partition.log, &self.replays_stop);
            let mut memory = shard.lock();
            match outcome {
                _ if shard.state() == CoordinatorState::NotHere => return,
                Ok(next) if next < memory.replay_until => {}
                Ok(next) => {
                    memory.is_replaying = false;
                    if shard.state() == CoordinatorState::Loading {
                        memory.end = next;
                    }
                    log_replay.replayed.take_over(self, shard, &mut memory);
                    return shard.set_state(&mut memory, CoordinatorState::Ready);
                }
                Err(error) => {
                    if !matches!(error, ReplayError::Closing) {
                        tracing::error!(partition = %shard.partition.name, "replay: {error}");
                    }
                    return shard.unload(&mut memory);
                }
            }
        }
    }
}
