//! [`TxnMarker`]: the end of a transaction, as a coordinator tells the leaders of its partitions.

use crate::record::control::EndTransactionMarker;

/// A marker to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxnMarker {
    /// Whose transaction ends, how, and which coordinator says so.
    pub ends: EndTransactionMarker,
    /// The `transaction.version` that the transaction followed; from 2 on the marker has the epoch
    /// after that of its transaction. 0 where the coordinator does not say.
    pub transaction_version: i8,
}
