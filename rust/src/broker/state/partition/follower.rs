//! The follower's side of a partition: runs [`FollowerReplica`] and carries out its effects on the
//! log.
//!
//! Threads: any; a step holds the lock of the replica.

use std::sync::atomic::Ordering;

use super::{Partition, Replica, ReplicaRole};
use crate::broker::replica::follower::FollowerReplica;
use crate::ids::Epoch;

impl Partition {
    /// Makes this broker a follower in a leader epoch. No producer's batch is appended any more.
    /// After the image has changed, [`Partition::abandon`] wakes the waiting requests.
    pub(crate) fn follow(&self, leader_epoch: Epoch) {
        self.run_commit_callbacks();
        let mut replica = self.replica.lock();
        if let Replica::Follower(follower) = &*replica
            && follower.leader_epoch() >= leader_epoch
        {
            return;
        }
        self.end_leadership(ReplicaRole::Follower);
        self.log.stop_leading();
        *replica = Replica::Follower(FollowerReplica::new(leader_epoch, true));
        self.has_enough_in_sync.store(true, Ordering::Release);
    }
}
