//! Which brokers cannot be reached: news when that begins, and when it is over; nothing for the
//! attempts in between.
//!
//! Limit: [`MOST`] addresses are remembered; of what is beyond them nothing is told.
//! Threads: any; whoever asks takes all the news.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::error::Error;
use super::options::Address;

/// Addresses that are remembered, and news that wait.
const MOST: usize = 256;

/// An address, and why it cannot be reached; `None`: it answers again.
pub type News = (String, Option<String>);

/// What one client knows of who can be reached.
#[derive(Debug, Default)]
pub struct Reach {
    is_news: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Why, by address.
    failing: BTreeMap<String, String>,
    news: Vec<News>,
}

impl Reach {
    /// Notes how an attempt to connect ended.
    pub fn note(&self, address: &Address, failure: Option<&Error>) {
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
            Some(_) if state.failing.len() >= MOST => false,
            Some(why) => state.failing.insert(address.clone(), why.clone()).is_none(),
        };
        if is_new && state.news.len() < MOST {
            state.news.push((address, reason));
            self.is_news.store(true, Ordering::Release);
        }
    }

    /// Whether `take` has something; costs one load.
    pub fn is_news(&self) -> bool {
        self.is_news.load(Ordering::Acquire)
    }

    /// The news since the last call.
    pub fn take(&self) -> Vec<News> {
        if !self.is_news() {
            return Vec::new();
        }
        let mut state = self.state.lock();
        self.is_news.store(false, Ordering::Release);
        std::mem::take(&mut state.news)
    }

    /// One that cannot be reached now, and why.
    pub fn failing(&self) -> Option<News> {
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
    fn a_broker_that_goes_and_comes_is_news_twice_however_often_it_is_tried() {
        let (reach, address) = (Reach::default(), Address::parse("a:1").unwrap());
        reach.note(&address, None);
        assert!(!reach.is_news(), "that a broker answers at first is no news");
        for _ in 0..3 {
            reach.note(&address, Some(&refused("a:1")));
        }
        assert_eq!(reach.take(), [("a:1".to_owned(), Some("connection refused".to_owned()))]);
        assert!(reach.failing().is_some());
        reach.note(&address, None);
        reach.note(&address, None);
        assert_eq!(reach.take(), [("a:1".to_owned(), None)]);
        assert!(reach.take().is_empty() && reach.failing().is_none());
    }

    #[test]
    fn addresses_that_are_remembered_are_limited() {
        let reach = Reach::default();
        for port in 1..=1000 {
            reach.note(&Address::parse(&format!("a:{port}")).unwrap(), Some(&refused("a")));
        }
        assert_eq!(reach.take().len(), MOST);
    }
}
