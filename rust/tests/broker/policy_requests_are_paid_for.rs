//! The memory of a request for the policy is known before it is decoded, leased while the value
//! exists, and bounded. A request on many items is submitted in slices.

use krust::broker::{Flow, GroupOutcome, Settings, Ticket};
use krust::protocol::consumer_group_heartbeat::ConsumerGroupHeartbeatRequest;
use krust::protocol::describe_configs::{
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResponse,
};
use krust::protocol::describe_groups::{DescribeGroupsRequest, DescribeGroupsResponse};
use krust::protocol::join_group::{JoinGroupRequest, JoinGroupRequestProtocol};
use krust::protocol::value::Value;
use krust::protocol::{Direction, decode_any, value_cost};
use krust::wire::{Reader, Writer};

use crate::double::{Frame, TestBroker, frame, map};
use crate::groups::{GROUP, fixture};
use crate::members::replies;

fn describe_configs(version: i16, names: &[&str]) -> Frame {
    let resource = |name| DescribeConfigsResource {
        resource_type: 2,
        resource_name: name,
        configuration_keys: None,
    };
    let resources = names.iter().copied().map(resource).collect();
    let request = DescribeConfigsRequest { resources, ..Default::default() };
    frame(32, version, |writer, version| request.encode(writer, version))
}

fn list<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    match value.field(name) {
        Some(Value::List(items)) => items,
        _ => panic!("{name}: {value:?}"),
    }
}

/// Bytes that a value takes on the heap.
fn heap(value: &Value) -> usize {
    match value {
        Value::Str(text) => text.capacity(),
        Value::Bytes(bytes) => bytes.capacity(),
        Value::List(items) => {
            items.capacity() * size_of::<Value>() + items.iter().map(heap).sum::<usize>()
        }
        Value::Map(fields) => {
            let own = fields.capacity() * (size_of::<Value>() + 24);
            own + fields.iter().map(|(_, value)| heap(value)).sum::<usize>()
        }
        _ => 0,
    }
}

/// The answer of the policy to a slice of DescribeConfigs.
fn described(request: &Value) -> Value {
    let result = |resource: &Value| {
        let name = resource.field("resource_name").unwrap().clone();
        map(vec![("resource_type", Value::Int(2)), ("resource_name", name)])
    };
    let results = list(request, "resources").iter().map(result).collect();
    map(vec![("results", Value::List(results))])
}

#[test]
fn a_request_tree_takes_less_than_its_estimate() {
    for version in 0..=4 {
        let names: Vec<String> = (0..500).map(|n| format!("topic-{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let resources = names.iter().map(|name| DescribeConfigsResource {
            resource_type: 2,
            resource_name: name,
            configuration_keys: Some(vec!["retention.ms", "größe"]),
        });
        let request =
            DescribeConfigsRequest { resources: resources.collect(), ..Default::default() };
        let mut writer = Writer::new();
        request.encode(&mut writer, version);
        let bound = value_cost(32, version, Direction::Request, &writer.buf).unwrap();
        let value = decode_any(32, version, Direction::Request, &writer.buf).unwrap();
        // An object of Python's takes at least 48 bytes; here there are 5 of them a resource.
        assert!(heap(&value) + 500 * 5 * 48 < bound, "{version}");
        assert!(bound < 40 * writer.buf.len(), "{version}: {bound}");
    }
}

#[test]
fn a_request_of_too_many_parts_closes_its_connection_and_costs_nothing() {
    let mut fixture = TestBroker::new();
    let mut conn = fixture.connect();
    let request = describe_configs(0, &vec![""; 150_000]);
    fixture.event(&mut conn, std::slice::from_ref(&request.bytes));
    assert_eq!((conn.flow, fixture.events().len()), (Flow::Close, 0));
    assert_eq!(fixture.broker.memory().usage().peak, 0);
}

#[test]
fn a_request_with_a_large_name_or_assignment_holds_its_lease_until_it_ends() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    let metadata = vec![7; 20 << 20];
    let protocols = vec![JoinGroupRequestProtocol { name: "range", metadata: &metadata }];
    let join = JoinGroupRequest { group_id: GROUP.0, protocols, ..Default::default() };
    fixture.event(&mut conn, &[frame(11, 5, |w, v| join.encode(w, v)).bytes]);
    let events = fixture.events();
    assert_eq!(events.len(), 1);
    let used = fixture.broker.memory().usage().used;
    assert!((40 << 20..44 << 20).contains(&used), "{used}");
    drop(events);
    assert_eq!(fixture.broker.memory().usage().used, 0);
}

#[test]
fn repeated_names_are_asked_once_and_many_names_in_slices() {
    for version in 0..=4 {
        let mut fixture = TestBroker::new();
        let mut conn = fixture.connect();
        let names: Vec<String> = (0..40).map(|n| format!("t{n}")).collect();
        let named: Vec<&str> = names.iter().chain(&names).map(String::as_str).collect();
        let request = describe_configs(version, &named);
        fixture.event(&mut conn, std::slice::from_ref(&request.bytes));
        let mut sizes = Vec::new();
        while conn.sent.is_empty() {
            let event = fixture.events().remove(0);
            sizes.push(list(&event.request, "resources").len());
            fixture.broker.answer(event.ticket, &described(&event.request)).unwrap();
            fixture.turn(&mut [&mut conn]);
        }
        assert_eq!(sizes, [16, 16, 8]);
        let reply = conn.reply(&request);
        let mut reader = Reader::new(&reply);
        let answer = DescribeConfigsResponse::decode(&mut reader, version).unwrap();
        reader.finish().unwrap();
        let answered: Vec<&str> = answer.results.iter().map(|one| one.resource_name).collect();
        assert_eq!(answered, names);
        assert_eq!(fixture.broker.memory().usage().used, 0);
    }
}

#[test]
fn an_answer_that_grows_too_large_refuses_the_remaining_names() {
    let settings = Settings { policy_response_bytes: 64, ..Settings::default() };
    let mut fixture = TestBroker::with(settings);
    let mut conn = fixture.connect();
    let names: Vec<String> = (0..30).map(|n| format!("topic-{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let request = describe_configs(4, &names);
    fixture.event(&mut conn, std::slice::from_ref(&request.bytes));
    let mut asked = 0;
    while conn.sent.is_empty() {
        let event = fixture.events().remove(0);
        asked += list(&event.request, "resources").len();
        fixture.broker.answer(event.ticket, &described(&event.request)).unwrap();
        fixture.turn(&mut [&mut conn]);
    }
    let reply = conn.reply(&request);
    let answer = DescribeConfigsResponse::decode(&mut Reader::new(&reply), 4).unwrap();
    assert_eq!((asked < 30, answer.results.len()), (true, 30));
    let (fine, refused) = answer.results.split_at(asked);
    assert!(fine.iter().all(|one| one.error_code == 0));
    assert!(refused.iter().all(|one| one.error_code == 42 && one.resource_type == 2));
    assert!(refused[0].error_message.unwrap().contains("krust.policy.response.max.bytes"));
}

#[test]
fn a_slice_of_groups_is_asked_when_the_one_before_is_committed() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    let names: Vec<String> = (0..40).map(|n| format!("g{n}")).collect();
    let groups = names.iter().map(String::as_str).collect();
    let request = DescribeGroupsRequest { groups, ..Default::default() };
    let request = frame(15, 5, |w, v| request.encode(w, v));
    fixture.event(&mut conn, std::slice::from_ref(&request.bytes));
    let mut sizes = Vec::new();
    while conn.sent.is_empty() {
        let event = fixture.events().remove(0);
        let asked = list(&event.request, "groups");
        sizes.push(asked.len());
        let shown = |id: &Value| map(vec![("group_id", id.clone())]);
        let groups = Value::List(asked.iter().map(shown).collect());
        let replies = replies(event.ticket, map(vec![("groups", groups)]), &[]);
        let failed = fixture
            .broker
            .apply_group_outcome(GroupOutcome { replies, ..GroupOutcome::default() })
            .unwrap();
        assert!(failed.is_empty());
        fixture.turn(&mut [&mut conn]);
    }
    assert_eq!(sizes, [32, 8]);
    let reply = conn.reply(&request);
    let answer = DescribeGroupsResponse::decode(&mut Reader::new(&reply), 5).unwrap();
    let answered: Vec<&str> = answer.groups.iter().map(|one| one.group_id).collect();
    assert_eq!(answered, names);
}

#[test]
fn a_request_that_finds_the_pool_full_is_handled_when_memory_is_free() {
    let mut fixture = TestBroker::new();
    let mut conn = fixture.connect();
    let all = fixture.broker.memory().lease(fixture.broker.memory().usage().limit);
    let request = describe_configs(4, &["topic"]);
    fixture.event(&mut conn, std::slice::from_ref(&request.bytes));
    assert_eq!((conn.flow, fixture.events().len(), conn.muted_ms > 0), (Flow::Go, 0, true));
    drop(all);
    fixture.clock.advance(1000);
    fixture.turn(&mut [&mut conn]);
    assert_eq!(fixture.events().len(), 1);
}

#[test]
fn requests_behind_a_heartbeat_for_the_policy_are_handled_after_it() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    let beat = ConsumerGroupHeartbeatRequest {
        group_id: GROUP.0,
        member_id: "m",
        subscribed_topic_regex: Some("a.*"),
        ..Default::default()
    };
    let beat = frame(68, 1, |w, v| beat.encode(w, v));
    fixture.event(&mut conn, &vec![beat.bytes.clone(); 500]);
    let asked = fixture.events();
    assert_eq!((conn.flow, asked.len()), (Flow::Hold, 1));
    assert!(asked[0].ticket > Ticket(0));
}
