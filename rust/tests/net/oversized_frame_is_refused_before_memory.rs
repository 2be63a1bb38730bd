//! A frame length above the limit costs four bytes; one within the limit costs the bytes that have
//! arrived.

use std::io::Write;

use crate::double::{TestServer, alone, framed, until};

#[test]
fn oversized_frame_is_refused_before_memory() {
    let site = TestServer::with(1, |options| options.request_max_bytes = 1000);
    for length in [-1, i32::MIN, 1001, i32::MAX] {
        let mut client = site.connect();
        client.0.write_all(&length.to_be_bytes()).unwrap();
        assert!(client.is_closed(), "length {length}");
    }
    let mut client = site.connect();
    assert_eq!(client.call(&[b'e'; 1000]), [b'e'; 1000]);
}

#[test]
fn an_announced_length_reserves_no_memory() {
    let name = "oversized_frame_is_refused_before_memory::an_announced_length_reserves_no_memory";
    alone(name, promise);
}

fn promise() {
    let site = TestServer::start();
    let before = resident();
    let clients: Vec<_> = (0..200)
        .map(|_| {
            let mut client = site.connect();
            client.0.write_all(&(100_i32 << 20).to_be_bytes()).unwrap();
            client.0.write_all(&[b'e'; 100]).unwrap();
            client
        })
        .collect();
    until(|| site.server.connections() == 200);
    site.turn();
    let grown = resident().saturating_sub(before);
    assert!(grown < 8 << 20, "{grown} bytes for 200 promises of 100 MiB");
    drop(clients);
}

/// Resident memory of this process in bytes; 0 where the system does not say.
pub fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split_whitespace().nth(1).and_then(|field| field.parse::<usize>().ok());
    pages.unwrap_or(0) * 4096
}

#[test]
fn connections_that_wait_for_memory_get_it_one_after_the_other() {
    let site = TestServer::with(1, |options| {
        options.request_max_bytes = 400_000;
        options.request_memory = 0;
    });
    let frame = framed(&vec![b'e'; 400_000]);
    let (front, back) = frame.split_at(300_000);
    let mut clients: Vec<_> = (0..10).map(|_| site.connect()).collect();
    for client in &mut clients {
        client.0.write_all(front).unwrap();
    }
    site.turn();
    std::thread::scope(|scope| {
        for client in &mut clients {
            scope.spawn(|| {
                client.0.write_all(back).unwrap();
                assert_eq!(client.reply().len(), 400_000);
            });
        }
    });
}
