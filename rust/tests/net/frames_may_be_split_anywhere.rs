//! A frame of any size may arrive in any number of pieces.

use std::io::Write;
use std::sync::atomic::Ordering;

use crate::double::{TestServer, framed};

#[test]
fn a_frame_split_at_any_byte_is_answered() {
    let site = TestServer::start();
    let mut client = site.connect();
    let wire = [framed(b"e-first"), framed(b""), framed(b"e-second")].concat();
    for split in 1..wire.len() {
        let (front, back) = wire.split_at(split);
        client.0.write_all(front).unwrap();
        site.turn();
        client.0.write_all(back).unwrap();
        assert_eq!(client.reply(), b"e-first");
        assert_eq!(client.reply(), b"");
        assert_eq!(client.reply(), b"e-second");
    }
    assert_eq!(site.double.frames.load(Ordering::SeqCst), 3 * (wire.len() - 1));
}

#[test]
fn a_frame_sent_one_byte_at_a_time_is_answered() {
    let site = TestServer::start();
    let mut client = site.connect();
    for byte in framed(b"e-slowly") {
        client.0.write_all(&[byte]).unwrap();
        site.turn();
    }
    assert_eq!(client.reply(), b"e-slowly");
}

#[test]
fn large_and_small_frames_in_one_stream_are_answered() {
    let site = TestServer::start();
    let mut client = site.connect();
    let sizes = [3, 70_000, 5, 65_532, 65_533, 1 << 20, 9, 200_000, 5 << 20, 1, 64 << 10, 2];
    let bodies: Vec<Vec<u8>> = sizes
        .iter()
        .map(|size| (0..*size).map(|n: usize| if n == 0 { b'e' } else { n as u8 }).collect())
        .collect();
    let wire: Vec<u8> = bodies.iter().flat_map(|body| framed(body)).collect();
    let mut writer = client.0.try_clone().unwrap();
    let sender = std::thread::spawn(move || writer.write_all(&wire).unwrap());
    for body in &bodies {
        assert!(client.reply() == *body, "the frame of {} bytes", body.len());
    }
    sender.join().unwrap();
}
