//! A transaction that another process ends: the producer delivers its records, leaves it open, and
//! tells what the other process needs for EndTxn, and where the records are.
//!
//! Not promised: that the transaction is still open when the other process asks for its end. Its
//! time may be up, or a later producer of its transactional id may have fenced it.

use super::Producer;
use super::transaction::TransactionState;
use super::written::PreparedTransaction;
use crate::client::metadata::PartitionKey;
use crate::client::{Error, Result};

impl Producer {
    /// Hands the transaction over. The caller has delivered all records. This producer can have no
    /// further transaction.
    pub fn hand_over(&mut self) -> Result<PreparedTransaction> {
        let identity = self.transaction_identity()?;
        let Some(manager) = self.transaction.as_mut() else {
            return Err(Error::Invalid("transactions need a transactional.id".to_owned()));
        };
        if manager.state != TransactionState::Committing {
            return Err(Error::Invalid("the transaction is not prepared".to_owned()));
        }
        let written = std::mem::take(&mut manager.written);
        if written.is_unsure {
            let text = "a broker did not say at which offset it wrote a batch";
            return Err(Error::Invalid(text.to_owned()));
        }
        let text = "the transaction was handed over: another process ends it";
        manager.state = TransactionState::Fatal(Error::Invalid(text.to_owned()));
        Ok(PreparedTransaction {
            producer_id: identity.0,
            producer_epoch: identity.1,
            is_v2: manager.is_v2,
            written: written.ranges.into_iter().collect(),
        })
    }

    /// Notes where an acknowledged batch of the transaction is.
    pub(super) fn note_written(&mut self, key: &PartitionKey, base_offset: i64, count: i32) {
        if let Some(manager) = self.transaction.as_mut() {
            manager.written.add(key, base_offset, count);
        }
    }
}
