//! A server can be started and stopped any number of times in one process, and stops promptly. In
//! this test a thread that is not woken sleeps for minutes.

use crate::double::{TestServer, alone, until};

const ROUNDS: usize = 1000;

#[test]
fn a_thousand_starts_and_stops_leave_no_descriptor_and_no_thread() {
    let name = "starts_and_stops_leave_nothing::\
                a_thousand_starts_and_stops_leave_no_descriptor_and_no_thread";
    alone(name, start_and_stop);
}

fn start_and_stop() {
    let (descriptors, threads) = (count("fd"), count("task"));
    for round in 0..ROUNDS {
        let site = TestServer::with(2, |_| {});
        let mut client = site.connect();
        if round % 10 == 0 {
            assert_eq!(client.call(b"e"), b"e");
        }
        site.server.stop();
        assert!(client.is_closed());
    }
    assert_eq!(count("fd"), descriptors);
    // The system lists a thread for a moment after it was joined.
    until(|| count("task") == threads);
}

/// How many descriptors (`fd`) or threads (`task`) this process has.
fn count(what: &str) -> usize {
    std::fs::read_dir(format!("/proc/self/{what}")).map_or(0, Iterator::count)
}

#[test]
fn stopping_sends_the_replies_that_are_ready() {
    let site = TestServer::start();
    let mut client = site.connect();
    client.send(b"pA");
    crate::double::until(|| site.double.frames.load(std::sync::atomic::Ordering::SeqCst) == 1);
    site.fill(b'A');
    site.server.stop();
    assert_eq!(client.reply(), b"fA");
    assert!(client.is_closed());
    site.server.stop();
}
