//! The replica that a consumer of some rack shall read (KIP-392), as `replica.selector.class` says.
//!
//! Only a leader sends consumers on, and only to an in-sync follower that has their offset. The
//! consumer asks the follower from then on, and the leader again when the follower fails or the
//! consumer's metadata has aged (`metadata.max.age.ms`).
//! Cost: a consumer without a rack costs a comparison of lengths. One with a rack costs a short
//! lock, and a copy of the rack's name where another broker may be nearer.

use crate::broker::handlers::fetch::reader::{FOLLOWERS_FROM, FetchReader};
use crate::broker::requests::broker::Broker;
use crate::broker::requests::call::Call;
use crate::broker::state::image::ClusterImage;
use crate::broker::state::partition::Partition;
use crate::broker::state::read_replicas::{
    ConsumerPlace, ReplicaSelector, if_readable, may_be_nearer, most_caught_up,
};
use crate::ids::Offset;
use crate::protocol::fetch::FetchRequest;

/// Chooses replicas for a consumer, with the cluster as it is in `image`.
pub(crate) struct ReplicaChoice<'a> {
    pub(crate) broker: &'a Broker,
    pub(crate) image: &'a ClusterImage,
    pub(crate) place: &'a ConsumerPlace,
}

/// Where the consumer is, if it may be sent to another replica.
pub(crate) fn place(
    call: &Call<'_, '_>,
    request: &FetchRequest<'_>,
    reader: FetchReader,
) -> Option<ConsumerPlace> {
    let rack = request.rack_id;
    if rack.is_empty() || reader != FetchReader::Consumer || call.version() < FOLLOWERS_FROM {
        return None;
    }
    let settings = call.broker.settings.load();
    let is_worth_it = match settings.replica_selector {
        ReplicaSelector::Leader => false,
        ReplicaSelector::RackAware => may_be_nearer(rack, (settings.node_id, &call.thread.image)),
        ReplicaSelector::Policy => true,
    };
    if is_worth_it { ConsumerPlace::of(rack, &call.session.peer.listener) } else { None }
}

impl ReplicaChoice<'_> {
    /// The follower to read from instead of this broker; `None`: read here.
    pub(crate) fn preferred(&self, partition: &Partition, offset: Offset) -> Option<i32> {
        let (broker, here) = (self.broker, (self.place, self.image));
        let mut is_asked = false;
        let selector = broker.settings.load().replica_selector;
        let preferred = partition.choose_follower(|leader| match selector {
            ReplicaSelector::Leader => None,
            ReplicaSelector::RackAware => most_caught_up(leader.followers_with(offset), here),
            ReplicaSelector::Policy => {
                let chosen;
                let asked = (&partition.name, &*self.place.rack);
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
