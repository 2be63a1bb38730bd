//! A leader whose followers are silent, and that no controller answers, cannot commit. It sends
//! producers away, because another broker may lead by now. A Kafka lets their requests time out.

use krust::broker::Flow;

use crate::double::until;
use crate::records::{batch, produce, produced, put};
use crate::replicas::{
    FollowerFetch, LAG_MS, PartitionAssignment, leader, marks, proposal, proposals,
};

const NOT_LEADER_OR_FOLLOWER: i16 = 6;

#[test]
fn producers_are_sent_away_once_a_removal_is_unconfirmed_for_the_lag_time() {
    let mut fixture = leader(&PartitionAssignment::default());
    let (mut client, mut one) = (fixture.connect(), fixture.connect());
    let waits = produce(9, -1, &batch(&["a"]));
    fixture.event(&mut client, std::slice::from_ref(&waits.bytes));
    until("nothing is stored", || marks(&fixture).0 == 1);
    FollowerFetch::at(1, 1).ask(&mut fixture, &mut one);
    fixture.clock.advance(LAG_MS + 1);
    FollowerFetch::at(1, 1).ask(&mut fixture, &mut one);
    fixture.broker.tick_replication();
    let removal = proposal(&fixture);
    assert_eq!(removal.ids(), [0, 1]);
    fixture.turn(&mut [&mut client]);
    assert!(client.is_waiting(), "the controller may still confirm the removal");

    fixture.clock.advance(LAG_MS);
    FollowerFetch::at(1, 1).ask(&mut fixture, &mut one);
    fixture.broker.tick_replication();
    fixture.turn_until_sent(&mut client);
    assert_eq!(produced(9, &client.reply(&waits)).0, NOT_LEADER_OR_FOLLOWER);
    assert_eq!(client.flow, Flow::Go);
    assert_eq!(put(&mut fixture, &mut client, (9, -1, &batch(&["b"]))).0, NOT_LEADER_OR_FOLLOWER);
    assert_eq!(client.flow, Flow::Close, "the client has to ask another broker who leads");
    let mut client = fixture.connect();
    assert_eq!(put(&mut fixture, &mut client, (9, 1, &batch(&["c"]))), (0, 1), "acks=1 goes on");

    removal.commit(&fixture, 8);
    assert_eq!(marks(&fixture), (2, 1));
    let again = produce(9, -1, &batch(&["b"]));
    fixture.event(&mut client, std::slice::from_ref(&again.bytes));
    FollowerFetch::at(1, 3).ask(&mut fixture, &mut one);
    fixture.turn(&mut [&mut client]);
    assert_eq!(produced(9, &client.reply(&again)), (0, 2), "the controller has confirmed it");
}

#[test]
fn a_leader_whose_followers_are_in_sync_needs_no_controller() {
    let mut fixture =
        leader(&PartitionAssignment { isr: vec![0, 1], ..PartitionAssignment::default() });
    let (mut client, mut one, mut two) = (fixture.connect(), fixture.connect(), fixture.connect());
    FollowerFetch::at(2, 0).ask(&mut fixture, &mut two);
    proposal(&fixture).lose(&fixture);
    for offset in 0..5 {
        fixture.clock.advance(LAG_MS / 2);
        let request = produce(9, -1, &batch(&["a"]));
        fixture.event(&mut client, std::slice::from_ref(&request.bytes));
        until("nothing is stored", || marks(&fixture).0 == offset + 1);
        for follower in [1, 2] {
            let conn = if follower == 1 { &mut one } else { &mut two };
            FollowerFetch::at(follower, offset + 1).ask(&mut fixture, conn);
        }
        fixture.broker.tick_replication();
        proposals(&fixture).iter().for_each(|each| each.lose(&fixture));
        fixture.turn_until_sent(&mut client);
        assert_eq!(produced(9, &client.reply(&request)), (0, offset));
    }
}
