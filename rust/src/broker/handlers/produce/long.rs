//! Long Produce requests: a worker checks, converts, appends and commits the batches that the
//! network thread left over, and replies. What takes long: a large inflation (see
//! `inflation_budget`), an append that needs a new segment, and the coordinator of a transaction
//! (see `verified`).
//!
//! The worker has its own copy of the request, because the connection's buffer is reused. It takes
//! the newest cluster image, so that it does not write to a partition that has moved away.
//! Threads: a worker.

use std::sync::Arc;

use crate::broker::handlers::produce::append::{AppendRules, UnverifiedPartition};
use crate::broker::handlers::produce::partition_result::PartitionResult;
use crate::broker::handlers::produce::scratch::{ProduceReply, ProduceScratch};
use crate::broker::handlers::produce::verified::{self, DelayedVerification};
use crate::broker::handlers::produce::{refused, reply};
use crate::broker::handlers::verify_or_add::{CoordinatorAnswers, WAIT_MS};
use crate::broker::requests::broker::Broker;
use crate::broker::requests::delayed::WorkResult;
use crate::broker::requests::head::Head;
use crate::broker::requests::reply::Output;
use crate::broker::state::refused_batches::SharedRefusedBatches;
use crate::broker::state::waking::Wakes;
use crate::protocol::produce::ProduceRequest;
use crate::wire::Reader;

/// A request that a worker finishes.
#[derive(Debug)]
pub(crate) struct LongProduce {
    pub(crate) head: Head,
    /// Its bytes after the header.
    pub(crate) body: Vec<u8>,
    pub(crate) rules: AppendRules,
    /// The results of its first partitions, which are committed.
    pub(crate) results: Vec<PartitionResult>,
    /// Those of them whose transaction must be verified.
    pub(crate) unverified: Vec<UnverifiedPartition>,
    /// The refused batches of its connection.
    pub(crate) refused_batches: SharedRefusedBatches,
}

impl LongProduce {
    /// `answers`: the coordinator's answers for the partitions in `unverified`, if it was asked.
    pub(crate) fn run(
        self,
        broker: &Broker,
        answers: Option<Arc<CoordinatorAnswers>>,
    ) -> WorkResult {
        let Self { head, body, mut rules, results, unverified, refused_batches } = self;
        let Ok(message) = ProduceRequest::decode(&mut Reader::new(&body), head.version) else {
            return WorkResult::Fails;
        };
        let image = broker.image();
        let from = results.len();
        let mut scratch = ProduceScratch { results, unverified, ..ProduceScratch::default() };
        scratch.stage(&image, (&rules, &message, from));
        scratch.commit(&mut Wakes { here: None, waker: broker });
        scratch.refuse_other_producers();
        if !scratch.unverified.is_empty() {
            let request = (&message, head.version);
            let answers = answers
                .unwrap_or_else(|| verified::verify_or_add(broker, request, &scratch.unverified));
            let Some(codes) = answers.codes() else {
                drop(message);
                let ProduceScratch { results, unverified, .. } = scratch;
                let produce = Self { head, body, rules, results, unverified, refused_batches };
                let deadline_ms = broker.clock.monotonic_ms().saturating_add(WAIT_MS);
                let delayed = DelayedVerification { produce, answers };
                return WorkResult::wait(Box::new(delayed), deadline_ms);
            };
            scratch.confirm(&image, (&mut rules, &message, 0), &codes);
            scratch.commit(&mut Wakes { here: None, waker: broker });
        }
        let timeout_ms = i64::from(message.timeout_ms.max(0));
        let deadline_ms = broker.clock.monotonic_ms().saturating_add(timeout_ms);
        let results = &mut scratch.results;
        refused::settle(&refused_batches, (&image, head.version), (&message, &mut *results));
        match ProduceReply::of(&message, (head.version, results)) {
            ProduceReply::None => WorkResult::Answer(Output::default()),
            ProduceReply::Close => WorkResult::Fails,
            ProduceReply::Now => {
                let mut output = Output::default();
                reply::write(head, &mut output, (&image, &message, results));
                WorkResult::Answer(output)
            }
            ProduceReply::Later(waiting) => WorkResult::wait(Box::new(waiting), deadline_ms),
        }
    }
}
