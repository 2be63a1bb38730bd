//! The other brokers that this one may connect to. Tests set them:
//! `krust.Cluster.partition_network` cuts this broker off from some, `pause` from all.
//!
//! Code that connects to another broker checks this before each request, and again before it uses
//! the answer, so that an answer that arrives after the cut is ignored.
//! Threads: any. Not promised: that other brokers cannot connect to this one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;

/// The brokers that are cut off. See the module.
#[derive(Debug, Default)]
pub struct PeerReach {
    cut_off: ArcSwap<BTreeSet<i32>>,
    is_paused: AtomicBool,
}

impl PeerReach {
    /// Whether this broker may connect to `broker`.
    pub fn reaches(&self, broker: i32) -> bool {
        !self.is_paused.load(Ordering::Acquire) && !self.cut_off.load().contains(&broker)
    }

    /// Cuts this broker off from `brokers`, and from no other.
    pub fn cut_off(&self, brokers: BTreeSet<i32>) {
        self.cut_off.store(Arc::new(brokers));
    }

    /// While a broker is paused it reaches no other broker.
    pub fn set_paused(&self, is_paused: bool) {
        self.is_paused.store(is_paused, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_reaches_all_but_those_it_is_cut_off_from() {
        let reach = PeerReach::default();
        assert!(reach.reaches(1) && reach.reaches(2));
        reach.cut_off(BTreeSet::from([2]));
        assert!(reach.reaches(1) && !reach.reaches(2));
        reach.cut_off(BTreeSet::new());
        assert!(reach.reaches(2));
    }

    #[test]
    fn a_paused_broker_reaches_nobody_until_it_resumes() {
        let reach = PeerReach::default();
        reach.cut_off(BTreeSet::from([2]));
        reach.set_paused(true);
        assert!(!reach.reaches(1) && !reach.reaches(2));
        reach.set_paused(false);
        assert!(reach.reaches(1) && !reach.reaches(2));
    }
}
