//! A group fetches exactly the offsets that it committed, at every version.

use krust::broker::{Flow, GroupRecord, Settings};
use krust::ids::TopicId;
use krust::protocol::ErrorCode;
use krust::protocol::offset_commit::OffsetCommitResponse;
use krust::protocol::offset_delete::{
    OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
};
use krust::storage::LogConfig;
use krust::wire::Reader;

use crate::double::{Frame, Made, TestBroker, frame, until};
use crate::groups::{
    GROUP, GROUPS, OffsetRow, ask, codes, commit, commit_as, committed, create_topics, fetch,
    fetched, fixture, groups_topic, offsets,
};
use crate::records::TOPIC;

fn row(partition: i32, offset: i64, epoch: i32, metadata: &str) -> OffsetRow {
    (TOPIC.into(), partition, offset, epoch, metadata.into(), 0)
}

#[test]
fn a_commit_is_fetched_at_every_version() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    for version in 1..=10 {
        let base = i64::from(version) * 100;
        let request =
            commit(version, GROUP.0, &[(0, base, 4, Some("meta")), (2, base + 1, 5, None)]);
        assert_eq!(committed(&mut fixture, &mut conn, &request), [0, 0], "v{version}");
        let epochs = if version >= 6 { (4, 5) } else { (-1, -1) };
        for asked in 1..=10 {
            let (first, second) = if asked >= 5 { epochs } else { (-1, -1) };
            let wanted =
                [row(0, base, first, "meta"), row(1, -1, -1, ""), row(2, base + 1, second, "")];
            let found = ask(&mut fixture, &mut conn, (asked, GROUP.0, Some(&[0, 1, 2])));
            assert_eq!(found, (0, wanted.to_vec()), "v{version}, asked at v{asked}");
            if asked >= 2 {
                let found = ask(&mut fixture, &mut conn, (asked, GROUP.0, None));
                assert_eq!(offsets(&found.1), [(0, base), (2, base + 1)]);
            }
        }
    }
}

#[test]
fn version_0_is_decided_by_the_policy() {
    let mut fixture = fixture();
    for request in [commit(0, GROUP.0, &[(0, 1, -1, None)]), fetch(0, GROUP.0, Some(&[0]))] {
        let mut conn = fixture.connect();
        fixture.event(&mut conn, std::slice::from_ref(&request.bytes));
        assert_eq!((conn.flow, conn.sent.len()), (Flow::Hold, 0));
        let event = fixture.events().remove(0);
        assert_eq!((event.version, event.request.field("topics").is_some()), (0, true));
    }
}

#[test]
fn other_groups_do_not_see_a_commit() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    committed(&mut fixture, &mut conn, &commit(8, GROUP.0, &[(0, 5, -1, None)]));
    assert_eq!(ask(&mut fixture, &mut conn, (8, "other", None)), (0, vec![]));
    let (error, rows) = ask(&mut fixture, &mut conn, (8, "other", Some(&[0])));
    assert_eq!((error, rows), (0, vec![row(0, -1, -1, "")]));
}

#[test]
fn a_partition_that_cannot_be_committed_is_refused_alone() {
    let mut fixture =
        TestBroker::with(Settings { offset_metadata_max_bytes: 10, ..Settings::default() });
    create_topics(&mut fixture);
    let mut conn = fixture.connect();
    let wanted = [
        (0, 1, -1, Some("ten bytes!")),
        (1, 2, -1, Some("eleven byte")),
        (7, 3, -1, None),
        (2, 4, -1, Some("ßßßßßßßßßß")),
    ];
    for version in 1..=10 {
        let request = commit(version, GROUP.0, &wanted);
        assert_eq!(committed(&mut fixture, &mut conn, &request), [0, 12, 3, 0]);
    }
    let (_, rows) = ask(&mut fixture, &mut conn, (9, GROUP.0, None));
    assert_eq!(offsets(&rows), [(0, 1), (2, 4)]);
    // The group's checks come before that of the metadata, and after that of the topic.
    for (version, refused) in [(8, 22), (9, 69)] {
        let request = commit_as(version, ("other", "m", 3), &wanted);
        let codes = committed(&mut fixture, &mut conn, &request);
        assert_eq!(codes, [refused, refused, 3, refused]);
    }
    let large = commit(8, GROUP.0, &wanted[1..2]);
    assert_eq!(committed(&mut fixture, &mut conn, &large), [12]);
}

#[test]
fn metadata_is_refused_where_a_record_cannot_hold_it_whatever_the_setting_says() {
    let settings = Settings { offset_metadata_max_bytes: 1 << 20, ..Settings::default() };
    let mut fixture = TestBroker::with(settings);
    create_topics(&mut fixture);
    let mut conn = fixture.connect();
    // A record counts bytes where the setting counts UTF-16 units: here half as many.
    let (most, large, wide) = ("x".repeat(32_767), "x".repeat(32_768), "ß".repeat(16_384));
    let wanted = [(0, 1, -1, Some(&*most)), (1, 2, -1, Some(&*large)), (2, 3, -1, Some(&*wide))];
    for version in 8..=10 {
        let request = commit(version, GROUP.0, &wanted);
        assert_eq!(committed(&mut fixture, &mut conn, &request), [0, 12, 12]);
    }
    let (_, rows) = ask(&mut fixture, &mut conn, (9, GROUP.0, None));
    assert_eq!(rows, [row(0, 1, -1, &most)]);
}

#[test]
fn a_group_id_is_refused_where_a_record_cannot_hold_it() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    let (most, large) = ("g".repeat(32_767), "g".repeat(32_768));
    for version in 8..=10 {
        for (group_id, code) in [(&most, 0), (&large, 24)] {
            let request = commit(version, group_id, &[(0, 1, -1, None)]);
            assert_eq!(committed(&mut fixture, &mut conn, &request), [code]);
        }
    }
    let append =
        |group_id| fixture.broker.append_group_records(group_id, &[GroupRecord::DropOffsets]);
    assert!(append(&most).is_ok());
    assert_eq!(append(&large).err(), Some(ErrorCode::InvalidGroupId));
}

#[test]
fn unknown_topics_are_refused_by_name_and_by_id() {
    let mut fixture = TestBroker::new();
    fixture.topic(GROUPS, groups_topic());
    let mut conn = fixture.connect();
    let request = commit(9, GROUP.0, &[(0, 1, -1, None)]);
    assert_eq!(committed(&mut fixture, &mut conn, &request), [3]);
    let request = commit(10, GROUP.0, &[(0, 1, -1, None)]);
    assert_eq!(committed(&mut fixture, &mut conn, &request), [100]);
    let (error, rows) = ask(&mut fixture, &mut conn, (10, GROUP.0, Some(&[0])));
    assert_eq!((error, rows[0].5), (0, 100));
}

#[test]
fn a_member_missing_from_the_snapshot_is_refused() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    for (version, code) in [(2, 22), (8, 22), (9, 69)] {
        let request = commit_as(version, (GROUP.0, "m", 3), &[(0, 1, -1, None)]);
        assert_eq!(committed(&mut fixture, &mut conn, &request), [code]);
    }
    assert_eq!(ask(&mut fixture, &mut conn, (9, GROUP.0, None)), (0, vec![]));
    committed(&mut fixture, &mut conn, &commit(8, GROUP.0, &[(0, 1, -1, None)]));
    for version in 1..=10 {
        let request = commit_as(version, (GROUP.0, "m", 3), &[(0, 1, -1, None)]);
        assert_eq!(committed(&mut fixture, &mut conn, &request), [25], "the group is there now");
    }
}

#[test]
fn without_the_offsets_topic_there_is_no_coordinator() {
    let mut fixture = TestBroker::new();
    fixture.topic(TOPIC, Made { partitions: 3, ..Made::default() });
    let mut conn = fixture.connect();
    for version in 1..=10 {
        let request = commit(version, GROUP.0, &[(0, 1, -1, None)]);
        assert_eq!(committed(&mut fixture, &mut conn, &request), [16]);
        let (error, rows) = ask(&mut fixture, &mut conn, (version, GROUP.0, Some(&[0])));
        match version {
            1 => assert_eq!((error, rows[0].5), (0, 16)),
            _ => assert_eq!((error, rows.len()), (16, 0)),
        }
    }
}

#[test]
fn an_empty_commit_is_accepted() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    let request = commit(8, GROUP.0, &[]);
    let reply = fixture.ask(&mut conn, &request);
    let response = OffsetCommitResponse::decode(&mut Reader::new(&reply), 8).unwrap();
    assert!(response.topics.is_empty(), "Kafka does not name such a topic");
}

#[test]
fn a_commit_larger_than_a_batch_is_refused() {
    let mut fixture = TestBroker::new();
    fixture.topic(TOPIC, Made { partitions: 100, ..Made::default() });
    let made = groups_topic();
    let config = LogConfig { max_message_bytes: 1000, ..made.config };
    fixture.topic(GROUPS, Made { config, ..made });
    let mut conn = fixture.connect();
    let wanted: Vec<_> = (0..100).map(|partition| (partition, 1, -1, None)).collect();
    let request = commit(8, GROUP.0, &wanted);
    assert_eq!(committed(&mut fixture, &mut conn, &request), [28; 100]);
    assert_eq!(ask(&mut fixture, &mut conn, (8, GROUP.0, None)), (0, vec![]));
}

#[test]
fn replies_wait_for_the_disk_if_the_topic_requires_it() {
    let mut fixture = TestBroker::new();
    fixture.topic(TOPIC, Made { partitions: 3, ..Made::default() });
    let made = groups_topic();
    let config = LogConfig { flush_messages: 1, ..made.config };
    fixture.topic(GROUPS, Made { config, ..made });
    let (mut conn, mut other) = (fixture.connect(), fixture.connect());
    for offset in 0..20 {
        let request = commit(8, GROUP.0, &[(0, offset, -1, None)]);
        let question = fetch(8, GROUP.0, Some(&[0]));
        fixture.event(&mut conn, &[request.bytes.clone(), question.bytes.clone()]);
        fixture.event(&mut other, std::slice::from_ref(&question.bytes));
        until("nothing was sent", || {
            fixture.turn(&mut [&mut conn, &mut other]);
            !conn.is_waiting() && !other.is_waiting()
        });
        assert_eq!(codes(8, &conn.reply(&request)), [0]);
        for reply in [conn.reply(&question), other.reply(&question)] {
            assert_eq!(offsets(&fetched(8, &reply).1), [(0, offset)]);
        }
    }
}

fn delete(group_id: &str, topic: &str, partitions: &[i32]) -> Frame {
    let partitions = partitions.iter();
    let topic = OffsetDeleteRequestTopic {
        name: topic,
        partitions: partitions
            .map(|partition_index| OffsetDeleteRequestPartition {
                partition_index: *partition_index,
            })
            .collect(),
    };
    let request = OffsetDeleteRequest { group_id, topics: vec![topic] };
    frame(47, 0, |writer, version| request.encode(writer, version))
}

#[test]
fn deleted_offsets_are_not_fetched() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    let mut ask_delete = |fixture: &mut TestBroker, request: Frame| {
        let reply = fixture.ask(&mut conn, &request);
        let response = OffsetDeleteResponse::decode(&mut Reader::new(&reply), 0).unwrap();
        let partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
        (response.error_code, partitions.map(|it| it.error_code).collect::<Vec<_>>())
    };
    assert_eq!(ask_delete(&mut fixture, delete(GROUP.0, TOPIC, &[0])), (69, vec![]));
    let mut other = fixture.connect();
    let wanted = [(0, 1, -1, None), (1, 2, -1, None)];
    committed(&mut fixture, &mut other, &commit(8, GROUP.0, &wanted));
    assert_eq!(ask_delete(&mut fixture, delete(GROUP.0, "gone", &[0])), (0, vec![3]));
    assert_eq!(ask_delete(&mut fixture, delete("", TOPIC, &[0])), (24, vec![]));
    assert_eq!(ask_delete(&mut fixture, delete(GROUP.0, TOPIC, &[-1, 3])), (0, vec![3, 3]));
    assert_eq!(ask_delete(&mut fixture, delete(GROUP.0, TOPIC, &[0, 2])), (0, vec![0, 0]));
    let (_, rows) = ask(&mut fixture, &mut other, (8, GROUP.0, None));
    assert_eq!(offsets(&rows), [(1, 2)]);
}

#[test]
fn offsets_of_a_deleted_topic_are_deleted() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    committed(&mut fixture, &mut conn, &commit(8, GROUP.0, &[(0, 1, -1, None)]));
    fixture.topic(TOPIC, Made { partitions: 3, id: 2, ..Made::default() });
    assert_eq!(ask(&mut fixture, &mut conn, (8, GROUP.0, None)), (0, vec![]));
    assert_eq!(fixture.broker.image().topic(TOPIC).unwrap().id, TopicId([2; 16]));
}
