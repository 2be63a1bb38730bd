//! TxnOffsetCommit: offsets count from the commit of their transaction on.

use krust::broker::transactions::transaction::ProducerIdentity;
use krust::broker::{GroupKind, GroupRecord, GroupState, MemberRole};
use krust::ids::TopicId;
use krust::protocol::offset_delete::{
    OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use krust::protocol::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use krust::protocol::txn_offset_commit::{
    TxnOffsetCommitRequest, TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
};
use krust::wire::Reader;

use crate::double::{Conn, Frame, TestBroker, frame, until};
use crate::groups::{
    GROUP, GROUPS, ask, commit, committed, fetched, groups_topic, offsets, wait_until_loaded,
};
use crate::members::{GENERATION, MEMBER, STATIC, member, publish, publish_row, row};
use crate::records::TOPIC;
use crate::transactions::{
    self, ID, ended, last_state, offsets_added, producer, wait_until_complete,
};

const WEEK_MS: i64 = 7 * 24 * 3_600_000;

fn fixture() -> TestBroker {
    let mut fixture = TestBroker::new();
    create_topics(&mut fixture);
    fixture
}

fn create_topics(fixture: &mut TestBroker) {
    transactions::create_topics(fixture);
    fixture.topic(GROUPS, groups_topic());
    wait_until_loaded(fixture);
}

/// A member's id, instance id and generation.
type Member<'a> = (&'a str, Option<&'a str>, i32);

/// A commit of offsets of [`TOPIC`] for [`GROUP`], by a member.
fn commit_of(
    version: i16,
    producer: ProducerIdentity,
    (member, wanted): (Member<'_>, &[(i32, i64)]),
) -> Frame {
    let partitions =
        wanted.iter().map(|&(partition_index, committed_offset)| TxnOffsetCommitRequestPartition {
            partition_index,
            committed_offset,
            committed_leader_epoch: -1,
            committed_metadata: None,
        });
    let request = TxnOffsetCommitRequest {
        transactional_id: ID.0,
        group_id: GROUP.0,
        producer_id: producer.id,
        producer_epoch: producer.epoch,
        member_id: member.0,
        group_instance_id: member.1,
        generation_id: member.2,
        topics: vec![TxnOffsetCommitRequestTopic { name: TOPIC, partitions: partitions.collect() }],
    };
    frame(28, version, |writer, version| request.encode(writer, version))
}

/// The same without a member.
fn plain(version: i16, producer: ProducerIdentity, wanted: &[(i32, i64)]) -> Frame {
    commit_of(version, producer, (("", None, -1), wanted))
}

fn codes(fixture: &mut TestBroker, conn: &mut Conn, request: &Frame) -> Vec<i16> {
    let reply = fixture.ask(conn, request);
    let response = TxnOffsetCommitResponse::decode(&mut Reader::new(&reply), request.version);
    let response = response.unwrap();
    let partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
    partitions.map(|partition| partition.error_code).collect()
}

/// A producer whose transaction has the partition of [`GROUP`].
fn producer_with_group_partition(fixture: &mut TestBroker, conn: &mut Conn) -> ProducerIdentity {
    let producer = producer(fixture, conn, ID.0);
    assert_eq!(offsets_added(fixture, conn, (3, ID.0, producer, GROUP.0)), 0);
    producer
}

fn end(fixture: &mut TestBroker, conn: &mut Conn, producer: ProducerIdentity, commit: bool) {
    assert_eq!(ended(fixture, conn, (3, ID.0, producer, commit)).0, 0);
    wait_until_complete(fixture);
}

/// The committed offsets of [`GROUP`].
fn now(fixture: &mut TestBroker, conn: &mut Conn) -> Vec<(i32, i64)> {
    let (code, rows) = ask(fixture, conn, (8, GROUP.0, None));
    assert_eq!(code, 0);
    offsets(&rows)
}

/// A fetch of stable offsets: partition, offset and error of each row.
fn stable(
    fixture: &mut TestBroker,
    conn: &mut Conn,
    (version, partitions): (i16, Option<&[i32]>),
) -> Vec<(i32, i64, i16)> {
    let (name, topic_id) = (TOPIC, TopicId([1; 16]));
    let group_id = GROUP.0;
    let request = if version < 8 {
        let topics = partitions.map(|indexes| {
            vec![OffsetFetchRequestTopic { name, partition_indexes: indexes.to_vec() }]
        });
        OffsetFetchRequest { group_id, topics, require_stable: true, ..Default::default() }
    } else {
        let topics = partitions.map(|indexes| {
            let partition_indexes = indexes.to_vec();
            vec![OffsetFetchRequestTopics { name, topic_id, partition_indexes }]
        });
        let groups = vec![OffsetFetchRequestGroup { group_id, topics, ..Default::default() }];
        OffsetFetchRequest { groups, require_stable: true, ..Default::default() }
    };
    let request = frame(9, version, |writer, version| request.encode(writer, version));
    let reply = fixture.ask(conn, &request);
    let (code, rows) = fetched(version, &reply);
    assert_eq!(code, 0);
    rows.iter().map(|row| (row.1, row.2, row.5)).collect()
}

#[test]
fn offsets_apply_when_their_transaction_commits_and_are_dropped_when_it_aborts() {
    for version in 0..=5 {
        for commit in [true, false] {
            let mut fixture = fixture();
            let mut conn = fixture.connect();
            let producer = producer_with_group_partition(&mut fixture, &mut conn);
            let request = plain(version, producer, &[(0, 10), (2, 12)]);
            assert_eq!(codes(&mut fixture, &mut conn, &request), [0, 0]);
            let request = plain(version, producer, &[(0, 11)]);
            assert_eq!(codes(&mut fixture, &mut conn, &request), [0]);
            assert_eq!(now(&mut fixture, &mut conn), []);
            end(&mut fixture, &mut conn, producer, commit);
            let wanted = if commit { vec![(0, 11), (2, 12)] } else { vec![] };
            assert_eq!(now(&mut fixture, &mut conn), wanted, "v{version}");
        }
    }
}

#[test]
fn version_5_adds_the_groups_partition_itself() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    let producer = producer(&mut fixture, &mut conn, ID.0);
    for version in 0..=4 {
        let code = if version < 4 { 48 } else { 120 };
        let request = plain(version, producer, &[(0, 1)]);
        assert_eq!(codes(&mut fixture, &mut conn, &request), [code], "v{version}");
    }
    assert_eq!(codes(&mut fixture, &mut conn, &plain(5, producer, &[(0, 1)])), [0]);
    let (code, next) = ended(&mut fixture, &mut conn, (5, ID.0, producer, true));
    assert_eq!((code, next.epoch), (0, 1));
    wait_until_complete(&fixture);
    assert_eq!(now(&mut fixture, &mut conn), [(0, 1)]);
    assert_eq!(codes(&mut fixture, &mut conn, &plain(5, producer, &[(0, 9)])), [47], "late");
    assert_eq!(codes(&mut fixture, &mut conn, &plain(5, next, &[(0, 2)])), [0]);
}

#[test]
fn offsets_that_may_change_soon_are_unstable_for_who_asks() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    committed(&mut fixture, &mut conn, &commit(8, GROUP.0, &[(0, 5, -1, None), (1, 6, -1, None)]));
    let producer = producer_with_group_partition(&mut fixture, &mut conn);
    codes(&mut fixture, &mut conn, &plain(3, producer, &[(0, 10), (2, 12)]));
    assert_eq!(now(&mut fixture, &mut conn), [(0, 5), (1, 6)]);
    for version in 7..=10 {
        let wanted = [(0, -1, 88), (1, 6, 0), (2, -1, 88)];
        let asked = (version, Some([0, 1, 2].as_slice()));
        assert_eq!(stable(&mut fixture, &mut conn, asked), wanted);
        assert_eq!(stable(&mut fixture, &mut conn, (version, None)), [(0, -1, 88), (1, 6, 0)]);
    }
    end(&mut fixture, &mut conn, producer, true);
    let wanted = [(0, 10, 0), (1, 6, 0), (2, 12, 0)];
    assert_eq!(stable(&mut fixture, &mut conn, (8, None)), wanted);
}

#[test]
fn a_commit_after_that_of_an_open_transaction_stays_the_newest() {
    for restarts in [false, true] {
        let mut fixture = fixture();
        let mut conn = fixture.connect();
        let producer = producer_with_group_partition(&mut fixture, &mut conn);
        codes(&mut fixture, &mut conn, &plain(3, producer, &[(0, 10), (1, 11)]));
        committed(&mut fixture, &mut conn, &commit(8, GROUP.0, &[(0, 3, -1, None)]));
        codes(&mut fixture, &mut conn, &plain(3, producer, &[(2, 12)]));
        end(&mut fixture, &mut conn, producer, true);
        if restarts {
            drop(conn);
            fixture = fixture.again();
            create_topics(&mut fixture);
            conn = fixture.connect();
        }
        assert_eq!(now(&mut fixture, &mut conn), [(0, 3), (1, 11), (2, 12)]);
    }
}

#[test]
fn pending_offsets_outlive_a_restart_and_end_with_their_transaction() {
    for commit in [true, false] {
        let mut fixture = fixture();
        let mut conn = fixture.connect();
        let producer = producer_with_group_partition(&mut fixture, &mut conn);
        codes(&mut fixture, &mut conn, &plain(3, producer, &[(0, 10)]));
        drop(conn);
        let mut fixture = fixture.again();
        create_topics(&mut fixture);
        let mut conn = fixture.connect();
        let asked = (8, Some([0].as_slice()));
        assert_eq!(stable(&mut fixture, &mut conn, asked), [(0, -1, 88)]);
        until("still loading", || {
            let (code, _) = ended(&mut fixture, &mut conn, (3, ID.0, producer, commit));
            assert!([0, 14].contains(&code), "{code}");
            code == 0
        });
        wait_until_complete(&fixture);
        let wanted = if commit { vec![(0, 10)] } else { vec![] };
        assert_eq!(now(&mut fixture, &mut conn), wanted);
    }
}

#[test]
fn a_member_is_fenced_by_generation_id_and_instance() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    let producer = producer_with_group_partition(&mut fixture, &mut conn);
    let mut check = |fixture: &mut TestBroker, member: (&str, Option<&str>, i32)| {
        codes(fixture, &mut conn, &commit_of(3, producer, (member, &[(0, 1)])))[0]
    };
    assert_eq!(check(&mut fixture, ("", None, 3)), 22, "there is no such group");
    for state in [GroupState::Stable, GroupState::CompletingRebalance] {
        publish(&fixture, state);
        assert_eq!(check(&mut fixture, (MEMBER, None, GENERATION)), 0);
        assert_eq!(check(&mut fixture, (STATIC.0, Some(STATIC.1), GENERATION)), 0);
        assert_eq!(check(&mut fixture, ("", None, -1)), 0, "it claims no membership");
        assert_eq!(check(&mut fixture, (MEMBER, None, GENERATION - 1)), 22);
        assert_eq!(check(&mut fixture, (MEMBER, None, -1)), 22);
        assert_eq!(check(&mut fixture, ("other", None, GENERATION)), 25);
        assert_eq!(check(&mut fixture, (MEMBER, Some("other"), GENERATION)), 25);
        assert_eq!(check(&mut fixture, (MEMBER, Some(STATIC.1), GENERATION)), 82);
    }
    publish_row(&fixture, Some(row(GroupState::Empty, vec![])));
    assert_eq!(check(&mut fixture, ("", None, -1)), 0);
    assert_eq!(check(&mut fixture, (MEMBER, None, GENERATION)), 25);
}

#[test]
fn a_member_of_a_consumer_group_is_fenced_by_its_epoch() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    let producer = producer_with_group_partition(&mut fixture, &mut conn);
    let mut snapshot = row(GroupState::Stable, vec![member(MEMBER)]);
    snapshot.kind = GroupKind::Consumer { heartbeat_interval_ms: 1000 };
    snapshot.members[0].role = MemberRole::Consumer { epoch: 4, has_current_assignment: true };
    publish_row(&fixture, Some(snapshot));
    for (member, code) in [
        ((MEMBER, None, 4), 0),
        ((MEMBER, None, 3), 22),
        (("other", None, 4), 25),
        (("", None, -1), 0),
    ] {
        let request = commit_of(3, producer, (member, &[(0, 1)]));
        assert_eq!(codes(&mut fixture, &mut conn, &request), [code]);
    }
}

#[test]
fn bad_partitions_and_groups_are_named() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    let producer = producer_with_group_partition(&mut fixture, &mut conn);
    let request = plain(3, producer, &[(0, 1), (9, 1)]);
    assert_eq!(codes(&mut fixture, &mut conn, &request), [0, 3]);
    let long = "x".repeat(5000);
    let partition =
        TxnOffsetCommitRequestPartition { committed_metadata: Some(&long), ..Default::default() };
    let topic = TxnOffsetCommitRequestTopic { name: TOPIC, partitions: vec![partition] };
    let ask = |group_id: &'static str, topics: Vec<TxnOffsetCommitRequestTopic<'_>>| {
        let request = TxnOffsetCommitRequest {
            transactional_id: ID.0,
            group_id,
            producer_id: producer.id,
            producer_epoch: producer.epoch,
            generation_id: -1,
            topics,
            ..Default::default()
        };
        frame(28, 3, |writer, version| request.encode(writer, version))
    };
    assert_eq!(codes(&mut fixture, &mut conn, &ask(GROUP.0, vec![topic.clone()])), [12]);
    assert_eq!(codes(&mut fixture, &mut conn, &ask("", vec![topic])), [24]);
    assert!(codes(&mut fixture, &mut conn, &ask(GROUP.0, vec![])).is_empty());
}

#[test]
fn a_broker_that_does_not_coordinate_the_group_says_so() {
    let mut fixture = TestBroker::new();
    transactions::create_topics(&mut fixture);
    let mut conn = fixture.connect();
    let producer = producer(&mut fixture, &mut conn, ID.0);
    for version in [0, 5] {
        assert_eq!(codes(&mut fixture, &mut conn, &plain(version, producer, &[(0, 1)])), [16]);
    }
}

#[test]
fn an_offset_does_not_expire_while_a_transaction_may_replace_it() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    committed(&mut fixture, &mut conn, &commit(8, GROUP.0, &[(0, 5, -1, None), (1, 6, -1, None)]));
    let producer = producer_with_group_partition(&mut fixture, &mut conn);
    codes(&mut fixture, &mut conn, &plain(3, producer, &[(0, 10)]));
    fixture.clock.advance(WEEK_MS);
    fixture.broker.expire_offsets();
    assert_eq!(now(&mut fixture, &mut conn), [(0, 5)]);
    assert!(fixture.events().is_empty(), "the group stays");
    end(&mut fixture, &mut conn, producer, false);
    fixture.broker.expire_offsets();
    assert_eq!(now(&mut fixture, &mut conn), []);
    assert_eq!(fixture.events().len(), 1);
}

#[test]
fn a_group_with_nothing_but_pending_offsets_does_not_expire() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    publish_row(&fixture, Some(row(GroupState::Empty, vec![])));
    let producer = producer_with_group_partition(&mut fixture, &mut conn);
    codes(&mut fixture, &mut conn, &plain(3, producer, &[(0, 10)]));
    fixture.clock.advance(2 * WEEK_MS);
    fixture.broker.expire_offsets();
    assert!(fixture.events().is_empty());
    assert_eq!(fixture.broker.groups_with_offsets(), [GROUP.0]);
}

#[test]
fn deleted_offsets_do_not_come_back_with_the_transaction() {
    for restarts in [false, true] {
        let mut fixture = fixture();
        let mut conn = fixture.connect();
        let producer = producer_with_group_partition(&mut fixture, &mut conn);
        codes(&mut fixture, &mut conn, &plain(3, producer, &[(0, 10), (1, 11)]));
        let partitions = vec![OffsetDeleteRequestPartition { partition_index: 0 }];
        let topics = vec![OffsetDeleteRequestTopic { name: TOPIC, partitions }];
        let request = OffsetDeleteRequest { group_id: GROUP.0, topics };
        let request = frame(47, 0, |writer, version| request.encode(writer, version));
        fixture.ask(&mut conn, &request);
        if restarts {
            drop(conn);
            fixture = fixture.again();
            create_topics(&mut fixture);
            conn = fixture.connect();
            until("still loading", || last_state(&fixture).is_some());
        }
        until("still loading", || {
            ended(&mut fixture, &mut conn, (3, ID.0, producer, true)).0 != 14
        });
        wait_until_complete(&fixture);
        assert_eq!(now(&mut fixture, &mut conn), [(1, 11)]);
    }
}

#[test]
fn a_deleted_group_does_not_come_back_with_the_transaction() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    let producer = producer_with_group_partition(&mut fixture, &mut conn);
    codes(&mut fixture, &mut conn, &plain(3, producer, &[(0, 10)]));
    assert!(fixture.broker.has_offsets(GROUP.0));
    fixture.broker.append_group_records(GROUP.0, &[GroupRecord::DropOffsets]).unwrap();
    assert!(!fixture.broker.has_offsets(GROUP.0));
    end(&mut fixture, &mut conn, producer, true);
    assert_eq!(now(&mut fixture, &mut conn), []);
}
