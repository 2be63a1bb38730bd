//! The thread that ends transactions: it writes a marker to each partition of a transaction whose
//! end is committed and, when all markers are committed, appends that the transaction is complete.
//!
//! A partition that this broker leads gets its marker here, and the leaders of others are asked
//! (`state::inter_broker`). A leader that cannot take it now, or does not answer, is tried again a
//! little later, with the image of then. A partition that the image lacks was
//! deleted, and needs no marker. A transaction whose shard was unloaded is left to the new
//! coordinator.
//! Threads: one, started with the first transaction that ends. A panic costs the task, which is
//!     logged and done again.
//! Not promised: an order among partitions.

use std::sync::Arc;

use crate::broker::requests::broker::Broker;
use crate::broker::requests::delayed::Wake;
use crate::broker::state::coordinator::shard::{AppendedAt, CoordinatorState};
use crate::broker::state::image::ClusterImage;
use crate::broker::state::inter_broker::PeerMarker;
use crate::broker::state::transactions::markers::{EndingTransaction, MarkerTask};
use crate::broker::state::transactions::shard::TOPIC;
use crate::broker::state::txn_marker::TxnMarker;
use crate::broker::transactions::step::Event;
use crate::ids::TopicPartition;
use crate::protocol::ErrorCode;
use crate::record::control::EndTransactionMarker;
use crate::storage::panics::caught;

/// Where the marker of a partition goes.
enum MarkerTarget {
    /// This broker leads the partition.
    Here,
    /// Another broker leads it; -1: none does.
    Elsewhere(i32),
    /// The partition exists no longer.
    Deleted,
}

impl Broker {
    /// Starts the transaction thread, unless it runs.
    pub(crate) fn start_transaction_thread(&self) {
        let (me, markers) = (self.me.clone(), Arc::clone(&self.transactions.markers));
        self.transactions.markers.start(|| {
            let thread = std::thread::Builder::new().name("krust-transactions".into());
            thread.spawn(move || {
                while let Some(tasks) = markers.next()
                    && let Some(broker) = me.upgrade()
                {
                    for task in tasks.into_iter().take_while(|_| !markers.is_stopping()) {
                        let run = || broker.run_marker_task(task.clone());
                        if caught(&"a task of the transaction thread", run).is_none() {
                            markers.retry(task);
                        }
                    }
                    // All at once: a network thread that is woken for each answers each alone.
                    for (thread, id) in markers.take_answered() {
                        broker.post(thread, Wake::Recheck(id));
                    }
                }
            })
        });
    }

    fn run_marker_task(&self, task: MarkerTask) {
        if task.ending().shard.state() == CoordinatorState::NotHere {
            return self.transactions.markers.over(task.ending());
        }
        match task {
            MarkerTask::Begin(ref ending, ref at) => {
                if at.is_committed() {
                    self.begin_markers(ending);
                } else if !at.is_lost() {
                    self.after_commit(&at.clone(), task);
                }
            }
            MarkerTask::Write(ending, partition) => self.place_marker(&ending, partition),
            MarkerTask::Count(ref ending, ref partition, ref at) => {
                if at.is_committed() {
                    self.count_marker(ending);
                } else if at.is_lost() {
                    let write = MarkerTask::Write(Arc::clone(ending), partition.clone());
                    self.transactions.markers.retry(write);
                } else {
                    self.after_commit(&at.clone(), task);
                }
            }
            MarkerTask::Answered(ending, partition, code) => match code {
                ErrorCode::None => self.count_marker(&ending),
                error => self.marker_refused((&ending, partition), error),
            },
            MarkerTask::Complete(ending) => self.complete_transaction(ending),
        }
    }

    /// Adds the task again once an append is committed, or can not be committed now.
    fn after_commit(&self, at: &AppendedAt, task: MarkerTask) {
        let me = self.me.clone();
        let action = move |outcome: Result<(), ErrorCode>| {
            let Some(broker) = me.upgrade() else { return };
            match outcome {
                Ok(()) => broker.transactions.markers.add(task),
                Err(_) => broker.transactions.markers.retry(task),
            }
        };
        self.on_commit(at, Box::new(action));
    }

    fn begin_markers(&self, ending: &Arc<EndingTransaction>) {
        if ending.partitions.is_empty() {
            return self.complete_transaction(Arc::clone(ending));
        }
        for partition in &ending.partitions {
            self.place_marker(ending, partition.clone());
        }
    }

    /// Writes the marker of a partition, or has its leader write it.
    fn place_marker(&self, ending: &Arc<EndingTransaction>, partition: TopicPartition) {
        let retry = |partition| {
            self.transactions.markers.retry(MarkerTask::Write(Arc::clone(ending), partition));
        };
        let Some(marker) = self.marker_of(ending) else { return retry(partition) };
        match self.marker_target(&partition) {
            MarkerTarget::Here => match self.write_marker(&partition, &marker) {
                Ok(at) => {
                    self.run_marker_task(MarkerTask::Count(Arc::clone(ending), partition, at));
                }
                Err(error) => self.marker_refused((ending, partition), error),
            },
            MarkerTarget::Elsewhere(leader) => {
                self.send_marker((ending, partition), leader, marker)
            }
            MarkerTarget::Deleted => self.count_marker(ending),
        }
    }

    /// Has another broker write the marker of a partition that it leads.
    fn send_marker(
        &self,
        (ending, partition): (&Arc<EndingTransaction>, TopicPartition),
        leader: i32,
        marker: TxnMarker,
    ) {
        let Some((address, threads)) = self.peer(leader) else {
            let write = MarkerTask::Write(Arc::clone(ending), partition);
            return self.transactions.markers.retry(write);
        };
        let (markers, ending) = (Arc::clone(&self.transactions.markers), Arc::clone(ending));
        let asked = partition.clone();
        let then = move |codes: Vec<ErrorCode>| {
            let code = codes.first().copied().unwrap_or(ErrorCode::NetworkException);
            markers.add(MarkerTask::Answered(ending, asked, code));
        };
        threads.write_marker(&address, PeerMarker { marker, partition, then: Box::new(then) });
    }

    /// A leader did not take a marker.
    fn marker_refused(
        &self,
        (ending, partition): (&Arc<EndingTransaction>, TopicPartition),
        error: ErrorCode,
    ) {
        let id = &*ending.id;
        match error {
            // A newer coordinator of this id has written a marker.
            ErrorCode::TransactionCoordinatorFenced => {}
            // The producer is known there by a later epoch, so its transaction has ended.
            ErrorCode::InvalidProducerEpoch | ErrorCode::ProducerFenced => {
                tracing::warn!(id, %partition, "a marker came too late: {}", error.name());
                self.count_marker(ending);
            }
            _ => {
                tracing::debug!(id, %partition, "a marker waits: {}", error.name());
                let write = MarkerTask::Write(Arc::clone(ending), partition);
                self.transactions.markers.retry(write);
            }
        }
    }

    fn count_marker(&self, ending: &Arc<EndingTransaction>) {
        if ending.count() {
            self.complete_transaction(Arc::clone(ending));
        }
    }

    /// Appends that a transaction is complete. A full disk refuses it for a while, and a leader
    /// that is cut off refuses it; a task whose shard was unloaded meanwhile ends at its next turn.
    fn complete_transaction(&self, ending: Arc<EndingTransaction>) {
        let is_same = |now: Option<&_>| ending.is(now);
        match self.step_in(&ending.shard, &ending.id, &Event::MarkersWritten, is_same) {
            Ok(_) | Err(ErrorCode::InvalidTxnState) => self.transactions.markers.over(&ending),
            Err(error) => {
                tracing::debug!(id = &*ending.id, "not complete yet: {}", error.name());
                self.transactions.markers.retry(MarkerTask::Complete(ending));
            }
        }
    }

    /// The marker of a transaction. `None`: the coordinator's epoch is not known now.
    fn marker_of(&self, ending: &EndingTransaction) -> Option<TxnMarker> {
        let image = self.image.load();
        let partition = image.topic(TOPIC)?.partition(ending.shard.index)?;
        let ends = EndTransactionMarker {
            producer_id: ending.producer.id,
            producer_epoch: ending.producer.epoch,
            coordinator_epoch: partition.state.leader_epoch.0,
            commit: ending.commit,
        };
        Some(TxnMarker { ends, transaction_version: ending.client_version as i8 })
    }

    fn marker_target(&self, partition: &TopicPartition) -> MarkerTarget {
        let find = |image: &ClusterImage| {
            let found = image.topic(&partition.topic)?.partition(partition.partition)?;
            let is_here = found.state.leader == self.settings.load().node_id;
            Some(match (is_here, found.local.is_some()) {
                (true, true) => MarkerTarget::Here,
                (true, false) => MarkerTarget::Elsewhere(-1),
                (false, _) => MarkerTarget::Elsewhere(found.state.leader),
            })
        };
        if let Some(target) = find(&self.image.load()) {
            return target;
        }
        // A delta that is being applied may name it.
        let _no_delta = self.applying.lock();
        let image = self.image.load();
        let unknown = if image.waits { MarkerTarget::Elsewhere(-1) } else { MarkerTarget::Deleted };
        find(&image).unwrap_or(unknown)
    }
}
