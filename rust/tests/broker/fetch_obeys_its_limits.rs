//! A Fetch returns at most the bytes it asked for, but always makes progress.

use krust::protocol::fetch::FetchResponse;
use krust::wire::Reader;

use crate::double::{Made, TestBroker};
use crate::records::{Fetch, TOPIC, batch, fetched, get, produce_to, values};

fn filled(partitions: i32) -> (TestBroker, usize) {
    let mut fixture = TestBroker::new();
    fixture.topic(TOPIC, Made { partitions, ..Made::default() });
    let mut conn = fixture.connect();
    let records = batch(&["0123456789"]);
    for _ in 0..4 {
        let all: Vec<(i32, &[u8])> = (0..partitions).map(|index| (index, &records[..])).collect();
        fixture.ask(&mut conn, &produce_to(9, 1, &all));
    }
    (fixture, records.len())
}

#[test]
fn limits_hold_for_the_request_and_for_each_partition() {
    let (mut fixture, size) = filled(3);
    let mut conn = fixture.connect();
    let size = size as i32;
    for (max_bytes, partition_max_bytes, expected) in [
        (1, 1, vec![1, 0, 0]),
        (1 << 20, 2 * size, vec![2, 2, 2]),
        (5 * size, 1 << 20, vec![4, 1, 0]),
        (1 << 20, 1 << 20, vec![4, 4, 4]),
    ] {
        let request = Fetch { max_bytes, partition_max_bytes, ..Fetch::default() }.of(&[0, 1, 2]);
        let reply = fixture.ask(&mut conn, &request);
        let (_, _, partitions) = fetched(12, &reply);
        let counts: Vec<usize> = partitions.iter().map(|p| values(&p.3).len()).collect();
        assert_eq!(counts, expected, "{max_bytes} {partition_max_bytes}");
    }
}

#[test]
fn limits_hold_from_the_middle_of_the_log() {
    let (mut fixture, _) = filled(1);
    let mut conn = fixture.connect();
    let (_, _, bytes) = get(&mut fixture, &mut conn, Fetch { offset: 3, ..Fetch::default() });
    assert_eq!(values(&bytes), [(3, "0123456789".to_owned())]);
    let (error, _, bytes) = get(&mut fixture, &mut conn, Fetch { offset: 4, ..Fetch::default() });
    assert_eq!((error, bytes.len()), (0, 0));
}

#[test]
fn old_versions_get_at_most_four_mebibytes_of_converted_records() {
    let mut fixture = TestBroker::new();
    fixture.topic(TOPIC, Made::default());
    let mut conn = fixture.connect();
    let long = "x".repeat(100_000);
    let records = batch(&[&long[..]; 10]);
    for _ in 0..8 {
        fixture.ask(&mut conn, &produce_to(9, 1, &[(0, &records)]));
    }
    let mut offset = 0;
    let mut answers = 0;
    while offset < 80 {
        let max = i32::MAX;
        let fetch = Fetch {
            version: 3,
            offset,
            max_bytes: max,
            partition_max_bytes: max,
            ..Fetch::default()
        };
        let (_, _, bytes) = get(&mut fixture, &mut conn, fetch);
        assert!(bytes.len() <= (4 << 20) + 200_000);
        let messages = krust::record::legacy::iter(&bytes).map_while(Result::ok);
        offset = messages.map(|message| message.offset).max().unwrap() + 1;
        answers += 1;
    }
    assert_eq!((offset, answers), (80, 2));
}

#[test]
fn an_unknown_topic_id_is_named() {
    let mut fixture = TestBroker::new();
    let mut conn = fixture.connect();
    let request = Fetch { version: 13, max_wait_ms: 500, ..Fetch::default() }.of(&[0]);
    let reply = fixture.ask(&mut conn, &request);
    let response = FetchResponse::decode(&mut Reader::new(&reply), 13).unwrap();
    assert_eq!(response.responses[0].partitions[0].error_code, 100);
}
