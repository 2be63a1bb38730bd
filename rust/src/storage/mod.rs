//! The log on disk. Knows batches, offsets and files; knows no protocol.

pub mod files;
