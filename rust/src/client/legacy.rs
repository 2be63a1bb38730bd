//! Brokers before 0.11 know no batches: what is written to them is refused here, and so is what they
//! answer.

use super::error::{Error, Result};

/// A batch as a message set of an old magic.
pub(super) fn downgrade(_batch: &[u8], _magic: i8) -> Result<Vec<u8>> {
    Err(Error::refused(43, "a broker before 0.11"))
}

/// A message set as batches.
pub(super) fn upgrade(
    _set: &[u8],
    (topic, partition): &(std::sync::Arc<str>, i32),
) -> Result<Vec<u8>> {
    Err(Error::refused(43, format!("{topic}:{partition}")))
}
