//! What waits for its time on one reactor thread: connections that are not read from for a while,
//! and those that were one too many and are closed when their time is up.
//!
//! Invariant: a connection has at most one entry, and none once it is closed; of those turned away
//! at most `most_away` are kept, the others are closed at once.
//! Threads: owned by one reactor thread.

use std::collections::BTreeSet;

use mio::net::TcpStream;

use crate::broker::ConnId;

/// Descriptors that those turned away may hold.
const MOST_AWAY: usize = 1024;

#[derive(Debug)]
pub(super) struct Throttled {
    muted: BTreeSet<(i64, ConnId)>,
    away: Vec<(i64, TcpStream)>,
    /// When the next of them is closed.
    away_ms: i64,
    most_away: usize,
}

impl Default for Throttled {
    fn default() -> Self {
        Self { muted: BTreeSet::new(), away: Vec::new(), away_ms: i64::MAX, most_away: MOST_AWAY }
    }
}

impl Throttled {
    /// `id` is to be served again at `until_ms`, not at the time it `had`.
    pub(super) fn mute(&mut self, id: ConnId, had: Option<i64>, until_ms: i64) {
        self.forget(id, had);
        self.muted.insert((until_ms, id));
    }

    /// `id` needs not be served at the time it `had`.
    pub(super) fn forget(&mut self, id: ConnId, had: Option<i64>) {
        if let Some(had) = had {
            self.muted.remove(&(had, id));
        }
    }

    /// Takes the next connection that is to be served.
    pub(super) fn due(&mut self, now_ms: i64) -> Option<ConnId> {
        let (until_ms, id) = *self.muted.first()?;
        if until_ms > now_ms {
            return None;
        }
        self.muted.pop_first();
        Some(id)
    }

    /// Closes `stream` at `until_ms`.
    pub(super) fn turn_away(&mut self, stream: TcpStream, until_ms: i64) {
        if self.away.len() < self.most_away {
            self.away.push((until_ms, stream));
            self.away_ms = self.away_ms.min(until_ms);
        }
    }

    /// Closes those whose time is up.
    pub(super) fn close_due(&mut self, now_ms: i64) {
        if self.away_ms <= now_ms {
            self.away.retain(|(until_ms, _)| *until_ms > now_ms);
            let left = self.away.iter().map(|(until_ms, _)| *until_ms);
            self.away_ms = left.min().unwrap_or(i64::MAX);
        }
    }

    /// When something is due next.
    pub(super) fn next_ms(&self) -> i64 {
        let muted = self.muted.first().map_or(i64::MAX, |(until_ms, _)| *until_ms);
        muted.min(self.away_ms)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read};
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn one_more_than_may_be_turned_away_at_once_is_closed_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut throttled = Throttled { most_away: 2, ..Throttled::default() };
        let mut clients = Vec::new();
        for _ in 0..3 {
            clients.push(std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap());
            let stream = listener.accept().unwrap().0;
            throttled.turn_away(TcpStream::from_std(stream), 100);
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
