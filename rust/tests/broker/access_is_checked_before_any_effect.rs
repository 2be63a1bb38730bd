//! With an authorizer a client does what ACLs allow, and learns nothing of the rest. Requests that
//! the policy decides reach it without what is not allowed.

use std::sync::Arc;

use krust::broker::acls::{AclBinding, AclTable, Operation, ResourceType};
use krust::broker::{ListenerLogins, MetadataDelta, OfferedMechanism};
use krust::protocol::create_delegation_token::{
    CreateDelegationTokenRequest, CreateDelegationTokenResponse,
};
use krust::protocol::create_topics::{CreatableTopic, CreateTopicsRequest, CreateTopicsResponse};
use krust::protocol::describe_delegation_token::{
    DescribeDelegationTokenRequest, DescribeDelegationTokenResponse,
};
use krust::protocol::list_groups::ListGroupsResponse;
use krust::protocol::metadata::{MetadataRequest, MetadataRequestTopic, MetadataResponse};
use krust::protocol::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use krust::protocol::sasl_authenticate::SaslAuthenticateRequest;
use krust::protocol::sasl_handshake::SaslHandshakeRequest;
use krust::protocol::value::Value;
use krust::protocol::{
    RecordsField, create_delegation_token, create_topics, describe_delegation_token, list_groups,
    metadata, sasl_authenticate, sasl_handshake, update_features,
};
use krust::transport::sasl::Mechanism;
use krust::wire::Reader;

use crate::double::{Conn, Frame, Made, TestBroker, frame, map, raw};
use crate::records::{Fetch, TOPIC, batch, fetched, produce, produced, transactional};
use crate::replicas::{FollowerFetch, PartitionAssignment, leader, marks};

const UNKNOWN_TOPIC: i16 = 3;
const TOPIC_DENIED: i16 = 29;
const CLUSTER_DENIED: i16 = 31;
const TOKEN_DENIED: i16 = 65;
const TRANSACTIONAL_ID_DENIED: i16 = 53;

/// A broker with an authorizer, and one topic.
fn fixture() -> TestBroker {
    let mut fixture = TestBroker::new();
    fixture.topic(TOPIC, Made::default());
    protect(&mut fixture);
    fixture
}

/// Gives it logins and an authorizer.
fn protect(fixture: &mut TestBroker) {
    let users = ["alice", "bob", "root"].map(|user| (user.to_owned(), "secret".to_owned()));
    let plain = OfferedMechanism { mechanism: Mechanism::Plain, max_reauth_ms: 0 };
    let logins = ListenerLogins {
        offered: vec![plain],
        plain_users: users.into_iter().collect(),
        tokens: None,
    };
    fixture.broker.set_logins([("PLAINTEXT".into(), logins.into())].into_iter().collect());
    fixture.broker.set_authorizer(["root".to_owned()].into_iter().collect(), false);
}

fn login(fixture: &mut TestBroker, user: &str) -> Conn {
    let mut conn = fixture.connect();
    let handshake = frame(sasl_handshake::KEY, 1, |writer, version| {
        SaslHandshakeRequest { mechanism: "PLAIN" }.encode(writer, version);
    });
    fixture.ask(&mut conn, &handshake);
    let token = format!("\0{user}\0secret");
    let authenticate = frame(sasl_authenticate::KEY, 1, |writer, version| {
        SaslAuthenticateRequest { auth_bytes: token.as_bytes() }.encode(writer, version);
    });
    fixture.ask(&mut conn, &authenticate);
    conn
}

/// Allows alice these operations on these topics.
fn allow(fixture: &mut TestBroker, allowed: &[(Operation, &str)]) {
    let bindings = allowed.iter().map(|(operation, topic)| AclBinding {
        resource_type: ResourceType::Topic,
        is_prefixed: false,
        name: (*topic).into(),
        principal: "User:alice".into(),
        host: "*".into(),
        operation: *operation,
        is_allow: true,
    });
    let acls = Some(Arc::new(AclTable::new(&bindings.collect::<Vec<_>>())));
    fixture.apply(MetadataDelta { acls, ..MetadataDelta::default() });
}

fn describe(names: &[&'static str], creates: bool) -> Frame {
    let topics =
        names.iter().map(|name| MetadataRequestTopic { name: Some(name), ..Default::default() });
    let topics = Some(topics.collect());
    frame(metadata::KEY, 9, |writer, version| {
        MetadataRequest { topics, allow_auto_topic_creation: creates, ..Default::default() }
            .encode(writer, version);
    })
}

/// The errors of [`TOPIC`] and of a topic that does not exist. `creates`: it may be created.
fn errors(fixture: &mut TestBroker, conn: &mut Conn, creates: bool) -> Vec<i16> {
    let reply = fixture.ask(conn, &describe(&[TOPIC, "none"], creates));
    let response = MetadataResponse::decode(&mut Reader::new(&reply), 9).unwrap();
    response.topics.iter().map(|topic| topic.error_code).collect()
}

#[test]
fn what_is_not_allowed_is_not_appended() {
    let mut fixture = fixture();
    let mut alice = login(&mut fixture, "alice");
    let request = produce(9, 1, &batch(&["a"]));
    let before = fixture.log(TOPIC, 0);
    assert_eq!(produced(9, &fixture.ask(&mut alice, &request)), (TOPIC_DENIED, -1));
    assert_eq!(fixture.log(TOPIC, 0), before);
    allow(&mut fixture, &[(Operation::Write, TOPIC)]);
    assert_eq!(produced(9, &fixture.ask(&mut alice, &request)), (0, 0));
    allow(&mut fixture, &[]);
    assert_eq!(produced(9, &fixture.ask(&mut alice, &request)), (TOPIC_DENIED, -1));
    let mut root = login(&mut fixture, "root");
    assert_eq!(produced(9, &fixture.ask(&mut root, &request)), (0, 1));
}

#[test]
fn cve_2018_1288_a_follower_needs_cluster_action_on_the_listener_of_brokers_too() {
    let mut fixture = leader(&PartitionAssignment::default());
    protect(&mut fixture);
    let (mut root, mut alice) = (login(&mut fixture, "root"), login(&mut fixture, "alice"));
    assert_eq!(produced(9, &fixture.ask(&mut root, &produce(9, 1, &batch(&["a"])))), (0, 0));
    allow(&mut fixture, &[(Operation::Read, TOPIC), (Operation::Describe, TOPIC)]);
    for version in [4, 11, 14, 15, 17] {
        for replica in [1, 2] {
            let fetch = FollowerFetch { version, ..FollowerFetch::at(replica, 1) };
            let answer = fetch.ask(&mut fixture, &mut alice);
            assert_eq!((answer.error, answer.bytes), (TOPIC_DENIED, 0), "{version}");
        }
    }
    assert_eq!(marks(&fixture), (1, 0), "the high watermark stays");
    for replica in [1, 2] {
        assert_eq!(FollowerFetch::at(replica, 1).ask(&mut fixture, &mut root).error, 0);
    }
    assert_eq!(marks(&fixture), (1, 1));
}

#[test]
fn a_transactional_batch_needs_its_transactional_id_too() {
    let mut fixture = fixture();
    allow(&mut fixture, &[(Operation::Write, TOPIC)]);
    let mut alice = login(&mut fixture, "alice");
    let request = frame(0, 9, |writer, version| {
        let records = transactional(7, &["a"]);
        let data = PartitionProduceData { index: 0, records: RecordsField::Bytes(&records) };
        let topic =
            TopicProduceData { name: TOPIC, partition_data: vec![data], ..Default::default() };
        ProduceRequest {
            transactional_id: Some("t"),
            acks: 1,
            timeout_ms: 1000,
            topic_data: vec![topic],
        }
        .encode(writer, version);
    });
    let reply = fixture.ask(&mut alice, &request);
    assert_eq!(produced(9, &reply).0, TRANSACTIONAL_ID_DENIED);
}

#[test]
fn a_session_reads_no_longer_than_its_client_may() {
    let mut fixture = fixture();
    allow(&mut fixture, &[(Operation::Read, TOPIC)]);
    let mut root = login(&mut fixture, "root");
    fixture.ask(&mut root, &produce(9, 1, &batch(&["a"])));
    let mut alice = login(&mut fixture, "alice");
    let full = Fetch { session: (0, 0), ..Fetch::default() };
    let reply = fixture.ask(&mut alice, &full.of(&[0]));
    let (error, id, partitions) = fetched(full.version, &reply);
    assert_eq!((error, partitions[0].1, partitions[0].3.is_empty()), (0, 0, false));

    let next = |epoch| Fetch { session: (id, epoch), ..full };
    let mut bob = login(&mut fixture, "bob");
    let reply = fixture.ask(&mut bob, &next(1).of(&[]));
    let stolen = fetched(full.version, &reply);
    assert_eq!((stolen.2[0].1, stolen.2[0].3.is_empty()), (TOPIC_DENIED, true));

    let reply = fixture.ask(&mut alice, &next(2).of(&[]));
    assert!(!fetched(full.version, &reply).2[0].3.is_empty());
    allow(&mut fixture, &[]);
    let reply = fixture.ask(&mut alice, &next(3).of(&[]));
    let revoked = fetched(full.version, &reply);
    assert_eq!((revoked.2[0].1, revoked.2[0].3.is_empty()), (TOPIC_DENIED, true));
}

#[test]
fn a_waiting_fetch_gets_nothing_after_its_acl_is_gone() {
    let mut fixture = fixture();
    allow(&mut fixture, &[(Operation::Read, TOPIC)]);
    let (mut root, mut alice) = (login(&mut fixture, "root"), login(&mut fixture, "alice"));
    let poll = Fetch { max_wait_ms: 500, ..Fetch::default() }.of(&[0]);
    fixture.event(&mut alice, std::slice::from_ref(&poll.bytes));
    assert!(alice.sent.is_empty());
    allow(&mut fixture, &[]);
    fixture.ask(&mut root, &produce(9, 1, &batch(&["a"])));
    fixture.turn(&mut [&mut alice]);
    let (_, _, partitions) = fetched(poll.version, &alice.reply(&poll));
    assert_eq!((partitions[0].1, partitions[0].3.is_empty()), (TOPIC_DENIED, true));
}

#[test]
fn a_topic_that_may_not_be_described_is_refused_whether_or_not_it_exists() {
    let mut fixture = fixture();
    let mut alice = login(&mut fixture, "alice");
    assert_eq!(errors(&mut fixture, &mut alice, true), [TOPIC_DENIED, TOPIC_DENIED]);
    let all = frame(metadata::KEY, 9, |writer, version| {
        MetadataRequest { topics: None, ..Default::default() }.encode(writer, version);
    });
    let reply = fixture.ask(&mut alice, &all);
    let response = MetadataResponse::decode(&mut Reader::new(&reply), 9).unwrap();
    assert!(response.topics.is_empty() && response.brokers.len() == 1);
    allow(&mut fixture, &[(Operation::Write, TOPIC), (Operation::Read, "none")]);
    assert_eq!(errors(&mut fixture, &mut alice, false), [0, UNKNOWN_TOPIC]);
    assert_eq!(errors(&mut fixture, &mut alice, true), [0, TOPIC_DENIED]);
    assert!(fixture.events().is_empty());
}

#[test]
fn the_policy_is_asked_only_for_what_is_allowed() {
    let mut fixture = fixture();
    allow(&mut fixture, &[(Operation::Create, "mine")]);
    let mut alice = login(&mut fixture, "alice");
    let topics = ["mine", "other"].map(|name| CreatableTopic {
        name,
        num_partitions: 1,
        ..Default::default()
    });
    let request = frame(create_topics::KEY, 5, |writer, version| {
        CreateTopicsRequest { topics: topics.to_vec(), ..Default::default() }
            .encode(writer, version);
    });
    fixture.event(&mut alice, std::slice::from_ref(&request.bytes));
    let event = fixture.events().remove(0);
    let Some(Value::List(asked)) = event.request.field("topics") else { unreachable!() };
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].field("name"), Some(&Value::Str("mine".into())));
    let created = map(vec![
        ("name", Value::Str("mine".into())),
        ("num_partitions", Value::Int(1)),
        ("replication_factor", Value::Int(1)),
    ]);
    let answer = map(vec![("topics", Value::List(vec![created]))]);
    fixture.broker.answer(event.ticket, &answer).unwrap();
    fixture.turn(&mut [&mut alice]);
    let reply = alice.reply(&request);
    let response = CreateTopicsResponse::decode(&mut Reader::new(&reply), 5).unwrap();
    let topics = response.topics.iter();
    let seen = topics.map(|it| (it.name, it.error_code, it.num_partitions)).collect::<Vec<_>>();
    assert_eq!(seen, [("mine", 0, -1), ("other", TOPIC_DENIED, -1)]);
    assert_eq!(response.topics[0].topic_config_error_code, TOPIC_DENIED);
}

#[test]
fn groups_that_may_not_be_described_are_not_listed() {
    let mut fixture = fixture();
    let mut alice = login(&mut fixture, "alice");
    let request = raw(list_groups::KEY, 0, b"");
    fixture.event(&mut alice, std::slice::from_ref(&request.bytes));
    let event = fixture.events().remove(0);
    let group = map(vec![("group_id", Value::Str("g".into()))]);
    let answer = map(vec![("groups", Value::List(vec![group]))]);
    fixture.broker.answer(event.ticket, &answer).unwrap();
    fixture.turn(&mut [&mut alice]);
    let reply = alice.reply(&request);
    let response = ListGroupsResponse::decode(&mut Reader::new(&reply), 0).unwrap();
    assert!(response.groups.is_empty());
}

#[test]
fn an_operation_on_the_cluster_refuses_the_whole_request() {
    let mut fixture = fixture();
    let mut alice = login(&mut fixture, "alice");
    let request = raw(update_features::KEY, 0, b"\0\0\0\0\x01\0");
    let reply = fixture.ask(&mut alice, &request);
    let error = i16::from_be_bytes([reply[4], reply[5]]);
    assert_eq!(error, CLUSTER_DENIED);
    assert!(fixture.events().is_empty());
}

/// Allows alice an operation on one resource.
fn allow_one(fixture: &mut TestBroker, resource_type: ResourceType, operation: Operation) {
    let name = match resource_type {
        ResourceType::User => "User:bob",
        _ => "t2",
    };
    let binding = AclBinding {
        resource_type,
        is_prefixed: false,
        name: name.into(),
        principal: "User:alice".into(),
        host: "*".into(),
        operation,
        is_allow: true,
    };
    let acls = Some(Arc::new(AclTable::new(&[binding])));
    fixture.apply(MetadataDelta { acls, ..MetadataDelta::default() });
}

fn token_of(owner: Option<(&'static str, &'static str)>) -> Frame {
    frame(create_delegation_token::KEY, 3, |writer, version| {
        CreateDelegationTokenRequest {
            owner_principal_type: owner.map(|(kind, _)| kind),
            owner_principal_name: owner.map(|(_, name)| name),
            ..Default::default()
        }
        .encode(writer, version);
    })
}

#[test]
fn tokens_of_others_are_made_only_if_an_acl_on_the_owner_says_so() {
    let mut fixture = fixture();
    let mut alice = login(&mut fixture, "alice");
    let owners = [Some(("User", "bob")), Some(("Group", "alice"))];
    for owner in owners {
        let request = token_of(owner);
        let reply = fixture.ask(&mut alice, &request);
        let response = CreateDelegationTokenResponse::decode(&mut Reader::new(&reply), 3).unwrap();
        assert_eq!(response.error_code, TOKEN_DENIED);
        assert_eq!(Some((response.principal_type, response.principal_name)), owner);
        assert_eq!((response.token_requester_principal_name, response.token_id), ("alice", ""));
        assert_eq!((response.issue_timestamp_ms, response.max_timestamp_ms), (-1, -1));
    }
    assert!(fixture.events().is_empty());
    for owner in [None, Some(("User", "")), Some(("User", "alice"))] {
        let mut alice = login(&mut fixture, "alice");
        fixture.event(&mut alice, &[token_of(owner).bytes]);
        assert_eq!(fixture.events().len(), 1, "one's own");
    }
    allow_one(&mut fixture, ResourceType::User, Operation::CreateTokens);
    fixture.event(&mut alice, &[token_of(owners[0]).bytes]);
    assert_eq!(fixture.events().len(), 1);
}

/// The tokens that alice sees of three: bob's `t1` and `t2`, and bob's `t3` that she may renew.
fn seen(fixture: &mut TestBroker, user: &str) -> Vec<String> {
    let mut conn = login(fixture, user);
    let request = frame(describe_delegation_token::KEY, 3, |writer, version| {
        DescribeDelegationTokenRequest::default().encode(writer, version);
    });
    fixture.event(&mut conn, std::slice::from_ref(&request.bytes));
    let principal = |name: &'static str| {
        vec![("principal_type", "User".into()), ("principal_name", name.into())]
    };
    let token = |id: &'static str, renewers: Vec<Value>| {
        let mut fields = principal("bob");
        fields.extend([("token_id", id.into()), ("renewers", Value::List(renewers))]);
        map(fields)
    };
    let tokens = vec![
        token("t1", Vec::new()),
        token("t2", Vec::new()),
        token("t3", vec![map(principal("alice"))]),
    ];
    let answer = map(vec![("tokens", Value::List(tokens))]);
    let event = fixture.events().remove(0);
    fixture.broker.answer(event.ticket, &answer).unwrap();
    fixture.turn(&mut [&mut conn]);
    let reply = conn.reply(&request);
    let response = DescribeDelegationTokenResponse::decode(&mut Reader::new(&reply), 3).unwrap();
    response.tokens.iter().map(|token| token.token_id.to_owned()).collect()
}

#[test]
fn tokens_of_others_are_shown_to_their_renewers_and_where_an_acl_says_so() {
    let mut fixture = fixture();
    assert_eq!(seen(&mut fixture, "alice"), ["t3"]);
    allow_one(&mut fixture, ResourceType::DelegationToken, Operation::Describe);
    assert_eq!(seen(&mut fixture, "alice"), ["t2", "t3"]);
    allow_one(&mut fixture, ResourceType::User, Operation::DescribeTokens);
    for user in ["alice", "bob", "root"] {
        assert_eq!(seen(&mut fixture, user), ["t1", "t2", "t3"], "{user}");
    }
}
