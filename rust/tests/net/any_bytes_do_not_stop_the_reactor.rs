//! Bytes that are not a frame end only their own connection.

use std::io::Write;

use crate::double::{TestServer, framed, until};

/// A generator that needs no crate: the same bytes in each run.
struct RandomBytes(u64);

impl RandomBytes {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

#[test]
fn any_bytes_do_not_stop_the_reactor() {
    let site = TestServer::start();
    let mut good = site.connect();
    let mut noise = RandomBytes(0x9e37_79b9_7f4a_7c15);
    for round in 0..300_u32 {
        let size = (noise.next() % 300) as usize;
        let bytes: Vec<u8> = (0..size).map(|_| noise.next() as u8).collect();
        let mut bad = site.connect();
        // `p` and `x` frames mean something to the double; noise has no length that makes one.
        bad.0.write_all(&bytes).unwrap();
        drop(bad);
        assert_eq!(good.call(format!("e{round}").as_bytes()), format!("e{round}").as_bytes());
    }
    for request in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"]
    {
        let mut bad = site.connect();
        bad.0.write_all(request).unwrap();
        assert!(bad.is_closed());
    }
    until(|| site.server.connections() == 1);
    assert_eq!(good.call(b"e-end"), b"e-end");
}

#[test]
fn valid_frames_before_an_invalid_one_are_answered() {
    let site = TestServer::start();
    let mut client = site.connect();
    let wire = [framed(b"e1"), framed(b"e2"), vec![0xff; 4]].concat();
    client.0.write_all(&wire).unwrap();
    assert_eq!((client.reply(), client.reply()), (b"e1".to_vec(), b"e2".to_vec()));
    assert!(client.is_closed());
}

#[test]
fn a_service_can_close_after_its_reply() {
    let site = TestServer::start();
    let mut client = site.connect();
    client.send(b"c-bye");
    assert_eq!(client.reply(), b"c-bye");
    assert!(client.is_closed());
}

#[test]
fn a_panic_stops_the_server_and_marks_it_as_failed() {
    let site = TestServer::with(2, |_| {});
    let (mut first, mut second) = (site.connect(), site.connect());
    assert_eq!(second.call(b"e"), b"e");
    first.send(b"x");
    assert!(first.is_closed() && second.is_closed());
    assert!(site.server.has_failed());
}
