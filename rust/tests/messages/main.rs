//! The generated messages, checked with Kafka's own layouts, a second encoder, another project's
//! codec, and bytes written by hand.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod facts;
mod foreign;
mod golden;
mod language;
mod round_trips;
#[allow(dead_code, reason = "another test uses the rest")]
mod sample;
#[path = "../../build/schema.rs"]
#[allow(dead_code, reason = "the tests need less of the parser than the generator does")]
mod schema;
