//! A log that holds transactions (of a directory that was adopted) is read as Kafka reads it.

use krust::protocol::fetch::{FetchPartition, FetchRequest, FetchResponse, FetchTopic};
use krust::wire::Reader;

use crate::double::{Conn, Made, TestBroker, frame};
use crate::records::{Fetch, TOPIC, abort_marker, batch, get, transactional, values};

/// Offsets: 0 plain, 1-2 of producer 7 (aborted at 3), 4 of producer 8 (open).
fn transactions() -> TestBroker {
    let mut fixture = TestBroker::new();
    fixture.topic(TOPIC, Made::default());
    let partition = fixture.broker.partitions().remove(0);
    for bytes in
        [batch(&["a"]), transactional(7, &["b", "c"]), abort_marker(7), transactional(8, &["d"])]
    {
        partition.log.append_as_leader(&bytes).unwrap();
    }
    partition.log.raise_high_watermark(partition.log.log_end_offset());
    fixture
}

fn committed(fixture: &mut TestBroker, conn: &mut Conn, isolation_level: i8) -> Seen {
    let request = FetchRequest {
        max_bytes: 1 << 20,
        isolation_level,
        topics: vec![FetchTopic {
            topic: TOPIC,
            partitions: vec![FetchPartition {
                partition_max_bytes: 1 << 20,
                current_leader_epoch: -1,
                last_fetched_epoch: -1,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let request = frame(1, 12, |writer, version| request.encode(writer, version));
    let reply = fixture.ask(conn, &request);
    let response = FetchResponse::decode(&mut Reader::new(&reply), 12).unwrap();
    let data = &response.responses[0].partitions[0];
    let aborted = data.aborted_transactions.as_ref();
    Seen {
        high_watermark: data.high_watermark,
        last_stable_offset: data.last_stable_offset,
        aborted: aborted.map(|l| l.iter().map(|a| (a.producer_id, a.first_offset)).collect()),
        batches: krust::record::batch::iter(data.records.bytes().unwrap()).count(),
    }
}

#[derive(Debug, PartialEq)]
struct Seen {
    high_watermark: i64,
    last_stable_offset: i64,
    aborted: Option<Vec<(i64, i64)>>,
    batches: usize,
}

#[test]
fn read_committed_consumers_get_the_list_of_aborted_transactions() {
    let mut fixture = transactions();
    let mut conn = fixture.connect();
    let (high_watermark, last_stable_offset) = (5, 4);
    let all = Seen { high_watermark, last_stable_offset, aborted: None, batches: 4 };
    assert_eq!(committed(&mut fixture, &mut conn, 0), all);
    let stable = Seen { aborted: Some(vec![(7, 1)]), batches: 3, ..all };
    assert_eq!(committed(&mut fixture, &mut conn, 1), stable);
}

#[test]
fn old_consumers_get_no_transaction_markers() {
    let mut fixture = transactions();
    let mut conn = fixture.connect();
    let fetch = Fetch { version: 2, offset: 3, ..Fetch::default() };
    let (error, _, bytes) = get(&mut fixture, &mut conn, fetch);
    let offsets: Vec<i64> =
        krust::record::legacy::iter(&bytes).map(|message| message.unwrap().offset).collect();
    assert_eq!((error, offsets), (0, vec![4]));
    assert_eq!(values(&bytes), []);
}
