//! A request that the policy decides becomes an event, and the policy's answer becomes the reply.

use krust::broker::{Flow, Settings};
use krust::protocol::create_topics::{CreatableTopic, CreateTopicsRequest, CreateTopicsResponse};
use krust::protocol::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use krust::protocol::metadata::{MetadataRequest, MetadataRequestTopic, MetadataResponse};
use krust::protocol::value::Value;
use krust::wire::Reader;

use crate::double::{Frame, Made, TestBroker, frame, map, raw};
use crate::records::TOPIC;

fn metadata(version: i16, names: &[&'static str]) -> Frame {
    let topics =
        names.iter().map(|name| MetadataRequestTopic { name: Some(name), ..Default::default() });
    let request = MetadataRequest {
        topics: Some(topics.collect()),
        allow_auto_topic_creation: true,
        ..Default::default()
    };
    frame(3, version, |writer, version| request.encode(writer, version))
}

#[test]
fn a_topic_is_created_when_it_is_asked_for() {
    for version in 0..=13 {
        let mut fixture = TestBroker::new();
        let mut conn = fixture.connect();
        let request = metadata(version, &[TOPIC, "bad name"]);
        fixture.event(&mut conn, std::slice::from_ref(&request.bytes));
        assert_eq!((conn.flow, conn.sent.len()), (Flow::Hold, 0));
        let event = fixture.events().remove(0);
        assert_eq!(event.api, "AutoCreate");
        let names = Value::List(vec![Value::Str(TOPIC.into())]);
        assert_eq!(event.request.field("topics"), Some(&names));
        fixture.topic(TOPIC, Made { partitions: 2, ..Made::default() });
        fixture.broker.answer(event.ticket, &map(vec![])).unwrap();
        fixture.turn(&mut [&mut conn]);

        let reply = conn.reply(&request);
        let response = MetadataResponse::decode(&mut Reader::new(&reply), version).unwrap();
        assert_eq!((response.brokers[0].host, response.brokers[0].port), ("127.0.0.1", 9092));
        assert_eq!((response.topics[0].error_code, response.topics[0].partitions.len()), (0, 2));
        assert_eq!(response.topics[1].error_code, 17);
    }
}

#[test]
fn a_request_that_creates_topics_is_paid_for_until_they_are_there() {
    let mut fixture = TestBroker::new();
    let mut conn = fixture.connect();
    let request = metadata(12, &[TOPIC, "another"]);
    fixture.event(&mut conn, std::slice::from_ref(&request.bytes));
    let event = fixture.events().remove(0);
    assert!(fixture.broker.memory().usage().used >= 2 * 1024);
    fixture.broker.answer(event.ticket, &map(vec![])).unwrap();
    fixture.turn(&mut [&mut conn]);
    drop(event);
    assert_eq!(fixture.broker.memory().usage().used, 0);
}

#[test]
fn an_answer_is_encoded_for_its_request() {
    let mut fixture = TestBroker::new();
    for version in 0..=7 {
        let mut conn = fixture.connect();
        let request = CreateTopicsRequest {
            topics: vec![CreatableTopic { name: TOPIC, num_partitions: 1, ..Default::default() }],
            ..Default::default()
        };
        let request = frame(19, version, |writer, version| request.encode(writer, version));
        fixture.event(&mut conn, std::slice::from_ref(&request.bytes));
        assert_eq!(conn.flow, Flow::Hold);
        let event = fixture.events().remove(0);
        assert_eq!((event.api, event.version), ("CreateTopics", version));
        assert_eq!(event.client.id.as_deref(), Some("test"));
        let topic = map(vec![("name", Value::Str(TOPIC.into())), ("error_code", Value::Int(36))]);
        let answer = map(vec![("topics", Value::List(vec![topic]))]);
        fixture.broker.answer(event.ticket, &answer).unwrap();
        fixture.turn(&mut [&mut conn]);
        let reply = conn.reply(&request);
        let response = CreateTopicsResponse::decode(&mut Reader::new(&reply), version).unwrap();
        assert_eq!(response.topics[0].error_code, 36);
        assert_eq!(conn.flow, Flow::Go);
    }
}

#[test]
fn an_answer_of_the_wrong_shape_closes_the_connection() {
    let mut fixture = TestBroker::new();
    let mut conn = fixture.connect();
    let request = frame(19, 7, |w, v| CreateTopicsRequest::default().encode(w, v));
    fixture.event(&mut conn, &[request.bytes]);
    let event = fixture.events().remove(0);
    let nonsense = map(vec![("topics", Value::Int(1))]);
    assert!(fixture.broker.answer(event.ticket, &nonsense).is_err());
    fixture.turn(&mut [&mut conn]);
    assert_eq!((conn.flow, conn.sent.len()), (Flow::Close, 0));
}

#[test]
fn producer_ids_come_in_blocks() {
    let mut fixture = TestBroker::new();
    let (mut first, mut second) = (fixture.connect(), fixture.connect());
    let ask = frame(22, 4, |w, v| InitProducerIdRequest::default().encode(w, v));
    fixture.event(&mut first, std::slice::from_ref(&ask.bytes));
    fixture.event(&mut second, std::slice::from_ref(&ask.bytes));
    let mut events = fixture.events();
    assert_eq!((events.len(), events[0].api), (1, "AllocateProducerIds"));
    let block =
        map(vec![("producer_id_start", Value::Int(5000)), ("producer_id_len", Value::Int(3))]);
    fixture.broker.answer(events.remove(0).ticket, &block).unwrap();
    fixture.turn(&mut [&mut first, &mut second]);
    let id = |reply: &[u8]| {
        let response = InitProducerIdResponse::decode(&mut Reader::new(reply), 4).unwrap();
        (response.error_code, response.producer_id, response.producer_epoch)
    };
    assert_eq!(id(&first.reply(&ask)), (0, 5000, 0));
    assert_eq!(id(&second.reply(&ask)), (0, 5001, 0));
    assert_eq!(id(&fixture.ask(&mut first, &ask)), (0, 5002, 0));
}

#[test]
fn a_refused_topic_has_its_error_message() {
    let mut fixture = TestBroker::new();
    let mut conn = fixture.connect();
    let request = metadata(9, &[TOPIC]);
    fixture.event(&mut conn, std::slice::from_ref(&request.bytes));
    let event = fixture.events().remove(0);
    let topic = map(vec![("name", Value::Str(TOPIC.into())), ("error_code", Value::Int(38))]);
    let answer = map(vec![("topics", Value::List(vec![topic]))]);
    fixture.broker.answer(event.ticket, &answer).unwrap();
    fixture.turn(&mut [&mut conn]);
    let reply = conn.reply(&request);
    let response = MetadataResponse::decode(&mut Reader::new(&reply), 9).unwrap();
    assert_eq!(response.topics[0].error_code, 38);
}

#[test]
fn a_request_is_answered_when_the_policy_never_decides() {
    let mut fixture =
        TestBroker::with(Settings { policy_timeout_ms: 1_000, ..Settings::default() });
    let (mut one, mut two) = (fixture.connect(), fixture.connect());
    let request = metadata(9, &[TOPIC]);
    fixture.event(&mut one, std::slice::from_ref(&request.bytes));
    let list = raw(74, 0, &[0]);
    fixture.event(&mut two, std::slice::from_ref(&list.bytes));
    assert_eq!(fixture.events().len(), 2);
    fixture.clock.advance(1_001);
    fixture.turn(&mut [&mut one, &mut two]);
    let reply = one.reply(&request);
    let response = MetadataResponse::decode(&mut Reader::new(&reply), 9).unwrap();
    assert_eq!(response.topics[0].error_code, 5);
    assert_eq!(two.flow, Flow::Close);
}
