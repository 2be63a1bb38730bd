//! Replication of one partition: its step functions alone, and whole clusters of them in a
//! simulator with real logs.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    reason = "a test fails by panicking"
)]

#[cfg(not(krust_planted))]
use krust::broker::replica;

/// The step functions with a bug in them, which `tests/planted_replication.py` has written.
#[cfg(krust_planted)]
mod replica {
    pub mod follower {
        include!(concat!(env!("KRUST_PLANTED"), "/follower.rs"));
    }
    pub mod leader {
        include!(concat!(env!("KRUST_PLANTED"), "/leader.rs"));
    }
}

/// What the step functions import from the crate that they belong to.
#[cfg(krust_planted)]
mod ids {
    pub use krust::ids::{Epoch, Offset};
}
#[cfg(krust_planted)]
mod protocol {
    pub use krust::protocol::ErrorCode;
}
#[cfg(krust_planted)]
mod storage {
    pub use krust::storage::Log;
}

mod every_interleaving_holds;
mod exhaustive;
mod followers_agree_with_their_leader;
mod leaders_keep_what_is_committed;
mod no_acknowledged_record_is_lost;
mod simulation;
