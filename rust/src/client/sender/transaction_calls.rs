//! A call on the transaction of a `Sender`, from the caller's request to the thread's answer.

use std::time::Duration;

use crate::client::options::Wait;
use crate::client::producer::{GroupOffsets, PreparedTransaction, Producer, ProducerConfig};
use crate::client::{Error, Result};

/// A call on the transaction.
#[derive(Debug)]
pub(super) enum TransactionCall {
    Init,
    Begin,
    SendOffsets(GroupOffsets),
    PrepareEnd { commit: bool },
    End,
    HandOver,
}

/// The call of a caller, from the request to the answer.
#[derive(Debug, Default)]
pub(super) enum CallState {
    #[default]
    None,
    Requested(TransactionCall, Duration),
    Running,
    Answered(Result<()>),
}

/// The part of the shared state that concerns transactions.
#[derive(Debug, Default)]
pub(super) struct TransactionCalls {
    /// Why no record is accepted now.
    pub(super) refusal: Option<Error>,
    pub(super) call: CallState,
    /// The answer of the last call that handed a transaction over.
    pub(super) handed_over: Option<PreparedTransaction>,
    /// A transaction is open, or its end is unfinished.
    pub(super) is_open: bool,
}

impl TransactionCalls {
    pub(super) fn of(config: &ProducerConfig) -> Self {
        let refusal = config.transactional_id.as_ref().map(|_| {
            Error::Invalid(
                "no transaction is open: a producer with a transactional.id writes in transactions"
                    .to_owned(),
            )
        });
        Self { refusal, ..Self::default() }
    }

    pub(super) fn is_requested(&self) -> bool {
        matches!(self.call, CallState::Requested(..))
    }
}

impl TransactionCall {
    /// Makes the call.
    pub(super) fn make(
        self,
        producer: &mut Producer,
        wait: &Wait,
    ) -> Result<Option<PreparedTransaction>> {
        let made = match self {
            TransactionCall::Init => producer.init_transactions(wait),
            TransactionCall::Begin => producer.begin_transaction(wait),
            TransactionCall::SendOffsets(group) => producer.send_offsets(&group, wait),
            TransactionCall::PrepareEnd { commit } => producer.prepare_end(commit),
            TransactionCall::End => producer.end_transaction(wait),
            TransactionCall::HandOver => return producer.hand_over().map(Some),
        };
        made.map(|()| None)
    }
}
