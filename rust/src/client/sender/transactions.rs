//! Calls of a `Sender` on its transaction. The caller leaves the call in the shared state and
//! waits; the sender's thread makes it and leaves the answer.
//!
//! Commit and abort have three steps: no more records are accepted, all batches are delivered or
//! dropped, the coordinator ends the transaction.
//! Threads: any caller, one call at a time; others wait. A caller that is interrupted leaves its
//! call to the thread.

use std::time::Duration;

use super::Sender;
use super::state::closed;
use super::transaction_calls::{CallState, TransactionCall};
use crate::client::producer::{GroupOffsets, PreparedTransaction};
use crate::client::{Error, Result};

impl Sender {
    /// Claims the transactional id, if that is not done. Waits for `max_block` at most.
    pub fn init_transactions(&self) -> Result<()> {
        self.call(TransactionCall::Init)
    }

    /// Begins a transaction.
    pub fn begin_transaction(&self) -> Result<()> {
        self.call(TransactionCall::Begin)
    }

    /// Commits offsets of a group when the transaction commits.
    pub fn send_offsets(&self, group: GroupOffsets) -> Result<()> {
        self.call(TransactionCall::SendOffsets(group))
    }

    /// Sends all records and commits, or drops them and aborts. The records may take `delivery`.
    pub fn end_transaction(&self, commit: bool, delivery: Duration) -> Result<()> {
        self.call(TransactionCall::PrepareEnd { commit })?;
        if self.flush(delivery)? > 0 {
            return Err(Error::Timeout { subject: "the records of the transaction".to_owned() });
        }
        self.call(TransactionCall::End)
    }

    /// Sends all records and leaves the transaction open for another process, which ends it.
    pub fn prepare_transaction(&self, delivery: Duration) -> Result<PreparedTransaction> {
        self.call(TransactionCall::PrepareEnd { commit: true })?;
        if self.flush(delivery)? > 0 {
            return Err(Error::Timeout { subject: "the records of the transaction".to_owned() });
        }
        self.call(TransactionCall::HandOver)?;
        let handed_over = self.shared.state.lock().transaction.handed_over.take();
        handed_over.ok_or_else(closed)
    }

    /// Whether a transaction is open or its end is unfinished.
    pub fn in_transaction(&self) -> bool {
        self.shared.state.lock().transaction.is_open
    }

    fn call(&self, call: TransactionCall) -> Result<()> {
        let max_block = self.shared.times.max_block;
        let mut call = Some(call);
        // The thread ends each call after `max_block`; there may be one before this.
        let wait = self.options.wait(max_block * 2 + Duration::from_secs(1));
        let _one_at_a_time = self.transaction_caller.lock();
        let mut state = self.shared.state.lock();
        loop {
            if state.ending {
                return Err(closed());
            }
            match std::mem::take(&mut state.transaction.call) {
                CallState::Answered(answer) if call.is_none() => return answer,
                CallState::None | CallState::Answered(_) => {
                    let Some(call) = call.take() else { return Err(closed()) };
                    state.transaction.call = CallState::Requested(call, max_block);
                    self.shared.wake(&mut state);
                }
                other => state.transaction.call = other,
            }
            self.pause(&mut state, &wait)?;
        }
    }
}
