//! Asks the coordinator of a transaction for some partitions, before their first batch of that
//! transaction is appended: whether it has them (KIP-890), or that it adds them.
//!
//! The coordinator may be on this broker and answer at once. Else the request is delayed, and is
//! retried when all answers are there.
//! Threads: the answers come on any thread.
//! Not promised: that all partitions have the same answer.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::broker::requests::broker::Broker;
use crate::broker::requests::delayed::Wake;
use crate::broker::state::transactions::verify_or_add::VerifyOrAdd;
use crate::broker::state::waking::DelayedId;
use crate::broker::transactions::transaction::ProducerIdentity;
use crate::ids::TopicPartition;
use crate::protocol::ErrorCode;

/// The longest wait for the coordinator. The port to other brokers answers earlier.
pub(crate) const WAIT_MS: i64 = 30_000;

/// The partitions that a producer needs in its transaction.
#[derive(Clone, Debug)]
pub(crate) struct VerifyOrAddRequest<'a> {
    pub(crate) transactional_id: &'a str,
    pub(crate) producer: ProducerIdentity,
    pub(crate) partitions: Vec<TopicPartition>,
    pub(crate) mode: VerifyOrAdd,
}

/// The coordinator's answers to one request, as they come.
#[derive(Debug, Default)]
pub(crate) struct CoordinatorAnswers(Mutex<AnswersState>);

#[derive(Debug, Default)]
struct AnswersState {
    /// How many answers have not come.
    left: usize,
    /// The code of each partition.
    codes: Vec<ErrorCode>,
    /// The delayed request and its thread.
    waiter: Option<(usize, DelayedId)>,
}

impl CoordinatorAnswers {
    /// Asks the coordinator. Partitions are added all at once, and verified one by one.
    pub(crate) fn begin(broker: &Broker, request: VerifyOrAddRequest<'_>) -> Arc<Self> {
        let VerifyOrAddRequest { transactional_id, producer, partitions, mode } = request;
        let count = partitions.len();
        let size = if mode == VerifyOrAdd::Add { count.max(1) } else { 1 };
        let questions = partitions.chunks(size);
        let state = AnswersState {
            left: questions.len(),
            codes: vec![ErrorCode::None; count],
            waiter: None,
        };
        let answers = Arc::new(Self(Mutex::new(state)));
        for (number, question) in questions.enumerate() {
            let answers = Arc::clone(&answers);
            let from = number * size;
            let then = move |broker: &Broker, answer: Result<(), ErrorCode>| {
                answers.answered(broker, (from, size), answer);
            };
            broker.verify_or_add_partitions(
                transactional_id,
                producer,
                (question, mode),
                Box::new(then),
            );
        }
        answers
    }

    /// Answers that did not come in time.
    pub(crate) fn refused(count: usize, error: ErrorCode) -> Arc<Self> {
        let state = AnswersState { left: 0, codes: vec![error; count], waiter: None };
        Arc::new(Self(Mutex::new(state)))
    }

    fn answered(
        &self,
        broker: &Broker,
        (from, count): (usize, usize),
        answer: Result<(), ErrorCode>,
    ) {
        let mut state = self.0.lock();
        for code in state.codes.iter_mut().skip(from).take(count) {
            *code = answer.err().unwrap_or(ErrorCode::None);
        }
        state.left = state.left.saturating_sub(1);
        if state.left == 0
            && let Some((thread, id)) = state.waiter.take()
        {
            drop(state);
            broker.post(thread, Wake::Recheck(id));
        }
    }

    /// The code of each partition, once all answers have come.
    pub(crate) fn codes(&self) -> Option<Vec<ErrorCode>> {
        let state = self.0.lock();
        (state.left == 0).then(|| state.codes.clone())
    }

    /// Has the request `id` of a network thread retried when all answers have come. True: they have
    /// come already.
    pub(crate) fn wait(&self, thread: usize, id: DelayedId) -> bool {
        let mut state = self.0.lock();
        if state.left > 0 {
            state.waiter = Some((thread, id));
        }
        state.left == 0
    }
}
