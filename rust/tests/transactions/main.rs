//! The transaction coordinator's decisions, without a broker.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    reason = "a test fails by panicking"
)]

#[cfg(not(krust_planted))]
use krust::broker;

/// The coordinator's steps with a bug in them, which `tests/planted_transactions.py` has written.
#[cfg(krust_planted)]
mod broker {
    pub mod transactions {
        pub mod records {
            include!(concat!(env!("KRUST_PLANTED"), "/records.rs"));
        }
        pub mod step {
            include!(concat!(env!("KRUST_PLANTED"), "/step.rs"));
        }
        pub mod transaction {
            include!(concat!(env!("KRUST_PLANTED"), "/transaction.rs"));
        }
    }
}

/// What the steps import from the crate that they belong to.
#[cfg(krust_planted)]
mod ids {
    pub use krust::ids::TopicPartition;
}
#[cfg(krust_planted)]
mod protocol {
    pub use krust::protocol::{ErrorCode, transaction_log_key, transaction_log_value};
}
#[cfg(krust_planted)]
mod wire {
    pub use krust::wire::{DecodeError, Writer};
}

mod epochs_run_out;
mod id;
mod no_reader_sees_half;
mod producers_are_fenced;
mod records_are_kafkas;
mod simulation;
mod transactions_end_once;
