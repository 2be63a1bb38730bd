//! What one leader holds of a consumer (KIP-227), so that a Fetch names only what changed.
//!
//! The first request names every partition and asks for a session. Those that follow name what is
//! new or has another offset, and what the leader is to forget; its answers leave out what has no
//! news. A leader that gives none (id 0, or Fetch before 7) hears everything each time. Whatever
//! goes wrong ends in a full request, which also gives the old session up.
//! ```text
//! full (epoch 0) --answer with an id--> 1, 2, .. 2^31-1, 1 --70, 71, 106, connection lost--> full
//! any with an id --closed--> -1
//! ```
//! Threads: one at a time.

use std::collections::HashMap;
use std::sync::Arc;

use crate::ids::TopicId;

const SESSION_ID_NOT_FOUND: i16 = 70;
const INVALID_SESSION_EPOCH: i16 = 71;
const SESSION_TOPIC_ID_ERROR: i16 = 106;

/// The epoch of the request that ends a session.
const FINAL_EPOCH: i32 = -1;

/// Topic and partition.
pub(super) type Key = (Arc<str>, i32);

/// What is asked of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) topic_id: TopicId,
    pub(super) offset: i64,
    pub(super) max_bytes: i32,
}

/// What one request says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) session_id: i32,
    pub(super) session_epoch: i32,
    pub(super) named: Vec<(Key, Asked)>,
    pub(super) forgotten: Vec<(Key, TopicId)>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Session {
    id: i32,
    /// The next request's; 0: a full one.
    epoch: i32,
    by_id: bool,
    held: HashMap<Key, Asked>,
}

impl Session {
    /// What a request has to say for the leader to hold `wanted` and nothing else.
    pub(super) fn say(&mut self, wanted: Vec<(Key, Asked)>, by_id: bool) -> Said {
        if self.epoch == 0 || by_id != self.by_id {
            self.begin_anew();
        }
        self.by_id = by_id;
        let before = std::mem::take(&mut self.held);
        self.held.extend(wanted.iter().cloned());
        let named = wanted.into_iter().filter(|(key, asked)| before.get(key) != Some(asked));
        let gone = before.iter().filter(|(key, before)| {
            let now = self.held.get(*key);
            now.is_none_or(|now| by_id && now.topic_id != before.topic_id)
        });
        Said {
            session_id: self.id,
            session_epoch: self.epoch,
            named: named.collect(),
            forgotten: gone.map(|(key, asked)| (key.clone(), asked.topic_id)).collect(),
        }
    }

    /// The offset that the answer on its way begins at.
    pub(super) fn offset(&self, key: &Key) -> Option<i64> {
        self.held.get(key).map(|asked| asked.offset)
    }

    /// An answer came, of this session; 0: the leader keeps none.
    pub(super) fn answered(&mut self, session_id: i32) {
        self.epoch = match (session_id, self.epoch) {
            (0, _) => 0,
            (_, i32::MAX) => 1,
            (_, epoch) => epoch + 1,
        };
        self.id = session_id;
    }

    /// Whether a refusal is mended by a full request.
    pub(super) fn refused(&mut self, code: i16) -> bool {
        if code == SESSION_ID_NOT_FOUND {
            self.id = 0;
        }
        self.begin_anew();
        matches!(code, SESSION_ID_NOT_FOUND | INVALID_SESSION_EPOCH | SESSION_TOPIC_ID_ERROR)
    }

    /// What ends it at the leader; `None`: that keeps none.
    pub(super) fn end(&self) -> Option<Said> {
        let said = Said { session_id: self.id, session_epoch: FINAL_EPOCH, ..Said::default() };
        (self.id != 0).then_some(said)
    }

    /// The next request is a full one, in place of this session.
    pub(super) fn begin_anew(&mut self) {
        self.epoch = 0;
        self.held.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(offsets: &[i64]) -> Vec<(Key, Asked)> {
        let asked = |offset: &i64| Asked { topic_id: TopicId::ZERO, offset: *offset, max_bytes: 9 };
        (0..).zip(offsets).map(|(p, offset)| ((Arc::from("t"), p), asked(offset))).collect()
    }

    fn names(said: &Said) -> Vec<i32> {
        said.named.iter().map(|((_, partition), _)| *partition).collect()
    }

    #[test]
    fn a_request_names_only_what_changed() {
        let mut session = Session::default();
        let said = session.say(wanted(&[0, 0, 0]), false);
        assert_eq!((said.session_id, said.session_epoch), (0, 0));
        assert_eq!(names(&said), [0, 1, 2]);
        session.answered(7);
        let said = session.say(wanted(&[0, 5, 0]), false);
        assert_eq!((said.session_id, said.session_epoch), (7, 1));
        assert_eq!((names(&said), said.forgotten.len()), (vec![1], 0));
        session.answered(7);
        let said = session.say(wanted(&[0, 5]), false);
        assert_eq!(said.session_epoch, 2);
        assert!(said.named.is_empty());
        assert_eq!(said.forgotten, [((Arc::from("t"), 2), TopicId::ZERO)]);
        assert_eq!(session.offset(&(Arc::from("t"), 1)), Some(5));
        assert_eq!(session.offset(&(Arc::from("t"), 2)), None);
    }

    #[test]
    fn what_ends_a_session_brings_a_full_request_in_its_place() {
        for (code, id) in [(70, 0), (71, 7), (106, 7)] {
            let mut session = Session::default();
            session.say(wanted(&[0, 0]), false);
            session.answered(7);
            session.say(wanted(&[1, 0]), false);
            assert!(session.refused(code));
            let said = session.say(wanted(&[1, 0]), false);
            assert_eq!((said.session_id, said.session_epoch), (id, 0));
            assert_eq!(names(&said), [0, 1]);
        }
    }

    #[test]
    fn a_leader_without_sessions_hears_everything_each_time() {
        let mut session = Session::default();
        for _ in 0..3 {
            let said = session.say(wanted(&[3, 4]), false);
            assert_eq!((said.session_id, said.session_epoch, names(&said)), (0, 0, vec![0, 1]));
            session.answered(0);
            assert_eq!(session.end(), None);
        }
    }

    #[test]
    fn a_session_ends_with_a_request_that_names_nothing() {
        let mut session = Session::default();
        session.say(wanted(&[0]), false);
        session.answered(7);
        let ends = Said { session_id: 7, session_epoch: -1, ..Said::default() };
        assert_eq!(session.end(), Some(ends));
    }

    #[test]
    fn a_topic_made_anew_is_named_by_its_new_id_and_forgotten_by_the_old_one() {
        let mut session = Session::default();
        let id = |number| TopicId([number; 16]);
        let one = |number| {
            wanted(&[3])
                .into_iter()
                .map(|(key, asked)| (key, Asked { topic_id: id(number), ..asked }))
                .collect::<Vec<_>>()
        };
        session.say(one(1), true);
        session.answered(7);
        let said = session.say(one(2), true);
        assert_eq!(said.named, one(2));
        assert_eq!(said.forgotten, [((Arc::from("t"), 0), id(1))]);
        session.answered(7);
        let said = session.say(wanted(&[3]), false);
        assert_eq!((said.session_id, said.session_epoch), (7, 0), "names and ids do not mix");
    }

    #[test]
    fn after_the_last_epoch_comes_the_first() {
        let mut session = Session { id: 7, epoch: i32::MAX, ..Session::default() };
        session.answered(7);
        assert_eq!(session.say(Vec::new(), false).session_epoch, 1);
    }
}
