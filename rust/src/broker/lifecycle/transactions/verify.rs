//! Asks the coordinator of a transaction for partitions, wherever it is.
//!
//! Threads: any. The answer may come before [`Broker::enlist`] returns, or later on any thread.

use crate::broker::requests::broker::Broker;
use crate::broker::state::transactions::enlisting::EnlistMode;
use crate::broker::transactions::step::{Event, Outcome};
use crate::broker::transactions::transaction::ProducerIdentity;
use crate::ids::TopicPartition;
use crate::protocol::ErrorCode;

/// Takes the coordinator's answer. It must not block.
pub(crate) type EnlistCallback = Box<dyn FnOnce(&Broker, Result<(), ErrorCode>) + Send>;

impl Broker {
    /// Has the coordinator verify or add partitions of a producer's transaction, and calls `then`
    /// with its answer once the state that it was made from is committed.
    pub(crate) fn enlist(
        &self,
        transactional_id: &str,
        producer: ProducerIdentity,
        (partitions, mode): (&[TopicPartition], EnlistMode),
        then: EnlistCallback,
    ) {
        let event = match mode {
            EnlistMode::Verify => Event::Verify { producer, partitions },
            EnlistMode::Add => Event::AddPartitions { producer, partitions },
        };
        let applied = match self.step_transaction(transactional_id, &event) {
            Ok(applied) => applied,
            Err(error) => return then(self, Err(error)),
        };
        let answer = match applied.outcome {
            Outcome::Verified(codes) => {
                codes.into_iter().find(|code| *code != ErrorCode::None).map_or(Ok(()), Err)
            }
            _ => Ok(()),
        };
        let me = self.me.clone();
        let callback = move |outcome: Result<(), ErrorCode>| {
            if let Some(broker) = me.upgrade() {
                then(&broker, outcome.and(answer));
            }
        };
        self.on_commit(&applied.at, Box::new(callback));
    }
}
