//! A connection whose requests take much work continues in the next turn, after the others had
//! theirs.

use std::io::Write;
use std::sync::atomic::Ordering;

use krust::work::SHARE;

use crate::double::{TestServer, framed, until};

#[test]
fn expensive_requests_let_other_connections_go_first() {
    let site = TestServer::start();
    let [mut first, mut busy, mut other] = [site.connect(), site.connect(), site.connect()];
    let frames = || site.double.frames.load(Ordering::SeqCst);
    first.send(b"g");
    until(|| site.double.gates.load(Ordering::SeqCst) == 1);
    let quarter = u32::try_from(SHARE / 4).unwrap();
    let work = [b"w".as_slice(), &quarter.to_be_bytes()].concat();
    busy.0.write_all(&framed(&work).repeat(100)).unwrap();
    other.send(b"g");
    busy.delivered();
    other.delivered();

    site.double.opened_gates.store(1, Ordering::SeqCst);
    until(|| site.double.gates.load(Ordering::SeqCst) == 2);
    assert!(frames() <= 2 + 4, "{} requests came before the other's", frames());

    site.double.opened_gates.store(2, Ordering::SeqCst);
    until(|| frames() == 102);
}
