//! An incremental fetch session (KIP-227), as Kafka's FetchSessionHandler: a Fetch names only the
//! partitions that changed.
//!
//! The first request names every partition and asks for a session. The next ones name partitions
//! that are new or have another offset, and partitions that the leader should forget. Responses
//! leave out partitions without changes. If the leader gives no session (id 0, or Fetch before
//! version 7), every request is full. Every error leads to a full request, which also replaces the
//! old session.
//! ```text
//! full (epoch 0) --response with an id--> 1, 2, .. 2^31-1, 1
//! any epoch --70, 71, 106, connection lost--> full (epoch 0)
//! any with an id --closed--> -1
//! ```
//! Threads: one at a time.

use std::collections::HashMap;

use super::metadata::PartitionKey;
use crate::ids::TopicId;

const SESSION_ID_NOT_FOUND: i16 = 70;
const INVALID_SESSION_EPOCH: i16 = 71;
const SESSION_TOPIC_ID_ERROR: i16 = 106;

/// The epoch of the request that ends a session.
const FINAL_EPOCH: i32 = -1;

/// The request for one partition of a Fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FetchPosition {
    pub(super) topic_id: TopicId,
    pub(super) offset: i64,
    /// -1: not known.
    pub(super) leader_epoch: i32,
    pub(super) max_bytes: i32,
}

/// The session part of one request, as Kafka's FetchSessionHandler.FetchRequestData.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FetchRequestData {
    pub(super) session_id: i32,
    pub(super) session_epoch: i32,
    pub(super) to_send: Vec<(PartitionKey, FetchPosition)>,
    pub(super) to_forget: Vec<(PartitionKey, TopicId)>,
}

/// The client's side of a fetch session (see the module).
#[derive(Debug, Default)]
pub(super) struct FetchSessionHandler {
    id: i32,
    /// The epoch of the next request; 0: a full request.
    epoch: i32,
    by_id: bool,
    session_partitions: HashMap<PartitionKey, FetchPosition>,
}

impl FetchSessionHandler {
    /// The request after which the leader's session holds exactly `wanted`.
    pub(super) fn build_request(
        &mut self,
        wanted: Vec<(PartitionKey, FetchPosition)>,
        by_id: bool,
    ) -> FetchRequestData {
        if self.epoch == 0 || by_id != self.by_id {
            self.reset();
        }
        self.by_id = by_id;
        let before = std::mem::take(&mut self.session_partitions);
        self.session_partitions.extend(wanted.iter().cloned());
        let to_send =
            wanted.into_iter().filter(|(key, position)| before.get(key) != Some(position));
        let gone = before.iter().filter(|(key, before)| {
            let now = self.session_partitions.get(*key);
            now.is_none_or(|now| by_id && now.topic_id != before.topic_id)
        });
        FetchRequestData {
            session_id: self.id,
            session_epoch: self.epoch,
            to_send: to_send.collect(),
            to_forget: gone.map(|(key, position)| (key.clone(), position.topic_id)).collect(),
        }
    }

    /// The offset that the Fetch in flight names for a partition.
    pub(super) fn offset(&self, key: &PartitionKey) -> Option<i64> {
        self.session_partitions.get(key).map(|position| position.offset)
    }

    /// Handles a response with this session id; 0: the leader keeps no session.
    pub(super) fn handle_response(&mut self, session_id: i32) {
        self.epoch = match (session_id, self.epoch) {
            (0, _) => 0,
            (_, i32::MAX) => 1,
            (_, epoch) => epoch + 1,
        };
        self.id = session_id;
    }

    /// Handles a response with an error. Returns whether a full request solves it.
    pub(super) fn handle_error(&mut self, code: i16) -> bool {
        if code == SESSION_ID_NOT_FOUND {
            self.id = 0;
        }
        self.reset();
        matches!(code, SESSION_ID_NOT_FOUND | INVALID_SESSION_EPOCH | SESSION_TOPIC_ID_ERROR)
    }

    /// The request that closes the session; `None`: the leader keeps none.
    pub(super) fn close_request(&self) -> Option<FetchRequestData> {
        let data = FetchRequestData {
            session_id: self.id,
            session_epoch: FINAL_EPOCH,
            ..FetchRequestData::default()
        };
        (self.id != 0).then_some(data)
    }

    /// Makes the next request a full one, which replaces this session.
    pub(super) fn reset(&mut self) {
        self.epoch = 0;
        self.session_partitions.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn wanted(offsets: &[i64]) -> Vec<(PartitionKey, FetchPosition)> {
        let position = |offset: &i64| FetchPosition {
            topic_id: TopicId::ZERO,
            offset: *offset,
            leader_epoch: 0,
            max_bytes: 9,
        };
        (0..).zip(offsets).map(|(p, offset)| ((Arc::from("t"), p), position(offset))).collect()
    }

    fn partitions(data: &FetchRequestData) -> Vec<i32> {
        data.to_send.iter().map(|((_, partition), _)| *partition).collect()
    }

    #[test]
    fn a_request_names_only_what_changed() {
        let mut session = FetchSessionHandler::default();
        let data = session.build_request(wanted(&[0, 0, 0]), false);
        assert_eq!((data.session_id, data.session_epoch), (0, 0));
        assert_eq!(partitions(&data), [0, 1, 2]);
        session.handle_response(7);
        let data = session.build_request(wanted(&[0, 5, 0]), false);
        assert_eq!((data.session_id, data.session_epoch), (7, 1));
        assert_eq!((partitions(&data), data.to_forget.len()), (vec![1], 0));
        session.handle_response(7);
        let data = session.build_request(wanted(&[0, 5]), false);
        assert_eq!(data.session_epoch, 2);
        assert!(data.to_send.is_empty());
        assert_eq!(data.to_forget, [((Arc::from("t"), 2), TopicId::ZERO)]);
        assert_eq!(session.offset(&(Arc::from("t"), 1)), Some(5));
        assert_eq!(session.offset(&(Arc::from("t"), 2)), None);
    }

    #[test]
    fn a_session_error_leads_to_a_full_request() {
        for (code, id) in [(70, 0), (71, 7), (106, 7)] {
            let mut session = FetchSessionHandler::default();
            session.build_request(wanted(&[0, 0]), false);
            session.handle_response(7);
            session.build_request(wanted(&[1, 0]), false);
            assert!(session.handle_error(code));
            let data = session.build_request(wanted(&[1, 0]), false);
            assert_eq!((data.session_id, data.session_epoch), (id, 0));
            assert_eq!(partitions(&data), [0, 1]);
        }
    }

    #[test]
    fn every_request_to_a_leader_without_sessions_is_full() {
        let mut session = FetchSessionHandler::default();
        for _ in 0..3 {
            let data = session.build_request(wanted(&[3, 4]), false);
            assert_eq!(
                (data.session_id, data.session_epoch, partitions(&data)),
                (0, 0, vec![0, 1])
            );
            session.handle_response(0);
            assert_eq!(session.close_request(), None);
        }
    }

    #[test]
    fn the_request_that_closes_a_session_names_no_partition() {
        let mut session = FetchSessionHandler::default();
        session.build_request(wanted(&[0]), false);
        session.handle_response(7);
        let ends =
            FetchRequestData { session_id: 7, session_epoch: -1, ..FetchRequestData::default() };
        assert_eq!(session.close_request(), Some(ends));
    }

    #[test]
    fn a_recreated_topic_is_added_by_its_new_id_and_forgotten_by_its_old_id() {
        let mut session = FetchSessionHandler::default();
        let id = |number| TopicId([number; 16]);
        let one = |number| {
            wanted(&[3])
                .into_iter()
                .map(|(key, position)| (key, FetchPosition { topic_id: id(number), ..position }))
                .collect::<Vec<_>>()
        };
        session.build_request(one(1), true);
        session.handle_response(7);
        let data = session.build_request(one(2), true);
        assert_eq!(data.to_send, one(2));
        assert_eq!(data.to_forget, [((Arc::from("t"), 0), id(1))]);
        session.handle_response(7);
        let data = session.build_request(wanted(&[3]), false);
        assert_eq!((data.session_id, data.session_epoch), (7, 0), "names and ids do not mix");
    }

    #[test]
    fn the_epoch_after_the_largest_one_is_one() {
        let mut session =
            FetchSessionHandler { id: 7, epoch: i32::MAX, ..FetchSessionHandler::default() };
        session.handle_response(7);
        assert_eq!(session.build_request(Vec::new(), false).session_epoch, 1);
    }
}
