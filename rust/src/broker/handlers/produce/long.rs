//! Long Produce requests: a worker checks, converts, appends and commits the batches that the
//! network thread left over, and replies. What takes long: a large inflation (see
//! `inflation_budget`), and an append that needs a new segment.
//!
//! The worker has its own copy of the request, because the connection's buffer is reused. It takes
//! the newest cluster image, so that it does not write to a partition that has moved away.
//! Threads: a worker.

use crate::broker::handlers::produce::append::AppendRules;
use crate::broker::handlers::produce::partition_result::PartitionResult;
use crate::broker::handlers::produce::reply;
use crate::broker::handlers::produce::scratch::{ProduceReply, ProduceScratch};
use crate::broker::requests::broker::Broker;
use crate::broker::requests::delayed::WorkResult;
use crate::broker::requests::head::Head;
use crate::broker::requests::reply::Output;
use crate::broker::state::waking::Wakes;
use crate::protocol::produce::ProduceRequest;
use crate::wire::Reader;

/// A request that a worker finishes.
pub(crate) struct LongProduce {
    pub(crate) head: Head,
    /// Its bytes after the header.
    pub(crate) body: Vec<u8>,
    pub(crate) rules: AppendRules,
    /// The results of its first partitions, which are committed.
    pub(crate) results: Vec<PartitionResult>,
    /// The deadline of its acknowledgement, on the monotonic clock.
    pub(crate) deadline_ms: i64,
}

impl LongProduce {
    pub(crate) fn run(self, broker: &Broker) -> WorkResult {
        let Self { head, body, rules, results, deadline_ms } = self;
        let Ok(message) = ProduceRequest::decode(&mut Reader::new(&body), head.version) else {
            return WorkResult::Fails;
        };
        let image = broker.image();
        let from = results.len();
        let mut scratch = ProduceScratch { results, ..ProduceScratch::default() };
        scratch.stage(&image, (&rules, &message, from));
        scratch.commit(&mut Wakes { here: None, waker: broker });
        let results = &mut scratch.results;
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
