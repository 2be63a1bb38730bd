//! A follower's fetch session with a leader (KIP-227): a Fetch names only the partitions that
//! changed since the one before.
//!
//! ```text
//! full (epoch 0) --response with an id--> 1, 2, .. 2^31-1, 1 --refused, connection lost--> full
//! ```
//! A leader without sessions (id 0, or Fetch before version 7) gets full requests only. A full
//! request names the old session, so that the leader drops it. Names and ids of topics do not mix
//! in one session.
//! Threads: one.

use crate::protocol::ErrorCode;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct FetcherSession {
    /// The leader's name for it; 0: there is none.
    pub id: i32,
    /// The number of the next request in it; 0: that is a full one.
    pub epoch: i32,
    by_id: bool,
}

impl FetcherSession {
    /// Whether the next request must be full.
    pub fn is_full(&self) -> bool {
        self.epoch == 0
    }

    /// The next request names topics by id, or by name. Returns whether the session goes on.
    pub fn goes_on(&mut self, by_id: bool) -> bool {
        let goes_on = self.epoch > 0 && by_id == self.by_id;
        if !goes_on {
            self.epoch = 0;
        }
        self.by_id = by_id;
        goes_on
    }

    /// Makes the next request a full one, which replaces this session.
    pub fn reset(&mut self) {
        self.epoch = 0;
    }

    /// The leader answered, with this name for the session.
    pub fn answered(&mut self, id: i32) {
        self.epoch = match (id, self.epoch) {
            (0, _) => 0,
            (_, i32::MAX) => 1,
            (_, epoch) => epoch + 1,
        };
        self.id = id;
    }

    /// The leader refused the whole request. Returns whether a full request solves it.
    pub fn refused(&mut self, error: ErrorCode) -> bool {
        self.reset();
        if error == ErrorCode::FetchSessionIdNotFound {
            self.id = 0;
        }
        matches!(
            error,
            ErrorCode::FetchSessionIdNotFound
                | ErrorCode::InvalidFetchSessionEpoch
                | ErrorCode::FetchSessionTopicIdError
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_full_until_the_leader_names_a_session() {
        let mut session = FetcherSession::default();
        assert!(!session.goes_on(true));
        session.answered(0);
        assert!(!session.goes_on(true));
        session.answered(7);
        assert!(session.goes_on(true));
        assert_eq!((session.id, session.epoch), (7, 1));
        session.answered(7);
        assert_eq!(session.epoch, 2);
        assert!(!session.goes_on(false), "names and ids do not mix");
        assert_eq!((session.id, session.epoch), (7, 0));
    }

    #[test]
    fn a_refused_session_begins_anew_and_replaces_the_old_one() {
        for (error, id, solves) in [
            (ErrorCode::FetchSessionIdNotFound, 0, true),
            (ErrorCode::InvalidFetchSessionEpoch, 7, true),
            (ErrorCode::ClusterAuthorizationFailed, 7, false),
        ] {
            let mut session = FetcherSession { id: 7, epoch: 3, by_id: true };
            assert_eq!(session.refused(error), solves);
            assert_eq!((session.id, session.epoch), (id, 0));
        }
    }

    #[test]
    fn the_epoch_after_the_largest_one_is_one() {
        let mut session = FetcherSession { id: 7, epoch: i32::MAX, by_id: true };
        session.answered(7);
        assert_eq!(session.epoch, 1);
    }
}
