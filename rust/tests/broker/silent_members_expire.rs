//! A member that is not heard of for its session timeout is named to the policy; in dev mode one
//! whose connection closed is named after the grace.

use krust::broker::{FenceMember, FenceState, Settings};

use crate::double::House;
use crate::groups::{GROUP, commit_as, committed, furnish, house};
use crate::members::{
    GENERATION, MEMBER, SESSION_MS, STATIC, beat, expired, heartbeat, join, member, publish,
    publish_row, row,
};

fn named(member_id: &str) -> String {
    format!("{}/{member_id}", GROUP.0)
}

#[test]
fn each_sign_of_life_begins_the_session_anew() {
    let mut house = house();
    let mut conn = house.connect();
    let stable = || Some(row(FenceState::Stable, vec![member(MEMBER), member("m-2")]));
    publish_row(&house, stable());
    house.clock.advance(SESSION_MS - 1);
    assert_eq!(house.broker.session_due_ms(), Some(1));
    assert!(expired(&house).is_empty());
    assert_eq!(beat(&mut house, &mut conn, &heartbeat(4, MEMBER, GENERATION)), 0);
    house.clock.advance(1);
    assert_eq!(expired(&house), [named("m-2")]);

    house.clock.advance(SESSION_MS - 2);
    let request = commit_as(8, (GROUP.0, MEMBER, GENERATION), &[(0, 1, -1, None)]);
    assert_eq!(committed(&mut house, &mut conn, &request), [0]);
    house.clock.advance(SESSION_MS - 1);
    house.event(&mut conn, &[join(5, GROUP.0, MEMBER).bytes]);
    house.clock.advance(SESSION_MS - 1);
    assert!(expired(&house).is_empty(), "a commit and a join count");
    publish_row(&house, stable());
    assert_eq!(expired(&house), [named("m-2")], "published again, and still silent");
    house.clock.advance(1);
    assert_eq!(expired(&house), [named(MEMBER)]);
    assert_eq!(house.broker.session_due_ms(), None);
}

#[test]
fn a_wrong_generation_is_no_sign_of_life() {
    let mut house = house();
    let mut conn = house.connect();
    publish(&house, FenceState::Stable);
    house.clock.advance(SESSION_MS);
    assert_eq!(beat(&mut house, &mut conn, &heartbeat(4, MEMBER, GENERATION + 1)), 22);
    assert_eq!(expired(&house), [named(MEMBER), named(STATIC.0)]);
}

/// A house in dev mode, and a connection that [`MEMBER`] and [`STATIC`] joined through.
fn dev() -> (House, crate::double::Conn, u64) {
    let mut house = House::with(Settings { connection_grace_ms: 500, ..Settings::default() });
    furnish(&mut house);
    let mut conn = house.connect();
    house.event(&mut conn, &[join(5, GROUP.0, "").bytes]);
    let number = house.events().remove(0).client.connection;
    let joined = |member| FenceMember { connection: Some(number), ..member };
    let fixed = FenceMember { instance_id: Some(STATIC.1.into()), ..member(STATIC.0) };
    let members = vec![joined(member(MEMBER)), joined(fixed)];
    publish_row(&house, Some(row(FenceState::Stable, members)));
    (house, conn, number)
}

#[test]
fn a_lost_connection_is_forgiven_for_the_grace() {
    let (mut house, conn, _) = dev();
    house.close(conn);
    assert_eq!(
        house.policy.hurried.load(std::sync::atomic::Ordering::SeqCst),
        1,
        "the policy waits less long now"
    );
    assert_eq!(house.broker.session_due_ms(), Some(500));
    house.clock.advance(500);
    assert_eq!(expired(&house), [named(MEMBER)], "a static member keeps its session");
    house.clock.advance(SESSION_MS - 500);
    assert_eq!(expired(&house), [named(STATIC.0)]);
}

#[test]
fn whoever_speaks_again_is_forgiven() {
    let (mut house, conn, _) = dev();
    house.close(conn);
    house.clock.advance(499);
    let mut other = house.connect();
    assert_eq!(beat(&mut house, &mut other, &heartbeat(4, MEMBER, GENERATION)), 0);
    house.clock.advance(5000);
    assert!(expired(&house).is_empty());
    house.close(other);
    house.clock.advance(500);
    assert_eq!(expired(&house), [named(MEMBER)], "it spoke through that one last");
}

#[test]
fn a_join_whose_connection_closes_is_given_up() {
    let (mut house, _conn, _) = dev();
    let mut conn = house.connect();
    house.event(&mut conn, &[join(5, GROUP.0, "").bytes]);
    let number = house.events().remove(0).client.connection;
    house.close(conn);
    let waits = FenceMember { timed: false, connection: Some(number), ..member("late") };
    publish_row(&house, Some(row(FenceState::PreparingRebalance, vec![waits.clone()])));
    assert_eq!(house.broker.session_due_ms(), Some(500), "closed before it was published");
    house.clock.advance(500);
    assert_eq!(expired(&house), [named("late")]);
    publish_row(&house, Some(row(FenceState::PreparingRebalance, vec![waits])));
    assert_eq!(expired(&house), [named("late")], "and it is still so");
}
