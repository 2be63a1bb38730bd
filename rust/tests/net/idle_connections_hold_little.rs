//! An idle connection costs its state and no buffer.

use crate::double::{TestServer, alone};
use crate::oversized_frame_is_refused_before_memory::resident;

/// Two descriptors each, as both ends are in this process; the usual limit is 1024.
const CONNECTIONS: usize = 400;

#[test]
fn idle_connections_hold_little() {
    alone("idle_connections_hold_little::idle_connections_hold_little", open_many);
}

fn open_many() {
    let site = TestServer::start();
    let body = vec![b'e'; 30_000];
    assert_eq!(site.connect().call(&body).len(), body.len());
    let before = resident();
    let mut clients: Vec<_> = (0..CONNECTIONS).map(|_| site.connect()).collect();
    for client in &mut clients {
        assert_eq!(client.call(&body).len(), body.len());
    }
    let each = resident().saturating_sub(before) / CONNECTIONS;
    assert!(each < 4 << 10, "{each} bytes for an idle connection");
}
