//! A follower's log holds the bytes of its leader's, whatever they are and however they come.

use std::collections::HashMap;

use krust::ids::Offset;
use krust::protocol::fetch::FetchRequest;
use krust::storage::LogConfig;
use krust::wire::Reader;

use crate::double::{Made, Pair, batch, high_watermark, until};
use crate::proxy::Proxy;

const FETCH: i16 = 1;
const OFFSET_FOR_LEADER_EPOCH: i16 = 23;

#[test]
fn a_follower_copies_what_was_there_and_what_comes() {
    let mut pair = Pair::new(3, Made::default());
    let mut client = pair.nodes[0].client();
    for round in 0..20u8 {
        client.produce(i32::from(round % 3), &batch(&[&[round], b"second"])).unwrap();
    }
    pair.agree(40);
    client.produce(1, &batch(&[&vec![b'x'; 900_000]])).unwrap();
    pair.agree(41);
    pair.elect(1);
    pair.nodes[1].client().produce(2, &batch(&[b"of the new leader"])).unwrap();
    pair.agree(42);
}

#[test]
fn a_batch_larger_than_every_limit_is_copied() {
    let mut made = Made::default();
    made.fetchers.partition_max_bytes = 1000;
    made.fetchers.response_max_bytes = 2000;
    let pair = Pair::new(3, made);
    let mut client = pair.nodes[0].client();
    for number in [0, 1, 2, 0, 1, 2] {
        client.produce(number, &batch(&[&vec![b'x'; 300_000]])).unwrap();
    }
    pair.agree(6);
}

#[test]
fn a_follower_knows_the_leaders_high_watermark() {
    let pair = Pair::new(1, Made::default());
    pair.nodes[0].client().produce(0, &batch(&[b"a", b"b", b"c"])).unwrap();
    pair.agree(3);
    let marks = || pair.nodes.each_ref().map(|node| high_watermark(node, 0).0);
    until(|| marks() == [3, 3], || format!("{:?}", marks()));
}

#[test]
fn a_high_watermark_outlives_a_restart() {
    let mut pair = Pair::new(1, Made::default());
    pair.nodes[0].client().produce(0, &batch(&[b"a", b"b", b"c"])).unwrap();
    let mark = |pair: &Pair| high_watermark(&pair.nodes[1], 0).0;
    until(|| mark(&pair) == 3, || mark(&pair).to_string());
    let [first, second] = pair.nodes;
    let mut second = second.again();
    second.lead_by(-1, 0, 1);
    assert_eq!(high_watermark(&second, 0).0, 3);
    pair.nodes = [first, second];
}

#[test]
fn a_follower_that_diverged_truncates_to_where_it_agrees() {
    let mut pair = Pair::new(2, Made::default());
    for number in 0..2 {
        pair.nodes[0].client().produce(number, &batch(&[b"on both"])).unwrap();
    }
    pair.agree(2);
    pair.diverge();
    pair.agree(4);
    pair.nodes[0].client().produce(0, &batch(&[b"after it"])).unwrap();
    pair.agree(5);
    pair.diverge();
    pair.agree(7);
}

#[test]
fn a_leader_of_any_version_is_followed() {
    for newest in [4, 6, 8, 11, 12, 14, 17, 18] {
        let mut pair = Pair::new(2, Made::default());
        let last = HashMap::from([(FETCH, newest)]);
        let proxy = Proxy::start(pair.nodes[0].port(), last);
        pair.meet_at(proxy.port);
        for number in 0..2 {
            pair.nodes[0].client().produce(number, &batch(&[b"on both"])).unwrap();
        }
        pair.agree(2);
        pair.diverge();
        pair.agree(4);
        let fetches = proxy.seen(FETCH);
        assert!(fetches.iter().all(|it| it.version == newest), "{newest}");
        let asks_epochs = !proxy.seen(OFFSET_FOR_LEADER_EPOCH).is_empty();
        assert_eq!(asks_epochs, newest < 12, "{newest}");
        let fetch = fetches.last().unwrap();
        let request = FetchRequest::decode(&mut Reader::new(&fetch.body), newest).unwrap();
        let replica = (request.replica_id, request.replica_state.replica_id);
        let broker_epoch = request.replica_state.replica_epoch;
        let expected = if newest < 15 { ((1, -1), -1) } else { ((-1, 1), 7) };
        assert_eq!((replica, broker_epoch), expected, "{newest}");
    }
}

#[test]
fn a_fetch_names_only_what_changed() {
    let mut made = Made::default();
    made.fetchers.wait_max_ms = 10;
    let mut pair = Pair::new(3, made);
    let proxy = Proxy::start(pair.nodes[0].port(), HashMap::new());
    pair.meet_at(proxy.port);
    pair.nodes[0].client().produce(1, &batch(&[b"news"])).unwrap();
    pair.agree(1);
    let count = proxy.seen(FETCH).len();
    until(|| proxy.seen(FETCH).len() > count + 5, || "no Fetch is sent".to_owned());
    let mut named = Vec::new();
    for (number, fetch) in proxy.seen(FETCH).iter().enumerate() {
        let request = FetchRequest::decode(&mut Reader::new(&fetch.body), fetch.version).unwrap();
        let partitions: Vec<_> =
            request.topics.iter().flat_map(|it| &it.partitions).map(|it| it.partition).collect();
        assert_eq!(request.session_epoch, i32::try_from(number).unwrap());
        assert!(request.forgotten_topics_data.is_empty());
        named.push(partitions);
    }
    named.retain(|partitions| !partitions.is_empty());
    assert_eq!(named.first().unwrap().len(), 3);
    assert!(named[1..].iter().all(|partitions| *partitions == [1]), "{named:?}");
}

/// Broker 0 has records on its own, then broker 1 leads and appends these batches of so many
/// records. The leader deletes what is below `start` before broker 0 follows it.
fn deleted_past_the_divergence(own: i64, batches: &[usize], start: i64) -> Pair {
    let mut pair = Pair::new(1, Made::default());
    pair.nodes[0].client().produce(0, &batch(&[b"on both"])).unwrap();
    pair.agree(1);
    pair.nodes[1].lead_by(1, 1, 1);
    for _ in 0..own {
        pair.nodes[0].client().produce(0, &batch(&[b"on the first only"])).unwrap();
    }
    for records in batches {
        let values = vec![b"on the second".as_slice(); *records];
        pair.nodes[1].client().produce(0, &batch(&values)).unwrap();
    }
    let leader = pair.nodes[1].partition(0);
    leader.log.raise_high_watermark(leader.log.log_end_offset());
    leader.log.delete_records(Offset(start)).unwrap();
    pair.epoch = 1;
    pair.elect(1);
    pair
}

#[test]
fn a_follower_rejoins_whose_leader_deleted_past_where_they_diverge_within_a_batch() {
    let pair = deleted_past_the_divergence(4, &[5, 1], 3);
    pair.agree(7);
    pair.nodes[1].client().produce(0, &batch(&[b"after it"])).unwrap();
    pair.agree(8);
}

#[test]
fn a_follower_keeps_no_record_that_its_leader_deleted_and_never_had() {
    let pair = deleted_past_the_divergence(2, &[2, 3], 3);
    pair.agree(6);
    let segments = pair.nodes[0].partition(0).log.segment_summaries().unwrap();
    let first = segments[0].base_offset;
    assert_eq!(first, Offset(3), "a crash may forget the log start, not the segments");
}

#[test]
fn a_follower_below_its_leaders_start_begins_there() {
    let log = LogConfig { segment_bytes: 6000, ..LogConfig::default() };
    let mut pair = Pair::new(1, Made { log, ..Made::default() });
    let mut client = pair.nodes[0].client();
    client.produce(0, &batch(&[b"copied"])).unwrap();
    pair.agree(1);
    pair.cut_off(true);
    for _ in 0..10 {
        client.produce(0, &batch(&[[b'x'; 400].as_slice(); 10])).unwrap();
    }
    let leader = pair.nodes[0].partition(0);
    leader.log.raise_high_watermark(leader.log.log_end_offset());
    // In the middle of a batch.
    leader.log.delete_records(Offset(56)).unwrap();
    leader.log.drop_segments_below(Offset(56)).unwrap();
    pair.cut_off(false);
    client.produce(0, &batch(&[b"the last"])).unwrap();
    let starts = || pair.nodes.each_ref().map(|it| it.partition(0).log.log_start_offset().0);
    until(|| starts() == [56, 56], || format!("{:?}", starts()));
    pair.agree(102);
    pair.elect(1);
    pair.nodes[1].client().produce(0, &batch(&[b"of the new leader"])).unwrap();
    pair.agree(103);
}
