//! Requests between brokers are served on the listener between brokers only.

use krust::broker::{Flow, Settings, apis};
use krust::protocol::api_versions::{ApiVersionsRequest, ApiVersionsResponse};
use krust::protocol::value::Value;
use krust::wire::Reader;

use crate::double::{Conn, Frame, TestBroker, frame, map};

fn fixture(listener: &str) -> TestBroker {
    let inter_broker_listener = Some(listener.into());
    TestBroker::with(Settings { inter_broker_listener, ..Settings::default() })
}

fn listed(fixture: &mut TestBroker, conn: &mut Conn) -> Vec<i16> {
    let request = ApiVersionsRequest::default();
    let request = frame(18, 0, |writer, version| request.encode(writer, version));
    let reply = fixture.ask(conn, &request);
    let response = ApiVersionsResponse::decode(&mut Reader::new(&reply), 0).unwrap();
    response.api_keys.iter().map(|api| api.api_key).collect()
}

fn shutdown() -> Frame {
    use krust::protocol::controlled_shutdown::ControlledShutdownRequest;
    let request = ControlledShutdownRequest { broker_id: 7, broker_epoch: 70 };
    frame(7, 3, |writer, version| request.encode(writer, version))
}

#[test]
fn the_policy_decides_requests_of_brokers() {
    let mut fixture = fixture("PLAINTEXT");
    let mut conn = fixture.connect();
    assert_eq!(listed(&mut fixture, &mut conn).len(), apis::served().len());
    let request = shutdown();
    fixture.event(&mut conn, std::slice::from_ref(&request.bytes));
    assert_eq!(conn.flow, Flow::Hold);
    let event = fixture.events().remove(0);
    assert_eq!(
        (event.api, event.request.field("broker_epoch")),
        ("ControlledShutdown", Some(&Value::Int(70)))
    );
    fixture.broker.answer(event.ticket, &map(vec![("error_code", Value::Int(11))])).unwrap();
    fixture.turn(&mut [&mut conn]);
    assert_eq!(conn.reply(&request)[..2], [0, 11]);
}

#[test]
fn apis_of_brokers_are_not_served_on_other_listeners() {
    for mut fixture in [fixture("INTERNAL"), TestBroker::new()] {
        let mut conn = fixture.connect();
        let keys = listed(&mut fixture, &mut conn);
        assert!([4, 5, 6, 7, 27, 56, 67].iter().all(|key| !keys.contains(key)));
        fixture.event(&mut conn, &[shutdown().bytes]);
        assert_eq!((conn.flow, conn.sent.len()), (Flow::Close, 0));
        assert!(fixture.events().is_empty());
    }
}

#[test]
fn while_the_listener_is_changed_brokers_are_served_on_the_others_that_are_named() {
    for (also, served) in [("PLAINTEXT", true), ("OLD", false)] {
        let inter_broker_listener = Some("NEW".into());
        let also_inter_broker = vec![also.into()];
        let settings = Settings { inter_broker_listener, also_inter_broker, ..Settings::default() };
        let mut fixture = TestBroker::with(settings);
        let mut conn = fixture.connect();
        let keys = listed(&mut fixture, &mut conn);
        assert!([4, 5, 6, 7, 27, 56, 67].iter().all(|key| keys.contains(key) == served));
    }
}

#[test]
fn a_broker_that_is_alone_serves_only_markers_of_transactions_to_administrators() {
    for (lone_listener, served) in [("PLAINTEXT", true), ("INTERNAL", false)] {
        let lone_listener = Some(lone_listener.into());
        let mut fixture = TestBroker::with(Settings { lone_listener, ..Settings::default() });
        let mut conn = fixture.connect();
        let keys = listed(&mut fixture, &mut conn);
        assert_eq!(keys.contains(&27), served);
        assert!([4, 5, 6, 7, 56, 67].iter().all(|key| !keys.contains(key)));
    }
}
