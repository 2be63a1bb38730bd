//! `max.connections` makes connections wait; `max.connections.per.ip` closes them.

use crate::double::{TestServer, until};

#[test]
fn connections_above_max_connections_wait_to_be_accepted() {
    let site = TestServer::with(2, |options| options.max_connections = 2);
    let mut first = site.connect();
    let mut second = site.connect();
    assert_eq!((first.call(b"e"), second.call(b"e")), (b"e".to_vec(), b"e".to_vec()));
    let mut third = site.connect();
    third.send(b"e3");
    site.turn();
    assert_eq!(site.server.connections(), 2);
    drop(first);
    assert_eq!(third.reply(), b"e3");
    assert_eq!(site.server.connections(), 2);
}

#[test]
fn connections_above_the_limit_of_one_address_are_closed() {
    let site = TestServer::with(1, |options| options.max_connections_per_ip = 1);
    let mut first = site.connect();
    assert_eq!(first.call(b"e"), b"e");
    assert!(site.connect().is_closed());
    drop(first);
    until(|| site.server.connections() == 0);
    assert_eq!(site.connect().call(b"e"), b"e");
}

#[test]
fn a_raised_limit_accepts_the_waiting_connections() {
    let site = TestServer::with(2, |options| options.max_connections = 1);
    let mut first = site.connect();
    assert_eq!(first.call(b"e"), b"e");
    let mut second = site.connect();
    second.send(b"e2");
    site.turn();
    assert_eq!(site.server.connections(), 1);
    site.server.set_limits(2, 2);
    assert_eq!(second.reply(), b"e2");
    site.server.set_limits(9, 2);
    assert!(site.connect().is_closed());
}
