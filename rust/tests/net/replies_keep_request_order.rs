//! Replies leave in the order of their requests, however late some of them become ready.

use crate::double::TestServer;

#[test]
fn replies_keep_request_order() {
    let site = TestServer::start();
    let mut client = site.connect();
    for body in [b"e1", b"pA", b"e2", b"pB", b"pC", b"e3"] {
        client.send(body);
    }
    assert_eq!(client.reply(), b"e1");
    crate::double::until(|| site.double.frames.load(std::sync::atomic::Ordering::SeqCst) == 6);
    for name in *b"CAB" {
        site.fill(name);
    }
    let rest: Vec<Vec<u8>> = (0..5).map(|_| client.reply()).collect();
    assert_eq!(rest, [b"fA", b"e2", b"fB", b"fC", b"e3"]);
}

#[test]
fn a_long_poll_stops_reading_until_it_is_answered() {
    let site = TestServer::start();
    let mut client = site.connect();
    client.send(b"hA");
    crate::double::until(|| site.double.frames.load(std::sync::atomic::Ordering::SeqCst) == 1);
    client.send(b"e1");
    assert_eq!(site.connect().call(b"other"), b"other");
    assert_eq!(site.double.frames.load(std::sync::atomic::Ordering::SeqCst), 2);
    site.fill(b'A');
    assert_eq!(client.reply(), b"fA");
    assert_eq!(client.reply(), b"e1");
}

#[test]
fn a_request_that_is_left_until_a_slot_is_filled_is_handled_again_then() {
    let site = TestServer::start();
    let mut client = site.connect();
    client.send(b"tA");
    client.send(b"e1");
    crate::double::until(|| site.double.frames.load(std::sync::atomic::Ordering::SeqCst) == 1);
    assert_eq!(site.connect().call(b"other"), b"other");
    site.fill(b'A');
    let rest: Vec<Vec<u8>> = (0..3).map(|_| client.reply()).collect();
    assert_eq!(rest, [b"fA", b"tA", b"e1"]);
}

#[test]
fn a_request_without_a_reply_leaves_no_gap() {
    let site = TestServer::start();
    let mut client = site.connect();
    for body in [b"n1", b"e1", b"n2", b"e2"] {
        client.send(body);
    }
    assert_eq!((client.reply(), client.reply()), (b"e1".to_vec(), b"e2".to_vec()));
}

#[test]
fn connections_are_spread_over_the_threads() {
    let site = TestServer::with(3, |_| {});
    let mut clients: Vec<_> = (0..9).map(|_| site.connect()).collect();
    for round in 0..20_u8 {
        for client in &mut clients {
            client.send(&[b'e', round]);
        }
        for client in &mut clients {
            assert_eq!(client.reply(), [b'e', round]);
        }
    }
}

#[test]
fn busy_polling_changes_no_reply() {
    let site = TestServer::with(1, |options| options.busy_poll_us = 50);
    let mut client = site.connect();
    for round in 0..100_u8 {
        assert_eq!(client.call(&[b'e', round]), [b'e', round]);
    }
    client.send(b"pA");
    crate::double::until(|| site.double.frames.load(std::sync::atomic::Ordering::SeqCst) == 101);
    site.fill(b'A');
    assert_eq!(client.reply(), b"fA");
}
