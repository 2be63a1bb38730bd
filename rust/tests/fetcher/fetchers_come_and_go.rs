//! The fetchers' threads: one that waits does not delay the others, and all end promptly.

use std::sync::Arc;
use std::time::{Duration, Instant};

use krust::broker::replica::follower::LeaderAnswer;
use krust::broker::{AnsweredRequest, FollowerStep};
use krust::ids::{Epoch, Offset};
use krust::storage::LogConfig;
use krust::storage::files::RealDisk;

use crate::double::{FaultyDisk, Made, MeetingDisk, Pair, batch, closed_port, until};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;
/// How long a leader may wait in these tests. What ends earlier did not wait for it.
const LONG: Duration = Duration::from_secs(50);
/// Much less than that, and much for a busy machine.
const SHORT: Duration = Duration::from_secs(20);

/// Fetches that wait long for records.
fn patient() -> Made {
    let mut made = Made::default();
    made.fetchers.wait_max_ms = LONG.as_millis() as i32;
    made
}

#[test]
fn a_broker_closes_while_its_fetch_waits() {
    let mut pair = Pair::new(1, patient());
    pair.nodes[0].client().produce(0, &batch(&[b"a"])).unwrap();
    pair.agree(1);
    let start = Instant::now();
    pair.nodes[1].close();
    assert!(start.elapsed() < SHORT, "{:?}", start.elapsed());
    assert_eq!(pair.nodes[1].fetchers.threads(), 0);
}

#[test]
fn a_new_partition_does_not_wait_for_the_others() {
    let mut pair = Pair::new(1, patient());
    pair.nodes[0].client().produce(0, &batch(&[b"a"])).unwrap();
    pair.agree(1);
    pair.nodes[0].lead_by(0, 0, 2);
    pair.nodes[0].client().produce(1, &batch(&[b"b"])).unwrap();
    let start = Instant::now();
    pair.nodes[1].lead_by(0, 0, 2);
    pair.partitions = 2;
    pair.agree(2);
    assert!(start.elapsed() < SHORT, "{:?}", start.elapsed());
}

#[test]
fn a_dead_leader_holds_up_its_own_partitions_alone() {
    let mut pair = Pair::new(0, Made::default());
    let ports = pair.nodes.each_ref().map(|node| node.port());
    pair.nodes[1].meet(&[(0, ports[0]), (1, ports[1]), (2, closed_port())]);
    pair.nodes[0].assign([(0, 0, 0), (1, 2, 0), (2, 0, 0)]);
    pair.nodes[1].assign([(0, 0, 0), (1, 2, 0), (2, 0, 0)]);
    let mut client = pair.nodes[0].client();
    for round in 0..5 {
        client.produce(0, &batch(&[b"a"])).unwrap();
        client.produce(2, &batch(&[b"b"])).unwrap();
        let ends = || [0, 2].map(|number| pair.nodes[1].end(number));
        until(|| ends() == [round + 1; 2], || format!("{:?}", ends()));
    }
    assert_eq!(pair.nodes[1].fetchers.threads(), 2);
}

#[test]
fn a_leader_that_comes_back_is_followed_again() {
    let mut pair = Pair::new(2, Made::default());
    pair.nodes[0].client().produce(0, &batch(&[b"a"])).unwrap();
    pair.agree(1);
    for round in 2..5 {
        let [leader, follower] = pair.nodes;
        pair.nodes = [leader.again(), follower];
        let ports = pair.nodes.each_ref().map(|node| node.port());
        pair.nodes[0].meet(&[(0, ports[0]), (1, ports[1])]);
        pair.nodes[0].lead_by(0, pair.epoch, 2);
        pair.nodes[0].client().produce(1, &batch(&[b"b"])).unwrap();
        pair.agree(round);
    }
}

#[test]
fn a_leader_is_followed_to_another_port() {
    let mut pair = Pair::new(1, Made::default());
    pair.cut_off(true); // the fetch that is on its way to the old port may still be answered
    pair.meet_at(closed_port());
    pair.nodes[0].client().produce(0, &batch(&[b"a"])).unwrap();
    let threads = || pair.nodes[1].fetchers.threads();
    assert_eq!((threads(), pair.nodes[1].end(0)), (1, 0));
    pair.cut_off(false);
    pair.meet();
    pair.agree(1);
}

#[test]
fn threads_end_with_the_last_partition() {
    let mut pair = Pair::new(4, Made::default());
    assert_eq!(pair.nodes.each_ref().map(|node| node.fetchers.threads()), [0, 1]);
    pair.elect(1);
    assert_eq!(pair.nodes.each_ref().map(|node| node.fetchers.threads()), [1, 0]);
    pair.elect(-1);
    assert_eq!(pair.nodes.each_ref().map(|node| node.fetchers.threads()), [0, 0]);
    pair.elect(0);
    pair.nodes[0].client().produce(3, &batch(&[b"a"])).unwrap();
    pair.agree(1);
}

#[test]
fn the_number_of_threads_changes_while_they_run() {
    let pair = Pair::new(6, Made::default());
    let mut client = pair.nodes[0].client();
    for (round, threads) in [(1, 3), (2, 1), (3, 2)] {
        pair.nodes[1].set(|settings| settings.fetchers.threads = threads);
        assert_eq!(pair.nodes[1].fetchers.threads(), threads);
        for number in 0..6 {
            client.produce(number, &batch(&[b"a"])).unwrap();
        }
        pair.agree(6 * round);
    }
}

/// A pair whose follower reaches nobody, so that the test can answer in the leader's place.
fn unreached(log: LogConfig) -> Pair {
    let mut pair = Pair::new(1, Made { log, ..Made::default() });
    pair.meet_at(closed_port());
    pair.cut_off(true);
    pair.nodes[0].client().produce(0, &batch(&[b"a", b"b"])).unwrap();
    pair
}

#[test]
fn a_late_answer_of_an_earlier_epoch_has_no_effect() {
    let mut pair = unreached(LogConfig::default());
    let records = pair.nodes[0].bytes(0);
    let partition = pair.nodes[1].partition(0);
    let request = partition.follower_request(Epoch(0), &*pair.nodes[1].broker).unwrap().unwrap();
    let answer = LeaderAnswer::Fetched { high_watermark: Offset(2), log_start: Offset(0) };
    let answered = AnsweredRequest { request, answer, records: &records };
    let waker = &*pair.nodes[1].broker.clone();

    pair.epoch = 1;
    pair.nodes[1].lead_by(0, 1, 1);
    assert_eq!(
        partition.follower_request(Epoch(0), &*pair.nodes[1].broker).unwrap(),
        None,
        "the epoch is over"
    );
    assert_eq!(partition.leader_answered(&answered, waker).unwrap(), FollowerStep::Next);
    assert_eq!(pair.nodes[1].end(0), 0);

    pair.nodes[1].lead_by(1, 2, 1);
    assert_eq!(partition.leader_answered(&answered, waker).unwrap(), FollowerStep::End);
    assert_eq!(pair.nodes[1].end(0), 0);

    pair.nodes[1].lead_by(0, 3, 1);
    let request = partition.follower_request(Epoch(3), &*pair.nodes[1].broker).unwrap().unwrap();
    let answered = AnsweredRequest { request, answer, records: &records };
    assert_eq!(partition.leader_answered(&answered, waker).unwrap(), FollowerStep::Next);
    assert_eq!(pair.nodes[1].end(0), 2);
    assert_eq!(partition.leader_answered(&answered, waker).unwrap(), FollowerStep::Next);
    assert_eq!(pair.nodes[1].end(0), 2, "the same answer again");
}

#[test]
fn a_log_end_is_on_disk_before_it_is_reported() {
    let pair = unreached(LogConfig { ack_flush: true, ..LogConfig::default() });
    let records = pair.nodes[0].bytes(0);
    let partition = pair.nodes[1].partition(0);
    for round in 0..20 {
        let request =
            partition.follower_request(Epoch(0), &*pair.nodes[1].broker).unwrap().unwrap();
        let answer = LeaderAnswer::Fetched { high_watermark: Offset(1), log_start: Offset(0) };
        let answered = AnsweredRequest { request, answer, records: &records };
        partition.leader_answered(&answered, &*pair.nodes[1].broker).unwrap();
        partition.follower_request(Epoch(0), &*pair.nodes[1].broker).unwrap().unwrap();
        assert_eq!(partition.log.flushed_offset(), Offset(2), "{round}");
        assert_eq!(partition.log.high_watermark(), Offset(1), "{round}");
        partition.log.truncate_to(Offset(0)).unwrap();
    }
}

#[test]
fn the_partitions_of_a_follower_are_synced_at_the_same_time() {
    let disk = Arc::<MeetingDisk>::default();
    let log = LogConfig { ack_flush: true, ..LogConfig::default() };
    let second = Made { log, disks: vec![Arc::clone(&disk) as _], ..Made::default() };
    let pair = Pair::with(8, [Made::default(), second]);
    pair.cut_off(true);
    for number in 0..8 {
        pair.nodes[0].client().produce(number, &batch(&[b"a"])).unwrap();
    }
    disk.start();
    pair.cut_off(false);
    pair.agree(8);
    let flushed = || (0..8).all(|it| pair.nodes[1].partition(it).log.flushed_offset() == Offset(1));
    until(flushed, || "not all is flushed".to_owned());
    assert!(disk.have_met());
}

#[test]
fn a_full_disk_delays_a_follower() {
    let disk = Arc::<FaultyDisk>::default();
    let second = Made { disks: vec![Arc::clone(&disk) as _], ..Made::default() };
    let pair = Pair::with(2, [Made::default(), second]);
    let mut client = pair.nodes[0].client();
    client.produce(0, &batch(&[b"a"])).unwrap();
    pair.agree(1);
    disk.refuse(ENOSPC, 4);
    client.produce(0, &batch(&[b"b"])).unwrap();
    client.produce(1, &batch(&[b"c"])).unwrap();
    pair.agree(3);
    assert!(disk.is_healed());
}

#[test]
fn a_broken_disk_stops_its_own_partitions_alone() {
    let broken = Arc::<FaultyDisk>::default();
    let disks: Vec<Arc<dyn krust::storage::files::Disk>> =
        vec![Arc::clone(&broken) as _, Arc::new(RealDisk)];
    let pair = Pair::with(4, [Made::default(), Made { disks, ..Made::default() }]);
    let is_broken = |number: i32| {
        pair.nodes[1].partition(number).log.dir().path() == pair.nodes[1].dirs[0].path()
    };
    let (lost, kept): (Vec<i32>, Vec<i32>) = (0..4).partition(|number| is_broken(*number));
    assert_eq!((lost.len(), kept.len()), (2, 2));
    broken.refuse(EIO, usize::MAX);
    let mut client = pair.nodes[0].client();
    for round in 1..4 {
        for number in 0..4 {
            client.produce(number, &batch(&[b"a"])).unwrap();
        }
        let ends = || kept.iter().map(|number| pair.nodes[1].end(*number)).collect::<Vec<_>>();
        until(|| ends() == [round; 2], || format!("{:?}", ends()));
    }
    until(|| pair.nodes[1].dirs[0].is_offline(), || "the directory is online".to_owned());
    assert_eq!(pair.nodes[1].broker.failed_thread(), None);
}

#[test]
fn a_panic_of_a_fetcher_is_noticed() {
    let disk = Arc::<FaultyDisk>::default();
    let second = Made { disks: vec![Arc::clone(&disk) as _], ..Made::default() };
    let pair = Pair::with(1, [Made::default(), second]);
    let failed = || pair.nodes[1].broker.failed_thread();
    assert_eq!(failed(), None);
    disk.panic();
    pair.nodes[0].client().produce(0, &batch(&[b"a"])).unwrap();
    until(|| failed() == Some("fetcher"), || format!("{:?}", failed()));
}
