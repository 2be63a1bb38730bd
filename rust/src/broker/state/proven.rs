//! Lower bounds that opened logs prove and that the policy has not fetched yet (see
//! `lifecycle::proven`).

use parking_lot::Mutex;

use crate::ids::{Epoch, TopicPartition};

/// The bounds that logs prove and that the policy has not fetched yet.
#[derive(Debug, Default)]
pub(crate) struct ProvenBounds {
    pub(crate) epochs: Mutex<Vec<(TopicPartition, Epoch)>>,
}
