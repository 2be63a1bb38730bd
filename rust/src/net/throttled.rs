//! Timers of one network thread: connections that are muted for a while (KIP-219), and connections
//! over the creation quota, which are closed after their throttle time (KIP-612).
//!
//! Invariant: a connection has at most one timer, and none once it is closed. At most `max_refused`
//! refused connections are kept; further ones are closed at once.
//! Threads: one network thread owns this.

use std::collections::BTreeSet;

use mio::net::TcpStream;

use crate::broker::ConnId;

/// How many descriptors refused connections may hold.
const MAX_REFUSED: usize = 1024;

#[derive(Debug)]
pub(super) struct Throttled {
    muted: BTreeSet<(i64, ConnId)>,
    refused: Vec<(i64, TcpStream)>,
    /// When the next refused connection is closed.
    next_close_ms: i64,
    max_refused: usize,
}

impl Default for Throttled {
    fn default() -> Self {
        Self {
            muted: BTreeSet::new(),
            refused: Vec::new(),
            next_close_ms: i64::MAX,
            max_refused: MAX_REFUSED,
        }
    }
}

impl Throttled {
    /// Sets the timer of `id` to `until_ms` in place of `previous_ms`.
    pub(super) fn mute(&mut self, id: ConnId, previous_ms: Option<i64>, until_ms: i64) {
        self.forget(id, previous_ms);
        self.muted.insert((until_ms, id));
    }

    /// Removes the timer of `id` at `previous_ms`.
    pub(super) fn forget(&mut self, id: ConnId, previous_ms: Option<i64>) {
        if let Some(previous_ms) = previous_ms {
            self.muted.remove(&(previous_ms, id));
        }
    }

    /// Takes the next connection whose timer has ended.
    pub(super) fn take_due(&mut self, now_ms: i64) -> Option<ConnId> {
        let (until_ms, id) = *self.muted.first()?;
        if until_ms > now_ms {
            return None;
        }
        self.muted.pop_first();
        Some(id)
    }

    /// Closes `stream` at `until_ms`.
    pub(super) fn close_later(&mut self, stream: TcpStream, until_ms: i64) {
        if self.refused.len() < self.max_refused {
            self.refused.push((until_ms, stream));
            self.next_close_ms = self.next_close_ms.min(until_ms);
        }
    }

    /// Closes the refused connections whose throttle time has ended.
    pub(super) fn close_due(&mut self, now_ms: i64) {
        if self.next_close_ms <= now_ms {
            self.refused.retain(|(until_ms, _)| *until_ms > now_ms);
            let left = self.refused.iter().map(|(until_ms, _)| *until_ms);
            self.next_close_ms = left.min().unwrap_or(i64::MAX);
        }
    }

    /// When the next timer ends.
    pub(super) fn next_ms(&self) -> i64 {
        let muted = self.muted.first().map_or(i64::MAX, |(until_ms, _)| *until_ms);
        muted.min(self.next_close_ms)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read};
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_refused_connection_above_the_limit_is_closed_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut throttled = Throttled { max_refused: 2, ..Throttled::default() };
        let mut clients = Vec::new();
        for _ in 0..3 {
            clients.push(std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap());
            let stream = listener.accept().unwrap().0;
            throttled.close_later(TcpStream::from_std(stream), 100);
        }
        assert_eq!(clients[2].read(&mut [0]).unwrap(), 0);
        clients[0].set_nonblocking(true).unwrap();
        assert_eq!(clients[0].read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        throttled.close_due(100);
        clients[0].set_nonblocking(false).unwrap();
        assert_eq!(clients[0].read(&mut [0]).unwrap(), 0);
        assert_eq!(throttled.next_ms(), i64::MAX);
    }
}
