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

mod followers_agree_with_their_leader;
mod leaders_keep_what_is_committed;
mod no_acknowledged_record_is_lost;
mod simulation;
