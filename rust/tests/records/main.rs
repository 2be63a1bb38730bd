//! The record formats against everything that knows better: another project's codec, the way back
//! of each conversion, and bytes that are cut, flipped or blown up.

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
