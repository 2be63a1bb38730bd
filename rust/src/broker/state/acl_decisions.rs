//! What a client was allowed already, so that the next request for the same resource costs one
//! lookup, however many ACLs and prefixes there are.
//!
//! Format: by type of resource and name, the operations that were decided and those of them that
//!     are allowed.
//! Threads: all; a lock that is held for a lookup.
//! Limits: [`NAMES_MAX`] names of each type; the next one empties that type.

use ahash::HashMap;
use parking_lot::Mutex;

use crate::broker::state::acl_operations::{Operation, ResourceType, TYPES};

const NAMES_MAX: usize = 512;

#[derive(Debug, Default)]
pub(super) struct AclDecisions(Mutex<[HashMap<Box<str>, Decided>; TYPES]>);

/// Sets of operations.
#[derive(Clone, Copy, Debug, Default)]
struct Decided {
    asked: u16,
    allowed: u16,
}

impl AclDecisions {
    /// Whether an operation is allowed: as decided before, or as `decide` says now.
    #[inline]
    pub(super) fn or_decide(
        &self,
        (operation, of, name): (Operation, ResourceType, &str),
        decide: impl FnOnce() -> bool,
    ) -> bool {
        let decided = self.0.lock().get(of.index()).and_then(|names| names.get(name).copied());
        match decided {
            Some(Decided { asked, allowed }) if asked & operation.bit() != 0 => {
                allowed & operation.bit() != 0
            }
            _ => {
                let is_allowed = decide();
                self.keep((operation, of, name), is_allowed);
                is_allowed
            }
        }
    }

    fn keep(&self, (operation, of, name): (Operation, ResourceType, &str), is_allowed: bool) {
        let mut types = self.0.lock();
        let Some(names) = types.get_mut(of.index()) else { return };
        if names.len() >= NAMES_MAX && !names.contains_key(name) {
            names.clear();
        }
        let decided = names.entry(name.into()).or_default();
        decided.asked |= operation.bit();
        decided.allowed |= if is_allowed { operation.bit() } else { 0 };
    }
}

/// A copy has decided nothing yet.
impl Clone for AclDecisions {
    fn clone(&self) -> Self {
        Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Operation::{Read, Write};
    use ResourceType::{Group, Topic};

    #[test]
    fn each_operation_on_each_resource_is_decided_once() {
        let decisions = AclDecisions::default();
        for (operation, of, name, is_allowed) in
            [(Read, Topic, "t", true), (Write, Topic, "t", false), (Read, Group, "t", false)]
        {
            let asked = (operation, of, name);
            assert_eq!(decisions.or_decide(asked, || is_allowed), is_allowed);
            assert_eq!(decisions.or_decide(asked, || panic!("decided before")), is_allowed);
        }
        assert!(decisions.or_decide((Read, Topic, "another"), || true));
    }

    #[test]
    fn no_more_names_are_kept_than_fit() {
        let decisions = AclDecisions::default();
        for nth in 0..3 * NAMES_MAX {
            decisions.or_decide((Read, Topic, &format!("t-{nth}")), || true);
            assert!(decisions.0.lock()[0].len() <= NAMES_MAX);
        }
    }
}
