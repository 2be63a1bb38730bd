//! DescribeTransactions and ListTransactions.

use krust::protocol::describe_transactions::{
    DescribeTransactionsRequest, DescribeTransactionsResponse,
};
use krust::protocol::list_transactions::{ListTransactionsRequest, ListTransactionsResponse};
use krust::wire::Reader;

use crate::double::{Conn, NOW_MS, TestBroker, frame};
use crate::records::TOPIC;
use crate::transactions::{
    FIRST_ID, ID, add, added, ended, fixture, producer, wait_until_complete,
};

#[test]
fn a_transactional_id_is_described_with_its_open_transaction() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    let first = producer(&mut fixture, &mut conn, ID.0);
    added(&mut fixture, &mut conn, &add(3, ID.0, first, &[2, 0]));
    let request = DescribeTransactionsRequest { transactional_ids: vec![ID.0, "", "nobody", ID.0] };
    let request = frame(65, 0, |writer, version| request.encode(writer, version));
    let reply = fixture.ask(&mut conn, &request);
    let response = DescribeTransactionsResponse::decode(&mut Reader::new(&reply), 0).unwrap();
    let codes: Vec<i16> = response.transaction_states.iter().map(|it| it.error_code).collect();
    assert_eq!(codes, [0, 42, 105]);
    let state = &response.transaction_states[0];
    assert_eq!((state.transactional_id, state.transaction_state), (ID.0, "Ongoing"));
    assert_eq!((state.transaction_timeout_ms, state.transaction_start_time_ms), (60_000, NOW_MS));
    assert_eq!((state.producer_id, state.producer_epoch), (FIRST_ID, 0));
    assert_eq!((state.topics[0].topic, &*state.topics[0].partitions), (TOPIC, &[0, 2][..]));
}

/// The ids that pass, sorted, and the names of states that do not exist.
fn listed(
    fixture: &mut TestBroker,
    conn: &mut Conn,
    (version, request): (i16, ListTransactionsRequest<'_>),
) -> (Vec<String>, Vec<String>) {
    let request = frame(66, version, |writer, version| request.encode(writer, version));
    let reply = fixture.ask_a_worker(conn, &request);
    let response = ListTransactionsResponse::decode(&mut Reader::new(&reply), version).unwrap();
    assert_eq!(response.error_code, 0);
    let ids = response.transaction_states.iter().map(|it| it.transactional_id.to_owned());
    let mut ids: Vec<String> = ids.collect();
    ids.sort_unstable();
    (ids, response.unknown_state_filters.iter().map(|&name| name.to_owned()).collect())
}

#[test]
fn ids_are_listed_by_state_producer_duration_and_pattern() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    producer(&mut fixture, &mut conn, "empty");
    let open = producer(&mut fixture, &mut conn, "open-1");
    added(&mut fixture, &mut conn, &add(3, "open-1", open, &[0]));
    let done = producer(&mut fixture, &mut conn, ID.0);
    added(&mut fixture, &mut conn, &add(3, ID.0, done, &[0]));
    ended(&mut fixture, &mut conn, (4, ID.0, done, true));
    wait_until_complete(&fixture);
    fixture.clock.advance(100);
    let all = ListTransactionsRequest { duration_filter: -1, ..Default::default() };
    let by_state = |states: &[&'static str]| ListTransactionsRequest {
        state_filters: states.to_vec(),
        ..all.clone()
    };
    let by_producer =
        ListTransactionsRequest { producer_id_filters: vec![open.id, 7], ..all.clone() };
    let by_pattern =
        ListTransactionsRequest { transactional_id_pattern: Some("open-\\d"), ..all.clone() };
    let by_duration = |duration_filter| ListTransactionsRequest { duration_filter, ..all.clone() };
    for (version, request, expected) in [
        (0, all.clone(), vec![ID.0, "empty", "open-1"]),
        (0, by_state(&["Ongoing", "Empty"]), vec!["empty", "open-1"]),
        (0, by_state(&["CompleteCommit"]), vec![ID.0]),
        (0, by_producer, vec!["open-1"]),
        (1, by_duration(99), vec![ID.0, "open-1"]),
        (1, by_duration(100), vec![]),
        (2, by_pattern, vec!["open-1"]),
    ] {
        let (ids, unknown) = listed(&mut fixture, &mut conn, (version, request));
        assert_eq!((ids, unknown), (expected.iter().map(ToString::to_string).collect(), vec![]));
    }
    let (ids, unknown) = listed(&mut fixture, &mut conn, (2, by_state(&["Open"])));
    assert_eq!((ids, unknown), (vec![], vec!["Open".to_owned()]));
}

#[test]
fn a_pattern_that_is_none_is_refused() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    let request =
        ListTransactionsRequest { transactional_id_pattern: Some("("), ..Default::default() };
    let request = frame(66, 2, |writer, version| request.encode(writer, version));
    let reply = fixture.ask(&mut conn, &request);
    let response = ListTransactionsResponse::decode(&mut Reader::new(&reply), 2).unwrap();
    assert_eq!(response.error_code, 128);
}
