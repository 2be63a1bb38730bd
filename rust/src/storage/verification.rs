//! Whether the coordinator has confirmed that a partition belongs to a producer's transaction
//! (KIP-890). The first batch of a transaction needs that; the following ones find it open.
//!
//! A log hands out a guard before the coordinator is asked, and takes the batch with the guard
//! afterwards. A marker, a truncation or a new leader voids the guard, because the confirmed
//! transaction may have ended meanwhile. So a late batch never begins a transaction that nobody
//! ends.
//! A guard knows the lowest sequence number that was sent with it: if a first batch is refused, the
//! one behind it is refused too.
//! Limits: [`GUARDS`] producers in a log. Beyond it the oldest guards are void, a sixteenth at a
//! time.
//! Threads: under the partition's lock.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use super::errors::AppendError;
use crate::record::batch::Header;

/// The most guards of a log.
const GUARDS: usize = 10_000;

/// The last guard that was handed out in this process.
static LAST: AtomicU64 = AtomicU64::new(0);

/// A permission to begin a transaction in a log, once the coordinator has confirmed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VerificationGuard(u64);

/// What is known of the transaction of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verification {
    /// It may begin a transaction that nobody confirmed.
    NotRequired,
    /// It must belong to a transaction that is open in the log.
    Required,
    /// The coordinator has confirmed the transaction since this guard was handed out.
    ConfirmedBy {
        /// The guard.
        guard: VerificationGuard,
        /// Whether each transaction has an epoch of its own, so that an unknown producer begins
        /// with sequence number 0.
        has_own_epoch: bool,
    },
}

/// The guards of one log, by producer.
#[derive(Debug, Default)]
pub(super) struct Guards {
    by_producer: HashMap<i64, Guarded>,
}

#[derive(Clone, Copy, Debug)]
struct Guarded {
    guard: VerificationGuard,
    epoch: i16,
    lowest_sequence: i32,
}

impl Guards {
    /// The guard of a producer whose batch waits for the coordinator.
    fn hand_out(&mut self, header: &Header) -> VerificationGuard {
        let (epoch, sequence) = (header.producer_epoch, header.base_sequence);
        if let Some(known) = self.by_producer.get_mut(&header.producer_id)
            && known.epoch == epoch
        {
            known.lowest_sequence = known.lowest_sequence.min(sequence);
            return known.guard;
        }
        self.limit();
        let guard = VerificationGuard(LAST.fetch_add(1, Ordering::Relaxed) + 1);
        let guarded = Guarded { guard, epoch, lowest_sequence: sequence };
        self.by_producer.insert(header.producer_id, guarded);
        guard
    }

    fn limit(&mut self) {
        if self.by_producer.len() < GUARDS {
            return;
        }
        let mut guards: Vec<VerificationGuard> =
            self.by_producer.values().map(|guarded| guarded.guard).collect();
        let (_, last_void, _) = guards.select_nth_unstable(GUARDS / 16);
        let last_void = *last_void;
        self.by_producer.retain(|_, guarded| guarded.guard > last_void);
    }

    /// Checks a batch that would begin a transaction. `is_known`: the log has the producer.
    /// Errors: `NotVerified` with the guard that the coordinator must confirm.
    pub(super) fn check(
        &mut self,
        header: &Header,
        verification: Verification,
        is_known: bool,
    ) -> Result<(), AppendError> {
        let (guard, has_own_epoch) = match verification {
            Verification::NotRequired => return Ok(()),
            Verification::Required => return Err(AppendError::NotVerified(self.hand_out(header))),
            Verification::ConfirmedBy { guard, has_own_epoch } => (guard, has_own_epoch),
        };
        let producer_id = header.producer_id;
        let known = self.by_producer.get(&producer_id).filter(|known| known.guard == guard);
        let Some(known) = known else { return Err(AppendError::InvalidTxnState(producer_id)) };
        let found = header.base_sequence;
        let begins_late = has_own_epoch && !is_known && found > 0;
        if begins_late || found > known.lowest_sequence {
            let last = if begins_late { -1 } else { known.lowest_sequence };
            return Err(AppendError::OutOfOrderSequence { producer_id, last, found });
        }
        Ok(())
    }

    /// Voids the guard of a producer: its transaction has begun here, or ended.
    pub(super) fn void(&mut self, producer_id: i64) {
        if !self.by_producer.is_empty() {
            self.by_producer.remove(&producer_id);
        }
    }

    /// Voids all guards.
    pub(super) fn void_all(&mut self) {
        self.by_producer.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_hands_out_a_bounded_number_of_guards_and_voids_the_oldest() {
        let mut guards = Guards::default();
        let header = |producer_id| Header { producer_id, ..Header::default() };
        let first = guards.hand_out(&header(0));
        for producer_id in 1..3 * GUARDS as i64 {
            guards.hand_out(&header(producer_id));
            assert!(guards.by_producer.len() <= GUARDS);
        }
        let newest = 3 * GUARDS as i64 - 1;
        assert!(guards.by_producer.contains_key(&newest));
        let confirmed = Verification::ConfirmedBy { guard: first, has_own_epoch: false };
        let refused = guards.check(&header(0), confirmed, false);
        assert!(matches!(refused, Err(AppendError::InvalidTxnState(0))));
    }
}
