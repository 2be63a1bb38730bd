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

/// The coordinators' code with a bug in it, which `tests/planted_transactions.py` has written.
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
    #[allow(dead_code, reason = "the simulation uses a part")]
    pub mod state {
        pub mod groups {
            pub mod offsets {
                include!(concat!(env!("KRUST_PLANTED"), "/offsets.rs"));
            }
            pub mod pending_offsets {
                include!(concat!(env!("KRUST_PLANTED"), "/pending_offsets.rs"));
            }
            pub mod shard_groups {
                include!(concat!(env!("KRUST_PLANTED"), "/shard_groups.rs"));
            }
        }
    }
    pub use state::groups::shard_groups::ShardGroups;
}

/// What that code imports from the crate that it belongs to.
#[cfg(krust_planted)]
mod ids {
    pub use krust::ids::TopicPartition;
}
#[cfg(krust_planted)]
mod protocol {
    pub use krust::protocol::{ErrorCode, transaction_log_key, transaction_log_value};
    pub use krust::protocol::{offset_commit_key, offset_commit_value};
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
