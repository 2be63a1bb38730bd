//! Before its login a connection may send small frames only, and not for long.

use std::io::Write;
use std::sync::atomic::Ordering;

use crate::double::{TestServer, framed};

const LIMIT: usize = 1_000;

/// A server on which connections have to log in within ten seconds.
fn site() -> TestServer {
    let site = TestServer::with(1, |options| {
        options.login_frame_max_bytes = LIMIT;
        options.login_ms = 10_000;
    });
    site.double.asks_for_logins.store(true, Ordering::SeqCst);
    site
}

#[test]
fn a_frame_before_the_login_is_small() {
    let site = site();
    let mut client = site.connect();
    assert_eq!(client.call(&[b'e'; LIMIT]), [b'e'; LIMIT]);
    client.0.write_all(&(LIMIT as i32 + 1).to_be_bytes()).unwrap();
    assert!(client.is_closed());

    let mut client = site.connect();
    assert_eq!(client.call(b"a"), b"a");
    let large = vec![b'e'; 100 * LIMIT];
    assert!(client.call(&large) == large);
}

#[test]
fn a_login_that_takes_too_long_ends_its_connection_however_busy_it_is() {
    let site = site();
    let (mut slow, mut known) = (site.connect(), site.connect());
    assert_eq!(known.call(b"a"), b"a");
    for _ in 0..9 {
        assert_eq!(slow.call(b"e"), b"e");
        site.advance(1_000);
    }
    assert_eq!(slow.call(b"e"), b"e");
    site.advance(2_000);
    assert!(slow.is_closed());
    site.advance(20_000);
    assert_eq!(known.call(b"e"), b"e");
}

#[test]
fn a_client_that_says_nothing_before_its_login_is_disconnected() {
    let site = site();
    let (mut silent, mut half) = (site.connect(), site.connect());
    half.0.write_all(&framed(b"eee")[..5]).unwrap();
    site.turn();
    site.advance(11_000);
    assert!(silent.is_closed() && half.is_closed());
}

#[test]
fn one_byte_a_second_is_no_way_beyond_the_deadline_of_a_login() {
    let site = site();
    let mut slow = site.connect();
    let frame = framed(&[b'e'; 100]);
    for byte in &frame[..9] {
        slow.0.write_all(&[*byte]).unwrap();
        slow.delivered();
        site.advance(1_000);
    }
    assert_eq!(site.server.connections(), 1);
    slow.0.write_all(&frame[9..10]).unwrap();
    site.advance(2_000);
    assert!(slow.is_closed());
}
