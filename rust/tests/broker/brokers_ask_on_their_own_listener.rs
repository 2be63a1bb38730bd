//! What only brokers ask each other is served on the listener that is theirs, and nowhere else.

use krust::broker::{Flow, Settings, apis};
use krust::protocol::api_versions::{ApiVersionsRequest, ApiVersionsResponse};
use krust::protocol::value::Value;
use krust::wire::Reader;

use crate::double::{Conn, Frame, House, frame, map};

fn house(listener: &str) -> House {
    let inter_broker_listener = Some(listener.into());
    House::with(Settings { inter_broker_listener, ..Settings::default() })
}

fn listed(house: &mut House, conn: &mut Conn) -> Vec<i16> {
    let request = ApiVersionsRequest::default();
    let request = frame(18, 0, |writer, version| request.encode(writer, version));
    let reply = house.ask(conn, &request);
    let response = ApiVersionsResponse::decode(&mut Reader::new(&reply), 0).unwrap();
    response.api_keys.iter().map(|api| api.api_key).collect()
}

fn shutdown() -> Frame {
    use krust::protocol::controlled_shutdown::ControlledShutdownRequest;
    let request = ControlledShutdownRequest { broker_id: 7, broker_epoch: 70 };
    frame(7, 3, |writer, version| request.encode(writer, version))
}

#[test]
fn the_policy_decides_it_there() {
    let mut house = house("PLAINTEXT");
    let mut conn = house.connect();
    assert_eq!(listed(&mut house, &mut conn).len(), apis::served().len());
    let request = shutdown();
    house.event(&mut conn, std::slice::from_ref(&request.bytes));
    assert_eq!(conn.flow, Flow::Hold);
    let event = house.events().remove(0);
    assert_eq!(
        (event.api, event.request.field("broker_epoch")),
        ("ControlledShutdown", Some(&Value::Int(70)))
    );
    house.broker.answer(event.ticket, &map(vec![("error_code", Value::Int(11))])).unwrap();
    house.turn(&mut [&mut conn]);
    assert_eq!(conn.reply(&request)[..2], [0, 11]);
}

#[test]
fn elsewhere_it_is_not_listed_and_closes_the_connection() {
    for mut house in [house("INTERNAL"), House::new()] {
        let mut conn = house.connect();
        let keys = listed(&mut house, &mut conn);
        assert!([4, 5, 6, 7, 56, 67].iter().all(|key| !keys.contains(key)));
        house.event(&mut conn, &[shutdown().bytes]);
        assert_eq!((conn.flow, conn.sent.len()), (Flow::Close, 0));
        assert!(house.events().is_empty());
    }
}
