//! All connections that have not logged in hold a bounded amount of memory together. Those that
//! hold the most are closed; clients that log in are served.

use std::io::Write;
use std::sync::atomic::Ordering;

use crate::double::{Client, TestServer, framed};

const LIMIT: usize = 1 << 20;

fn site(threads: usize) -> TestServer {
    let site = TestServer::with(threads, |options| options.login_memory = LIMIT);
    site.double.asks_for_logins.store(true, Ordering::SeqCst);
    site
}

/// A client whose frame of `size` bytes lacks its last one.
fn unfinished(site: &TestServer, size: usize) -> Client {
    let mut client = site.connect();
    let frame = framed(&vec![b'e'; size]);
    // It may be closed while it sends.
    let _ = client.0.write_all(&frame[..frame.len() - 1]);
    client
}

/// Whether the server has closed the connection of `client`.
fn is_gone(client: &Client) -> bool {
    client.0.set_nonblocking(true).unwrap();
    let peeked = client.0.peek(&mut [0]);
    client.0.set_nonblocking(false).unwrap();
    !matches!(peeked, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
}

#[test]
fn unfinished_logins_hold_no_more_than_the_limit_together() {
    for threads in [1, 2] {
        let site = site(threads);
        let mut known = site.connect();
        assert_eq!(known.call(b"a"), b"a");
        let mut small = site.connect();
        small.0.write_all(&framed(b"e-small")[..6]).unwrap();
        small.delivered();
        let hoarders: Vec<Client> = (0..40)
            .map(|_| {
                let client = unfinished(&site, 100_000);
                let mut good = site.connect();
                assert_eq!(good.call(b"a-step"), b"a-step");
                assert!(site.server.login_memory() <= LIMIT + 100_000);
                client
            })
            .collect();
        crate::double::until(|| site.server.login_memory() <= LIMIT);
        assert!(hoarders.iter().any(is_gone));
        small.0.write_all(&framed(b"e-small")[6..]).unwrap();
        assert_eq!(small.reply(), b"e-small");
        assert_eq!(known.call(b"e"), b"e");
        drop(hoarders);
        drop(small);
        crate::double::until(|| site.server.login_memory() == 0);
    }
}

#[test]
fn answers_that_are_not_received_before_a_login_count() {
    let site = site(1);
    let mut known = site.connect();
    assert_eq!(known.call(b"a"), b"a");
    let hoarders: Vec<Client> = (0..4)
        .map(|_| {
            let mut client = site.connect();
            // More than the socket's buffers take.
            let body = [b"b".as_slice(), &(16_u32 << 20).to_be_bytes()].concat();
            client.send(&body);
            client
        })
        .collect();
    crate::double::until(|| hoarders.iter().any(is_gone) && site.server.login_memory() <= LIMIT);
    assert_eq!(known.call(b"e"), b"e");
    assert_eq!(site.connect().call(b"a"), b"a");
}

#[test]
fn a_login_frees_what_its_connection_held() {
    let site = site(1);
    let mut client = unfinished(&site, 200_000);
    crate::double::until(|| site.server.login_memory() >= 100_000);
    client.0.write_all(b"e").unwrap();
    assert_eq!(client.reply().len(), 200_000);
    assert_eq!(client.call(b"a"), b"a");
    site.turn();
    assert_eq!(site.server.login_memory(), 0);
    client.0.write_all(&framed(&vec![b'e'; 200_000])[..100_000]).unwrap();
    client.delivered();
    site.turn();
    assert_eq!(site.server.login_memory(), 0);
}
