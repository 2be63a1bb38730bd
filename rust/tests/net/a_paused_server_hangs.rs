//! A paused server hangs: connections stay open, and no request is answered until it resumes.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::double::TestServer;

/// Long enough for an answer that should not come.
const SILENCE: Duration = Duration::from_millis(50);

#[test]
fn requests_that_come_during_a_pause_are_answered_after_it() {
    let site = TestServer::with(2, |_| {});
    let (mut one, mut two) = (site.connect(), site.connect());
    assert_eq!((one.call(b"e1"), two.call(b"e2")), (b"e1".to_vec(), b"e2".to_vec()));
    for _ in 0..3 {
        site.server.pause();
        site.server.pause();
        let before = site.double.frames.load(Ordering::SeqCst);
        one.send(b"e3");
        two.send(b"e4");
        let mut three = site.connect();
        three.send(b"e5");
        std::thread::sleep(SILENCE);
        assert_eq!(site.double.frames.load(Ordering::SeqCst), before);
        site.server.resume();
        assert_eq!((one.reply(), two.reply(), three.reply()), replies());
    }
}

fn replies() -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    (b"e3".to_vec(), b"e4".to_vec(), b"e5".to_vec())
}

#[test]
fn a_server_can_be_paused_while_it_starts() {
    for _ in 0..300 {
        let site = TestServer::with(2, |_| {});
        site.server.pause();
        site.server.resume();
        assert_eq!(site.connect().call(b"e"), b"e");
    }
}

#[test]
fn a_paused_server_can_be_stopped() {
    let site = TestServer::start();
    let mut client = site.connect();
    assert_eq!(client.call(b"e"), b"e");
    site.server.pause();
    site.server.stop();
    assert!(client.is_closed());
    site.server.pause();
    site.server.resume();
}
