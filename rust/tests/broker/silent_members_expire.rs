//! The policy learns of a member that was silent for its session timeout. In dev mode it learns of
//! one whose connection closed after the grace period.

use krust::broker::{GroupState, MemberSnapshot, Settings};

use crate::double::TestBroker;
use crate::groups::{GROUP, commit_as, committed, create_topics, fixture};
use crate::members::{
    GENERATION, MEMBER, SESSION_MS, STATIC, beat, expired, heartbeat, join, member, publish,
    publish_row, row,
};

fn named(member_id: &str) -> String {
    format!("{}/{member_id}", GROUP.0)
}

#[test]
fn each_request_of_a_member_restarts_its_session() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    let stable = || Some(row(GroupState::Stable, vec![member(MEMBER), member("m-2")]));
    publish_row(&fixture, stable());
    fixture.clock.advance(SESSION_MS - 1);
    assert_eq!(fixture.broker.session_due_ms(), Some(1));
    assert!(expired(&fixture).is_empty());
    assert_eq!(beat(&mut fixture, &mut conn, &heartbeat(4, MEMBER, GENERATION)), 0);
    fixture.clock.advance(1);
    assert_eq!(expired(&fixture), [named("m-2")]);

    fixture.clock.advance(SESSION_MS - 2);
    let request = commit_as(8, (GROUP.0, MEMBER, GENERATION), &[(0, 1, -1, None)]);
    assert_eq!(committed(&mut fixture, &mut conn, &request), [0]);
    fixture.clock.advance(SESSION_MS - 1);
    fixture.event(&mut conn, &[join(5, GROUP.0, MEMBER).bytes]);
    fixture.clock.advance(SESSION_MS - 1);
    assert!(expired(&fixture).is_empty(), "a commit and a join count");
    publish_row(&fixture, stable());
    assert_eq!(expired(&fixture), [named("m-2")], "published again, and still silent");
    fixture.clock.advance(1);
    assert_eq!(expired(&fixture), [named(MEMBER)]);
    assert_eq!(fixture.broker.session_due_ms(), None);
}

#[test]
fn a_wrong_generation_does_not_restart_the_session() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    publish(&fixture, GroupState::Stable);
    fixture.clock.advance(SESSION_MS);
    assert_eq!(beat(&mut fixture, &mut conn, &heartbeat(4, MEMBER, GENERATION + 1)), 22);
    assert_eq!(expired(&fixture), [named(MEMBER), named(STATIC.0)]);
}

/// A fixture in dev mode, and a connection that [`MEMBER`] and [`STATIC`] joined through.
fn dev() -> (TestBroker, crate::double::Conn, u64) {
    let mut fixture =
        TestBroker::with(Settings { connection_grace_ms: 500, ..Settings::default() });
    create_topics(&mut fixture);
    let mut conn = fixture.connect();
    fixture.event(&mut conn, &[join(5, GROUP.0, "").bytes]);
    let number = fixture.events().remove(0).client.connection;
    let joined = |member| MemberSnapshot { connection: Some(number), ..member };
    let fixed = MemberSnapshot { instance_id: Some(STATIC.1.into()), ..member(STATIC.0) };
    let members = vec![joined(member(MEMBER)), joined(fixed)];
    publish_row(&fixture, Some(row(GroupState::Stable, members)));
    (fixture, conn, number)
}

#[test]
fn a_member_with_a_lost_connection_stays_for_the_grace_period() {
    let (mut fixture, conn, _) = dev();
    fixture.close(conn);
    assert_eq!(
        fixture.policy.hurried.load(std::sync::atomic::Ordering::SeqCst),
        1,
        "the policy waits less long now"
    );
    assert_eq!(fixture.broker.session_due_ms(), Some(500));
    fixture.clock.advance(500);
    assert_eq!(expired(&fixture), [named(MEMBER)], "a static member keeps its session");
    fixture.clock.advance(SESSION_MS - 500);
    assert_eq!(expired(&fixture), [named(STATIC.0)]);
}

#[test]
fn a_member_that_returns_within_the_grace_period_stays() {
    let (mut fixture, conn, _) = dev();
    fixture.close(conn);
    fixture.clock.advance(499);
    let mut other = fixture.connect();
    assert_eq!(beat(&mut fixture, &mut other, &heartbeat(4, MEMBER, GENERATION)), 0);
    fixture.clock.advance(5000);
    assert!(expired(&fixture).is_empty());
    fixture.close(other);
    fixture.clock.advance(500);
    assert_eq!(expired(&fixture), [named(MEMBER)], "it spoke through that one last");
}

#[test]
fn a_join_whose_connection_closes_is_dropped() {
    let (mut fixture, _conn, _) = dev();
    let mut conn = fixture.connect();
    fixture.event(&mut conn, &[join(5, GROUP.0, "").bytes]);
    let number = fixture.events().remove(0).client.connection;
    fixture.close(conn);
    let waits = MemberSnapshot { timed: false, connection: Some(number), ..member("late") };
    publish_row(&fixture, Some(row(GroupState::PreparingRebalance, vec![waits.clone()])));
    assert_eq!(fixture.broker.session_due_ms(), Some(500), "closed before it was published");
    fixture.clock.advance(500);
    assert_eq!(expired(&fixture), [named("late")]);
    publish_row(&fixture, Some(row(GroupState::PreparingRebalance, vec![waits])));
    assert_eq!(expired(&fixture), [named("late")], "and it is still so");
}
