//! What a partition's leader asks the coordinator of a transaction.

/// What the coordinator does with the partitions of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerifyOrAdd {
    /// It says whether they belong to the open transaction.
    Verify,
    /// It adds them to the transaction.
    Add,
}
