//! A heartbeat is answered from the group snapshot that the policy published last, as Kafka would
//! answer it.

use krust::broker::GroupState;
use krust::protocol::heartbeat::{HeartbeatRequest, HeartbeatResponse};
use krust::wire::Reader;

use crate::double::{Frame, TestBroker, frame};
use crate::groups::{GROUP, fixture};
use crate::members::{
    GENERATION, MEMBER, STATIC, beat, heartbeat, member, publish, publish_row, row, while_read,
};

fn as_instance(version: i16, member_id: &'static str, instance_id: &'static str) -> Frame {
    let request = HeartbeatRequest {
        group_id: GROUP.0,
        member_id,
        generation_id: GENERATION,
        group_instance_id: Some(instance_id),
    };
    frame(12, version, |writer, version| request.encode(writer, version))
}

#[test]
fn heartbeats_are_answered_in_each_state_at_each_version() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    for version in 0..=4 {
        publish_row(&fixture, None);
        let good = heartbeat(version, MEMBER, GENERATION);
        assert_eq!(beat(&mut fixture, &mut conn, &good), 25, "no such group");
        for (state, wanted) in [
            (GroupState::PreparingRebalance, 27),
            (GroupState::CompletingRebalance, 0),
            (GroupState::Stable, 0),
        ] {
            publish(&fixture, state);
            let mut ask = |request: Frame| beat(&mut fixture, &mut conn, &request);
            assert_eq!(ask(good.clone()), wanted, "{state:?}");
            assert_eq!(ask(heartbeat(version, MEMBER, GENERATION - 1)), 22);
            assert_eq!(ask(heartbeat(version, MEMBER, GENERATION + 1)), 22);
            assert_eq!(ask(heartbeat(version, "stranger", GENERATION)), 25);
            if version >= 3 {
                assert_eq!(ask(as_instance(version, STATIC.0, STATIC.1)), wanted);
                assert_eq!(ask(as_instance(version, MEMBER, STATIC.1)), 82);
                assert_eq!(ask(as_instance(version, MEMBER, "nobody")), 25);
            }
        }
        publish_row(&fixture, Some(row(GroupState::Empty, Vec::new())));
        assert_eq!(beat(&mut fixture, &mut conn, &good), 25);
    }
    assert!(fixture.events().is_empty(), "the policy gets none");
}

#[test]
fn heartbeats_are_refused_without_a_coordinator() {
    let mut fixture = TestBroker::new();
    let mut conn = fixture.connect();
    let request = heartbeat(4, MEMBER, GENERATION);
    assert_eq!(beat(&mut fixture, &mut conn, &request), 16);
    let nobody = frame(12, 4, |w, v| HeartbeatRequest::default().encode(w, v));
    let reply = fixture.ask(&mut conn, &nobody);
    let answer = HeartbeatResponse::decode(&mut Reader::new(&reply), 4).unwrap();
    assert_eq!(answer.error_code, 24);
}

#[test]
fn heartbeats_are_accepted_while_the_group_is_loaded() {
    let request = heartbeat(4, "whoever", GENERATION);
    let (mut fixture, mut conn) =
        while_read(|fixture, conn| assert_eq!(beat(fixture, conn, &request), 0));
    assert_eq!(beat(&mut fixture, &mut conn, &request), 0, "the policy has not spoken yet");
    publish_row(&fixture, Some(row(GroupState::Stable, vec![member(MEMBER)])));
    assert_eq!(beat(&mut fixture, &mut conn, &request), 25);
    let request = heartbeat(4, MEMBER, GENERATION);
    assert_eq!(beat(&mut fixture, &mut conn, &request), 0);
}
