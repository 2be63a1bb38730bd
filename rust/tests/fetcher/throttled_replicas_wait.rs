//! A throttled replica gets no more than the rate allows, and does not delay others.

use krust::broker::quotas::replication::{ReplicaThrottles, ThrottledReplicas};

use crate::double::{Made, Pair, batch, until};

/// A pair whose broker 1 lacks many batches of two partitions.
fn lagging(throttles: ReplicaThrottles) -> Pair {
    let mut made = Made { throttles, ..Made::default() };
    made.fetchers.partition_max_bytes = 10_000;
    // It never fetched before: a follower that was caught up lately is not throttled.
    let mut pair = Pair::new(0, made);
    pair.cut_off(true);
    pair.partitions = 2;
    pair.elect(0);
    let mut client = pair.nodes[0].client();
    for _ in 0..20 {
        for number in 0..2 {
            client.produce(number, &batch(&[&vec![b'x'; 9000]])).unwrap();
        }
    }
    pair
}

/// Partition 1 is copied, partition 0 waits after its first answer.
fn is_held_back(pair: &Pair) {
    pair.cut_off(false);
    let ends = || [0, 1].map(|number| pair.nodes[1].end(number));
    until(|| ends()[1] == 20, || format!("{:?}", ends()));
    assert!(ends()[0] <= 1, "{:?}", ends());
}

#[test]
fn a_throttled_follower_waits() {
    let follower = ThrottledReplicas::Some(vec![(0, 1)]);
    let pair = lagging(ReplicaThrottles { follower, ..ReplicaThrottles::default() });
    pair.nodes[1].set(|settings| settings.fetchers.throttled_bytes_per_second = 1);
    is_held_back(&pair);
    pair.nodes[1].set(|settings| settings.fetchers.throttled_bytes_per_second = i64::MAX);
    pair.agree(40);
}

#[test]
fn a_throttled_leader_sends_nothing() {
    let leader = ThrottledReplicas::Some(vec![(0, 0)]);
    let pair = lagging(ReplicaThrottles { leader, ..ReplicaThrottles::default() });
    pair.nodes[0].set(|settings| settings.leader_throttled_bytes_per_second = 1);
    is_held_back(&pair);
    pair.nodes[0].set(|settings| settings.leader_throttled_bytes_per_second = i64::MAX);
    pair.agree(40);
}
