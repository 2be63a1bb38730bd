//! Followers and producers against real leaders: two brokers in this process, over sockets and
//! files.

#![cfg(test)]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod consumers_read_what_answers;
mod double;
mod fetchers_come_and_go;
mod followers_copy_their_leader;
mod peers_are_asked;
mod producers_follow_the_leader;
mod proxy;
mod throttled_replicas_wait;
