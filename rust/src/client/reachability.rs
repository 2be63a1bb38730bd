//! The brokers that cannot be reached. A change is reported when a broker becomes unreachable and
//! when it answers again; the attempts in between are not reported.
//!
//! Limit: [`ADDRESSES_MAX`] addresses are remembered; further ones are not reported.
//! Threads: any. The caller of `take_changes` gets all changes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::error::Error;
use super::options::Address;

/// The most addresses that are remembered, and the most changes that wait.
const ADDRESSES_MAX: usize = 256;

/// An address, and the reason why it cannot be reached; `None`: it answers again.
pub type ReachabilityChange = (String, Option<String>);

/// The brokers that one client cannot reach, and the changes that are not reported yet.
#[derive(Debug, Default)]
pub struct Reachability {
    has_changes: AtomicBool,
    state: Mutex<ReachabilityState>,
}

#[derive(Debug, Default)]
struct ReachabilityState {
    /// The reason, by address.
    failing: BTreeMap<String, String>,
    changes: Vec<ReachabilityChange>,
}

impl Reachability {
    /// Notes the result of an attempt to connect.
    pub fn record_attempt(&self, address: &Address, failure: Option<&Error>) {
        let reason = match failure {
            None => None,
            Some(Error::Connect { reason, .. }) => Some(reason.clone()),
            Some(Error::Closed { .. }) => Some("it closed the connection".to_owned()),
            Some(Error::Timeout { .. }) => Some("no answer in time".to_owned()),
            Some(Error::Protocol { reason, .. }) => Some(reason.clone()),
            Some(_) => return, // not this broker's fault
        };
        let address = address.to_string();
        let mut state = self.state.lock();
        let is_new = match &reason {
            None => state.failing.remove(&address).is_some(),
            Some(_) if state.failing.len() >= ADDRESSES_MAX => false,
            Some(why) => state.failing.insert(address.clone(), why.clone()).is_none(),
        };
        if is_new && state.changes.len() < ADDRESSES_MAX {
            state.changes.push((address, reason));
            self.has_changes.store(true, Ordering::Release);
        }
    }

    /// Whether there are changes to take. It costs one load.
    pub fn has_changes(&self) -> bool {
        self.has_changes.load(Ordering::Acquire)
    }

    /// The changes since the last call.
    pub fn take_changes(&self) -> Vec<ReachabilityChange> {
        if !self.has_changes() {
            return Vec::new();
        }
        let mut state = self.state.lock();
        self.has_changes.store(false, Ordering::Release);
        std::mem::take(&mut state.changes)
    }

    /// A broker that cannot be reached now, and the reason.
    pub fn unreachable(&self) -> Option<ReachabilityChange> {
        let state = self.state.lock();
        state.failing.iter().next().map(|(address, why)| (address.clone(), Some(why.clone())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(address: &str) -> Error {
        let (address, reason) = (address.to_owned(), "connection refused".to_owned());
        Error::Connect { address, reason, advertised: false }
    }

    #[test]
    fn a_broker_that_goes_away_and_returns_is_reported_twice_after_any_number_of_attempts() {
        let (reachability, address) = (Reachability::default(), Address::parse("a:1").unwrap());
        reachability.record_attempt(&address, None);
        assert!(!reachability.has_changes(), "a first successful attempt is not a change");
        for _ in 0..3 {
            reachability.record_attempt(&address, Some(&refused("a:1")));
        }
        assert_eq!(
            reachability.take_changes(),
            [("a:1".to_owned(), Some("connection refused".to_owned()))]
        );
        assert!(reachability.unreachable().is_some());
        reachability.record_attempt(&address, None);
        reachability.record_attempt(&address, None);
        assert_eq!(reachability.take_changes(), [("a:1".to_owned(), None)]);
        assert!(reachability.take_changes().is_empty() && reachability.unreachable().is_none());
    }

    #[test]
    fn the_number_of_remembered_addresses_is_limited() {
        let reachability = Reachability::default();
        for port in 1..=1000 {
            reachability.record_attempt(
                &Address::parse(&format!("a:{port}")).unwrap(),
                Some(&refused("a")),
            );
        }
        assert_eq!(reachability.take_changes().len(), ADDRESSES_MAX);
    }
}
