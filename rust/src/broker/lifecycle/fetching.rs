//! Tells the fetchers the source of each partition after a delta of the image.
//!
//! A follower fetches from its leader's inter-broker listener. If the leader is not registered, the
//! follower fetches once it is. The follower continues to fetch from a leader that loses its
//! registration, as long as the image names it as the leader.
//! Threads: the one that applies deltas.

use std::sync::Arc;

use crate::broker::requests::broker::Broker;
use crate::broker::state::fetching::{FetcherAssignment, ReplicaFetchers};
use crate::broker::state::image::{ClusterImage, PartitionImage, PartitionState, PeerAddress};
use crate::broker::state::partition::{Partition, ReplicaRole};
use crate::ids::Epoch;

impl Broker {
    /// Sets the fetchers. Before that, no partition is fetched. Only the first call counts.
    pub fn set_fetchers(&self, fetchers: Arc<dyn ReplicaFetchers>) {
        let _ = self.fetchers.set(fetchers);
        let _one_at_a_time = self.applying.lock();
        self.assign_fetchers(&self.partitions(), false);
    }

    /// Assigns the fetchers of partitions that were assigned to this broker or removed from it.
    /// `brokers_changed`: the addresses of leaders may have changed.
    pub(crate) fn assign_fetchers(&self, assigned: &[Arc<Partition>], brokers_changed: bool) {
        let Some(fetchers) = self.fetchers.get() else { return };
        let image = self.image.load();
        let node = self.settings.load().node_id;
        let mut changes: Vec<_> =
            assigned.iter().map(|partition| self.assignment(&image, partition)).collect();
        if brokers_changed {
            let topics = image.topics().flat_map(|topic| &topic.partitions);
            let follows = |it: &&PartitionImage| it.local.is_some() && it.state.leader != node;
            let known = topics.filter(follows).filter_map(|it| {
                let partition = Arc::clone(it.local.as_ref()?);
                let source = Some(self.source(&image, &it.state)?);
                Some(FetcherAssignment { partition, source, leader_epoch: it.state.leader_epoch })
            });
            changes.extend(known);
        }
        if !changes.is_empty() {
            fetchers.assign(changes);
        }
    }

    fn assignment(&self, image: &ClusterImage, partition: &Arc<Partition>) -> FetcherAssignment {
        let topic = image.topic(&partition.name.topic);
        let state = topic.and_then(|topic| topic.partition(partition.name.partition));
        let state = state.filter(|it| {
            let is_it = it.local.as_ref().is_some_and(|local| Arc::ptr_eq(local, partition));
            is_it && partition.role() != ReplicaRole::Removed
        });
        let (source, leader_epoch) = match state {
            Some(PartitionImage { state, .. }) => (self.source(image, state), state.leader_epoch),
            None => (None, Epoch(i32::MAX)),
        };
        FetcherAssignment { partition: Arc::clone(partition), source, leader_epoch }
    }

    /// The source that a follower fetches from; `None`: this broker leads, or the leader is not
    /// registered.
    fn source(&self, image: &ClusterImage, state: &PartitionState) -> Option<PeerAddress> {
        let settings = self.settings.load();
        if state.leader == settings.node_id {
            return None;
        }
        image.peer_address(state.leader, settings.inter_broker_listener.as_ref()?)
    }
}
