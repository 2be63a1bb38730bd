//! Idle connections and frames that do not end are closed by the clock; a peer that leaves is
//! noticed.

use std::io::Write;
use std::sync::atomic::Ordering;

use crate::double::{TestServer, until};

#[test]
fn an_idle_connection_is_closed_after_the_idle_time() {
    let site = TestServer::with(1, |options| options.idle_ms = 1_000);
    let (mut idle, mut busy) = (site.connect(), site.connect());
    assert_eq!(idle.call(b"e"), b"e");
    site.advance(900);
    assert_eq!(busy.call(b"e"), b"e");
    site.advance(200);
    assert!(idle.is_closed());
    assert_eq!(busy.call(b"e"), b"e");
    assert_eq!(site.double.closed.load(Ordering::SeqCst), 1);
}

#[test]
fn a_connection_with_a_delayed_request_is_not_idle() {
    let site = TestServer::with(1, |options| options.idle_ms = 1_000);
    let mut client = site.connect();
    client.send(b"hA");
    until(|| site.double.frames.load(Ordering::SeqCst) == 1);
    site.advance(5_000);
    site.fill(b'A');
    assert_eq!(client.reply(), b"fA");
}

#[test]
fn a_connection_with_an_unfinished_frame_is_closed() {
    let site = TestServer::with(1, |options| options.frame_ms = 30_000);
    let mut slow = site.connect();
    assert_eq!(slow.call(b"e"), b"e");
    slow.0.write_all(&[0, 0, 0, 100]).unwrap();
    slow.delivered();
    site.turn();
    // One byte every second keeps a connection busy, and is still too slow.
    for _ in 0..29 {
        slow.0.write_all(b"e").unwrap();
        site.advance(1_000);
    }
    assert_eq!(site.server.connections(), 1);
    site.advance(3_000);
    assert!(slow.is_closed());
}

#[test]
fn a_large_frame_at_the_minimum_rate_is_received() {
    let site = TestServer::with(1, |options| options.frame_ms = 2_000);
    let mut slow = site.connect();
    let size = 400_000_u32;
    slow.0.write_all(&size.to_be_bytes()).unwrap();
    for _ in 0..10 {
        slow.0.write_all(&vec![b'e'; size as usize / 10]).unwrap();
        slow.delivered();
        site.turn();
        site.advance(1_000);
    }
    assert_eq!(slow.reply().len(), size as usize);
}

#[test]
fn a_fast_frame_that_stops_is_closed_as_soon_as_a_slow_one() {
    let site = TestServer::with(1, |options| options.frame_ms = 5_000);
    let mut stopped = site.connect();
    stopped.0.write_all(&1_000_000_u32.to_be_bytes()).unwrap();
    stopped.0.write_all(&vec![b'e'; 900_000]).unwrap();
    stopped.delivered();
    site.turn();
    site.advance(4_000);
    assert_eq!(site.server.connections(), 1);
    site.advance(2_000);
    assert!(stopped.is_closed());
}

#[test]
fn stalled_frames_make_room_for_connections_that_wait_for_buffers() {
    let site = TestServer::with(1, |options| {
        options.request_max_bytes = 400_000;
        options.request_memory = 0;
    });
    let half = |size: usize| {
        let mut client = site.connect();
        client.0.write_all(&(size as u32).to_be_bytes()).unwrap();
        client.0.write_all(&vec![b'e'; size - 1]).unwrap();
        client.delivered();
        site.turn();
        client
    };
    // The first takes half of the buffers, the second is the one that may go beyond.
    let _holders = [half(400_000), half(400_000)];
    let mut waiting = site.connect();
    waiting.send(&vec![b'e'; 200_000]);
    site.turn();
    site.advance(2_000);
    assert_eq!(site.server.connections(), 3);
    site.advance(2_000);
    assert_eq!(waiting.reply().len(), 200_000);
    assert_eq!(site.server.connections(), 2);
}

#[test]
fn a_disconnect_during_a_delayed_request_is_noticed() {
    let site = TestServer::start();
    let mut client = site.connect();
    client.send(b"hA");
    until(|| site.double.frames.load(Ordering::SeqCst) == 1);
    drop(client);
    until(|| site.double.closed.load(Ordering::SeqCst) == 1);
    site.fill(b'A');
    assert_eq!(site.connect().call(b"e"), b"e");
}

#[test]
fn requests_before_a_disconnect_are_handled() {
    let site = TestServer::start();
    for round in 1..=50 {
        let mut client = site.connect();
        client.send(b"n-last words");
        drop(client);
        until(|| site.double.frames.load(Ordering::SeqCst) == round);
    }
    until(|| site.server.connections() == 0);
}
