//! The lifecycle of transactions.

mod markers;
