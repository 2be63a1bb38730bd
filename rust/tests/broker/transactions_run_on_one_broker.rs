//! A transactional producer's requests from its first to the complete transaction.

use std::collections::HashMap;
use std::sync::Arc;

use krust::broker::transactions::transaction::ProducerIdentity;
use krust::broker::transactions::transaction::TransactionState::{
    CompleteAbort, CompleteCommit, Ongoing, PrepareAbort, PrepareCommit,
};

use krust::broker::image::{PartitionState, TopicDelta, TopicSettings};
use krust::broker::{MetadataDelta, Settings};
use krust::ids::{Epoch, TopicId};
use krust::storage::recording::{DiskCall, InjectedFault, RecordingDisk};
use krust::storage::{DirOptions, LogConfig};

use crate::double::{Made, NOW_MS, TestBroker, until};
use crate::records::TOPIC;
use crate::transactions::{
    FIRST_ID, ID, TRANSACTIONS, add, added, create_topics, end, end_reply, ended, fixture, init,
    initialised, last_state, markers, offsets_added, producer, states, transactions_topic,
    wait_until_complete,
};

const TIMEOUT_MS: i64 = 60_000;

fn at(id: i64, epoch: i16) -> ProducerIdentity {
    ProducerIdentity { id, epoch }
}

#[test]
fn a_transaction_ends_with_one_marker_in_each_of_its_partitions() {
    for (version, commit) in [(0, true), (3, false), (4, true), (5, true), (5, false)] {
        let mut fixture = fixture();
        let mut conn = fixture.connect();
        let first = producer(&mut fixture, &mut conn, ID.0);
        assert_eq!(first, at(FIRST_ID, 0));
        assert_eq!(
            added(&mut fixture, &mut conn, &add(version.min(3), ID.0, first, &[0, 2])),
            [0, 0]
        );
        assert_eq!(last_state(&fixture), Some(Ongoing));
        let (code, next) = ended(&mut fixture, &mut conn, (version, ID.0, first, commit));
        assert_eq!(code, 0);
        let epoch = if version >= 5 { 1 } else { 0 };
        for partition in [0, 2] {
            assert_eq!(markers(&fixture, partition), [(FIRST_ID, epoch, commit)]);
        }
        assert!(markers(&fixture, 1).is_empty());
        let written = states(&fixture, ID.1);
        let kinds: Vec<_> = written.iter().map(|(_, now)| now.as_ref().unwrap().state).collect();
        let (prepared, complete) =
            if commit { (PrepareCommit, CompleteCommit) } else { (PrepareAbort, CompleteAbort) };
        assert_eq!(kinds[1..], [Ongoing, prepared, complete]);
        let next = if version >= 5 { next } else { first };
        assert_eq!(next, at(FIRST_ID, epoch));
        assert_eq!(added(&mut fixture, &mut conn, &add(3, ID.0, next, &[1])), [0]);
    }
}

/// Has a partition of [`TOPIC`] led by a broker.
fn set_leader(fixture: &mut TestBroker, (partition, leader): (i32, i32), epoch: Epoch) {
    let state = PartitionState {
        leader,
        leader_epoch: epoch,
        isr: vec![0],
        replicas: vec![0],
        partition_epoch: epoch.0,
    };
    let topic = TopicDelta {
        id: TopicId([1; 16]),
        internal: false,
        settings: TopicSettings::default(),
        partitions: vec![(partition, state)],
    };
    fixture
        .apply(MetadataDelta { topics: vec![(TOPIC.into(), Some(topic))], ..Default::default() });
}

#[test]
fn the_end_of_a_transaction_is_answered_after_20_ms_if_a_marker_waits_for_its_leader() {
    const NOBODY: i32 = -1;
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    let first = producer(&mut fixture, &mut conn, ID.0);
    added(&mut fixture, &mut conn, &add(3, ID.0, first, &[0, 2]));
    set_leader(&mut fixture, (2, NOBODY), Epoch(1));
    let request = end((4, ID.0, first, true));
    fixture.event(&mut conn, std::slice::from_ref(&request.bytes));
    until("no marker", || markers(&fixture, 0).len() == 1);
    for waited_ms in [0, 19] {
        fixture.clock.advance(waited_ms);
        fixture.turn(&mut [&mut conn]);
        assert!(conn.is_waiting());
    }
    fixture.clock.advance(1);
    fixture.turn(&mut [&mut conn]);
    assert_eq!(end_reply(&mut conn, &request).0, 0);
    assert_eq!(added(&mut fixture, &mut conn, &add(3, ID.0, first, &[0])), [51]);
    set_leader(&mut fixture, (2, 0), Epoch(2));
    wait_until_complete(&fixture);
    assert_eq!(added(&mut fixture, &mut conn, &add(3, ID.0, first, &[0])), [0]);
}

#[test]
fn a_connection_that_is_closed_while_its_transaction_ends_harms_nobody() {
    let mut fixture = fixture();
    let (mut gone, mut conn) = (fixture.connect(), fixture.connect());
    let first = producer(&mut fixture, &mut gone, ID.0);
    added(&mut fixture, &mut gone, &add(3, ID.0, first, &[0]));
    fixture.event(&mut gone, &[end((4, ID.0, first, true)).bytes]);
    fixture.close(gone);
    wait_until_complete(&fixture);
    fixture.turn(&mut [&mut conn]);
    assert_eq!(added(&mut fixture, &mut conn, &add(3, ID.0, first, &[0])), [0]);
}

#[test]
fn old_clients_hear_of_fencing_by_the_code_that_they_know() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    let old = producer(&mut fixture, &mut conn, ID.0);
    let new = producer(&mut fixture, &mut conn, ID.0);
    assert_eq!(new, at(FIRST_ID, 1));
    for version in 0..=5 {
        let code = if version < 2 { 47 } else { 90 };
        assert_eq!(added(&mut fixture, &mut conn, &add(version, ID.0, old, &[0])), [code]);
        assert_eq!(ended(&mut fixture, &mut conn, (version, ID.0, old, true)).0, code);
    }
    for version in 3..=5 {
        let request = init(version, ID.0, Some(old));
        let code = if version < 4 { 47 } else { 90 };
        assert_eq!(initialised(&mut fixture, &mut conn, &request).0, code);
    }
}

#[test]
fn a_new_producer_waits_until_the_transaction_of_the_one_before_is_aborted() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    let old = producer(&mut fixture, &mut conn, ID.0);
    added(&mut fixture, &mut conn, &add(3, ID.0, old, &[0]));
    let (code, _) = initialised(&mut fixture, &mut conn, &init(4, ID.0, None));
    assert_eq!(code, 51);
    wait_until_complete(&fixture);
    assert_eq!(markers(&fixture, 0), [(FIRST_ID, 1, false)]);
    assert_eq!(producer(&mut fixture, &mut conn, ID.0), at(FIRST_ID, 2));
    assert_eq!(ended(&mut fixture, &mut conn, (4, ID.0, old, true)).0, 90);
}

#[test]
fn a_transaction_whose_time_is_up_is_aborted() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    let old = producer(&mut fixture, &mut conn, ID.0);
    added(&mut fixture, &mut conn, &add(3, ID.0, old, &[1]));
    fixture.clock.advance(TIMEOUT_MS);
    fixture.broker.abort_timed_out_transactions();
    assert_eq!(last_state(&fixture), Some(Ongoing));
    fixture.clock.advance(1);
    fixture.broker.abort_timed_out_transactions();
    wait_until_complete(&fixture);
    assert_eq!(markers(&fixture, 1), [(FIRST_ID, 1, false)]);
}

#[test]
fn a_transaction_that_cannot_be_aborted_keeps_no_other_from_its_end() {
    let mut fixture = TestBroker::new();
    fixture.topic(TOPIC, Made { partitions: 3, ..Made::default() });
    let ids_topic = |max_message_bytes| Made {
        partitions: 1,
        config: LogConfig { max_message_bytes, ..transactions_topic().config },
        ..transactions_topic()
    };
    fixture.topic(TRANSACTIONS, ids_topic(10_000));
    let mut conn = fixture.connect();
    let too_long = "x".repeat(1000);
    let others: Vec<String> = (0..7).map(|number| format!("short-{number}")).collect();
    for id in others.iter().chain([&too_long]) {
        let first = producer(&mut fixture, &mut conn, id);
        assert_eq!(added(&mut fixture, &mut conn, &add(3, id, first, &[0])), [0]);
    }
    fixture.topic(TRANSACTIONS, ids_topic(500));
    fixture.clock.advance(TIMEOUT_MS + 1);
    fixture.broker.abort_timed_out_transactions();
    until("no abort", || {
        let last = states(&fixture, 0).into_iter().collect::<HashMap<_, _>>();
        let is = |id: &String, state| last[id].as_ref().unwrap().state == state;
        assert!(is(&too_long, Ongoing));
        others.iter().all(|id| is(id, CompleteAbort))
    });
}

#[test]
fn silent_ids_are_removed_with_a_tombstone() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    producer(&mut fixture, &mut conn, ID.0);
    fixture.clock.advance(7 * 24 * 3_600_000);
    fixture.broker.expire_transactional_ids();
    assert_eq!(states(&fixture, ID.1).pop(), Some((ID.0.to_owned(), None)));
    assert_eq!(producer(&mut fixture, &mut conn, ID.0), at(FIRST_ID + 1, 0));
}

#[test]
fn a_partition_that_does_not_exist_keeps_the_others_out() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    let first = producer(&mut fixture, &mut conn, ID.0);
    for version in 0..=5 {
        let request = add(version, ID.0, first, &[0, 3, 1]);
        assert_eq!(added(&mut fixture, &mut conn, &request), [55, 3, 55]);
        let request = add(version, "", first, &[0]);
        assert_eq!(added(&mut fixture, &mut conn, &request), [42]);
        let request = add(version, "nobody", first, &[0]);
        assert_eq!(added(&mut fixture, &mut conn, &request), [49]);
    }
    assert_eq!(states(&fixture, ID.1).len(), 1);
}

#[test]
fn the_offsets_of_a_group_are_a_partition_of_the_transaction() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    let first = producer(&mut fixture, &mut conn, ID.0);
    let group = crate::groups::GROUP;
    let of = |group_id| (4, ID.0, first, group_id);
    assert_eq!(offsets_added(&mut fixture, &mut conn, of(group.0)), 15);
    assert_eq!(fixture.events().remove(0).api, "AutoCreate");
    fixture.topic(crate::groups::GROUPS, crate::groups::groups_topic());
    assert_eq!(offsets_added(&mut fixture, &mut conn, of("")), 24);
    assert_eq!(offsets_added(&mut fixture, &mut conn, of(group.0)), 0);
    let (_, now) = states(&fixture, ID.1).pop().unwrap();
    let partitions: Vec<String> = now.unwrap().partitions.iter().map(ToString::to_string).collect();
    assert_eq!(partitions, [format!("__consumer_offsets-{}", group.1)]);
    assert_eq!(ended(&mut fixture, &mut conn, (4, ID.0, first, true)).0, 0);
    wait_until_complete(&fixture);
}

#[test]
fn a_deleted_topic_does_not_keep_a_transaction_from_its_end() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    let first = producer(&mut fixture, &mut conn, ID.0);
    added(&mut fixture, &mut conn, &add(3, ID.0, first, &[0, 1]));
    fixture.apply(MetadataDelta { topics: vec![(TOPIC.into(), None)], ..Default::default() });
    assert_eq!(ended(&mut fixture, &mut conn, (4, ID.0, first, true)).0, 0);
    wait_until_complete(&fixture);
}

#[test]
fn a_transaction_ends_once_a_full_disk_has_room_again() {
    const ENOSPC: i32 = 28;
    // The first write is the decision. The last is the completion. In between each of the
    // partitions is made and gets its marker.
    for skip in 1..=5 {
        let dir = Arc::new(tempfile::tempdir().unwrap());
        let disk = Arc::new(RecordingDisk::new(dir.path()).unwrap());
        let options = DirOptions { disk: Arc::clone(&disk) as _, ..DirOptions::default() };
        let mut fixture = TestBroker::on(dir, Settings::default(), &options);
        create_topics(&mut fixture);
        let mut conn = fixture.connect();
        let first = producer(&mut fixture, &mut conn, ID.0);
        added(&mut fixture, &mut conn, &add(3, ID.0, first, &[0, 2]));
        let full = InjectedFault { call: DiskCall::Write, code: ENOSPC, skip, times: 1 };
        disk.inject(full);
        assert_eq!(ended(&mut fixture, &mut conn, (4, ID.0, first, true)).0, 0);
        wait_until_complete(&fixture);
        for partition in [0, 2] {
            assert_eq!(markers(&fixture, partition), [(FIRST_ID, 0, true)]);
        }
        disk.heal();
    }
}

#[test]
fn requests_for_ids_of_other_brokers_are_refused() {
    let mut fixture = TestBroker::new();
    let mut conn = fixture.connect();
    let nobody = at(1, 0);
    assert_eq!(initialised(&mut fixture, &mut conn, &init(4, ID.0, None)).0, 16);
    assert_eq!(initialised(&mut fixture, &mut conn, &init(4, "", None)).0, 42);
    assert_eq!(ended(&mut fixture, &mut conn, (5, ID.0, nobody, true)).0, 16);
    assert_eq!(ended(&mut fixture, &mut conn, (5, "", nobody, true)).0, 42);
    fixture.topic(TRANSACTIONS, transactions_topic());
    assert_eq!(initialised(&mut fixture, &mut conn, &init(4, ID.0, None)).0, 0);
}

#[test]
fn an_end_that_replaces_the_producer_id_waits_for_one() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    let mut last = producer(&mut fixture, &mut conn, ID.0);
    // An id whose epoch is the last one, as a log might have it.
    let mut now = states(&fixture, ID.1).pop().unwrap().1.unwrap();
    now.producer.epoch = i16::MAX - 1;
    last.epoch = now.producer.epoch;
    crate::transactions_outlive_a_restart::append(&fixture, &now);
    let mut fixture = crate::transactions_outlive_a_restart::restarted(fixture);
    let mut conn = fixture.connect();
    let mut codes = Vec::new();
    until("never loaded", || {
        codes = added(&mut fixture, &mut conn, &add(3, ID.0, last, &[0]));
        codes != [14]
    });
    assert_eq!(codes, [0]);
    let (code, next) = ended(&mut fixture, &mut conn, (5, ID.0, last, true));
    assert_eq!((code, next.epoch), (0, 0));
    assert!(next.id > last.id);
    wait_until_complete(&fixture);
    assert_eq!(markers(&fixture, 0), [(last.id, i16::MAX, true)]);
    let (_, now) = states(&fixture, ID.1).pop().unwrap();
    let now = now.unwrap();
    assert_eq!((now.producer, now.last_update_ms), (next, NOW_MS));
}
