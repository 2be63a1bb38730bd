//! The lifecycle of partitions: applies metadata deltas, opens, moves and closes logs, and replays
//! the logs of coordinators and appends to them.

pub(crate) mod coordinator;
mod fetching;
pub mod groups;
mod metadata_delta;
mod moves;
pub mod opening;
mod proven;
mod transactions;
