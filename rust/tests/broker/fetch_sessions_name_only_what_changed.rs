//! Incremental fetch sessions (KIP-227): requests and answers hold only news.

use krust::broker::{SessionLimits, Settings};

use crate::double::{Conn, Frame, Made, TestBroker};
use crate::records::{Fetch, Fetched, TOPIC, batch, fetched, produce_to};

fn ask(fixture: &mut TestBroker, conn: &mut Conn, request: &Frame) -> Fetched {
    let reply = fixture.ask(conn, request);
    fetched(request.version, &reply)
}

fn numbers(answer: &Fetched) -> Vec<i32> {
    answer.2.iter().map(|partition| partition.0).collect()
}

fn write(fixture: &mut TestBroker, conn: &mut Conn, partition: i32) {
    let records = batch(&["a"]);
    fixture.ask(conn, &produce_to(9, 1, &[(partition, &records)]));
}

#[test]
fn a_response_holds_only_changed_partitions() {
    for version in [7, 12, 13, 18] {
        let mut fixture = TestBroker::new();
        fixture.topic(TOPIC, Made { partitions: 4, ..Made::default() });
        let mut conn = fixture.connect();
        let fetch = Fetch { version, session: (0, 0), ..Fetch::default() };
        let full = ask(&mut fixture, &mut conn, &fetch.of(&[0, 1, 2, 3]));
        assert_eq!(numbers(&full), [0, 1, 2, 3]);
        let id = full.1;
        assert_ne!(id, 0);

        let next = |epoch| Fetch { session: (id, epoch), ..fetch };
        assert_eq!(numbers(&ask(&mut fixture, &mut conn, &next(1).of(&[]))), [0i32; 0]);
        write(&mut fixture, &mut conn, 2);
        assert_eq!(numbers(&ask(&mut fixture, &mut conn, &next(2).of(&[]))), [2]);
        // The client did not move on: it gets the same again.
        assert_eq!(numbers(&ask(&mut fixture, &mut conn, &next(3).of(&[]))), [2]);
        let moved = Fetch { offset: 1, ..next(4) };
        assert_eq!(numbers(&ask(&mut fixture, &mut conn, &moved.of(&[2]))), [0i32; 0]);
        write(&mut fixture, &mut conn, 0);
        assert_eq!(numbers(&ask(&mut fixture, &mut conn, &next(5).of(&[]))), [0]);
    }
}

#[test]
fn a_batch_that_did_not_fit_beside_others_comes_in_its_turn() {
    let mut fixture = TestBroker::new();
    fixture.topic(TOPIC, Made { partitions: 4, ..Made::default() });
    let mut conn = fixture.connect();
    (0..4).for_each(|partition| write(&mut fixture, &mut conn, partition));
    let fetch = Fetch { partition_max_bytes: 1, session: (0, 0), ..Fetch::default() };
    let full = ask(&mut fixture, &mut conn, &fetch.of(&[0, 1, 2, 3]));
    let mut read = with_records(&full);
    for epoch in 1..4 {
        let moved = Fetch { session: (full.1, epoch), offset: 1, ..fetch };
        let last = read.last().copied().unwrap();
        read.extend(with_records(&ask(&mut fixture, &mut conn, &moved.of(&[last]))));
    }
    assert_eq!(read, [0, 1, 2, 3]);
}

fn with_records(answer: &Fetched) -> Vec<i32> {
    answer.2.iter().filter(|partition| !partition.3.is_empty()).map(|one| one.0).collect()
}

#[test]
fn an_idle_poll_waits_and_is_woken() {
    let mut fixture = TestBroker::new();
    fixture.topic(TOPIC, Made { partitions: 4, ..Made::default() });
    let (mut conn, mut writer) = (fixture.connect(), fixture.connect());
    let full = Fetch { session: (0, 0), ..Fetch::default() };
    let id = ask(&mut fixture, &mut conn, &full.of(&[0, 1, 2, 3])).1;
    let poll = Fetch { session: (id, 1), max_wait_ms: 500, ..full }.of(&[]);
    fixture.event(&mut conn, std::slice::from_ref(&poll.bytes));
    fixture.turn(&mut [&mut conn]);
    assert!(conn.sent.is_empty());
    write(&mut fixture, &mut writer, 3);
    fixture.turn(&mut [&mut conn]);
    let reply = conn.reply(&poll);
    assert_eq!(numbers(&fetched(12, &reply)), [3]);
}

#[test]
fn wrong_ids_and_epochs_are_refused() {
    let mut fixture = TestBroker::new();
    fixture.topic(TOPIC, Made::default());
    let mut conn = fixture.connect();
    let full = Fetch { session: (0, 0), ..Fetch::default() };
    let id = ask(&mut fixture, &mut conn, &full.of(&[0])).1;
    let with = |session, version| Fetch { session, version, ..full }.of(&[]);
    assert_eq!(ask(&mut fixture, &mut conn, &with((id ^ 1, 1), 12)).0, 70);
    assert_eq!(ask(&mut fixture, &mut conn, &with((id, 2), 12)).0, 71);
    assert_eq!(ask(&mut fixture, &mut conn, &with((id, 1), 13)).0, 106);
    assert_eq!(ask(&mut fixture, &mut conn, &with((id, 1), 12)).0, 0);
    // The last epoch ends it, with a full fetch of its own.
    let last = Fetch { session: (id, -1), ..full }.of(&[0]);
    assert_eq!(ask(&mut fixture, &mut conn, &last).1, 0);
    assert_eq!(ask(&mut fixture, &mut conn, &with((id, 2), 12)).0, 70);
}

#[test]
fn a_full_cache_creates_no_session_until_one_expires() {
    let mut fixture =
        TestBroker::with(limits(SessionLimits { slots: 1, ..SessionLimits::default() }));
    fixture.topic(TOPIC, Made { partitions: 2, ..Made::default() });
    let mut conn = fixture.connect();
    let full = Fetch { session: (0, 0), ..Fetch::default() };
    let first = ask(&mut fixture, &mut conn, &full.of(&[0, 1])).1;
    assert_ne!(first, 0);
    assert_eq!(ask(&mut fixture, &mut conn, &full.of(&[0, 1])).1, 0);
    fixture.clock.advance(120_001);
    assert_ne!(ask(&mut fixture, &mut conn, &full.of(&[0])).1, 0);
    let gone = Fetch { session: (first, 1), ..full }.of(&[]);
    assert_eq!(ask(&mut fixture, &mut conn, &gone).0, 70);
}

fn limits(fetch_sessions: SessionLimits) -> Settings {
    Settings { fetch_sessions, ..Settings::default() }
}

#[test]
fn a_session_has_at_most_its_limit_of_partitions() {
    let few = SessionLimits { session_partitions: 2, ..SessionLimits::default() };
    let mut fixture = TestBroker::with(limits(few));
    fixture.topic(TOPIC, Made { partitions: 3, ..Made::default() });
    let mut conn = fixture.connect();
    let full = Fetch { session: (0, 0), ..Fetch::default() };
    assert_eq!(ask(&mut fixture, &mut conn, &full.of(&[0, 1, 2])).1, 0, "none from the start");
    let id = ask(&mut fixture, &mut conn, &full.of(&[0, 1])).1;
    let next = |epoch| Fetch { session: (id, epoch), ..full };
    assert_eq!(ask(&mut fixture, &mut conn, &next(1).of(&[1])).0, 0);
    assert_eq!(ask(&mut fixture, &mut conn, &next(2).of(&[2])).0, 70, "it ends as it grows");
    assert_eq!(ask(&mut fixture, &mut conn, &next(3).of(&[])).0, 70);
}

#[test]
fn all_sessions_together_have_at_most_their_limit_of_partitions() {
    let few = SessionLimits { all_partitions: 3, ..SessionLimits::default() };
    let mut fixture = TestBroker::with(limits(few));
    fixture.topic(TOPIC, Made { partitions: 2, ..Made::default() });
    let mut conn = fixture.connect();
    let full = Fetch { session: (0, 0), ..Fetch::default() };
    let first = ask(&mut fixture, &mut conn, &full.of(&[0, 1])).1;
    assert_ne!(first, 0);
    assert_eq!(ask(&mut fixture, &mut conn, &full.of(&[0, 1])).1, 0);
    assert_ne!(ask(&mut fixture, &mut conn, &full.of(&[1])).1, 0);
    let over = Fetch { session: (first, -1), ..full }.of(&[]);
    ask(&mut fixture, &mut conn, &over);
    assert_ne!(ask(&mut fixture, &mut conn, &full.of(&[0, 1])).1, 0, "what ended makes room");
}

#[test]
fn a_session_ends_with_the_connection_that_used_it_last() {
    let mut fixture = TestBroker::new();
    fixture.topic(TOPIC, Made::default());
    let (mut one, mut two) = (fixture.connect(), fixture.connect());
    let full = Fetch { session: (0, 0), ..Fetch::default() };
    let (left, moved) = {
        let mut make = || ask(&mut fixture, &mut one, &full.of(&[0])).1;
        (make(), make())
    };
    let next = |id, epoch| Fetch { session: (id, epoch), ..full }.of(&[]);
    assert_eq!(ask(&mut fixture, &mut two, &next(moved, 1)).0, 0);
    fixture.close(one);
    assert_eq!(ask(&mut fixture, &mut two, &next(left, 1)).0, 70);
    assert_eq!(ask(&mut fixture, &mut two, &next(moved, 2)).0, 0);
}

#[test]
fn a_recreated_topic_is_fetched_in_the_same_session() {
    let mut fixture = TestBroker::new();
    fixture.topic(TOPIC, Made::default());
    let mut conn = fixture.connect();
    let full = Fetch { session: (0, 0), ..Fetch::default() };
    let id = ask(&mut fixture, &mut conn, &full.of(&[0])).1;
    fixture.apply(krust::broker::MetadataDelta {
        topics: vec![(TOPIC.into(), None)],
        ..Default::default()
    });
    let next = |epoch| Fetch { session: (id, epoch), ..full }.of(&[]);
    assert_eq!(ask(&mut fixture, &mut conn, &next(1)).2[0].1, 3);
    fixture.topic(TOPIC, Made { id: 2, ..Made::default() });
    assert_eq!(ask(&mut fixture, &mut conn, &next(2)).2[0].1, 0);
    write(&mut fixture, &mut conn, 0);
    assert_eq!(ask(&mut fixture, &mut conn, &next(3)).2[0].2, 1);
}
