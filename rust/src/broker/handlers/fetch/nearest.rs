//! Chooses the replica that a consumer should read (KIP-392), as `replica.selector.class` says.
//!
//! Only a leader redirects consumers, and only to an in-sync follower that has their offset. From
//! then on the consumer fetches from the follower. It returns to the leader when the follower
//! fails, or when its metadata is old (`metadata.max.age.ms`).
//! Cost: a consumer without a rack costs a comparison of lengths. One with a rack costs a short
//! lock, and a copy of the rack's name where another broker may be nearer.

use crate::broker::handlers::fetch::reader::{FOLLOWERS_FROM, FetchReader};
use crate::broker::requests::broker::Broker;
use crate::broker::requests::call::Call;
use crate::broker::state::image::ClusterImage;
use crate::broker::state::partition::Partition;
use crate::broker::state::read_replicas::{
    ConsumerLocation, ReplicaSelector, if_readable, may_be_nearer, most_caught_up,
};
use crate::ids::Offset;
use crate::protocol::fetch::FetchRequest;

/// Chooses replicas for a consumer, with the cluster as it is in `image`.
pub(crate) struct ReplicaChoice<'a> {
    pub(crate) broker: &'a Broker,
    pub(crate) image: &'a ClusterImage,
    pub(crate) location: &'a ConsumerLocation,
}

/// The consumer's rack and listener, if another replica may be nearer.
pub(crate) fn location(
    call: &Call<'_, '_>,
    request: &FetchRequest<'_>,
    reader: FetchReader,
) -> Option<ConsumerLocation> {
    let rack = request.rack_id;
    if rack.is_empty() || reader != FetchReader::Consumer || call.version() < FOLLOWERS_FROM {
        return None;
    }
    let settings = call.broker.settings.load();
    let is_worth_it = match settings.replica_selector {
        ReplicaSelector::Leader => false,
        ReplicaSelector::RackAware => may_be_nearer(rack, (settings.node_id, &call.thread.image)),
        ReplicaSelector::UserClass => true,
    };
    if is_worth_it { ConsumerLocation::of(rack, &call.connection.peer.listener) } else { None }
}

impl ReplicaChoice<'_> {
    /// The follower to read from instead of this broker; `None`: read here.
    pub(crate) fn preferred(&self, partition: &Partition, offset: Offset) -> Option<i32> {
        let (broker, here) = (self.broker, (self.location, self.image));
        let mut is_asked = false;
        let selector = broker.settings.load().replica_selector;
        let preferred = partition.choose_follower(|leader| match selector {
            ReplicaSelector::Leader => None,
            ReplicaSelector::RackAware => most_caught_up(leader.followers_with(offset), here),
            ReplicaSelector::UserClass => {
                let chosen;
                let asked = (&partition.name, &*self.location.rack);
                let selected = &broker.selected_replicas;
                (chosen, is_asked) =
                    selected.selected(asked, leader.leadership(), &self.image.brokers);
                if_readable(chosen?, leader.followers_with(offset), here)
            }
        });
        if is_asked {
            broker.ask_for_replicas();
        }
        preferred
    }
}
