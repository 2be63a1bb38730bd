//! A muted connection gets its replies, but is not read until its time is over. A connection over
//! the quota is closed after a delay.

use std::io::Write;
use std::net::Shutdown;
use std::sync::atomic::Ordering;

use crate::double::{Client, TestServer, framed, until};

fn mute(ms: i32) -> Vec<u8> {
    [b"m", &ms.to_be_bytes()[..]].concat()
}

#[test]
fn requests_of_a_muted_connection_are_answered_after_the_throttle_time() {
    let site = TestServer::start();
    let (mut muted, mut other) = (site.connect(), site.connect());
    assert_eq!(muted.call(&mute(500)), mute(500));
    muted.send(b"e1");
    assert_eq!(other.call(b"e2"), b"e2");
    site.advance(499);
    assert_eq!(other.call(b"e3"), b"e3");
    assert_eq!(site.double.frames.load(Ordering::SeqCst), 3);
    site.advance(1);
    assert_eq!(muted.reply(), b"e1");
    assert_eq!(muted.call(b"e4"), b"e4");
}

#[test]
fn requests_in_the_same_read_as_the_muting_one_wait_too() {
    let site = TestServer::start();
    let mut muted = site.connect();
    let burst = [framed(b"e0"), framed(&mute(500)), framed(b"e1"), framed(&mute(50))].concat();
    muted.0.write_all(&burst).unwrap();
    assert_eq!((muted.reply(), muted.reply()), (b"e0".to_vec(), mute(500)));
    site.advance(499);
    assert_eq!(site.double.frames.load(Ordering::SeqCst), 2);
    site.advance(1);
    assert_eq!((muted.reply(), muted.reply()), (b"e1".to_vec(), mute(50)));
    muted.send(b"e2");
    site.turn();
    assert_eq!(site.double.frames.load(Ordering::SeqCst), 4);
    site.advance(50);
    assert_eq!(muted.reply(), b"e2");
}

#[test]
fn requests_sent_before_a_disconnect_are_handled_after_the_throttle_time() {
    let site = TestServer::start();
    let mut muted = site.connect();
    assert_eq!(muted.call(&mute(500)), mute(500));
    muted.send(b"n");
    muted.0.shutdown(Shutdown::Both).unwrap();
    site.advance(499);
    assert_eq!(site.double.frames.load(Ordering::SeqCst), 1);
    site.advance(1);
    until(|| site.server.connections() == 0);
    assert_eq!(site.double.frames.load(Ordering::SeqCst), 2);
}

#[test]
fn delayed_requests_of_a_muted_connection_are_answered() {
    let site = TestServer::start();
    let mut muted = site.connect();
    muted.0.write_all(&[framed(b"p1"), framed(&mute(500))].concat()).unwrap();
    until(|| site.double.frames.load(Ordering::SeqCst) == 2);
    site.fill(b'1');
    assert_eq!((muted.reply(), muted.reply()), (b"f1".to_vec(), mute(500)));
    muted.send(b"e");
    site.turn();
    assert_eq!(site.double.frames.load(Ordering::SeqCst), 2);
}

#[test]
fn a_muted_connection_is_closed_after_the_idle_time() {
    let site = TestServer::with(1, |options| options.idle_ms = 1000);
    let mut muted = site.connect();
    assert_eq!(muted.call(&mute(i32::MAX)), mute(i32::MAX));
    site.advance(999);
    assert_eq!(site.server.connections(), 1);
    site.advance(1);
    assert!(muted.is_closed());
    assert_eq!(site.connect().call(b"e"), b"e");
}

#[test]
fn the_deadline_of_an_unfinished_frame_starts_again_after_the_throttle_time() {
    let site = TestServer::with(1, |options| options.frame_ms = 100);
    let mut muted = site.connect();
    let burst = [framed(&mute(500)), framed(b"e12")].concat();
    muted.0.write_all(&burst[..burst.len() - 1]).unwrap();
    assert_eq!(muted.reply(), mute(500));
    site.advance(500);
    site.advance(99);
    muted.0.write_all(b"2").unwrap();
    assert_eq!(muted.reply(), b"e12");
}

#[test]
fn stopping_does_not_wait_for_a_muted_connection() {
    let site = TestServer::start();
    let mut muted = site.connect();
    assert_eq!(muted.call(&mute(i32::MAX)), mute(i32::MAX));
    site.server.stop();
    assert!(muted.is_closed());
}

#[test]
fn a_connection_above_the_creation_quota_is_closed_late_and_unread() {
    let site = TestServer::start();
    site.double.away_ms.store(300, Ordering::SeqCst);
    let mut away: Vec<Client> = (0..3).map(|_| site.connect()).collect();
    away.iter_mut().for_each(|client| client.send(b"e"));
    until(|| site.double.away.load(Ordering::SeqCst) == 3);
    site.advance(299);
    assert_eq!(site.server.connections(), 0);
    away.iter().for_each(|client| client.0.set_nonblocking(true).unwrap());
    let mut byte = [0];
    let waits =
        |client: &Client| client.0.peek(&mut byte).is_err_and(|it| it.kind() == WOULD_BLOCK);
    assert!(away.iter().all(waits));
    away.iter().for_each(|client| client.0.set_nonblocking(false).unwrap());
    site.advance(1);
    assert!(away.iter_mut().all(Client::is_closed));
    assert_eq!(site.double.frames.load(Ordering::SeqCst), 0);
    site.double.away_ms.store(0, Ordering::SeqCst);
    assert_eq!(site.connect().call(b"e"), b"e");
}

const WOULD_BLOCK: std::io::ErrorKind = std::io::ErrorKind::WouldBlock;

#[test]
fn a_frame_that_waits_for_memory_is_handled_later() {
    let site = TestServer::start();
    let mut client = site.connect();
    client.send(b"later");
    until(|| site.double.frames.load(Ordering::SeqCst) == 1);
    site.turn();
    site.advance(1_000);
    assert_eq!(client.reply(), b"later");
}
