//! A large request is paid for from the broker's pool while it is handled; where there is no room
//! it is handled later.

use krust::protocol::find_coordinator::FindCoordinatorRequest;

use crate::double::{Made, TestBroker, frame};

#[test]
fn a_large_request_waits_until_there_is_memory() {
    let mut fixture = TestBroker::new();
    fixture.topic("__consumer_offsets", Made { id: 9, ..Made::default() });
    let mut conn = fixture.connect();
    let keys: Vec<String> = (0..10_000).map(|number| format!("group-{number}")).collect();
    let coordinator_keys = keys.iter().map(String::as_str).collect();
    let request = FindCoordinatorRequest { coordinator_keys, ..Default::default() };
    let request = frame(10, 4, |writer, version| request.encode(writer, version));
    assert!(request.bytes.len() >= 64 << 10);

    let pool = fixture.broker.memory().clone();
    let all = pool.lease(pool.usage().limit).unwrap();
    fixture.event(&mut conn, std::slice::from_ref(&request.bytes));
    assert!(conn.sent.is_empty() && conn.muted_ms > 0);
    drop(all);
    fixture.clock.advance(1_000);
    fixture.turn(&mut [&mut conn]);
    assert!(!conn.reply(&request).is_empty());
    assert!(pool.usage().peak >= request.bytes.len() && pool.usage().used == 0);
}
