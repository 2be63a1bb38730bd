//! A peer that sends requests and reads no reply costs bounded memory, and is closed in the end.

use std::io::Write;
use std::sync::atomic::Ordering;

use crate::double::{Client, TestServer, framed, until};

const REQUESTS: usize = 2000;

/// Asks for 2000 replies of 100 kB and reads none.
fn ask(site: &TestServer) -> Client {
    let mut client = site.connect();
    let request = framed(&[b"b".as_slice(), &100_000_u32.to_be_bytes()].concat());
    client.0.write_all(&request.repeat(REQUESTS)).unwrap();
    until(|| site.double.frames.load(Ordering::SeqCst) > 0);
    client
}

/// Waits until the server handles no more frames, and says how many it handled.
fn settled(site: &TestServer) -> usize {
    let frames = || site.double.frames.load(Ordering::SeqCst);
    loop {
        let before = frames();
        (0..50).for_each(|_| site.turn());
        if frames() == before {
            return before;
        }
    }
}

#[test]
fn slow_reader_is_paused_and_closed() {
    let site = TestServer::with(1, |options| options.stalled_ms = 5_000);
    let mut slow = ask(&site);
    let handled = settled(&site);
    assert!(handled < REQUESTS / 4, "{handled} requests were answered into memory");
    site.advance(4_999);
    assert_eq!(site.server.connections(), 1);
    // The kernel may take a last piece late. That restarts the time once.
    until(|| {
        site.advance(5_000);
        site.server.connections() == 0
    });
    assert!(slow.is_closed());
}

#[test]
fn a_slow_reader_that_reads_again_gets_all_replies() {
    let site = TestServer::start();
    let mut slow = ask(&site);
    settled(&site);
    for _ in 0..REQUESTS {
        assert_eq!(slow.reply().len(), 100_000);
    }
}

#[test]
fn too_many_delayed_requests_pause_reading() {
    let site = TestServer::with(1, |options| options.delayed_max = 3);
    let mut client = site.connect();
    for name in 0..3 {
        client.send(&[b'p', name]);
        until(|| site.double.frames.load(Ordering::SeqCst) == usize::from(name) + 1);
    }
    for name in 3..5 {
        client.send(&[b'p', name]);
    }
    client.delivered();
    assert_eq!(settled(&site), 3, "requests are delayed");
    for name in 0..5 {
        until(|| site.double.frames.load(Ordering::SeqCst) > usize::from(name));
        site.fill(name);
        assert_eq!(client.reply(), [b'f', name]);
    }
}
