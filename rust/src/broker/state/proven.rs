//! Lower bounds that opened logs prove and the policy has not yet been told of (see
//! `lifecycle::proven`).

use parking_lot::Mutex;

use crate::ids::{Epoch, TopicPartition};

/// The bounds that logs prove and the policy must be told.
#[derive(Debug, Default)]
pub(crate) struct Proven {
    pub(crate) epochs: Mutex<Vec<(TopicPartition, Epoch)>>,
}
