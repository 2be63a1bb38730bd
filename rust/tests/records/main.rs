//! The record formats, checked with another project's codec, with each conversion and its inverse,
//! and with bytes that are cut, flipped or blown up.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod foreign;
mod malformed;
mod round_trips;
mod sample;
mod security_record;
