//! The transaction coordinator's decisions, without a broker.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod epochs_run_out;
mod id;
mod producers_are_fenced;
mod records_are_kafkas;
mod transactions_end_once;
