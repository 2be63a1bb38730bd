//! A leader sends a consumer that names its rack to an in-sync follower there (KIP-392).

use krust::broker::image::{BrokerImage, Endpoint};
use krust::broker::{MetadataDelta, ReplicaSelector, Settings};
use krust::protocol::value::Value;

use crate::double::{Conn, TestBroker, map};
use crate::racks::{ConsumerFetch, PartitionRead, racks};
use crate::records::{batch, put, values};
use crate::replicas::{FollowerFetch, LAG_MS, PartitionAssignment};

const WEST: ConsumerFetch = ConsumerFetch {
    version: 17,
    rack: "west",
    offset: 0,
    leader_epoch: crate::replicas::EPOCH,
    max_wait_ms: 0,
    read_committed: false,
    session: (0, -1),
    names: true,
    forgets: false,
};

/// A leader in `east`, followers 1 and 2 in `west`; three records are committed.
fn leader(replica_selector: ReplicaSelector) -> (TestBroker, Conn) {
    let mut fixture = TestBroker::with(Settings {
        inter_broker_listener: Some("PLAINTEXT".into()),
        replica_lag_time_max_ms: LAG_MS,
        replica_selector,
        ..Settings::default()
    });
    racks(&mut fixture, &[(0, "east"), (1, "west"), (2, "west")]);
    PartitionAssignment::default().to(&mut fixture);
    let mut conn = fixture.connect();
    assert_eq!(put(&mut fixture, &mut conn, (9, 1, &batch(&["a", "b", "c"]))), (0, 0));
    for follower in [1, 2] {
        FollowerFetch::at(follower, 3).ask(&mut fixture, &mut conn);
    }
    fixture.events();
    (fixture, conn)
}

fn sent_to(read: &PartitionRead) -> i32 {
    assert_eq!((read.error, read.high_watermark), (0, 3));
    assert_eq!(read.bytes.is_empty(), read.preferred >= 0, "records, or another replica");
    read.preferred
}

#[test]
fn a_consumer_is_sent_to_the_follower_in_its_rack_at_once() {
    let (mut fixture, mut conn) = leader(ReplicaSelector::RackAware);
    for version in [11, 12, 13, 17, 18] {
        for offset in [0, 3] {
            let fetch = ConsumerFetch { version, offset, max_wait_ms: 60_000, ..WEST };
            let read = fetch.ask(&mut fixture, &mut conn);
            assert_eq!((sent_to(&read), read.aborted), (2, None));
        }
    }
}

#[test]
fn a_consumer_reads_the_leader_unless_a_follower_is_nearer() {
    let (mut fixture, mut conn) = leader(ReplicaSelector::RackAware);
    for rack in ["", "east", "north"] {
        let read = ConsumerFetch { rack, ..WEST }.ask(&mut fixture, &mut conn);
        assert_eq!((sent_to(&read), values(&read.bytes).len()), (-1, 3), "{rack}");
    }
    let old = ConsumerFetch { version: 10, ..WEST };
    assert_eq!(sent_to(&old.ask(&mut fixture, &mut conn)), -1);
    let (mut fixture, mut conn) = leader(ReplicaSelector::Leader);
    assert_eq!(sent_to(&WEST.ask(&mut fixture, &mut conn)), -1);
    let tool = FollowerFetch { leader_epoch: -1, ..FollowerFetch::at(-2, 0) };
    assert!(tool.ask(&mut fixture, &mut conn).bytes > 0);
}

#[test]
fn the_follower_that_is_caught_up_best_is_named() {
    let (mut fixture, mut conn) = leader(ReplicaSelector::RackAware);
    assert_eq!(put(&mut fixture, &mut conn, (9, 1, &batch(&["d"]))), (0, 3));
    fixture.clock.advance(1);
    FollowerFetch::at(1, 4).ask(&mut fixture, &mut conn);
    assert_eq!(sent_to(&WEST.ask(&mut fixture, &mut conn)), 1, "its log ends later");
    FollowerFetch::at(2, 4).ask(&mut fixture, &mut conn);
    fixture.clock.advance(1);
    FollowerFetch::at(1, 4).ask(&mut fixture, &mut conn);
    assert_eq!(WEST.ask(&mut fixture, &mut conn).preferred, 1, "it was caught up later");
}

#[test]
fn a_follower_that_lacks_the_offset_is_not_named() {
    let (mut fixture, mut conn) = leader(ReplicaSelector::RackAware);
    for follower in [1, 2] {
        let fetch = FollowerFetch { log_start: 2, ..FollowerFetch::at(follower, 3) };
        fetch.ask(&mut fixture, &mut conn);
    }
    for (offset, named) in [(0, -1), (1, -1), (2, 2), (3, 2)] {
        let read = ConsumerFetch { offset, ..WEST }.ask(&mut fixture, &mut conn);
        assert_eq!(read.preferred, named, "{offset}");
    }
    let beyond = ConsumerFetch { offset: 4, ..WEST }.ask(&mut fixture, &mut conn);
    assert_eq!((beyond.error, beyond.preferred), (1, -1));
}

#[test]
fn a_follower_out_of_sync_dead_or_out_of_reach_is_not_named() {
    let (mut fixture, mut conn) = leader(ReplicaSelector::RackAware);
    PartitionAssignment { partition_epoch: 8, isr: vec![0, 1], ..PartitionAssignment::default() }
        .to(&mut fixture);
    assert_eq!(sent_to(&WEST.ask(&mut fixture, &mut conn)), 1);
    racks(&mut fixture, &[(0, "east"), (2, "west")]);
    assert_eq!(sent_to(&WEST.ask(&mut fixture, &mut conn)), -1);
    let broker = |id, rack: &str, listener: &str| BrokerImage {
        id,
        rack: Some(rack.into()),
        endpoints: vec![Endpoint { listener: listener.into(), host: "far".into(), port: 9092 }],
    };
    let brokers = vec![broker(0, "east", "PLAINTEXT"), broker(1, "west", "OTHER")];
    fixture.apply(MetadataDelta { brokers: Some(brokers), ..MetadataDelta::default() });
    assert_eq!(sent_to(&WEST.ask(&mut fixture, &mut conn)), -1);
}

#[test]
fn other_leader_epochs_are_fenced_before_a_follower_is_named() {
    let (mut fixture, mut conn) = leader(ReplicaSelector::RackAware);
    for (leader_epoch, error) in
        [(crate::replicas::EPOCH - 1, 74), (crate::replicas::EPOCH + 1, 75)]
    {
        let read = ConsumerFetch { leader_epoch, ..WEST }.ask(&mut fixture, &mut conn);
        assert_eq!((read.error, read.preferred), (error, -1));
    }
}

#[test]
fn a_session_names_the_follower_until_the_consumer_takes_the_partition_out() {
    let (mut fixture, mut conn) = leader(ReplicaSelector::RackAware);
    let begin = ConsumerFetch { session: (0, 0), offset: 3, ..WEST };
    let reply = fixture.ask(&mut conn, &begin.frame());
    let (session, read) = begin.read(&reply);
    assert_eq!(read.unwrap().preferred, 2);
    let again = ConsumerFetch { session: (session, 1), names: false, ..begin };
    let reply = fixture.ask(&mut conn, &again.frame());
    assert_eq!(again.read(&reply).1.unwrap().preferred, 2);
    let forget = ConsumerFetch { session: (session, 2), forgets: true, ..again };
    let reply = fixture.ask(&mut conn, &forget.frame());
    assert_eq!(forget.read(&reply), (session, None));
}

#[test]
fn a_waiting_consumer_is_sent_on_when_a_follower_in_its_rack_is_in_sync() {
    let (mut fixture, mut conn) = leader(ReplicaSelector::RackAware);
    PartitionAssignment { partition_epoch: 8, isr: vec![0], ..PartitionAssignment::default() }
        .to(&mut fixture);
    let fetch = ConsumerFetch { offset: 3, max_wait_ms: 60_000, ..WEST };
    fetch.begin(&mut fixture, &mut conn);
    PartitionAssignment { partition_epoch: 9, isr: vec![0, 1], ..PartitionAssignment::default() }
        .to(&mut fixture);
    assert_eq!(fetch.end(&mut fixture, &mut conn).preferred, 1);
}

/// The questions for the user's selector, and the ticket.
fn questions(fixture: &TestBroker) -> (krust::broker::Ticket, Vec<Value>) {
    let mut asked: Vec<_> =
        fixture.events().into_iter().filter(|event| event.api == "SelectReplicas").collect();
    assert_eq!(asked.len(), 1, "{asked:?}");
    let event = asked.remove(0);
    let Some(Value::List(questions)) = event.request.field("selections") else { panic!() };
    (event.ticket, questions.clone())
}

fn answer(fixture: &TestBroker, ticket: krust::broker::Ticket, replicas: &[i64]) {
    let replicas = replicas.iter().map(|id| Value::Int(*id)).collect();
    let response = map(vec![("selections", Value::List(replicas))]);
    fixture.broker.answer(ticket, &response).unwrap();
}

#[test]
fn a_users_selector_is_asked_once_and_until_then_the_leader_is_read() {
    let (mut fixture, mut conn) = leader(ReplicaSelector::UserClass);
    assert_eq!(sent_to(&ConsumerFetch { rack: "", ..WEST }.ask(&mut fixture, &mut conn)), -1);
    assert!(fixture.events().is_empty(), "a consumer without a rack");
    for _ in 0..3 {
        assert_eq!(sent_to(&WEST.ask(&mut fixture, &mut conn)), -1);
    }
    let (ticket, asked) = questions(&fixture);
    let ids = |ids: &[i64]| Value::List(ids.iter().map(|id| Value::Int(*id)).collect());
    let wanted = map(vec![
        ("topic", Value::Str("orders".into())),
        ("partition", Value::Int(0)),
        ("rack", Value::Str("west".into())),
        ("isr", ids(&[0, 1, 2])),
        ("replicas", ids(&[0, 1, 2])),
    ]);
    assert_eq!(asked, [wanted]);
    answer(&fixture, ticket, &[1]);
    for _ in 0..3 {
        assert_eq!(sent_to(&WEST.ask(&mut fixture, &mut conn)), 1);
    }
    assert!(fixture.events().is_empty());
}

#[test]
fn a_users_selector_is_asked_again_when_the_in_sync_set_or_the_brokers_change() {
    let (mut fixture, mut conn) = leader(ReplicaSelector::UserClass);
    let mut ask = |fixture: &mut TestBroker, named| {
        assert_eq!(sent_to(&WEST.ask(fixture, &mut conn)), -1);
        let (ticket, _) = questions(fixture);
        answer(fixture, ticket, &[named]);
        WEST.ask(fixture, &mut conn).preferred
    };
    assert_eq!(ask(&mut fixture, 1), 1);
    PartitionAssignment { partition_epoch: 8, isr: vec![0, 2], ..PartitionAssignment::default() }
        .to(&mut fixture);
    assert_eq!(ask(&mut fixture, 2), 2);
    racks(&mut fixture, &[(0, "east"), (1, "west"), (2, "far west")]);
    assert_eq!(ask(&mut fixture, 2), 2);
}

#[test]
fn a_choice_that_cannot_be_read_means_the_leader() {
    for chosen in [-1, 0, 1, 7, i64::MAX] {
        let (mut fixture, mut conn) = leader(ReplicaSelector::UserClass);
        PartitionAssignment {
            partition_epoch: 8,
            isr: vec![0, 2],
            ..PartitionAssignment::default()
        }
        .to(&mut fixture);
        WEST.ask(&mut fixture, &mut conn);
        let (ticket, _) = questions(&fixture);
        answer(&fixture, ticket, &[chosen]);
        assert_eq!(sent_to(&WEST.ask(&mut fixture, &mut conn)), -1, "{chosen}");
    }
}

#[test]
fn questions_about_many_racks_are_bounded() {
    let (mut fixture, mut conn) = leader(ReplicaSelector::UserClass);
    let rack = |number: usize| -> &'static str { Box::leak(format!("r{number}").into_boxed_str()) };
    for number in 0..3000 {
        ConsumerFetch { rack: rack(number), ..WEST }.ask(&mut fixture, &mut conn);
    }
    let mut asked = 0;
    while let Some(event) = fixture.events().pop() {
        let Some(Value::List(questions)) = event.request.field("selections") else { panic!() };
        assert!(questions.len() <= 200);
        asked += questions.len();
        answer(&fixture, event.ticket, &vec![1; questions.len()]);
    }
    assert_eq!(asked, 1001, "the first is on its way, a thousand wait");
    let long = ConsumerFetch { rack: Box::leak("x".repeat(256).into_boxed_str()), ..WEST };
    long.ask(&mut fixture, &mut conn);
    assert!(fixture.events().is_empty());
}
