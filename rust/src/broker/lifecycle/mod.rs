//! The lifecycle of partitions: metadata deltas are applied, logs opened, moved and closed, and the
//! logs of coordinators replayed and appended to.

pub(crate) mod coordinator;
mod fetching;
pub mod groups;
mod metadata_delta;
mod moves;
pub mod opening;
mod proven;
