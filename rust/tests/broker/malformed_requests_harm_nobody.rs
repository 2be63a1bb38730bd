//! Whatever bytes a frame has, no thread panics, and the next connection is served.

use krust::broker::{Flow, apis};
use krust::protocol::value::Value;
use krust::protocol::{Direction, encode_any};

use crate::double::{Frame, Made, TestBroker, raw};
use crate::records::{Fetch, TOPIC, batch, produce, put};

/// Each version of each API at its defaults, and a few that say something.
fn frames() -> Vec<Frame> {
    let mut frames = Vec::new();
    for api in apis::served() {
        for version in api.first..=api.last {
            let nothing = Value::Map(Vec::new());
            let body = encode_any(api.key, version, Direction::Request, &nothing).unwrap();
            frames.push(raw(api.key, version, &body.buf));
        }
    }
    for version in [0, 2, 3, 9, 13] {
        frames.push(produce(version, 1, &batch(&["a"])));
    }
    for version in [0, 3, 7, 12, 18] {
        frames.push(Fetch { version, session: (0, 0), ..Fetch::default() }.of(&[0]));
    }
    frames
}

#[test]
fn requests_cut_or_changed_anywhere_harm_nobody() {
    let mut fixture = TestBroker::new();
    fixture.topic(TOPIC, Made::default());
    let mut conn = fixture.connect();
    let mut sent = 0;
    let mut send = |fixture: &mut TestBroker, bytes: Vec<u8>| {
        fixture.event(&mut conn, &[bytes]);
        fixture.turn(&mut [&mut conn]);
        conn.sent.clear();
        sent += 1;
        if conn.flow != Flow::Go {
            let old = std::mem::replace(&mut conn, fixture.connect());
            fixture.close(old);
        }
    };
    for Frame { bytes, .. } in frames() {
        for at in 0..bytes.len() {
            send(&mut fixture, bytes[..at].to_vec());
            for byte in [0, 1, 0x7f, 0x80, 0xfe, 0xff] {
                let mut changed = bytes.clone();
                changed[at] = byte;
                send(&mut fixture, changed);
            }
        }
    }
    assert!(sent > 20_000, "{sent}");
    let mut conn = fixture.connect();
    let (error, _) = put(&mut fixture, &mut conn, (9, 1, &batch(&["a"])));
    assert_eq!(error, 0);
}
