//! The state that the partitions of a broker share for replication: the clock, and the in-sync sets
//! that leaders propose to the controller.
//!
//! A proposal waits until the request before it was answered. Then all that wait are sent in one
//! AlterPartition request, at most [`BATCH`] of them. `requests::alter_partition` sends it.
//! Threads: any; one short lock, taken after the lock of a partition's replica.
//! Limits: a partition has at most one proposal, because its leader proposes again only after it
//!     knows the outcome.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::broker::policy::Ticket;
use crate::broker::replica::leader::ProposedIsr;
use crate::clock::Clock;
use crate::ids::{TopicId, TopicPartition};

/// The most proposals in one request.
const BATCH: usize = 1000;

/// The clock and the proposals (see the module).
pub(crate) struct ReplicationContext {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) proposals: IsrProposals,
}

/// A proposed in-sync set of a partition.
#[derive(Clone, Debug)]
pub(crate) struct IsrProposal {
    pub(crate) partition: TopicPartition,
    pub(crate) topic_id: TopicId,
    pub(crate) proposed: ProposedIsr,
}

/// The proposals that wait, and those on their way to the controller.
#[derive(Debug, Default)]
pub(crate) struct IsrProposals(Mutex<ProposalQueue>);

#[derive(Debug, Default)]
struct ProposalQueue {
    waiting: VecDeque<IsrProposal>,
    sent: Option<SentProposals>,
    /// Partitions whose last proposal has to be repeated.
    repeated: Vec<TopicPartition>,
}

/// One AlterPartition request that was not answered yet.
#[derive(Clone, Debug)]
pub(crate) struct SentProposals {
    pub(crate) ticket: Ticket,
    /// Monotonic milliseconds.
    pub(crate) sent_ms: i64,
    pub(crate) proposals: Vec<IsrProposal>,
}

impl ReplicationContext {
    /// A context without proposals.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { clock, proposals: IsrProposals::default() })
    }
}

impl IsrProposals {
    /// Adds a proposal. The caller has it sent.
    pub(crate) fn add(&self, proposal: IsrProposal) {
        self.0.lock().waiting.push_back(proposal);
    }

    /// The proposals for the next request, whose ticket `open` returns; `None` if none waits or a
    /// request is on its way.
    pub(crate) fn next(
        &self,
        sent_ms: i64,
        open: impl FnOnce() -> Ticket,
    ) -> Option<SentProposals> {
        let mut queue = self.0.lock();
        if queue.sent.is_some() || queue.waiting.is_empty() {
            return None;
        }
        let count = queue.waiting.len().min(BATCH);
        let proposals = queue.waiting.drain(..count).collect();
        let sent = SentProposals { ticket: open(), sent_ms, proposals };
        queue.sent = Some(sent.clone());
        Some(sent)
    }

    /// The proposals of the request with this ticket, which was answered or is given up.
    pub(crate) fn ended(&self, ticket: Ticket) -> Vec<IsrProposal> {
        let mut queue = self.0.lock();
        let sent = queue.sent.take_if(|sent| sent.ticket == ticket);
        sent.map_or_else(Vec::new, |sent| sent.proposals)
    }

    /// Notes that the last proposal of a partition has to be repeated, after a pause.
    pub(crate) fn repeat(&self, partition: TopicPartition) {
        self.0.lock().repeated.push(partition);
    }

    /// The partitions noted since the last call.
    pub(crate) fn to_repeat(&self) -> Vec<TopicPartition> {
        std::mem::take(&mut self.0.lock().repeated)
    }

    /// The ticket of a request that was sent before `until_ms`.
    pub(crate) fn sent_before(&self, until_ms: i64) -> Option<Ticket> {
        let queue = self.0.lock();
        queue.sent.as_ref().filter(|sent| sent.sent_ms < until_ms).map(|sent| sent.ticket)
    }
}
