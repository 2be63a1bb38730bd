//! `max.connections` makes connections wait; `max.connections.per.ip` closes them. Brokers connect
//! all the same, and the connection that was used least recently makes room.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use krust::net::{ConnectionLimits, ListenAddress, ListenerLimits, NetworkOptions};

use crate::double::{Client, TestServer, until};

const NO_LIMIT: usize = i32::MAX as usize;

/// A server with a listener for clients, the first, and one for brokers.
fn two_listeners(threads: usize, limits: ConnectionLimits) -> TestServer {
    TestServer::with(threads, |options| {
        *options = NetworkOptions {
            endpoints: ["CLIENTS", "BROKERS"].map(endpoint).into(),
            inter_broker_listeners: vec!["BROKERS".into()],
            limits,
            ..options.clone()
        };
    })
}

fn endpoint(name: &str) -> ListenAddress {
    ListenAddress { name: name.into(), host: "127.0.0.1".into(), port: 0 }
}

fn connect_broker(site: &TestServer) -> Client {
    Client::new(site.server.bound()[1].address)
}

#[test]
fn connections_above_max_connections_wait_to_be_accepted() {
    let site = TestServer::with(2, |options| options.limits.max = 2);
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
    let site = TestServer::with(1, |options| options.limits.max_per_ip = 1);
    let mut first = site.connect();
    assert_eq!(first.call(b"e"), b"e");
    assert!(site.connect().is_closed());
    drop(first);
    until(|| site.server.connections() == 0);
    assert_eq!(site.connect().call(b"e"), b"e");
}

#[test]
fn a_raised_limit_accepts_the_waiting_connections() {
    let site = TestServer::with(2, |options| options.limits.max = 1);
    let mut first = site.connect();
    assert_eq!(first.call(b"e"), b"e");
    let mut second = site.connect();
    second.send(b"e2");
    site.turn();
    assert_eq!(site.server.connections(), 1);
    site.server.set_limits(&ConnectionLimits { max: 2, ..ConnectionLimits::default() });
    assert_eq!(second.reply(), b"e2");
    site.server.set_limits(&ConnectionLimits { max_per_ip: 2, ..ConnectionLimits::default() });
    assert!(site.connect().is_closed());
}

#[test]
fn a_full_broker_closes_the_connection_used_least_recently_for_another_broker() {
    for threads in [1, 2] {
        let site = two_listeners(threads, ConnectionLimits { max: 2, ..Default::default() });
        let mut used_first = site.connect();
        assert_eq!(used_first.call(b"e"), b"e");
        let mut used_last = site.connect();
        assert_eq!(used_last.call(b"e"), b"e");
        site.advance(1_000);
        assert_eq!(used_first.call(b"e"), b"e");
        let mut broker = connect_broker(&site);
        assert_eq!(broker.call(b"e"), b"e");
        until(|| site.server.connections() == 2);
        if threads == 1 {
            assert!(used_last.is_closed());
            assert_eq!(used_first.call(b"e"), b"e");
        }
        // Another client waits, another broker does not.
        let mut waiting = site.connect();
        waiting.send(b"e-late");
        let mut second = connect_broker(&site);
        assert_eq!(second.call(b"e"), b"e");
        assert_eq!(broker.call(b"e"), b"e");
        until(|| site.server.connections() == 2);
        assert!(used_first.is_closed() && used_last.is_closed());
        drop(second);
        assert_eq!(waiting.reply(), b"e-late");
    }
}

#[test]
fn the_only_listener_of_a_broker_has_no_privilege() {
    let site = TestServer::with(1, |options| {
        options.inter_broker_listeners = vec!["PLAINTEXT".into()];
        options.limits.max = 1;
    });
    let mut first = site.connect();
    assert_eq!(first.call(b"e"), b"e");
    let mut second = site.connect();
    second.send(b"e2");
    site.turn();
    assert_eq!(first.call(b"e"), b"e");
    drop(first);
    assert_eq!(second.reply(), b"e2");
}

#[test]
fn a_listener_that_is_full_leaves_the_others_open() {
    let own = ListenerLimits { max: 1, creation_rate: NO_LIMIT };
    let by_listener = HashMap::from([("CLIENTS".into(), own)]);
    let site = two_listeners(1, ConnectionLimits { by_listener, ..Default::default() });
    let mut first = site.connect();
    assert_eq!(first.call(b"e"), b"e");
    let mut waiting = site.connect();
    waiting.send(b"e-late");
    let mut brokers = [connect_broker(&site), connect_broker(&site)];
    assert!(brokers.iter_mut().all(|broker| broker.call(b"e") == b"e"));
    assert_eq!(site.server.connections(), 3);
    drop(first);
    assert_eq!(waiting.reply(), b"e-late");
}

#[test]
fn a_lowered_limit_closes_the_connections_used_least_recently() {
    let site = TestServer::start();
    let mut clients: Vec<Client> = (0..4).map(|_| site.connect()).collect();
    for client in clients.iter_mut().rev() {
        assert_eq!(client.call(b"e"), b"e");
        site.advance(10);
    }
    site.server.set_limits(&ConnectionLimits { max: 2, ..Default::default() });
    assert!(clients[3].is_closed() && clients[2].is_closed());
    assert!(clients[..2].iter_mut().all(|client| client.call(b"e") == b"e"));
}

#[test]
fn an_address_may_have_a_limit_of_its_own() {
    let site = TestServer::with(1, |options| {
        options.limits.max_per_ip = 0;
        options.limits.max_per_ip_overrides = vec![("127.0.0.1".into(), 1)];
    });
    let mut first = site.connect();
    assert_eq!(first.call(b"e"), b"e");
    assert!(site.connect().is_closed());
    site.server.set_limits(&ConnectionLimits { max_per_ip: 0, ..Default::default() });
    drop(first);
    until(|| site.server.connections() == 0);
    assert!(site.connect().is_closed());
}

#[test]
fn connections_above_the_rate_of_creation_wait_to_be_accepted() {
    let site = two_listeners(1, ConnectionLimits { creation_rate: 1, ..Default::default() });
    // One a second over ten seconds, and the one that goes over.
    let mut clients: Vec<Client> = (0..12).map(|_| site.connect()).collect();
    clients.iter_mut().for_each(|client| client.send(b"e"));
    until(|| site.double.opened.load(Ordering::SeqCst) == 11);
    site.turn();
    assert_eq!(site.double.opened.load(Ordering::SeqCst), 11);
    assert_eq!(connect_broker(&site).call(b"e"), b"e");
    // After eleven windows of a second the first ones do not count any more.
    site.advance(11_000);
    assert!(clients.iter_mut().all(|client| client.reply() == b"e"));
}

#[test]
fn a_connection_that_says_nothing_makes_room_for_those_that_wait() {
    let site = TestServer::with(1, |options| options.limits.max = 2);
    let mut known = site.connect();
    assert_eq!(known.call(b"e"), b"e");
    let mut silent = site.connect();
    until(|| site.server.connections() == 2);
    let mut waiting = site.connect();
    waiting.send(b"e-late");
    site.advance(2_000);
    assert_eq!(site.server.connections(), 2);
    site.advance(2_000);
    assert!(silent.is_closed());
    assert_eq!(waiting.reply(), b"e-late");
    assert_eq!(known.call(b"e"), b"e");
    drop(waiting);
    until(|| site.server.connections() == 1);
    // While there is room, a silent connection may stay.
    let _silent = site.connect();
    until(|| site.server.connections() == 2);
    drop(known);
    until(|| site.server.connections() == 1);
    site.advance(30_000);
    assert_eq!(site.server.connections(), 1);
}
